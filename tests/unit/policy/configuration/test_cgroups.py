"""Rules about cgroup.conf: `sidecars.policy.configuration.cgroups`."""

import pytest

from sidecars.policy.configuration.reading import Finding
from sidecars.workloads.resources import NodeSet
from tests.support.builders import nodeset
from tests.support.linting import findings


def _cgroup_findings(cgroup_conf: str, *nodesets: NodeSet) -> tuple[Finding, ...]:
    return findings("", *nodesets, config_maps={"files": {"cgroup.conf": cgroup_conf}})


@pytest.mark.parametrize(
    "cgroup_conf", ["ConstrainCores=yes", "CgroupPlugin=autodetect", "IgnoreSystemd=no"]
)
def test_a_cgroup_conf_that_fails_on_hosts_with_cgroup_v2_is_a_warning(cgroup_conf: str) -> None:
    [found] = _cgroup_findings(cgroup_conf, nodeset("cpu"))
    assert (found.severity, found.file) == ("warning", "cgroup.conf")
    assert "add IgnoreSystemd=yes" in found.message


@pytest.mark.parametrize(
    "cgroup_conf",
    [
        "CgroupPlugin=cgroup/v2\nignoresystemd=YES",
        "CgroupPlugin=cgroup/v1",
        "IgnoreSystemd=yes",
    ],
)
def test_a_cgroup_conf_with_which_slurmd_starts_in_a_pod_is_left_alone(cgroup_conf: str) -> None:
    assert _cgroup_findings(cgroup_conf, nodeset("cpu")) == ()


def test_a_cluster_without_worker_pods_may_leave_cgroups_to_systemd() -> None:
    assert _cgroup_findings("CgroupPlugin=cgroup/v2") == ()


def test_of_two_values_of_ignore_systemd_the_last_one_counts() -> None:
    [found] = _cgroup_findings(
        "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\nIgnoreSystemd=no", nodeset("cpu")
    )
    assert (found.severity, found.line) == ("error", 3)
