"""Benchmark `charts`: how long `helm template` takes. The ceiling is the start of Helm alone.

Each chart is rendered with its defaults, and with the values file that enables everything.
"""

import os
import statistics
import subprocess
import time
from pathlib import Path

from tests.bench.figures import Figure, figure, median
from tests.cluster.tools import tool

ROOT = Path(__file__).parents[2]
ALL_VALUES = ROOT / "tests" / "configurations" / "all-values"
RUNS = 11
SECONDS = 60
MOST_SECONDS = 1.0


def bench() -> list[Figure]:
    """The figures."""
    wall, cpu = _run(["version"])
    bare = "helm version"
    found = [figure(f"{bare}: wall", wall, "s"), figure(f"{bare}: CPU", cpu, "s")]
    for chart in sorted(path.parent for path in (ROOT / "charts").glob("*/Chart.yaml")):
        for values in (None, ALL_VALUES / f"{chart.name}.yaml"):
            name = f"helm template {chart.name}{', everything enabled' if values else ''}"
            chart_wall, chart_cpu = rendered(chart, values)
            found += [
                figure(f"{name}: wall", chart_wall, "s", against=(bare, wall), most=MOST_SECONDS),
                figure(f"{name}: CPU", chart_cpu, "s", against=(bare, cpu)),
            ]
    return found


def rendered(chart: Path, values: Path | None) -> tuple[float, float]:
    """Median wall time and CPU time of `helm template` with these values, in seconds."""
    return _run(["template", "bench", str(chart), *([f"--values={values}"] if values else [])])


def _run(words: list[str]) -> tuple[float, float]:
    """Median wall time and CPU time of the program, in seconds."""
    program = tool("helm")
    cpu: list[float] = []

    def once() -> float:
        before, started = os.times(), time.perf_counter()
        done = subprocess.run([program, *words], capture_output=True, timeout=SECONDS, check=False)
        passed, after = time.perf_counter() - started, os.times()
        if done.returncode:
            raise RuntimeError(f"helm {words[0]}: {done.stderr.decode(errors='replace')}")
        used = (
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
        cpu.append(used)
        return passed

    wall = median(once, RUNS)
    # The first run doesn't count, as in `median`.
    return wall, statistics.median(cpu[1:])
