"""Rules about what ends slurmd: `sidecars.policy.configuration.slurmd`.

The expected ends were seen with slurmd 26.05.5; what ends it is in Slurm's sources.
"""

import pytest

from tests.support.builders import nodeset
from tests.support.linting import errors, findings

DISABLED = "CgroupPlugin=disabled"


def found(extra_conf: str, cgroup_conf: str | None = None, *, workers: bool = True) -> list[str]:
    files: dict[str, dict[str, str | bytes]] = (
        {} if cgroup_conf is None else {"files": {"cgroup.conf": cgroup_conf}}
    )
    return errors(findings(extra_conf, *([nodeset("cpu")] if workers else []), config_maps=files))


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("TaskPlugin=task/cgroup", "set TaskPlugin=task/affinity"),
        ("TaskPlugin=affinity,cgroup", "set TaskPlugin=task/affinity"),
        ("ProctrackType=proctrack/cgroup", "set ProctrackType=proctrack/linuxproc"),
        ("JobAcctGatherType=jobacct_gather/cgroup", "set JobAcctGatherType=jobacct_gather/linux"),
    ],
)
def test_a_plugin_that_needs_cgroups_is_refused_where_they_are_disabled(
    line: str, remedy: str
) -> None:
    other = "" if line.startswith("ProctrackType") else "ProctrackType=proctrack/linuxproc\n"
    [error] = found(f"{other}{line}\n", DISABLED)
    assert line in error
    assert error.endswith(remedy)
    assert "spec.extraConf line" in error
    assert found(f"{other}{line}\n", "CgroupPlugin=cgroup/v1") == []


def test_the_default_of_proctracktype_is_refused_where_cgroups_are_disabled() -> None:
    [error] = found("TaskPlugin=task/none\n", f"# site\n{DISABLED}\n")
    assert error.startswith("cgroup.conf line 2")
    assert "ProctrackType=proctrack/linuxproc" in error


def test_plugins_without_cgroups_are_left_alone_where_cgroups_are_disabled() -> None:
    lines = (
        "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/affinity\nJobAcctGatherType="
        "jobacct_gather/linux\n"
    )
    assert found(lines, DISABLED) == []


def test_two_limits_of_the_memory_of_jobs_are_refused() -> None:
    line = "JobAcctGatherParams=UsePss,OverMemoryKill\n"
    [error] = found(line)
    assert "remove OverMemoryKill" in error
    assert found(line, "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n") == [], (
        "cgroups limit no memory"
    )
    assert (
        found(f"{line}TaskPlugin=task/affinity\n", "IgnoreSystemd=yes\nConstrainRAMSpace=yes\n")
        == []
    )


@pytest.mark.parametrize(
    "line",
    [
        "TaskPlugin=task/affinity,task/nosuch",
        "ProctrackType=proctrack/nosuch",
        "JobContainerType=job_container/nosuch",
        "NamespaceType=namespace/nosuch",
    ],
)
def test_a_plugin_that_only_slurmd_would_miss_is_refused_unless_it_may_be_elsewhere(
    line: str,
) -> None:
    [error] = found(f"{line}\n")
    assert f"{line}: Slurm has no plugin nosuch" in error
    assert "PluginDir" in error
    assert found(f"PluginDir=/opt/plugins\n{line}\n") == []


@pytest.mark.parametrize(
    "line", ["JobContainerType=job_container/tmpfs", "NamespaceType=tmpfs,linux", "TaskPlugin="]
)
def test_the_plugins_of_slurm_are_left_alone(line: str) -> None:
    assert [it for it in found(f"{line}\n") if "has no plugin" in it] == []


@pytest.mark.parametrize("folder", ["/proc/nope", "/sys/slurm", "/proc"])
def test_a_spool_folder_that_cannot_be_created_is_refused(folder: str) -> None:
    [error] = found(f"SlurmdSpoolDir={folder}\n")
    assert f"SlurmdSpoolDir={folder}: slurmd ends" in error
    assert found("SlurmdSpoolDir=/var/spool/process\n") == []


def test_a_cluster_without_worker_pods_is_left_alone() -> None:
    assert found("TaskPlugin=task/cgroup\n", DISABLED, workers=False) == []
