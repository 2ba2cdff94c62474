"""When something happened, by the clocks of the product: of its logs, and of the API server.

How long a test takes to look is no part of it. All times are epoch seconds, and all nodes have the
clock of this host.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.real.harness import CommandError, Slurm, seconds, until


def changed(slurm: Slurm, kind: str, name: str) -> float:
    """When `kubectl patch` last changed the object. The API server drops the fraction, so it was up
    to 1 s later.
    """
    found = slurm.kubernetes.get("-n", slurm.namespace, kind, name, "--show-managed-fields")
    fields = found["metadata"]["managedFields"]
    return max(seconds(it["time"]) for it in fields if it["manager"] == "kubectl-patch")


def logged(slurm: Slurm, pod: str, container: str, text: str) -> float:
    """When the container last logged a line with this text. Raises CommandError if it never has."""
    return max(times(slurm.kubernetes.kubectl(*_logs(slurm, pod), "-c", container), text))


def times(lines: str, text: str) -> list[float]:
    """Those of each line of `kubectl logs --timestamps` with this text. Raises CommandError if no
    line has it.
    """
    found = [seconds(line.partition(" ")[0]) for line in lines.splitlines() if text in line]
    if not found:
        raise CommandError(f"no line with {text!r} in:\n{lines}")
    return found


@contextmanager
def followed(slurm: Slurm, pod: str) -> Iterator[Path]:
    """A file with the lines for `times` of all containers of a Ready pod: once it is deleted, it
    has no log.
    """
    words = (*_logs(slurm, pod), "--all-containers", "--max-log-requests=20", "--follow")
    with tempfile.NamedTemporaryFile("w") as file:
        command = [str(slurm.kubernetes.kubectl_path), *words]
        process = subprocess.Popen(command, stdout=file, env=slurm.kubernetes.environment)
        path = Path(file.name)
        try:
            until("the log to be followed", lambda: path.stat().st_size)
            yield path
        finally:
            process.terminate()
            process.wait()


def _logs(slurm: Slurm, pod: str) -> tuple[str, ...]:
    return ("-n", slurm.namespace, "logs", pod, "--timestamps")
