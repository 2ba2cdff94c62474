"""Jobs of the simulated clusters, and their processes in the worker pods.

A job that ends in another way than by its own end is a broken invariant, unless one of the few causes that no operator
can prevent has ended exactly this job: then `excuse` names it. The excuse is given at the moment of the cause, to the
jobs that it meets, and to none that starts later.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from sidecars.simulate import SlurmModel
from tests.support.world.kubelets import Ending, Kubelets, Slurmd


@dataclass
class Job:
    """A job for `count` nodes that takes `seconds`."""

    model: SlurmModel
    count: int
    seconds: float
    job_id: int = 0
    ends: float = 0.0
    nodes: tuple[str, ...] = ()
    over: bool = False
    excuse: str = ""
    """Why it may end otherwise; "" while it may not."""
    processes: set[str] = field(default_factory=set)
    """The uids of the pods in which its slurmstepd runs."""

    @property
    def runs(self) -> bool:
        """Whether it has started and not ended."""
        return bool(self.job_id) and not self.over

    def excused(self, why: str) -> None:
        """It may end otherwise from now on."""
        self.excuse = self.excuse or why


class Jobs:
    """All jobs of a world. `note` records a broken invariant."""

    def __init__(self, kubelets: Kubelets, rng: random.Random, note: Callable[[str], None]) -> None:
        self.all: list[Job] = []
        self._kubelets, self._rng, self._note = kubelets, rng, note
        self._power_lost: set[tuple[int, str]] = set()
        """Nodes by model and name whose slurmd has lost its power and not come back."""
        kubelets.steps = self.steps
        kubelets.ended.append(self._slurmd_ended)
        kubelets.registered.append(self._registered)
        kubelets.timed_out.append(self._timed_out)

    def steps(self, slurmd: Slurmd) -> int:
        """The slurmstepd processes beside a slurmd."""
        return sum(slurmd.uid in job.processes for job in self.all)

    def state_lost(self, model: SlurmModel) -> None:
        """slurmctld has forgotten these jobs. It ends their processes where slurmd registers again."""
        for job in self.all:
            if job.model is model and job.runs:
                job.excused("slurmctld has lost its state")

    def node_set_down(self, model: SlurmModel, name: str, who: str) -> None:
        """A client other than the operator sets a node DOWN, by which Slurm ends its jobs."""
        for job in self.all:
            if job.model is model and job.runs and name in job.nodes:
                job.excused(f"{who} set {name} DOWN")

    def tick(self, now: float) -> None:
        """Start the jobs for which nodes are free, end those whose time is over, and check the others."""
        for job in self.all:
            if job.over:
                continue
            if not job.job_id:
                self._start(job, now)
                continue
            record = job.model.jobs.get(job.job_id)
            if record is None or "RUNNING" not in record.states:
                job.over = True
                if not job.excuse:
                    states = sorted(record.states) if record else "gone"
                    self._note(f"I1: job {job.job_id} on {job.nodes} didn't end normally: it is {states}")
                if record is not None:
                    job.processes.clear()
                else:
                    self._until_own_end(job, now)
            elif now >= job.ends:
                job.over = True
                job.model.job_end(job.job_id, completing=True)
                self._later(self._rng.uniform(0.1, 1.5), self._completed, job)

    def _start(self, job: Job, now: float) -> None:
        model = job.model
        free = [name for name in sorted(model.nodes) if _free(model, name)]
        if len(free) < job.count:
            return
        job.nodes = tuple(self._rng.sample(free, job.count))
        opened = [name for name, it in model.partitions.items() if "UP" in it.states]
        job.job_id = model.job_start(job.nodes, partition=max(opened, key=len))
        job.ends = now + job.seconds
        job.processes = {it.uid for it in self._slurmds(model) if it.slurm_node in job.nodes}
        if any((id(model), name) in self._power_lost for name in job.nodes):
            job.excused("it was started on a node whose host has lost its power, which Slurm had not noticed yet")

    def _completed(self, job: Job) -> None:
        record = job.model.jobs.get(job.job_id)
        if record is not None and "COMPLETING" in record.states:
            job.model.job_end(job.job_id)
        job.processes.clear()

    def _until_own_end(self, job: Job, now: float) -> None:
        """slurmctld doesn't know it. Its processes end when slurmd registers again, or at their own time."""
        self._later(max(0.0, job.ends - now), job.processes.clear)

    def _registered(self, slurmd: Slurmd) -> None:
        """slurmctld compares its jobs with those that slurmd has (job_mgr.c, validate_jobs_on_node).

        It ends processes of jobs that it doesn't know, and jobs that have no process there.
        """
        self._power_lost.discard((id(slurmd.model), slurmd.slurm_node))
        for job in self.all:
            record = job.model.jobs.get(job.job_id) if job.model is slurmd.model else None
            if slurmd.uid in job.processes and (record is None or not record.on_nodes):
                job.processes.discard(slurmd.uid)
            elif record is not None and self._is_missing(job, slurmd):
                job.model.job_end(job.job_id, state="NODE_FAIL")

    @staticmethod
    def _is_missing(job: Job, slurmd: Slurmd) -> bool:
        return job.runs and slurmd.slurm_node in job.nodes and slurmd.uid not in job.processes

    def _slurmd_ended(self, slurmd: Slurmd, ending: Ending) -> None:
        name = slurmd.slurm_node
        if ending is Ending.POWER:
            self._power_lost.add((id(slurmd.model), name))
        for job in self.all:
            if slurmd.uid not in job.processes:
                continue
            job.processes.discard(slurmd.uid)
            completing = job.over and not job.excuse
            if ending in (Ending.POWER, Ending.FORCE, Ending.GRACE_OVER):
                job.excused(f"pod {slurmd.uid} with {name}: {ending.value}")
            elif not completing:
                self._note(f"I1: slurmd of {name} is stopped while processes of job {job.job_id} run beside it")

    def _timed_out(self, slurmd: Slurmd) -> None:
        self.node_set_down(slurmd.model, slurmd.slurm_node, "slurmctld, which doesn't reach slurmd for SlurmdTimeout,")

    def _slurmds(self, model: SlurmModel) -> list[Slurmd]:
        return [it for it in self._kubelets.running.values() if it.model is model and it.registered]

    def _later(self, seconds: float, call: Callable[..., None], *arguments: object) -> None:
        asyncio.get_running_loop().call_later(seconds, call, *arguments)


def _free(model: SlurmModel, name: str) -> bool:
    states = model.states(name)
    return "IDLE" in states and states.isdisjoint({"DRAIN", "FAIL", "NOT_RESPONDING", "COMPLETING", "RESERVED"})
