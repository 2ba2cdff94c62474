"""Running a program to its end, with an error that shows what it printed."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.errors import ClusterError

GO = {"GOGC": "400"}
"""For programs in Go, ours all: a quarter less time of the processor, for memory that a test host
has.
"""


def environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a program: the given one, by default this process's, and GO where it
    names nothing of that.
    """
    return {**GO, **(os.environ if env is None else env)}


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | bytes | None = None,
    seconds: float = 600,
) -> str:
    """The program's standard output. Raises ClusterError with its last lines if it fails or takes
    over `seconds`.
    """
    words = [str(word) for word in argv]
    given = stdin.encode() if isinstance(stdin, str) else stdin
    try:
        done = subprocess.run(
            words,
            env=environment(env),
            cwd=cwd,
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{' '.join(words[:6])}: not done after {seconds:.0f} s") from None
    except FileNotFoundError:
        raise ClusterError(f"{words[0]}: no such program") from None
    if done.returncode != 0:
        message = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()[-25:]
        raise ClusterError(
            "\n".join([f"{' '.join(words[:8])}: exit code {done.returncode}", *message])
        )
    return done.stdout.decode(errors="replace")


def succeeds(
    argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, seconds: float = 30
) -> bool:
    """Whether the program ends with 0 within `seconds`."""
    try:
        run(argv, env=env, seconds=seconds)
    except ClusterError:
        return False
    return True
