"""Daemons as plain processes of this host, in the files of their images: started, killed, entered.

Needs root.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.waiting import until
from tests.support.real import outside
from tests.support.real.harness import WILL_COME


class NotRunning(Exception):
    """A command was to run in a daemon that doesn't."""


@dataclass
class _Daemon:
    image: str
    user: int
    command: Sequence[str]
    files: Mapping[str, bytes]
    folders: Mapping[str, Path] | None
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    process: subprocess.Popen[bytes] | None = None


class Processes:
    """Daemons, whose files and logs are in `home`/NAME. `close` ends all of them.

    Each can be killed and started again, and finds what it has saved.
    """

    def __init__(self, home: Path) -> None:
        """Starts none."""
        self.home = home
        self._all: dict[str, _Daemon] = {}

    # --- daemons

    def add(
        self,
        name: str,
        image: str,
        user: int,
        command: Sequence[str],
        files: Mapping[str, bytes],
        folders: Mapping[str, Path] | None = None,
    ) -> None:
        """Start a program of an image as this user, with these `files` in /etc/slurm.

        `folders` of this host are mounted at the paths that are their keys.
        """
        assert name not in self._all, f"{name} exists"
        self._all[name] = _Daemon(image, user, command, files, folders)
        self.start(name)

    def start(self, name: str) -> None:
        """Start it, unless it runs. Returns when it runs in the files of its image, or has
        ended.
        """
        daemon = self._all[name]
        if daemon.process is not None:
            return
        daemon.process = daemon.stack.enter_context(
            outside.daemon(
                self.home / name,
                daemon.image,
                daemon.user,
                daemon.files,
                daemon.command,
                daemon.folders,
            )
        )
        until(
            lambda: not self.runs(name) or self._entered(name),
            f"{name} to start",
            WILL_COME,
            self.log,
        )

    def kill(self, name: str) -> None:
        """End it without a warning, unless it doesn't run; it is gone afterwards."""
        daemon = self._all[name]
        daemon.process = None
        daemon.stack.close()

    def end(self, name: str) -> None:
        """Ask it to end; it is gone afterwards."""
        os.kill(self.pid(name), signal.SIGTERM)
        until(lambda: not self.runs(name), f"{name} to end", WILL_COME, self.log)
        self.kill(name)

    def forget(self, name: str) -> None:
        """Kill it. Another one of this name may follow, and finds nothing of what this one has
        saved.
        """
        self.kill(name)
        del self._all[name]
        former = sum(1 for _ in self.home.glob(f"{name}.*"))
        (self.home / name).rename(self.home / f"{name}.{former}")

    def runs(self, name: str) -> bool:
        """Whether it has been started, and hasn't ended."""
        process = self._all[name].process
        return process is not None and process.poll() is None

    def ended(self) -> list[str]:
        """Those that have been started, and have ended."""
        return [
            name for name, it in self._all.items() if it.process is not None and not self.runs(name)
        ]

    def close(self) -> None:
        """End all, the last one first."""
        with contextlib.ExitStack() as ends:
            for name in self._all:
                ends.callback(self.kill, name)

    # --- what is inside of them

    def pid(self, name: str) -> int:
        """The first process of the daemon's namespaces."""
        process = self._all[name].process if name in self._all else None
        found = [] if process is None else outside.children(process.pid)
        if not found:
            raise NotRunning(f"{name}\n{self.log(name)[-3000:]}")
        return found[0]

    def root(self, name: str) -> Path:
        """The root of a daemon that runs."""
        return Path(f"/proc/{self.pid(name)}/root")

    def run(
        self,
        name: str,
        *words: str,
        user: int = 0,
        stdin: str = "",
        check: bool = False,
        seconds: float = WILL_COME,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command among the processes and in the files of a daemon, in /tmp. `check`: it must
        succeed.
        """
        pid = self.pid(name)
        enter = (
            "nsenter",
            f"--target={pid}",
            "--mount",
            "--uts",
            "--pid",
            f"--root=/proc/{pid}/root",
        )
        become = (
            "setpriv",
            f"--reuid={user}",
            f"--regid={user}",
            "--clear-groups",
            "env",
            "--chdir=/tmp",
        )
        done = subprocess.run(
            [*enter, *become, *words],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            env=outside.environment(),
        )
        assert not check or done.returncode == 0, (done, self.log())
        return done

    def log(self, name: str = "*") -> str:
        """What it has logged, or all have."""
        return "\n".join(
            path.read_text(errors="replace") for path in sorted(self.home.glob(f"{name}/log"))
        )

    def _entered(self, name: str) -> bool:
        """Whether its first process has its own root, and nothing else of this host's."""
        with contextlib.suppress(OSError, NotRunning):
            root = self.root(name)
            return not root.samefile("/") and not (root / ".host").exists()
        return False
