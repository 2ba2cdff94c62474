"""The NVIDIA GPUs of this host: what `register` reports of them, and what jobs of a real slurmctld
and slurmd get.

Needs root, cgroup v2, and NVIDIA's driver with GPUs that have no MIG devices. slurmd has the files
of the images, with the driver's where NVIDIA's container toolkit mounts them, and the configuration
of the operator and of chart `slurm`.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sidecars.containers import nvidia as driver
from sidecars.register import gpus, nvidia
from sidecars.register.gpus import Verdict, Wanted
from sidecars.slurm import gres
from sidecars.workloads.config import CGROUP_CONF, CONSTRAINTS
from tests.cluster import cache
from tests.cluster.commands import run
from tests.cluster.images import trees
from tests.cluster.install import helm_environment
from tests.cluster.tools import tool
from tests.support.real import plain, ports
from tests.support.real.daemons import Daemons
from tests.support.real.plain import GAMES

CHARTS = Path(__file__).parents[2] / "charts"
SCRIPTS = (
    CHARTS / "slurm/files/checks/gpu.sh",
    *(
        CHARTS / f"slurm-operator/workloads/health-check-gpu-{name}.sh"
        for name in ("answers", "count", "ecc")
    ),
)
NODE = "gpu-0"
CGROUP = Path("/sys/fs/cgroup/slurm-gpus")
LIBRARIES, PROGRAMS = "usr/lib/x86_64-linux-gnu", "usr/bin"
IMAGE = "/srv-images/slurmd"
"""The files of a worker as a container image: a folder, which needs no registry."""

COMPUTE = """\
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *words):
    status = getattr(cuda, name)(*words)
    if status:
        sys.exit(f"{name}: {status}")
count, device = ctypes.c_int(), ctypes.c_int()
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDeviceGetCount", ctypes.byref(count))
result = (ctypes.c_uint32 * 2**20)()
for number in range(count.value):
    call("cuDeviceGet", ctypes.byref(device), number)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(ctypes.sizeof(result)))
    call("cuMemsetD32_v2", memory, 7 + number, ctypes.c_size_t(len(result)))
    call("cuMemcpyDtoH_v2", result, memory, ctypes.c_size_t(ctypes.sizeof(result)))
    print("GPU", number, set(result))
"""
COMPUTING = ("python3", "/usr/local/bin/compute.py")

# slurmd's container has a cgroup of its own, which is the root of its cgroup namespace.
PREPARE = f"""\
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir {CGROUP}
echo $$ >{CGROUP}/cgroup.procs
ldconfig
mkdir -p /run/slurm /run/slurm-oci
chmod 1733 /run/slurm-oci
exec unshare --cgroup sh -c '
umount /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec slurmd -D -N {NODE}'"""
LINES = """\
PartitionName=all Nodes=ALL Default=YES
GresTypes=gpu
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
SelectTypeParameters=CR_Core
"""


@pytest.fixture(scope="module")
def found() -> Verdict:
    """What `register` reports without a NodeSet's wishes."""
    verdict = gpus.decide(nvidia.Nvidia({}).find(), Wanted(None))
    assert verdict.gres, verdict.summary
    return verdict


@pytest.fixture(scope="module")
def cluster(found: Verdict, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """slurmctld, and a slurmd that detects the GPUs automatically."""
    home = tmp_path_factory.mktemp("gpus")
    upper = home / NODE / "upper"
    _add_driver(upper)
    _add_image(upper)
    for place in (upper, upper / IMAGE[1:]):
        folder = place / "usr/local/bin"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "compute.py").write_text(COMPUTE)
    for script in SCRIPTS:
        shutil.copy2(script, upper / "usr/local/bin")
    files = {
        "gres.conf": b"AutoDetect=nvidia\n",
        "cgroup.conf": f"{CGROUP_CONF}{CONSTRAINTS}".encode(),
        **_files_of_the_chart(),
    }
    try:
        with plain.running(
            *(home, ports.GPUS, [NODE], LINES),
            node_options=f"Gres={found.gres}",
            files=files,
            prepare=PREPARE,
        ) as running:
            yield running
    finally:
        for left, _, _ in os.walk(CGROUP, topdown=False):
            Path(left).rmdir()


def _add_driver(upper: Path) -> None:
    """The driver's files, where NVIDIA's container toolkit mounts them."""
    mounts = driver.mounts()
    assert mounts, f"no libcuda.so.1 in {', '.join(driver.LIBRARY_FOLDERS)}"
    for mount in mounts:
        folder = upper / (LIBRARIES if mount.target.startswith(driver.LIBRARIES) else PROGRAMS)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy2(mount.source, folder, follow_symlinks=False)


def _add_image(upper: Path) -> None:
    """The files of slurmd's image as a folder of the job's user."""
    image = upper / IMAGE[1:]

    def whiteouts(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if (Path(folder) / name).is_char_device()]

    for tree in reversed(trees(cache.root(), "slurmd")):
        shutil.copytree(tree, image, symlinks=True, ignore=whiteouts, dirs_exist_ok=True)
    subprocess.run(["chown", "-R", f"{GAMES}:{GAMES}", image], check=True)


def _files_of_the_chart() -> dict[str, bytes]:
    """Those with which workers run jobs in containers."""
    words = ("template", "slurm", CHARTS / "slurm", "--set=containers.enabled=true")
    objects = yaml.safe_load_all(run([tool("helm"), *words], env=helm_environment(), seconds=60))
    data = [
        it["data"]
        for it in objects
        if it and it["kind"] == "ConfigMap" and "oci.conf" in it.get("data", {})
    ]
    [files] = data
    return {name: files[name].encode() for name in ("oci.conf", "plugstack.conf")}


def srun(cluster: Daemons, *words: str) -> "subprocess.CompletedProcess[str]":
    """A job of a user."""
    return cluster.run(NODE, "env", "HOME=/tmp", "srun", "--chdir=/tmp", *words, user=GAMES)


def computed(count: int) -> str:
    """What a job prints that can use so many GPUs."""
    return "".join(f"GPU {number} {{{7 + number}}}\n" for number in range(count))


def number_of(found: Verdict) -> int:
    """How many GPUs this host has."""
    return sum(item.count for item in gres.parse(found.gres))


def test_all_sources_report_the_same_gpus() -> None:
    by_nvml, by_proc, by_smi = (source.read().devices for source in nvidia.default_sources(""))
    assert by_nvml
    assert by_proc == by_nvml
    assert [(it.product, it.uuid) for it in by_smi] == [(it.product, it.uuid) for it in by_nvml]


def test_slurmd_detects_the_gpus_that_register_reports(cluster: Daemons, found: Verdict) -> None:
    done = cluster.run(NODE, "sinfo", "--noheader", "--format=%G", user=GAMES)
    assert gres.total(gres.parse(done.stdout.strip())) == gres.parse(found.gres)
    # Another type or number than that of the node's record would have drained it, with this reason.
    assert cluster.run(NODE, "sinfo", "--noheader", "--list-reasons", user=GAMES).stdout == ""


def test_a_job_computes_on_the_gpus_that_it_was_given(cluster: Daemons, found: Verdict) -> None:
    [kind, *_] = gres.parse(found.gres)
    for wish in ("--gpus=1", f"--gres=gpu:{kind.type}:1"):
        done = srun(cluster, wish, *COMPUTING)
        assert done.stdout == computed(1), done.stderr
    everything = number_of(found)
    done = srun(cluster, f"--gpus={everything}", *COMPUTING)
    assert done.stdout == computed(everything), done.stderr
    done = srun(cluster, f"--gpus={everything + 1}", *COMPUTING)
    assert "Requested node configuration is not available" in done.stderr


def test_a_job_without_gpus_can_open_none(cluster: Daemons) -> None:
    done = srun(cluster, *COMPUTING)
    assert (done.stdout, "cuInit: 100" in done.stderr) == ("", True), done
    for device in nvidia.read_proc(nvidia.PROC).devices:
        done = srun(cluster, "sh", "-c", f"exec 3<>{device.file}")
        assert "Operation not permitted" in done.stderr


@pytest.mark.parametrize("option", ["--container", "--container-image"])
def test_a_container_has_the_gpus_of_its_job_and_the_files_of_the_driver(
    cluster: Daemons, option: str
) -> None:
    # The image has none of them.
    assert srun(cluster, f"{option}={IMAGE}", "sh", "-c", f"ls /{LIBRARIES}/libcuda*").stdout == ""
    done = srun(cluster, "--gpus=1", f"{option}={IMAGE}", *COMPUTING)
    assert done.stdout == computed(1), done.stderr
    done = srun(cluster, "--gpus=1", f"{option}={IMAGE}", "nvidia-smi", "-L")
    assert done.stdout.count("UUID: GPU-") == 1, done.stderr
    done = srun(cluster, f"{option}={IMAGE}", *COMPUTING)
    assert (done.stdout, "libcuda.so.1: cannot open" in done.stderr) == ("", True), done


def test_the_check_and_the_health_scripts_pass_on_sound_gpus(
    cluster: Daemons, found: Verdict
) -> None:
    everything = number_of(found)
    done = srun(cluster, f"--gpus={everything}", "sh", "/usr/local/bin/gpu.sh")
    assert done.stdout == f"{everything} GPUs answer\n", done.stderr
    for script in SCRIPTS[1:]:
        assert health(cluster, script, everything) == (0, "")
    assert health(cluster, SCRIPTS[2], everything + 1) == (
        1,
        f"{everything} of {everything + 1} GPUs\n",
    )


def health(cluster: Daemons, script: Path, expected: int) -> tuple[int, str]:
    """Exit status and output of a script of the NodeSet's health check, as root on the worker."""
    environment = ("SLURM_HEALTH_STATE=/tmp", f"GPUS={expected}")
    done = cluster.run(NODE, "env", *environment, "sh", f"/usr/local/bin/{script.name}")
    return done.returncode, done.stdout + done.stderr
