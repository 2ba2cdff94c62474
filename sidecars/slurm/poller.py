"""One Slurm cluster: its node records from polls, notifications of changes, batched writes, and
reads on demand.

One poller serves any number of resources, so that their number doesn't matter to slurmrestd.

`GET nodes/?update_time=` costs slurmctld about 2 ms when nothing changed. Slurm reports changes of
the second asked for, so the poller asks for the time of the last answer and misses nothing. It
reads a full list every `full_every` seconds in any case, because an answer about changes doesn't
show removed nodes. A slurmrestd that can't report changes (`sidecars.slurm.news`) is asked for the
full list at once, and from then on first, until a list shows no change.

- `sidecars.slurm.node_cache`: what the answers say, and which vanished nodes are suspect.
- `sidecars.slurm.schedule`: when to poll, and when answers are stale. From the third fault in a row
  the circuit breaker is open: nothing is `known`, and reads and writes are refused here until a
  poll succeeds.
- `sidecars.slurm.writer`: batched writes.
- `sidecars.slurm.on_demand`: jobs, partitions, reservations, licenses.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sidecars.slurm import protocol
from sidecars.slurm.carrier import Carrier
from sidecars.slurm.errors import NotFound, Refused, SlurmError, Unreachable
from sidecars.slurm.news import refuses_changes
from sidecars.slurm.node_cache import CONFIRM_AFTER, NodeCache
from sidecars.slurm.on_demand import OnDemand
from sidecars.slurm.pending import CachedRead
from sidecars.slurm.protocol import Request
from sidecars.slurm.records import Node, Nodes
from sidecars.slurm.schedule import BREAKER_FAULTS, PollSchedule
from sidecars.slurm.versions import Release
from sidecars.slurm.writer import NodeWriter

Subscriber = Callable[[frozenset[str], frozenset[str]], None]

log = logging.getLogger(__name__)


class Poller:
    """Polls one Slurm cluster and writes to it. `clock` is monotonic seconds; `run()` polls until
    cancelled.

    `drain`, `undrain`, `resume`, `down`, `power_up`, `power_down`, `power_down_when_idle` and
    `update` are those of NodeWriter. `jobs`, `queue`, `partitions`, `reservations` and `reserve`
    are those of OnDemand.
    """

    def __init__(
        self,
        client: Carrier,
        clock: Callable[[], float],
        *,
        interval: float = 1.0,
        full_every: float = 30.0,
        rng: random.Random | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._cache = NodeCache(clock(), full_every)
        self._schedule = PollSchedule(interval, rng or random.Random())  # noqa: S311 - spreads load, guards nothing
        self._was_known = False
        self.generation = 0
        """Increases whenever `known` becomes true or false, and whenever a late request has
        completed.
        """
        self._subscribers: list[Subscriber] = []
        self._woken = asyncio.Event()
        self._polling = asyncio.Lock()
        self._writer = NodeWriter(client, clock, self._cache, self._guard, self.wake)
        self.drain = self._writer.drain
        self.undrain = self._writer.undrain
        self.resume = self._writer.resume
        self.down = self._writer.down
        self.power_up = self._writer.power_up
        self.power_down = self._writer.power_down
        self.power_down_when_idle = self._writer.power_down_when_idle
        self.update = self._writer.update
        self._polls = CachedRead("GET nodes/", self._read_once, clock, self._notify_late)
        self._on_demand = OnDemand(
            client, clock, self._cache, self._guard, self._notify_late, self.wake
        )
        self.jobs = self._on_demand.jobs
        self.queue = self._on_demand.queue
        self.partitions = self._on_demand.partitions
        self.reservations = self._on_demand.reservations
        self.licenses = self._on_demand.licenses
        self.reserve = self._on_demand.reserve

    # --- what is known

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The last record of each node by name: a live view, read-only. Don't act on it unless
        `known`.
        """
        return self._cache.nodes

    @property
    def last_good(self) -> float | None:
        """When (of `clock`) the last good answer was asked for; None before the first."""
        return self._schedule.good_at

    @property
    def last_arrived(self) -> float | None:
        """When (of `clock`) that answer arrived: the nodes are as they were between the two."""
        return self._schedule.arrived_at

    def now(self) -> float:
        """Return the seconds of `clock`."""
        return self._clock()

    def fresh(self, now: float) -> bool:
        """Return whether the last good answer is recent enough at `now` (of `clock`)."""
        return self._schedule.fresh(now, calm=self._cache.calm(self._clock()))

    @property
    def known(self) -> bool:
        """Whether `nodes` may be acted upon destructively.

        True when a full list was read, the last good answer is fresh, the circuit breaker is closed
        and no node is suspect. It becomes False by the mere passing of time, too.
        """
        return not self.trouble

    @property
    def trouble(self) -> str:
        """Why the cluster isn't `known`, in words for a condition; "" when it is."""
        suspects, schedule = self.suspect, self._schedule
        if suspects:
            some = ", ".join(sorted(suspects)[:3])
            return (
                f"{len(suspects)} of {len(self.nodes)} Slurm nodes ({some}, …) vanished at once: "
                "slurmctld may have lost its state; they count as removed after "
                f"{CONFIRM_AFTER:g} s"
            )
        # No counters here: conditions contain this text, and each new text is a write.
        if schedule.breaker_open:
            return f"the last polls of slurmrestd failed: {schedule.fault}"
        because = f": {schedule.fault}" if schedule.fault else ""
        if schedule.good_at is None:
            return f"slurmrestd has not answered yet{because}"
        now = self._clock()
        if not self.fresh(now):
            return f"no recent good answer from slurmrestd{because}"
        first = schedule.first_good_at
        if not self._cache.ever_had_nodes and first is not None and now - first < CONFIRM_AFTER:
            return f"slurmrestd lists no node at all; the list counts after {CONFIRM_AFTER:g} s"
        return ""

    @property
    def release(self) -> Release | None:
        """The release that slurmrestd reports; None before the first good answer, and if it can't
        be read.
        """
        return self._cache.release

    @property
    def suspect(self) -> frozenset[str]:
        """Nodes that vanished in a way that looks like lost state; still in `nodes`, not reported
        as removed.
        """
        return self._cache.suspects

    @property
    def unsettled(self) -> frozenset[str]:
        """Nodes whose state was written after the last answer was asked for: their record may be
        out of date.
        """
        return self._cache.unsettled

    @property
    def last_listed(self) -> Mapping[str, int]:
        """The server's time of the last answer that had the node, for nodes that vanished lately
        too.
        """
        return self._cache.last_listed

    def changed_after(self, at: float, names: Iterable[str]) -> frozenset[str]:
        """Return the nodes among these whose record has changed after that time of `clock`."""
        return self._cache.changed_after(at, names)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Have `subscriber(changed, removed)` called, synchronously, after each answer that changed
        something.

        New names are in `changed`. Both sets are empty when only `known` became true or false, and
        when a late request has completed. Returns a function that ends the subscription.
        """
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def expect_removal(self, names: Iterable[str]) -> None:
        """Announce that others are about to delete these records, so that their vanishing is no
        sign of lost state.

        Valid for `sidecars.slurm.node_cache.EXPECT_FOR` seconds. Repeat it for pods that take
        longer.
        """
        self._cache.expect_removal(names, self._clock())

    # --- polling

    def wake(self) -> None:
        """Poll soon instead of at the next tick. Without effect after a fault."""
        if self._schedule.faults == 0:
            self._cache.stir(self._clock())
            self._woken.set()

    def hurry(self) -> None:
        """Poll twice as often for a while: a decision waits for what Slurm reports next."""
        self._schedule.hurry(self._clock())

    def fail(self, problem: str) -> None:
        """Report that an error ended `run`: the cluster isn't `known` until the next good
        answer.
        """
        self._schedule.open_breaker(problem)
        self._notify(frozenset(), frozenset())

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self.poll()
            now = self._clock()
            pause = self._schedule.pause(now, calm=self._cache.calm(now))
            least = min(pause, self._schedule.least_pause())
            try:
                await asyncio.sleep(least)
                async with asyncio.timeout(pause - least):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def poll(self) -> None:
        """Poll once, now. A fault of Slurm's is not raised: see `known` and `trouble`."""
        async with self._polling:
            self._woken.clear()
            changed: frozenset[str] = frozenset()
            removed: frozenset[str] = frozenset()
            started, schedule = self._clock(), self._schedule
            try:
                answer, asked_at, full = await self._read_nodes(started)
            except SlurmError as error:
                schedule.failed(str(error))
                # The next answer may come from another slurmrestd.
                self._cache.changes_refused(refused=False)
                self._woken.clear()
                level = logging.WARNING if schedule.faults in (1, BREAKER_FAULTS) else logging.DEBUG
                log.log(level, "poll: %s", error)
            else:
                # `known` becomes false by the passing of time, and who saw that is notified that it
                # is true again.
                self._was_known = self._was_known and self.known
                if schedule.faults:
                    log.info("poll: slurmrestd answers again after %d faults", schedule.faults)
                schedule.succeeded(asked_at, self._clock())
                self._cache.settle(asked_at)
                if answer is not None:
                    changed, removed = self._cache.apply(answer, asked_at, self._clock(), full=full)
                schedule.took(self._clock() - asked_at, news=answer is not None)
            self._notify(changed, removed)

    async def _read_nodes(self, now: float) -> tuple[Nodes | None, float, bool]:
        """Read the nodes. Return the answer, None if nothing changed, with the time when it was
        asked for, and whether it is a full list.
        """
        missing: frozenset[str] = frozenset()
        if not self._cache.needs_full_list(now):
            try:
                answer = await self._client.call(protocol.get_nodes(self._cache.last_update))
            except SlurmError as error:
                if not refuses_changes(error):
                    raise
                self._cache.changes_refused(refused=True)
            else:
                missing = frozenset() if answer is None else self._cache.to_confirm(answer)
                if not missing:
                    return answer, now, False
            now = self._clock()
        everything = await self._client.call(protocol.get_nodes())
        if everything is None:
            raise Unreachable("GET nodes/", "HTTP 304 in answer to a request for the full list")
        self._cache.got_full_list(everything, missing, now)
        return everything, now, True

    async def delete(self, name: str) -> None:
        """Delete the record. Success if it has already been deleted. Raises SlurmError, Rejected
        for a busy node.

        On return the node has been removed from `nodes`, and subscribers have been notified.
        """
        await self._delete(name)
        self.wake()

    async def _delete(self, name: str) -> None:
        request = protocol.delete_node(name)
        self._guard(request)
        try:
            await self._client.call(request)
        except NotFound:
            log.debug("delete: the record of Slurm node %s had already been deleted", name)
        if self._cache.deleted(name, self._clock()):
            self._notify(frozenset(), frozenset({name}))

    async def create(
        self, conf: str, names: Iterable[str], extra: str, *, replacing: bool = False
    ) -> None:
        """Create the records of these nodes with `conf`, the rest of their line in slurm.conf.
        Raises SlurmError.

        `replacing`: delete each right before. On return, and after an error, `nodes` shows which
        exist, if slurmrestd answered.
        """
        created: list[str] = []
        try:
            for some, line in protocol.lines_of_nodes(names, conf):
                for name in some if replacing else ():
                    await self._delete(name)
                request = protocol.create_nodes(line)
                self._guard(request)
                await self._client.call(request)
                created += some
        finally:
            try:
                if created:
                    await self._client.call(protocol.update_nodes(created, extra=extra))
            finally:
                await self.poll()

    async def start_now(self, jobs: Iterable[int]) -> None:
        """Let these pending jobs start at any time from now on; of those that have ended, nothing
        is changed.
        """
        for job_id in jobs:
            request = protocol.start_now(job_id)
            self._guard(request)
            try:
                await self._client.call(request)
            except Refused as error:
                log.debug("job %d starts later: %s", job_id, error)

    async def close(self) -> None:
        """End writes and reads. Writes that are not sent yet fail."""
        await self._polls.close()
        await self._on_demand.close()
        await self._writer.close()

    async def nodes_since(self, since: float) -> None:
        """Have `nodes` as they were at `since` (of `clock`) or later. Raises SlurmError, NotYet as
        `jobs`.
        """
        if self.last_good is None or self.last_good < since:
            self._guard(protocol.get_nodes())
            await self._polls.get()

    async def _read_once(self, _: bool | None) -> bool:
        await self.poll()
        if self._schedule.faults:
            raise Unreachable("GET nodes/", self._schedule.fault)
        return True

    def _guard(self, request: Request[Any]) -> None:
        if self._schedule.breaker_open:
            raise Unreachable(
                str(request), f"not sent while polls of slurmrestd fail: {self._schedule.fault}"
            )

    def _notify(self, changed: frozenset[str], removed: frozenset[str]) -> None:
        known = self.known
        self.generation += known != self._was_known
        if changed or removed or known != self._was_known:
            self._was_known = known
            for subscriber in tuple(self._subscribers):
                subscriber(changed, removed)

    def _notify_late(self) -> None:
        self.generation += 1
        for subscriber in tuple(self._subscribers):
            subscriber(frozenset(), frozenset())
