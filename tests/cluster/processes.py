"""Daemons: started detached, known by pid and start time, ended when asked, found again by a later
run.

A pid alone is never trusted: it may belong to someone else by now.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import cache
from tests.cluster.waiting import until


def start_time(pid: int) -> str | None:
    """When the process started, in a form that is unique on this host across reboots. None: no
    such process.

    Field 22 of proc_pid_stat(5); a zombie counts as gone.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] in "ZX":
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{fields[19]}"


@dataclass(frozen=True)
class Daemon:
    """A program that runs on: its record lies in `folder`/NAME.json and its output in
    `logs`/NAME.log.

    `cgroup` is the file cgroup.procs of the group it starts in; `namespaces` the pid of a process
    whose network and mount namespaces it enters. With `bound` it dies with the process that started
    it.
    """

    name: str
    argv: Sequence[str]
    folder: Path
    logs: Path
    env: Mapping[str, str]
    cgroup: Path | None = None
    namespaces: int | None = None
    bound: bool = False

    @property
    def log(self) -> Path:
        """Where its output is written."""
        return self.logs / f"{self.name}.log"

    def pid(self) -> int | None:
        """The pid if it runs, started with these very words. None otherwise."""
        return self._pid(self._words())

    def start(self) -> bool:
        """Start it unless it runs; one that runs with other words is ended first. False if it
        was nothing to do.
        """
        words = self._words()
        if self._pid(words) is not None:
            return False
        self.stop()
        self.logs.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=self.env,
                start_new_session=True,
            )
        record = {"pid": process.pid, "started": start_time(process.pid), "argv": words}
        cache.write(self.folder / f"{self.name}.json", json.dumps(record))
        _CHILDREN[process.pid] = process
        return True

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if it runs."""
        pid = self._pid(None)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self, seconds: float = 5) -> None:
        """End it: TERM, and KILL if it is not gone after `seconds`. Nothing happens if it doesn't
        run.
        """
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while self._pid(None) is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        self.signal(signal.SIGKILL)
        until(lambda: self._pid(None) is None, f"{self.name} to be gone", 60)
        (self.folder / f"{self.name}.json").unlink(missing_ok=True)

    def last_words(self) -> str:
        """The end of its log."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return f"{self.name} wrote nothing"
        return "\n".join([f"{self.name} printed ({self.log}):", *lines[-12:]])

    def _pid(self, words: list[str] | None) -> int | None:
        try:
            record = json.loads((self.folder / f"{self.name}.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        child = _CHILDREN.get(record["pid"])
        if child is not None:
            child.poll()
        if record["started"] is None or start_time(record["pid"]) != record["started"]:
            return None
        if words is not None and record["argv"] != words:
            return None
        pid: int = record["pid"]
        return pid

    def _words(self) -> list[str]:
        words = list(self.argv)
        if self.bound:
            words = ["setpriv", "--pdeathsig", "KILL", "--", *words]
        if self.namespaces is not None:
            words = [
                "nsenter",
                f"--net=/proc/{self.namespaces}/ns/net",
                f"--mount=/proc/{self.namespaces}/ns/mnt",
                *words,
            ]
        if self.cgroup is not None:
            words = ["sh", "-c", 'echo 0 > "$0" && exec "$@"', str(self.cgroup), *words]
        return words


# Children of this very process leave a zombie until they are waited for.
_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}
