"""`python -m tests.bench [NAME...]`: run all benchmarks or the named ones; results also go to build/bench/NAME.json."""

import sys
from pathlib import Path

from tests.bench import controlplane, figures, kube, nodeset, slurm, worker

BENCHES: dict[str, figures.Bench] = {
    "kube": kube.bench,
    "slurm": slurm.bench,
    "controlplane": controlplane.bench,
    "nodeset": nodeset.bench,
    "worker": worker.bench,
}

if __name__ == "__main__":
    sys.exit(figures.run(sys.argv[1:], BENCHES, Path(__file__).parents[2] / "build" / "bench"))
