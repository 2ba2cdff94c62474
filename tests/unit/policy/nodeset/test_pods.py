"""Which worker pods are created, drained and deleted: the rules of `sidecars.policy.nodeset.pods`,
one by one.
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.contract.extra import PodFacts, encode
from sidecars.policy.nodeset.drain import NOT_REGISTERED_SECONDS, nodes_with_jobs, with_jobs
from sidecars.policy.nodeset.needs import JobList, Known
from sidecars.policy.nodeset.pods import PodPlan, plan, undecided
from sidecars.policy.nodeset.records import DesiredPods, SlurmView, WorkerPod
from sidecars.policy.placement import Place
from sidecars.slurm.records import Job, Node
from tests.unit.policy.nodeset.builders import (
    NODE_WORDS,
    NOW,
    SCALE_IN,
    may_have_a_job,
    node,
    slurm,
    worker,
)

CORDONED = "Node (m) was cordoned"


def decide(replicas: int, pods: Iterable[WorkerPod], view: SlurmView, **changes: object) -> PodPlan:
    desired = replace(DesiredPods("slurm", replicas, "new"), **changes)  # type: ignore[arg-type]  # as above
    return plan(desired, pods, view, NOW)


def names(result: PodPlan) -> list[str]:
    return [deletion.pod.name for deletion in result.delete]


def test_missing_pods_are_created_at_the_lowest_free_ordinals() -> None:
    assert decide(4, [worker(0), worker(2)], slurm()).create == (1, 3)


def test_creation_does_not_wait_for_slurm() -> None:
    assert decide(2, [], slurm(problem="slurmrestd does not answer")).create == (0, 1)


def test_a_terminating_pod_keeps_its_ordinal_until_it_is_gone() -> None:
    assert decide(2, [worker(0), worker(1, terminating=True)], slurm()).create == ()


def test_scale_in_drains_before_it_deletes() -> None:
    view = slurm(node(0, "IDLE"), node(1, "IDLE"), node(2, "IDLE"))
    result = decide(1, [worker(0), worker(1), worker(2)], view)
    assert result.drain == {SCALE_IN.format(2): ("slinky-2",), SCALE_IN.format(1): ("slinky-1",)}
    assert [pod.name for pod in result.cordon] == ["slinky-2", "slinky-1"]
    assert names(result) == []


def test_a_condemned_pod_is_deleted_once_its_node_is_drained() -> None:
    view = slurm(node(0, "IDLE"), node(1, "IDLE", "DRAIN", reason=SCALE_IN.format(1)))
    result = decide(1, [worker(0), worker(1, cordon="operator")], view)
    assert names(result) == ["slinky-1"]
    assert not result.drain


def test_a_condemned_pod_with_a_running_job_stays_and_reports_what_it_waits_for() -> None:
    view = slurm(node(0, "ALLOCATED"), node(1, "MIXED", "DRAIN", reason=SCALE_IN.format(1)))
    result = decide(1, [worker(0), worker(1, cordon="operator")], view)
    assert names(result) == []
    assert [(w.pod.name, w.step) for w in result.waiting] == [
        ("slinky-1", "Slurm node slinky-1 is draining: its jobs are still running")
    ]


def test_an_idle_pod_is_chosen_before_a_busy_one_with_a_higher_ordinal() -> None:
    view = slurm(node(0, "IDLE"), node(1, "ALLOCATED"))
    assert decide(1, [worker(0), worker(1)], view).drain == {SCALE_IN.format(0): ("slinky-0",)}


def test_nothing_is_deleted_while_the_state_of_slurm_is_unknown() -> None:
    view = slurm(
        node(1, "IDLE", "DRAIN", reason=SCALE_IN.format(1)), problem="slurmrestd does not answer"
    )
    result = decide(1, [worker(0), worker(1)], view)
    assert names(result) == []
    assert not result.drain
    assert "slurmrestd does not answer" in result.waiting[0].step


def test_a_pod_whose_slurmd_never_started_goes_without_asking_slurm() -> None:
    pending = worker(
        1, started=False, phase="Pending", ready=False, available=False, ready_since=None
    )
    assert names(decide(1, [worker(0), pending], slurm(problem="unreachable"))) == ["slinky-1"]


def test_a_running_slurmd_that_has_not_registered_yet_is_given_time_to() -> None:
    young = worker(1, ready_since=None, ready=False, slurmd_since=NOW - NOT_REGISTERED_SECONDS + 2)
    old = replace(young, slurmd_since=NOW - NOT_REGISTERED_SECONDS)
    waits = decide(1, [worker(0), young], slurm(node(0, "IDLE")))
    assert (names(waits), waits.look_again) == ([], 2.0)
    assert names(decide(1, [worker(0), old], slurm(node(0, "IDLE")))) == ["slinky-1"]


def test_a_pod_that_slurm_knows_has_started_whatever_the_kubelet_has_reported() -> None:
    lagging = worker(
        1, started=False, phase="Pending", ready=False, available=False, ready_since=None
    )
    busy = replace(node(1, "ALLOCATED"), extra=encode(PodFacts("uid-1")))
    result = decide(1, [worker(0), lagging], slurm(node(0, "IDLE"), busy))
    assert names(result) == []
    of_a_predecessor = replace(busy, extra=encode(PodFacts("uid-of-another")))
    assert names(decide(1, [worker(0), lagging], slurm(node(0, "IDLE"), of_a_predecessor))) == [
        "slinky-1"
    ]


def test_a_node_that_was_written_to_is_not_believed_before_it_is_read_again() -> None:
    view = slurm(node(0, "IDLE"), node(1, "IDLE", "DRAIN", reason=SCALE_IN.format(1)))
    pods = [worker(0), worker(1, cordon="operator")]
    assert names(decide(1, pods, replace(view, unsettled=frozenset({"slinky-1"})))) == []
    assert names(decide(1, pods, view)) == ["slinky-1"]


def test_a_suspended_job_keeps_its_pod() -> None:
    view = slurm(node(0, "IDLE"), node(1, "IDLE", "DRAIN", reason=SCALE_IN.format(1)))
    jobs = [
        Job(1, states=frozenset({"SUSPENDED"}), nodes="slinky-[1-2]"),
        Job(2, states=frozenset({"COMPLETED"}), nodes="slinky-0"),
        Job(3, states=frozenset({"PENDING"})),
    ]
    assert nodes_with_jobs(jobs) == {"slinky-1", "slinky-2"}
    result = decide(
        1,
        [worker(0), worker(1, cordon="operator")],
        replace(view, nodes_with_jobs=nodes_with_jobs(jobs)),
    )
    assert names(result) == []
    assert "suspended" in result.waiting[0].step


def test_a_job_whose_nodes_can_not_be_read_may_be_on_any_node() -> None:
    view = slurm(node(0, "IDLE"), node(1, "IDLE", "DRAIN", reason=SCALE_IN.format(1)))
    jobs = (Job(1, states=frozenset({"SUSPENDED"}), nodes="slinky-[2-1]"),)
    result = decide(
        1,
        [worker(0), worker(1, cordon="operator")],
        with_jobs(view, Known(JobList(jobs, 0.0)), None),
    )
    assert names(result) == []
    assert (
        "the jobs can't be read: GET jobs/: nodes of job 1: range '2-1'" in result.waiting[0].step
    )


@pytest.mark.parametrize("named", ["slinky-0 slinky-1", "slinky-0,,", "slinky-[1", "n\x00", "]"])
def test_no_list_that_the_user_of_a_pending_job_has_written_stops_the_deletion_of_pods(
    named: str,
) -> None:
    view = slurm(node(0, "IDLE"), node(1, "IDLE", "DRAIN", reason=SCALE_IN.format(1)))
    jobs = (Job(1, states=frozenset({"PENDING"}), required_nodes=named),)
    result = decide(
        1,
        [worker(0), worker(1, cordon="operator")],
        with_jobs(view, Known(JobList(jobs, 0.0)), Known(())),
    )
    assert names(result) == ["slinky-1"]


def test_nodes_of_a_switch_that_a_pending_job_names_are_named_by_the_job() -> None:
    nodes = [replace(node(number, "IDLE"), topology=f"t:root:r{number}") for number in (0, 1)]
    jobs = (Job(7, states=frozenset({"PENDING"}), required_nodes="switch{r1}"),)
    view = with_jobs(slurm(*nodes), Known(JobList(jobs, 0.0)), Known(()))
    assert view.named == {"slinky-1": "job 7"}


def test_a_drained_node_keeps_its_pod_while_its_jobs_are_being_read() -> None:
    view = slurm(node(0, "IDLE"), node(1, "IDLE", "DRAIN", reason=SCALE_IN.format(1)))
    result = decide(
        1, [worker(0), worker(1, cordon="operator")], replace(view, unread=frozenset({"slinky-1"}))
    )
    assert names(result) == []
    assert "being read" in result.waiting[0].step


def test_nobody_new_is_chosen_while_it_is_being_read_whose_jobs_end_first() -> None:
    view = slurm(*(node(number, "MIXED") for number in range(3)))
    chosen = decide(1, [worker(0), worker(1), worker(2, cordon="operator")], view)
    assert [pod.name for pod in chosen.cordon] == ["slinky-1"]
    result = undecided(chosen)
    assert result.cordon == ()
    assert list(result.drain.values()) == [("slinky-2",)]
    steps = {it.pod.name: it.step for it in result.waiting}
    assert {name: "whose end first" in step for name, step in steps.items()} == {
        "slinky-1": True,
        "slinky-2": False,
    }


def test_a_cordoned_kubernetes_node_is_heeded_while_it_is_being_read_whose_jobs_end_first() -> None:
    view = slurm(*(node(number, "MIXED") for number in range(2)))
    pods = [worker(0, kube_node_cordon=CORDONED), worker(1)]
    result = undecided(decide(1, pods, view))
    assert [pod.name for pod in result.cordon] == ["slinky-0"]
    assert result.drain == {f"slurm-operator: {CORDONED}": ("slinky-0",)}


def test_an_administrators_drain_is_left_as_it_is() -> None:
    view = slurm(
        node(0, "IDLE", "DRAIN", reason="bad disk"), node(1, "MIXED", "DRAIN", reason="bad disk")
    )
    result = decide(1, [worker(0), worker(1)], view)
    assert not result.drain
    assert result.undrain == ()


def test_a_pod_condemned_no_longer_is_undrained() -> None:
    view = slurm(node(0, "IDLE"), node(1, "MIXED", "DRAIN", reason=SCALE_IN.format(1)))
    result = decide(2, [worker(0), worker(1, cordon="operator")], view)
    assert result.undrain == ("slinky-1",)
    assert [pod.name for pod in result.uncordon] == ["slinky-1"]


def test_a_node_whose_pod_is_being_deleted_is_never_undrained() -> None:
    view = slurm(node(0, "IDLE"), node(1, "MIXED", "DRAIN", reason=SCALE_IN.format(1)))
    assert decide(2, [worker(0), worker(1, terminating=True)], view).undrain == ()


def test_a_drain_that_the_pod_asked_for_is_not_the_operators_to_lift() -> None:
    view = slurm(node(0, "IDLE", "DRAIN", reason="slurm-node: pod is terminating"))
    assert decide(1, [worker(0)], view).undrain == ()


def test_a_drain_of_a_pod_that_is_gone_is_lifted_once_its_successor_is_ready() -> None:
    left = replace(
        node(0, "IDLE", "DRAIN", reason="slurm-node: the pod is terminating"),
        extra=encode(PodFacts("uid-of-another")),
    )
    assert decide(1, [worker(0)], slurm(left)).undrain == ("slinky-0",)
    assert decide(1, [worker(0, ready=False)], slurm(left)).undrain == ()


def test_the_operators_drain_of_a_record_that_a_pod_left_ends_when_a_slurmd_exists() -> None:
    drain = node(0, "IDLE", "DRAIN", reason=SCALE_IN.format(0))
    left = replace(drain, extra=encode(PodFacts("uid-of-another")))
    for ready in (True, False):
        lifted = ("slinky-0",) if ready else ()
        assert decide(1, [worker(0, ready=ready)], slurm(left)).undrain == lifted
        assert (
            decide(
                1, [worker(0, ready=ready)], slurm(replace(drain, extra="written by hand"))
            ).undrain
            == lifted
        )
    own = replace(drain, extra=encode(PodFacts(worker(0).uid)))
    assert decide(1, [worker(0, ready=False)], slurm(own)).undrain == ("slinky-0",)


def test_a_kubernetes_node_that_is_gone_lifts_no_drain() -> None:
    view = slurm(node(0, "IDLE", "DRAIN", reason="slurm-operator: Node (m) was cordoned"))
    assert decide(1, [worker(0, kube_node_gone=True)], view).undrain == ()
    assert decide(1, [worker(0)], view).undrain == ("slinky-0",)


def test_a_cordoned_kubernetes_node_drains_its_slurm_node() -> None:
    view = slurm(node(0, "IDLE"))
    result = decide(1, [worker(0, kube_node_cordon="Node (m) was cordoned")], view)
    assert result.drain == {"slurm-operator: Node (m) was cordoned": ("slinky-0",)}


@pytest.mark.parametrize(
    ("states", "reason", "marked"),
    [
        ("IDLE", "", True),
        ("IDLE DRAIN", f"slurm-operator: {CORDONED}", True),
        ("IDLE DRAIN", "admin: bad disk", False),
    ],
)
def test_a_pod_is_marked_for_a_cordoned_kubernetes_node_unless_somebody_else_has_drained_it(
    states: str, reason: str, marked: bool
) -> None:
    view = slurm(node(0, *states.split(), reason=reason))
    assert bool(decide(1, [worker(0, kube_node_cordon=CORDONED)], view).cordon) is marked
    already = decide(1, [worker(0, kube_node_cordon=CORDONED, cordon="operator")], view)
    assert bool(already.uncordon) is not marked


@pytest.mark.parametrize("view", [slurm(), slurm(node(0, "IDLE"), problem="it does not answer")])
def test_a_mark_for_a_cordoned_kubernetes_node_is_left_as_it_is_while_its_slurm_node_is_unknown(
    view: SlurmView,
) -> None:
    for cordon in (None, "operator", "user"):
        result = decide(1, [worker(0, kube_node_cordon=CORDONED, cordon=cordon)], view)
        assert (result.cordon, result.uncordon) == ((), ())


def test_the_mark_of_a_pod_goes_with_the_cordon_of_its_kubernetes_node() -> None:
    view = slurm(node(0, "IDLE", "DRAIN", reason=f"slurm-operator: {CORDONED}"))
    result = decide(1, [worker(0, cordon="operator")], view)
    assert [pod.name for pod in result.uncordon] == ["slinky-0"]
    assert result.undrain == ("slinky-0",)


REQUESTED = "slurm-operator: Pod (slurm/slinky-0) was asked to be cordoned"


def test_a_requested_drain_has_a_reason_of_its_own_and_the_operators_mark() -> None:
    result = decide(1, [worker(0, drain_requested=True)], slurm(node(0, "IDLE")))
    assert result.drain == {REQUESTED: ("slinky-0",)}
    assert [pod.name for pod in result.cordon] == ["slinky-0"]


def test_a_requested_drain_ends_with_the_request() -> None:
    view = slurm(node(0, "IDLE", "DRAIN", reason=REQUESTED))
    kept = decide(1, [worker(0, drain_requested=True, cordon="operator")], view)
    assert (kept.drain, kept.undrain, kept.uncordon) == ({}, (), ())
    result = decide(1, [worker(0, cordon="operator")], view)
    assert result.undrain == ("slinky-0",)
    assert [pod.name for pod in result.uncordon] == ["slinky-0"]


def test_a_drain_is_requested_in_vain_while_the_node_has_the_reason_of_someone_else() -> None:
    view = slurm(node(0, "IDLE", "DRAIN", reason="bad disk"))
    result = decide(1, [worker(0, drain_requested=True)], view)
    assert (result.drain, result.cordon) == ({}, ())


def test_a_cordoned_kubernetes_node_and_a_users_cordon_name_the_drain_before_a_request() -> None:
    view = slurm(node(0, "IDLE"))
    both = worker(0, drain_requested=True, kube_node_cordon=CORDONED)
    assert decide(1, [both], view).drain == {f"slurm-operator: {CORDONED}": ("slinky-0",)}
    user = worker(0, drain_requested=True, cordon="user")
    assert decide(1, [user], view).drain == {
        "slurm-operator: Pod (slurm/slinky-0) was cordoned": ("slinky-0",)
    }


def test_a_users_cordon_of_a_pod_drains_it_and_is_not_taken_back() -> None:
    result = decide(1, [worker(0, cordon="user")], slurm(node(0, "IDLE")))
    assert result.drain == {"slurm-operator: Pod (slurm/slinky-0) was cordoned": ("slinky-0",)}
    assert result.uncordon == ()


def test_a_failed_pod_is_replaced_at_once() -> None:
    failed = worker(1, phase="Failed", ready=False, available=False)
    result = decide(2, [worker(0), failed], slurm(problem="unreachable"))
    assert (names(result), result.create) == (["slinky-1"], ())
    assert decide(2, [worker(0)], slurm(problem="unreachable")).create == (1,)


def test_removal_of_the_nodeset_drains_every_node_first() -> None:
    view = slurm(node(0, "IDLE"), node(1, "ALLOCATED"))
    result = decide(2, [worker(0), worker(1)], view, deleting=True)
    assert result.create == ()
    assert names(result) == []
    assert drained(result) == ["slinky-0", "slinky-1"]


def test_removal_is_forced_with_a_short_grace_once_the_cluster_goes_as_well() -> None:
    result = decide(1, [worker(0)], slurm(problem="gone"), deleting=True, forced=True)
    assert [(deletion.pod.name, deletion.grace_seconds) for deletion in result.delete] == [
        ("slinky-0", 30)
    ]


def test_removal_that_is_forced_shortens_the_grace_of_pods_that_are_going_already() -> None:
    pods = [
        worker(0, terminating=True, terminating_grace=3600),
        worker(1, terminating=True, terminating_grace=30),
    ]
    assert names(decide(1, pods, slurm(problem="gone"), deleting=True, forced=True)) == ["slinky-0"]


def test_a_rolling_update_takes_no_more_healthy_pods_than_may_be_unavailable() -> None:
    pods = [worker(n, revision="old") for n in range(4)]
    view = slurm(*(node(n, "IDLE") for n in range(4)))
    result = decide(4, pods, view, max_unavailable=2)
    assert drained(result) == ["slinky-2", "slinky-3"]


def drained(result: PodPlan) -> list[str]:
    return sorted(name for group in result.drain.values() for name in group)


def test_a_rolling_update_replaces_pods_that_slurm_can_not_use_first_and_for_free() -> None:
    pods = [
        worker(0, ready=False, available=False),
        worker(1, revision="old", ready=False),
        worker(2, revision="old"),
    ]
    view = slurm(node(0, "IDLE"), node(1, "DOWN"), node(2, "IDLE"))
    assert drained(decide(3, pods, view, max_unavailable=1)) == ["slinky-1"]
    assert drained(decide(3, pods, view, max_unavailable=2)) == ["slinky-1", "slinky-2"]


def test_a_rolling_update_does_not_take_every_worker_because_slurmctld_restarts() -> None:
    pods = [worker(n, revision="old", ready=False) for n in range(4)]
    view = slurm(*(node(n, "IDLE") for n in range(4)))
    assert drained(decide(4, pods, view, max_unavailable=1)) == ["slinky-3"]


def test_on_delete_replaces_nothing_by_itself() -> None:
    result = decide(1, [worker(0, revision="old")], slurm(node(0, "IDLE")), rolling=False)
    assert not result.drain
    assert names(result) == []


SOME_REASONS = st.sampled_from(
    ["", "bad disk", SCALE_IN.format(0), "slurm-node: leaving", "Not responding"]
)


@given(
    replicas=st.integers(0, 5),
    nodes=st.lists(st.tuples(NODE_WORDS, SOME_REASONS), min_size=4, max_size=5),
    flags=st.lists(
        st.tuples(st.booleans(), st.booleans(), st.sampled_from(["old", "new"])),
        min_size=5,
        max_size=5,
    ),
    problem=st.sampled_from([None, None, None, "unreachable"]),
    deleting=st.booleans(),
)
def test_no_pod_that_may_have_a_job_is_ever_deleted(
    replicas: int,
    nodes: list[tuple[tuple[str, ...], str]],
    flags: list[tuple[bool, bool, str]],
    problem: str | None,
    deleting: bool,
) -> None:
    view = slurm(
        *(node(n, *words, reason=reason) for n, (words, reason) in enumerate(nodes)),
        problem=problem,
    )
    pods = [
        worker(n, ready=ready, started=ran, revision=old)
        for n, (ready, ran, old) in enumerate(flags)
    ]
    result = decide(replicas, pods, view, deleting=deleting)
    for deletion in result.delete:
        if deletion.pod.started:
            assert view.problem is None
            record = view.nodes.get(deletion.pod.slurm_node)
            assert record is None or not may_have_a_job(record)
    for name in {*drained(result), *result.undrain}:
        words, reason = view.nodes[name].states, view.nodes[name].reason
        assert "DRAIN" not in words or "UNDRAIN" in words or reason.startswith("slurm-operator: ")


# DaemonSet mode


def daemon(host: str, **changes: object) -> WorkerPod:
    """A healthy worker of DaemonSet mode on a Kubernetes node."""
    pod = worker(
        -1, name=f"slinky-{host}", uid=f"uid-{host}", slurm_node=host, kube_node=host, place=host
    )
    return replace(pod, mode="DaemonSet", **changes)  # type: ignore[arg-type]  # keyword bundle of a test builder


def places(*hosts: str, **special: Place) -> dict[str, Place]:
    return {host: Place(host, host, True, True) for host in hosts} | special


def spread(
    where: dict[str, Place], pods: Iterable[WorkerPod], view: SlurmView, **changes: object
) -> PodPlan:
    replicas = sum(1 for place in where.values() if place.should_run)
    return decide(replicas, pods, view, places=where, **changes)


def test_each_place_without_a_pod_gets_one() -> None:
    assert spread(places("a", "b", "c"), [daemon("b")], slurm()).create_on == ("a", "c")


def test_a_place_is_free_only_when_its_terminating_pod_is_gone() -> None:
    assert spread(places("a"), [daemon("a", terminating=True)], slurm()).create_on == ()


def test_a_name_that_a_pod_elsewhere_still_has_is_not_given_away() -> None:
    moved = places(b=Place("b", "a", True, True))
    result = spread(moved, [daemon("a")], slurm(Node("a", states=frozenset({"IDLE"}))))
    assert result.create_on == ()
    assert list(result.drain.values()) == [("a",)]


HERE = Place("a", "a", should_run=True, may_stay=True)
CLOSED = replace(HERE, should_run=False)


@pytest.mark.parametrize("reservation", [None, "maintenance"])
def test_a_worker_on_a_cordoned_kubernetes_node_is_updated_when_one_would_be_made_there_again(
    reservation: str | None,
) -> None:
    old = daemon("a", revision="old", kube_node_cordon=CORDONED)
    idle = Node("a", states=frozenset({"IDLE", "MAINTENANCE"}), reservation="maintenance")
    for place, updated in ((CLOSED, False), (HERE, True)):
        result = spread({"a": place}, [old], slurm(idle), reservation=reservation)
        assert [it.pod.name for it in result.waiting] == (["slinky-a"] if updated else [])


def test_workers_on_cordoned_kubernetes_nodes_make_no_room_for_more_updates_at_a_time() -> None:
    where = places("a", "b", "c") | {name: Place(name, name, False, True) for name in ("x", "y")}
    pods = [
        daemon("a", terminating=True),
        *(daemon(name, revision="old") for name in ("b", "c", "x", "y")),
    ]
    idle = slurm(*(Node(name, states=frozenset({"IDLE"})) for name in where))
    assert spread(where, pods, idle, max_unavailable=1).waiting == ()


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ({}, "its Kubernetes node, which is gone"),
        ({"a": Place("a", "a", False, False)}, "its Kubernetes node, which does not match"),
        ({"a": Place("a", "other", True, True)}, "a change of its hostname"),
    ],
)
def test_a_pod_without_its_place_is_drained_before_it_goes(
    where: dict[str, Place], why: str
) -> None:
    event = "HostnameMismatch" if "hostname" in why else "SuccessfulDelete"
    reason = f"slurm-operator: Pod (slurm/slinky-a) is pending termination for {why}"
    busy = Node("a", states=frozenset({"ALLOCATED"}))
    result = spread(where, [daemon("a")], slurm(busy))
    assert (names(result), result.drain) == ([], {reason: ("a",)})
    drained = slurm(Node("a", states=frozenset({"IDLE", "DRAIN"}), reason=reason))
    [deletion] = spread(where, [daemon("a", cordon="operator")], drained).delete
    assert (deletion.pod.name, deletion.event) == ("slinky-a", event)


@pytest.mark.parametrize(
    ("mode", "phase", "event"),
    [
        ("DaemonSet", "Failed", ("FailedDaemonPod", "Warning")),
        ("DaemonSet", "Succeeded", ("SucceededDaemonPod", "Normal")),
        ("StatefulSet", "Failed", ("SuccessfulDelete", "Normal")),
    ],
)
def test_the_event_of_a_finished_pod_reports_it(
    mode: str, phase: str, event: tuple[str, str]
) -> None:
    [deletion] = decide(1, [worker(0, mode=mode, phase=phase)], slurm()).delete
    assert (deletion.event, deletion.severity) == event


def test_a_pod_may_stay_where_none_would_be_made() -> None:
    result = spread(
        {"a": Place("a", "a", False, True)},
        [daemon("a")],
        slurm(Node("a", states=frozenset({"IDLE"}))),
    )
    assert (names(result), result.drain, result.create_on) == ([], {}, ())


def test_of_two_pods_in_one_place_the_older_stays() -> None:
    old, young = daemon("a"), replace(daemon("a"), name="slinky-again", created=NOW, started=False)
    assert names(spread(places("a"), [young, old], slurm())) == ["slinky-again"]


def test_pods_of_the_other_mode_are_drained_while_new_ones_are_made() -> None:
    view = slurm(node(0, "IDLE"), node(1, "IDLE"))
    result = spread(places("a"), [worker(0), worker(1)], view)
    assert result.create_on == ("a",)
    assert sorted(name for group in result.drain.values() for name in group) == [
        "slinky-0",
        "slinky-1",
    ]
    back = decide(1, [daemon("a")], slurm(Node("a", states=frozenset({"IDLE"}))))
    assert (back.create, list(back.drain.values())) == ((0,), [("a",)])


def test_why_a_pod_can_not_be_made_is_reported() -> None:
    assert spread({"a": Place("a", "a", True, True, "no")}, [], slurm()).problems == ("no",)


def test_a_pod_whose_new_name_can_not_be_had_keeps_the_old_one_and_it_is_reported() -> None:
    idle = slurm(Node("a", states=frozenset({"IDLE"})))
    result = spread({"a": Place("a", "other", True, True, "no")}, [daemon("a")], idle)
    assert (names(result), result.drain, result.create_on, result.problems) == ([], {}, (), ("no",))
    # The first of two that want a name has it without being named.
    assert spread({"a": Place("a", "a", True, True, "no")}, [daemon("a")], idle).problems == ()


# ScheduledUpdate


def test_only_a_node_in_the_maintenance_of_the_reservation_is_updated() -> None:
    view = slurm(
        node(0, "IDLE", "MAINTENANCE", reservation="SlurmOperatorMaint-slinky"),
        node(1, "IDLE", "MAINTENANCE", reservation="another"),
        node(2, "IDLE", reservation="SlurmOperatorMaint-slinky"),
    )
    pods = [worker(number, revision="old") for number in range(3)]
    result = decide(3, pods, view, rolling=False, reservation="SlurmOperatorMaint-slinky")
    assert list(result.drain.values()) == [("slinky-0",)]


def test_a_worker_that_never_started_is_updated_without_waiting_for_the_maintenance() -> None:
    pods = [worker(0, revision="old", started=False, ready=False, available=False)]
    assert names(decide(1, pods, slurm(), rolling=False, reservation="r")) == ["slinky-0"]
    assert names(decide(1, pods, slurm(), rolling=False)) == []


# Many at once


def test_many_drains_for_one_cause_are_one_request_and_are_not_worded_again_when_few_are_left() -> (
    None
):
    pods = [worker(number) for number in range(20)]
    view = slurm(*(node(number, "IDLE") for number in range(20)))
    result = decide(0, pods, view, name="slinky")
    [(reason, drained)] = result.drain.items()
    assert (
        reason
        == "slurm-operator: Pods of NodeSet (slurm/slinky) are pending termination for scale-in"
    )
    assert len(drained) == 20
    few = slurm(
        node(0, "MIXED", "DRAIN", reason=reason),
        node(1, "MIXED", "DRAIN", reason=SCALE_IN.format(1)),
    )
    assert not decide(0, pods[:2], few, name="slinky").drain


def test_pods_that_stay_are_updated_while_others_wait_to_be_scaled_in() -> None:
    pods = [worker(0, revision="old"), worker(1, revision="old")]
    view = slurm(node(0, "ALLOCATED"), node(1, "IDLE"))
    update = "slurm-operator: Pod (slurm/slinky-0) is pending termination for an update"
    assert decide(1, pods, view).drain == {update: ("slinky-0",), SCALE_IN.format(1): ("slinky-1",)}


def test_a_pod_is_scaled_in_only_where_nothing_comes_in_its_place() -> None:
    there = Place("a", "slinky-0", should_run=True, may_stay=True)
    of_daemon_set = worker(0, mode="DaemonSet", place="a")
    went: dict[str, tuple[list[WorkerPod], dict[str, object]]] = {
        "replicas": ([worker(0)], {}),
        "another mode": ([worker(0)], {"places": {}}),
        "its Kubernetes node has stopped matching": (
            [of_daemon_set],
            {"places": {"a": replace(there, may_stay=False)}},
        ),
    }
    came: dict[str, tuple[list[WorkerPod], dict[str, object]]] = {
        "an update": ([worker(0, revision="old")], {}),
        "its Kubernetes node is gone": ([of_daemon_set], {"places": {}}),
        "another hostname": ([of_daemon_set], {"places": {"a": replace(there, slurm_node="b")}}),
        "removal": ([worker(0)], {"deleting": True}),
    }
    for word, want in (("ALLOCATED", 0), ("IDLE DRAIN", 1)):
        view = slurm(node(0, *word.split(), reason=SCALE_IN.format(0)))
        for what, (pods, changes) in {**went, **came}.items():
            result = decide(1 if what == "an update" else 0, pods, view, **changes)
            assert len(result.delete) == want, what
            scaled_in = what in went
            assert [pod.name for pod in result.scaled_in] == (["slinky-0"] if scaled_in else []), (
                what
            )
            assert all(deletion.scaled_in == scaled_in for deletion in result.delete), what


def test_whose_jobs_end_first_is_not_yet_known_is_not_scaled_in_yet() -> None:
    before = decide(
        1,
        [worker(0), worker(1, cordon="operator")],
        slurm(node(0, "ALLOCATED"), node(1, "ALLOCATED")),
    )
    assert [pod.name for pod in before.scaled_in] == ["slinky-1"]
    assert undecided(before).scaled_in == before.scaled_in
    fresh = decide(1, [worker(0), worker(1)], slurm(node(0, "ALLOCATED"), node(1, "ALLOCATED")))
    assert undecided(fresh).scaled_in == ()
