"""The control groups of a local cluster, on cgroup v1, v2 and the mixture of both.

All processes of a cluster are in its group, so that none can be missed when it is taken down.
"""

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.waiting import until

_V2_CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids", "hugetlb")


@dataclass(frozen=True)
class Hierarchies:
    """Where the host's hierarchies are mounted: `v1` by controllers, `unified` the v2 one (None
    without).
    """

    v1: tuple[Path, ...]
    unified: Path | None

    @property
    def all(self) -> tuple[Path, ...]:
        """Every hierarchy."""
        return self.v1 if self.unified is None else (*self.v1, self.unified)

    @property
    def tracking(self) -> Path:
        """The hierarchy in which daemons are kept together: the v2 one if one exists."""
        return self.unified or next((path for path in self.v1 if "pids" in path.name), self.v1[0])


def parse(mountinfo: str) -> Hierarchies:
    """The hierarchies out of proc_pid_mountinfo(5)."""
    v1: list[Path] = []
    unified: Path | None = None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        mounted = Path(
            re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), left.split()[4])
        )
        kind = right.split()[0] if right else ""
        if kind == "cgroup" and mounted not in v1:
            v1.append(mounted)
        if kind == "cgroup2" and unified is None:
            unified = mounted
    return Hierarchies(tuple(v1), unified)


def found() -> Hierarchies:
    """The hierarchies of this machine."""
    return parse(Path("/proc/self/mountinfo").read_text())


def make(hierarchies: Hierarchies, group: str, children: tuple[str, ...]) -> Path:
    """Make `group` with a group for each of `children` everywhere; cgroup.procs of the group for
    daemons is returned.

    cgroup v1 gives a new cpuset group no CPUs, so they are taken over from above. cgroup v2 allows
    processes only in groups without children and controllers only where they are switched on from
    the root down.
    """
    for hierarchy in hierarchies.v1:
        for path in (hierarchy / group, *(hierarchy / group / child for child in children)):
            path.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                with contextlib.suppress(FileNotFoundError):
                    if not (path / name).read_text().strip():
                        (path / name).write_text((path.parent / name).read_text())
    if hierarchies.unified is not None:
        for path in (
            hierarchies.unified / group,
            *(hierarchies.unified / group / child for child in children),
        ):
            path.mkdir(exist_ok=True)
            if not hierarchies.v1:
                _switch_on(path.parent)
    daemons = hierarchies.tracking / group / "daemons"
    daemons.mkdir(exist_ok=True)
    return daemons / "cgroup.procs"


def _switch_on(path: Path) -> None:
    there = (path / "cgroup.controllers").read_text().split()
    for controller in _V2_CONTROLLERS:
        if controller in there:
            try:
                (path / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError as error:
                raise ClusterError(
                    f"cgroup v2 controller {controller} can't be switched on in {path}: "
                    f"{error.strerror}. Inside a container, give it a cgroup namespace whose root "
                    "contains no processes."
                ) from None


def processes(hierarchies: Hierarchies, group: str) -> set[int]:
    """Pids of every process in the group or below it, in any hierarchy."""
    return {
        int(pid)
        for hierarchy in hierarchies.all
        for path in _tree(hierarchy / group)
        for pid in _read(path / "cgroup.procs").split()
    }


def kill(hierarchies: Hierarchies, group: str) -> None:
    """End every process of the group; new ones that they start meanwhile as well."""

    def none_left() -> bool:
        left = processes(hierarchies, group)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    until(none_left, f"the processes of cgroup {group} to be gone", 60, pause=0.05)


def remove(hierarchies: Hierarchies, group: str) -> None:
    """Remove the group everywhere. It must have no process."""
    for hierarchy in hierarchies.all:

        def gone(top: Path = hierarchy / group) -> bool:
            for path in reversed(list(_tree(top))):
                with contextlib.suppress(OSError):
                    path.rmdir()
            return not top.exists()

        until(gone, f"cgroup {hierarchy / group} to be empty", 60, pause=0.05)


def _tree(top: Path) -> Iterator[Path]:
    for folder, _, _ in os.walk(top):
        yield Path(folder)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
