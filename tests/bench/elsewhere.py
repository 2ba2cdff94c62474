"""Benchmark `elsewhere`: from a fresh clone to the first job, on a cluster that `make up` did not
start.

The cluster pulls from a registry with a password and an authority of its own, and both start from
the filled caches before the clock does. `make up` then runs as a user types it, with an empty
SLURM_CHARTS_CACHE: it installs the Python packages, compiles its programs, builds the images,
pushes them, installs the charts, and runs a job. The second run is the same command again, and the
same command with a new cluster and a new registry.
"""

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench import charts
from tests.bench.figures import Figure, figure
from tests.cluster import cache
from tests.support.real.elsewhere import Site, site
from tests.support.real.harness import REPOSITORY

NAME = "bench"
FIRST_MINUTES, SECOND_MINUTES = 20, 3
LIMIT_SECONDS = 3600
LONG_SECONDS = 10.0
"""A step that takes as long has a figure of its own."""
OF_MAKE = {"MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS"}
"""Variables that `make bench` sets for its programs."""
UNCHANGED = "nothing was done"


def bench() -> list[Figure]:
    """The figures."""
    cache.root().mkdir(parents=True, exist_ok=True)
    # In the folder of the cache: on another file system, overlayfs may not work.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=cache.root()) as name:
        folder = Path(name)
        clone, empty = folder / "clone", folder / "cache"
        subprocess.run(["git", "clone", "--quiet", REPOSITORY, clone], check=True)
        with _ready("one", folder) as found:
            cold, first = _up(found, clone, empty)
            _demand_job(first)
            again, output = _up(found, clone, empty)
            if UNCHANGED not in output:
                raise RuntimeError("the same command has changed something")
        with _ready("two", folder) as found:
            warm, output = _up(found, clone, empty)
            _demand_job(output)
    chart, everything = charts.ROOT / "charts" / "slurm", charts.ALL_VALUES / "slurm.yaml"
    wall, cpu = charts.rendered(chart, everything)
    long = {step: took for step, took in steps(first).items() if took >= LONG_SECONDS}
    return [
        figure("first job, empty caches", cold / 60, "min", most=FIRST_MINUTES),
        *(figure(f"of it: {step}", took, "s") for step, took in long.items()),
        figure("the same command again", again / 60, "min", most=SECOND_MINUTES),
        figure("new cluster and registry, filled caches", warm / 60, "min", most=SECOND_MINUTES),
        figure("helm template slurm, everything enabled", wall, "s", most=charts.MOST_SECONDS),
        figure("helm template slurm, everything enabled: CPU", cpu, "s"),
    ]


@contextmanager
def _ready(name: str, folder: Path) -> Iterator[Site]:
    """A cluster that a user of `make up` need not change further."""
    home = folder / name
    home.mkdir()
    with site(f"{NAME}-{name}", home) as found:
        found.choose_storage_class()
        found.trust_registry()
        yield found


def _up(found: Site, clone: Path, cached: Path) -> tuple[float, str]:
    """Run `make up` of the clone with that cache, and print what it prints. Seconds, and its
    output.
    """
    inherited = {key: value for key, value in os.environ.items() if key not in OF_MAKE}
    started = time.perf_counter()
    with subprocess.Popen(
        ["make", "up"],
        cwd=clone,
        env=inherited | found.environment() | {"SLURM_CHARTS_CACHE": str(cached)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        limit = threading.Timer(LIMIT_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        limit.start()
        lines = []
        try:
            for line in process.stdout:
                lines.append(line)
                print(line, end="", flush=True)
            process.wait()
        finally:
            limit.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise RuntimeError(f"make up: exit code {process.returncode}")
    return time.perf_counter() - started, "".join(lines)


def _demand_job(output: str) -> None:
    """Raises RuntimeError unless `srun -N2 hostname` has run on both workers of the example."""
    hosts = sorted(re.findall(r"^cpu-\d+$", output, re.MULTILINE))
    if hosts != ["cpu-0", "cpu-1"]:
        raise RuntimeError(f"no job has run on two workers: {hosts}")


def steps(output: str) -> dict[str, float]:
    """Seconds of each step in the output of `make up`."""
    found = re.findall(r"^(\S.*?) \.{2,} ok \((\d+\.\d) s\)$", output, re.MULTILINE)
    return {name: float(seconds) for name, seconds in found}
