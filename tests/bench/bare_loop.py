"""The ceilings of benchmark `nodeset`: the same pods without an operator, and the least that any
reaction takes.

The bare loop sends requests for the same bodies with the same concurrency and the same watches, and
the same kubelets serve it. It decides nothing.
"""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from sidecars import objects
from sidecars.contract.annotations import TOPOLOGY
from sidecars.kube import NODES, PODS, Client, Event, Manifest, Reflector
from sidecars.operator.runtime.caches import WORKERS
from sidecars.slurm import protocol
from sidecars.slurm.client import Client as SlurmClient
from sidecars.slurm.tokens import TokenSource
from sidecars.workloads import nodeset as render
from sidecars.workloads.resources import NodeSet
from tests.bench.kubelets import Kubelets
from tests.bench.operator import WAIT_SECONDS, until
from tests.support import builders, bulk

WARM_UP = 100
CORDONS = 20


@dataclass(frozen=True)
class Bare:
    """What the bare loop took, in seconds."""

    created: float
    """Until the last pod existed."""
    ready: float
    """Until the last pod was ready."""
    reaction: float
    """From a cordon to the drain of the Slurm node: a watch and one request, the median."""
    first_deleted: float
    """From the start of the deletion of half of the pods to the first deletion that a watch showed.
    """
    all_deleted: float
    """The same to the last one."""


class BareLoop:
    """Creates and deletes `replicas` worker pods in `namespace`."""

    def __init__(
        self, client: Client, kubelets: Kubelets, namespace: str, nodeset: str, replicas: int
    ) -> None:
        self._client = client
        self._kubelets = kubelets
        self._namespace = namespace
        self._nodeset = nodeset
        desired = builders.nodeset(
            nodeset, {"namespace": namespace}, slurmd={"image": "slurmd:test"}
        )
        template = render.pod_template(desired, builders.controller(), builders.facts())
        self._bodies = [_body(desired, template, ordinal) for ordinal in range(replicas)]

    async def run(self) -> Bare:
        """Create all, cordon some of their Kubernetes nodes, delete the upper half, then the
        rest.
        """
        pods: Reflector[objects.Pod] = Reflector(
            self._client, PODS, type=objects.Pod, label_selector=WORKERS
        )
        nodes: Reflector[objects.Node] = Reflector(self._client, NODES, type=objects.Node)
        half = len(self._bodies) // 2
        async with _running(pods.run(), nodes.run()):
            await pods.wait_synced(WAIT_SECONDS)
            await nodes.wait_synced(WAIT_SECONDS)
            # An API server that has just started is slow at first.
            await self._create(self._bodies[:WARM_UP])
            await self._delete(self._bodies[:WARM_UP], left=0)
            self._kubelets.ask("forget")
            start = time.monotonic()
            await self._create(self._bodies)
            _, _, created, ready = (time - start for time in self._kubelets.ask("pods"))
            reaction = await self._least_reaction(nodes)
            self._kubelets.ask("forget")
            start = time.monotonic()
            await self._delete(self._bodies[half:], left=half)
            deleted = [time - start for time in self._kubelets.ask("deleted").values()]
            await self._delete(self._bodies[:half], left=0)
        return Bare(created, ready, reaction, min(deleted), max(deleted))

    async def _create(self, bodies: Sequence[Manifest]) -> None:
        await bulk.each(partial(self._client.create, PODS, body, msgspec.Raw) for body in bodies)
        await until(
            "the bare loop's pods are ready", lambda: self._kubelets.ask("pods")[1] == len(bodies)
        )

    async def _delete(self, bodies: Sequence[Manifest], *, left: int) -> None:
        names = (body["metadata"]["name"] for body in bodies)
        await bulk.each(partial(self._client.delete, PODS, self._namespace, name) for name in names)
        await until(
            "the bare loop's pods have ended", lambda: self._kubelets.ask("pods")[0] == left
        )

    async def _least_reaction(self, nodes: Reflector[objects.Node]) -> float:
        host_of: dict[str, str] = {}
        took = []
        async with slurm_client(self._kubelets) as slurm, asyncio.TaskGroup() as tasks:

            def drain(event: Event[objects.Node]) -> None:
                host = host_of.get(event.object.metadata.name)
                if (
                    event.kind == "MODIFIED"
                    and event.object.spec.unschedulable
                    and host is not None
                ):
                    request = protocol.update_nodes([host], state=["DRAIN"], reason="bench")
                    tasks.create_task(slurm.call(request))

            nodes.store.subscribe(drain)
            for number in range(min(CORDONS, len(self._bodies))):
                host, kube_node = await placed(
                    self._client, self._namespace, f"{self._nodeset}-{number}"
                )
                host_of[kube_node] = host
                took.append(await cordon(self._client, self._kubelets, host, kube_node))
        return statistics.median(took)


async def placed(client: Client, namespace: str, name: str) -> tuple[str, str]:
    """The Slurm node of a pod, and its Kubernetes node."""
    pod = await client.get(PODS, namespace, name, objects.Pod)
    return pod.spec.hostname, pod.spec.node_name


async def cordon(client: Client, kubelets: Kubelets, host: str, kube_node: str) -> float:
    """Cordon the Kubernetes node; seconds until Slurm was asked to drain `host`. Then uncordon
    it.
    """
    kubelets.ask("forget")
    start = time.monotonic()
    await client.merge_patch(NODES, None, kube_node, {"spec": {"unschedulable": True}})
    await until(f"{host} is drained", lambda: host in kubelets.ask("drained"))
    took: float = kubelets.ask("drained")[host] - start
    await client.merge_patch(NODES, None, kube_node, {"spec": {"unschedulable": None}})
    return took


def slurm_client(kubelets: Kubelets) -> SlurmClient:
    """A client of the simulated Slurm."""
    return SlurmClient(kubelets.url, TokenSource(lambda: b"j" * 1024, clock=time.time))


def _body(desired: NodeSet, template: Manifest, ordinal: int) -> Manifest:
    body = render.pod(desired, template, ordinal, "6d9c7b9f5d", None)
    metadata = body["metadata"]
    return body | {
        "metadata": metadata | {"annotations": {**metadata.get("annotations", {}), TOPOLOGY: ""}}
    }


@contextlib.asynccontextmanager
async def _running(*work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
