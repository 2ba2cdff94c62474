"""Benchmark `nodeset`: one NodeSet of 200, 1,000 and 5,000 replicas, from its creation to its
scale-in.

The operator is the real program in a process of its own, on a real kube-apiserver and etcd.
Kubelets and Slurm are simulated (`tests.bench.kubelets`). The ceilings are measured in the same run
(`tests.bench.bare_loop`).

`python -m tests.bench.nodeset --replicas N` runs one size; `--profile FILE` has cProfile on the
operator.
"""

import argparse
import asyncio
import collections
import random
import re
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from sidecars import objects
from sidecars.custom_resources import NODESETS
from sidecars.kube import NODES, PODS, Client, load_credentials
from sidecars.simulate import SlurmModel
from sidecars.slurm import protocol
from sidecars.workloads import names
from tests.bench.bare_loop import CORDONS, Bare, BareLoop, cordon, placed, slurm_client
from tests.bench.figures import Figure, figure, table
from tests.bench.kubelets import Kubelets, kubelets
from tests.bench.operator import Operator, until
from tests.cluster.commands import run
from tests.cluster.control_plane import ControlPlane
from tests.cluster.tools import tool
from tests.support import bulk
from tests.support.apiserver import WatchedNamespace, control_plane, namespace

SIZES = (200, 1_000, 5_000)
NAMESPACE, BARE = "bench", "bare"
NODESET = "slinky"
JOBS = 20
SCALED_IN = 500
IDLE_SECONDS = 60.0
SHOWN_SECONDS = 2.0
"""After the last pod became ready, all pods show the state of their Slurm nodes within this."""
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
        kubelets(plane.kubeconfig) as simulated,
        namespace(client, BARE),
        namespace(client, NAMESPACE),
    ):
        it = _Bench(plane, client, simulated, replicas, profile)
        await it.prepare()
        try:
            return [
                *await it.creation(),
                *await it.idle(),
                *await it.cordons(),
                *await it.scale_in_with_jobs(),
                *await it.restart(),
                *await it.scale_in_of_idle(),
            ]
        except TimeoutError:
            lines = it.operator.logged().splitlines()
            print(
                "\n".join([*(line for line in lines if "lease was" in line), *lines[-40:]]),
                file=sys.stderr,
            )
            raise
        finally:
            it.operator.stop()


class _Bench:
    """One size, step by step."""

    def __init__(
        self,
        plane: ControlPlane,
        client: Client,
        simulated: Kubelets,
        replicas: int,
        profile: Path | None,
    ) -> None:
        self._plane = plane
        self._client = client
        self._kubelets = simulated
        self._replicas = replicas
        self._name = f"{replicas} replicas"
        self._profile = profile
        self._world = WatchedNamespace(client, NAMESPACE, SlurmModel(), simulated.url)
        self._rng = random.Random(replicas)  # noqa: S311 - picks Kubernetes nodes
        self._bare: Bare

    async def prepare(self) -> None:
        """Kubernetes nodes, keys, Controller and RestApi; the bare loop; the operator."""
        nodes = [f"kube-{number}" for number in range(self._replicas)]
        labels = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
        manifests = [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels | {HOSTNAME: name}},
            }
            for name in nodes
        ]
        await bulk.each(partial(self._client.create, NODES, manifest) for manifest in manifests)
        self._kubelets.ask("add_kube_nodes", nodes)
        await self._world.cluster()
        self._bare = await BareLoop(
            self._client, self._kubelets, BARE, NODESET, self._replicas
        ).run()
        self.operator = Operator(self._plane, NAMESPACE, self._kubelets.url, self._profile)
        await self.operator.until_quiet()

    async def creation(self) -> list[Figure]:
        """From nothing to a complete status."""
        self._kubelets.ask("forget")
        before, cpu = served(self._plane), self.operator.cpu()
        start = time.monotonic()
        await self._world.nodeset(NODESET, self._replicas)
        status = await until("its status is complete", self._complete) - start
        _, _, created, ready = self._kubelets.ask("pods")
        created, ready = created - start, ready - start
        await until("all pods show Slurm's state", lambda: self._shown() == self._replicas)
        shown = self._kubelets.ask("shown")[1] - start
        spent = await self.operator.until_quiet() - cpu
        by_kubelets, slurm, _ = self._kubelets.ask("requests")
        since = served(self._plane) - before
        requests = sum(since.values()) - by_kubelets
        # The kubelets write to nothing but pods.
        to_pods = writes(since, to_pods=True) - by_kubelets
        others = writes(since, to_pods=False)
        # Of a few hundred the creation takes seconds, and its ratio moves by a half from run to
        # run.
        least = 0.9 if self._replicas >= max(SIZES) else None
        rate, bare_rate = self._replicas / created, self._replicas / self._bare.created
        return [
            figure(
                f"{self._name}: pods created",
                rate,
                "pods/s",
                against=("bare loop", bare_rate),
                least_times=least,
            ),
            figure(
                f"{self._name}: status complete",
                status,
                "s",
                against=("kubelets with the bare loop", self._bare.ready),
                most_times=1.3,
            ),
            figure(
                f"{self._name}: conditions of all pods complete",
                shown,
                "s",
                against=("the last pod is ready", ready),
                most=ready + SHOWN_SECONDS,
            ),
            figure(f"{self._name}: CPU of the operator for that", spent, "s"),
            figure(
                f"{self._name}: requests to the API server for that",
                requests / self._replicas,
                "per pod",
            ),
            figure(
                f"{self._name}: writes to worker pods until quiet",
                to_pods / self._replicas,
                "per pod",
                most=2,
            ),
            figure(f"{self._name}: other writes to the API server until quiet", others, "writes"),
            figure(f"{self._name}: requests to slurmrestd for that", slurm, "requests"),
        ]

    async def idle(self) -> list[Figure]:
        """When nothing changes."""
        self._kubelets.ask("forget")
        before, cpu, start = served(self._plane), self.operator.cpu(), time.monotonic()
        await asyncio.sleep(IDLE_SECONDS)
        spent, seconds = self.operator.cpu() - cpu, time.monotonic() - start
        _, slurm, slurm_writes = self._kubelets.ask("requests")
        since = served(self._plane) - before
        written = writes(since, to_pods=True) + writes(since, to_pods=False) + slurm_writes
        return [
            figure(f"{self._name}, settled: writes", written * 60 / seconds, "per minute", most=0),
            figure(
                f"{self._name}, settled: requests to slurmrestd", slurm * 60 / seconds, "per minute"
            ),
            figure(f"{self._name}, settled: CPU", 100 * spent / seconds, "% of a core", most=2),
            figure(f"{self._name}, settled: RSS", self.operator.memory("VmRSS"), "MiB", most=256),
        ]

    async def cordons(self) -> list[Figure]:
        """Kubernetes nodes are cordoned, one after the other."""
        took = []
        for number in self._rng.sample(range(self._replicas), CORDONS):
            pod = await placed(self._client, NAMESPACE, f"{NODESET}-{number}")
            took.append(await cordon(self._client, self._kubelets, *pod))
            await asyncio.sleep(self._rng.uniform(0.2, 1.2))
        await self.operator.until_quiet()
        floor = ("a watch and one request", self._bare.reaction)
        return [
            figure(
                f"{self._name}: cordon → DRAIN, median",
                statistics.median(took),
                "s",
                against=floor,
                most=1,
            ),
            figure(f"{self._name}: cordon → DRAIN, longest", max(took), "s", against=floor, most=3),
        ]

    async def scale_in_with_jobs(self) -> list[Figure]:
        """Some of the condemned pods have a job; one by one the jobs end. Afterwards all replicas
        are back.
        """
        count = min(SCALED_IN, self._replicas // 2)
        busy = [f"{NODESET}-{number}" for number in self._rng.sample(range(self._replicas), JOBS)]
        jobs = {}
        for name in busy:
            patch = {"metadata": {"annotations": {names.POD_DELETION_COST: "-1"}}}
            await self._client.merge_patch(PODS, NAMESPACE, name, patch)
            jobs[name] = self._kubelets.ask("start_job", name)
        await self.operator.until_quiet()
        self._kubelets.ask("forget")
        start = time.monotonic()
        await self._world.scale(self._replicas - count, NODESET)
        await until("the nodes are drained", lambda: len(self._kubelets.ask("drained")) >= count)
        drained = max(self._kubelets.ask("drained").values()) - start
        await until(
            "the idle pods have ended", lambda: self._existing() == self._replicas - count + JOBS
        )
        ended = time.monotonic() - start
        job_ended = {}
        for name, job in jobs.items():
            await asyncio.sleep(self._rng.uniform(0.1, 0.6))
            job_ended[name] = self._kubelets.ask("end_job", job)
        await until("the other pods have ended", lambda: self._existing() == self._replicas - count)
        deleted = self._kubelets.ask("deleted")
        took = [deleted[name] - at for name, at in job_ended.items()]
        await self._world.scale(self._replicas, NODESET)
        await until("all replicas are back", self._complete)
        await self.operator.until_quiet()
        floor, tick = (
            ("a watch and one request", self._bare.reaction),
            ("half a tick of the poller", 0.5),
        )
        median = statistics.median(took)
        return [
            figure(
                f"{self._name}: scale-in of {count}: all drained",
                drained,
                "s",
                against=floor,
                most=0.5,
            ),
            figure(f"{self._name}: scale-in of {count}: idle pods gone", ended, "s"),
            figure(
                f"{self._name}: job ends → pod deleted, median", median, "s", against=tick, most=0.7
            ),
            figure(f"{self._name}: job ends → pod deleted, longest", max(took), "s", against=tick),
            figure(
                f"{self._name}: pods deleted before their job ended",
                sum(it < 0 for it in took),
                "pods",
                most=0,
            ),
        ]

    async def restart(self) -> list[Figure]:
        """The operator ends and another one begins."""
        peak = self.operator.memory("VmHWM")
        self.operator.stop()
        self.operator = Operator(self._plane, NAMESPACE, self._kubelets.url)
        await until("the new one to lead", lambda: "reconciling" in self.operator.logged())
        spent = await self.operator.until_quiet()
        start = time.process_time()
        for resource, kind in ((PODS, objects.Pod), (NODES, objects.Node)):
            await self._client.list(resource, type=kind)
        async with slurm_client(self._kubelets) as slurm:
            await slurm.call(protocol.get_nodes())
        bare = ("reading pods, Kubernetes nodes, Slurm nodes", time.process_time() - start)
        return [
            figure(f"{self._name}: peak RSS", peak, "MiB"),
            figure(f"{self._name}: restart: CPU", spent, "s", against=bare, most=5),
        ]

    async def scale_in_of_idle(self) -> list[Figure]:
        """Half of the replicas, none of which has a job."""
        half = self._replicas - self._replicas // 2
        name = f"{self._name} → {self._replicas // 2}, all idle"
        self._kubelets.ask("forget")
        start = time.monotonic()
        await self._world.scale(self._replicas // 2, NODESET)
        await until("half of the pods have ended", lambda: self._existing() == self._replicas // 2)
        deleted = [at - start for at in self._kubelets.ask("deleted").values()]
        if len(deleted) != half:
            raise RuntimeError(f"{len(deleted)} pods were deleted instead of {half}")
        first, last = ("bare loop", self._bare.first_deleted), ("bare loop", self._bare.all_deleted)
        return [
            figure(f"{name}: first pod deleted", min(deleted), "s", against=first, most=1),
            figure(f"{name}: last pod deleted", max(deleted), "s", against=last, most_times=2),
        ]

    async def _complete(self) -> bool:
        status = (await self._client.get(NODESETS, NAMESPACE, NODESET)).get("status") or {}
        return all(
            status.get(name) == self._replicas
            for name in ("replicas", "readyReplicas", "slurmIdle")
        )

    def _shown(self) -> int:
        """Pods that have shown the state of their Slurm node."""
        count: int = self._kubelets.ask("shown")[0]
        return count

    def _existing(self) -> int:
        """Pods that exist, terminating ones included."""
        count: int = self._kubelets.ask("pods")[0]
        return count


def served(plane: ControlPlane) -> Served:
    """What the API server has served so far, to all clients."""
    metrics = run(
        [tool("kubectl"), f"--kubeconfig={plane.kubeconfig}", "get", "--raw", "/metrics"],
        seconds=30,
    )
    found: Served = collections.Counter()
    for line in metrics.splitlines():
        if line.startswith("apiserver_request_total{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            found[labels["verb"], labels["resource"]] += int(float(line.rpartition(" ")[2]))
    return found


def writes(served: Served, *, to_pods: bool) -> int:
    """Writes to pods, or to everything else but leases."""
    counted = {
        (verb, kind): count
        for (verb, kind), count in served.items()
        if verb in WRITES and kind != "leases"
    }
    return sum(count for (_, kind), count in counted.items() if (kind == "pods") == to_pods)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.nodeset")
    parser.add_argument("--replicas", type=int, default=SIZES[0])
    parser.add_argument("--profile", type=Path, help="where cProfile writes what the operator did")
    given = parser.parse_args()
    print(table(measured(given.replicas, given.profile)))
