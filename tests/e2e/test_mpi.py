"""MPI programs over two workers that run the image slurmd-mpi, as a user without rights."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster import cache, images
from tests.cluster.local import existing, named_by
from tests.support.real.check_runs import begin, ended, log_of, result
from tests.support.real.harness import CHARTS, VALUES, CommandError, Kubernetes, Slurm, until

USER = 2001
MPICH, OPEN_MPI = "libmpich.so.12", "libmpi.so.40"
PROGRAM = (Path(images.REPOSITORY) / "tests/support/real/mpi_program.py").read_text()
WRITE = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"
RANKS = 4
REPOSITORY = f"{images.REGISTRY}/slurmd-mpi"
INSTALLED = "/usr/local/lib/all_reduce.py"
ALLREDUCE = {
    "enabled": True,
    "suspend": True,
    "gpus": False,
    "env": {"CHECK_COMMAND": f"python3 {INSTALLED} {MPICH}", "CHECK_SRUN_OPTIONS": "--mpi=pmi2"},
    "limits": {"bus_bandwidth": {"min": "1MB/s"}},
}
"""The chart's check on nodes without GPUs: the program stands in for all_reduce_perf of nccl-tests."""


@pytest.fixture(scope="module")
def parallel(kubernetes: Kubernetes, slurm: Slurm) -> Iterator[Slurm]:
    """A Slurm cluster with two workers of the image, and a user. The operator runs, because `slurm` does."""
    archive = images.build_images(cache.root(), lambda _: None, ("slurmd-mpi",))
    nodes = existing(named_by(str(kubernetes.kubeconfig)) or "").nodes
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(lambda node: node.import_more(archive), nodes))
    found = Slurm(kubernetes, "parallel")
    kubernetes.helm(
        *("upgrade", "--install", "slurm", str(CHARTS / "slurm"), "-n", found.namespace, "-f", str(VALUES)),
        *("--set", f"nodesets.slinky.slurmd.image.repository={REPOSITORY}"),
        *("--set", "nodesets.slinky.oversubscribeNode=true"),
        *("--set-json", f"checks.definitions.allreduce={json.dumps(ALLREDUCE)}"),
    )
    found.until_idle(2)
    add = ("useradd", "--create-home", f"--uid={USER}", "alice")
    found.login(*add)
    for number in range(2):
        found.worker(f"slurm-worker-slinky-{number}", *add)
        found.worker(f"slurm-worker-slinky-{number}", "python3", "-c", WRITE, INSTALLED, PROGRAM)
    yield found
    kubernetes.helm("uninstall", "slurm", "-n", found.namespace, "--ignore-not-found")
    kubernetes.kubectl("delete", "namespace", found.namespace, "--wait=false", "--ignore-not-found")


def run_as_alice(slurm: Slurm, *words: str, stdin: str | None = None) -> str:
    """Run a command on the login node in the user's home folder."""
    become = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "env", "--chdir=/home/alice")
    return slurm.login(*become, "HOME=/home/alice", "USER=alice", *words, timeout=120, stdin=stdin)


def check(output: str) -> None:
    """All ranks have printed the right sum, and half of them ran on each worker."""
    found = re.findall(r"^hello from rank (\d+) of (\d+) on (\S+): the sum is (\d+)$", output, re.MULTILINE)
    total = RANKS * (RANKS + 1) // 2
    wanted = [(str(rank), str(RANKS), str(total)) for rank in range(RANKS)]
    assert sorted((rank, size, sum_) for rank, size, _, sum_ in found) == wanted, output
    assert Counter(node for _, _, node, _ in found) == {"slinky-0": RANKS // 2, "slinky-1": RANKS // 2}, output


def test_srun_starts_a_program_of_mpich_on_two_workers(parallel: Slurm) -> None:
    launch = ("srun", "--mpi=pmi2", "-N2", f"-n{RANKS}", "--overcommit", "python3", "-c", PROGRAM, MPICH)
    check(run_as_alice(parallel, *launch))


def test_mpirun_in_a_job_starts_a_program_of_open_mpi_on_two_workers(parallel: Slurm) -> None:
    # Its ranks wait for each other without sleeping, on the cores that they share with other tests.
    mpirun = f'timeout 300 mpirun python3 -c "$program" {OPEN_MPI}'
    script = f"#!/bin/bash\nprogram=$(cat <<'end'\n{PROGRAM}\nend\n)\n{mpirun}\n"
    options = ("--parsable", "-N2", f"-n{RANKS}", "--overcommit", "--output=/home/alice/out")
    number = int(run_as_alice(parallel, "sbatch", *options, stdin=script))
    ended = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL")
    until("the job to end", lambda: parallel.job(number)["JobState"] in ended, 360)
    node = parallel.job(number)["BatchHost"].rpartition("-")[2]
    output = parallel.worker(f"slurm-worker-slinky-{node}", "cat", "/home/alice/out")
    check(output)
    assert parallel.job(number)["JobState"] == "COMPLETED"


def test_srun_refuses_pmix_which_these_images_do_not_have(parallel: Slurm) -> None:
    with pytest.raises(CommandError, match="pmix"):
        run_as_alice(parallel, "srun", "--mpi=pmix", "true")
    assert run_as_alice(parallel, "srun", "--mpi=list").split()[-1] == "pmi2"


def test_the_check_allreduce_measures_the_bandwidth_of_mpich_between_two_workers(parallel: Slurm) -> None:
    parallel.until_idle(2)
    begin(parallel, "allreduce", "allreduce-1")
    assert ended(parallel, "allreduce-1") == "Complete", log_of(parallel, "allreduce-1")
    found = result(parallel, "allreduce")
    assert {name: it["result"] for name, it in found.items()} == {"slinky-0": "passed", "slinky-1": "passed"}, found
    assert all(it["measured"]["bus_bandwidth"].endswith("B/s") for it in found.values()), found
