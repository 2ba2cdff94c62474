"""The invariants of docs/invariants.md, on the operator as it is in a world that fails at
every turn.
"""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecars.policy.nodeset.maintenance import FINALIZER
from sidecars.simulate import Fault
from tests.support.virtual_time import run
from tests.support.world.client import WRITE_FAULTS, KubeFault, SlurmFault, WatchFault
from tests.support.world.scripts import (
    CORDON,
    MODES,
    SLURM_FAULTS,
    STRATEGIES,
    Action,
    Admin,
    Annotate,
    BreakImage,
    ChangeMinReady,
    ChangeStrategy,
    ChangeTemplate,
    ClockJump,
    Configure,
    Container,
    CordonKubeNode,
    Crash,
    DeleteCrds,
    DeleteNamespace,
    DeletePod,
    DeleteRecord,
    Disturbance,
    EndWatches,
    Evict,
    Freeze,
    KubeNode,
    LoseSecret,
    LostState,
    Partition,
    ReadFault,
    Refuse,
    Replace,
    ReplaceCluster,
    Reserve,
    RestartSlurmctld,
    ReturnToService,
    Scale,
    Script,
    SickSlurm,
    SlurmWriteFault,
    Step,
    Submit,
    SwitchMode,
    SwitchPartition,
    WriteFault,
    disturbances,
    play,
    scripts,
)
from tests.support.world.slurmctld import REFUSED, REFUSED_LATER
from tests.support.world.world import NODESET, world

pytestmark = pytest.mark.timeout(3600, func_only=True)

PROFILE = settings().max_examples
# A run plays two scripts, half a second each. The twelve tests that take this many make 6,000 in a
# long run.
RUNS = settings(max_examples=PROFILE // 4 if PROFILE > 100 else 5)

SCENARIOS: dict[str, tuple[tuple[float, Action], ...]] = {
    "scale-in under a job": ((0.0, Submit(1, 20)), (3.0, Scale(0)), (30.0, Scale(2))),
    "scale-in and out again": (
        (0.0, Submit(2, 20)),
        (3.0, Scale(0)),
        (5.0, Scale(3)),
        (0.5, Scale(1)),
    ),
    "roll under a job": (
        (0.0, Submit(1, 20)),
        (3.0, ChangeTemplate()),
        (10.0, DeletePod(0)),
        (20.0, ChangeTemplate()),
    ),
    "maintenance": (
        (0.0, Submit(1, 20)),
        *((2.0, CordonKubeNode(each, True)) for each in range(6)),
        (9.0, DeletePod(1)),
    ),
    "pods cordoned by hand": ((0.0, Annotate(0, CORDON, "true")), (5.0, Scale(1)), (5.0, Scale(3))),
    "a Kubernetes node that dies": (
        (0.0, KubeNode(0, "kill")),
        (3.0, KubeNode(1, "kill")),
        (500.0, KubeNode(0, "remove")),
    ),
    "a Kubernetes node that is switched off": (
        (0.0, Submit(2, 90)),
        (3.0, KubeNode(0, "kill")),
        (90.0, KubeNode(0, "switch off")),
    ),
    "another mode and back": (
        (0.0, Submit(1, 20)),
        (3.0, SwitchMode("DaemonSet")),
        (9.0, SwitchMode("StatefulSet")),
    ),
    "an image that doesn't start": (
        (0.0, Submit(1, 20)),
        (3.0, BreakImage()),
        (9.0, DeletePod(0)),
        (60.0, Scale(3)),
    ),
    "a partition that is removed under a job": (
        *((0.0, SwitchPartition(True)), (30.0, ChangeMinReady(15)), (0.0, Submit(1, 90))),
        *((3.0, SwitchPartition(False)), (9.0, ChangeTemplate())),
    ),
    "nodes that pending jobs name and exclude": (
        *((0.0, Submit(2, 20)), (2.0, Submit(2, 20, "named")), (0.0, Submit(1, 20, "excluding"))),
        (1.0, Scale(0)),
        *((40.0, Configure("SlurmdDebug=debug")), (40.0, Scale(2))),
    ),
    "removal and a new one": ((0.0, Submit(1, 20)), (3.0, Replace()), (30.0, Scale(1))),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_whatever_happens_no_invariant_breaks_and_it_ends_as_if_nothing_had_gone_wrong(
    strategy: str, mode: str
) -> None:
    @RUNS
    @given(script=scripts(strategy, mode))
    def is_true(script: Script) -> None:
        assert run(play(script)) == run(play(script.undisturbed()))

    is_true()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_any_write_of_any_scenario_may_go_wrong_and_anything_around_it(
    strategy: str, mode: str
) -> None:
    undisturbed: dict[str, dict[str, Any]] = {}

    @RUNS
    @given(
        st.sampled_from(sorted(SCENARIOS)),
        st.integers(0, 2**16),
        st.sets(
            st.tuples(st.integers(1, 60), st.sampled_from(WRITE_FAULTS)), min_size=1, max_size=3
        ),
        st.lists(st.tuples(st.integers(0, 8), disturbances()), max_size=2),
    )
    def is_true(
        name: str,
        seed: int,
        faults: set[tuple[int, KubeFault]],
        around: list[tuple[int, Disturbance]],
    ) -> None:
        calm = Script(0, strategy, SCENARIOS[name], mode)
        if name not in undisturbed:
            undisturbed[name] = run(play(calm))
        steps: list[Step] = list(calm.steps)
        for place, disturbance in around:
            steps.insert(place, (0.0, disturbance))
        steps = [*((0.0, WriteFault(*fault)) for fault in sorted(faults, key=str)), *steps]
        assert run(play(Script(seed, strategy, tuple(steps), mode))) == undisturbed[name]

    is_true()


FAULTS: dict[str, tuple[Disturbance, ...]] = {
    **{
        fault.name: tuple(WriteFault(number, fault) for number in (1, 4, 9))
        for fault in WRITE_FAULTS
    },
    **{
        # What is listed when it starts.
        f"list {fault.name}": (ReadFault((fault,) * 3, 0, False), Crash(stale=False))
        for fault in (KubeFault.STALE, KubeFault.GONE, KubeFault.ERROR)
    },
    **{f"watch {fault.name}": (EndWatches(fault),) for fault in WatchFault},
    "watch OLD": (ReadFault((), 0, True), EndWatches(WatchFault.CUT)),
    "watch SILENT": (ReadFault((), 20, False),),
    **{f"Slurm {fault.name}": (SickSlurm(fault, 30),) for fault in SLURM_FAULTS},
    **{
        f"Slurm write {it.name}": tuple(SlurmWriteFault(number, it) for number in (1, 2))
        for it in SlurmFault
    },
    "Slurm LOST_STATE": (LostState(),),
    "quota": (Refuse("quota", 30),),
    "RBAC": (Refuse("RBAC", 20),),
    "clock": (ClockJump(3600),),
    "frozen": (Freeze(30),),
    "namespace": (DeleteNamespace(2),),
    "CRD NodeSet": (DeleteCrds("NodeSet", 2),),
    "CRD all": (DeleteCrds("all", 20),),
}
"""Each thing that may go wrong, by the name under which the world counts it."""

WRITING = (
    *(("scale-in under a job", "StatefulSet"), ("maintenance", "DaemonSet")),
    *(("scale-in and out again", "StatefulSet"), ("maintenance", "StatefulSet")),
)
"""Scenarios in which the operator writes to Slurm under each update strategy."""


SHARES = {
    strategy: {
        name: number
        for number, name in enumerate(FAULTS)
        if PROFILE > 100 or number % len(STRATEGIES) == turn
    }
    for turn, strategy in enumerate(sorted(STRATEGIES))
}
"""Which faults happen under which strategy, by name, each with its number: a third of them; in a
long run all.
"""


def test_each_fault_happens_under_some_strategy_and_in_a_long_run_under_all() -> None:
    counted = Counter(name for share in SHARES.values() for name in share)
    assert counted == dict.fromkeys(FAULTS, len(STRATEGIES) if PROFILE > 100 else 1)
    sizes = {len(share) for share in SHARES.values()}
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_each_fault_comes_to_pass_and_no_scenario_ends_otherwise(strategy: str) -> None:
    injected: Counter[str] = Counter()
    undisturbed: dict[tuple[str, str], dict[str, Any]] = {}
    turn = sorted(STRATEGIES).index(strategy)
    some = [(name, MODES[(number + turn) % 2]) for number, name in enumerate(sorted(SCENARIOS))]
    every = [(name, mode) for name in sorted(SCENARIOS) for mode in MODES]
    for fault, number in SHARES[strategy].items():
        disturbing = FAULTS[fault]
        # In `make check` a fault meets one scenario, in `make soak` all.
        chosen = every if PROFILE > 100 else [some[(5 * number + 3 * turn) % len(some)]]
        if isinstance(disturbing[0], SlurmWriteFault | WriteFault) and PROFILE <= 100:
            chosen = [WRITING[(number + turn) % len(WRITING)]]
        if isinstance(disturbing[0], Refuse) and PROFILE <= 100:
            # Pods are created.
            chosen = [("roll under a job", MODES[turn % 2])]
        for name, mode in chosen:
            calm = Script(0, strategy, SCENARIOS[name], mode)
            if (name, mode) not in undisturbed:
                undisturbed[name, mode] = run(play(calm))
            steps: list[Step] = [
                *((0.0, it) for it in disturbing if not isinstance(it, SickSlurm)),
                *calm.steps,
            ]
            # A Slurm that is sick while the second thing is asked for.
            steps[1:1] = [(0.0, it) for it in disturbing if isinstance(it, SickSlurm)]
            named = (number + turn) % 2 == 0
            ended = run(play(Script(number, strategy, tuple(steps), mode, named), injected))
            assert ended == undisturbed[name, mode], f"{disturbing} in {name!r}, {mode}, {named=}"
    assert {name for name in SHARES[strategy] if not injected[name]} == set()


def test_the_operator_may_be_killed_after_any_single_write() -> None:
    calm = Script(0, "RollingUpdate", SCENARIOS["roll under a job"])
    wanted = run(play(calm))
    for number in range(1, 40, 3 if PROFILE <= 100 else 1):
        crash = (0.0, WriteFault(number, KubeFault.CRASH_AFTER))
        assert run(play(Script(0, calm.strategy, (crash, *calm.steps)))) == wanted, (
            f"killed after write {number}"
        )


@pytest.mark.parametrize(
    "fault", [SlurmFault.CRASH_BEFORE, SlurmFault.CRASH_AFTER], ids=lambda it: it.name
)
def test_the_operator_may_be_killed_around_any_single_write_to_slurm(fault: SlurmFault) -> None:
    calm = Script(0, "RollingUpdate", SCENARIOS["roll under a job"])
    wanted = run(play(calm))
    injected: Counter[str] = Counter()
    for number in range(1, 8):
        crash = (0.0, SlurmWriteFault(number, fault))
        ended = run(play(Script(0, calm.strategy, (crash, *calm.steps)), injected))
        assert ended == wanted, f"write {number}"
    assert injected[f"Slurm write {fault.name}"] > 2


CALAMITIES: dict[str, tuple[Step, ...]] = {
    "a worker that is cut off from slurmctld for longer than SlurmdTimeout": (
        *((0.0, Submit(1, 90)), (3.0, Partition(0, "slurmctld")), (3.0, ChangeTemplate())),
        *((400.0, Partition(0, None)), (120.0, ChangeTemplate())),
    ),
    "a Kubernetes node that is cut off from everything while its job runs": (
        *(
            (0.0, Submit(2, 90)),
            (3.0, Partition(0, "all")),
            (20.0, Scale(1)),
            (400.0, DeletePod(0)),
        ),
        (60.0, Partition(0, None)),
    ),
    "an administrator who sets nodes DOWN and FAIL while the NodeSet rolls": (
        *((0.0, Submit(1, 20)), (3.0, Admin(0, True, "DOWN")), (0.0, Admin(1, True, "FAIL"))),
        *((1.5, ChangeTemplate()), (90.0, Admin(0, False)), (8.0, Admin(1, False, "FAIL"))),
    ),
    "an administrator who reserves a node and deletes the record of another one": (
        *((0.0, Reserve(0, 60)), (1.5, DeleteRecord(1)), (8.0, Scale(0)), (90.0, Scale(3))),
    ),
    "a slurmd and a sidecar that crash while a pod with a suspended job is deleted": (
        *(
            (0.0, Submit(1, 20, "suspended")),
            (3.0, Container(0, "slurmd")),
            (1.5, DeletePod(0)),
            (1.5, DeletePod(1)),
        ),
        *((0.3, Container(0, "node")), (0.3, Container(1, "node"))),
    ),
    "an eviction and jobs of every other kind": (
        *((0.0, Submit(2, 20, "no-kill")), (30.0, Submit(2, 20, "heterogeneous")), (2.0, Evict(0))),
        *(
            (30.0, Submit(2, 20, "array")),
            (2.0, Scale(0)),
            (60.0, Scale(2)),
            (20.0, Submit(1, 20, "no-requeue")),
        ),
    ),
    "a configuration that is refused, and another one that slurmctld doesn't come up with": (
        *((0.0, Configure(REFUSED)), (40.0, RestartSlurmctld()), (8.0, Configure(REFUSED_LATER))),
        *((40.0, RestartSlurmctld()), (40.0, Scale(1))),
    ),
    "a NodeSet that is deleted with a limit for its jobs": (
        *((0.0, Submit(1, 90)), (3.0, Replace("10s")), (1.5, Crash(stale=False))),
    ),
    "a Controller, a RestApi and a key that are deleted": (
        *(
            (0.0, Submit(1, 20)),
            (1.5, ReplaceCluster("RestApi")),
            (1.5, LoseSecret(20)),
            (8.0, Scale(1)),
        ),
        *((30.0, ReplaceCluster("Controller")), (8.0, Replace())),
    ),
    "a namespace that is deleted under a job, after a key": (
        *(
            (0.0, Submit(1, 90)),
            (3.0, LoseSecret(20, "slurm")),
            (8.0, DeleteNamespace(2)),
            (1.5, Scale(3)),
        ),
        *((20.0, EndWatches(WatchFault.CUT)), (0.0, Crash(stale=False))),
    ),
    "CRDs that are deleted under a job": (
        *(
            (0.0, Submit(2, 20)),
            (3.0, DeleteCrds("all", 20)),
            (8.0, Crash(stale=False)),
            (40.0, Scale(1)),
        ),
        *((40.0, DeleteCrds("NodeSet", 2)), (8.0, ChangeTemplate())),
    ),
    "a leader that is frozen while its NodeSet changes, and its successor, too": (
        *(
            (0.0, Submit(1, 20)),
            (3.0, Freeze(30)),
            (0.3, ChangeTemplate()),
            (20.0, Scale(3)),
            (1.5, Freeze(30)),
        ),
        *((1.5, DeletePod(0, 5)), (8.0, ChangeStrategy("OnDelete")), (1.5, Crash(stale=True))),
    ),
}
"""Things that happen rarely in random runs."""


@pytest.mark.parametrize("setting", [0, 1, 2])
@pytest.mark.parametrize("name", sorted(CALAMITIES))
def test_no_invariant_breaks_in(name: str, setting: int) -> None:
    strategy = sorted(STRATEGIES)[setting]
    steps: tuple[Step, ...] = ((0.0, ReturnToService(setting)), *CALAMITIES[name])
    run(play(Script(setting, strategy, steps, MODES[setting % 2], named=setting == 1)))


def test_each_action_and_each_fault_is_in_a_script_that_always_runs() -> None:
    fixed: list[tuple[Step, ...]] = [
        *SCENARIOS.values(),
        *CALAMITIES.values(),
        ((0.0, ReturnToService(0)),),
    ]
    used = {type(step) for steps in fixed for _, step in steps} | {
        type(it) for its in FAULTS.values() for it in its
    }
    assert {*Action.__subclasses__(), *Disturbance.__subclasses__()} - used == set()


@pytest.mark.parametrize(
    "fault", [Fault.HANG, Fault.SERVER_ERROR, Fault.EMPTY, Fault.SLOW], ids=lambda it: it.name
)
def test_one_sick_slurm_delays_no_other(fault: Fault) -> None:
    async def scenario() -> None:
        async with world(3, namespaces=("sick", "sound")) as w:
            for namespace in ("sick", "sound"):
                w.nodeset(replicas=2, namespace=namespace)
            await w.run(10)
            w.slurms["sick", "slurm"].fail(fault)
            await w.run(20)
            for namespace in ("sick", "sound"):
                w.change("slinky", {"replicas": 1}, namespace)
            took = await w.until("the sound one", lambda: len(w.pods(namespace="sound")) == 1)
            assert took < 5
            if fault is not Fault.SLOW:
                assert len(w.pods(namespace="sick")) == 2

    run(scenario())


@pytest.mark.parametrize("fault", [Fault.HANG, Fault.SLOW], ids=lambda it: it.name)
def test_a_slurm_that_falls_silent_under_many_nodesets_delays_no_other(fault: Fault) -> None:
    async def scenario() -> None:
        async with world(3, kube_nodes=20, namespaces=("sick", "sound")) as w:
            several = [f"set-{number}" for number in range(6)]
            for name in several:
                w.nodeset(
                    name, namespace="sick", slurmd={"image": "slurmd:1", "hostname": f"{name}-"}
                )
            w.nodeset(namespace="sound")
            await w.run(20)
            w.slurms["sick", "slurm"].fail(fault, seconds=60.0)
            for name in several:
                w.change(name, {"replicas": 1}, "sick")
            await w.run(0.1)
            w.change("slinky", {"replicas": 1}, "sound")
            assert await w.until("the sound one", lambda: len(w.pods(namespace="sound")) == 1) < 5
            assert all(len(w.pods(name, "sick")) == 2 for name in several)

    run(scenario())


def test_a_reservation_that_slurm_is_slow_with_delays_nothing_of_its_nodeset() -> None:
    async def scenario() -> None:
        async with world(5) as w:  # in which no slurmd is late to register
            slurm = w.slurms["slurm", "slurm"]
            w.nodeset(replicas=2)
            await w.run(20)
            slurm.fail(Fault.SLOW, path="reservation", seconds=14.0)
            strategy = {
                "type": "ScheduledUpdate",
                "scheduledUpdate": {"startTime": "2026-12-24T12:00:00Z"},
            }
            w.change("slinky", {"updateStrategy": strategy})
            for replicas in (3, 2):
                await w.run(1.0)
                w.change("slinky", {"replicas": replicas})
                took = await w.until(
                    f"{replicas} pods",
                    lambda replicas=replicas: len(w.pods()) == replicas,  # type: ignore[misc]  # bound now
                )
                # Slurm is waited for for two seconds, and a pod that is deleted by its own sidecar.
                assert took < 6
            await w.until(
                "the reservation", lambda: "SlurmOperatorMaint-slinky" in slurm.reservations
            )
            received = lambda: w.condition("slinky", "ReservationCreated").get("status") == "True"  # noqa: E731
            await w.until("the condition", received)
            assert len(slurm.requests("POST", "reservation")) == 1

            w.change("slinky", {"updateStrategy": {"type": "OnDelete"}})
            await w.run(1.0)
            w.change("slinky", {"replicas": 3})
            assert await w.until("3 pods", lambda: len(w.pods()) == 3) < 6
            await w.until("no reservation", lambda: not slurm.reservations)

            def released() -> bool:
                nodeset = w.api.get(NODESET, "slurm", "slinky")
                return nodeset is not None and FINALIZER not in nodeset["metadata"]["finalizers"]

            await w.until("the finalizer to go", released)
            assert len(slurm.requests("DELETE", "reservation")) == 1

    run(scenario())


def test_partitions_that_slurm_is_slow_with_delay_nothing_of_their_nodeset() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            slurm = w.slurms["slurm", "slurm"]
            w.nodeset(replicas=2, partition={"enabled": True})
            await w.run(20)
            slurm.fail(Fault.SLOW, path="partitions/", seconds=14.0)
            w.change("slinky", {"partition": {"enabled": False}})
            await w.run(0.5)
            w.change("slinky", {"replicas": 3})
            assert await w.until("3 pods", lambda: len(w.pods()) == 3) < 4
            await w.until("its removal", lambda: not w.condition("slinky", "PartitionsReleased"))

    run(scenario())


def test_a_partition_stays_closed_until_the_job_in_it_is_over() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            slurm = w.slurms["slurm", "slurm"]
            w.nodeset(replicas=2, partition={"enabled": True})
            await w.until("the partition", lambda: "slinky" in slurm.partitions)
            await w.run(20)
            job = w.job(1, 90)
            await w.until("the job", lambda: job.job_id)
            w.change("slinky", {"partition": {"enabled": False}})
            await w.until("it to close", lambda: "UP" not in slurm.partitions["slinky"].states)
            assert not job.over
            await w.until("it to go", lambda: "slinky" not in slurm.partitions, 300)
            assert job.over

    run(scenario())


def test_a_record_that_a_pending_job_only_excludes_is_deleted_and_the_job_runs_later() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            slurm = w.slurms["slurm", "slurm"]
            w.nodeset(replicas=2)
            await w.until("the nodes", lambda: len(slurm.nodes) == 2)
            job = w.job(2, 20, kind="excluding")
            w.change("slinky", {"replicas": 0})
            await w.until("the records to be deleted", lambda: not slurm.nodes)
            w.configure("SlurmdDebug=debug")
            await w.run(30)
            assert not job.over
            w.change("slinky", {"replicas": 3})
            await w.until("the job to end", lambda: job.over)
            assert sorted({*job.nodes, *job.excluded}) == ["slinky-0", "slinky-1", "slinky-2"]

    run(scenario())


def test_a_killed_operator_that_starts_from_a_stale_list_makes_no_second_pod_of_a_name() -> None:
    steps: tuple[Step, ...] = (
        (0.0, Scale(4)),
        (0.05, Crash(stale=True)),
        (0.5, DeletePod(1)),
        (1.0, Crash(stale=True)),
    )
    script = Script(5, "RollingUpdate", steps)
    assert run(play(script)) == run(play(script.undisturbed()))


FOUND: dict[str, Script] = {
    "jobs that Slurm couldn't list are asked for again though nothing else happens": Script(
        0, "RollingUpdate", ((0.0, ChangeTemplate()), (0.3, SickSlurm(Fault.SERVER_ERROR, 3)))
    ),
    "a list of jobs that hangs is given up and asked for again": Script(
        0, "OnDelete", ((0.0, Replace()), (0.3, SickSlurm(Fault.HANG, 3)))
    ),
    "a worker on a cordoned Kubernetes node doesn't make up for one that isn't ready": Script(
        1286,
        "OnDelete",
        (
            (0.0, CordonKubeNode(0, True)),
            (0.0, BreakImage()),
            (1.0, DeletePod(3)),
            (60.0, Scale(1)),
        ),
        "DaemonSet",
    ),
    "a slurmd that has registered again a moment ago keeps its pod": Script(
        9171,
        "RollingUpdate",
        ((51.0, ChangeTemplate()), (0.0, LostState()), (0.32, Crash(stale=False))),
        "DaemonSet",
    ),
    "a slurmrestd that hangs over the list of jobs stops nobody from reporting it": Script(
        51382,
        "OnDelete",
        ((0.0, ChangeTemplate()), (8.0, SickSlurm(Fault.HANG, 30)), (8.0, Scale(0))),
    ),
    "a slow slurmrestd is trusted again, and every NodeSet is notified": Script(
        65535,
        "RollingUpdate",
        ((0.02, LostState()), (40.0, SickSlurm(Fault.SLOW, 120)), (8.0, CordonKubeNode(3, False))),
        "DaemonSet",
    ),
    "an empty list for two minutes costs no pod": Script(
        779,
        "OnDelete",
        ((2.0, SickSlurm(Fault.EMPTY, 120)), (3.0, KubeNode(1, "kill")), (130.0, Scale(2))),
        "DaemonSet",
    ),
    "an administrator's drain that comes to be seen at the last moment stays": Script(
        0,
        "RollingUpdate",
        (
            (0.0, EndWatches(WatchFault.ENDED)),
            (0.0, ChangeTemplate()),
            (0.0, ChangeTemplate()),
            (1.5, Admin(0, True)),
        ),
    ),
    "no job is sent to a pod whose slurmd has never run": Script(
        1340,
        "ScheduledUpdate",
        (
            *(
                (0.0, Scale(2)),
                (40.0, ChangeMinReady(0)),
                (0.0, BreakImage()),
                (0.0, Submit(1, 90)),
                (0.0, Scale(1)),
            ),
            *((8.0, Scale(2)), (8.0, Scale(0))),
        ),
    ),
    "no job is sent to a pod on a Kubernetes node whose slurmd has never run": Script(
        1340,
        "ScheduledUpdate",
        (
            *(
                (0.0, Scale(0)),
                (40.0, ChangeMinReady(0)),
                (0.0, BreakImage()),
                (0.0, Submit(2, 90)),
                (0.0, Scale(0)),
            ),
            *((8.0, Scale(2)), (8.0, Replace()), (8.0, Submit(1, 3))),
        ),
        "DaemonSet",
    ),
    (
        "the record of a node that an administrator has drained without a reason outlives its "
        "NodeSet"
    ): Script(
        120,
        "RollingUpdate",
        ((0.3, DeletePod(2)), (40.0, Admin(2, True, reason="")), (40.0, Replace())),
        "DaemonSet",
    ),
    "a namespace with a reservation ends although its slurmctld is gone": Script(
        3459, "ScheduledUpdate", ((40.0, LostState(registers=False)), (9.8, DeleteNamespace(20)))
    ),
    "a clock that is set back delays no end of a NodeSet": Script(
        0,
        "ScheduledUpdate",
        (
            (0.0, Scale(0)),
            (0.0, DeleteNamespace(2)),
            (0.0, LostState(registers=False)),
            (0.0, ClockJump(3600)),
        ),
    ),
    "an operator that starts without its role in a namespace changes nothing there until it has "
    "one": Script(
        694,
        "OnDelete",
        ((40.0, Refuse("RBAC", 3)), (0.0, Crash(stale=False))),
        "DaemonSet",
        named=True,
    ),
    "a pod that the watch doesn't show yet keeps its record": Script(
        65535,
        "ScheduledUpdate",
        (
            (0.0, DeletePod(2)),
            (8.0, ReadFault((KubeFault.STALE, KubeFault.STALE), 17, True)),
            (1.5, DeletePod(4)),
            (0.3, WriteFault(2, KubeFault.CRASH_AFTER)),
            (0.02, ChangeTemplate()),
        ),
    ),
}
"""Scripts by which random runs found a fault, reduced: what was to be, and now is."""


@pytest.mark.parametrize("script", FOUND.values(), ids=FOUND.keys())
def test_what_a_random_run_once_broke_is_right(script: Script) -> None:
    assert run(play(script)) == run(play(script.undisturbed()))
