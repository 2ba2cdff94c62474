"""Jobs in images of a real registry whose workers are pods, in a Slurm cluster of its own with three workers.

tests/slurm/test_containers.py has what needs no Kubernetes.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.real import contained as running
from tests.support.real import registry
from tests.support.real.check_runs import begin, ended, log_of, result
from tests.support.real.contained import BOX, WORKERS, run_as, worker
from tests.support.real.harness import Kubernetes, Slurm
from tests.support.real.registry import Registry


@pytest.fixture(scope="module")
def images(kubernetes: Kubernetes, slurm: Slurm) -> Iterator[Registry]:
    """The registries. The operator runs, because `slurm` does."""
    with registry.running(kubernetes) as found:
        yield found


@pytest.fixture(scope="module")
def contained(kubernetes: Kubernetes, images: Registry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """The cluster with its users, and the registries with the images."""
    with running.running(kubernetes, tmp_path_factory.mktemp("contained")) as found:
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
        "install -d /usr/local/nvidia/lib64; cd /usr/local/nvidia/lib64; echo driver >libcuda.so.570; "
        "ln -s libcuda.so.570 libcuda.so.1; echo other >libother.so.1; "
        "printf '#!/bin/sh\\necho smi of the node\\n' >/usr/bin/nvidia-smi; chmod 755 /usr/bin/nvidia-smi"
    )
    contained.worker(worker(0), "sh", "-c", driver)
    look = (
        "echo GPU=$CUDA_VISIBLE_DEVICES; cat /usr/local/nvidia/lib64/* 2>/dev/null; nvidia-smi 2>/dev/null; "
        "echo ${LD_LIBRARY_PATH-none}"
    )
    srun = ("srun", "-w", "slinky-0", f"--container={BOX}")
    found = [run_as(contained, "alice", *srun, f"--gres=gpu:{number}", "sh", "-c", look) for number in (1, 2)]
    files = "driver\ndriver\nsmi of the node\n/usr/local/nvidia/lib64\n"
    assert found[0] in (f"GPU=0\n{files}", f"GPU=1\n{files}")
    assert found[1] == f"GPU=0,1\n{files}"
    assert run_as(contained, "alice", *srun, "sh", "-c", look) == "GPU=\nnone\n"


def test_the_check_of_containers_measures_on_each_worker_how_long_one_takes_to_start(contained: Slurm) -> None:
    begin(contained, "container", "container-1")
    assert ended(contained, "container-1") == "Complete", log_of(contained, "container-1")
    found = result(contained, "container")
    assert {name: it["result"] for name, it in found.items()} == {
        f"slinky-{number}": "passed" for number in range(WORKERS)
    }
    assert all(it["measured"]["start_time"].endswith("ms") for it in found.values())
