"""Simulated kubelets and a simulated Slurm in a process of their own, for the benchmarks of the
operator.

A kubelet here binds the pod to a free Kubernetes node, registers its slurmd in Slurm, and reports
the pod as ready: two requests per pod and no delay. When the pod is deleted, its record is deleted
from Slurm, as the `node` sidecar does it, and the pod ends. Times are of the monotonic clock, which
all processes share.
"""

import asyncio
import collections
import contextlib
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sidecars import objects
from sidecars.contract.extra import PodFacts, encode
from sidecars.kube import (
    PODS,
    Client,
    Event,
    NotFound,
    Reflector,
    load_credentials,
)
from sidecars.policy.podstate import CONDITION_PREFIX
from sidecars.simulate import SlurmModel, serve
from sidecars.simulate.records import Reply
from sidecars.slurm.hostlists import expand
from tests.support import kubelet

START_SECONDS = 60.0
WORKERS = 32


class _Slurm(SlurmModel):
    """Notes when a node was first drained."""

    def __init__(self) -> None:
        super().__init__()
        self.drained: dict[str, float] = {}

    def handle(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        token: str | None = "",
        named: str | None = None,
    ) -> Reply:
        reply = super().handle(method, target, body, token, named)
        call = self.calls[-1]
        if method == "POST" and reply.status == 200 and (call.body or {}).get("state") == ["DRAIN"]:
            now = time.monotonic()
            for expression in (call.body or {})["name"]:
                for name in expand(expression):
                    self.drained.setdefault(name, now)
        return reply


class _Kubelets:
    """What the parent may ask for: every public method."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pods: Reflector[objects.Pod] = Reflector(client, PODS, type=objects.Pod)
        self._pods.store.subscribe(self._changed)
        self._work: asyncio.Queue[objects.Pod] = asyncio.Queue()
        self._free: collections.deque[str] = collections.deque()
        self._created: dict[str, float] = {}
        self._ready: dict[str, float] = {}
        self._deleted: dict[str, float] = {}
        self._shown: dict[str, float] = {}
        self._requests = 0
        self.slurm = _Slurm()

    def add_kube_nodes(self, names: list[str]) -> None:
        """Pods may be bound to these, one to each."""
        self._free.extend(names)

    def forget(self) -> None:
        """Drop all times and counts so far."""
        for noted in (
            self._created,
            self._ready,
            self._deleted,
            self._shown,
            self.slurm.drained,
        ):
            noted.clear()
        self.slurm.calls.clear()
        self._requests = 0

    def pods(self) -> tuple[int, int, float, float]:
        """How many exist, how many are ready, and when the last one was created and became
        ready.
        """
        pods = self._pods.store.values()
        ready = sum(1 for pod in pods if pod.metadata.uid in self._ready)
        return (
            len(pods),
            ready,
            max(self._created.values(), default=0.0),
            max(self._ready.values(), default=0.0),
        )

    def shown(self) -> tuple[int, float]:
        """How many pods have shown the state of their Slurm node in a condition, and when the last
        of them showed it first.
        """
        return len(self._shown), max(self._shown.values(), default=0.0)

    def drained(self) -> dict[str, float]:
        """When Slurm was asked to drain a node, by node."""
        return dict(self.slurm.drained)

    def deleted(self) -> dict[str, float]:
        """When a pod was first seen with a deletion timestamp, or missing; by Slurm node."""
        return dict(self._deleted)

    def requests(self) -> tuple[int, int, int]:
        """Requests of the kubelets; requests to slurmrestd, and those of them that write."""
        calls = self.slurm.calls
        return self._requests, len(calls), sum(call.method != "GET" for call in calls)

    def start_job(self, node: str) -> int:
        """A job on a node."""
        return self.slurm.job_start([node])

    def end_job(self, job: int) -> float:
        """The job ends; when."""
        self.slurm.job_end(job)
        return time.monotonic()

    def _changed(self, event: Event[objects.Pod]) -> None:
        now, pod = time.monotonic(), event.object
        if any(it.type.startswith(CONDITION_PREFIX) for it in pod.status.conditions):
            self._shown.setdefault(pod.metadata.uid, now)
        terminating = pod.metadata.deletion_timestamp is not None
        if event.kind == "ADDED":
            self._created[pod.metadata.uid] = now
            self._work.put_nowait(pod)
        elif event.kind == "DELETED":
            self._deleted.setdefault(pod.spec.hostname, now)
            self._free.append(pod.spec.node_name)
        elif (
            terminating and event.old is not None and event.old.metadata.deletion_timestamp is None
        ):
            self._deleted.setdefault(pod.spec.hostname, now)
            self._work.put_nowait(pod)

    async def run(self) -> None:
        """Be kubelets until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            for _ in range(WORKERS):
                tasks.create_task(self._kubelet())

    async def synced(self) -> None:
        """Wait until the pods are watched."""
        await self._pods.wait_synced(START_SECONDS)

    async def _kubelet(self) -> None:
        while True:
            pod = await self._work.get()
            with contextlib.suppress(NotFound):
                await (
                    self._start(pod) if pod.metadata.deletion_timestamp is None else self._stop(pod)
                )

    async def _start(self, pod: objects.Pod) -> None:
        metadata = pod.metadata
        kube_node = self._free.popleft()
        self._requests += 2
        await kubelet.bind(self._client, metadata.namespace, metadata.name, kube_node)
        owner = metadata.controller
        facts = PodFacts(
            metadata.uid, metadata.name, kube_node, owner.uid if owner is not None else ""
        )
        self.slurm.node_register(pod.spec.hostname, extra=encode(facts), instance_id=kube_node)
        await kubelet.run(self._client, metadata.namespace, metadata.name)
        self._ready[metadata.uid] = time.monotonic()

    async def _stop(self, pod: objects.Pod) -> None:
        if pod.spec.hostname in self.slurm.nodes:
            self.slurm.node_lose(pod.spec.hostname)
        self._requests += 1
        await kubelet.end(self._client, pod.metadata.namespace, pod.metadata.name)


class Kubelets:
    """The parent's end. `url` is slurmrestd's."""

    def __init__(self, connection: Connection, url: str) -> None:
        self._connection = connection
        self.url = url

    def ask(self, what: str, *arguments: Any) -> Any:
        """The answer of a method of _Kubelets."""
        self._connection.send((what, arguments))
        return self._connection.recv()


@contextlib.asynccontextmanager
async def process(
    main: Callable[[Path, Connection], None], kubeconfig: Path
) -> AsyncIterator[Connection]:
    """A process of kubelets that has sent something, while the block runs."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    started = context.Process(target=main, args=(kubeconfig, theirs), daemon=True)
    started.start()
    theirs.close()
    try:
        if not await asyncio.to_thread(ours.poll, START_SECONDS):
            raise TimeoutError(f"the kubelets didn't start within {START_SECONDS:g} s")
        yield ours
    finally:
        started.terminate()
        started.join()


@contextlib.asynccontextmanager
async def kubelets(kubeconfig: Path) -> AsyncIterator[Kubelets]:
    """The process, while the block runs."""
    async with process(_main, kubeconfig) as connection:
        yield Kubelets(connection, connection.recv())


def _main(kubeconfig: Path, connection: Connection) -> None:
    async def serving() -> None:
        async with Client.connect(load_credentials(kubeconfig), concurrency=WORKERS) as client:
            own = _Kubelets(client)

            def answer() -> None:
                try:
                    what, arguments = connection.recv()
                except EOFError:  # the benchmark was killed
                    raise SystemExit from None
                connection.send(getattr(own, what)(*arguments))

            async with serve(own.slurm) as url, asyncio.TaskGroup() as tasks:
                tasks.create_task(own.run())
                await own.synced()
                asyncio.get_running_loop().add_reader(connection.fileno(), answer)
                connection.send(url)

    asyncio.run(serving())
