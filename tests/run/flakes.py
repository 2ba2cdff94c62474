"""`make flakes F=FILE [N=20]`: a file of tests again and again, with one core kept busy.

Each run is a new process with new fixtures: a repetition within one, as of pytest-repeat, would see
the cluster and the daemons of a module only once.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.errors import ClusterError
from tests.run import place, processes, stages
from tests.run.runner import Runner
from tests.run.stages import ROOT

TIMES = 20
FOLDER = ROOT / "build" / "flakes"


@contextmanager
def one_core_busy() -> Iterator[None]:
    """A process computes while the block runs."""
    burner = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", "while True: pass"]
    )
    try:
        yield
    finally:
        burner.kill()
        burner.wait()


def run(file: str, times: int) -> int:
    """Run a file so many times, also after failures. The exit code: 0 if it has always passed."""
    if not (ROOT / file.partition("::")[0]).is_file():
        raise ClusterError(
            f"F={file or 'FILE'} names no file of tests: make flakes F=tests/e2e/test_jobs.py N=20"
        )
    runs = [stages.alone(file, f"run {number}") for number in range(1, times + 1)]
    place.demand_room(real=not file.startswith("tests/unit/"))
    processes.adopt_orphans()
    clusters = {stage.cluster for stage in runs if stage.cluster}
    with place.taken(
        place.folder("-flakes"), clusters, lambda line: print(line, flush=True)
    ) as environment:
        runner = Runner(
            FOLDER / "logs", environment, FOLDER / "parts", record=None, alongside=one_core_busy()
        )
        return runner.run([], runs)
