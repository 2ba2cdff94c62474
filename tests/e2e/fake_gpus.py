"""GPUs that don't exist on a node of the local cluster: a device plugin, and what NVIDIA's
software would show.

What is real: the kubelet's device manager, the device nodes in the containers, slurmd's
AutoDetect=nvidia, which reads a /proc/driver/nvidia created in its container. What is not: the
device behind /dev/nvidiaN, and nvidia-smi.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.tools import tool
from tests.support.real.harness import CHARTS, VALUES, Kubernetes, Slurm, until, until_equal

FIXTURES = Path(__file__).parents[1] / "fixtures/gpu"
RESOURCE = "nvidia.com/gpu"
POD = "fake-gpus"
WORKER = "slurm-worker-gpu-0"
NODESET = ("nodesets.gpu.gpu.enabled=true", "controller.extraConfMap.HealthCheckInterval=2")
"""One word for the NodeSet. The interval is for the tests' sake: 30 s by default."""

_SMI = """#!/bin/sh
# As nvidia-smi -L in a container: the GPUs that NVIDIA_VISIBLE_DEVICES names, less those in the
# file `lost`. slurmd's health checks have no such variable, and in a privileged container all GPUs.
test "$1" = -L || exit 0
while read -r line; do
  uuid=${line##*UUID: } uuid=${uuid%)}
  case ",${NVIDIA_VISIBLE_DEVICES-$uuid}," in *",$uuid,"*) ;; *) continue ;; esac
  grep -qs "$uuid" FOLDER/lost || echo "$line"
done < FOLDER/gpus.txt
"""
_DRIVER = """\
# What NVIDIA's container runtime does for a container, here at the start of a privileged one.
if test ! -d /proc/driver/nvidia && test "$(id -u)" = 0 &&
  mount -t tmpfs fake /proc/driver 2> /dev/null; then
  cp -r FOLDER/proc /proc/driver/nvidia
  for minor in 0 1 2 3 4 5 6 7; do
    test -e /dev/nvidia$minor || mknod -m 666 /dev/nvidia$minor c 1 3
  done
  # Where AutoDetect=nvidia looks for the cores near a GPU. One near none is never given to a job.
  mount -t tmpfs fake /sys/bus/pci/drivers
  for gpu in FOLDER/proc/gpus/*; do
    mkdir -p "/sys/bus/pci/drivers/nvidia/${gpu##*/}"
    cat /sys/devices/system/cpu/online > "/sys/bus/pci/drivers/nvidia/${gpu##*/}/local_cpulist"
  done
fi
"""


class FakeGpus:
    """Eight H100 on one Kubernetes node.

    `folder` is on this machine, whose files the nodes of the local cluster share; anyone must be
    able to read it.
    """

    def __init__(self, kubernetes: Kubernetes, kube_node: str, folder: Path) -> None:
        self._kubernetes = kubernetes
        self.kube_node = kube_node
        self._folder = folder
        self._gpus = (FIXTURES / "nvidia-smi/h100.txt").read_text()
        self.uuids = [line.split("UUID: ")[1].rstrip(")") for line in self._gpus.splitlines()]

    def plug_in(self) -> None:
        """Start the device plugin; returns when Kubernetes counts the devices."""
        folder = self._folder
        shutil.copytree(FIXTURES / "proc/h100", folder / "proc", dirs_exist_ok=True)
        (folder / "gpus.txt").write_text(self._gpus)
        for name, text in (("nvidia-smi", _SMI), ("driver.sh", _DRIVER)):
            (folder / name).write_text(text.replace("FOLDER", str(folder)))
            (folder / name).chmod(0o755)
        shutil.copy(tool("deviceplugin"), folder / "deviceplugin")
        self._kubernetes.kubectl("create", "-f", "-", stdin=json.dumps(self._pod()))
        until_equal("eight GPUs in Kubernetes", self.allocatable, "8")

    def unplug(self) -> None:
        """Take the device plugin away."""
        self._kubernetes.kubectl(
            "-n", "kube-system", "delete", "pod", POD, "--ignore-not-found", "--now"
        )

    def allocatable(self) -> str:
        """How many devices the kubelet offers."""
        status = self._kubernetes.get("node", self.kube_node)["status"]
        return str(status["allocatable"].get(RESOURCE, ""))

    def lose(self, *uuids: str) -> None:
        """From now on these GPUs stop answering; without any all do again."""
        (self._folder / "lost").write_text("".join(f"{uuid}\n" for uuid in uuids))

    def _pod(self) -> dict[str, object]:
        registry, folder = "/run/kubelet/plugins_registry", str(self._folder)
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": POD, "namespace": "kube-system"},
            "spec": {
                "nodeName": self.kube_node,
                "hostNetwork": True,
                "terminationGracePeriodSeconds": 1,
                "tolerations": [{"operator": "Exists"}],
                "containers": [
                    {
                        "name": "plugin",
                        "image": "registry.invalid/slurm-charts/sidecars:0.1.0",
                        "command": [
                            f"{folder}/deviceplugin",
                            f"{registry}/fake-gpus.sock",
                            folder,
                            *self.uuids,
                        ],
                        "securityContext": {"runAsUser": 0, "privileged": True},
                        "volumeMounts": [
                            {"name": "registry", "mountPath": registry},
                            {"name": "folder", "mountPath": folder},
                        ],
                    }
                ],
                "volumes": [
                    {"name": "registry", "hostPath": {"path": registry}},
                    {"name": "folder", "hostPath": {"path": folder}},
                ],
            },
        }


def values(kubernetes: Kubernetes, *settings: str) -> None:
    """The values of the tests' Slurm cluster, with these beside them."""
    words = [
        word
        for setting in ("nodesets.slinky.oversubscribeNode=true", *settings)
        for word in ("--set", setting)
    ]
    chart = str(CHARTS / "slurm")
    kubernetes.helm("upgrade", "slurm", chart, "-n", "slurm", "-f", str(VALUES), *words)


@contextmanager
def gpu_nodeset(slurm: Slurm) -> Iterator[FakeGpus]:
    """Eight GPUs on a Kubernetes node without another worker, and the NodeSet `gpu` that uses
    them.
    """
    nodes = {node["metadata"]["name"] for node in slurm.kubernetes.items("nodes")}
    free = until(
        "a Kubernetes node without a worker",
        lambda: sorted(nodes - {pod["spec"].get("nodeName") for pod in slurm.pods().values()}),
    )
    # pytest's own folders are closed to others, as which the containers run.
    folder = Path(tempfile.mkdtemp(prefix="fake-gpus-"))
    folder.chmod(0o755)
    fake = FakeGpus(slurm.kubernetes, free[0], folder)
    try:
        fake.plug_in()
        values(slurm.kubernetes, *NODESET)
        yield fake
    finally:
        values(slurm.kubernetes)
        until("the GPU worker to be gone", lambda: WORKER not in slurm.pods())
        slurm.until_idle(2)
        fake.unplug()
        shutil.rmtree(folder)
