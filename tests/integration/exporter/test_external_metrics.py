"""A HorizontalPodAutoscaler of Kubernetes follows the queue by the exporter's
external.metrics.k8s.io alone.

A real kube-apiserver with its aggregation layer, the real controller of HorizontalPodAutoscalers,
and the exporter with a simulated Slurm. No operator runs: the test reports the replicas of the
NodeSet.
"""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import yaml

from sidecars.autoscaling.records import Shape
from sidecars.exporter import external
from sidecars.exporter.collector import Collector
from sidecars.exporter.declared import Declared
from sidecars.exporter.settings import Settings
from sidecars.serving import serve
from sidecars.simulate import Fault, ModelCarrier, SlurmModel
from tests.cluster.commands import run
from tests.cluster.control_plane import ControlPlane, free_ports
from tests.cluster.tools import tool
from tests.support.apiserver import control_plane, until

if TYPE_CHECKING:
    from pathlib import Path

WITHIN = 60
NAMESPACE = "slurm"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """With a controller that looks at autoscalers each second."""
    with control_plane(tmp_path_factory.mktemp("external-metrics")) as found:
        found.manager_options = ["--horizontal-pod-autoscaler-sync-period=1s"]
        found.controller_manager.start()
        yield found


@dataclass
class Scene:
    """The cluster and the exporter's Slurm."""

    plane: ControlPlane
    slurm: SlurmModel
    collector: Collector
    asked: int = 0
    """How often the autoscaler has asked."""

    def wanted(self, nodeset: str) -> tuple[int, float]:
        """What the exporter answers."""
        self.asked += 1
        return self.collector.wanted(nodeset)

    async def kubectl(self, *arguments: str, stdin: list[dict[str, Any]] | None = None) -> str:
        command: list[str | Path] = [
            tool("kubectl"),
            f"--kubeconfig={self.plane.kubeconfig}",
            *arguments,
        ]
        text = None if stdin is None else yaml.safe_dump_all(stdin)
        return await asyncio.to_thread(run, command, stdin=text, seconds=WITHIN)

    async def get(self, kind: str, name: str) -> Any:
        return json.loads(
            await self.kubectl("get", "--namespace", NAMESPACE, kind, name, "--output=json")
        )

    async def until_replicas(self, replicas: int) -> None:
        """Until the autoscaler has set so many. They are reported at once, as the operator
        would.
        """

        async def reached() -> bool:
            nodeset = await self.get("nodesets.slinky.slurm.net", "cpu")
            wanted = nodeset["spec"]["replicas"]
            status = json.dumps({"status": {"replicas": wanted, "selector": "app=none"}})
            patch = ["--subresource=status", "--type=merge", "--patch", status]
            await self.kubectl(
                "patch", "--namespace", NAMESPACE, "nodesets.slinky.slurm.net", "cpu", *patch
            )
            return bool(wanted == replicas)

        await until(f"{replicas} replicas", reached, WITHIN)

    async def condition(self, kind: str) -> dict[str, Any]:
        conditions = (await self.get("hpa", "cpu"))["status"].get("conditions", [])
        return next((it for it in conditions if it["type"] == kind), {})


@pytest_asyncio.fixture
async def scene(plane: ControlPlane) -> AsyncIterator[Scene]:
    slurm = SlurmModel()
    # An exporter that finds no node at all doubts that for a minute. This one is of another
    # NodeSet, and has no room.
    slurm.node_register("other")
    slurm.job_start("other", cpus=4)
    settings = Settings(
        "http://slurmrestd:6820",
        interval=1.0,
        nodesets=(Declared("cpu", max=9, shape=Shape(1, 4, 1, 8000)),),
    )
    collector = Collector(ModelCarrier(slurm), settings, clock=time.monotonic, now=time.time)
    host, port = f"exporter.{NAMESPACE}.svc", free_ports(1)[0]
    certificate = plane.authority.issue("exporter", "exporter", hosts=[host])
    collector.start()
    found = Scene(plane, slurm, collector)
    # Only to the API server, as with `clientCA` and `clientNames`.
    api = external.application(found.wanted, NAMESPACE, frozenset({"front-proxy-client"}))
    clients = plane.authority.certificate.read_text()
    end = await serve(api, "127.0.0.1", port, certificate, clients=clients)
    try:
        await found.kubectl("apply", "--filename=-", stdin=manifests(plane, port))
        yield found
    finally:
        await end()
        await collector.close()


def manifests(plane: ControlPlane, port: int) -> list[dict[str, Any]]:
    """The APIService of the chart, with a Service that leads to this machine, a NodeSet and its
    autoscaler.
    """
    authority = base64.b64encode(plane.authority.certificate.read_bytes()).decode()
    metric = {"name": external.METRIC, "selector": {"matchLabels": {"nodeset": "cpu"}}}
    target = {"type": "AverageValue", "averageValue": "1"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "exporter", "namespace": NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{external.VERSION}.{external.GROUP}"},
            "spec": {
                "group": external.GROUP,
                "version": external.VERSION,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "caBundle": authority,
                "service": {"name": "exporter", "namespace": NAMESPACE, "port": port},
            },
        },
        {
            "apiVersion": "slinky.slurm.net/v1beta1",
            "kind": "NodeSet",
            "metadata": {"name": "cpu", "namespace": NAMESPACE},
            "spec": {"replicas": 1, "controllerRef": {"name": "slurm"}},
        },
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "cpu", "namespace": NAMESPACE},
            "spec": {
                "scaleTargetRef": {
                    "apiVersion": "slinky.slurm.net/v1beta1",
                    "kind": "NodeSet",
                    "name": "cpu",
                },
                "minReplicas": 1,
                "maxReplicas": 9,
                "metrics": [{"type": "External", "external": {"metric": metric, "target": target}}],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            },
        },
    ]


@pytest.mark.timeout(300)
async def test_an_autoscaler_follows_the_queue_and_changes_nothing_while_data_is_missing(
    scene: Scene,
) -> None:
    await scene.until_replicas(1)
    jobs = [scene.slurm.job_submit(cpus=4) for _ in range(4)]
    await scene.until_replicas(4)

    scene.slurm.fail(Fault.NO_SLURMCTLD, times=None)

    async def failing() -> bool:
        active = await scene.condition("ScalingActive")
        fails = (active.get("status"), active.get("reason")) == ("False", "FailedGetExternalMetric")
        return fails and "unknown or too old" in active["message"]

    await until("the autoscaler to have no metric", failing, WITHIN)
    for job in jobs:
        scene.slurm.job_end(job, state="CANCELLED")
    before = scene.asked

    async def asked_again() -> bool:
        return scene.asked > before + 3

    await until("the autoscaler to ask again", asked_again, WITHIN)
    assert (await scene.get("nodesets.slinky.slurm.net", "cpu"))["spec"]["replicas"] == 4

    scene.slurm.heal()
    await scene.until_replicas(1)
