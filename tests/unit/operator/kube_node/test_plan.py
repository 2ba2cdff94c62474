"""Kubernetes nodes that are cordoned for a drain in Slurm, or labelled with a Slurm node:
`sidecars.operator.kube_node.plan`.
"""

import pytest

from sidecars.operator.kube_node.plan import Changes, Label, labels, plan, to_cordon
from sidecars.slurm.records import Node
from sidecars.workloads import names
from tests.support.builders import kube_node

MARK = "slurm/slurm: bad disk"
MARKED = {"annotations": {names.CORDONED_FOR: MARK}}
FREE, CORDONED = kube_node("m0"), kube_node("m0", unschedulable=True)
DRAINED = {"slurm/slurm": {"m0": "bad disk"}}
WORKERS = {"slurm/slurm": {"m0", "m1"}, "b/b": {"m0"}}


def node(*states: str, reason: str = "", kube_node: str = "") -> Node:
    return Node("n", states=frozenset(states), reason=reason, instance_id=kube_node)


def test_a_kube_node_is_to_be_cordoned_for_a_foreign_drain_and_for_its_health_only() -> None:
    assert to_cordon(
        [
            node("IDLE", "DRAIN", reason="bad disk", kube_node="m0"),
            node("IDLE", "DRAIN", reason="slurm-operator: Node (m1) was cordoned", kube_node="m1"),
            node("IDLE", "DRAIN", reason="slurm-node: the pod is terminating", kube_node="m2"),
            node("IDLE", reason="bad disk", kube_node="m3"),
            node("IDLE", "DRAIN", reason="slurm-node: health: gpu 3 is lost", kube_node="m4"),
            node("IDLE", "DRAIN", reason="bad disk"),
        ]
    ) == {"m0": "bad disk", "m4": "slurm-node: health: gpu 3 is lost"}


def test_a_kubernetes_node_is_cordoned_with_the_cluster_and_reason_as_its_mark() -> None:
    assert plan(DRAINED, (), WORKERS, [FREE, kube_node("m1")]) == Changes({"m0": MARK})


def test_a_kubernetes_node_that_is_cordoned_already_is_left_as_it_is() -> None:
    assert plan(DRAINED, (), WORKERS, [CORDONED]) == Changes({})
    assert plan({"slurm/slurm": {}}, (), WORKERS, [CORDONED]) == Changes({})


def test_a_kubernetes_node_is_uncordoned_when_no_drain_speaks_against_it() -> None:
    marked = kube_node("m0", MARKED, unschedulable=True)
    assert plan(DRAINED, (), WORKERS, [marked]) == Changes({})
    assert plan({"slurm/slurm": {}}, (), WORKERS, [marked]) == Changes({}, uncordon=("m0",))
    assert plan({"slurm/slurm": {}, "b/b": {"m0": "noisy"}}, (), WORKERS, [marked]) == Changes({})
    assert plan({}, (), WORKERS, [marked]) == Changes({}, uncordon=("m0",)), (
        "its Slurm cluster is gone"
    )


def test_a_kubernetes_node_stays_cordoned_while_its_slurm_cluster_can_not_be_asked() -> None:
    marked = kube_node("m0", MARKED, unschedulable=True)
    assert plan({}, ("slurm/slurm",), WORKERS, [marked]) == Changes({})
    assert plan({"slurm/slurm": {}}, ("b/b",), WORKERS, [marked]) == Changes({}, uncordon=("m0",))


def test_who_uncordons_the_kube_node_is_not_contradicted_until_the_drain_is_lifted() -> None:
    overruled = kube_node("m0", MARKED)
    assert plan(DRAINED, (), WORKERS, [overruled]) == Changes({})
    assert plan({"slurm/slurm": {}}, (), WORKERS, [overruled]) == Changes({}, unmark=("m0",))


def test_what_another_operator_has_cordoned_is_not_given_free() -> None:
    marked = kube_node("m0", MARKED, unschedulable=True)
    assert plan({}, (), WORKERS, [marked], ("elsewhere",)) == Changes({})
    assert plan({}, (), WORKERS, [marked], ("elsewhere", "slurm")) == Changes({}, uncordon=("m0",))


def test_a_kubernetes_node_without_a_worker_of_the_slurm_cluster_is_never_cordoned() -> None:
    assert plan(DRAINED, (), {}, [FREE]) == Changes({})
    assert plan(DRAINED, (), {"b/b": {"m0"}, "slurm/slurm": {"m1"}}, [FREE]) == Changes({})
    claimed = {"a/a": {"m0": "of no concern"}, **DRAINED}
    assert plan(claimed, (), WORKERS, [FREE]) == Changes({"m0": MARK})


def test_a_kubernetes_node_stays_cordoned_when_its_worker_moved_and_for_no_other_cluster() -> None:
    marked = kube_node("m0", MARKED, unschedulable=True)
    assert plan(DRAINED, (), {}, [marked]) == Changes({})
    assert plan({"slurm/slurm": {}, "a/a": {"m0": "of no concern"}}, (), {}, [marked]) == Changes(
        {}, uncordon=("m0",)
    )


def test_a_mark_quotes_the_reason_bounded_and_printable() -> None:
    [reason] = to_cordon(
        [node("IDLE", "DRAIN", reason="disk\n\x1b[2J" + "x" * 1_000_000, kube_node="m0")]
    ).values()
    assert reason.isprintable()
    assert len(reason) <= 500


NONE = Label("", "")
OURS = Label("slinky-0", "slurm/slinky")


@pytest.mark.parametrize(
    ("workers", "present", "change"),
    [
        ([OURS], NONE, {"k": OURS}),
        ([OURS], OURS, {}),
        ([OURS], Label("slinky-7", "slurm/slinky"), {"k": OURS}),
        ([OURS], Label("mine", ""), {}),
        ([OURS], Label("a", "others/slinky"), {}),
        ([OURS, Label("gpu-0", "slurm/gpu")], NONE, {}),
        ([OURS, Label("gpu-0", "slurm/gpu")], OURS, {"k": None}),
        ([], OURS, {"k": None}),
        ([], Label("mine", ""), {}),
        ([], Label("", "slurm/slinky"), {"k": None}),
        ([], Label("a", "others/slinky"), {}),
        ([], NONE, {}),
    ],
)
def test_a_label_names_the_only_pinned_worker_and_that_of_a_user_stays(
    workers: list[Label], present: Label, change: dict[str, Label | None]
) -> None:
    assert labels({"k": workers}, {"k": present}, ["slurm"]) == change
