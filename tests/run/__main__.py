"""`python -m tests.run [WHAT]`: all tests, or a part of them. `make help` lists the commands.

The variables of make: T names tests, LANE a lane of the end-to-end tests, SINCE a Git revision, F a
file that is run N times.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from tests.cluster.errors import ClusterError
from tests.run import flakes, place, processes, since, stages, times
from tests.run.runner import Runner
from tests.run.stages import ROOT, Stage

Plan = tuple[list[Stage], list[Stage]]
"""The lanes of a run, which begin together, and the stages that run one by one beside them."""

LOGS = ROOT / "build" / "logs"


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.run", description="Run tests.")
    parser.add_argument(
        "what",
        nargs="?",
        default="all",
        choices=["all", "check", "slurm", "e2e", "times", "flakes"],
    )
    what = parser.parse_args(arguments).what
    tests = stages.split(os.environ.get("T", ""))
    lane = int(os.environ["LANE"]) if os.environ.get("LANE") else None
    if what == "times":
        return print_times()
    revision = os.environ.get("SINCE")
    plans: dict[str, Callable[[], Plan]] = {
        "all": lambda: touched(revision) if revision else whole(),
        "check": lambda: ([], stages.check(tests)),
        "slurm": lambda: ([], [stages.slurm(tests)]),
        "e2e": lambda: (stages.lanes(tests, lane), []),
    }
    try:
        if what == "flakes":
            return flakes.run(os.environ.get("F", ""), int(os.environ.get("N") or flakes.TIMES))
        lanes, others = plans[what]()
        return run(lanes, others, whole=what == "all")
    except ClusterError as error:
        print(f"make: {error}", file=sys.stderr)
        return 1


def whole() -> Plan:
    """`make test`."""
    others = [*stages.static(), stages.unit(beside_lanes=True)]
    others += [
        stages.make("verify"),
        stages.make("docs"),
        stages.programs("processes", nice=stages.A_LITTLE_BEHIND),
        stages.make("charts"),
        stages.slurm(),
        stages.mutants(),
    ]
    return stages.lanes(), others


def touched(revision: str) -> Plan:
    """`make test SINCE=REVISION`. Prints what is left out."""
    changes = since.changed(ROOT, revision)
    choice = since.choose(since.Repository(ROOT), changes)
    print("\n".join(since.summary(choice, changes, revision)), flush=True)
    if choice.whole:
        return whole()
    others = [
        *stages.static(),
        stages.unit(choice.of("tests/unit/"), beside_lanes=True),
        stages.make("verify"),
    ]
    others += [stages.make(name) for name in ("charts", "docs") if name in choice.stages]
    if real := choice.of("tests/integration/", "tests/slurm/"):
        others.append(stages.slurm(real))
    others.append(stages.mutants())
    on_clusters = choice.of("tests/e2e/")
    return stages.lanes(on_clusters) if on_clusters else [], others


def run(lanes: Sequence[Stage], others: Sequence[Stage], *, whole: bool) -> int:
    """Run stages. What they need is built first. A whole run ends at the first failure."""
    every = [*lanes, *others]
    first = [stages.programs("clusters")] if lanes else []
    place.demand_room(
        real=any(stage.cluster or stage.name in {"slurm", "charts"} for stage in every)
    )
    processes.adopt_orphans()
    clusters = [stage.cluster for stage in lanes if stage.cluster]
    with place.taken(place.folder(), clusters, lambda line: print(line, flush=True)) as environment:
        runner = Runner(
            LOGS, environment, first=first, show=len(every) == 1, first_failure_ends=whole
        )
        return runner.run(lanes, others)


def print_times() -> int:
    """`make times`."""
    content = times.latest()
    if content is None:
        print(f"no run has left {times.FILE.relative_to(ROOT)} yet", file=sys.stderr)
        return 1
    print(times.report(content))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
