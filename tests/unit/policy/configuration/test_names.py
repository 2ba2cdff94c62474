"""Rules about names: `sidecars.policy.configuration.names`."""

import pytest

from sidecars.workloads.resources import NodeSet
from tests.support.builders import nodeset
from tests.support.linting import errors, findings


def test_a_partition_may_name_nodes_that_are_registered() -> None:
    assert errors(findings("PartitionName=p Nodes=outside", known_nodes=("outside",))) == []
    assert errors(findings("PartitionName=p Nodes=outside")) != []


@pytest.mark.parametrize("workers", [nodeset("cpu"), nodeset("ds", scalingMode="DaemonSet")])
def test_a_partition_that_names_a_worker_is_warned_of(workers: NodeSet) -> None:
    [found] = findings("PartitionName=p Nodes=cpu-3", workers)
    assert (found.severity, f"name the NodeSet {workers.name} instead" in found.message) == (
        "warning",
        True,
    )
