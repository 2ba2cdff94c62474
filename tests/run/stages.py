"""What a run consists of: its stages, with the command of each and the command that repeats it."""

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e import order

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SLURM = ("tests/integration", "tests/slurm")
BEHIND = 19
"""Niceness of what runs beside the lanes: it takes what they leave."""

A_LITTLE_BEHIND = 10
"""Niceness of tests beside the lanes: at the lowest priority, they miss deadlines."""

ALMOST_EVEN = 5
"""Niceness of tests with deadlines of Slurm and Kubernetes."""


@dataclass(frozen=True)
class Stage:
    """A command that is run to its end. `lane` is the number of the lane of an end-to-end test."""

    name: str
    command: tuple[str, ...]
    repeat: str
    """The command that repeats it. A pytest stage's takes T=TEST."""

    lane: int | None = None
    pytest: bool = False
    nice: int = 0
    cluster: str | None = None
    """The name of its local cluster, which exists as long as it runs."""

    shown: bool = False
    """Whether it prints while it runs."""

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.name} lane {self.lane}" if self.lane else self.name

    def again(self, test: str | None) -> str:
        """The command that repeats the stage, or one of its tests."""
        return f"{self.repeat} T={shlex.quote(test)}" if test and self.pytest else self.repeat


def split(tests: str) -> list[str]:
    """The tests that a variable of make names. A name can contain spaces within its brackets."""
    return re.split(r"\s+(?=tests/)", tests.strip()) if tests.strip() else []


def _pytest(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "pytest", "--quiet", *words)


def static() -> list[Stage]:
    """Format, lint, types, layers. They take seconds and fail often, so they don't step back behind
    the lanes.
    """
    return [
        Stage("format", (str(BIN / "ruff"), "format", "--check", "."), "make check"),
        Stage("lint", (str(BIN / "ruff"), "check", "."), "make check"),
        Stage("types", (str(BIN / "mypy"),), "make check"),
        Stage("layers", (str(BIN / "lint-imports"), "--no-cache"), "make check"),
    ]


def unit(tests: Sequence[str] = (), *, beside_lanes: bool = False) -> Stage:
    """The unit tests, or some. Beside lanes, each test has more time. Alone, a third process fills
    the waits of two.
    """
    chosen = list(tests) or ["tests/unit"]
    ways = ("-n", "2", "--timeout=600") if beside_lanes else ("-n", "3")
    command = _pytest(*ways, "--dist", "worksteal", *chosen)
    return Stage("unit", command, "make check", pytest=True, nice=A_LITTLE_BEHIND)


def mutants() -> Stage:
    """Some of the listed mutants that the latest changes concern."""
    command = (sys.executable, "-m", "tests.mutants", "--since", "--at-most=4")
    return Stage("mutants", command, "make check", nice=BEHIND)


def check(tests: Sequence[str] = ()) -> list[Stage]:
    """`make check`, or some of its tests."""
    return [unit(tests)] if tests else [*static(), unit(), mutants()]


def programs(what: str, *, nice: int = 0) -> Stage:
    """Builds what the tests on `clusters`, or those with `processes`, need and the cache lacks."""
    command = (sys.executable, "-m", "tests.cluster.ahead", what)
    repeat = f"python -m tests.cluster.ahead {what}"
    return Stage(f"programs of {what}", command, repeat, nice=nice, shown=True)


def make(name: str) -> Stage:
    """A target of the Makefile."""
    return Stage(name, ("make", "--no-print-directory", name), f"make {name}", nice=BEHIND)


def slurm(tests: Sequence[str] = ()) -> Stage:
    """Real daemons as processes: a kube-apiserver with etcd, and those of Slurm."""
    chosen = list(tests) or [folder for folder in SLURM if (ROOT / folder).is_dir()]
    command = _pytest("-n", "4", "--dist", "loadfile", "--timeout=120", *chosen)
    return Stage("slurm", command, "make slurm", pytest=True, nice=ALMOST_EVEN)


def _on_cluster(cluster: str, *tests: str) -> tuple[str, ...]:
    return _pytest(f"--cluster={cluster}", "--timeout=900", "-o", "timeout_func_only=true", *tests)


def e2e(lane: int, tests: Sequence[str] = ()) -> Stage:
    """A lane of the end-to-end tests, or some tests on its cluster."""
    cluster = f"e2e-{lane}"
    chosen = list(tests) or [f"tests/e2e/{name}.py" for name in order.LANES[lane]]
    return Stage(
        "e2e",
        _on_cluster(cluster, *chosen),
        f"make e2e LANE={lane}",
        lane,
        pytest=True,
        cluster=cluster,
    )


def alone(file: str, name: str) -> Stage:
    """A file of tests in one process, with all that its fixtures create. For a file that runs many
    times.
    """
    repeat = f"make flakes F={file}"
    if file.startswith("tests/e2e/"):
        cluster = "e2e-flakes"
        return Stage(name, _on_cluster(cluster, file), repeat, pytest=True, cluster=cluster)
    return Stage(name, _pytest("--timeout=120", file), repeat, pytest=True)


def lanes(tests: Sequence[str] = (), lane: int | None = None) -> list[Stage]:
    """The lanes that have one of the tests; with `lane`, that one with all of them. No tests: the
    whole lanes.
    """
    if lane is not None or not tests:
        return [e2e(number, tests) for number in ([lane] if lane is not None else order.LANES)]
    of_lanes: dict[int, list[str]] = {}
    for test in sorted(tests, key=lambda test: order.position(Path(test.partition("::")[0]).stem)):
        of_lanes.setdefault(order.lane(Path(test.partition("::")[0]).stem), []).append(test)
    return [e2e(number, some) for number, some in of_lanes.items()]
