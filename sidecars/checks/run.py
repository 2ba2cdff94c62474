"""One run of a check.

A node that the check has drained is tested in a reservation for the jobs' user: the reservation
exists before the drain is lifted, and is deleted after the node has passed or is drained again. So
no user's job gets a node in doubt, and the reservation of a run that was cut off remains. The next
run drains such nodes again before anything else.

While jobs of the check run, users' jobs that wait are looked for each `POLL_SECONDS`. The check's
jobs on nodes of their partitions are cancelled, and their nodes tested later in the run. Where jobs
wait all the time, this would be never: in the last part of the run (`LATE_SHARE`), idle nodes are
tested although jobs wait. Slurm's backfill starts such a test if it ends before the start that is
planned for any job that waits.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from sidecars.checks.core import nodes as rules
from sidecars.checks.core.outcome import Outcome, outcome
from sidecars.checks.core.plan import Item, Plan, plan
from sidecars.checks.core.script import batch_script
from sidecars.checks.slurm import Slurm
from sidecars.policy.checks.declared import Check
from sidecars.policy.checks.results import Kind, Verdict
from sidecars.slurm import states
from sidecars.slurm.errors import NotFound, Rejected, ServerFault, SlurmError, Unreachable
from sidecars.slurm.records import Node

log = logging.getLogger(__name__)

POLL_SECONDS = 0.3
IDLE_POLL_SECONDS = 5.0
"""Between two looks while no job of the check runs and no idle node is left."""
START_SECONDS = 15.0
"""After which a job that waits is cancelled: something else uses its nodes."""
LATE_START_SECONDS = 120.0
"""The same for a job that backfill has to start, which looks each `bf_interval` (30 s)."""
LATE_SHARE = 1 / 3
"""The last part of the run, in which idle nodes are tested although users' jobs wait."""
GRACE_SECONDS = 30.0
"""Beyond the script's time, after which a job is cancelled and counts as hung."""


class CheckError(Exception):
    """The check can't run. The message names the place, the value and the remedy."""


@dataclass(slots=True)
class _Test:
    """A job of the check."""

    item: Item
    job_id: int
    submitted: float
    began: float | None = None
    reservation: str = ""
    yielded: bool = False
    late: bool = False
    """Users' jobs waited for its nodes when it was submitted, and it gives way to none."""


class Run:
    """A run of one check. `clock` is monotonic seconds."""

    def __init__(
        self,
        check: Check,
        slurm: Slurm,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._check = check
        self._slurm = slurm
        self._clock = clock
        self._sleep = sleep
        self._tests: list[_Test] = []
        self._reacted: set[str] = set()
        self._stopping = False
        self._drains = 0
        self._late_from = 0.0
        """When the last part of the run begins."""
        self._partitions: frozenset[str] = frozenset()
        """Those in which its jobs can start."""
        self._script = batch_script(check)

    def stop(self) -> None:
        """End the run: cancel its jobs, and leave the other nodes untested."""
        self._stopping = True

    async def run(self) -> dict[str, Verdict]:
        """Test the nodes; the verdicts. Raises CheckError and SlurmError, and cancels its jobs
        first.
        """
        await self._recover()
        nodes = await self._slurm.nodes()
        work = await self._plan(nodes)
        end = self._clock() + self._check.window
        self._late_from = end - LATE_SHARE * self._check.window
        try:
            while not self._finished(work) and not self._stopping and self._clock() < end:
                try:
                    await self._step(work)
                except (Unreachable, ServerFault) as error:
                    # slurmctld is restarted, for example. A node whose test can't be ended now
                    # stays reserved.
                    log.warning("%s", error)
                if not self._finished(work):
                    await self._sleep(POLL_SECONDS if self._tests else IDLE_POLL_SECONDS)
        finally:
            await self._abandon(work)
        work.close()
        await self._react(work)
        return work.verdicts

    def _finished(self, work: Plan) -> bool:
        return work.done and self._reacted >= work.verdicts.keys()

    async def _recover(self) -> None:
        """End what a run that was cut off has left: its jobs, and nodes whose drain it had lifted
        for a test.
        """
        for job_id in await self._slurm.leftovers():
            log.warning("cancelling job %d of a run that was cut off", job_id)
            await self._slurm.cancel(job_id)
        for reservation in await self._slurm.reservations():
            nodes = await self._slurm.nodes()
            for name in self._slurm.lifted(reservation):
                node = nodes.get(name)
                if node is not None:
                    verdict = Verdict(Kind.FAILED, "the test after an earlier failure was cut off")
                    await self._apply(name, node, verdict, check=replace(self._check, drain=True))
            await self._slurm.release(reservation.name)

    async def _plan(self, nodes: dict[str, Node]) -> Plan:
        check = self._check
        partitions = await self._slurm.partitions()
        names = sorted(it.name for it in partitions)
        if check.partition and check.partition not in names:
            listed = ", ".join(names) or "none"
            raise CheckError(
                f"partition {check.partition!r} of check {check.name} is unknown to Slurm, which "
                f"has {listed}"
            )
        self._partitions = rules.usable(check, partitions)
        own = [node for node in nodes.values() if rules.belongs(check, node)]
        places = {
            node.name: [it for it in node.partitions if it in self._partitions] for node in own
        }
        drained = {it.name: places[it.name] for it in own if rules.is_retestable(check, it)}
        fresh = {it.name: places[it.name] for it in own if not _out_of_service(it)}
        log.info(
            "check %s: %d nodes, and %d that it has drained", check.name, len(fresh), len(drained)
        )
        return plan(check, fresh, drained)

    async def _step(self, work: Plan) -> None:
        """Look at the jobs, react, give way, and submit more."""
        for test in list(self._tests):
            await self._look(test, work)
        await self._react(work)
        nodes = await self._slurm.nodes()
        waiting = await self._slurm.waiting()
        # What is not read yet may wait for any node.
        everywhere = frozenset(it for node in nodes.values() for it in node.partitions)
        contested = everywhere if waiting is None else rules.contested(waiting)
        for test in self._tests:
            own = [nodes[name] for name in test.item.nodes if name in nodes]
            if (
                not test.yielded
                and not test.late
                and any(rules.is_contested(node, contested) for node in own)
                and not test.reservation
            ):
                log.info(
                    "job %d on %s gives way to a user's job",
                    test.job_id,
                    ", ".join(test.item.nodes),
                )
                test.yielded = True
                await self._slurm.cancel(test.job_id)
        while sum(len(it.item.nodes) for it in self._tests) < self._check.at_once:
            if not await self._begin(work, nodes, contested):
                break

    async def _begin(self, work: Plan, nodes: dict[str, Node], contested: frozenset[str]) -> bool:
        """Submit the next job; False if none can start now."""
        busy = {name for test in self._tests for name in test.item.nodes}
        late = self._clock() >= self._late_from
        free = [
            name
            for name, node in nodes.items()
            if name not in busy
            and (
                rules.is_retestable(self._check, node)
                or (rules.is_idle(node) and not rules.is_contested(node, contested))
                or (late and rules.is_kept_idle(node))
            )
        ]
        room = self._check.at_once - len(busy)
        if len(free) < 1 or room < (2 if self._check.strategy == "pairs" else 1):
            return False
        item = work.next(free)
        if item is None:
            return False
        late = late and any(
            rules.is_contested(nodes[name], contested) or not rules.is_idle(nodes[name])
            for name in item.nodes
        )
        try:
            return await self._submit(work, item, nodes, late=late)
        except SlurmError as error:
            # It is tested later in the run. What was lifted already stays reserved.
            work.ended(item, Outcome(Kind.INTERRUPTED, str(error)))
            raise

    async def _submit(self, work: Plan, item: Item, nodes: dict[str, Node], *, late: bool) -> bool:
        """Submit the job of an item; False if no other one is to follow now."""
        own = [nodes[name] for name in item.nodes]
        partition = rules.partition_of(self._partitions, own)
        if partition is None:
            work.ended(
                item,
                Outcome(
                    Kind.SKIPPED,
                    "no partition in which the check may run has all nodes of the test",
                ),
            )
            return True
        drained = [node.name for node in own if rules.is_own(self._check.name, node)]
        try:
            reservation = await self._slurm.reserve(item.nodes) if drained else ""
        except (Rejected, NotFound) as error:
            # Someone else has reserved the node, now or later, or it has just left. It stays
            # drained.
            work.ended(
                item, Outcome(Kind.INTERRUPTED, f"it can't be reserved for the test: {error}")
            )
            return True
        # An administrator may have drained it since `nodes` was read.
        now = await self._slurm.nodes() if drained else {}
        if not all(name in now and rules.is_own(self._check.name, now[name]) for name in drained):
            await self._slurm.release(reservation)
            work.ended(item, Outcome(Kind.INTERRUPTED, "its drain has another owner"))
            return False
        for name in drained:
            await self._slurm.undrain(name)
        try:
            job_id = await self._slurm.submit(
                self._script, item.nodes, partition, _start_seconds(late), reservation
            )
        except Rejected as error:
            await self._restore(item, reservation, drained, nodes)
            raise CheckError(
                f"Slurm refuses the job of check {self._check.name}: {error}"
            ) from error
        except SlurmError:
            await self._restore(item, reservation, drained, nodes)
            raise
        log.info("job %d tests %s", job_id, ", ".join(item.nodes))
        self._tests.append(_Test(item, job_id, self._clock(), None, reservation, late=late))
        return True

    async def _restore(
        self, item: Item, reservation: str, drained: list[str], nodes: dict[str, Node]
    ) -> None:
        for name in drained:
            await self._slurm.drain(name, nodes[name].reason)
        if reservation:
            await self._slurm.release(reservation)

    async def _look(self, test: _Test, work: Plan) -> None:
        """Find out whether the job has ended, or has to."""
        job = await self._slurm.job(test.job_id)
        now = self._clock()
        found = outcome(self._check, job)
        if found is None and job is not None:
            if not job.waits and test.began is None:
                test.began = now
            if test.began is None and now - test.submitted > _start_seconds(test.late):
                found = Outcome(Kind.INTERRUPTED, "something else used its nodes")
            elif test.began is not None and now - test.began > self._check.timeout + GRACE_SECONDS:
                found = Outcome(Kind.HUNG, f"did not end within {self._check.timeout} s")
            if found is None:
                return
        if job is not None and not job.ended:
            await self._slurm.cancel(test.job_id)
        self._tests.remove(test)
        if test.yielded and found is not None and found.kind is not Kind.PASSED:
            found = Outcome(Kind.INTERRUPTED, "a user's job waited")
        assert found is not None  # noqa: S101 - no record is an outcome
        log.info(
            "job %d on %s: %s %s", test.job_id, ", ".join(test.item.nodes), found.kind, found.text
        )
        work.ended(test.item, found)
        await self._close_test(test, work)

    async def _close_test(self, test: _Test, work: Plan) -> None:
        """End the reservation of a test. A node that it had drained is drained again unless it has
        passed.
        """
        if not test.reservation:
            return
        nodes = await self._slurm.nodes()
        for name in test.item.nodes:
            verdict = work.verdicts.get(name)
            node = nodes.get(name)
            if node is None or (verdict is not None and verdict.kind is Kind.PASSED):
                continue
            again = (
                verdict if verdict is not None and verdict.kind is not Kind.INTERRUPTED else None
            )
            await self._drain_again(name, node, again)
        await self._slurm.release(test.reservation)

    async def _drain_again(self, name: str, node: Node, verdict: Verdict | None) -> None:
        text = "its test after an earlier failure was interrupted"
        await self._apply(name, node, Verdict(Kind.FAILED, text) if verdict is None else verdict)

    async def _react(self, work: Plan) -> None:
        """React to the verdicts as soon as they are final."""
        new = work.verdicts.keys() - self._reacted
        if not new:
            return
        nodes = await self._slurm.nodes()
        for name in sorted(new):
            await self._apply(name, nodes.get(name), work.verdicts[name], self._check.most_drains)
            self._reacted.add(name)

    async def _apply(
        self,
        name: str,
        node: Node | None,
        verdict: Verdict,
        most: int | None = None,
        check: Check | None = None,
    ) -> None:
        """React to a verdict. With `most`, the run drains no more nodes that are in service."""
        found = rules.reaction(check or self._check, node, verdict)
        counts = most is not None and node is not None and not states.is_drain(node.states)
        if found.drain is not None and counts and self._drains >= (most or 0):
            log.error(
                "%s is not drained: the run has drained %d nodes. Check the script: %s",
                name,
                most,
                found.drain,
            )
            found = replace(found, drain=None)
        if found.drain is not None:
            log.warning("draining %s: %s", name, found.drain)
            await self._slurm.drain(name, found.drain)
            self._drains += counts
        if found.undrain:
            log.info("undraining %s: it passes", name)
            await self._slurm.undrain(name)
        if found.comment is not None:
            await self._slurm.comment(name, found.comment)

    async def _abandon(self, work: Plan) -> None:
        """Cancel the jobs that still run."""
        for test in list(self._tests):
            self._tests.remove(test)
            await self._slurm.cancel(test.job_id)
            work.ended(test.item, Outcome(Kind.INTERRUPTED, "the run ended"))
            await self._close_test(test, work)


def _start_seconds(late: bool) -> float:
    return LATE_START_SECONDS if late else START_SECONDS


def _out_of_service(node: Node) -> bool:
    return (
        states.is_drain(node.states) or states.is_down(node.states) or "POWERED_DOWN" in node.states
    )
