"""From the plan to what is written: `sidecars.autoscaling.sizing`."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sidecars.autoscaling import applied, sizing
from sidecars.autoscaling.applied import Owner
from sidecars.autoscaling.nodesets import Pods, Worker, pods
from sidecars.autoscaling.plan import Autoscaling
from sidecars.autoscaling.records import Behavior, PresentNode, ScaledNodeSet, Settings
from sidecars.autoscaling.sizing import Size
from sidecars.contract.autoscaling import Applied
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons.autoscaling import Autoscaled
from sidecars.slurm.records import QueuedJob
from tests.unit.autoscaling.builders import NOW, busy, job, node, nodeset, plan

OLD = NOW - 1000.0


def worker(name: str, **more: Any) -> Worker:
    return Worker(name, **{"started": True, "created": OLD} | more)


def sized(
    wanted: ScaledNodeSet,
    workers: list[Worker],
    nodes: list[PresentNode],
    jobs: list[QueuedJob] | None = None,
    before: Applied | None = None,
) -> Size:
    found = pods(workers, before, wanted.replicas)
    memory = {wanted.name: applied.past(before)} if before is not None else {}
    planned = plan([wanted], jobs, nodes, memory=memory)
    return sizing.size(wanted, found, {it.name for it in nodes}, planned, NOW)


def test_idle_workers_are_removed_by_name_and_only_as_many_as_are_too_many() -> None:
    nodes = [node("a"), node("b"), busy("c")]
    found = sized(nodeset(replicas=3, min=2), [worker("a"), worker("b"), worker("c")], nodes)
    assert (found.replicas, found.remove, found.reason) == (2, ("a",), Autoscaled.IDLE)


def test_workers_that_leave_already_are_named_again_before_the_new_ones() -> None:
    before = Applied(2, ("z",), None, OLD)
    workers = [worker("z", cordoned=True), worker("a"), worker("b")]
    found = sized(nodeset(replicas=2), workers, [node("a"), busy("b")], before=before)
    assert (found.replicas, found.remove) == (1, ("z", "a"))


def test_without_data_nothing_is_named_and_only_the_minimum_raises_the_number() -> None:
    for replicas, low, want in ((3, 0, 3), (1, 2, 2)):
        wanted = nodeset(replicas=replicas, min=low)
        planned = Autoscaling(Settings()).plan([wanted], None, None, {}, NOW)
        found = sizing.size(wanted, Pods((), {}, 0), (), planned, NOW)
        assert (found.replicas, found.remove, found.reason) == (want, (), Autoscaled.NO_DATA)


def test_the_first_node_of_a_nodeset_of_unknown_shape_is_started_for_a_job_and_no_second_one() -> (
    None
):
    unknown = nodeset(shape=None)
    assert sized(unknown, [], []).replicas == 0
    found = sized(unknown, [], [], [job()])
    assert (found.replicas, found.reason) == (1, Autoscaled.LEARNING)
    starting = [worker("a", started=False)]
    assert sized(nodeset(shape=None, replicas=1), starting, [], [job()]).replicas == 1
    assert sized(nodeset(shape=None, max=0), [], [], [job()]).replicas == 0


def test_pods_that_have_not_started_are_removed_when_no_job_needs_them_any_more() -> None:
    workers = [worker("a", started=False), worker("b", started=False, stuck_since=NOW - 10)]
    found = sized(nodeset(replicas=2), workers, [])
    assert (found.replicas, found.remove, found.reason) == (0, ("b", "a"), Autoscaled.NOT_NEEDED)
    assert sized(nodeset(replicas=2), workers, [], [job(cpus_per_task=8)]).remove == ("b",)
    assert sized(nodeset(replicas=2, min=2), workers, []).replicas == 2


def test_pods_that_a_person_has_started_for_a_job_that_cannot_be_counted_stay() -> None:
    starting = [worker(name, started=False) for name in "abcd"]
    waiting = [job(constraints="zone=a")]
    assert sized(nodeset(replicas=4), starting, [], waiting).replicas == 4
    assert sized(nodeset(replicas=4), starting, []).replicas == 0


def test_a_pod_that_has_just_been_created_or_that_may_have_started_stays() -> None:
    for young in (worker("a", started=False, created=NOW - 299), worker("a")):
        assert sized(nodeset(replicas=1), [young], []).replicas == 1
    late = Applied(1, (), NOW - 299)
    assert sized(nodeset(replicas=1), [worker("a", started=False)], [], before=late).replicas == 1


def test_a_pod_that_runs_and_has_not_registered_in_time_is_removed_when_no_job_needs_it() -> None:
    late = worker("a", stuck_since=NOW - 999, failed=True, why="not in Slurm")
    wanted = nodeset(replicas=1, unschedulable=1, unschedulable_since=NOW - 999)
    assert sized(wanted, [late], []).remove == ("a",)
    assert sized(wanted, [late], [], [job()]).reason is Autoscaled.NO_CAPACITY


def test_pods_that_cannot_start_stay_and_are_reported_while_a_job_needs_their_nodeset() -> None:
    stuck = worker("a", started=False, stuck_since=NOW - 500, why="0/3 nodes are available")
    wanted = nodeset(replicas=1, unschedulable=1, unschedulable_since=NOW - 500)
    found = sized(wanted, [stuck], [], [job()])
    assert (found.replicas, found.reason) == (1, Autoscaled.NO_CAPACITY)
    assert "a, since" in found.message
    assert "0/3 nodes are available" in found.message
    assert sizing.condition(found).status == "False"


def test_numbers_that_change_with_each_job_are_no_part_of_the_condition() -> None:
    one = sized(nodeset(replicas=1), [worker("a")], [busy("a")])
    other = sized(nodeset(replicas=2), [worker("a"), worker("b")], [busy("a"), busy("b")])
    assert sizing.condition(one) == sizing.condition(other)


def test_workers_that_register_otherwise_are_reported_where_nothing_else_is() -> None:
    quiet = Size(1, (), Autoscaled.SATISFIED, "")
    found = sizing.condition(quiet, "cores 8 instead of 16")
    assert (found.status, found.reason) == ("True", Autoscaled.SHAPE_DIFFERS)
    assert found.message == "cores 8 instead of 16"
    assert sizing.condition(Size(1, (), Autoscaled.BUDGET, ""), "cores").reason is Autoscaled.BUDGET
    kept = Applied(1, (), node="CPUs=1", declared="CPUs=2")
    known = {"declared": "CPUs=2"}
    assert sizing.applied(quiet, nodeset(replicas=1), kept, "CPUs=1", NOW, **known) is None
    assert sizing.applied(quiet, nodeset(replicas=1), kept, "CPUs=1", NOW) is not None


def test_a_write_is_recorded_and_what_changes_nothing_is_not_written() -> None:
    wanted = nodeset(replicas=2)
    first = sizing.applied(Size(2, (), Autoscaled.SATISFIED, ""), wanted, None, "CPUs=1", NOW)
    assert first is not None
    assert (first.replicas, first.raised_at, first.lowered_at) == (2, None, None)
    more = sizing.applied(Size(3, (), Autoscaled.DEMAND, ""), wanted, first, "CPUs=1", NOW)
    assert more is not None
    assert (more.replicas, more.raised_at, more.lowered_at, more.node) == (3, NOW, None, "CPUs=1")
    less = sizing.applied(Size(1, ("a",), Autoscaled.IDLE, ""), wanted, first, "CPUs=1", NOW)
    assert less is not None
    assert (less.replicas, less.raised_at, less.lowered_at, less.remove) == (1, None, NOW, ("a",))
    lower = nodeset(replicas=1)
    assert sizing.applied(Size(1, ("a",), Autoscaled.IDLE, ""), lower, less, "CPUs=1", NOW) is None
    gone = Size(1, (), Autoscaled.SATISFIED, "another reason")
    assert sizing.applied(gone, lower, less, "CPUs=1", NOW) is None
    assert sizing.applied(gone, lower, less, "CPUs=2", NOW) is not None


def test_without_data_a_number_that_another_client_has_set_is_not_overwritten() -> None:
    kept = Size(5, (), Autoscaled.NO_DATA, "")
    assert sizing.applied(kept, nodeset(replicas=5), Applied(2, ("a",)), "", NOW) is None


def test_a_number_that_is_kept_names_who_has_set_it_and_what_ends_that() -> None:
    person = sizing.other_owner(Owner("kubectl", NOW, scales=True), 4, 0.0)
    assert "'kubectl' has set replicas to 4" in person.message
    assert "1970-01-01T00:00:00Z" in person.message
    program = sizing.other_owner(Owner("kube-controller-manager", NOW, scales=True), 4, None)
    assert "kubectl annotate" in program.message


def test_what_the_status_has_is_kept_until_the_first_pass() -> None:
    kept = {"type": "Autoscaled", "status": "False", "reason": "NoData", "message": "why"}
    assert sizing.reported([{"type": "Ready"}, kept]) == Condition(
        "Autoscaled", "False", Autoscaled.NO_DATA, "why"
    )
    assert sizing.reported([kept | {"reason": "OfAFormerVersion"}]) is None
    assert sizing.reported([]) is None


def drawn(draw: Any) -> tuple[list[Worker], list[PresentNode]]:
    workers, nodes = [], []
    for name in "abcdef"[: draw(st.integers(0, 6))]:
        kind = draw(st.sampled_from(["idle", "busy", "drained", "starting", "stuck"]))
        stuck = NOW - draw(st.sampled_from([1.0, 500.0])) if kind == "stuck" else None
        workers.append(
            worker(
                name,
                started=kind not in ("starting", "stuck"),
                busy=kind == "busy",
                stuck_since=stuck,
            )
        )
        if kind in ("idle", "busy", "drained"):
            idle = node(name, idle_since=NOW - draw(st.sampled_from([10.0, 400.0])))
            drained = node(name, usable=False, idle_since=None)
            nodes.append({"idle": idle, "busy": busy(name), "drained": drained}[kind])
    return workers, nodes


@given(st.data())
def test_whatever_happens_only_idle_or_unstarted_workers_that_no_job_needs_are_removed(
    data: Any,
) -> None:
    workers, nodes = drawn(data.draw)
    low = data.draw(st.integers(0, 3))
    jobs = [
        job(number, cpus_per_task=data.draw(st.integers(1, 9)))
        for number in range(data.draw(st.integers(0, 5)))
    ]
    stuck = [it.stuck_since for it in workers if it.stuck_since is not None]
    wanted = nodeset(
        replicas=len(workers),
        min=low,
        behavior=Behavior(max_step_down=data.draw(st.integers(1, 6))),
        unschedulable=len(stuck),
        unschedulable_since=min(stuck, default=None),
    )
    found = sized(wanted, workers, nodes, jobs)
    by_name = {it.name: it for it in nodes}
    for name in found.remove:
        present = by_name.get(name)
        if present is None:
            assert not next(it for it in workers if it.slurm_node == name).started
        else:
            assert present.idle_since is not None
            assert NOW - present.idle_since >= wanted.behavior.idle_seconds
    assert found.replicas >= min(low, len(workers))
    assert len(found.remove) == max(0, len(workers) - found.replicas)
