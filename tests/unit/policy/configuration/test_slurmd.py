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
    ("line", "name"),
    [
        ("TaskPlugin=task/Affinity", "Affinity"),
        ("TaskPlugin=AFFINITY", "AFFINITY"),
        ("taskplugin=affinity,Task/cgroup", "Task/cgroup"),
        ("TaskPlugin=task/task/affinity", "task/affinity"),
        ("TaskPlugin=x/affinity", "x/affinity"),
        ("TaskPlugin=task/\u0430ffinity", "\u0430ffinity"),
        ("ProctrackType=linuxproc", "linuxproc"),
        ("ProctrackType=proctrack/LINUXPROC", "LINUXPROC"),
        ("ProctrackType=proctrack/linuxproc,proctrack/pgid", "linuxproc,proctrack/pgid"),
        ("JobContainerType=job_container/TMPFS", "TMPFS"),
        ("NamespaceType=Linux", "Linux"),
        ("NamespaceType=proctrack/linux", "proctrack/linux"),
    ],
)
def test_the_name_of_a_plugin_is_exact_as_slurmd_reads_it(line: str, name: str) -> None:
    [error] = found(f"{line}\n")
    assert f": Slurm has no plugin {name}, and slurmd ends" in error
    assert "use one of " in error


@pytest.mark.parametrize("plugin", ["Disabled", "Autodetect", "cgroup/V2", "nosuch", "v2"])
def test_a_cgroup_plugin_that_slurmd_does_not_have_is_refused_unless_it_may_be_elsewhere(
    plugin: str,
) -> None:
    cgroup_conf = f"# site\nCgroupPlugin={plugin}\n"
    [error] = found("", cgroup_conf)
    assert error.startswith("cgroup.conf line 2")
    assert f"CgroupPlugin={plugin}: Slurm has no such plugin" in error
    assert "use one of autodetect, cgroup/v1, cgroup/v2, disabled" in error
    assert found("PluginDir=/opt/plugins\n", cgroup_conf) == []


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("JobContainerType=job_container/tmpfs", "job_container.conf"),
        ("JobContainerType=tmpfs", "job_container.conf"),
        ("NamespaceType=tmpfs", "job_container.conf"),
        ("NamespaceType=namespace/linux", "namespace.yaml"),
    ],
)
def test_a_plugin_without_its_file_is_refused(line: str, file: str) -> None:
    [error] = found(f"{line}\n")
    assert f"{line}: slurmd ends" in error
    assert error.endswith(f"add {file} to spec.configFileRefs")
    files: dict[str, dict[str, str | bytes]] = {"files": {file: "#"}}
    assert errors(findings(f"{line}\n", nodeset("cpu"), config_maps=files)) == []


@pytest.mark.parametrize(
    "line",
    [
        "JobContainerType=job_container/none",
        "NamespaceType=none",
        "TaskPlugin=",
        "TaskPlugin=,affinity,",
        'TaskPlugin="task/affinity, task/none"',
        "TASKPLUGIN=affinity",
        "ProctrackType=proctrack/pgid",
    ],
)
def test_the_plugins_of_slurm_are_left_alone(line: str) -> None:
    assert [it for it in found(f"{line}\n") if "has no plugin" in it] == []


@pytest.mark.parametrize(
    "folder",
    [
        "/proc/nope",
        "/sys/slurm",
        "/proc",
        "//proc/nope",
        "/./proc//nope",
        "/var/../proc/nope",
        "/dev/null/x",
    ],
)
def test_a_spool_folder_that_cannot_be_created_is_refused(folder: str) -> None:
    [error] = found(f"SlurmdSpoolDir={folder}\n")
    assert f"SlurmdSpoolDir={folder}: slurmd ends" in error
    assert found("SlurmdSpoolDir=/var/spool/process\n") == []


def test_a_cluster_without_worker_pods_is_left_alone() -> None:
    assert found("TaskPlugin=task/cgroup\n", DISABLED, workers=False) == []
