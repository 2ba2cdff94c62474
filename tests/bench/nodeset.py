"""Benchmark `nodeset`: one NodeSet of 200, 1,000 and 5,000 replicas, from creation to scale-in and a restart.

The operator is the real program in a process of its own, on a real kube-apiserver and etcd. Kubelets and Slurm are
simulated (`tests.bench.machines`). The ceiling for creation is a bare loop: it posts the same bodies with the same
concurrency, keeps the same watches, and the same kubelets serve it; it decides nothing. That for reactions is the least
that any operator has to do: to be told by a watch, and to send Slurm one request.

`python -m tests.bench.nodeset --replicas N` runs one size; `--profile FILE` has cProfile on the operator.
"""

import argparse
import asyncio
import collections
import contextlib
import random
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from sidecars.custom_resources import NODESETS
from sidecars.kube import NODES, PODS, Client, Event, Manifest, Reflector, load_credentials, records
from sidecars.operator.runtime.caches import WORKERS
from sidecars.simulate import SlurmModel
from sidecars.slurm import protocol
from sidecars.slurm.client import Client as SlurmClient
from sidecars.slurm.tokens import TokenSource
from sidecars.workloads import names
from sidecars.workloads import nodeset as render
from sidecars.workloads.resources import NodeSet
from tests.bench.figures import Figure, figure, table
from tests.bench.machines import Machines, machines
from tests.bench.operator import WAIT_SECONDS, Operator, until
from tests.cluster.commands import run
from tests.cluster.control_plane import ControlPlane
from tests.cluster.tools import tool
from tests.support import builders, bulk
from tests.support.apiserver import World, control_plane, namespace

SIZES = (200, 1_000, 5_000)
NAMESPACE, BARE = "bench", "bare"
NODESET = "slinky"
WARM_UP = 100
CORDONS = 20
JOBS = 20
SCALED_IN = 500
IDLE_SECONDS = 60.0
HOSTNAME = "kubernetes.io/hostname"
WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"})

Served = collections.Counter[tuple[str, str]]
"""Requests by verb and resource."""


def bench() -> list[Figure]:
    """The figures of all sizes."""
    return [found for replicas in SIZES for found in measured(replicas)]


def measured(replicas: int, profile: Path | None = None) -> list[Figure]:
    """The figures of one size, on a control plane of its own."""
    with TemporaryDirectory() as folder, control_plane(Path(folder)) as plane:
        return asyncio.run(_run(plane, replicas, profile))


async def _run(plane: ControlPlane, replicas: int, profile: Path | None) -> list[Figure]:
    async with (
        Client.connect(load_credentials(plane.kubeconfig)) as client,
        machines(plane.kubeconfig) as there,
        namespace(client, BARE),
        namespace(client, NAMESPACE),
    ):
        it = _Bench(plane, client, there, replicas, profile)
        await it.prepare()
        try:
            return [
                *await it.creation(),
                *await it.idle(),
                *await it.cordons(),
                *await it.scale_in(),
                *await it.restart(),
            ]
        except TimeoutError:
            lines = it.operator.said().splitlines()
            print("\n".join([*(line for line in lines if "lease was" in line), *lines[-40:]]), file=sys.stderr)
            raise


class _Bench:
    """One size, step by step."""

    def __init__(
        self, plane: ControlPlane, client: Client, there: Machines, replicas: int, profile: Path | None
    ) -> None:
        self._plane = plane
        self._client = client
        self._there = there
        self._replicas = replicas
        self._name = f"{replicas} replicas"
        self._profile = profile
        self._world = World(client, NAMESPACE, SlurmModel(), there.url)
        self._rng = random.Random(replicas)  # noqa: S311 - picks machines
        self._reaction = 0.0

    async def prepare(self) -> None:
        """Machines, keys, Controller and RestApi."""
        nodes = [f"kube-{number}" for number in range(self._replicas)]
        labels = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
        manifests = [
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels | {HOSTNAME: name}}}
            for name in nodes
        ]
        await bulk.each(partial(self._client.create, NODES, manifest) for manifest in manifests)
        self._there.ask("machines", nodes)
        await self._world.cluster()

    async def creation(self) -> list[Figure]:
        """From nothing to a complete status: the bare loop first, then the operator."""
        bare_created, bare_ready = await self._bare()
        self.operator = Operator(self._plane, NAMESPACE, self._there.url, self._profile)
        await self.operator.until_quiet()
        self._there.ask("forget")
        served, cpu = self._served(), self.operator.cpu()
        start = time.monotonic()
        await self._world.nodeset(NODESET, self._replicas)
        status = await until("its status is complete", self._complete) - start
        created = self._there.ask("pods")[2] - start
        spent = await self.operator.until_quiet() - cpu
        kubelets, slurm, _ = self._there.ask("requests")
        requests = sum((self._served() - served).values()) - kubelets
        rate, bare_rate = self._replicas / created, self._replicas / bare_created
        return [
            figure(f"{self._name}: pods created", rate, "pods/s", against=("bare loop", bare_rate), least_times=0.8),
            figure(
                f"{self._name}: status complete",
                status,
                "s",
                against=("kubelets with the bare loop", bare_ready),
                most_times=1.3,
            ),
            figure(f"{self._name}: CPU of the operator for that", spent, "s"),
            figure(f"{self._name}: requests to the API server for that", requests / self._replicas, "per pod"),
            figure(f"{self._name}: requests to slurmrestd for that", slurm, "requests"),
        ]

    async def idle(self) -> list[Figure]:
        """When nothing changes."""
        self._there.ask("forget")
        served, cpu, start = self._served(), self.operator.cpu(), time.monotonic()
        await asyncio.sleep(IDLE_SECONDS)
        spent, seconds = self.operator.cpu() - cpu, time.monotonic() - start
        since = self._served() - served
        _, slurm, slurm_writes = self._there.ask("requests")
        writes = sum(count for (verb, resource), count in since.items() if verb in WRITES and resource != "leases")
        return [
            figure(f"{self._name}, settled: writes", (writes + slurm_writes) * 60 / seconds, "per minute", most=0),
            figure(f"{self._name}, settled: requests to slurmrestd", slurm * 60 / seconds, "per minute"),
            figure(f"{self._name}, settled: CPU", 100 * spent / seconds, "% of a core", most=2),
            figure(f"{self._name}, settled: RSS", self.operator.memory("VmRSS"), "MiB", most=256),
        ]

    async def cordons(self) -> list[Figure]:
        """Machines are cordoned, one after the other."""
        took = []
        for number in self._rng.sample(range(self._replicas), CORDONS):
            took.append(await self._cordon(*await self._pod(NAMESPACE, number)))
            await asyncio.sleep(self._rng.uniform(0.2, 1.2))
        await self.operator.until_quiet()
        floor = ("a watch and one request", self._reaction)
        return [
            figure(f"{self._name}: cordon → DRAIN, median", statistics.median(took), "s", against=floor, most=1),
            figure(f"{self._name}: cordon → DRAIN, longest", max(took), "s", against=floor, most=3),
        ]

    async def scale_in(self) -> list[Figure]:
        """Some of those that go have a job; one by one the jobs end."""
        count = min(SCALED_IN, self._replicas // 2)
        busy = [f"{NODESET}-{number}" for number in self._rng.sample(range(self._replicas), JOBS)]
        jobs = {}
        for name in busy:
            patch = {"metadata": {"annotations": {names.POD_DELETION_COST: "-1"}}}
            await self._client.merge_patch(PODS, NAMESPACE, name, patch)
            jobs[name] = self._there.ask("start_job", name)
        await self.operator.until_quiet()
        self._there.ask("forget")
        start = time.monotonic()
        await self._world.scale(self._replicas - count, NODESET)
        await until("the nodes are drained", lambda: len(self._there.ask("drained")) >= count)
        drained = max(self._there.ask("drained").values()) - start
        await until("the idle ones are gone", lambda: self._there.ask("pods")[0] == self._replicas - count + JOBS)
        gone = time.monotonic() - start
        ended = {}
        for name, job in jobs.items():
            await asyncio.sleep(self._rng.uniform(0.1, 0.6))
            ended[name] = self._there.ask("end_job", job)
        await until("the others are gone", lambda: self._there.ask("pods")[0] == self._replicas - count)
        deleted = self._there.ask("deleting")
        took = [deleted[name] - at for name, at in ended.items()]
        await self.operator.until_quiet()
        floor, tick = ("a watch and one request", self._reaction), ("half a tick of the poller", 0.5)
        return [
            figure(f"{self._name}: scale-in of {count}: all drained", drained, "s", against=floor, most=3),
            figure(f"{self._name}: scale-in of {count}: idle pods gone", gone, "s"),
            figure(f"{self._name}: job ends → pod deleted, median", statistics.median(took), "s", against=tick, most=2),
            figure(f"{self._name}: job ends → pod deleted, longest", max(took), "s", against=tick),
            figure(f"{self._name}: pods deleted before their job ended", sum(it < 0 for it in took), "pods", most=0),
        ]

    async def restart(self) -> list[Figure]:
        """The operator ends and another one begins."""
        peak = self.operator.memory("VmHWM")
        self.operator.stop()
        self.operator = Operator(self._plane, NAMESPACE, self._there.url)
        await until("the new one to lead", lambda: "reconciling" in self.operator.said())
        spent = await self.operator.until_quiet()
        self.operator.stop()
        start = time.process_time()
        for resource, kind in ((PODS, records.Pod), (NODES, records.Node)):
            await self._client.list(resource, type=kind)
        async with self._slurm() as slurm:
            await slurm.call(protocol.get_nodes())
        bare = time.process_time() - start
        return [
            figure(f"{self._name}: peak RSS", peak, "MiB"),
            figure(
                f"{self._name}: restart: CPU",
                spent,
                "s",
                against=("reading pods, Kubernetes nodes, Slurm nodes", bare),
                most=5,
            ),
        ]

    async def _bare(self) -> tuple[float, float]:
        """Seconds until the last pod was there, and until it was ready."""
        wanted = builders.nodeset(NODESET, {"namespace": BARE}, slurmd={"image": "slurmd:test"})
        template = render.pod_template(wanted, builders.controller(), builders.facts())
        bodies = [_body(wanted, template, ordinal) for ordinal in range(self._replicas)]
        pods: Reflector[records.Pod] = Reflector(self._client, PODS, type=records.Pod, label_selector=WORKERS)
        nodes: Reflector[records.Node] = Reflector(self._client, NODES, type=records.Node)
        async with _running(pods.run(), nodes.run()):
            await pods.wait_synced(WAIT_SECONDS)
            await nodes.wait_synced(WAIT_SECONDS)
            # An API server that has just started is slow at first.
            await self._post(bodies[:WARM_UP])
            await self._delete(bodies[:WARM_UP])
            self._there.ask("forget")
            start = time.monotonic()
            await self._post(bodies)
            _, _, created, ready = self._there.ask("pods")
            self._reaction = await self._least_reaction(nodes)
            await self._delete(bodies)
        return created - start, ready - start

    async def _post(self, bodies: Sequence[Manifest]) -> None:
        await bulk.each(partial(self._client.create, PODS, body, msgspec.Raw) for body in bodies)
        await until("the bare loop's pods are ready", lambda: self._there.ask("pods")[1] == len(bodies))

    async def _delete(self, bodies: Sequence[Manifest]) -> None:
        await bulk.each(partial(self._client.delete, PODS, BARE, body["metadata"]["name"]) for body in bodies)
        await until("the bare loop's pods are gone", lambda: self._there.ask("pods")[0] == 0)

    async def _least_reaction(self, nodes: Reflector[records.Node]) -> float:
        """Seconds from a cordon to the drain where a watch tells of it and one request goes out; the median."""
        host_of: dict[str, str] = {}
        took = []
        async with self._slurm() as slurm, asyncio.TaskGroup() as tasks:

            def told(event: Event[records.Node]) -> None:
                host = host_of.get(event.object.metadata.name)
                if event.kind == "MODIFIED" and event.object.spec.unschedulable and host is not None:
                    drain = protocol.update_nodes([host], state=["DRAIN"], reason="bench")
                    tasks.create_task(slurm.call(drain))

            nodes.store.subscribe(told)
            for number in range(CORDONS):
                host, machine = await self._pod(BARE, number)
                host_of[machine] = host
                took.append(await self._cordon(host, machine))
        return statistics.median(took)

    async def _pod(self, where: str, number: int) -> tuple[str, str]:
        """The Slurm node of a pod, and its machine."""
        pod = await self._client.get(PODS, where, f"{NODESET}-{number}", records.Pod)
        return pod.spec.hostname, pod.spec.node_name

    async def _cordon(self, host: str, machine: str) -> float:
        """Cordon the machine; seconds until Slurm was told to drain the node. Then uncordon it."""
        self._there.ask("forget")
        start = time.monotonic()
        await self._client.merge_patch(NODES, None, machine, {"spec": {"unschedulable": True}})
        await until(f"{host} is drained", lambda: host in self._there.ask("drained"))
        took: float = self._there.ask("drained")[host] - start
        await self._client.merge_patch(NODES, None, machine, {"spec": {"unschedulable": None}})
        return took

    async def _complete(self) -> bool:
        status = (await self._client.get(NODESETS, NAMESPACE, NODESET)).get("status") or {}
        return all(status.get(name) == self._replicas for name in ("replicas", "readyReplicas", "slurmIdle"))

    def _slurm(self) -> SlurmClient:
        return SlurmClient(self._there.url, TokenSource(lambda: b"j" * 1024, clock=time.time))

    def _served(self) -> Served:
        """What the API server has served so far, to anybody."""
        said = run([tool("kubectl"), f"--kubeconfig={self._plane.kubeconfig}", "get", "--raw", "/metrics"], seconds=30)
        served: Served = collections.Counter()
        for line in said.splitlines():
            if line.startswith("apiserver_request_total{"):
                labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
                served[labels["verb"], labels["resource"]] += int(float(line.rpartition(" ")[2]))
        return served


def _body(wanted: NodeSet, template: Manifest, ordinal: int) -> Manifest:
    body = render.pod(wanted, template, ordinal, "6d9c7b9f5d", None)
    metadata = body["metadata"]
    return body | {"metadata": metadata | {"annotations": {**metadata.get("annotations", {}), names.TOPOLOGY: ""}}}


@contextlib.asynccontextmanager
async def _running(*work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.nodeset")
    parser.add_argument("--replicas", type=int, default=SIZES[0])
    parser.add_argument("--profile", type=Path, help="where cProfile writes what the operator did")
    given = parser.parse_args()
    print(table(measured(given.replicas, given.profile)))
