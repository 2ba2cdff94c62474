"""Pods on nodes with a slurmd: where they get a guard, and what the Epilogs get."""

import dataclasses
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from sidecars.bridge.core import guards
from sidecars.bridge.core.guards import (
    Gone,
    Resume,
    Worker,
    kinds,
    kube_node_of,
    problem_of,
    worker_of,
)
from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.nodes import Drain, Undrain
from sidecars.bridge.core.records import (
    DeletePod,
    Disruption,
    GroupKey,
    Job,
    Kind,
    Label,
    Phase,
    Report,
    Requeue,
    Submit,
    View,
    Why,
)
from sidecars.bridge.core.shape import Shape
from sidecars.contract import bridge, extra
from sidecars.contract.bridge import Comment
from sidecars.slurm.records import Node
from tests.unit.bridge.core.test_decide import BOUND, JOB, LABELLED, POD, RUNNING, SHAPE, act

FACTS = extra.PodFacts("w-uid", "w0", "slurm")
NATIVE = Node("w0", frozenset({"IDLE", "DYNAMIC_NORM"}), partitions=("pods", "all"))
EXTERNAL = Node("k1", frozenset({"IDLE", "EXTERNAL"}), partitions=("bridge", "all"))
GUARD = {"pods": Kind(guard=True), "p": Kind(guard=True)}
COMPLETING = dataclasses.replace(
    RUNNING, phase=Phase.ENDED, guard=True, completing=True, slots=(("a", 1), ("b", 1))
)


def worker_pod(**annotations: str) -> Pod:
    """Of the Slurm node w0, on the Kubernetes node a."""
    metadata = {"namespace": "slurm", "name": "w0", "uid": "w-uid", "annotations": annotations}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "a"}}, Pod)


def worker(gone: str = "") -> Worker:
    found = worker_of(
        NATIVE, FACTS, worker_pod(**{bridge.GUARD: "1", **({bridge.GONE: gone} if gone else {})})
    )
    assert found is not None
    return found


def notify(
    *pods: Any,
    jobs: tuple[Job, ...] = (),
    gone: str = "",
    record: Node = NATIVE,
    known: bool = True,
) -> Any:
    view = View(pods, {job.job_id: job for job in jobs}, known, {"team": "ada"})
    return guards.decide(view, [worker(gone)], {"w0": record})


def test_a_worker_is_known_by_the_pod_that_the_node_names_if_its_epilog_waits() -> None:
    assert worker().kube_node == "a"
    assert worker_of(NATIVE, FACTS, worker_pod()) is None
    assert worker_of(NATIVE, None, worker_pod(**{bridge.GUARD: "1"})) is None
    assert worker_of(NATIVE, FACTS, None) is None
    another = dataclasses.replace(FACTS, pod_uid="other")
    assert worker_of(NATIVE, another, worker_pod(**{bridge.GUARD: "1"})) is None


def test_the_kubernetes_node_of_a_worker_is_known_whether_its_epilog_waits_or_not() -> None:
    assert kube_node_of(FACTS, worker_pod()) == "a"
    assert kube_node_of(None, worker_pod()) == ""
    assert kube_node_of(FACTS, None) == ""
    assert kube_node_of(dataclasses.replace(FACTS, pod_uid="other"), worker_pod()) == ""


def test_the_kind_of_a_partition_is_that_of_its_nodes() -> None:
    found = kinds([NATIVE, EXTERNAL], {"w0": worker()})
    assert (found["pods"], found["bridge"]) == (Kind(guard=True), Kind())
    assert "external nodes, such as k1, and nodes with a slurmd, such as w0" in found["all"].problem


def test_a_node_without_a_waiting_worker_makes_its_partition_unusable_unless_powered_down() -> None:
    assert "slurmBridge.guard.enabled" in kinds([NATIVE], {})["pods"].problem
    stopped = dataclasses.replace(
        NATIVE, name="w1", states=frozenset({"IDLE", "CLOUD", "POWERED_DOWN"})
    )
    assert kinds([NATIVE, stopped], {"w0": worker()})["pods"] == Kind(guard=True)


def test_a_pod_gets_a_guard_where_the_nodes_have_a_slurmd() -> None:
    [submit] = act(POD, kinds=GUARD)
    assert isinstance(submit, Submit)
    assert submit.guard
    [adopted] = act(POD, jobs=(dataclasses.replace(JOB, guard=True),), kinds=GUARD)
    assert not isinstance(adopted, Submit)
    assert isinstance(act(POD, jobs=(JOB,), kinds=GUARD)[0], Submit), "an external job is no guard"


def test_a_mixed_partition_is_refused_with_its_reason() -> None:
    assert act(POD, kinds={"p": Kind(problem="mixed")}) == (Report(POD, Why.REFUSED, "mixed"),)


def test_nothing_is_submitted_before_slurms_nodes_are_known() -> None:
    assert act(POD, kinds=None) == (Report(POD, Why.INCOMPLETE, "Slurm's nodes are not known yet"),)


def test_a_pod_that_could_use_more_than_its_job_has_gets_no_guard() -> None:
    loose = dataclasses.replace(POD, unguarded="container c can use more memory")
    assert act(loose, kinds=GUARD) == (
        Report(loose, Why.REFUSED, "pod: container c can use more memory"),
    )


def test_a_pod_that_could_use_more_than_its_job_has_gets_no_place_in_the_guard_of_its_group() -> (
    None
):
    key = GroupKey("team", "group/g")
    runs = dataclasses.replace(BOUND, key=key, size=2)
    again = dataclasses.replace(
        POD, uid="u2", name="again", key=key, size=2, unguarded="container c can use more cpu"
    )
    comment = Comment("team", "group/g", POD.shape.digest if POD.shape else "", 2)
    guard = dataclasses.replace(RUNNING, guard=True, comment=comment, slots=(("a", 2),))
    assert act(runs, again, jobs=(guard,), kinds=GUARD) == (
        Report(again, Why.REFUSED, "again: container c can use more cpu"),
    )
    assert any(
        isinstance(it, Label)
        for it in act(runs, again, jobs=(dataclasses.replace(guard, guard=False),))
    )


def test_unequal_pods_get_no_guard() -> None:
    pods = [
        dataclasses.replace(POD, uid=name, name=name, size=2, shape=Shape("ada", "p", cpus=cpus))
        for name, cpus in (("p0", 1), ("p1", 2))
    ]
    found = act(*pods, kinds=GUARD)
    assert all(
        isinstance(it, Report) and "all pods of a group have to request the same" in it.message
        for it in found
    )
    assert len(found) == 2


def test_a_pod_whose_guard_was_queued_again_is_deleted() -> None:
    queued = dataclasses.replace(RUNNING, guard=True, phase=Phase.PENDING, completing=True)
    assert act(BOUND, jobs=(queued,), kinds=GUARD) == (
        DeletePod(BOUND, "Slurm job 7 was queued again", "", Disruption.REQUEUED),
    )
    waits = dataclasses.replace(queued, completing=False)
    assert not any(isinstance(it, DeletePod) for it in act(LABELLED, jobs=(waits,), kinds=GUARD))


def test_a_pod_that_waits_loses_its_guard_that_was_queued_again_while_that_is_completing() -> None:
    """Otherwise its user could keep the node COMPLETING for as long as the pod waits."""
    queued = dataclasses.replace(RUNNING, guard=True, phase=Phase.PENDING, completing=True)
    assert act(LABELLED, jobs=(queued,), kinds=GUARD) == (
        Requeue(LABELLED, 7, "Slurm job 7 was queued again"),
    )


def test_the_epilog_of_a_guard_that_was_queued_again_gets_its_answer_as_well() -> None:
    queued = dataclasses.replace(COMPLETING, phase=Phase.PENDING, retains=False)
    there = dataclasses.replace(BOUND, node="a")
    assert notify(there, jobs=(queued,)) == ()
    assert notify(jobs=(queued,)) == (Gone(worker(), "7"),)


def test_the_epilog_gets_its_answer_when_no_pod_of_the_job_is_left_on_its_node() -> None:
    there = dataclasses.replace(BOUND, node="a")
    elsewhere = dataclasses.replace(BOUND, node="b")
    assert notify(there, jobs=(COMPLETING,)) == ()
    assert notify(elsewhere, jobs=(COMPLETING,)) == (Gone(worker(), "7"),)
    assert notify(dataclasses.replace(there, deleting=True), jobs=(COMPLETING,)) == ()
    assert notify(dataclasses.replace(there, finished=True), jobs=(COMPLETING,)) == (
        Gone(worker(), "7"),
    )


@pytest.mark.parametrize(
    "pod",
    [LABELLED, dataclasses.replace(BOUND, node="unknown"), dataclasses.replace(LABELLED, node="a")],
    ids=["not released", "on a node that the job doesn't name", "a release that was sent"],
)
def test_the_epilog_gets_no_answer_while_a_pod_may_still_come_or_be_there(pod: Any) -> None:
    assert not any(isinstance(it, Gone) for it in notify(pod, jobs=(COMPLETING,)))


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING])
def test_nothing_is_reported_of_jobs_that_run(phase: Phase) -> None:
    assert notify(jobs=(dataclasses.replace(COMPLETING, phase=phase),)) == ()


def test_nothing_is_reported_while_slurm_is_unknown() -> None:
    assert notify(jobs=(COMPLETING,), known=False) == ()


def test_what_was_reported_is_withdrawn_when_the_epilog_has_ended() -> None:
    assert notify(jobs=(dataclasses.replace(COMPLETING, completing=False),), gone="7") == (
        Gone(worker("7"), ""),
    )
    assert notify(jobs=(COMPLETING,), gone="7") == ()


def test_a_guard_of_a_user_who_isnt_the_bridge_ends_at_once() -> None:
    forged = dataclasses.replace(
        COMPLETING, job_id=9, user="eve", comment=Comment("", "", pods=0), confirmed=False
    )
    assert notify(BOUND, jobs=(forged, dataclasses.replace(RUNNING, guard=True))) == (
        Gone(worker(), "9"),
    )


def test_the_node_of_a_pod_for_which_no_epilog_waits_is_drained() -> None:
    ended = dataclasses.replace(COMPLETING, completing=False)
    [drain] = notify(BOUND, jobs=(ended,))
    assert drain == Drain("w0", "slurm-bridge: pod team/pod runs here without a guard")
    assert notify(BOUND) == (drain,), "a job that Slurm doesn't list"
    assert notify(BOUND, jobs=(ended,), record=drained(drain.reason)) == ()
    assert notify(BOUND, jobs=(dataclasses.replace(RUNNING, guard=True),)) == ()
    assert notify(BOUND, jobs=(RUNNING,)) == (drain,), (
        "an external job, of the time before the node had a worker"
    )


def test_the_node_of_a_pod_whose_guard_has_another_node_is_drained() -> None:
    # Another worker came to the Kubernetes node, and that of the guard runs elsewhere by now.
    moved = dataclasses.replace(RUNNING, guard=True, slots=(("b", 1),))
    [drain] = notify(BOUND, jobs=(moved,))
    assert drain == Drain("w0", "slurm-bridge: pod team/pod runs here without a guard")


def test_the_node_of_more_pods_than_their_guard_has_places_there_is_drained() -> None:
    # slurmctld that was killed has started the guard again with fewer places on this node.
    second = dataclasses.replace(BOUND, uid="u2", name="second")
    guard = dataclasses.replace(RUNNING, guard=True)
    drain = Drain("w0", "slurm-bridge: pod team/second runs here without a guard")
    assert notify(BOUND, second, jobs=(guard,)) == (drain,)
    assert notify(BOUND, second, jobs=(dataclasses.replace(guard, slots=(("a", 2),)),)) == ()


def test_the_node_of_a_pod_whose_job_id_is_that_of_the_guard_of_other_pods_is_drained() -> None:
    # slurmctld has lost its state, and gives the same ids again.
    other = dataclasses.replace(RUNNING, guard=True, comment=Comment("team", "other", SHAPE.digest))
    assert [type(it) for it in notify(BOUND, jobs=(other,))] == [Drain]


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.STOPPED])
def test_the_node_of_a_pod_whose_guard_has_no_cores_is_drained(phase: Phase) -> None:
    # slurmctld that was killed has forgotten the start of the guard, or an administrator has
    # suspended it.
    idle = dataclasses.replace(RUNNING, guard=True, phase=phase)
    assert [type(it) for it in notify(BOUND, jobs=(idle,))] == [Drain]
    assert [type(it) for it in notify(LABELLED, jobs=(idle,))] == []
    queued = dataclasses.replace(idle, completing=True)
    assert notify(BOUND, jobs=(queued,)) == (), "its Epilog waits"


def test_no_epilog_waits_on_a_node_that_is_down_while_the_job_is_completing_on_another_one() -> (
    None
):
    down = dataclasses.replace(NATIVE, states=frozenset({"DOWN"}))
    [drain] = notify(BOUND, jobs=(COMPLETING,), record=down)
    assert isinstance(drain, Drain)
    assert notify(BOUND, jobs=(COMPLETING,), record=drained(drain.reason)) == (), "it is back"


def test_the_node_of_a_pod_is_drained_before_slurm_forgets_the_guard_of_a_silent_slurmd() -> None:
    guard = dataclasses.replace(RUNNING, guard=True)
    view = View((BOUND,), {7: guard}, True, {"team": "ada"})

    def decide(record: Node, *silent: str, view: View = view) -> Any:
        return guards.decide(view, [worker()], {"w0": record}, frozenset(silent))

    assert decide(NATIVE) == ()
    [drain] = decide(NATIVE, "w0")
    assert drain == Drain("w0", "slurm-bridge: pod team/pod runs here, and slurmd doesn't answer")
    assert decide(drained(drain.reason), "w0") == ()
    assert decide(drained(drain.reason)) == (Undrain("w0"),), "it answers again"
    assert decide(NATIVE, "w0", view=dataclasses.replace(view, pods=(), jobs={})) == (), (
        "no pod exists"
    )


def test_the_reason_of_others_on_a_node_that_is_down_remains() -> None:
    down = dataclasses.replace(
        NATIVE, states=frozenset({"DOWN"}), reason="broken fan", reason_set_by_user="root"
    )
    assert notify(BOUND, record=down) == (Drain("w0", ""),)
    silent = dataclasses.replace(down, reason="Not responding", reason_set_by_user="slurm")
    assert notify(BOUND, record=silent) == (
        Drain("w0", "slurm-bridge: pod team/pod runs here without a guard"),
    )


def test_the_drain_ends_with_the_pod_and_that_of_others_remains() -> None:
    assert notify(record=drained("slurm-bridge: x")) == (Undrain("w0"),)
    assert notify(record=drained("broken")) == ()
    failing = dataclasses.replace(
        NATIVE, states=frozenset({"IDLE", "FAIL"}), reason="slurm-bridge: x"
    )
    assert notify(record=failing) == (), "an administrator has set FAIL, and UNDRAIN would end it"
    received = notify(BOUND, jobs=(COMPLETING,), record=drained("slurm-bridge: not confirmed"))
    assert received == (), "an Epilog still waits"
    completing = dataclasses.replace(
        drained("slurm-bridge: x"), states=frozenset({"IDLE", "DRAIN", "COMPLETING"})
    )
    assert notify(record=completing) == (), "an Epilog still waits, whatever is known of its job"
    assert notify(record=completing, jobs=(COMPLETING,)) == (Gone(worker(), "7"),)


def test_a_node_that_is_down_with_the_bridges_reason_is_resumed_when_its_slurmd_answers() -> None:
    """slurmctld adds its words to the bridge's when it gives up slurmd, and takes those for another
    program's.
    """
    reason = "slurm-bridge: pod team/pod runs here, and slurmd doesn't answer : Not responding"
    down = dataclasses.replace(
        NATIVE, states=frozenset({"DOWN", "DRAIN", "NOT_RESPONDING"}), reason=reason
    )
    assert notify(record=down) == (Undrain("w0"),)
    assert (
        notify(record=dataclasses.replace(down, states=frozenset({"DOWN", "NOT_RESPONDING"}))) == ()
    )
    for states in ({"DOWN"}, {"DOWN", "DRAIN"}):
        back = dataclasses.replace(down, states=frozenset(states))
        assert notify(record=back) == (Resume("w0"),)
        assert notify(record=dataclasses.replace(back, reason="broken fan")) == ()
    assert (
        notify(BOUND, record=dataclasses.replace(down, states=frozenset({"DOWN", "DRAIN"}))) == ()
    ), "a pod exists"
    meta = msgspec.structs.replace(worker().pod.metadata, deletion_timestamp=datetime.now(UTC))
    ending = dataclasses.replace(worker(), pod=msgspec.structs.replace(worker().pod, metadata=meta))
    view = View((), {}, True, {"team": "ada"})
    assert guards.decide(view, [ending], {"w0": back}) == (Undrain("w0"),), "its slurmd has ended"
    waits = notify(jobs=(COMPLETING,), record=dataclasses.replace(down, states=frozenset({"DOWN"})))
    assert waits == (Gone(worker(), "7"),), "an Epilog of another node waits"


def test_the_drain_of_a_vanished_worker_ends_when_its_node_has_neither_pod_nor_worker() -> None:
    left = drained("slurm-bridge: pod team/pod runs here, and slurmd doesn't answer")
    down = dataclasses.replace(left, states=frozenset({"DOWN", "DRAIN"}))

    def vanished(
        record: Node, *pods: Any, workers: tuple[Worker, ...] = (), jobs: tuple[Job, ...] = ()
    ) -> Any:
        view = View(pods, {job.job_id: job for job in jobs}, True, {"team": "ada"})
        return guards.decide(view, workers, {record.name: record})

    assert vanished(left) == vanished(down) == (Undrain("w0"),)
    assert vanished(left, BOUND) == vanished(down, dataclasses.replace(BOUND, deleting=True)) == ()
    other = dataclasses.replace(left, name="w1")
    assert vanished(other, BOUND, workers=(worker(),)) == (Undrain("w1"),), (
        "the worker of its node looks after it"
    )
    assert vanished(left, BOUND, jobs=(RUNNING,)) == (Undrain("w0"),), "its node has no slurmd"
    elsewhere = dataclasses.replace(BOUND, node="b")
    assert vanished(left, elsewhere, jobs=(RUNNING,)) == (), "its job has another node"


def test_the_drain_of_a_worker_that_has_vanished_stays_if_it_is_anothers_or_an_epilog_waits() -> (
    None
):
    view = View((), {}, True, {"team": "ada"})
    for record in (
        drained("broken"),
        dataclasses.replace(NATIVE, states=frozenset({"IDLE", "FAIL"}), reason="slurm-bridge: x"),
        dataclasses.replace(
            NATIVE, states=frozenset({"IDLE", "DRAIN", "COMPLETING"}), reason="slurm-bridge: x"
        ),
        dataclasses.replace(
            EXTERNAL, states=frozenset({"IDLE", "DRAIN", "EXTERNAL"}), reason="slurm-bridge: x"
        ),
        dataclasses.replace(NATIVE, states=frozenset({"DOWN"}), reason="slurm-bridge: x"),
    ):
        assert guards.decide(view, (), {record.name: record}) == ()
    unknown = dataclasses.replace(view, known=False)
    assert guards.decide(unknown, (), {"w0": drained("slurm-bridge: x")}) == ()


def drained(reason: str) -> Node:
    return dataclasses.replace(NATIVE, states=frozenset({"IDLE", "DRAIN"}), reason=reason)


def spec(**container: Any) -> Pod:
    return msgspec.convert(
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", **container}]}}, Pod
    )


BOUNDS = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"limits": BOUNDS}, ""),
        ({"requests": BOUNDS, "limits": BOUNDS}, ""),
        ({"requests": BOUNDS}, "more cpu than it requests"),
        ({"requests": BOUNDS, "limits": {"cpu": "1"}}, "set limits.memory to the requests"),
        ({"requests": {**BOUNDS, "cpu": "500m"}, "limits": BOUNDS}, "set limits.cpu"),
    ],
)
def test_a_pod_beside_slurms_own_jobs_can_use_no_more_than_its_job_has(
    resources: Any, words: str
) -> None:
    found = problem_of(spec(resources=resources), exclusive=False)
    assert words in found
    assert bool(found) == bool(words)


def test_only_a_pod_with_the_whole_node_may_have_devices_of_a_plugin() -> None:
    pod = spec(resources={"limits": {**BOUNDS, "nvidia.com/gpu": "1"}})
    assert problem_of(pod, exclusive=True, gres="gres/gpu:1") == ""
    assert "request the whole node" in problem_of(pod, exclusive=False, gres="gres/gpu:1")


@pytest.mark.parametrize(
    "name", ["fpga.example/card", "deviceclass.resource.kubernetes.io/gpu.nvidia.com"]
)
def test_a_pod_with_devices_that_slurm_does_not_count_needs_whole_nodes(name: str) -> None:
    """Also of a DRA driver, by the extended resource of a DeviceClass."""
    pod = spec(resources={"limits": {**BOUNDS, name: "1", "ephemeral-storage": "1Gi"}})
    assert f"{name} is no GRES of Slurm" in problem_of(pod, exclusive=False)
    assert problem_of(pod, exclusive=True) == ""
    assert problem_of(pod, exclusive=False, extended=[name]) == "", "its GRES counts"


@pytest.mark.parametrize("exclusive", [True, False])
def test_devices_by_claim_are_refused_because_slurms_indices_are_those_of_its_own_node(
    exclusive: bool,
) -> None:
    found = problem_of(spec(resources={"limits": BOUNDS}), exclusive=exclusive, claims=True)
    assert "use another partition" in found


def test_a_node_selector_is_refused_because_slurm_cant_compare_it() -> None:
    pod = spec(resources={"limits": BOUNDS})
    selective = msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, node_selector={"zone": "a"})
    )
    assert f"{bridge.WISHES}constraints" in problem_of(selective, exclusive=False)


def test_limits_of_the_whole_pod_count() -> None:
    pod = spec()
    level = msgspec.convert({"limits": BOUNDS}, type(pod.spec.resources))
    whole = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resources=level))
    assert problem_of(whole, exclusive=False) == ""


def test_an_epilog_waits_for_no_pod_of_another_group_with_the_same_id_from_a_lost_state() -> None:
    other = dataclasses.replace(
        BOUND, key=GroupKey("other", "v"), namespace="other", uid="v", node="elsewhere"
    )
    assert notify(other, jobs=(COMPLETING,)) == (Gone(worker(), "7"),)
    assert notify(dataclasses.replace(other, node="a"), jobs=(COMPLETING,)) != (
        Gone(worker(), "7"),
    )
