"""Kubernetes nodes that are cordoned for a drain in Slurm: `sidecars.policy.kube_nodes`."""

from sidecars.policy.kube_nodes import Changes, KubeNode, plan, to_cordon
from sidecars.slurm.records import Node

FREE, CORDONED = KubeNode("m0", cordoned=False), KubeNode("m0", cordoned=True)
MARK = "slurm/slurm: bad disk"
DRAINED = {"slurm/slurm": {"m0": "bad disk"}}
WORKERS = {"slurm/slurm": {"m0", "m1"}, "b/b": {"m0"}}


def node(*states: str, reason: str = "", machine: str = "") -> Node:
    return Node("n", states=frozenset(states), reason=reason, instance_id=machine)


def test_a_machine_is_to_be_cordoned_for_somebody_elses_drain_and_for_its_health_only() -> None:
    assert to_cordon(
        [
            node("IDLE", "DRAIN", reason="bad disk", machine="m0"),
            node("IDLE", "DRAIN", reason="slurm-operator: Node (m1) was cordoned", machine="m1"),
            node("IDLE", "DRAIN", reason="slurm-node: the pod is terminating", machine="m2"),
            node("IDLE", reason="bad disk", machine="m3"),
            node("IDLE", "DRAIN", reason="slurm-node: health: gpu 3 is lost", machine="m4"),
            node("IDLE", "DRAIN", reason="bad disk"),
        ]
    ) == {"m0": "bad disk", "m4": "slurm-node: health: gpu 3 is lost"}


def test_a_machine_is_cordoned_with_the_cluster_and_reason_as_its_mark() -> None:
    assert plan(DRAINED, (), WORKERS, [FREE, KubeNode("m1", cordoned=False)]) == Changes({"m0": MARK})


def test_a_machine_that_is_cordoned_already_is_left_as_it_is() -> None:
    assert plan(DRAINED, (), WORKERS, [CORDONED]) == Changes({})
    assert plan({"slurm/slurm": {}}, (), WORKERS, [CORDONED]) == Changes({})


def test_a_machine_is_uncordoned_when_no_drain_speaks_against_it_any_more() -> None:
    marked = KubeNode("m0", cordoned=True, mark=MARK)
    assert plan(DRAINED, (), WORKERS, [marked]) == Changes({})
    assert plan({"slurm/slurm": {}}, (), WORKERS, [marked]) == Changes({}, uncordon=("m0",))
    assert plan({"slurm/slurm": {}, "b/b": {"m0": "noisy"}}, (), WORKERS, [marked]) == Changes({})
    assert plan({}, (), WORKERS, [marked]) == Changes({}, uncordon=("m0",)), "its Slurm cluster is gone"


def test_a_machine_stays_cordoned_while_its_slurm_cluster_can_not_be_asked() -> None:
    marked = KubeNode("m0", cordoned=True, mark=MARK)
    assert plan({}, ("slurm/slurm",), WORKERS, [marked]) == Changes({})
    assert plan({"slurm/slurm": {}}, ("b/b",), WORKERS, [marked]) == Changes({}, uncordon=("m0",))


def test_who_uncordons_the_machine_is_not_contradicted_until_the_drain_is_lifted() -> None:
    overruled = KubeNode("m0", cordoned=False, mark=MARK)
    assert plan(DRAINED, (), WORKERS, [overruled]) == Changes({})
    assert plan({"slurm/slurm": {}}, (), WORKERS, [overruled]) == Changes({}, unmark=("m0",))


def test_what_another_operator_has_cordoned_is_not_given_free() -> None:
    marked = KubeNode("m0", cordoned=True, mark=MARK)
    assert plan({}, (), WORKERS, [marked], ("elsewhere",)) == Changes({})
    assert plan({}, (), WORKERS, [marked], ("elsewhere", "slurm")) == Changes({}, uncordon=("m0",))


def test_a_kubernetes_node_without_a_worker_of_that_slurm_cluster_is_not_cordoned_whatever_its_slurmd_reports() -> None:
    assert plan(DRAINED, (), {}, [FREE]) == Changes({})
    assert plan(DRAINED, (), {"b/b": {"m0"}, "slurm/slurm": {"m1"}}, [FREE]) == Changes({})
    claimed = {"a/a": {"m0": "of no concern"}, **DRAINED}
    assert plan(claimed, (), WORKERS, [FREE]) == Changes({"m0": MARK})


def test_a_kubernetes_node_stays_cordoned_when_its_worker_has_moved_and_for_no_cluster_without_one() -> None:
    marked = KubeNode("m0", cordoned=True, mark=MARK)
    assert plan(DRAINED, (), {}, [marked]) == Changes({})
    assert plan({"slurm/slurm": {}, "a/a": {"m0": "of no concern"}}, (), {}, [marked]) == Changes({}, uncordon=("m0",))


def test_a_mark_quotes_the_reason_bounded_and_printable() -> None:
    [reason] = to_cordon([node("IDLE", "DRAIN", reason="disk\n\x1b[2J" + "x" * 1_000_000, machine="m0")]).values()
    assert reason.isprintable()
    assert len(reason) <= 500
