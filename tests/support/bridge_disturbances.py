"""A random run of the bridge with a real slurmctld, kube-apiserver and kube-scheduler. The kubelets
are simulated.
"""

import asyncio
import contextlib
import functools
import logging
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from sidecars.contract import bridge
from sidecars.kube import (
    CONFIG_MAPS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    Client,
    Manifest,
    NotFound,
    load_credentials,
)
from sidecars.slurm import protocol
from sidecars.slurm.client import Client as SlurmClient
from sidecars.slurm.errors import NotFound as NoJob
from sidecars.slurm.errors import SlurmError
from sidecars.slurm.external import ExternalJob
from sidecars.slurm.job_states import ENDED, has_ended
from tests.cluster.control_plane import ControlPlane
from tests.support.apiserver import until
from tests.support.bridge import node, pod
from tests.support.bridge_kubelets import FINISHES, Kubelets
from tests.support.bridge_stays import Stays
from tests.support.bridge_world import (
    ACCOUNTS,
    NUMBERS,
    OTHER,
    a_namespace,
    add_node,
    bind,
    bridge_account,
)
from tests.support.owners import Component, leaked, rivals
from tests.support.real import daemons
from tests.support.real.daemons import ALL, MEMORY, Daemons
from tests.support.real.processes import NotRunning

log = logging.getLogger(__name__)

LINES = """\
GresTypes=gpu
MinJobAge=20
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SchedulerParameters=extra_constraints,sched_interval=2,bf_interval=1
NodeSet=bridge Feature=slurm-bridge
PartitionName=slurm-bridge Nodes=bridge State=UP MaxTime=60 PriorityTier=1
PartitionName=urgent Nodes=bridge State=UP MaxTime=60 PriorityTier=10 PreemptMode=OFF
"""
USER = "mail"
CPUS, GPUS = 8, 2
CAPACITY = {"cpus": CPUS, "MiB": 16 * 1024, "GPUs": GPUS}
KUBE_NODES = ("k1", "k2", "k3")
MOST_PODS = 20
LEAST_COMPARED = 30
"""How many pods are compared with their jobs before a run may end."""
DISTURBANCES = {
    "create a pod": 10,
    "create a group": 5,
    "delete a pod": 5,
    "cancel a job": 5,
    "suspend and cancel a job": 1,
    "end the time of a job": 1,
    "lose a node": 1,
    "set a node down": 1,
    "cordon a node": 1,
    "kill the bridge": 2,
    "kill slurmctld": 1,
    "kill slurmrestd": 1,
}
"""How often each one is chosen. In the beginning, each one is done once."""
ENDS = {
    "cancel a job": "CANCELLED",
    "end the time of a job": "TIMEOUT",
    "set a node down": "NODE_FAIL",
}
"""The states in which jobs end by these disturbances. Pods of the partition `urgent` have them end
with PREEMPTED.
"""


class Run:
    """One run. `wrong` of `stays` is looked at all the time."""

    def __init__(
        self,
        folder: Path,
        plane: ControlPlane,
        client: Client,
        slurm: Daemons,
        rest: SlurmClient,
        seed: int,
    ) -> None:
        self.namespace = f"team-{next(NUMBERS)}"
        self.stays = Stays(client, rest, self.namespace, CAPACITY)
        self.done: Counter[str] = Counter()
        self._folder = folder
        self._kubeconfig = bridge_account(plane)
        self.client = client
        self.slurm = slurm
        self.rest = rest
        self._rng = random.Random(seed)  # noqa: S311 - reproducible as far as the daemons are
        self._number = 0
        self._lost: set[str] = set()
        self._forgotten: set[str] = set()
        self._ended: set[int] = set()
        self._limited: set[int] = set()
        self._refused = ""
        """What scontrol has refused last."""
        self._program: asyncio.subprocess.Process | None = None
        self._later: set[asyncio.Task[None]] = set()

    # --- the parts

    async def prepare(self) -> None:
        """The tenant, the nodes, the bridge."""
        await self.rest.call(protocol.create_nodes(OTHER))
        await self.client.create(
            NAMESPACES, a_namespace(self.namespace, **{"slurm-bridge": "managed"})
        )
        await bind(self.client, self.namespace)
        default = {"name": "default", "namespace": self.namespace}
        await self.client.create(
            ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": default}
        )
        entry = f'{{"user": "{USER}", "partitions": ["slurm-bridge", "urgent"]}}'
        await self.client.merge_patch(
            CONFIG_MAPS, "slurm", "slurm-bridge-tenants", {"data": {self.namespace: entry}}
        )
        for name in KUBE_NODES:
            await add_node(self.client, _node(name))
        (self._folder / "jwt.key").write_bytes(self.slurm.key)
        await self._start_bridge()
        await self.recorded()

    async def recorded(self) -> None:
        """Wait until Slurm has the records of all nodes."""

        async def look() -> bool:
            with contextlib.suppress(SlurmError):
                found = await self.rest.call(protocol.get_nodes())
                return found is not None and set(KUBE_NODES) <= {
                    it.name for it in found.nodes if it.extra
                }
            return False

        # A list of nodes that is empty counts only after a minute.
        await until("the records of the nodes", look)

    async def _start_bridge(self) -> None:
        arguments = [
            *("bridge", f"--kubeconfig={self._kubeconfig}", f"--slurmrestd-url={self.slurm.url}"),
            *("--namespace=slurm", f"--jwt-key={self._folder / 'jwt.key'}", "--health-port=0"),
        ]
        with (self._folder / "bridge.log").open("ab") as stream:
            self._program = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "sidecars", *arguments), stderr=stream
            )

    async def _kill_bridge(self) -> None:
        if self._program is not None:
            if self._program.returncode is None:
                self._program.send_signal(signal.SIGKILL)
            await self._program.wait()
            self._program = None
            with contextlib.suppress(NotFound):
                # The next one leads at once.
                await self.client.delete(LEASES, "slurm", "slurm-bridge")

    async def close(self) -> None:
        """End what was started. Of Kubernetes' objects, only the namespace and what is in it
        stays.
        """
        for task in self._later:
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)
        await self._kill_bridge()
        await self.client.merge_patch(
            CONFIG_MAPS, "slurm", "slurm-bridge-tenants", {"data": {self.namespace: None}}
        )
        for name in KUBE_NODES:
            with contextlib.suppress(NotFound):
                await self.client.delete(NODES, None, name)

    def logged(self) -> str:
        """The end of the bridge's log."""
        return "\n".join((self._folder / "bridge.log").read_text().splitlines()[-60:])

    @contextlib.asynccontextmanager
    async def watched(self, finishes: float = FINISHES) -> AsyncIterator[None]:
        """Kubelets serve the pods, and nothing happens that must not, while the block runs. Raises
        AssertionError.

        `finishes`: how probably a running pod finishes, each 0.2 s.
        """
        kubelets = Kubelets(self.client, self.stays, self._rng, self._lost, self.done, finishes)
        async with self.stays.watching(), asyncio.TaskGroup() as tasks:
            around = [tasks.create_task(kubelets.run()), tasks.create_task(self._looking())]
            try:
                yield
            except AssertionError as error:
                error.add_note(await self._described())
                raise
            for task in around:
                task.cancel()
        assert not self.stays.wrong, self.stays.wrong

    async def _described(self) -> str:
        """The pods, the jobs, and the ends of the logs, for who reads why a run has failed."""
        lines = [f"done: {dict(self.done)}", f"scontrol: {self._refused}", "pods:"]
        for name, it in self.stays.pods.items():
            job = it["metadata"].get("labels", {}).get(bridge.JOB_LABEL)
            deleted = it["metadata"].get("deletionTimestamp")
            lines.append(
                f"  {name}: {it['status'].get('phase')}, {it['spec'].get('nodeName')}, {job}, "
                f"{deleted}"
            )
        try:
            lines += ["jobs:", *map(str, await self._jobs(all_of=True))]
            found = await self.rest.call(protocol.get_nodes())
            lines += ["nodes:", *map(str, found.nodes if found is not None else ())]
        except SlurmError as error:
            lines.append(str(error))
        for name in ("slurmctld", "slurmrestd"):
            lines += [f"{name}:", *self.slurm.log(name).splitlines()[-30:]]
        return "\n".join((*lines, "bridge:", self.logged()))

    # --- the run

    async def run(self, seconds: float, outage: float) -> None:
        """Disturb for so long at least, then let everything settle, and take everything away.
        Raises AssertionError.

        `outage`: for how many seconds slurmctld is gone after that.
        """
        async with self.watched():
            await self._each_once()
            end = time.monotonic() + seconds
            # On a busy host, few pods are bound meanwhile.
            while time.monotonic() < end or self.stays.counts["compared"] < LEAST_COMPARED:
                what = self._rng.choices(list(DISTURBANCES), list(DISTURBANCES.values()))[0]
                await self._disturb(what)
                await asyncio.sleep(self._rng.uniform(0.1, 0.9))
            await self._outage(outage)
            log.info("everything settles: %s", dict(self.done))
            await asyncio.gather(*self._later)
            await self._settle()
        wanted = (*DISTURBANCES, *map(_end, ("PREEMPTED", *ENDS.values())))
        missing = [it for it in wanted if not self.done[it]]
        assert not missing, f"never happened: {missing}"

    async def _disturb(self, what: str) -> bool:
        done = bool(await getattr(self, "_" + what.replace(" ", "_"))())
        if done:
            self.done[what] += 1
            log.info("%s", what)
        return done

    async def _each_once(self) -> None:
        """Each disturbance, until it has had its effect, and the preemption of a job."""

        async def preempted() -> bool:
            if len(self.stays.pods) < MOST_PODS // 2:
                for _ in KUBE_NODES:
                    await self.create([CPUS])
                await asyncio.sleep(3)
            await self.create([CPUS], wishes={"partition": "urgent"})
            await asyncio.sleep(3)
            return self.done[_end("PREEMPTED")] > 0

        await until("a job that is preempted", preempted)
        for what in DISTURBANCES:
            # slurmctld looks at time limits each half minute.
            await until(what, functools.partial(self._has_effect, what))
            await asyncio.sleep(1)

    async def _has_effect(self, what: str) -> bool:
        """Whether it was done, and a job ended by it."""
        # A namespace may be full of pods that have finished.
        if not any(map(_runs, self.stays.pods.values())) and not await self._create_a_pod():
            await self._delete_a_pod()
        done = await self._disturb(what)
        if what not in ENDS or not self.done[what]:
            return done
        # Until slurmctld looks at time limits, the pod may finish. So the next job gets its turn
        # soon.
        for _ in range(5):
            if self.done[_end(ENDS[what])]:
                return True
            await asyncio.sleep(1)
        return False

    async def _outage(self, seconds: float) -> None:
        """slurmctld is gone for so long: no pod is deleted for it, and afterwards pods go on."""
        await asyncio.gather(*self._later)
        await asyncio.to_thread(self.slurm.kill, "slurmctld")
        log.info("slurmctld is gone for %.0f s", seconds)
        # A pass that had its answers may still be at work.
        await asyncio.sleep(5)
        running = {
            name: it["metadata"]["uid"]
            for name, it in self.stays.pods.items()
            if it["spec"].get("nodeName") and "deletionTimestamp" not in it["metadata"]
        }
        await asyncio.sleep(seconds)
        wrong = [
            name
            for name, uid in running.items()
            if (it := self.stays.pods.get(name)) is None
            or it["metadata"]["uid"] != uid
            or "deletionTimestamp" in it["metadata"]
        ]
        assert not wrong, f"pods were deleted while slurmctld was gone: {wrong}\n{self.logged()}"
        self.slurm.start("slurmctld")
        await self._resume_nodes()
        await self._one_more()
        self.done["pods that stay while slurmctld is gone"] += len(running)

    async def _one_more(self) -> None:
        """One pod more is bound."""
        before = self.stays.counts["compared"]

        async def bound() -> bool:
            # A node may be full of pods that run.
            if len(self.stays.pods) < MOST_PODS:
                await self._create_a_pod()
            else:
                await self._delete_a_pod()
            await asyncio.sleep(1)
            return self.stays.counts["compared"] > before

        await until("one pod more to be bound", bound)

    def _after(self, seconds: float, step: Callable[[], Awaitable[object]]) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            await step()

        task = asyncio.create_task(wait())
        self._later.add(task)

    # --- disturbances: whether it was done

    async def _create_a_pod(self) -> bool:
        return await self._create(1)

    async def _create_a_group(self) -> bool:
        return await self._create(self._rng.choice((2, 2, 3)))

    async def _create(self, size: int) -> bool:
        if len(self.stays.pods) + size > MOST_PODS:
            return False
        rng = self._rng
        equal = rng.random() < 0.5
        cpus = (
            [rng.randrange(1, CPUS // size + 2)] * size
            if equal
            else [rng.randrange(1, 5) for _ in range(size)]
        )
        gpus, memory = rng.choice((0, 0, 0, 1, GPUS)), rng.choice((100, 2000, 9000))
        wishes = {}
        if rng.random() < 0.2:
            wishes["partition"] = "urgent"
        if rng.random() < 0.15:
            wishes["timelimit"] = "1"
        await self.create(cpus, gpus=gpus, memory=memory, wishes=wishes)
        return True

    async def create(
        self,
        cpus: Sequence[int],
        *,
        gpus: int = 0,
        memory: int = 100,
        wishes: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Pods that request so much each, in a group if they are several: their names."""
        self._number += 1
        size, names = len(cpus), [f"p{self._number}-{index}" for index in range(len(cpus))]
        for name, each in zip(names, cpus, strict=True):
            group = (f"g{self._number}", size) if size > 1 else None
            item = pod(self.namespace, name, cpu=str(each), group=group)
            item["metadata"]["annotations"] = {
                f"{bridge.WISHES}{key}": text for key, text in (wishes or {}).items()
            }
            resources = item["spec"]["containers"][0]["resources"]
            resources["requests"]["memory"] = f"{memory}Mi"
            if gpus:
                resources["requests"]["nvidia.com/gpu"] = str(gpus)
                resources["limits"] = {"nvidia.com/gpu": str(gpus)}
            await self.client.create(PODS, item)
        return names

    async def _delete_a_pod(self) -> bool:
        if not self.stays.pods:
            return False
        name = self._rng.choice(sorted(self.stays.pods))
        with contextlib.suppress(NotFound):
            await self.client.delete(PODS, self.namespace, name)
        return True

    async def _live(self) -> list[int]:
        """The jobs that have not ended; none while slurmctld doesn't answer."""
        with contextlib.suppress(SlurmError):
            found = await self.rest.call(protocol.get_job_states())
            return sorted(job_id for job_id, states in found.items() if not has_ended(states))
        return []

    async def _cancel_a_job(self) -> bool:
        jobs = await self._live()
        with contextlib.suppress(SlurmError):
            if jobs:
                await self.rest.call(protocol.cancel_job(self._rng.choice(jobs)))
                return True
        return False

    async def _suspend_and_cancel_a_job(self) -> bool:
        """Resuming it could give its cores a second owner, which is Slurm's doing."""
        jobs = await self._live()
        if not jobs:
            return False
        job_id = self._rng.choice(jobs)
        with contextlib.suppress(NotRunning):
            done = await asyncio.to_thread(self.slurm.scontrol, "suspend", str(job_id))
            if done.returncode == 0:

                async def cancel() -> None:
                    while True:
                        with contextlib.suppress(SlurmError):
                            await self.rest.call(protocol.cancel_job(job_id))
                            return
                        await asyncio.sleep(0.5)

                self._after(self._rng.uniform(2, 6), cancel)
                return True
        return False

    async def _end_the_time_of_a_job(self) -> bool:
        """The pod's own deadline comes 5 s before the job's limit, and would cancel the job.

        Each job once: a second time would put its end off, perhaps each time that slurmctld is
        about to look.
        """
        jobs = [it for it in await self._live() if it not in self._limited]
        if not jobs:
            return False
        job_id = self._rng.choice(jobs)
        done = await self._update(f"jobid={job_id}", "EndTime=now+3")
        if done:
            self._limited.add(job_id)
        return done

    async def _set_a_node_down(self) -> bool:
        """As an administrator does. Its jobs fail, and its pods are deleted."""
        places = sorted(
            {it["spec"]["nodeName"] for it in self.stays.pods.values() if _runs(it)} - self._lost
        )
        if not places:
            return False
        name = self._rng.choice(places)

        if not await self._update(f"nodename={name}", "state=down", "reason=test"):
            return False
        self._after(self._rng.uniform(1, 5), self._resume_nodes)
        return True

    async def _update(self, *words: str) -> bool:
        """Whether scontrol has changed it; it doesn't while slurmctld is gone."""
        with contextlib.suppress(NotRunning):
            done = await asyncio.to_thread(self.slurm.scontrol, "update", *words)
            self._refused = done.stderr or self._refused
            return done.returncode == 0
        return False

    async def _resume_nodes(self) -> None:
        """Resume the nodes that are down, until none is."""

        async def none_down() -> bool:
            with contextlib.suppress(SlurmError):
                found = await self.rest.call(protocol.get_nodes())
                down = (
                    [it.name for it in found.nodes if "DOWN" in it.states]
                    if found is not None
                    else [""]
                )
                for name in filter(None, down):
                    await self._update(f"nodename={name}", "state=resume")
                return not down
            return False

        await until("all nodes to be in service", none_down)

    async def _lose_a_node(self) -> bool:
        """Its kubelet and its pods are gone in the same moment. It comes back later, empty."""
        if self._lost:
            return False
        name = self._rng.choice(KUBE_NODES)
        self._lost.add(name)
        await self.client.delete(NODES, None, name)
        self.stays.lose(name)

        async def back() -> None:
            # As Kubernetes removes pods of nodes that are gone.
            for found in [
                it for it in self.stays.pods.values() if it["spec"].get("nodeName") == name
            ]:
                meta = found["metadata"]
                with contextlib.suppress(NotFound):
                    await self.client.delete(
                        PODS, self.namespace, meta["name"], uid=meta["uid"], grace_period_seconds=0
                    )
            await asyncio.sleep(1)
            self._lost.discard(name)
            await add_node(self.client, _node(name))

        self._after(self._rng.uniform(1, 8), back)
        return True

    async def _cordon_a_node(self) -> bool:
        name = self._rng.choice(KUBE_NODES)
        if name in self._lost:
            return False

        async def cordon(on: bool) -> None:
            with contextlib.suppress(NotFound):
                await self.client.merge_patch(
                    NODES, None, name, {"spec": {"unschedulable": on or None}}
                )

        await cordon(True)
        self._after(self._rng.uniform(2, 6), lambda: cordon(False))
        return True

    async def _kill_the_bridge(self) -> bool:
        await self._kill_bridge()
        await asyncio.sleep(self._rng.choice((0, 0, 2)))
        await self._start_bridge()
        return True

    async def _kill_slurmctld(self) -> bool:
        return await self._kill("slurmctld")

    async def _kill_slurmrestd(self) -> bool:
        return await self._kill("slurmrestd")

    async def _kill(self, name: str) -> bool:
        await asyncio.to_thread(self.slurm.kill, name)

        async def back() -> None:
            self.slurm.start(name)
            if name == "slurmctld":
                # It may have forgotten that nodes were resumed. With all of them down, no pod would
                # run until the end.
                await self._resume_nodes()

        self._after(self._rng.uniform(0, 6), back)
        return True

    # --- meanwhile

    async def _looking(self) -> None:
        """What must never be."""
        while True:
            assert not self.stays.wrong, f"{self.stays.wrong}\n{self.logged()}"
            with contextlib.suppress(SlurmError):
                self._count(await self.rest.call(protocol.get_job_states()))
                found = self._started(await self._jobs())
                # Jobs are read one after the other: one may have ended before the next began.
                if rivals(found):
                    again = set(self._started(await self._jobs()))
                    wrong = rivals(it for it in found if it in again)
                    assert not wrong, f"{wrong}\n{self.logged()}"
            if self._program is not None and self._program.returncode is not None:
                assert "Traceback" not in self.logged(), self.logged()
                # Under load it may lose its lease.
                self.done["bridges that ended"] += 1
                await self._start_bridge()
            await asyncio.sleep(1)

    def _count(self, states: Mapping[int, frozenset[str]]) -> None:
        """Of the jobs that have ended since the last time."""
        for job_id, now in states.items():
            ended = now & ENDED
            if ended and job_id not in self._ended:
                self.done[_end(min(ended))] += 1
        self._ended = {job_id for job_id, now in states.items() if has_ended(now)}

    async def _jobs(self, *, all_of: bool = False) -> list[ExternalJob]:
        """The placeholders that have not ended, or all. Raises SlurmError."""
        states = await self.rest.call(protocol.get_job_states())
        found = []
        for job_id, now in states.items():
            if all_of or not has_ended(now):
                with contextlib.suppress(NoJob):
                    job = await self.rest.call(protocol.get_external_job(job_id))
                    if bridge.decode(job.admin_comment) or bridge.decode(job.comment):
                        found.append(job)
        return found

    @staticmethod
    def _started(jobs: list[ExternalJob]) -> list[tuple[str, int]]:
        comments = [(it, bridge.decode(it.admin_comment)) for it in jobs if not it.blocked]
        return [
            (comment.group, it.het_id or it.job_id)
            for it, comment in comments
            if comment is not None and not has_ended(it.states)
        ]

    # --- the end

    async def _settle(self) -> None:
        await until("all to settle", self._settled)
        await self._delete_all()
        await self._resume_nodes()
        await until("all nodes to be idle", self._idle)
        await self._one_more()
        await self._delete_all()

    async def _delete_all(self) -> None:
        for name in list(self.stays.pods):
            with contextlib.suppress(NotFound):
                await self.client.delete(PODS, self.namespace, name)

        async def nothing() -> bool:
            with contextlib.suppress(SlurmError):
                return not self.stays.pods and not await self._jobs()
            return False

        await until("all pods and all jobs to be gone", nothing)

    async def _idle(self) -> bool:
        with contextlib.suppress(SlurmError):
            found = await self.rest.call(protocol.get_nodes())
            wanted = {"IDLE", "EXTERNAL", "DYNAMIC_NORM"}
            return found is not None and set(KUBE_NODES) <= {
                it.name for it in found.nodes if it.states == wanted
            }
        return False

    async def _settled(self) -> bool:
        """Each job has its pods, each pod that runs its job, and no pod waits for anything but
        Slurm.
        """
        try:
            jobs = await self._jobs(all_of=True)
        except SlurmError:
            return False
        known = {it.job_id for it in jobs}
        components = [
            Component(it.job_id, it.het_id or it.job_id, live=not has_ended(it.states))
            for it in jobs
        ]
        pods: dict[str, tuple[int | None, bool]] = {}
        for name, found in list(self.stays.pods.items()):
            label = found["metadata"].get("labels", {}).get(bridge.JOB_LABEL)
            job = int(label) if label else None
            if found["status"].get("phase") in ("Succeeded", "Failed"):
                continue
            if job is not None and job not in known:
                # slurmctld that was killed has forgotten it. A user deletes such a pod, as its
                # condition describes.
                self.done["pods of forgotten jobs"] += name not in self._forgotten
                self._forgotten.add(name)
                with contextlib.suppress(NotFound):
                    await self.client.delete(PODS, self.namespace, name)
            pods[name] = job, bool(found["spec"].get("nodeName"))
        return not leaked(components, pods)


def _runs(pod: Manifest) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _end(state: str) -> str:
    return f"jobs that end with {state}"


def _node(name: str) -> Manifest:
    item = node(name, cpus=CPUS)
    item["status"]["allocatable"]["nvidia.com/gpu"] = str(GPUS)
    return item


@contextlib.asynccontextmanager
async def prepared(folder: Path, plane: ControlPlane, port: int, seed: int) -> AsyncIterator[Run]:
    """A run whose bridge and slurmctld are ready. `plane` is one of
    `bridge_world.control_plane`.
    """
    with daemons.started(folder / "slurm", port, f"{ALL}{MEMORY}{LINES}") as slurm:
        async with (
            slurm.client() as rest,
            Client.connect(load_credentials(plane.kubeconfig)) as client,
        ):

            async def answers() -> bool:
                with contextlib.suppress(SlurmError):
                    await rest.call(protocol.get_job_states())
                    return True
                return False

            await until("slurmctld to answer", answers)
            run = Run(folder, plane, client, slurm, rest, seed)
            try:
                await run.prepare()
                yield run
            finally:
                await run.close()
