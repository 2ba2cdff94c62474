"""slurmctld and slurmrestd alone, outside of the Kubernetes cluster: external nodes need no slurmd."""

import asyncio
import contextlib
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from sidecars.slurm import protocol
from sidecars.slurm.errors import SlurmError
from tests.cluster.waiting import until
from tests.contract.simulated import ModelJobs
from tests.contract.target import Target
from tests.support.real import outside

ADDRESS = "127.0.0.1"
_SECONDS = 60


class ExternalSlurm:
    """Both of them. Each can be killed and started again, and finds what it has saved in `home`. `close` ends both."""

    def __init__(self, home: Path, port: int, lines: str = "") -> None:
        """slurmctld at this port with these lines more in slurm.conf, and slurmrestd at the next one. Starts none."""
        self.key = secrets.token_bytes(32)
        self.url = f"http://{ADDRESS}:{port + 1}"
        self._home = home
        conf = outside.conf(ADDRESS, port).replace("CR_Core", "CR_Core_Memory") + lines
        self._files = {
            "slurm.conf": conf.encode(),
            "cgroup.conf": b"CgroupPlugin=disabled\n",
            "slurm.key": secrets.token_bytes(1024),
            "jwt.key": self.key,
        }
        environment = ["SLURM_JWT=daemon", "SLURMRESTD_SECURITY=disable_unshare_files,disable_unshare_sysv"]
        rest = ["env", *environment, "slurmrestd", "-s", "slurmctld", f"{ADDRESS}:{port + 1}"]
        self._commands = {
            "slurmctld": (outside.SLURM, ["/usr/sbin/slurmctld", "-D"]),
            "slurmrestd": (outside.NOBODY, rest),
        }
        self._running: dict[str, tuple[contextlib.ExitStack, subprocess.Popen[bytes]]] = {}

    def start(self, name: str) -> None:
        """Start `slurmctld` or `slurmrestd`, unless it runs."""
        if name not in self._running:
            stack = contextlib.ExitStack()
            user, command = self._commands[name]
            daemon = outside.daemon(self._home / name, name, user, self._files, command)
            self._running[name] = stack, stack.enter_context(daemon)

    def kill(self, name: str) -> None:
        """End it without a warning; it is gone afterwards."""
        if name in self._running:
            stack, _ = self._running.pop(name)
            stack.close()

    def lose_state(self) -> None:
        """Delete what slurmctld has saved. It must not run."""
        shutil.rmtree(self._home / "slurmctld" / "upper" / "state")

    def close(self) -> None:
        """End both."""
        for name in list(self._running):
            self.kill(name)

    def scontrol(self, *words: str, user: str = "root") -> subprocess.CompletedProcess[str]:
        """Run scontrol, as an administrator by default."""
        return self.inside("slurmctld", "scontrol", *words, user=user)

    def inside(self, name: str, *command: str, user: str = "root") -> subprocess.CompletedProcess[str]:
        """Run a command among the files of a daemon."""
        _, process = self._running[name]
        until(lambda: bool(outside.children(process.pid)), f"{name} to start", _SECONDS)
        [child] = outside.children(process.pid)
        there = ["chroot", f"--userspec={user}", f"/proc/{child}/root", *command]
        return subprocess.run(there, capture_output=True, text=True, check=False, timeout=_SECONDS)

    def log(self, name: str) -> str:
        """What it has logged."""
        path = self._home / name / "log"
        return path.read_text(errors="replace") if path.exists() else ""


@contextlib.contextmanager
def running(home: Path, port: int, lines: str = "") -> Iterator[ExternalSlurm]:
    """Both daemons, as soon as slurmctld answers, until the end of the block."""
    slurm = ExternalSlurm(home, port, lines)
    with contextlib.closing(slurm):
        for name in ("slurmctld", "slurmrestd"):
            slurm.start(name)
        asyncio.run(answers(target(slurm)))
        yield slurm


@contextlib.contextmanager
def running_target(home: Path, port: int, lines: str = "") -> Iterator[Target]:
    """As `running`, for scenarios."""
    with running(home, port, lines) as slurm:
        yield target(slurm)


def target(slurm: ExternalSlurm) -> Target:
    """For scenarios, which submit their jobs themselves."""
    return Target(slurm.url, slurm.key, ("external-1", "external-2"), _NoJobs())


class _NoJobs(ModelJobs):
    def __init__(self) -> None:
        """Without a model."""


async def answers(slurm: Target) -> None:
    """Wait until slurmctld does."""

    async def look() -> bool:
        with contextlib.suppress(SlurmError):
            await slurm.call(protocol.get_job_states())
            return True
        return False

    await slurm.until("slurmctld to answer", look)
