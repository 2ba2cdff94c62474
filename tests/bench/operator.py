"""The operator and other programs as their users run them, in processes that a benchmark looks
at.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from tests.cluster.control_plane import ControlPlane

ROOT = Path(__file__).parents[2]
CHECKOUT_VARIABLE = "SLURM_BENCH_OPERATOR"
"""Environment variable: the checkout whose program is started; without it, this one."""
QUIET_SECONDS = 2.0
WAIT_SECONDS = 240.0


async def until(what: str, look: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> float:
    """Wait until `look` is true; the time then, by `time.monotonic`. Raises TimeoutError, which
    names `what`.
    """
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                found = look()
                if found if isinstance(found, bool) else await found:
                    return time.monotonic()
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise TimeoutError(f"waited {WAIT_SECONDS:g} s until {what}") from None


class Program:
    """One of our programs as a process, from the checkout that is measured. Its log is in `log`."""

    def __init__(
        self, arguments: Sequence[str | Path], log: Path, profile: Path | None = None
    ) -> None:
        """`profile`: a file into which cProfile writes at its end."""
        python = [
            sys.executable,
            *(["-m", "cProfile", "-o", str(profile)] if profile is not None else []),
        ]
        self.log = log
        self._begin = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as stream:
            self._process = subprocess.Popen(
                [*python, "-m", "sidecars", *arguments],
                cwd=os.environ.get(CHECKOUT_VARIABLE) or ROOT,
                stdout=stream,
                stderr=stream,
            )

    def cpu(self) -> float:
        """Seconds of CPU so far; see proc_pid_stat(5)."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, field: str) -> float:
        """MiB of VmRSS or VmHWM; see proc_pid_status(5)."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(rf"^{field}:\s+([0-9]+) kB$", status, re.MULTILINE)
        if found is None:
            raise RuntimeError(f"it has ended: {self.log.read_text()[-2000:]}")
        return int(found[1]) / 1024

    async def until_quiet(self) -> float:
        """Wait until it does next to nothing; its CPU up to then."""
        before = self.cpu()
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                await asyncio.sleep(QUIET_SECONDS)
                spent, before = self.cpu() - before, self.cpu()
                if spent < 0.05 * QUIET_SECONDS:
                    return before

    def stop(self) -> None:
        """End it, as Kubernetes does. One that has ended stays as it is."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def logged(self) -> str:
        """Its log since it was started."""
        return self.log.read_text()[self._begin :]


class Operator(Program):
    """The operator, for everything in one namespace. `url` is slurmrestd's; `others`: more
    namespaces to watch.
    """

    def __init__(
        self,
        plane: ControlPlane,
        namespace: str,
        url: str,
        profile: Path | None = None,
        others: Sequence[str] = (),
    ) -> None:
        super().__init__(
            [
                *("operator", f"--kubeconfig={plane.kubeconfig}", f"--slurmrestd-url={url}"),
                *(
                    f"--namespaces={','.join((namespace, *others))}",
                    "--health-addr=0",
                    "--metrics-addr=0",
                ),
                *("--leader-elect", f"--leader-elect-namespace={namespace}"),
            ],
            plane.folder / "operator.log",
            profile,
        )
