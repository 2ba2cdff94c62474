"""The driver's files, with empty files as stand-ins. No test here has a GPU."""

from pathlib import Path

import pytest

from sidecars.containers import nvidia
from sidecars.containers.mounts import Mount


@pytest.mark.parametrize(
    ("job", "want"),
    [
        ({}, False),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, False),
        ({"SLURM_JOB_GPUS": ""}, False),
        ({"SLURM_JOB_GPUS": "0"}, True),
        ({"SLURM_STEP_GPUS": "1,2"}, True),
    ],
)
def test_only_jobs_with_gpus_get_the_driver(job: dict[str, str], want: bool) -> None:
    assert nvidia.wanted(job) is want


def test_the_driver_is_mounted_file_by_file(tmp_path: Path) -> None:
    libraries, tools = tmp_path / "lib", tmp_path / "bin"
    libraries.mkdir()
    tools.mkdir()
    (libraries / "libcuda.so.570.1").touch()
    (libraries / "libcuda.so.1").symlink_to("libcuda.so.570.1")
    (libraries / "libnvidia-ml.so.1").touch()
    (libraries / "libnvidia-gone.so.1").symlink_to("nothing")
    (libraries / "libc.so.6").touch()
    (tools / "nvidia-smi").touch()
    found = nvidia.mounts(("/no/such", str(libraries)), ("/no/such", str(tools)))
    assert found == (
        Mount(f"{libraries}/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"),
        Mount(f"{libraries}/libcuda.so.570.1", "/usr/local/nvidia/lib64/libcuda.so.570.1"),
        Mount(f"{libraries}/libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1"),
        Mount(f"{tools}/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi"),
    )


def test_a_node_without_a_driver_has_nothing_to_mount(tmp_path: Path) -> None:
    assert nvidia.mounts((str(tmp_path),), (str(tmp_path),)) == ()


def test_programs_find_the_driver_after_what_the_image_has() -> None:
    variables = {"PATH": "/bin", "LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"}
    nvidia.add_paths(variables)
    assert variables == {
        "PATH": "/bin:/usr/local/nvidia/bin",
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
    }
