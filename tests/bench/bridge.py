"""Benchmark `bridge`: pods that a real slurmctld schedules, beside pods that the scheduler of
Kubernetes binds alone.

The bridge is the real program in a process of its own, with a real kube-apiserver, kube-scheduler,
slurmctld and slurmrestd. Only the kubelets are simulated. Needs root, as slurmctld is started from
the images of the local cluster.

The scheduler may send 200 requests a second: with the 50 of its default, it needs 18 of the 20 s
for 1,000 pods alone.

`python -m tests.bench.bridge --pods N` runs with fewer pods, `--step burst` this step alone;
`--profile FILE` has cProfile on the bridge; `--scheduler-requests N` gives kube-scheduler another
limit.
"""

import argparse
import asyncio
import collections
import contextlib
import itertools
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import msgspec

from sidecars import objects
from sidecars.bridge.passes import REST_SECONDS
from sidecars.contract import bridge
from sidecars.kube import (
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    PODS,
    Client,
    Event,
    Manifest,
    NotFound,
    Reflector,
    load_credentials,
)
from sidecars.slurm import protocol
from sidecars.slurm.client import Client as SlurmClient
from sidecars.slurm.errors import NotFound as NoJob
from sidecars.slurm.tokens import TokenSource
from tests.bench import slurmctld
from tests.bench.figures import Figure, figure, table
from tests.bench.nodeset import served, writes
from tests.bench.operator import Program, until
from tests.bench.running_pods import BOUND, kubelets
from tests.cluster.control_plane import ControlPlane
from tests.support import bulk
from tests.support.bridge import node, pod
from tests.support.bridge_world import (
    ACCOUNTS,
    bind,
    bridge_account,
    control_plane,
    slurm_conf,
    status,
)

PODS_IN_ALL = 5_000
BURST = 1_000
SINGLE = 10
UNSATISFIABLE = 500
IDLE_SECONDS = REST_SECONDS
"""So that everything is looked at once."""
FORGOTTEN_SECONDS = 600
"""Within which slurmctld forgets a job after its end: MinJobAge, and a minute until it looks."""
STEPS = ("singles", "burst", "beside_unsatisfiable", "settled")
ON_A_NODE = 100
SCHEDULER_REQUESTS = 200
USER = "mail"
"""A user of the image."""
TENANT, BARE = "team", "bare"
LINES = f"MaxNodeCount=1024\nMaxJobCount=50000\n{slurm_conf()}"
"""Those of docs/bridge-install.md, and what so many pods need."""


def bench() -> list[Figure]:
    """The figures."""
    return measured(PODS_IN_ALL)


def measured(
    pods: int,
    profile: Path | None = None,
    steps: Sequence[str] = STEPS,
    scheduler_requests: int = SCHEDULER_REQUESTS,
) -> list[Figure]:
    """The figures of these steps with so many pods at the end."""
    kubernetes = partial(control_plane, scheduler_requests=scheduler_requests)
    with TemporaryDirectory() as folder, kubernetes(Path(folder) / "kubernetes") as plane:
        return asyncio.run(_run(Path(folder), plane, pods, profile, steps))


async def _run(
    folder: Path, plane: ControlPlane, pods: int, profile: Path | None, steps: Sequence[str]
) -> list[Figure]:
    async with (
        slurmctld.running(folder / "slurm", LINES) as slurm,
        _slurm(slurm.key) as rest,
        Client.connect(load_credentials(plane.kubeconfig)) as client,
        kubelets(plane.kubeconfig),
        _Seen.watching(client) as seen,
    ):
        it = _Bench(plane, client, rest, seen, pods)
        await asyncio.to_thread((folder / "jwt.key").write_bytes, slurm.key)
        await it.prepare(folder / "jwt.key", profile)
        try:
            async with _Stalls(rest) as stalls:
                found: list[Figure] = []
                done = (it.singles, it.burst, it.beside_unsatisfiable, it.settled)
                for step in (each for name, each in zip(STEPS, done, strict=True) if name in steps):
                    figures = await step()
                    print(table(figures), file=sys.stderr, flush=True)
                    found += figures
            return [*found, figure("slurmctld: the slowest answer", stalls.longest, "s", most=1)]
        except TimeoutError:
            print("\n".join(it.program.logged().splitlines()[-40:]), file=sys.stderr)
            raise
        finally:
            it.program.stop()


@contextlib.asynccontextmanager
async def _slurm(key: bytes) -> AsyncIterator[SlurmClient]:
    """slurmrestd, when slurmctld answers."""
    tokens = TokenSource(lambda: key, clock=time.time, username="slurm")
    url = f"http://{slurmctld.ADDRESS}:{slurmctld.COMPACT}"
    async with SlurmClient(url, tokens) as client:

        async def answers() -> bool:
            with contextlib.suppress(Exception):
                await client.call(protocol.get_job_states())
                return True
            return False

        await until("slurmctld answers", answers)
        yield client


class _Seen:
    """When a watch showed what of bound pods, by namespace and name. Times are of the monotonic
    clock.

    Of the others it shows nothing: each watched change takes time of the same cores.
    """

    def __init__(self) -> None:
        self.bound: dict[tuple[str, str], float] = {}
        self.running: dict[tuple[str, str], float] = {}
        self.deleting: dict[tuple[str, str], float] = {}
        self.gone: dict[tuple[str, str], float] = {}
        self.counts: collections.Counter[str] = collections.Counter()

    @classmethod
    @contextlib.asynccontextmanager
    async def watching(cls, client: Client) -> AsyncIterator[Self]:
        """It, while the block runs."""
        seen = cls()
        pods: Reflector[objects.Pod] = Reflector(
            client, PODS, type=objects.Pod, field_selector=BOUND
        )
        pods.store.subscribe(seen._changed)
        work = asyncio.create_task(pods.run())
        try:
            await pods.wait_synced(60)
            yield seen
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    def _changed(self, event: Event[objects.Pod]) -> None:
        now, item = time.monotonic(), event.object
        key = item.metadata.namespace, item.metadata.name
        if event.kind == "DELETED":
            self.gone.setdefault(key, now)
            self.counts[f"running {key[0]}"] -= key in self.running
        if item.metadata.deletion_timestamp is not None:
            self.deleting.setdefault(key, now)
        self.bound.setdefault(key, now)
        if item.status.phase == "Running" and key not in self.running and event.kind != "DELETED":
            self.running[key] = now
            self.counts[f"running {key[0]}"] += 1


class _Stalls:
    """Asks slurmctld for one job all the time: the longest wait."""

    def __init__(self, slurm: SlurmClient) -> None:
        self._slurm = slurm
        self.longest = 0.0

    async def __aenter__(self) -> Self:
        self._work = asyncio.create_task(self._ask())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)

    async def _ask(self) -> None:
        while True:
            start = time.monotonic()
            with contextlib.suppress(NoJob):
                await self._slurm.call(protocol.get_external_job(1), timeout=60)
            self.longest = max(self.longest, time.monotonic() - start)
            await asyncio.sleep(0.1)


class _Bench:
    """One run, step by step."""

    def __init__(
        self, plane: ControlPlane, client: Client, slurm: SlurmClient, seen: _Seen, pods: int
    ) -> None:
        self._plane = plane
        self._client = client
        self._slurm = slurm
        self._seen = seen
        self._pods = pods
        self._burst = min(BURST, pods // 2)
        self._numbers = itertools.count()
        self._rng = random.Random(pods)  # noqa: S311 - spreads the moments of cancellations
        self.program: Program

    async def prepare(self, path: Path, profile: Path | None) -> None:
        """Namespaces, nodes for Slurm and others, the tenant, the bridge."""
        # A list of nodes that is empty counts only after a minute.
        other = (
            "NodeName=other NodeAddr=127.0.0.1 CPUs=1 RealMemory=100 State=External Feature=other"
        )
        await self._slurm.call(protocol.create_nodes(other))
        for name in (TENANT, BARE):
            await self._client.create(
                NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )
            account = {"name": "default", "namespace": name}
            body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}
            await self._client.create(ACCOUNTS, body)
        await bind(self._client, TENANT)
        managed = -(-(self._pods + UNSATISFIABLE) // ON_A_NODE) + 1
        names = [f"slurm-{number}" for number in range(managed)]
        names += [f"bare-{number}" for number in range(-(-self._burst // ON_A_NODE) + 1)]
        await bulk.each(
            partial(self._node, name, managed=name.startswith("slurm")) for name in names
        )
        # The chart's ConfigMap, without the tenants of the values.
        data = {"data": {TENANT: f'{{"user": "{USER}"}}'}}
        await self._client.merge_patch(CONFIG_MAPS, "slurm", "slurm-bridge-tenants", data)
        url = f"http://{slurmctld.ADDRESS}:{slurmctld.COMPACT}"
        self.program = Program(
            [
                *(
                    "bridge",
                    f"--kubeconfig={bridge_account(self._plane)}",
                    f"--slurmrestd-url={url}",
                ),
                *("--namespace=slurm", f"--jwt-key={path}", "--health-port=0"),
            ],
            self._plane.folder / "bridge.log",
            profile,
        )

        async def registered() -> bool:
            found = await self._slurm.call(protocol.get_nodes())
            return found is not None and sum(bool(it.extra) for it in found.nodes) == managed

        await until("all nodes are in Slurm", registered)
        await self.program.until_quiet()

    async def _node(self, name: str, *, managed: bool) -> None:
        item = node(name, cpus=ON_A_NODE)
        if not managed:
            item["metadata"]["labels"] = {}
        item["status"]["allocatable"]["memory"] = "64Gi"
        await self._client.create(NODES, item)
        shown = status(item)
        shown["allocatable"]["pods"] = shown["capacity"]["pods"] = "250"
        await self._client.merge_patch(NODES, None, name, {"status": shown}, subresource="status")
        taints = [{"key": bridge.TAINT, "effect": "NoSchedule"}] if managed else None
        await self._client.merge_patch(NODES, None, name, {"spec": {"taints": taints}})

    # --- pods

    def _bodies(self, namespace: str, count: int, **more: Manifest) -> list[Manifest]:
        """Pods of one CPU: for Slurm, or for the scheduler alone."""
        found = []
        for _ in range(count):
            item = pod(namespace, f"p{next(self._numbers)}")
            item["spec"] |= more
            if namespace == BARE:
                del item["spec"]["schedulingGates"]
            found.append(item)
        return found

    async def _create(self, bodies: Sequence[Manifest]) -> list[tuple[str, str]]:
        await bulk.each(partial(self._client.create, PODS, body, msgspec.Raw) for body in bodies)
        return [(body["metadata"]["namespace"], body["metadata"]["name"]) for body in bodies]

    async def _delete(self, keys: Iterable[tuple[str, str]]) -> None:
        keys = list(keys)

        async def one(namespace: str, name: str) -> None:
            with contextlib.suppress(NotFound):
                await self._client.delete(PODS, namespace, name)

        await bulk.each(partial(one, *key) for key in keys)
        # A pod without a node is gone with the answer.
        bound = [key for key in keys if key in self._seen.bound]
        await until("the pods are gone", lambda: all(key in self._seen.gone for key in bound))

    async def _started(self, namespace: str, **more: Manifest) -> tuple[tuple[str, str], float]:
        """One pod, and seconds from its creation until it runs."""
        bodies = self._bodies(namespace, 1, **more)
        start = time.monotonic()
        [key] = await self._create(bodies)
        await until(f"{key} runs", lambda: key in self._seen.running)
        return key, self._seen.running[key] - start

    async def _job_of(self, key: tuple[str, str]) -> int:
        found = await self._client.get(PODS, *key)
        return int(found["metadata"]["labels"][bridge.JOB_LABEL])

    # --- figures

    async def singles(self) -> list[Figure]:
        """One pod after the other on an idle cluster; the job of each is cancelled."""
        starts, ends, bare = [], [], []
        for _ in range(SINGLE):
            key, took = await self._started(TENANT)
            starts.append(took)
            await asyncio.sleep(self._rng.uniform(0.5, 1.5))
            job = await self._job_of(key)
            start = time.monotonic()
            await self._slurm.call(protocol.cancel_job(job))
            await until(f"{key} is deleted", partial(self._seen.deleting.__contains__, key))
            ends.append(self._seen.deleting[key] - start)
            await until(f"{key} is gone", partial(self._seen.gone.__contains__, key))
            key, took = await self._started(BARE)
            bare.append(took)
            await self._delete([key])
        beside = ("scheduler alone", statistics.median(bare))
        return [
            figure(
                "pod created → Running, median",
                statistics.median(starts),
                "s",
                against=beside,
                most=2,
            ),
            figure(
                "pod created → Running, longest",
                max(starts),
                "s",
                against=("scheduler alone", max(bare)),
            ),
            figure("scancel → pod deleted, median", statistics.median(ends), "s"),
            figure("scancel → pod deleted, longest", max(ends), "s", most=2),
        ]

    async def burst(self) -> list[Figure]:
        """Many pods at once: of one group, and each with a job of its own. Those stay."""
        keys, alone = await self._bound(self._bodies(BARE, self._burst))
        await self._delete(keys)
        labels = {bridge.GROUP_LABEL: "burst", bridge.GROUP_SIZE_LABEL: str(self._burst)}
        bodies = self._bodies(TENANT, self._burst)
        for body in bodies:
            body["metadata"]["labels"] |= labels
        keys, together = await self._bound(bodies)
        await self._delete(keys)
        await self.program.until_quiet()
        cpu, count = self.program.cpu(), served(self._plane)
        keys, took = await self._bound(self._bodies(TENANT, self._burst))
        since = served(self._plane) - count
        await until("all run", partial(self._all, keys, self._seen.running))
        spent = self.program.cpu() - cpu
        beside = ("scheduler alone", alone)
        most = 20 if self._burst == BURST else None
        name = f"{self._burst} pods created → bound"
        changes, events = (
            since["PATCH", "pods"] / self._burst,
            since["POST", "events"] / self._burst,
        )
        return [
            figure(f"{name}, one group", together, "s", against=beside, most=most),
            figure(f"{name}, each alone", took, "s", against=beside, most=most),
            figure(f"{name}: CPU of the bridge", 1e3 * spent / self._burst, "ms per pod"),
            figure(
                f"{name}: changes of pods until then, by bridge and kubelets", changes, "per pod"
            ),
            figure(f"{name}: Events until then, of bridge and scheduler", events, "per pod"),
        ]

    async def _bound(self, bodies: Sequence[Manifest]) -> tuple[list[tuple[str, str]], float]:
        """Create the pods; when all are bound, their keys and the seconds since the first
        request.
        """
        start = time.monotonic()
        keys = await self._create(bodies)
        await until("all are bound", partial(self._all, keys, self._seen.bound))
        return keys, max(self._seen.bound[key] for key in keys) - start

    async def beside_unsatisfiable(self) -> list[Figure]:
        """Small pods behind many that no node can run: they select a label that no node has."""
        await self.program.until_quiet()
        before = [(await self._started(TENANT))[1] for _ in range(5)]
        selector: Manifest = {"disk": "none"}
        waiting = await self._create(self._bodies(TENANT, UNSATISFIABLE, nodeSelector=selector))
        await until("all wait in Slurm", self._constrained)
        starts = [(await self._started(TENANT))[1] for _ in range(5)]
        longest, alone = max(starts), ("without them", max(before))
        await self._delete(waiting)
        delay = statistics.median(starts) - statistics.median(before)
        return [
            figure(
                f"small pod behind {UNSATISFIABLE} unsatisfiable: created → Running",
                longest,
                "s",
                against=alone,
            ),
            figure(
                f"small pod behind {UNSATISFIABLE} unsatisfiable: delay, median",
                max(0.0, delay),
                "s",
                most=2,
            ),
        ]

    async def _constrained(self) -> bool:
        states = (await self._slurm.call(protocol.get_job_states())).values()
        return sum("PENDING" in it for it in states) >= UNSATISFIABLE

    async def settled(self) -> list[Figure]:
        """All pods run, and nothing changes: Slurm has forgotten the jobs of the steps before,
        too.
        """
        present = self._seen.counts[f"running {TENANT}"]
        keys = await self._create(self._bodies(TENANT, self._pods - present))
        await until("all run", partial(self._all, keys, self._seen.running))
        await self._until_forgotten()
        await self.program.until_quiet()
        count, cpu, start = served(self._plane), self.program.cpu(), time.monotonic()
        await asyncio.sleep(IDLE_SECONDS)
        spent, seconds = self.program.cpu() - cpu, time.monotonic() - start
        since = served(self._plane) - count
        written = writes(since, to_pods=True) + writes(since, to_pods=False)
        name = f"{self._pods} pods, settled"
        return [
            figure(
                f"{name}: writes to the API server", written * 60 / seconds, "per minute", most=0
            ),
            figure(f"{name}: CPU of the bridge", 100 * spent / seconds, "% of a core", most=1),
            figure(f"{name}: RSS of the bridge", self.program.memory("VmRSS"), "MiB"),
        ]

    async def _until_forgotten(self) -> None:
        """Until Slurm knows no job that has ended: to forget one is a change."""
        async with asyncio.timeout(FORGOTTEN_SECONDS):
            while True:
                states = await self._slurm.call(protocol.get_job_states())
                if all("RUNNING" in it for it in states.values()):
                    return
                await asyncio.sleep(5)

    def _all(self, keys: Sequence[tuple[str, str]], times: dict[tuple[str, str], float]) -> bool:
        return all(key in times for key in keys)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bridge")
    parser.add_argument("--pods", type=int, default=PODS_IN_ALL)
    parser.add_argument("--profile", type=Path, help="where cProfile writes what the bridge did")
    parser.add_argument(
        "--step", action="append", choices=STEPS, help="this step alone; may be repeated"
    )
    limit = "of kube-scheduler in a second; its own default is 50"
    parser.add_argument("--scheduler-requests", type=int, default=SCHEDULER_REQUESTS, help=limit)
    given = parser.parse_args()
    print(table(measured(given.pods, given.profile, given.step or STEPS, given.scheduler_requests)))
