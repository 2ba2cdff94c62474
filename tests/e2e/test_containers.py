"""Jobs in images of a real registry, and MPI programs, on workers that are pods: a Slurm cluster of
its own with three.

tests/slurm/test_containers.py has what needs no Kubernetes.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sidecars.contract.project import REGISTRY
from tests.cluster import cache
from tests.cluster import images as built
from tests.cluster.local import existing, named_by
from tests.support.real import contained as running
from tests.support.real import registry
from tests.support.real.check_runs import begin, ended, log_of, result
from tests.support.real.contained import BOX, WORKERS, run_as, worker
from tests.support.real.harness import CommandError, Kubernetes, Slurm, until
from tests.support.real.registry import Registry

MPICH, OPEN_MPI = "libmpich.so.12", "libmpi.so.40"
PROGRAM = (Path(built.REPOSITORY) / "tests/support/real/mpi_program.py").read_text()
WRITE = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"
RANKS = 4
TWO = "--nodelist=slinky-[0-1]"
REPOSITORY = f"{REGISTRY}/slurmd-mpi"
INSTALLED = "/usr/local/lib/all_reduce.py"
ALLREDUCE = {
    "enabled": True,
    "suspend": True,
    "gpus": False,
    "env": {"CHECK_COMMAND": f"python3 {INSTALLED} {MPICH}", "CHECK_SRUN_OPTIONS": "--mpi=pmi2"},
    "limits": {"bus_bandwidth": {"min": "1MB/s"}},
}
"""The chart's check on nodes without GPUs: the program stands in for all_reduce_perf of nccl-tests.
"""


@pytest.fixture(scope="module")
def images(kubernetes: Kubernetes, slurm: Slurm) -> Iterator[Registry]:
    """The registries. The operator runs, because `slurm` does."""
    with registry.running(kubernetes) as found:
        yield found


@pytest.fixture(scope="module")
def contained(
    kubernetes: Kubernetes, images: Registry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Slurm]:
    """The cluster with its users, the registries with the images. The workers run the image
    slurmd-mpi.
    """
    archive = built.build_images(cache.root(), lambda _: None, ("slurmd-mpi",))
    nodes = existing(named_by(str(kubernetes.kubeconfig)) or "").nodes
    with ThreadPoolExecutor(len(nodes)) as nodeset:
        list(nodeset.map(lambda node: node.import_more(archive), nodes))
    values = (
        *("--set", f"nodesets.slinky.slurmd.image.repository={REPOSITORY}"),
        *("--set-json", f"checks.definitions.allreduce={json.dumps(ALLREDUCE)}"),
    )
    with running.running(kubernetes, tmp_path_factory.mktemp("contained"), *values) as found:
        for number in range(WORKERS):
            found.worker(worker(number), "python3", "-c", WRITE, INSTALLED, PROGRAM)
        yield found


def test_many_tasks_on_three_nodes_import_an_image_once_and_run_in_it_as_the_user(
    contained: Slurm, images: Registry
) -> None:
    out = run_as(
        contained,
        "alice",
        *("srun", "-N3", "-n32", "--overcommit", f"--container={BOX}"),
        *("sh", "-c", "echo $(id -u) $(id -g) $(cat /which) $SLURMD_NODENAME $COLOR"),
    )
    lines = Counter(out.splitlines())
    assert sum(lines.values()) == 32
    assert set(lines) == {f"2001 2001 the image slinky-{number} blue" for number in range(WORKERS)}
    layers = running.layers(contained)
    downloads = Counter(images.downloads())
    assert {layer: downloads[layer] for layer in layers} == dict.fromkeys(layers, 1)


def test_a_job_with_a_gpu_has_its_number_and_the_files_of_the_driver_and_another_job_has_none(
    contained: Slurm,
) -> None:
    driver = (
        "install -d /usr/local/nvidia/lib64; cd /usr/local/nvidia/lib64; echo driver "
        ">libcuda.so.570; ln -s libcuda.so.570 libcuda.so.1; echo other >libother.so.1; printf "
        "'#!/bin/sh\\necho smi of the node\\n' >/usr/bin/nvidia-smi; chmod 755 "
        "/usr/bin/nvidia-smi"
    )
    contained.worker(worker(0), "sh", "-c", driver)
    look = (
        "echo GPU=$CUDA_VISIBLE_DEVICES; cat /usr/local/nvidia/lib64/* 2>/dev/null; nvidia-smi "
        "2>/dev/null; echo ${LD_LIBRARY_PATH-none}"
    )
    srun = ("srun", "-w", "slinky-0", f"--container={BOX}")
    found = [
        run_as(contained, "alice", *srun, f"--gres=gpu:{number}", "sh", "-c", look)
        for number in (1, 2)
    ]
    files = "driver\ndriver\nsmi of the node\n/usr/local/nvidia/lib64\n"
    assert found[0] in (f"GPU=0\n{files}", f"GPU=1\n{files}")
    assert found[1] == f"GPU=0,1\n{files}"
    assert run_as(contained, "alice", *srun, "sh", "-c", look) == "GPU=\nnone\n"


def test_the_check_of_containers_measures_on_each_worker_how_long_one_takes_to_start(
    contained: Slurm,
) -> None:
    begin(contained, "container", "container-1")
    assert ended(contained, "container-1") == "Complete", log_of(contained, "container-1")
    found = result(contained, "container")
    assert {name: it["result"] for name, it in found.items()} == {
        f"slinky-{number}": "passed" for number in range(WORKERS)
    }
    assert all(it["measured"]["start_time"].endswith("ms") for it in found.values())


def check(output: str) -> None:
    """All ranks have printed the right sum, and half of them ran on each worker."""
    found = re.findall(
        r"^hello from rank (\d+) of (\d+) on (\S+): the sum is (\d+)$", output, re.MULTILINE
    )
    total = RANKS * (RANKS + 1) // 2
    wanted = [(str(rank), str(RANKS), str(total)) for rank in range(RANKS)]
    assert sorted((rank, size, sum_) for rank, size, _, sum_ in found) == wanted, output
    assert Counter(node for _, _, node, _ in found) == {
        "slinky-0": RANKS // 2,
        "slinky-1": RANKS // 2,
    }, output


def test_srun_starts_a_program_of_mpich_on_two_workers(contained: Slurm) -> None:
    launch = (
        "srun",
        "--mpi=pmi2",
        "-N2",
        TWO,
        f"-n{RANKS}",
        "--overcommit",
        "python3",
        "-c",
        PROGRAM,
        MPICH,
    )
    check(run_as(contained, "alice", *launch))


def test_mpirun_in_a_job_starts_a_program_of_open_mpi_on_two_workers(contained: Slurm) -> None:
    # Its ranks wait for each other without sleeping, on the cores that they share with other tests.
    mpirun = f'timeout 300 mpirun python3 -c "$program" {OPEN_MPI}'
    script = f"#!/bin/bash\nprogram=$(cat <<'end'\n{PROGRAM}\nend\n)\n{mpirun}\n"
    options = ("--parsable", "-N2", TWO, f"-n{RANKS}", "--overcommit", "--output=/home/alice/out")
    number = int(run_as(contained, "alice", "sbatch", *options, stdin=script))
    over = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL")
    until("the job to end", lambda: contained.job(number)["JobState"] in over, 360)
    node = contained.job(number)["BatchHost"].rpartition("-")[2]
    output = contained.worker(worker(int(node)), "cat", "/home/alice/out")
    check(output)
    assert contained.job(number)["JobState"] == "COMPLETED"


def test_srun_refuses_pmix_which_these_images_do_not_have(contained: Slurm) -> None:
    with pytest.raises(CommandError, match="pmix"):
        run_as(contained, "alice", "srun", "--mpi=pmix", "true")
    assert run_as(contained, "alice", "srun", "--mpi=list").split()[-1] == "pmi2"


def test_the_check_allreduce_measures_the_bandwidth_of_mpich_between_the_workers(
    contained: Slurm,
) -> None:
    contained.until_idle(WORKERS)
    begin(contained, "allreduce", "allreduce-1")
    assert ended(contained, "allreduce-1") == "Complete", log_of(contained, "allreduce-1")
    found = result(contained, "allreduce")
    assert {name: it["result"] for name, it in found.items()} == {
        f"slinky-{number}": "passed" for number in range(WORKERS)
    }
    assert all(it["measured"]["bus_bandwidth"].endswith("B/s") for it in found.values()), found
