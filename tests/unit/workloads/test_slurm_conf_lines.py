"""The operator's own lines of slurm.conf: `sidecars.workloads.slurm_conf_lines`."""

from typing import Any

import pytest

from sidecars.workloads.config import compose
from sidecars.workloads.resources import NodeSet, ResourceError, read
from sidecars.workloads.slurm_conf_lines import continued, max_node_count, unfit, word
from tests.support import builders
from tests.support.builders import controller, nodeset


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [((1,), 1024), ((512,), 1024), ((513,), 1026), ((2000, 3000), 10000), ((), 1024)],
)
def test_slurmctld_has_room_for_twice_the_declared_replicas(
    replicas: tuple[int, ...], expected: int
) -> None:
    nodesets = [nodeset(f"n{index}", replicas=count) for index, count in enumerate(replicas)]
    text = compose(controller(), nodesets, builders.facts()).files["slurm.conf"]
    assert f"MaxNodeCount={expected}" in text.splitlines()


@pytest.mark.parametrize("own", ["0", "1", "2"])
def test_nodes_that_did_not_respond_return_unless_the_user_sets_return_to_service(own: str) -> None:
    def lines(**spec: Any) -> list[str]:
        text = compose(controller(**spec), (), builders.facts()).files["slurm.conf"]
        return [line for line in text.splitlines() if line.lower().startswith("returntoservice=")]

    assert lines() == ["ReturnToService=1"]
    # slurmd logs an error for a key that slurm.conf sets twice.
    assert lines(extraConf=f"ReturnToService={own}") == [f"ReturnToService={own}"]
    assert lines(extraConf=f"returntoservice={own}") == [f"returntoservice={own}"]


def test_a_daemon_set_counts_with_the_nodes_that_it_last_wanted() -> None:
    of = read(
        NodeSet,
        {
            "metadata": builders.metadata("d"),
            "spec": {
                "controllerRef": {"name": "slurm"},
                "scalingMode": "DaemonSet",
                "replicas": 9000,
            },
            "status": {"desired": 700},
        },
    )
    assert max_node_count([of]) == 1400


@pytest.mark.parametrize(
    ("line", "want"), [("a", False), ("a\\", True), ("a\\\\", False), ("a\\ ", True), ("", False)]
)
def test_an_odd_number_of_backslashes_at_its_end_continues_a_line(line: str, want: bool) -> None:
    assert continued(line) is want


def test_why_a_value_can_not_end_a_line_is_reported() -> None:
    assert unfit("State=UP\tMaxTime=1") is None
    assert "line break" in (unfit("a\nb") or "")
    assert "backslash" in (unfit("a\\") or "")


@pytest.mark.parametrize("value", ["", "a b", "a=b", "a#", "a,b", "n[1-2]", 'a"', "a\x7f"])
def test_what_is_not_one_word_of_a_line_is_refused_with_its_field(value: str) -> None:
    with pytest.raises(ResourceError, match=r"^spec\.clusterName: "):
        word(value, "spec.clusterName")
    assert word("slurm_slurm", "spec.clusterName") == "slurm_slurm"
