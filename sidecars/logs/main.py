"""Role `logs`, a native sidecar of worker pods: prints the output of jobs until the pod has ended.

Between steps it waits for SIGTERM. When nobody reads its output, it waits, and the files keep what
it hasn't read.
"""

import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from sidecars.contract import environment as variables
from sidecars.contract import podfiles
from sidecars.contract.environment import number, required
from sidecars.logs import edge, lines
from sidecars.logs.records import Settings
from sidecars.logs.shipper import LEAVE_SECONDS, Shipper

READ_EVERY = 0.5
"""Seconds between two reads of the shared folder."""
OPEN_FILES = 4096
USER = 65532
"""The user of the sidecars. With private files, this process is root only while it opens one."""


class System(Protocol):
    """What the loop needs of the system that it runs on."""

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        ...

    def time(self) -> str:
        """Return the time of the wall clock: UTC in the format of RFC 3339."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait for SIGTERM for at most `seconds`. Returns whether it arrived."""
        ...

    def write(self, data: bytes, until: Callable[[], bool]) -> bool:
        """Print. Returns False if nobody took all of it before `until` became true."""
        ...


def run(settings: Settings, shelf: edge.Shelf, shipper: Shipper, system: System) -> None:
    """Print until the pod has ended. Raises OSError when the shared folder can't be read."""
    terminating = False
    leave_by = float("inf")
    about = {"node": settings.node, "stream": "logs"}

    def expired() -> bool:
        nonlocal terminating, leave_by
        terminating = terminating or system.wait(0)
        if terminating and leave_by == float("inf"):
            leave_by = system.now() + LEAVE_SECONDS
        return system.now() >= leave_by

    next_scan = 0.0
    while True:
        now = system.now()
        if now >= next_scan or terminating:
            next_scan = now + READ_EVERY
            found = shelf.scan()
            for job in found.jobs:
                shipper.announce(job)
            for program in found.programs:
                shipper.program(*program)
            for key in found.ended:
                shipper.ended(key, now)
            if found.health:
                shipper.health()
            unknown = [f"job {job.key}: {job.unknown}" for job in found.jobs if job.unknown]
            for fault in found.faults + unknown:
                system.write(lines.event(system.time(), about, fault), expired)
        if terminating:
            expired()
            shipper.leave(now)
        data, pause = shipper.step(now, system.time())
        if data and not system.write(data, expired):
            return
        if shipper.is_done or expired():
            system.write(shipper.drop_all(system.time()), expired)
            return
        if not terminating:
            terminating = system.wait(min(pause, READ_EVERY))
        elif pause:
            time.sleep(min(pause, 0.05))


class RealSystem:
    """The real System: monotonic clock, SIGTERM blocked and waited for, stdout without blocking."""

    def __init__(self, output: int = 1) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        os.set_blocking(output, False)
        self._output = output
        self._poll = select.poll()
        self._poll.register(output, select.POLLOUT)

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        return time.monotonic()

    def time(self) -> str:
        """Return the time of the wall clock: UTC in the format of RFC 3339."""
        nanoseconds = time.time_ns()
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(nanoseconds // 1_000_000_000))
        return f"{seconds}.{nanoseconds // 1000 % 1_000_000:06d}Z"

    def wait(self, seconds: float) -> bool:
        """Wait for SIGTERM for at most `seconds`. Returns whether it arrived."""
        return signal.sigtimedwait({signal.SIGTERM}, seconds) is not None

    def write(self, data: bytes, until: Callable[[], bool]) -> bool:
        """Print. Returns False if nobody took all of it before `until` became true."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._output, left) :]
            except BlockingIOError:
                if until():
                    return False
                self._poll.poll(200)
        return True


def main(arguments: Sequence[str] = (), *, environment: Mapping[str, str] = os.environ) -> int:
    """Run the role. Return 0 when the pod has ended, and 2 for an argument or for an environment
    that can't be used.
    """
    try:
        if arguments:
            raise ValueError(
                f"unexpected argument {arguments[0]!r}; it is configured by its environment"
            )
        settings, files = configure(environment)
        if settings.private_files:
            _drop_root()
        # Before slurmd mounts it: a folder that the kubelet creates is open to all users.
        podfiles.create_private(files.inbox)
    except (ValueError, OSError) as fault:
        print(f"logs: {fault}", file=sys.stderr)
        return 2
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (OPEN_FILES if hard < 0 else min(OPEN_FILES, hard), hard)
    )
    # Jobs come first.
    os.nice(10)
    system = RealSystem()
    where = ", ".join(files.folders) or "no folder: slurmd has no volume for output files"
    start = {"node": settings.node, "stream": "logs"}
    system.write(
        lines.event(system.time(), start, f"prints the output of jobs in {where}"), lambda: False
    )
    run(settings, edge.Shelf(files, settings.node), Shipper(settings, files), system)
    return 0


def _drop_root() -> None:
    try:
        edge.drop_root(USER)
    except PermissionError as error:
        needs = f"{variables.LOGS_PRIVATE_FILES} needs root with the capabilities SETUID and SETGID"
        raise ValueError(needs) from error


def configure(environment: Mapping[str, str]) -> tuple[Settings, edge.RealFiles]:
    """Return the settings, and the files that may be read, from the environment of the pod
    template. Raises ValueError.
    """
    settings = Settings(
        node=required(environment, variables.SLURM_NODE_NAME),
        bytes_per_second=number(environment, variables.LOGS_BYTES_PER_SECOND, 10 << 20),
        backlog_bytes=number(environment, variables.LOGS_BACKLOG_BYTES, 256 << 20),
        private_files=environment.get(variables.LOGS_PRIVATE_FILES) == "true",
    )
    if settings.bytes_per_second < 1:
        raise ValueError(f"{variables.LOGS_BYTES_PER_SECOND} must be at least 1")
    folders = [
        folder for folder in environment.get(variables.LOGS_FOLDERS, "").split("\n") if folder
    ]
    for folder in folders:
        if not folder.startswith("/"):
            raise ValueError(
                f"{variables.LOGS_FOLDERS} contains {folder!r}, which isn't an absolute path"
            )
    inbox = Path(
        environment.get(variables.SLURM_LOGS_DIR) or podfiles.folder(environment) / podfiles.JOBS
    )
    return settings, edge.RealFiles(
        inbox, [os.path.realpath(folder) for folder in folders], settings.private_files, writer=0
    )
