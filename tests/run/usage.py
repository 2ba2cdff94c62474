"""CPU time: of this process, of its children that have ended, and of the processes of a local
cluster.
"""

import contextlib
import os
from pathlib import Path

from tests.cluster import cgroups
from tests.cluster.addresses import Plan

_TICKS = os.sysconf("SC_CLK_TCK")


def stat(pid: int) -> tuple[int, str, float] | None:
    """Parent, start time and CPU seconds, with those of its ended children, of a process. None: no
    such process.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), fields[19], sum(map(int, fields[11:15])) / _TICKS


class ClusterCpu:
    """The CPU seconds of a local cluster since this object was created, without those that its
    creator has waited for.

    The daemons are children of the process that started the cluster: when they end, their whole
    time is added to that process's children, and counted here no more.
    """

    def __init__(self, name: str) -> None:
        self._group = Plan(name, 0).cgroup
        self._hierarchies = cgroups.found()
        self._last = self._counters()
        self._children = self._own_children()
        self._used = 0.0

    def seconds(self) -> float:
        """Seconds until now. A cluster that is down uses none."""
        counters = self._counters()
        for key, value in counters.items():
            # A counter that fell is a new one: the cluster was created again.
            before = self._last.get(key, 0.0)
            self._used += value - before if value >= before else value
        self._last = counters
        children = self._own_children()
        ended = {key: seconds for key, seconds in self._children.items() if key not in children}
        unwaited = {
            key: seconds
            for key, seconds in ended.items()
            if (found := stat(key[0])) and found[1] == key[1]
        }
        # What has become the time of this process's children.
        self._used -= sum(ended.values()) - sum(unwaited.values())
        self._children = children | unwaited
        return self._used

    def _counters(self) -> dict[str, float]:
        if self._hierarchies.unified is not None:
            text = _read(self._hierarchies.unified / self._group / "cpu.stat")
            return {"unified": int(text.split()[1]) / 1e6} if text else {}
        # With cgroup v1 alone, pods are in all hierarchies, and the daemons in one.
        counters = {}
        for path in self._hierarchies.v1:
            if text := _read(path / self._group / "cpuacct.usage"):
                counters["pods"] = int(text) / 1e9
        for pid in self._daemons():
            if found := stat(pid):
                counters[f"{pid} {found[1]}"] = found[2]
        return counters

    def _own_children(self) -> dict[tuple[int, str], float]:
        children = {}
        for pid in self._daemons():
            if (found := stat(pid)) and found[0] == os.getpid():
                children[pid, found[1]] = found[2]
        return children

    def _daemons(self) -> list[int]:
        return [
            int(pid)
            for pid in _read(
                self._hierarchies.tracking / self._group / "daemons" / "cgroup.procs"
            ).split()
        ]


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""


class Meter:
    """CPU seconds of this process, its ended children, and the clusters that it follows."""

    def __init__(self) -> None:
        self._clusters: list[ClusterCpu] = []

    def follow(self, cluster: str) -> None:
        """Count the processes of the local cluster of that name from now on."""
        self._clusters.append(ClusterCpu(cluster))

    def seconds(self) -> float:
        """All of it since the process started."""
        return sum(os.times()[:4]) + sum(cluster.seconds() for cluster in self._clusters)


METER = Meter()
"""The one of this process."""
