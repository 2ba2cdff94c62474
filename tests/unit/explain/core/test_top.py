"""The cluster at a glance."""

from sidecars.explain.core import top as subject
from sidecars.explain.core.records import Ending, Waiting
from tests.unit.explain.core.building import NODESET, busy, node, seen


def test_nodes_cpus_and_gpus_are_counted() -> None:
    nodes = (
        busy("cpu-0", gres="gpu:h100:8(S:0-1)", gres_used="gpu:h100:2(IDX:0-1)"),
        node("cpu-1", gres="gpu:h100:8"),
        node("cpu-2", "IDLE", "DRAIN", reason="bad disk"),
        node("cpu-3", "DOWN"),
    )
    found = subject.top(seen({"nodes": nodes}))
    assert found.nodes == {"allocated": 1, "idle": 1, "drained": 1, "down": 1}
    assert found.cpus == (4, 8)
    assert found.gpus == {"h100": (2, 16)}


def test_cores_for_the_system_are_not_counted() -> None:
    nodes = (
        node("cpu-0", "ALLOCATED", specialized_cores=1, alloc_cpus=3),
        node("cpu-1", specialized_cores=3),
    )
    assert subject.top(seen({"nodes": nodes})).cpus == (3, 4)


def test_drains_are_grouped_by_reason_and_owner_the_largest_first() -> None:
    nodes = (
        node("cpu-0", "IDLE", "DRAIN", reason="bad disk", reason_set_by_user="root"),
        node("cpu-1", "IDLE", "DRAIN", reason="slurm-operator: x"),
        node("cpu-2", "MIXED", "DRAIN", reason="slurm-operator: x"),
    )
    drains = subject.top(seen({"nodes": nodes})).drains
    assert drains == (
        subject.Drain("slurm-operator: x", "the operator", ("cpu-1", "cpu-2"), 1),
        subject.Drain("bad disk", "an administrator or another program", ("cpu-0",), 0),
    )


def test_the_queue_is_counted_by_reason() -> None:
    waiting = (
        Waiting("1", 1, "a", "Resources"),
        Waiting("2", 1, "a", "Priority"),
        Waiting("3", 1, "a", "Priority"),
    )
    found = subject.top(seen({"waiting": waiting, "running": (Ending("9", None),)}))
    assert found.pending == {"Priority": 2, "Resources": 1}
    assert found.running == 1
    assert found.nodesets == {NODESET: "0 of 2 workers ready"}


def test_what_was_not_read_is_not_zero() -> None:
    found = subject.top(seen({"nodes": None, "waiting": None, "running": None}, {"nodesets": None}))
    assert (
        found.nodes,
        found.cpus,
        found.gpus,
        found.pending,
        found.running,
        found.nodesets,
        found.drains,
    ) == (None,) * 7
