"""Whether no core, byte or device has two owners, checked with each change of a pod on a real
Kubernetes.

A pod stays on its node from the binding on until it is gone or has finished. Meanwhile its job's
cores are its own, also after the end of the job.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from sidecars.contract import bridge
from sidecars.kube import PODS, Client, Event, Manifest, Reflector
from sidecars.slurm import protocol
from sidecars.slurm.carrier import Carrier
from sidecars.slurm.errors import NotFound, SlurmError
from sidecars.slurm.external import ExternalJob
from sidecars.slurm.protocol import Fields, Request
from tests.support.owners import Claim, overbooked

Cores = Mapping[str, frozenset[str]]
"""The cores of a job by node."""


@dataclass
class Stay:
    """One pod on its node."""

    pod: str
    group: str
    """As comments of jobs name it."""
    node: str
    job: int
    amounts: Mapping[str, int]
    begun: int
    ended: int | None = None
    owner: str = ""
    cores: frozenset[str] = field(default=frozenset())

    def beside(self, other: "Stay") -> bool:
        """Whether both were on one node at the same time."""
        first, last = sorted((self, other), key=lambda it: it.begun)
        return self.node == other.node and (first.ended is None or first.ended > last.begun)


class Stays:
    """Those of one namespace. `wrong` has what must not be. Nodes have `capacity`."""

    def __init__(
        self, client: Client, slurm: Carrier, namespace: str, capacity: Mapping[str, int]
    ) -> None:
        self._reflector = Reflector(client, PODS, namespaces=[namespace])
        self._slurm = slurm
        self._capacity = capacity
        self._all: dict[str, Stay] = {}
        self._tick = 0
        self._unread: asyncio.Queue[Stay] = asyncio.Queue()
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self.pods: dict[str, Manifest] = {}
        """By name, as the watch shows them."""
        self._reflector.store.subscribe(self._changed)

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[Self]:
        """It, while the block runs."""
        work = [asyncio.create_task(self._reflector.run()), asyncio.create_task(self._read())]
        try:
            await self._reflector.wait_synced(60)
            yield self
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    def lose(self, node: str) -> None:
        """From now on nothing runs there."""
        self._tick += 1
        for stay in self._all.values():
            if stay.node == node and stay.ended is None:
                stay.ended = self._tick

    def _changed(self, event: Event[Manifest]) -> None:
        self._tick += 1
        pod = event.object
        meta, spec = pod["metadata"], pod["spec"]
        uid, name = meta["uid"], meta["name"]
        deleted = event.kind == "DELETED"
        gone = deleted or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if deleted:
            self.pods.pop(name, None)
        else:
            self.pods[name] = pod
        stay = self._all.get(uid)
        if stay is not None:
            if gone and stay.ended is None:
                stay.ended = self._tick
            return
        if not spec.get("nodeName") or gone:
            return
        labels = meta.get("labels", {})
        group = labels.get(bridge.GROUP_LABEL)
        job = int(labels.get(bridge.JOB_LABEL, 0))
        stay = Stay(
            name,
            f"group/{group}" if group else uid,
            spec["nodeName"],
            job,
            amounts(pod),
            self._tick,
        )
        self._all[uid] = stay
        self.counts["bound"] += 1
        present = [it for it in self._all.values() if it.ended is None]
        claims = [Claim(it.pod, it.node, it.amounts) for it in present]
        self.wrong += overbooked(dict.fromkeys({it.node for it in present}, self._capacity), claims)
        self._unread.put_nowait(stay)

    async def _read(self) -> None:
        """The cores of the jobs of new stays, in their order."""
        while True:
            stay = await self._unread.get()
            await self._ask(stay)
            await self._compare(stay)

    async def _ask(self, stay: Stay) -> str:
        """Take what Slurm knows of its job; what that is, in words."""
        while True:
            try:
                job, cores = await self._slurm.call(cores_of(stay.job))
            except NotFound:
                return f"job {stay.job} is forgotten"
            except SlurmError:
                await asyncio.sleep(0.2)
                continue
            self._take(stay, job, cores)
            has = {node: sorted(its) for node, its in cores.items()}
            return (
                f"job {stay.job} is {'+'.join(sorted(job.states))} since {job.start_time} on {has}"
            )

    @staticmethod
    def _take(stay: Stay, job: ExternalJob, cores: Cores) -> None:
        comment = bridge.decode(job.admin_comment)
        # slurmctld that was killed may give the id of a job that it has forgotten to another one.
        if comment is not None and comment.group == stay.group and stay.node in cores:
            stay.owner = f"job {stay.job} since {job.start_time}"
            stay.cores = cores[stay.node]

    async def _compare(self, stay: Stay) -> None:
        if not stay.owner:
            self.counts["of forgotten jobs"] += 1
            return
        self.counts["compared"] += 1
        beside = [it for it in self._all.values() if it.owner and stay.beside(it)]
        for other in beside:
            known = ""
            if other is not stay and other.cores & stay.cores and other.owner != stay.owner:
                # slurmctld that was killed may have started its job again, on other cores.
                known = await self._ask(other)
            found = overbooked(
                {}, [Claim(it.owner, it.node, things=it.cores) for it in (stay, other)]
            )
            self.wrong += [f"{it}: {stay.pod} beside {other.pod}, {known}" for it in found]
        own = [it for it in beside if it.owner == stay.owner and it.ended is None]
        place = f"{stay.owner} on {stay.node}"
        cpus = [Claim(it.pod, place, {"cpus": it.amounts["cpus"]}) for it in own]
        self.wrong += overbooked({place: {"cpus": len(stay.cores)}}, cpus)


def amounts(pod: Manifest) -> dict[str, int]:
    """What a pod of `tests.support.bridge.pod` requests."""
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    memory = int(requests["memory"].removesuffix("Mi"))
    return {
        "cpus": int(requests["cpu"]),
        "MiB": memory,
        "GPUs": int(requests.get("nvidia.com/gpu", 0)),
    }


def cores_of(job_id: int) -> Request[tuple[ExternalJob, Cores]]:
    """A job with its cores."""
    record = protocol.get_external_job(job_id)

    def read(answer: Fields) -> tuple[ExternalJob, Cores]:
        found: dict[str, frozenset[str]] = {}
        for job in answer.items("jobs"):
            nodes = job.nested("job_resources").nested("nodes").items("allocation", optional=True)
            for it in nodes if job.number("job_id") == job_id else ():
                found[it.text("name")] = frozenset(
                    f"core {socket.number('index')}/{core.number('index')}"
                    for socket in it.items("sockets", optional=True)
                    for core in socket.items("cores", optional=True)
                    if "ALLOCATED" in core.states("status")
                )
        return record.read(answer), found

    return Request("GET", f"job/{job_id}", read=read)
