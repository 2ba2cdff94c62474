"""The processes of a run: started with a priority, interrupted, and none left at the end.

The run adopts the descendants whose parents have ended, so that it can end all of them.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.run.usage import stat

_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents end. Where the system can't do that, they are
    not found.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start(
    command: Sequence[str], cwd: Path, log: Path | None, nice: int, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own. Output is written to `log`; without one, to this
    process's output.

    It is interrupted if this process is killed. A scheduler that gives sessions equal shares learns
    of `nice`, too.
    """
    bound = ("setpriv", "--pdeathsig", "INT") if shutil.which("setpriv") else ()
    words = [*bound, "nice", "-n", str(nice), *command]
    output = log.open("wb") if log else None
    try:
        process = subprocess.Popen(
            words,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
            start_new_session=True,
        )
    finally:
        if output:
            output.close()
    if nice:
        with contextlib.suppress(OSError):
            Path(f"/proc/{process.pid}/autogroup").write_text(str(nice))
    return process


def send(pid: int, number: signal.Signals, *, group: bool) -> None:
    """Send a signal to a process, or to its process group."""
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if group else os.kill)(pid, number)


def descendants(top: int) -> set[int]:
    """The processes below a process."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        if found := stat(int(path.name)):
            parents[int(path.name)] = found[0]
    below = {top}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return below - {top}


def kill_all(pids: set[int]) -> None:
    """Kill processes."""
    for pid in pids:
        send(pid, signal.SIGKILL, group=False)


def reap() -> None:
    """Wait for the children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def end_descendants(seconds: float = 10) -> list[str]:
    """Kill all descendants of this process. Returns the command lines of those that lived."""
    found = []
    deadline = time.monotonic() + seconds
    reap()
    while (left := descendants(os.getpid())) and time.monotonic() < deadline:
        found += [words for pid in left if (words := command_line(pid)) and words not in found]
        kill_all(left)
        time.sleep(0.05)
        reap()
    return found


def command_line(pid: int) -> str:
    """The words of a process; empty for a process that has ended."""
    with contextlib.suppress(OSError):
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()
        )
    return ""


def with_environment(entry: str) -> dict[int, str]:
    """The processes that were started with an entry NAME=VALUE in their environment, and their
    command lines.
    """
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if entry.encode() in path.read_bytes().split(b"\0"):
                found[int(path.parent.name)] = command_line(int(path.parent.name))
    return found
