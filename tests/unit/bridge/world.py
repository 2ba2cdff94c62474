"""A bridge with doubles of Kubernetes and of Slurm."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from sidecars.bridge import main
from sidecars.bridge.passes import Passes
from sidecars.bridge.settings import Settings
from sidecars.contract import bridge
from sidecars.kube import CONFIG_MAPS, EVENTS, NAMESPACES, NODES, PODS, Client
from sidecars.serving import serve as serve_pages
from sidecars.simulate import SlurmModel, serve
from sidecars.simulate.records import SimJob
from tests.support.apiserver import until
from tests.support.bridge import KEY, live, node, pod, slurm, tenants
from tests.support.kube_double import KubeDouble

CLUSTER = "11111111-0000-4000-8000-000000000000"
"""The uid of the namespace kube-system."""


@dataclasses.dataclass
class World:
    """One Kubernetes, one Slurm, and bridges that start and end."""

    kube: KubeDouble
    slurm: SlurmModel
    settings: Settings

    @contextlib.asynccontextmanager
    async def bridge(self) -> AsyncIterator[list[Passes]]:
        """One that leads. Its time is that of the event loop."""
        passes: list[Passes] = []
        now = asyncio.get_running_loop().time
        async with Client.connect(self.kube.credentials) as client:
            work = asyncio.create_task(
                main.lead(client, self.settings, started=passes.append, now=now)
            )
            try:
                yield passes
            finally:
                assert not work.done(), work.exception()
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    def pod(self, name: str = "p") -> Any:
        return self.kube.objects(PODS)["team", name]

    def condition(self, name: str = "p") -> dict[str, Any]:
        found = (self.pod(name).get("status") or {}).get("conditions", ())
        return next((it for it in found if it["type"] == bridge.CONDITION), {})

    def bind(self, name: str = "p") -> None:
        """As the scheduler and the kubelet do with a released pod."""
        item = self.pod(name)
        item["spec"]["nodeName"] = item["metadata"]["annotations"][bridge.NODE_ANNOTATION]
        self.kube.put(PODS, item)

    async def job(self) -> SimJob:
        """The only job, as soon as it may start."""
        await until(
            "a job that is not blocked",
            self.when(lambda: any(not job.blocked for job in live(self.slurm))),
        )
        [found] = live(self.slurm)
        return found

    async def running(self) -> SimJob:
        """The job of a pod `p` that was released to the node and bound."""
        await self.until("the node's record", lambda: "k1" in self.slurm.nodes)
        self.kube.put(PODS, pod("team", "p"))
        job = await self.job()
        self.slurm.job_run(job.job_id, {"k1": 1})
        await self.until("the release", self.released)
        self.bind()
        return job

    def released(self, name: str = "p") -> bool:
        return not self.pod(name)["spec"]["schedulingGates"]

    def reasons(self) -> set[str]:
        return {it["reason"] for it in self.kube.objects(EVENTS).values()}

    @staticmethod
    def when(look: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
        async def looked() -> bool:
            return look()

        return looked

    async def until(self, what: str, look: Callable[[], bool]) -> None:
        await until(what, self.when(look))


@contextlib.asynccontextmanager
async def a_world(folder: Path) -> AsyncIterator[World]:
    """With a tenant and a node."""
    (folder / "jwt.key").write_bytes(KEY)
    model = slurm()
    async with KubeDouble() as kube, serve(model) as url:
        kube.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": CLUSTER}})
        kube.put(NODES, node("k1"))
        kube.put(CONFIG_MAPS, tenants("slurm", team='{"user": "ada"}', rooted='{"user": "toor"}'))
        yield World(kube, model, Settings(url, "slurm", key_file=folder / "jwt.key", health_port=0))


@contextlib.asynccontextmanager
async def served(
    port: int, fault: Callable[[], str] = str, problem: Callable[[], str] = str
) -> AsyncIterator[None]:
    """Serve what the bridge serves, on this port of all addresses."""
    end = await serve_pages(main.pages(fault, problem), None, port, None)
    try:
        yield
    finally:
        await end()
