"""A bridge with doubles of Kubernetes and of Slurm."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from sidecars.bridge import main
from sidecars.bridge.settings import Settings
from sidecars.contract import bridge
from sidecars.kube import EVENTS, PODS, Client
from sidecars.simulate import SlurmModel
from sidecars.simulate.records import SimJob
from tests.support.apiserver import until
from tests.support.bridge import live
from tests.support.kube_double import KubeDouble


@dataclasses.dataclass
class World:
    """One Kubernetes, one Slurm, and bridges that start and end."""

    kube: KubeDouble
    slurm: SlurmModel
    settings: Settings

    @contextlib.asynccontextmanager
    async def bridge(self) -> AsyncIterator[None]:
        """One that leads."""
        async with Client.connect(self.kube.credentials) as client:
            work = asyncio.create_task(main.lead(client, self.settings))
            try:
                yield
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
        await until("a job that is not held", self.when(lambda: any(not job.blocked for job in live(self.slurm))))
        [found] = live(self.slurm)
        return found

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
        await until(what, self.when(look), 8)
