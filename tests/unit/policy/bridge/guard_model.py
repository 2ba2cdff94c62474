"""The small Slurm and Kubernetes of `model` whose nodes have a slurmd: guards, Epilogs, and Slurm's own jobs.

Slurm gives what an ended guard has on a node to others when the Epilog there has ended, or when slurmd is lost.
"""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sidecars.contract import bridge
from sidecars.policy.bridge import guards
from sidecars.policy.bridge.guards import GUARD, Gone, Worker
from sidecars.policy.bridge.manifests import Pod
from sidecars.policy.bridge.nodes import Drain, Undrain
from sidecars.policy.bridge.records import Job, Phase, View
from sidecars.policy.bridge.shape import Shape
from sidecars.slurm.records import Node
from tests.unit.policy.bridge.model import CPUS, SimJob, World


@dataclass
class GuardWorld(World):
    """With Slurm's own jobs."""

    completing: dict[int, set[str]] = field(default_factory=dict)
    """The nodes on which the Epilog of a guard waits."""
    annotations: dict[str, str] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)
    """What the Epilogs see of them."""
    native: list[tuple[str, int]] = field(default_factory=list)
    """Node and CPUs of Slurm's own jobs."""
    lost: dict[str, bool] = field(default_factory=dict)
    """The nodes whose slurmd is lost, and whether the bridge has looked at them since."""
    drained: dict[str, str] = field(default_factory=dict)
    waited: int = 0
    """How often an Epilog has waited for a pod."""

    # --- Slurm

    def end(self, job: SimJob) -> None:
        """Its Epilogs begin."""
        if job.phase in (Phase.RUNNING, Phase.STARTING):
            self.completing[job.job_id] = set(job.slots) - self.lost.keys()
        super().end(job)

    def used(self, node: str) -> int:
        """As for any node. A drained one, and one without its slurmd, has no place."""
        if node in self.lost or node in self.drained:
            return CPUS
        return super().used(node) + self._retained(node) + sum(cpus for it, cpus in self.native if it == node)

    def _retained(self, node: str) -> int:
        jobs = [self.jobs[job_id] for job_id, nodes in self.completing.items() if node in nodes]
        return sum(job.slots[node] * job.shape.cpus for job in jobs)

    def schedule(self) -> None:
        """As without guards, and Slurm's own jobs, too."""
        for job_id, nodes in list(self.completing.items()):
            if nodes:
                self.jobs[job_id].ended = self.step
            else:
                del self.completing[job_id]
        super().schedule()
        for node in self.nodes:
            cpus = self.rng.randrange(1, CPUS + 1)
            if self.rng.random() < 0.3 and self.used(node) + cpus <= CPUS:
                self.native.append((node, cpus))

    def lose_slurmd(self, node: str) -> None:
        """Slurm considers what was on the node as ended. The pods run on."""
        self.lost[node] = False
        for nodes in self.completing.values():
            nodes.discard(node)
        self.native = [it for it in self.native if it[0] != node]
        for job in self.jobs.values():
            if node in job.slots and job.phase in (Phase.RUNNING, Phase.STARTING):
                self.end(job)

    def lose_node(self, node: str) -> None:
        """As without guards."""
        super().lose_node(node)
        for nodes in self.completing.values():
            nodes.discard(node)
        self.native = [it for it in self.native if it[0] != node]
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
        for node in [node for node, looked in self.lost.items() if looked and self.rng.random() < 0.5]:
            del self.lost[node]

    # --- the bridge

    def _job(self, it: SimJob, shapes: Collection[Shape]) -> Job:  # type: ignore[override]
        found = super()._job(it, shapes)
        return dataclasses.replace(found, guard=True, completing=bool(self.completing.get(it.job_id)))

    def view(self) -> View:
        """Each partition has nodes with a slurmd."""
        return dataclasses.replace(super().view(), kinds={"p": GUARD})

    def run_bridge(self, *, kill: bool = False) -> list[Any]:
        """One pass, in which the workers come last."""
        lost = list(self.lost)
        actions: list[Any] = list(super().run_bridge(kill=kill))
        view = self.view()
        told = guards.decide(view, map(self._worker, self.nodes), {it: self._record(it) for it in self.nodes})
        for action in told[: self.rng.randrange(len(told) + 1)] if kill else told:
            match action:
                case Gone(worker, text):
                    self.annotations[worker.kube_node] = text
                case Drain(name, reason):
                    self.drained[name] = reason
                case Undrain(name):
                    self.drained.pop(name, None)
        if not kill and view.known:
            self.lost |= {node: True for node in lost if node in self.lost}
        return [*actions, *told]

    def _worker(self, node: str) -> Worker:
        metadata = {"name": node, "uid": node, "annotations": {bridge.GONE: self.annotations.get(node, "")}}
        return Worker(node, node, msgspec.convert({"metadata": metadata, "spec": {"nodeName": node}}, Pod))

    def _record(self, node: str) -> Node:
        states = {*(("DOWN", "NOT_RESPONDING") if node in self.lost else ("IDLE",))}
        states |= {"DRAIN"} if node in self.drained else set()
        silent = "Not responding" if node in self.lost else ""
        return Node(node, frozenset(states), reason=self.drained.get(node, silent))

    def check(self) -> None:
        """No CPU of a pod is one of another job's of Slurm."""
        super().check()
        for node in self.nodes:
            pods = sum(it.cpus for it in self.pods.values() if it.pod.bound and it.pod.node == node and it.pod.present)
            native = sum(cpus for it, cpus in self.native if it == node)
            assert pods + native <= CPUS, f"step {self.step}: {node} has {pods} CPUs of pods and {native} of other jobs"
