"""A run of a check against a double of Slurm, on virtual time: jobs end when the double's clock
reaches their end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from sidecars.checks.core.plan import ALONE
from sidecars.checks.run import CheckError, Run
from sidecars.checks.slurm import Slurm
from sidecars.policy.checks.declared import Check, Strategy
from sidecars.policy.checks.results import Kind, Verdict
from sidecars.slurm.checks import CheckJob, WaitingJob
from sidecars.slurm.errors import ErrorEntry, Rejected, Unreachable
from sidecars.slurm.records import Node, Partition, Reservation

CHECK = Check("disk", "#!/bin/sh\n", timeout=60, window=600)
OWN = "slurm-node: check: disk: full"


@dataclass
class Submitted:
    """A job of the double."""

    nodes: tuple[str, ...]
    ends: float
    reservation: str
    partition: str = "all"
    states: frozenset[str] = frozenset({"RUNNING"})
    status: int = 0
    restarts: int = 0
    comment: str = ""


@dataclass
class World:
    """What the double knows. `fails` decides how the job for these nodes ends."""

    nodes: dict[str, Node]
    fails: Callable[[tuple[str, ...]], bool] = lambda _: False
    seconds: float = 5.0
    """Of each job."""
    now: float = 1000.0
    jobs: dict[int, Submitted] = field(default_factory=dict)
    users_jobs: list[WaitingJob] | None = field(default_factory=list)
    reserved: dict[str, list[str]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    most_busy: int = 0
    partitions: list[Partition] = field(
        default_factory=lambda: [Partition(it) for it in ("all", "cpu", "gpu")]
    )
    at: dict[float, Callable[[], None]] = field(default_factory=dict)
    """What happens at a time."""

    def advance(self, seconds: float) -> None:
        """Let time pass, and jobs end."""
        self.now += seconds
        for time in sorted(it for it in self.at if it <= self.now):
            self.at.pop(time)()
        for job in self.jobs.values():
            if "RUNNING" in job.states and self.now >= job.ends:
                bad = self.fails(job.nodes)
                job.states, job.status = frozenset({"FAILED" if bad else "COMPLETED"}), int(bad)
                job.comment = "check 0 | full" if bad else "check 0 | "

    def running(self) -> list[Submitted]:
        return [
            job for job in self.jobs.values() if not job.states.isdisjoint({"RUNNING", "PENDING"})
        ]


class Double(Slurm):
    """Slurm in memory."""

    def __init__(self, check: Check, world: World) -> None:
        self._check = check
        self._world = world
        self.job_name = f"check-{check.name}"

    async def nodes(self) -> dict[str, Node]:
        busy = {name for job in self._world.running() for name in job.nodes}
        blocked = {name for names in self._world.reserved.values() for name in names}
        found = {}
        for name, node in self._world.nodes.items():
            words = node.states - {"IDLE"} | {"ALLOCATED"} if name in busy else node.states
            found[name] = replace(node, states=words | {"RESERVED"} if name in blocked else words)
        return found

    async def partitions(self) -> tuple[Partition, ...]:
        return tuple(self._world.partitions)

    async def submit(
        self, script: str, names: Sequence[str], partition: str, seconds: float, reservation: str
    ) -> int:
        world = self._world
        for name in names:
            node = world.nodes[name]
            assert "DRAIN" not in node.states, f"{name} is drained: Slurm would never start the job"
        assert not {it for job in world.running() for it in job.nodes} & set(names)
        number = len(world.jobs) + 1
        world.jobs[number] = Submitted(
            tuple(names), world.now + world.seconds, reservation, partition
        )
        world.most_busy = max(world.most_busy, sum(len(job.nodes) for job in world.running()))
        world.log.append(f"submit {'+'.join(names)}")
        return number

    async def job(self, job_id: int) -> CheckJob | None:
        job = self._world.jobs[job_id]
        return CheckJob(job_id, job.states, job.comment, job.status, job.restarts)

    async def cancel(self, job_id: int) -> None:
        job = self._world.jobs.get(job_id)
        if job is not None and "RUNNING" in job.states:
            job.states = frozenset({"CANCELLED"})
            self._world.log.append(f"cancel {'+'.join(job.nodes)}")

    async def waiting(self) -> list[WaitingJob] | None:
        return self._world.users_jobs

    async def leftovers(self) -> list[int]:
        return [number for number, job in self._world.jobs.items() if "RUNNING" in job.states]

    async def reservations(self) -> list[Reservation]:
        return [Reservation(name, ",".join(names)) for name, names in self._world.reserved.items()]

    async def reserve(self, names: Sequence[str]) -> str:
        name = self.reservation(names)
        self._world.reserved[name] = list(names)
        self._world.log.append(f"reserve {'+'.join(names)}")
        return name

    async def release(self, reservation: str) -> None:
        for name in self._world.reserved.pop(reservation):
            node = self._world.nodes[name]
            self._world.log.append(
                f"release {name} {'drained' if 'DRAIN' in node.states else 'in service'}"
            )

    async def drain(self, name: str, reason: str) -> None:
        node = self._world.nodes[name]
        self._world.nodes[name] = replace(node, states=node.states | {"DRAIN"}, reason=reason)
        self._world.log.append(f"drain {name}: {reason}")

    async def undrain(self, name: str) -> None:
        node = self._world.nodes[name]
        self._world.nodes[name] = replace(node, states=node.states - {"DRAIN"}, reason="")
        self._world.log.append(f"undrain {name}")

    async def comment(self, name: str, text: str) -> None:
        self._world.nodes[name] = replace(self._world.nodes[name], comment=text)


def node(name: str, *states: str, reason: str = "") -> Node:
    return Node(name, frozenset(states or ("IDLE",)), reason=reason, partitions=("all",))


def world(*nodes: Node, fails: Callable[[tuple[str, ...]], bool] = lambda _: False) -> World:
    return World({it.name: it for it in nodes}, fails)


def a_run(found: World, check: Check = CHECK, double: type[Double] = Double) -> Run:
    async def sleep(seconds: float) -> None:
        found.advance(seconds)

    return Run(check, double(check, found), clock=lambda: found.now, sleep=sleep)


async def test_a_node_that_fails_is_drained_before_others_are_tested() -> None:
    found = world(node("a"), node("b"), node("c"), fails=lambda it: it == ("a",))
    verdicts = await a_run(found, replace(CHECK, at_once=1)).run()
    assert {name: it.kind for name, it in verdicts.items()} == {
        "a": Kind.FAILED,
        "b": Kind.PASSED,
        "c": Kind.PASSED,
    }
    assert found.log == ["submit a", f"drain a: {OWN}", "submit b", "submit c"]


async def test_no_more_nodes_are_tested_at_a_time_than_declared() -> None:
    found = world(*(node(f"n{number}") for number in range(20)))
    await a_run(found, replace(CHECK, at_once=3)).run()
    assert (found.most_busy, len(found.jobs)) == (3, 20)
    found = world(*(node(f"n{number}") for number in range(20)))
    await a_run(found, replace(CHECK, strategy=Strategy.PAIRS, at_once=5)).run()
    assert (found.most_busy, len(found.jobs)) == (4, 10)


async def test_a_script_that_fails_everywhere_drains_few_nodes() -> None:
    found = world(*(node(f"n{number}") for number in range(9)), fails=lambda _: True)
    verdicts = await a_run(found).run()
    assert {it.kind for it in verdicts.values()} == {Kind.FAILED}
    assert sum("DRAIN" in it.states for it in found.nodes.values()) == 3


async def test_its_own_drain_is_lifted_in_a_reservation_alone() -> None:
    found = world(node("a", "IDLE", "DRAIN", reason=OWN))
    await a_run(found).run()
    assert found.log == ["reserve a", "undrain a", "submit a", "release a in service"]
    assert next(iter(found.jobs.values())).reservation == "check-disk.a"


async def test_a_node_that_fails_again_is_drained_before_its_reservation_ends() -> None:
    found = world(node("a", "IDLE", "DRAIN", reason=OWN), fails=lambda _: True)
    await a_run(found).run()
    assert found.log == [
        "reserve a",
        "undrain a",
        "submit a",
        f"drain a: {OWN}",
        "release a drained",
    ]


async def test_a_foreign_drain_is_neither_tested_nor_changed() -> None:
    found = world(
        node("a", "IDLE", "DRAIN", reason="maintenance"), node("b", "DOWN", reason="Not responding")
    )
    assert await a_run(found).run() == {}
    assert found.log == []


async def test_a_drain_that_an_administrator_sets_during_the_test_stays() -> None:
    found = world(node("a"), fails=lambda _: True)

    def drain() -> None:
        found.nodes["a"] = node("a", "IDLE", "DRAIN", reason="maintenance")

    found.at[1002.0] = drain
    await a_run(found).run()
    assert found.nodes["a"].reason == "maintenance"


async def test_a_job_that_hangs_is_cancelled_and_its_node_drained() -> None:
    found = world(node("a"))
    found.seconds = 10_000
    verdicts = await a_run(found).run()
    assert verdicts["a"].kind is Kind.HUNG
    assert found.log == [
        "submit a",
        "cancel a",
        "drain a: slurm-node: check: disk: did not end within 60 s",
    ]


async def test_a_requeued_job_is_cancelled_and_counted_once() -> None:
    found = world(node("a"), fails=lambda _: True)

    def requeue() -> None:
        found.jobs[1].restarts = 1

    found.at[1002.0] = requeue
    verdicts = await a_run(found).run()
    assert found.log == ["submit a", "cancel a", "submit a", f"drain a: {OWN}"]
    assert verdicts["a"].kind is Kind.FAILED


async def test_jobs_give_way_to_a_users_job_and_their_nodes_are_tested_later() -> None:
    found = world(node("a"), node("b"))

    def wait() -> None:
        found.users_jobs = [WaitingJob(9, partitions=("all",), reason="Resources")]

    found.at[1002.0] = wait
    found.at[1020.0] = lambda: setattr(found, "users_jobs", [])
    verdicts = await a_run(found).run()
    assert found.log == ["submit a", "submit b", "cancel a", "cancel b", "submit a", "submit b"]
    assert {it.kind for it in verdicts.values()} == {Kind.PASSED}


QUEUE = [WaitingJob(9, partitions=("all",), reason="Resources")]


async def test_nodes_for_which_jobs_wait_all_the_time_are_tested_in_the_last_third_of_the_run() -> (
    None
):
    found = world(node("a", "IDLE", "PLANNED"), node("b"), node("c", "MIXED", "PLANNED"))
    found.users_jobs = QUEUE
    verdicts = await a_run(found).run()
    assert found.log == ["submit a", "submit b"]
    assert min(job.ends for job in found.jobs.values()) >= 1400 + found.seconds
    assert {name: it.kind for name, it in verdicts.items()} == {
        "a": Kind.PASSED,
        "b": Kind.PASSED,
        "c": Kind.INTERRUPTED,
    }


async def test_a_node_that_is_planned_for_jobs_is_left_alone_until_then() -> None:
    found = world(node("a", "IDLE", "PLANNED"))
    found.users_jobs = QUEUE
    run = a_run(found)
    found.at[1399.0] = run.stop
    assert (await run.run())["a"].kind is Kind.INTERRUPTED
    assert found.log == []


@pytest.mark.parametrize(
    ("backfilled", "kind"), [(1500.0, Kind.PASSED), (1599.0, Kind.INTERRUPTED)]
)
async def test_a_test_in_the_last_third_has_two_minutes_until_backfill_starts_it(
    backfilled: float, kind: Kind
) -> None:
    found = world(node("a", "IDLE", "PLANNED"))
    found.users_jobs = QUEUE

    class Backfill(Double):
        async def submit(self, *words: object) -> int:
            number = await super().submit(*words)  # type: ignore[arg-type]  # passed on
            found.jobs[number].states = frozenset({"PENDING"})
            found.jobs[number].ends = backfilled + found.seconds
            return number

    def start() -> None:
        for job in found.jobs.values():
            job.states = frozenset({"RUNNING"})

    found.at[backfilled] = start
    verdicts = await a_run(found, double=Backfill).run()
    assert verdicts["a"].kind is kind


async def test_while_waiting_jobs_are_unread_no_check_runs() -> None:
    found = world(node("a"))
    found.users_jobs = None
    found.at[1020.0] = lambda: setattr(found, "users_jobs", [])
    verdicts = await a_run(found).run()
    assert verdicts["a"].kind is Kind.PASSED
    assert found.now > 1020


async def test_a_job_of_another_partition_stops_no_check() -> None:
    found = world(node("a"))
    found.users_jobs = [WaitingJob(9, partitions=("other",), reason="Resources")]
    await a_run(found).run()
    assert found.log == ["submit a"]


async def test_a_busy_node_is_tested_when_it_becomes_idle_and_else_reported_as_untested() -> None:
    found = world(node("a", "MIXED"), node("b", "ALLOCATED"))

    def idle() -> None:
        found.nodes["a"] = node("a")

    found.at[1100.0] = idle
    verdicts = await a_run(found).run()
    assert {name: it.kind for name, it in verdicts.items()} == {
        "a": Kind.PASSED,
        "b": Kind.INTERRUPTED,
    }
    assert found.log == ["submit a"]


async def test_a_stopped_run_cancels_its_jobs_and_drains_what_it_had_lifted() -> None:
    found = world(node("a", "IDLE", "DRAIN", reason=OWN), node("b"))
    run = a_run(found)
    found.at[1002.0] = run.stop
    await run.run()
    assert found.running() == []
    assert found.reserved == {}
    assert found.log[-2:] == ["cancel b"] or "release a drained" in found.log
    assert "DRAIN" in found.nodes["a"].states


async def test_what_a_run_that_was_cut_off_has_left_is_ended_first() -> None:
    found = world(node("a"), node("b"))
    found.jobs[1] = Submitted(("b",), 10_000, "")
    found.reserved = {"check-disk.a": ["a"]}
    await a_run(found).run()
    cut = "slurm-node: check: disk: the test after an earlier failure was cut off"
    assert found.log[:3] == ["cancel b", f"drain a: {cut}", "release a drained"]
    assert found.log[3:5] == ["reserve a", "undrain a"]
    assert "DRAIN" not in found.nodes["a"].states


async def test_of_a_pair_only_the_node_that_was_drained_is_drained_again_after_a_cut_off() -> None:
    check = replace(CHECK, strategy=Strategy.PAIRS)
    found = world(node("a"), node("b"))
    found.reserved = {"check-disk.b.a": ["a", "b"]}
    found.seconds = 1.0
    await a_run(found, replace(check, undrain=False)).run()
    assert found.log[:2] == [
        "drain b: slurm-node: check: disk: the test after an earlier failure was cut off",
        "release a in service",
    ]


async def test_of_a_pair_that_fails_the_faulty_node_is_drained_alone() -> None:
    found = world(*(node(name) for name in "abcd"), fails=lambda it: "c" in it)
    await a_run(found, replace(CHECK, strategy=Strategy.PAIRS)).run()
    assert [name for name, it in found.nodes.items() if "DRAIN" in it.states] == ["c"]


def two_partitions(cpu: int, gpu: int, *broken: str) -> World:
    """Nodes of two partitions that share none, where a job with one of the broken nodes fails."""
    made = [replace(node(f"cpu-{number}"), partitions=("cpu",)) for number in range(cpu)]
    made += [replace(node(f"gpu-{number}"), partitions=("gpu",)) for number in range(gpu)]
    return world(*made, fails=lambda it: not set(it).isdisjoint(broken))


async def test_each_node_of_two_partitions_is_tested_with_one_of_its_own() -> None:
    found = two_partitions(3, 3)
    verdicts = await a_run(found, replace(CHECK, strategy=Strategy.PAIRS)).run()
    assert {it.kind for it in verdicts.values()} == {Kind.PASSED}, verdicts
    assert {frozenset(name[:3] for name in job.nodes) for job in found.jobs.values()} == {
        frozenset({"cpu"}),
        frozenset({"gpu"}),
    }


async def test_the_faulty_node_of_one_of_two_partitions_is_drained_alone() -> None:
    found = two_partitions(2, 4, "gpu-1")
    verdicts = await a_run(found, replace(CHECK, strategy=Strategy.PAIRS)).run()
    assert {name for name, it in verdicts.items() if it.kind is not Kind.PASSED} == {"gpu-1"}, (
        verdicts
    )
    assert [name for name, it in found.nodes.items() if "DRAIN" in it.states] == ["gpu-1"]


async def test_a_drained_node_is_tested_again_with_one_of_its_own_partition() -> None:
    found = two_partitions(2, 3)
    found.nodes["gpu-0"] = replace(
        found.nodes["gpu-0"], states=frozenset({"IDLE", "DRAIN"}), reason=OWN
    )
    verdicts = await a_run(found, replace(CHECK, strategy=Strategy.PAIRS)).run()
    assert {it.kind for it in verdicts.values()} == {Kind.PASSED}, verdicts
    assert "DRAIN" not in found.nodes["gpu-0"].states


async def test_a_node_without_a_possible_partner_is_reported_with_the_cause() -> None:
    found = two_partitions(1, 2)
    verdicts = await a_run(found, replace(CHECK, strategy=Strategy.PAIRS)).run()
    assert verdicts["cpu-0"] == Verdict(Kind.SKIPPED, ALONE)
    assert {verdicts[name].kind for name in ("gpu-0", "gpu-1")} == {Kind.PASSED}
    assert found.now < 1060, "the run waited for a partner that can't come"


async def test_two_nodes_are_tested_in_a_partition_that_takes_jobs_of_two_nodes() -> None:
    found = world(*(replace(node(name), partitions=("all", "single", "shut")) for name in "ab"))
    found.partitions = [
        Partition("single", max_nodes=1),
        Partition("shut", frozenset({"INACTIVE"})),
        Partition("all"),
    ]
    await a_run(found, replace(CHECK, strategy=Strategy.PAIRS)).run()
    assert [job.partition for job in found.jobs.values()] == ["all"]
    found.partitions.pop()
    verdicts = await a_run(found, replace(CHECK, strategy=Strategy.PAIRS)).run()
    assert {it.text for it in verdicts.values()} == {ALONE}


async def test_an_unknown_partition_is_named_with_those_that_exist() -> None:
    with pytest.raises(
        CheckError,
        match="partition 'lost' of check disk is unknown to Slurm, which has all, cpu, gpu",
    ):
        await a_run(world(node("a")), replace(CHECK, partition="lost")).run()


async def test_a_job_that_slurm_refuses_ends_the_run_and_drains_what_it_had_lifted() -> None:
    class Refusing(Double):
        async def submit(self, *_: object) -> int:
            raise Rejected(
                "POST job/submit", 500, (ErrorEntry(2037, "User's group not permitted"),)
            )

    found = world(node("a", "IDLE", "DRAIN", reason=OWN))
    with pytest.raises(CheckError, match=r"Slurm refuses the job of check disk: .*not permitted"):
        await a_run(found, double=Refusing).run()
    assert found.log == ["reserve a", "undrain a", f"drain a: {OWN}", "release a drained"]


async def test_a_slurmctld_that_is_away_for_a_while_ends_no_run() -> None:
    class Away(Double):
        async def job(self, job_id: int) -> CheckJob | None:
            if 1001.0 < found.now < 1100.0:
                raise Unreachable("GET job/1", "refused")
            return await super().job(job_id)

    found = world(node("a"))
    verdicts = await a_run(found, double=Away).run()
    assert verdicts["a"].kind is Kind.PASSED


async def test_a_node_that_another_reservation_has_ends_no_run() -> None:
    class Reserved(Double):
        async def reserve(self, names: Sequence[str]) -> str:
            raise Rejected(
                "POST reservation", 500, (ErrorEntry(2058, "Requested reservation overlaps"),)
            )

    found = world(node("a", "IDLE", "DRAIN", reason=OWN), node("b"))
    verdicts = await a_run(found, double=Reserved).run()
    assert {name: it.kind for name, it in verdicts.items()} == {
        "a": Kind.INTERRUPTED,
        "b": Kind.PASSED,
    }
    assert "overlaps" in verdicts["a"].text
    assert "DRAIN" in found.nodes["a"].states


async def test_a_node_that_failed_while_slurmctld_was_away_is_drained_when_it_is_back() -> None:
    class Away(Double):
        async def drain(self, name: str, reason: str) -> None:
            if found.now < 1100.0:
                raise Unreachable("POST nodes/", "refused")
            await super().drain(name, reason)

    found = world(node("a"), node("b"), node("c"), node("d"), fails=lambda _: True)
    await a_run(found, double=Away).run()
    assert sum("DRAIN" in it.states for it in found.nodes.values()) == CHECK.most_drains


async def test_a_check_that_only_reports_now_leaves_what_it_drained_before() -> None:
    found = world(node("a", "IDLE", "DRAIN", reason=OWN), fails=lambda _: True)
    await a_run(found, replace(CHECK, drain=False)).run()
    assert "DRAIN" in found.nodes["a"].states
    found = world(node("a"))
    found.reserved = {"check-disk.a": ["a"]}
    await a_run(found, replace(CHECK, drain=False)).run()
    assert "DRAIN" in found.nodes["a"].states


async def test_a_drain_that_an_administrator_takes_over_before_the_test_is_not_lifted() -> None:
    class Late(Double):
        async def reserve(self, names: Sequence[str]) -> str:
            found.nodes["a"] = replace(found.nodes["a"], reason="broken fan")
            return await super().reserve(names)

    found = world(node("a", "IDLE", "DRAIN", reason=OWN))
    verdicts = await a_run(found, double=Late).run()
    assert verdicts["a"].kind is Kind.INTERRUPTED
    assert (found.nodes["a"].reason, found.nodes["a"].states) == (
        "broken fan",
        frozenset({"IDLE", "DRAIN"}),
    )
    assert found.log == ["reserve a", "release a drained"]


async def test_a_node_whose_job_could_not_be_submitted_for_a_while_is_tested_later() -> None:
    class Away(Double):
        async def submit(
            self,
            script: str,
            names: Sequence[str],
            partition: str,
            seconds: float,
            reservation: str,
        ) -> int:
            if found.now < 1003.0:
                raise Unreachable("POST job/submit", "refused")
            return await super().submit(script, names, partition, seconds, reservation)

    found = world(node("a"), node("b", "IDLE", "DRAIN", reason=OWN))
    verdicts = await a_run(found, double=Away).run()
    assert {name: it.kind for name, it in verdicts.items()} == {"a": Kind.PASSED, "b": Kind.PASSED}
    assert "DRAIN" not in found.nodes["b"].states
