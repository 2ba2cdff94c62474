"""One Slurm cluster: its node records kept by polling, what changed, batched writes, and how far to trust all that.

One of these stands between any number of resources and one slurmrestd, so that their number doesn't matter to Slurm.

Polling. `GET nodes/?update_time=` costs slurmctld about 2 ms when nothing changed. Slurm reports changes of the second
asked for, so the time of the last answer is asked for and nothing is missed. Slurm 26.05 answers a change with all the
nodes; an answer that lacks nodes we know is checked against a full list before it counts, because it may as well hold
just the changed ones. A full list is read every `full_every` seconds in any case.

An idle cluster, in which no node has work and nothing has stirred for `CALM_AFTER` seconds, is asked `CALM_FACTOR`
times less often: with dozens of clusters, asking is all that an operator at rest does. Whoever knows that something is
about to change calls `wake`.

Trust. slurmrestd may answer with a list that is empty or lacks most nodes, because slurmctld came back without its
state or is a backup that never had it. Such nodes are `suspect`: they stay in `nodes`, and nothing is `known`, until
they are back or a full list `CONFIRM_AFTER` seconds later still lacks them. 60 s is two more full lists, and longer
than a restart or a take-over shows an incomplete list; and it is short beside the minutes that jobs take.

Faults. Each fault doubles the pause, up to `MAX_PAUSE`; from the third in a row the circuit breaker is open: nothing is
known, and reads and writes are refused here until a poll succeeds.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, TypeVar

from sidecars.contract.reasons import Owner, owner
from sidecars.slurm import protocol, states
from sidecars.slurm.errands import LATE_FOR, Answer, Errand, Reading
from sidecars.slurm.errors import NotFound, NotYet, Refused, SlurmError, Unreachable
from sidecars.slurm.protocol import Request
from sidecars.slurm.records import Jobs, Node, Nodes, Partition, Reservation

T = TypeVar("T")

Subscriber = Callable[[frozenset[str], frozenset[str]], None]

ANY_OWNER = frozenset(Owner)
"""A write may touch any drain, whoever set it."""

STALE_AFTER = 10.0
"""Seconds (or ten intervals, if that is more) after which the last good answer says nothing about now; so many more as
the cluster is asked less often."""

CONFIRM_AFTER = 60.0
"""Seconds for which full lists must lack suspect nodes before they count as removed."""

BREAKER_FAULTS = 3
"""Faults in a row that open the circuit breaker."""

CALM_AFTER = 30.0
"""Seconds without a change, a write or a `wake` after which an idle cluster is asked less often."""

CALM_FACTOR = 7.0
"""How much less often."""

MAX_PAUSE = 10.0
"""Seconds between polls of a sick server, before jitter."""

JOBS_WITHIN = 120.0
"""Seconds that reading all jobs may take: slurmrestd needs about a millisecond of CPU for each."""

EXPECT_FOR = 600.0
"""Seconds for which an announced removal is expected."""

_BATCH_FOR = 0.02  # seconds that a write waits for company
_SHARE = 4.0  # pause at least so many times as long as an answer takes
_COSTS = 3  # answers of which the quickest tells that: now and then one is late only because we were busy ourselves
_FEW = 4  # below this many nodes, "most of them vanished" means little

log = logging.getLogger(__name__)


class Carrier(Protocol):
    """What carries requests: `sidecars.slurm.client.Client`, or a double."""

    async def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        """Carry the request and decode its answer within `timeout` seconds. Raises SlurmError."""


@dataclass(frozen=True, slots=True)
class _Change:
    """What a write sets; equal ones go out together. `owners`: of the drains that it may touch."""

    state: tuple[str, ...] = ()
    reason: str | None = None
    owners: frozenset[Owner] = ANY_OWNER
    comment: str | None = None
    features: tuple[str, ...] | None = None
    active_features: tuple[str, ...] | None = None
    topology: str | None = None

    def request(self, names: Iterable[str]) -> Request[None]:
        return protocol.update_nodes(
            names,
            state=self.state,
            reason=self.reason,
            comment=self.comment,
            features=self.features,
            active_features=self.active_features,
            topology=self.topology,
        )


@dataclass(slots=True)
class _Batch:
    """A write that waits to be sent; `done` tells the failures by name."""

    change: _Change
    names: set[str]
    done: asyncio.Future[dict[str, SlurmError]]


@dataclass(frozen=True, slots=True)
class _Reserving:
    """A change of a reservation that is under way, or whose outcome nobody has taken yet."""

    request: Request[None]
    errand: Errand[None]


class Poller:
    """Polls one Slurm cluster and writes to it. `clock` is monotonic seconds; `run()` polls until cancelled."""

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
        self._interval = interval
        self._full_every = full_every
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._nodes: dict[str, Node] = {}
        self._view = MappingProxyType(self._nodes)
        self._last_update: int | None = None
        self._full_at = float("-inf")
        self._full_wanted = True
        self._partial_answers = False
        self._good_at: float | None = None
        self._costs: dict[bool, deque[float]] = {news: deque(maxlen=_COSTS) for news in (False, True)}
        self._cost = 0.0
        self._stirred_at = clock()
        self._working = False
        self._faults = 0
        self._fault = ""
        self._suspects: dict[str, float] = {}
        self._expected: dict[str, float] = {}
        self._deleted: dict[str, float] = {}
        self._written: dict[str, float] = {}
        self._first_good: float | None = None
        self._ever_had_nodes = False
        self._was_known = False
        self.turns = 0
        """How often `known` has turned true or false, or something was there for which somebody hadn't waited."""
        self._subscribers: list[Subscriber] = []
        self._woken = asyncio.Event()
        self._polling = asyncio.Lock()
        self._batches: list[_Batch] = []
        self._writer: asyncio.Task[None] | None = None
        self._jobs = Reading("GET jobs/", self._read_jobs, clock, self._tell_those_who_left)
        self._partitions = Reading("GET partitions/", self._read_partitions, clock, self._tell_those_who_left)
        self._reservations = Reading("GET reservations/", self._read_reservations, clock, self._tell_those_who_left)
        self._reserving: dict[str, _Reserving] = {}
        self._reserved_at = float("-inf")
        self._changed_at: dict[str, float] = {}
        self._last_change = float("-inf")

    # --- what is known

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The last record of each node by name: a live view, read-only. Not to be acted upon unless `known`."""
        return self._view

    @property
    def last_good(self) -> float | None:
        """When (of `clock`) the last good answer was asked for; None before the first."""
        return self._good_at

    def fresh(self, now: float) -> bool:
        """Whether the last good answer is recent enough at `now` (of `clock`)."""
        late = max(STALE_AFTER, 10 * self._interval) + self._interval * (self._tempo() - 1)
        return self._good_at is not None and now - self._good_at <= late

    @property
    def known(self) -> bool:
        """Whether `nodes` may be acted upon destructively.

        True when a full list was read, the last good answer is fresh, the circuit breaker is closed and no node is
        suspect. It turns False by time alone, too.
        """
        return not self.trouble

    @property
    def trouble(self) -> str:
        """Why the cluster isn't `known`, in words for a condition; "" when it is."""
        if self._suspects:
            some = ", ".join(sorted(self._suspects)[:3])
            return (
                f"{len(self._suspects)} of {len(self._nodes)} Slurm nodes ({some}, …) vanished at once: slurmctld may "
                f"have lost its state; they count as removed after {CONFIRM_AFTER:g} s"
            )
        # No counters here: conditions hold this text, and each new text is a write.
        if self._faults >= BREAKER_FAULTS:
            return f"the last polls of slurmrestd failed: {self._fault}"
        if self._good_at is None:
            return f"slurmrestd has not answered yet{self._because()}"
        now = self._clock()
        if not self.fresh(now):
            return f"no recent good answer from slurmrestd{self._because()}"
        if not self._ever_had_nodes and self._first_good is not None and now - self._first_good < CONFIRM_AFTER:
            return f"slurmrestd lists no node at all; that is believed after {CONFIRM_AFTER:g} s"
        return ""

    def _because(self) -> str:
        return f": {self._fault}" if self._fault else ""

    @property
    def suspect(self) -> frozenset[str]:
        """Nodes that vanished in a way that looks like lost state; still in `nodes`, not reported as removed."""
        return frozenset(self._suspects)

    @property
    def unsettled(self) -> frozenset[str]:
        """Nodes whose state was written to after the last answer was asked for: their record may be out of date."""
        return frozenset(self._written)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Have `subscriber(changed, removed)` called, synchronously, after each answer that changed something.

        Names new to us are in `changed`. Both sets are empty when only `known` turned true or false, and when what was
        `NotYet` is over. Returns what ends the subscription.
        """
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def expect_removal(self, names: Iterable[str]) -> None:
        """Say that these records are about to be deleted by others, so that their vanishing is no sign of lost state.

        Holds for `EXPECT_FOR` seconds; say it again for pods that take longer to go.
        """
        now = self._clock()
        until = now + EXPECT_FOR
        names = frozenset(names)
        if names - self._expected.keys():
            self._stirred_at = now
        self._expected.update((name, until) for name in names)

    # --- polling

    def wake(self) -> None:
        """Poll soon instead of at the next tick. After a fault it changes nothing."""
        if self._faults == 0:
            self._stirred_at = self._clock()
            self._woken.set()

    def fail(self, problem: str) -> None:
        """Report that an error ended `run`: the cluster isn't `known` until the next good answer."""
        self._faults, self._fault = BREAKER_FAULTS, problem
        self._tell(frozenset(), frozenset())

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self.poll()
            pause = self._pause()
            least = min(pause, self._least_pause())
            try:
                await asyncio.sleep(least)
                async with asyncio.timeout(pause - least):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def poll(self) -> None:
        """Poll once, now. A fault of Slurm's is no exception here: see `known` and `trouble`."""
        async with self._polling:
            self._woken.clear()
            changed: frozenset[str] = frozenset()
            removed: frozenset[str] = frozenset()
            started = self._clock()
            try:
                answer, sent, full = await self._read_nodes(started)
            except SlurmError as error:
                self._faults += 1
                self._fault = str(error)
                self._woken.clear()
                log.log(logging.WARNING if self._faults in (1, BREAKER_FAULTS) else logging.DEBUG, "poll: %s", error)
            else:
                # It turns false by time alone, and whoever saw it so has to be told that it is true again.
                self._was_known = self._was_known and self.known
                if self._faults:
                    log.info("poll: slurmrestd answers again after %d faults", self._faults)
                self._faults, self._fault = 0, ""
                self._good_at = sent
                self._first_good = sent if self._first_good is None else self._first_good
                self._written = {name: at for name, at in self._written.items() if at > sent}
                if answer is not None:
                    changed, removed = self._apply(answer, sent, full=full)
                costs = self._costs[answer is not None]
                costs.append(self._clock() - started)
                self._cost = min(costs)
            self._tell(changed, removed)

    async def _read_nodes(self, now: float) -> tuple[Nodes | None, float, bool]:
        """The answer (None: nothing changed), when it was asked for, and whether it is a full list."""
        full = self._full_wanted or self._last_update is None or now - self._full_at >= self._full_every
        if not full:
            answer = await self._client.call(protocol.get_nodes(self._last_update))
            if answer is None or self._partial_answers or not self._missing(answer):
                return answer, now, False
            missing, now = self._missing(answer), self._clock()
        else:
            missing = frozenset()
        everything = await self._client.call(protocol.get_nodes())
        if everything is None:
            raise Unreachable("GET nodes/", "HTTP 304 to a question for the full list")
        # Present in the full list, yet absent from the one before: that one told only of changes.
        self._partial_answers = self._partial_answers or any(node.name in missing for node in everything.nodes)
        self._full_at, self._full_wanted = now, False
        return everything, now, True

    def _missing(self, answer: Nodes) -> frozenset[str]:
        present = {node.name for node in answer.nodes}
        return frozenset(name for name in self._nodes if name not in present and name not in self._suspects)

    def _apply(self, answer: Nodes, sent: float, *, full: bool) -> tuple[frozenset[str], frozenset[str]]:
        if self._last_update is not None and answer.last_update < self._last_update:
            # Another slurmctld, or one whose clock was set back: what we asked for may be in its future.
            self._full_wanted = not full
        self._last_update = answer.last_update
        self._deleted = {name: at for name, at in self._deleted.items() if at >= sent}
        present = {node.name: node for node in answer.nodes if node.name not in self._deleted}
        former = self._nodes.get
        changed = frozenset(
            name
            for name, node in present.items()
            # Most are the same object, which is much cheaper to see.
            if former(name) is not node and former(name) != node
        )
        removed = self._removed(present, sent) if full else frozenset()
        if changed:
            self._last_change = self._clock()
            self._changed_at.update(dict.fromkeys(changed, self._last_change))
        self._nodes.update(present)
        self._ever_had_nodes = self._ever_had_nodes or bool(present)
        for name in present:
            self._suspects.pop(name, None)
        for name in removed:
            self._forget(name)
        if changed or removed:
            self._stirred_at = self._clock()
            self._working = any(states.is_busy(node.states) for node in self._nodes.values())
        return changed, removed

    def _removed(self, present: Mapping[str, Node], now: float) -> frozenset[str]:
        """The nodes that a full list shows to be gone; marks those that it makes suspect."""
        self._expected = {name: until for name, until in self._expected.items() if until > now}
        absent = self._nodes.keys() - present.keys()
        expected = absent & self._expected.keys()
        sudden = absent - expected - self._suspects.keys()
        others = len(self._nodes) - len(expected) - len(self._suspects.keys() & absent)
        if sudden and (not present or (others >= _FEW and 2 * len(sudden) > others)):
            log.warning("poll: %d of %d Slurm nodes vanished at once", len(sudden), len(self._nodes))
            self._suspects.update((name, now) for name in sudden)
            sudden = set()
        confirmed = {name for name, since in self._suspects.items() if name in absent and now - since >= CONFIRM_AFTER}
        return frozenset(expected | sudden | confirmed)

    def _forget(self, name: str) -> None:
        self._nodes.pop(name, None)
        self._changed_at.pop(name, None)
        self._suspects.pop(name, None)
        self._expected.pop(name, None)

    def _tell(self, changed: frozenset[str], removed: frozenset[str]) -> None:
        known = self.known
        self.turns += known != self._was_known
        if changed or removed or known != self._was_known:
            self._was_known = known
            for subscriber in tuple(self._subscribers):
                subscriber(changed, removed)

    def _pause(self) -> float:
        """Seconds to the next poll."""
        if self._faults:
            doubled: float = min(MAX_PAUSE, self._interval * 2.0 ** min(self._faults - 1, 10))
            return doubled * self._rng.uniform(0.8, 1.2)
        pause = self._interval * self._tempo()
        if pause > self._interval:
            # All idle clusters at the same moments: many requests in a row cost a third of as many lone ones.
            pause -= self._clock() % pause
        return max(pause, self._least_pause())

    def _tempo(self) -> float:
        """How many times less often than each interval the cluster is asked."""
        calm = not self._working and not self._suspects and self._clock() - self._stirred_at >= CALM_AFTER
        return CALM_FACTOR if calm else 1.0

    def _least_pause(self) -> float:
        """Seconds to the next poll, however often somebody wakes us: a dear answer isn't asked for all the time."""
        return max(self._interval / 5, min(MAX_PAUSE / 2, _SHARE * self._cost))

    # --- writing

    async def drain(self, names: Iterable[str], reason: str, *, owners: frozenset[Owner] = ANY_OWNER) -> None:
        """Set DRAIN with `reason`. Raises SlurmError for the first name that failed; the others are done all the same.

        Like all writes: those made within 20 ms with the same content go out as one request, in the order of the calls.
        A node that has meanwhile come to be seen drained, with a reason of none of the `owners`, is left as it is,
        which is no error.
        """
        await self._write(_Change(state=("DRAIN",), reason=reason, owners=owners), names)

    async def undrain(self, names: Iterable[str], *, owners: frozenset[Owner] = ANY_OWNER) -> None:
        """Take a drain back, which clears the reason; a node that is DOWN stays so and keeps it. See `drain`."""
        await self._write(_Change(state=("UNDRAIN",), owners=owners), names)

    async def down(self, names: Iterable[str], reason: str | None, *, owners: frozenset[Owner] = ANY_OWNER) -> None:
        """Set DOWN with `reason` (None: as it is, whosever). Slurm ends or requeues the jobs there. See `drain`."""
        touched = ANY_OWNER if reason is None else owners
        await self._write(_Change(state=("DOWN",), reason=reason, owners=touched), names)

    async def resume(self, names: Iterable[str]) -> None:
        """Set IDLE, which ends DOWN, and DRAIN too whosever it is, and clears the reason. Raises as `drain`."""
        await self._write(_Change(state=("IDLE",)), names)

    async def update(
        self,
        names: Iterable[str],
        *,
        reason: str | None = None,
        comment: str | None = None,
        features: Iterable[str] | None = None,
        active_features: Iterable[str] | None = None,
        topology: str | None = None,
    ) -> None:
        """Set fields that don't change the state; None leaves one alone, "" clears it (but not a reason).

        Features set so outlive slurmd's next registration. Raises as `drain`.
        """
        change = _Change(
            reason=reason,
            comment=comment,
            features=None if features is None else tuple(features),
            active_features=None if active_features is None else tuple(active_features),
            topology=topology,
        )
        await self._write(change, names)

    async def delete(self, name: str) -> None:
        """Delete the record; one that is already gone is success. Raises SlurmError, Rejected for a busy node.

        On return the node is not in `nodes` any more and subscribers have been told.
        """
        request = protocol.delete_node(name)
        self._guard(request)
        try:
            await self._client.call(request)
        except NotFound:
            log.debug("delete: Slurm node %s was already gone", name)
        # An answer that was asked for before now may still show it.
        self._deleted[name] = self._clock()
        self._full_wanted = True
        was = name in self._nodes
        self._forget(name)
        if was:
            self._tell(frozenset(), frozenset({name}))
        self.wake()

    async def _write(self, change: _Change, names: Iterable[str]) -> None:
        wanted = set(names)
        if not wanted:
            return
        self._guard(change.request(wanted))
        batch = self._joinable(change, wanted)
        if batch is None:
            batch = _Batch(change, wanted, asyncio.get_running_loop().create_future())
            self._batches.append(batch)
        else:
            batch.names |= wanted
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._send_batches(), name="slurm writes")
        failures = await asyncio.shield(batch.done)
        for name in sorted(wanted & failures.keys()):
            raise failures[name]

    def _joinable(self, change: _Change, names: set[str]) -> _Batch | None:
        """A waiting batch with the same change that these names may join without overtaking a later one of theirs."""
        for batch in reversed(self._batches):
            if batch.change == change:
                return batch
            if not batch.names.isdisjoint(names):
                return None
        return None

    async def _send_batches(self) -> None:
        await asyncio.sleep(_BATCH_FOR)
        while self._batches:
            # Together only what touches different nodes: for one node the order of the calls counts.
            touched: set[str] = set()
            together: list[_Batch] = []
            while self._batches and touched.isdisjoint(self._batches[0].names):
                batch = self._batches.pop(0)
                touched |= batch.names
                together.append(batch)
            await asyncio.gather(*(self._send_batch(batch) for batch in together))
        self.wake()

    async def _send_batch(self, batch: _Batch) -> None:
        failures: dict[str, SlurmError] = {}
        if batch.change.state:
            self._written.update(dict.fromkeys(batch.names, float("inf")))
        try:
            await self._send(batch.change, [it for it in sorted(batch.names) if self._may(batch.change, it)], failures)
        except BaseException as error:
            batch.done.set_exception(Unreachable("POST nodes/", f"not known to be done: {type(error).__name__}"))
            # Whoever asked for it may have been cancelled as well; asyncio would complain of an error that nobody took.
            batch.done.exception()
            raise
        finally:
            if batch.change.state:
                self._written.update(dict.fromkeys(batch.names, self._clock()))
        batch.done.set_result(failures)

    async def _send(self, change: _Change, names: list[str], failures: dict[str, SlurmError]) -> None:
        """Send one write; when a name spoils it, halve until that one is found and the others are done."""
        if not names:
            return
        request = change.request(names)
        try:
            self._guard(request)
            await self._client.call(request)
        except Refused as error:
            if len(names) == 1 or not error.numbers & protocol.ONE_NODES_FAULT:
                failures.update(dict.fromkeys(names, error))
                return
            middle = len(names) // 2
            await self._send(change, names[:middle], failures)
            await self._send(change, names[middle:], failures)
        except SlurmError as error:
            failures.update(dict.fromkeys(names, error))

    def _may(self, change: _Change, name: str) -> bool:
        """Whether the write may still be sent: while it waited, somebody else may have drained the node."""
        node = self.nodes.get(name)
        return node is None or not states.is_drain(node.states) or owner(node.reason) in change.owners

    def _guard(self, request: Request[T]) -> None:
        if self._faults >= BREAKER_FAULTS:
            raise Unreachable(str(request), f"held back while slurmrestd is sick: {self._fault}")

    # --- what is read only when asked for

    async def jobs(self) -> Answer[Jobs]:
        """All jobs: read a moment ago and after any change of a node that is known, unless that takes its time.

        Then NotYet is raised, subscribers are told when they are there, and for a while they are the answer however old
        they are; see `changed_after`. Raises SlurmError.
        """
        recent = self._jobs.recent(self._last_change)
        if recent is not None:
            return recent
        self._guard(protocol.get_jobs())
        return await self._jobs.get()

    def changed_after(self, at: float, names: Iterable[str]) -> frozenset[str]:
        """Those of the nodes of which something new has been read after that time (of `clock`)."""
        return frozenset(name for name in names if self._changed_at.get(name, float("-inf")) > at)

    def now(self) -> float:
        """Seconds of `clock`."""
        return self._clock()

    async def partitions(self, since: float) -> tuple[Partition, ...]:
        """All partitions, as they were at `since` (of `clock`) or later. Raises SlurmError, NotYet as `jobs`."""
        return await self._asked_since(since, self._partitions, protocol.get_partitions())

    async def reservations(self) -> tuple[Reservation, ...]:
        """All reservations, our own changes included. Raises SlurmError, NotYet as `jobs`."""
        return await self._asked_since(self._reserved_at, self._reservations, protocol.get_reservations())

    async def _asked_since(self, since: float, reading: Reading[T], request: Request[T]) -> T:
        answer = reading.recent(since, since)
        if answer is None:
            self._guard(request)
            answer = await reading.get()
        # The reading under way may have begun before.
        return answer.value if answer.asked_at >= since else (await reading.get()).value

    async def _read_jobs(self, known: Jobs | None) -> Jobs:
        request = protocol.get_jobs(None if known is None else known.last_update)
        answer = await self._client.call(request, timeout=JOBS_WITHIN)
        if answer is None and known is None:
            raise Unreachable(str(request), "HTTP 304 to a question for the full list")
        return answer or known or Jobs((), 0)

    async def _read_partitions(self, _: tuple[Partition, ...] | None) -> tuple[Partition, ...]:
        return await self._client.call(protocol.get_partitions())

    async def _read_reservations(self, _: tuple[Reservation, ...] | None) -> tuple[Reservation, ...]:
        return await self._client.call(protocol.get_reservations())

    def _tell_those_who_left(self) -> None:
        self.turns += 1
        for subscriber in tuple(self._subscribers):
            subscriber(frozenset(), frozenset())

    async def reserve(self, name: str, request: Request[None]) -> None:
        """Make, change or delete the reservation of that name.

        Raises SlurmError; NotYet where it takes its time: then subscribers are told when it is over, and who asks for
        the same again a moment later gets what came of it.
        """
        pending = self._reserving.get(name)
        if pending is not None and pending.request != request:
            try:
                await pending.errand.outcome()
            except NotYet:
                raise
            except SlurmError as error:
                log.debug("reservation %s: an earlier change failed: %s", name, error)
            pending = None
        if pending is None or pending.errand.ended_before(self._clock() - LATE_FOR):
            self._guard(request)
            errand = Errand(str(request), self._reserve(request), self._clock, self._tell_those_who_left)
            pending = self._reserving[name] = _Reserving(request, errand)
        try:
            await pending.errand.outcome()
        finally:
            if pending.errand.ended:
                self._reserving.pop(name, None)

    async def _reserve(self, request: Request[None]) -> None:
        try:
            await self._client.call(request)
        finally:
            self._reserved_at = self._clock()
            self.wake()

    async def close(self) -> None:
        """End the writer, and all reading. Writes that wait are dropped and their callers told so."""
        for reading in (self._jobs, self._partitions, self._reservations):
            await reading.close()
        for pending in tuple(self._reserving.values()):
            await pending.errand.close()
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        for batch in self._batches:
            error = Unreachable(str(batch.change.request(batch.names)), "not sent: shutting down")
            batch.done.set_result(dict.fromkeys(batch.names, error))
        self._batches.clear()
