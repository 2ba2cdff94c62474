"""`python -m tests.bench [NAME...] [--former DIR]`: run all benchmarks or the named ones; see
CONTRIBUTING.md.

Results also go to build/bench/NAME.json.
"""

import argparse
import sys
from pathlib import Path

from tests.bench import (
    autoscale,
    bridge,
    charts,
    checks,
    containers,
    controlplane,
    elsewhere,
    exporter,
    figures,
    kube,
    logs,
    nodeset,
    postrender,
    slurm,
    worker,
)
from tests.bench.former import comparing

BENCHES: dict[str, figures.Bench] = {
    "autoscale": autoscale.bench,
    "bridge": bridge.bench,
    "charts": charts.bench,
    "checks": checks.bench,
    "kube": kube.bench,
    "slurm": slurm.bench,
    "controlplane": controlplane.bench,
    "nodeset": nodeset.bench,
    "worker": worker.bench,
    "containers": containers.bench,
    "logs": logs.bench,
    "elsewhere": elsewhere.bench,
    "exporter": exporter.bench,
    "postrender": postrender.bench,
}


def main() -> int:
    """Run what the arguments name; see `figures.run` for the status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument(
        "--former", type=Path, metavar="DIR", help="a worktree of a former commit to compare with"
    )
    parser.add_argument(
        "--rounds", type=int, default=1, metavar="N", help="how often both are measured, in turns"
    )
    given = parser.parse_args()
    benches = BENCHES
    if given.former is not None:
        benches = {
            name: comparing(name, bench, given.former, given.rounds)
            for name, bench in BENCHES.items()
        }
    return figures.run(given.names, benches, figures.FOLDER)


if __name__ == "__main__":
    sys.exit(main())
