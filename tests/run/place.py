"""The place of a run on this host: a folder for temporary files, the disk's room, and what a former
run has left.

A folder belongs to one checkout, so that processes and mounts of a run that was killed are known by
it.
"""

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.cluster import cache
from tests.cluster.errors import ClusterError
from tests.cluster.local import cluster_down
from tests.cluster.preconditions import COLD_DISK_GIB, WARM_DISK_GIB
from tests.cluster.tools import built
from tests.run import processes
from tests.run.stages import ROOT

TEMPORARY_GIB = 1.0


def folder(suffix: str = "") -> Path:
    """Where temporary files of this checkout's runs are. Short, because it is a part of the paths
    of sockets.
    """
    return (
        Path(tempfile.gettempdir())
        / f"charts-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:6]}{suffix}"
    )


def demand_room(*, real: bool, free: Callable[[Path], float] | None = None) -> None:
    """Raise ClusterError if a disk is nearly full. `real`: programs and images are needed, as for
    all real daemons.
    """
    look = free or _free
    needed = {Path(tempfile.gettempdir()): TEMPORARY_GIB, ROOT: TEMPORARY_GIB}
    if real:
        needed[cache.root()] = WARM_DISK_GIB if built("kube") else COLD_DISK_GIB
    found = [
        f"{room:.1f} GiB are free at {path}, {gib:.0f} are needed: free some"
        for path, gib in needed.items()
        if (room := look(path)) < gib
    ]
    if found:
        raise ClusterError(
            "\n".join(["the disk is nearly full:", *(f"- {line}" for line in found)])
        )


def _free(path: Path) -> float:
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free / 2**30


@contextmanager
def taken(
    path: Path, clusters: Iterable[str], report: Callable[[str], None]
) -> Iterator[dict[str, str]]:
    """Take the folder for a run, and remove what a former one has left, with local clusters of
    these names.

    Gives the environment of the run's processes. Raises ClusterError if another run uses the folder
    or a cluster.
    """
    clusters = list(clusters)
    with ExitStack() as locks:
        locks.enter_context(
            _locked(path.with_name(f".{path.name}.lock"), "another run of this checkout")
        )
        for name in clusters:
            lock = cache.root() / "clusters" / f".{name}.run.lock"
            locks.enter_context(_locked(lock, f"another run with the local cluster {name}"))
        for line in clear(path, clusters):
            report(line)
        path.mkdir(mode=0o700)
        # As /tmp: tests start programs as other users.
        path.chmod(0o1777)
        try:
            yield {**os.environ, "TMPDIR": str(path)}
        finally:
            clear(path, ())


@contextmanager
def _locked(lock: Path, what: str) -> Iterator[None]:
    """Lock the file until the block ends. Raises ClusterError that names the process that has
    locked it.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            raise ClusterError(f"{what} is in progress: process {handle.read()}") from None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield


def clear(path: Path, clusters: Iterable[str]) -> list[str]:
    """End and remove what a run in that folder has left. Returns a line for each thing found."""
    found = [
        f"a former run left the local cluster {name}: deleted"
        for name in clusters
        if cluster_down(name)
    ]
    for pid, words in processes.with_environment(f"TMPDIR={path}").items():
        if pid != os.getpid():
            processes.send(pid, signal.SIGKILL, group=False)
            found.append(f"a former run left a process: ended {words[:120]}")
    for mount in reversed(mounts(path)):
        subprocess.run(["umount", "--lazy", mount], check=False)
        found.append(f"a former run left a mount: removed {mount}")
    if path.exists():
        found.append(f"a former run left temporary files: removed {path}")
        shutil.rmtree(path)
    return found


def mounts(path: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> list[str]:
    """The mounts at or below a folder, from proc_pid_mountinfo(5). None on another system than
    Linux.
    """
    if not mountinfo.exists():
        return []
    points = [line.split()[4] for line in mountinfo.read_text().splitlines()]
    return [point for point in points if Path(point).is_relative_to(path)]
