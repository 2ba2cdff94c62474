"""Rules about what slurmd alone reads, and ends on. slurmctld's dry run can't find it.

From Slurm's sources (src/interfaces/{cgroup,task,proctrack,namespace}.c,
src/slurmd/slurmd/slurmd.c).
"""

from collections.abc import Mapping, Sequence

from sidecars.policy.configuration import cgroups
from sidecars.policy.configuration.reading import Placed, Reading, error
from sidecars.slurm import conf

_CGROUPS = "cgroup"
"""The plugin of each kind that needs cgroups."""

_ENDS = "slurmd ends at its start on all workers"

_WITHOUT_CGROUPS: Mapping[str, tuple[str, str]] = {
    "proctracktype": ("ProctrackType", "proctrack/linuxproc"),
    "taskplugin": ("TaskPlugin", "task/affinity"),
    "jobacctgathertype": ("JobAcctGatherType", "jobacct_gather/linux"),
}
"""Keys of slurm.conf, as Slurm spells them, with a plugin that needs no cgroups."""

_DEFAULTS = {"proctracktype": "proctrack/cgroup"}

_PLUGINS: Mapping[str, frozenset[str]] = {
    "proctracktype": frozenset({"cgroup", "linuxproc", "pgid"}),
    "taskplugin": frozenset({"affinity", "cgroup", "none"}),
    "jobcontainertype": frozenset({"linux", "none", "tmpfs"}),
    "namespacetype": frozenset({"linux", "none", "tmpfs"}),
}
"""The plugins of Slurm for keys whose plugins slurmctld doesn't load."""

_NO_FOLDERS = ("/proc/", "/sys/")
"""Where no folder can be created."""


def rules(reading: Reading, lines: Sequence[Placed]) -> None:
    """Apply all rules about a cluster with worker pods."""
    last = {at.key: at for at in lines}
    cgroup_conf = conf.parse_readable(reading.config_set.files.get(cgroups.FILE, ""))
    if cgroup_conf.get("CgroupPlugin") == "disabled":
        _without_cgroups(reading, last, cgroup_conf)
    else:
        _two_memory_limits(reading, last, cgroup_conf)
    if "plugindir" not in last:
        _unknown_plugins(reading, last)
    spool = last.get("slurmdspooldir")
    if spool is not None and f"{spool.value}/".startswith(_NO_FOLDERS):
        reading.report(
            "error",
            spool,
            f"SlurmdSpoolDir={spool.value}: {_ENDS}, because it can't create it: remove it",
        )


def _plugins(value: str) -> list[str]:
    """Return the names in a list of plugins, without the kind before a slash."""
    return [name.strip().rpartition("/")[2].lower() for name in value.split(",")]


def _without_cgroups(reading: Reading, last: Mapping[str, Placed], cgroup_conf: conf.Conf) -> None:
    for key, (name, other) in _WITHOUT_CGROUPS.items():
        at = last.get(key)
        if _CGROUPS not in _plugins(_DEFAULTS.get(key, "") if at is None else at.value):
            continue
        remedy = f"{_ENDS}: set {name}={other}"
        if at is not None:
            reading.report(
                "error",
                at,
                f"{name}={at.value} with CgroupPlugin=disabled in cgroup.conf: {remedy}",
            )
        else:
            line = cgroup_conf.all("CgroupPlugin")[-1].number
            text = (
                f"CgroupPlugin=disabled without {name}, whose default is {_DEFAULTS[key]}: {remedy}"
            )
            origin = reading.config_set.origin(cgroups.FILE, line)
            reading.findings.append(error(cgroups.FILE, line, origin, text))


def _two_memory_limits(
    reading: Reading, last: Mapping[str, Placed], cgroup_conf: conf.Conf
) -> None:
    tasks, gather = last.get("taskplugin"), last.get("jobacctgatherparams")
    if tasks is None or gather is None or _CGROUPS not in _plugins(tasks.value):
        return
    limited = [
        key
        for key in ("ConstrainRAMSpace", "ConstrainSwapSpace")
        if cgroups.is_true(cgroup_conf, key)
    ]
    if limited and "overmemorykill" in gather.value.lower().split(","):
        text = f"JobAcctGatherParams={gather.value} with {limited[0]}=yes in cgroup.conf: {_ENDS}"
        reading.report("error", gather, f"{text}, because both limit memory: remove OverMemoryKill")


def _unknown_plugins(reading: Reading, last: Mapping[str, Placed]) -> None:
    for key, plugins in _PLUGINS.items():
        at = last.get(key)
        unknown = (
            []
            if at is None
            else [name for name in _plugins(at.value) if name and name not in plugins]
        )
        if at is not None and unknown:
            pair = at.line.pairs[0]
            text = f"{pair.key}={pair.value}: Slurm has no plugin {unknown[0]}, and {_ENDS}"
            known = ", ".join(sorted(plugins))
            reading.report(
                "error", at, f"{text}: use one of {known}, or set PluginDir if your image has it"
            )
