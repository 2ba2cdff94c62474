"""Benchmark `containers`: what a container adds to a job's start, and how often many tasks read a
new image.

Real Slurm on a local cluster of its own, with three workers that share the cache of images, and a
real registry. Each figure stands beside the same job without a container, in turns with it.
"""

import statistics
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.figures import Figure, figure
from tests.support.real import contained, registry
from tests.support.real.contained import BOX, run_as
from tests.support.real.harness import Slurm
from tests.support.real.installed import cluster, install_operator

JOBS = 15
TASKS = 32
NODE = "slinky-0"
ONE = ("-N1", "-n1", f"--nodelist={NODE}")
MANY = ("-N3", f"-n{TASKS}", "--overcommit")

_TIMES = r"""
rounds=$1; shift
for round in $(seq "$rounds"); do
  for image in "" "--container=$IMAGE"; do
    start=$EPOCHREALTIME
    srun "$@" $image id >/dev/null || exit
    end=$EPOCHREALTIME
    echo "${image:+in}" $((${end/./} - ${start/./}))
  done
done
"""


def bench() -> list[Figure]:
    """The figures."""
    with TemporaryDirectory() as folder, cluster("bench-containers") as kubernetes:
        install_operator(kubernetes, f"namespaces={{{contained.NAMESPACE}}}")
        with (
            registry.running(kubernetes) as images,
            contained.running(kubernetes, Path(folder)) as slurm,
        ):
            [plain_many], [first_many] = _measure(slurm, 1, MANY)
            read = Counter(images.downloads())
            imports = max(read[layer] for layer in contained.layers(slurm))
            plain, inside = _measure(slurm, JOBS, ONE)
            cached_plain, cached_many = _measure(slurm, 3, MANY)
    plain_one, inside_one = statistics.median(plain), statistics.median(inside)
    of_many = ("the same job without", plain_many)
    cached = ("the same jobs without", statistics.median(cached_plain))
    return [
        figure(f"{TASKS} tasks on 3 nodes, a new image: imports", imports, "", most=1),
        figure(f"{TASKS} tasks on 3 nodes, a new image: time", first_many, "s", against=of_many),
        figure(
            f"{TASKS} tasks on 3 nodes, image cached: time",
            statistics.median(cached_many),
            "s",
            against=cached,
        ),
        figure(
            "job of one task, image cached: time",
            inside_one,
            "s",
            against=("the same job without", plain_one),
        ),
        figure(
            "job of one task, image cached: more than without",
            inside_one - plain_one,
            "s",
            most=0.3,
        ),
    ]


def _measure(
    slurm: Slurm, rounds: int, options: tuple[str, ...]
) -> tuple[list[float], list[float]]:
    """Seconds of srun without and with the image, in turns, on the login node."""
    words = ("env", f"IMAGE={BOX}", "bash", "-c", _TIMES, "times", str(rounds), *options)
    lines = [line.split() for line in run_as(slurm, "alice", *words).splitlines()]
    plain = [int(words[0]) / 1e6 for words in lines if len(words) == 1]
    inside = [int(words[1]) / 1e6 for words in lines if len(words) == 2]
    if len(plain) != rounds or len(inside) != rounds:
        raise RuntimeError(f"{rounds} rounds printed {lines}")
    return plain, inside
