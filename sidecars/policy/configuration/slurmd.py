"""Rules about what slurmd alone reads, and ends on. slurmctld's dry run can't find it.

From Slurm's sources (src/interfaces/{cgroup,task,proctrack,namespace}.c,
src/slurmd/slurmd/slurmd.c).
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class _Kind:
    """The plugins of a key, which slurmctld doesn't load. Their names are exact."""

    plugins: frozenset[str]
    prefixes: tuple[str, ...]
    needed: bool = False
    """Whether a name needs a prefix, and is one only."""
    files: Mapping[str, str] = field(default_factory=dict)
    """By plugin: the file without which slurmd ends."""


_NAMESPACES = _Kind(
    frozenset({"linux", "none", "tmpfs"}),
    ("job_container/", "namespace/"),
    files={"linux": "namespace.yaml", "tmpfs": "job_container.conf"},
)
_KINDS: Mapping[str, _Kind] = {
    "proctracktype": _Kind(
        frozenset({"cgroup", "linuxproc", "pgid"}), ("proctrack/",), needed=True
    ),
    "taskplugin": _Kind(frozenset({"affinity", "cgroup", "none"}), ("task/",)),
    "jobcontainertype": _NAMESPACES,
    "namespacetype": _NAMESPACES,
}

_CGROUP_PLUGINS = frozenset({"autodetect", "cgroup/v1", "cgroup/v2", "disabled"})

_NO_FOLDERS = ("/dev/null/", "/proc/", "/sys/")
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
        _unknown_cgroup_plugin(reading, cgroup_conf)
    _missing_files(reading, last)
    spool = last.get("slurmdspooldir")
    if spool is not None and f"{_plain(spool.value)}/".startswith(_NO_FOLDERS):
        reading.report(
            "error",
            spool,
            f"SlurmdSpoolDir={spool.value}: {_ENDS}, because it can't create it: remove it",
        )


def _plain(path: str) -> str:
    """Return an absolute path without what doesn't change it."""
    return posixpath.normpath(f"/{path.lstrip('/')}") if path.startswith("/") else path


def _plugins(value: str) -> list[str]:
    """Return the names in a list of plugins, without the kind before a slash."""
    return [name.strip().rpartition("/")[2] for name in value.split(",")]


def _names(kind: _Kind, value: str) -> list[tuple[str, bool]]:
    """Return the names in the value of such a key, without the prefix, and whether it is one of
    Slurm's.
    """
    found = []
    for written in [value] if kind.needed else filter(None, map(str.strip, value.split(","))):
        prefix = next((it for it in kind.prefixes if written.startswith(it)), "")
        name = written.removeprefix(prefix)
        found.append((name, name in kind.plugins and (bool(prefix) or not kind.needed)))
    return found


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
    for key, kind in _KINDS.items():
        at = last.get(key)
        unknown = (
            []
            if at is None or not at.value
            else [name for name, known in _names(kind, at.value) if not known]
        )
        if at is not None and unknown:
            text = f"{_pair(at)}: Slurm has no plugin {unknown[0]}, and {_ENDS}"
            prefix = kind.prefixes[0] if kind.needed else ""
            known = ", ".join(f"{prefix}{name}" for name in sorted(kind.plugins))
            reading.report(
                "error", at, f"{text}: use one of {known}, or set PluginDir if your image has it"
            )


def _unknown_cgroup_plugin(reading: Reading, cgroup_conf: conf.Conf) -> None:
    plugin = cgroup_conf.get("CgroupPlugin")
    if plugin is None or plugin in _CGROUP_PLUGINS:
        return
    line = cgroup_conf.all("CgroupPlugin")[-1].number
    text = (
        f"CgroupPlugin={plugin}: Slurm has no such plugin, and {_ENDS}: use one of "
        f"{', '.join(sorted(_CGROUP_PLUGINS))}, or set PluginDir if your image has it"
    )
    origin = reading.config_set.origin(cgroups.FILE, line)
    reading.findings.append(error(cgroups.FILE, line, origin, text))


def _missing_files(reading: Reading, last: Mapping[str, Placed]) -> None:
    present = {*reading.config_set.files, *reading.config_set.binary_files}
    for key, kind in _KINDS.items():
        at = last.get(key)
        names = [] if at is None else [name for name, known in _names(kind, at.value) if known]
        missing = [it for name in names if (it := kind.files.get(name, "")) and it not in present]
        if at is not None and missing:
            text = f"{_pair(at)}: {_ENDS} without this file: add {missing[0]} to"
            reading.report("error", at, f"{text} spec.configFileRefs")


def _pair(at: Placed) -> str:
    pair = at.line.pairs[0]
    return f"{pair.key}={pair.value}"
