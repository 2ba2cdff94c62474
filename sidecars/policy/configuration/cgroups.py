"""Rules about cgroup.conf for slurmd in a worker pod."""

from sidecars.policy.configuration.reading import Finding, Reading
from sidecars.slurm import conf

FILE = "cgroup.conf"
_TRUE = frozenset({"1", "true", "up", "yes"})
_PROBLEM = "slurmd in a worker pod ends at its start, because it finds no systemd there"


def is_true(parsed: conf.Conf, key: str) -> bool:
    """Return whether Slurm reads the key's value as yes."""
    return (parsed.get(key) or "").lower() in _TRUE


def systemd(reading: Reading) -> None:
    """Find a slurmd's cgroup/v2 plugin that would ask systemd for a scope.

    IgnoreSystemdOnFailure doesn't help: slurmd 26.05 ends before it looks at it. autodetect chooses
    cgroup/v1 or cgroup/v2 on each host.
    """
    if FILE not in reading.config_set.files:
        return
    parsed = conf.parse_readable(reading.config_set.files[FILE])
    plugin = parsed.get("CgroupPlugin") or "autodetect"
    if plugin not in {"autodetect", "cgroup/v2"} or is_true(parsed, "IgnoreSystemd"):
        return
    fatal = plugin == "cgroup/v2"
    where = "" if fatal else " on a host with cgroup v2"
    culprits = [*parsed.all("CgroupPlugin"), *parsed.all("IgnoreSystemd")]
    line = culprits[-1].number if culprits else None
    finding = Finding(
        file=FILE,
        line=line,
        origin=reading.config_set.origin(FILE, line),
        severity="error" if fatal else "warning",
        message=f"CgroupPlugin={plugin} without IgnoreSystemd=yes: {_PROBLEM}{where}: add "
        "IgnoreSystemd=yes",
    )
    reading.findings.append(finding)
