"""The small Slurm and Kubernetes of `model` whose nodes have a slurmd: guards, Epilogs, and Slurm's
own jobs.

Slurm gives what an ended guard has on a node to others when the Epilog there has ended, or when
slurmd is lost. It gives the cores of a suspended guard to others, and what a guard had whose start
a killed slurmctld has forgotten: until the bridge has drained the node, its own jobs may get that,
as docs/bridge-workers.md describes.

Pods get devices from a device plugin, which knows nothing of Slurm's own jobs.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from sidecars.bridge.core import guards
from sidecars.bridge.core.guards import GUARD, Gone, Worker
from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.nodes import Drain, Undrain
from sidecars.bridge.core.records import Action, Phase, Release, View
from sidecars.bridge.core.shape import Shape, gpus_of
from sidecars.contract import bridge
from sidecars.slurm.external import ExternalJob
from sidecars.slurm.records import Node
from tests.unit.bridge.core.model import CANCELLED, CPUS, MEMORY, SimJob, SimPod, World
from tests.unit.bridge.core.model_claims import GPUS


class Native(NamedTuple):
    """One of Slurm's own jobs on one node."""

    node: str
    cpus: int
    memory: int
    gpus: int
    excused: bool
    """Whether it may have got what a pod still uses."""


@dataclass
class GuardWorld(World):
    """With Slurm's own jobs."""

    completing: dict[int, set[str]] = field(default_factory=dict)
    """The nodes on which the Epilog of a guard waits."""
    annotations: dict[str, str] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)
    """What the Epilogs see of them."""
    native: list[Native] = field(default_factory=list)
    lost: dict[str, bool] = field(default_factory=dict)
    """The nodes whose slurmd is lost, and whether the bridge has looked at them since."""
    drained: dict[str, str] = field(default_factory=dict)
    busy: bool = True
    """Whether Slurm gets jobs of its own. They could have a job with whole nodes wait for ever."""
    waited: int = 0
    """How often an Epilog has waited for a pod."""
    suspended: set[int] = field(default_factory=set)
    """The guards that were suspended at some time."""
    unguarded: set[str] = field(default_factory=set)
    """The pods whose guard was suspended, or has started for nothing, while they had a node."""
    changed: set[int] = field(default_factory=set)
    """The guards whose user has changed their output."""
    restarted: set[int] = field(default_factory=set)
    """The guards that were queued again: Slurm is asked about them, whatever their output is."""
    met: set[str] = field(default_factory=set)
    """What has happened to pods beside Slurm's own jobs."""

    # --- users

    def claimed(self, shape: Shape) -> int:
        """No claims: pods with them are refused."""
        return 0

    def change_output(self, job: SimJob) -> None:
        """Of a guard that is pending, as its user can, who may have one that runs queued again
        before.
        """
        if job.phase in (Phase.RUNNING, Phase.STARTING):
            self._begin_epilogs(job)
            job.phase = Phase.PENDING
            self.restarted.add(job.job_id)
        if job.phase is Phase.PENDING:
            self.changed.add(job.job_id)

    # --- Slurm

    def suspend(self, job: SimJob) -> None:
        """As an administrator can."""
        job.phase = Phase.STOPPED
        self.suspended.add(job.job_id)
        self._lose_guard(job)

    def roll_back(self, job: SimJob) -> None:
        """As without guards."""
        self._lose_guard(job)
        super().roll_back(job)

    def _lose_guard(self, job: SimJob) -> None:
        its = {uid for uid, it in self.pods.items() if it.pod.job == job.job_id and it.pod.node}
        self.unguarded |= its

    def end(self, job: SimJob, state: str = CANCELLED) -> None:
        """Its Epilogs begin."""
        if job.phase in (Phase.RUNNING, Phase.STARTING, Phase.STOPPED):
            self._begin_epilogs(job)
        super().end(job, state)

    def _begin_epilogs(self, job: SimJob) -> None:
        """They wait for the bridge, if it is a guard by its output, or has been queued again."""
        self.completing[job.job_id] = (
            set(job.slots) - self.lost.keys() if self._retains(job.job_id) else set()
        )

    def _retains(self, job_id: int) -> bool:
        return job_id not in self.changed or job_id in self.restarted

    def used(self, node: str) -> int:
        """As for any node. A drained one, and one without its slurmd, has no place."""
        retained = self._retained(node)
        # What a suspended guard had may be another job's: only the state COMPLETING keeps others
        # from the node.
        if (
            node in self.lost
            or node in self.drained
            or any(it.job_id in self.suspended for it in retained)
        ):
            return CPUS
        its = sum(job.cpus(node) for job in retained)
        return super().used(node) + its + sum(it.cpus for it in self.native if it.node == node)

    def used_memory(self, node: str) -> int:
        """As `used`."""
        its = sum(job.memory(node) for job in self._retained(node))
        return (
            super().used_memory(node)
            + its
            + sum(it.memory for it in self.native if it.node == node)
        )

    def free_gpus(self, node: str) -> list[int]:
        """As `used`."""
        retained = {index for job in self._retained(node) for index in job.indices.get(node, ())}
        free = [index for index in super().free_gpus(node) if index not in retained]
        return free[sum(it.gpus for it in self.native if it.node == node) :]

    def _retained(self, node: str) -> list[SimJob]:
        return [self.jobs[job_id] for job_id, nodes in self.completing.items() if node in nodes]

    def schedule(self) -> None:
        """As without guards, and Slurm's own jobs, too."""
        for job_id, nodes in list(self.completing.items()):
            job = self.jobs[job_id]
            if nodes:
                job.ended, job.later = self.step, self.step + 1
                continue
            del self.completing[job_id]
            if job.phase is Phase.PENDING:
                job.slots, job.indices = {}, {}
        super().schedule()
        for node in self.nodes:
            cpus, memory = self.rng.randrange(1, CPUS + 1), self.rng.choice((1, 2, MEMORY))
            gpus = self.rng.choice((0, 0, 1))
            fits = self.used(node) + cpus <= CPUS and self.used_memory(node) + memory <= MEMORY
            if self.busy and self.rng.random() < 0.3 and fits and len(self.free_gpus(node)) >= gpus:
                suspended = any(
                    node in self.jobs[it].slots for it in self.suspended if it in self.jobs
                )
                self.native.append(
                    Native(node, cpus, memory, gpus, suspended or bool(self._excuses(node)))
                )

    def _excuses(self, node: str) -> list[str]:
        """The pods there whose cores Slurm has given away, or may have."""
        return [
            uid
            for uid, it in self.pods.items()
            if it.pod.node == node
            and it.pod.present
            and (uid in self.unguarded or it.pod.job in self.suspended)
        ]

    def lose_slurmd(self, node: str) -> None:
        """Slurm considers what was on the node as ended. The pods run on."""
        self.lost[node] = False
        for nodes in self.completing.values():
            nodes.discard(node)
        self.native = [it for it in self.native if it.node != node]
        for job in self.jobs.values():
            if node in job.slots and job.phase in (Phase.RUNNING, Phase.STARTING, Phase.STOPPED):
                self.end(job, "NODE_FAIL")

    def lose_node(self, node: str) -> None:
        """As without guards. Slurm misses the slurmd, and ends its jobs."""
        super().lose_node(node)
        for job in self.jobs.values():
            if node in job.slots and job.phase in (Phase.RUNNING, Phase.STARTING, Phase.STOPPED):
                self.end(job, "NODE_FAIL")
        for nodes in self.completing.values():
            nodes.discard(node)
        self.native = [it for it in self.native if it.node != node]
        self.lost.pop(node, None)
        self.drained.pop(node, None)

    def advance(self) -> None:
        """The Epilogs look at what the kubelets show, and jobs of Slurm's own end."""
        super().advance()
        for node in self.nodes:
            if self.rng.random() < 0.5:
                self.shown[node] = self.annotations.get(node, "")
        for job_id, nodes in self.completing.items():
            gone = {node for node in nodes if str(job_id) in self.shown.get(node, "").split(",")}
            self.waited += len(nodes - gone)
            nodes.difference_update(gone)
        self.native = [it for it in self.native if self.rng.random() < 0.8]
        # Without a bridge that has seen the loss, the node could get jobs at once.
        for node in [
            node for node, looked in self.lost.items() if looked and self.rng.random() < 0.5
        ]:
            del self.lost[node]

    # --- the bridge

    def states(self, job: SimJob) -> frozenset[str]:
        """COMPLETING while an Epilog waits."""
        return super().states(job) | ({"COMPLETING"} if self.completing.get(job.job_id) else set())

    def record(self, job: SimJob) -> ExternalJob:
        """That of a batch job."""
        return dataclasses.replace(
            super().record(job), external=False, guard=job.job_id not in self.changed
        )

    def view(self) -> View:
        """Each partition has nodes with a slurmd."""
        gres = {node: {"gpu": GPUS} for node in self.nodes}
        return dataclasses.replace(super().view(), kinds={"p": GUARD}, gres=gres)

    def apply(self, action: Action) -> None:
        """As without guards. Of what a pod uses, an Epilog will take care."""
        if isinstance(action, Release):
            assert self._retains(action.job), f"{action}, and no Epilog will wait for the pod"
        super().apply(action)

    def may_delete(self, job: SimJob) -> bool:
        """As without guards, or when the guard was queued again."""
        return super().may_delete(job) or job.phase is Phase.PENDING

    def act(self, *, kill: bool) -> Sequence[object]:
        """As without guards. The workers come last."""
        lost = list(self.lost)
        actions = super().act(kill=kill)
        view = self.view()
        received = guards.decide(
            view, map(self._worker, self.nodes), {it: self._record(it) for it in self.nodes}
        )
        for action in received[: self.rng.randrange(len(received) + 1)] if kill else received:
            match action:
                case Gone(worker, text):
                    self.annotations[worker.kube_node] = text
                case Drain(name, reason):
                    self.drained[name] = reason
                case Undrain(name):
                    self.drained.pop(name, None)
        if not kill and view.known:
            self.lost |= {node: True for node in lost if node in self.lost}
        return [*actions, *received]

    def _worker(self, node: str) -> Worker:
        metadata = {
            "name": node,
            "uid": node,
            "annotations": {bridge.GONE: self.annotations.get(node, "")},
        }
        return Worker(
            node, node, msgspec.convert({"metadata": metadata, "spec": {"nodeName": node}}, Pod)
        )

    def _record(self, node: str) -> Node:
        states = {*(("DOWN", "NOT_RESPONDING") if node in self.lost else ("IDLE",))}
        states |= {"DRAIN"} if node in self.drained else set()
        silent = "Not responding" if node in self.lost else ""
        return Node(node, frozenset(states), reason=self.drained.get(node, silent))

    def check(self) -> None:
        """Nothing of a pod is another job's of Slurm."""
        super().check()
        for node in self.nodes:
            pods = [
                it
                for it in self.pods.values()
                if it.pod.bound and it.pod.node == node and it.pod.present
            ]
            excused = self._excuses(node)
            native = [it for it in self.native if it.node == node and not (excused and it.excused)]
            self._check_beside(node, pods, native)
            self.met |= {
                "suspended" if self.pods[it].pod.job in self.suspended else "forgotten"
                for it in excused
            }

    def _check_beside(self, node: str, pods: list[SimPod], native: list[Native]) -> None:
        for what, most, its, others in (
            ("CPUs", CPUS, sum(it.cpus for it in pods), sum(it.cpus for it in native)),
            ("MiB", MEMORY, sum(it.memory for it in pods), sum(it.memory for it in native)),
        ):
            text = f"step {self.step}: {node} has {its} {what} of pods and {others} of other jobs"
            assert its + others <= most, text
        devices = sum(gpus_of(it.pod.shape.gres) for it in pods if it.pod.shape is not None)
        # The device plugin may give any of them to the pods.
        its = sum(it.gpus for it in native) if devices else 0
        text = f"step {self.step}: {node} has {devices} devices of pods and {its} of other jobs"
        assert devices <= GPUS, text
        assert not its, text
        self.met |= {"devices"} if devices else set()
