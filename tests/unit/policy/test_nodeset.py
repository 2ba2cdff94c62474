"""Which worker pods are created, drained and deleted: the rules of `sidecars.policy.nodeset`, one by one."""

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sidecars.policy.nodeset import (
    NOT_REGISTERED_SECONDS,
    RECORD_ORPHANED_SECONDS,
    Desired,
    Plan,
    SlurmView,
    WorkerPod,
    deletion_order,
    orphaned_records,
    plan,
)
from sidecars.slurm import states
from sidecars.slurm.records import Node

NOW = 1_000_000.0
SCALE_IN = "slurm-operator: Pod (slurm/slinky-{}) is pending termination for scale-in"


def worker(ordinal: int, **changes: object) -> WorkerPod:
    """A healthy worker that has been ready for ten minutes."""
    pod = WorkerPod(
        name=f"slinky-{ordinal}",
        uid=f"uid-{ordinal}",
        ordinal=ordinal,
        slurm_node=f"slinky-{ordinal}",
        kube_node=f"machine-{ordinal}",
        revision="new",
        phase="Running",
        ready=True,
        available=True,
        started=True,
        created=NOW - 700,
        ready_since=NOW - 600,
    )
    return replace(pod, **changes)  # type: ignore[arg-type]  # keyword bundle of a test builder


def slurm(*nodes: Node, problem: str | None = None) -> SlurmView:
    return SlurmView({node.name: node for node in nodes}, problem)


def node(ordinal: int, *words: str, reason: str = "", reservation: str = "") -> Node:
    return Node(f"slinky-{ordinal}", states=frozenset(words), reason=reason, reservation=reservation)


def decide(replicas: int, pods: Iterable[WorkerPod], view: SlurmView, **changes: object) -> Plan:
    desired = replace(Desired("slurm", replicas, "new"), **changes)  # type: ignore[arg-type]  # as above
    return plan(desired, pods, view, NOW)


def names(result: Plan) -> list[str]:
    return [deletion.pod.name for deletion in result.delete]


def test_missing_pods_are_created_at_the_lowest_free_ordinals() -> None:
    assert decide(4, [worker(0), worker(2)], slurm()).create == (1, 3)


def test_creation_does_not_wait_for_slurm() -> None:
    assert decide(2, [], slurm(problem="slurmrestd does not answer")).create == (0, 1)


def test_a_terminating_pod_keeps_its_ordinal_until_it_is_gone() -> None:
    assert decide(2, [worker(0), worker(1, deleting=True)], slurm()).create == ()


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


def test_a_condemned_pod_with_a_running_job_stays_and_says_what_it_waits_for() -> None:
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
    view = slurm(node(1, "IDLE", "DRAIN", reason=SCALE_IN.format(1)), problem="slurmrestd does not answer")
    result = decide(1, [worker(0), worker(1)], view)
    assert names(result) == []
    assert not result.drain
    assert "slurmrestd does not answer" in result.waiting[0].step


def test_a_pod_whose_slurmd_never_started_goes_without_asking_slurm() -> None:
    pending = worker(1, started=False, phase="Pending", ready=False, available=False, ready_since=None)
    assert names(decide(1, [worker(0), pending], slurm(problem="unreachable"))) == ["slinky-1"]


def test_a_running_slurmd_that_has_not_registered_yet_is_given_time_to() -> None:
    young = worker(1, ready_since=None, ready=False, created=NOW - NOT_REGISTERED_SECONDS + 1)
    old = replace(young, created=NOW - NOT_REGISTERED_SECONDS - 1)
    assert names(decide(1, [worker(0), young], slurm(node(0, "IDLE")))) == []
    assert names(decide(1, [worker(0), old], slurm(node(0, "IDLE")))) == ["slinky-1"]


def test_an_administrators_drain_is_left_as_it_is() -> None:
    view = slurm(node(0, "IDLE", "DRAIN", reason="bad disk"), node(1, "MIXED", "DRAIN", reason="bad disk"))
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
    assert decide(2, [worker(0), worker(1, deleting=True)], view).undrain == ()


def test_a_drain_that_the_pod_asked_for_is_not_the_operators_to_lift() -> None:
    view = slurm(node(0, "IDLE", "DRAIN", reason="slurm-node: pod is terminating"))
    assert decide(1, [worker(0)], view).undrain == ()


def test_a_cordoned_kubernetes_node_drains_its_slurm_node() -> None:
    view = slurm(node(0, "IDLE"))
    result = decide(1, [worker(0, kube_node_cordon="Node (m) was cordoned")], view)
    assert result.drain == {"slurm-operator: Node (m) was cordoned": ("slinky-0",)}


def test_a_users_cordon_of_a_pod_drains_it_and_is_not_taken_back() -> None:
    result = decide(1, [worker(0, cordon="user")], slurm(node(0, "IDLE")))
    assert result.drain == {"slurm-operator: Pod (slurm/slinky-0) was cordoned": ("slinky-0",)}
    assert result.uncordon == ()


def test_a_failed_pod_is_replaced_at_once() -> None:
    failed = worker(1, phase="Failed", ready=False, available=False)
    result = decide(2, [worker(0), failed], slurm(problem="unreachable"))
    assert names(result) == ["slinky-1"]


def test_removal_of_the_nodeset_drains_every_node_first() -> None:
    view = slurm(node(0, "IDLE"), node(1, "ALLOCATED"))
    result = decide(2, [worker(0), worker(1)], view, leaving=True)
    assert result.create == ()
    assert names(result) == []
    assert sorted(name for drained in result.drain.values() for name in drained) == ["slinky-0", "slinky-1"]


def test_removal_is_forced_with_a_short_grace_once_the_cluster_goes_as_well() -> None:
    result = decide(1, [worker(0)], slurm(problem="gone"), leaving=True, forced=True)
    assert [(deletion.pod.name, deletion.grace_seconds) for deletion in result.delete] == [("slinky-0", 30)]


def test_a_rolling_update_takes_no_more_healthy_pods_than_may_be_unavailable() -> None:
    pods = [worker(n, revision="old") for n in range(4)]
    view = slurm(*(node(n, "IDLE") for n in range(4)))
    result = decide(4, pods, view, max_unavailable=2)
    assert sorted(name for drained in result.drain.values() for name in drained) == ["slinky-2", "slinky-3"]


def test_a_rolling_update_replaces_unhealthy_pods_first_and_for_free() -> None:
    pods = [worker(0, ready=False, available=False), worker(1, revision="old", ready=False), worker(2, revision="old")]
    view = slurm(*(node(n, "IDLE") for n in range(3)))
    assert list(decide(3, pods, view, max_unavailable=1).drain.values()) == [("slinky-1",)]
    both = decide(3, pods, view, max_unavailable=2).drain
    assert sorted(name for drained in both.values() for name in drained) == ["slinky-1", "slinky-2"]


def test_on_delete_replaces_nothing_by_itself() -> None:
    result = decide(1, [worker(0, revision="old")], slurm(node(0, "IDLE")), rolling=False)
    assert not result.drain
    assert names(result) == []


def test_pods_are_preferred_for_deletion_in_the_documented_order() -> None:
    unbound = worker(0, kube_node=None, phase="Pending", ready=False, started=False)
    pending = worker(1, phase="Pending", ready=False)
    unknown = worker(2, phase="Unknown", ready=False)
    not_ready = worker(3, ready=False)
    cheap = worker(4, deletion_cost=-5)
    cordoned = worker(5, cordon="user")
    high, low, busy = worker(7), worker(6), worker(8)
    view = {"slinky-8": node(8, "MIXED")}
    want = [unbound, pending, unknown, not_ready, cheap, cordoned, high, low, busy]
    assert sorted(want, key=lambda pod: deletion_order(pod, view)) == want


def test_a_record_is_deleted_only_after_its_pod_has_been_gone_for_a_while() -> None:
    record = node(0, "DOWN", "NOT_RESPONDING", reason="Not responding")
    early = orphaned_records([record], {"slinky-0": NOW - RECORD_ORPHANED_SECONDS + 2}, NOW)
    assert (early.delete, early.look_again_after) == ((), 2.0)
    assert orphaned_records([record], {"slinky-0": NOW - RECORD_ORPHANED_SECONDS}, NOW).delete == ("slinky-0",)


def test_a_record_with_a_foreign_reason_or_a_reservation_is_set_down_and_left() -> None:
    gone = {"slinky-0": NOW - 60, "slinky-1": NOW - 60}
    records = [node(0, "IDLE", "DRAIN", reason="bad disk"), node(1, "IDLE", reservation="maintenance")]
    result = orphaned_records(records, gone, NOW)
    ours = "slurm-operator: its pod is gone"
    assert (result.delete, result.down) == ((), {None: ("slinky-0",), ours: ("slinky-1",)})


def test_a_busy_record_without_a_pod_is_set_down_before_it_is_deleted() -> None:
    gone = {"slinky-0": NOW - 60}
    result = orphaned_records([node(0, "ALLOCATED")], gone, NOW)
    assert (result.delete, list(result.down.values()), result.look_again_after) == ((), [("slinky-0",)], 1.0)
    assert orphaned_records([node(0, "DOWN")], gone, NOW).delete == ("slinky-0",)


SOME_STATES = st.sets(
    st.sampled_from(["IDLE", "MIXED", "ALLOCATED", "DOWN", "DRAIN", "UNDRAIN", "COMPLETING", "UNKNOWN"])
)
SOME_REASONS = st.sampled_from(["", "bad disk", SCALE_IN.format(0), "slurm-node: leaving", "Not responding"])


@given(
    replicas=st.integers(0, 5),
    nodes=st.lists(st.tuples(SOME_STATES, SOME_REASONS), max_size=5),
    flags=st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from(["old", "new"])), min_size=5, max_size=5),
    problem=st.sampled_from([None, "unreachable"]),
    leaving=st.booleans(),
)
def test_no_pod_that_may_hold_a_job_is_ever_deleted(
    replicas: int,
    nodes: list[tuple[set[str], str]],
    flags: list[tuple[bool, bool, str]],
    problem: str | None,
    leaving: bool,
) -> None:
    view = slurm(*(node(n, *words, reason=reason) for n, (words, reason) in enumerate(nodes)), problem=problem)
    pods = [worker(n, ready=ready, started=ran, revision=old) for n, (ready, ran, old) in enumerate(flags)]
    result = decide(replicas, pods, view, leaving=leaving)
    for deletion in result.delete:
        if deletion.pod.started:
            assert view.problem is None
            record = view.nodes.get(deletion.pod.slurm_node)
            assert record is None or states.is_drained(record.states)
    touched = {name for drained in result.drain.values() for name in drained} | set(result.undrain)
    for name in touched:
        reason = view.nodes[name].reason
        drained = states.is_drain(view.nodes[name].states)
        assert not drained or reason.startswith("slurm-operator: ")
