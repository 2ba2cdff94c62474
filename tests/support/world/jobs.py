"""Jobs of the simulated clusters, and their processes in the worker pods.

A job that ends in another way than by its own end is a broken invariant, unless one of the few
causes that no operator can prevent has ended exactly this job: then `excuse` names it. The excuse
is given at the moment of the cause, to the jobs that it meets, and to none that starts later.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from sidecars.simulate import Fault, SlurmModel
from sidecars.simulate.records import SimJob
from tests.support.world.kubelets import Ending, Kubelets, Slurmd

Kind = Literal[
    "plain",
    "no-kill",
    "no-requeue",
    "array",
    "heterogeneous",
    "suspended",
    "named",
    "excluding",
]
"""As of sbatch: `--no-kill`, `--no-requeue`, `--array`, `: ` between two components, `--nodelist`
with as many nodes as it takes, `--exclude` with one node; or it is suspended for a while.
"""

JUST_SUBMITTED = 6.0
"""Seconds after the submission of a job in which a record that it names may go: the jobs have been
read before.
"""
LIED_FOR = 20.0
"""Seconds after answers without the jobs in which it may."""

SUSPENDED_AFTER, SUSPENDED_FOR = 1.0, 10.0


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
    kind: Kind = "plain"
    suspend_at: float = inf
    resume_at: float = inf
    pending_id: int = 0
    """Its record while it is pending; 0 for a job that slurmctld starts as soon as it hears of it.
    """
    excuse: str = ""
    """Why it may end otherwise; "" while it may not."""
    waits: bool = False
    """Power saving starts its nodes. None of its processes runs before all have registered."""
    required: tuple[str, ...] = ()
    """The nodes that it names."""
    excluded: tuple[str, ...] = ()
    """The nodes that it doesn't run on."""
    submitted: float = -inf
    lacks: set[str] = field(default_factory=set)
    """Those of them whose record is missing."""
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
        self.requeued_before_start = 0
        """How often a job was requeued while power saving was starting its nodes."""
        self._kubelets, self._rng, self._note = kubelets, rng, note
        self._killed: set[tuple[int, str]] = set()
        """Nodes by model and name whose slurmd, with its sidecar, was killed and has not come back.
        """
        self._lied_at: dict[int, float] = {}
        """When Slurm last gave wrong answers, by model."""
        kubelets.steps = self.steps
        kubelets.ended.append(self._slurmd_ended)
        kubelets.registered.append(self._registered)
        kubelets.timed_out.append(self._timed_out)

    def steps(self, slurmd: Slurmd) -> int:
        """The slurmstepd processes beside a slurmd."""
        return sum(slurmd.uid in job.processes for job in self.all)

    def submit(self, model: SlurmModel, count: int, seconds: float, kind: Kind = "plain") -> Job:
        """A job that starts as soon as `count` nodes are free; the last task of an array.

        One that names or excludes nodes is in slurmctld's queue until then, but over if Slurm has
        not so many: it is refused.
        """
        if kind in ("named", "excluding"):
            return self._submit_pending(model, count, seconds, kind)
        tasks = count if kind == "array" else 1
        for _ in range(tasks):
            self.all.append(Job(model, 1 if kind == "array" else count, seconds, kind=kind))
        return self.all[-1]

    def queue(self, model: SlurmModel, count: int, seconds: float) -> Job:
        """A plain job that is in slurmctld's queue until `count` nodes are free. It takes all of
        their CPUs.
        """
        job = self.submit(model, count, seconds)
        job.pending_id = model.job_submit(cpus=4 * count, nodes=count)
        return job

    def _submit_pending(self, model: SlurmModel, count: int, seconds: float, kind: Kind) -> Job:
        known, asked = sorted(model.nodes), count if kind == "named" else 1
        job = Job(model, count, seconds, kind=kind, over=len(known) < asked)
        if not job.over:
            chosen = tuple(self._rng.sample(known, asked))
            job.required, job.excluded = (chosen, ()) if kind == "named" else ((), chosen)
            job.submitted = asyncio.get_running_loop().time()
            job.pending_id = model.job_submit(
                nodes=count, required=job.required, excluded=job.excluded
            )
        self.all.append(job)
        return job

    def cancel_waiting(self) -> None:
        """Their users cancel all jobs that haven't started."""
        for job in self.all:
            if not job.job_id and not job.over:
                job.over = True
                if job.pending_id in job.model.jobs:
                    job.model.job_end(job.pending_id, state="CANCELLED")

    def record_deleted(self, model: SlurmModel, name: str, who: str) -> None:
        """Another program than the operator, or a user, has deleted the record of a node."""
        for job in self.all:
            if job.model is model and name in job.required:
                job.excused(f"{who} deleted the record of {name}")

    def state_lost(self, model: SlurmModel) -> None:
        """slurmctld has forgotten these jobs. It ends their processes where slurmd registers
        again.
        """
        for job in self.all:
            if job.model is model and (job.runs or job.pending_id):
                job.excused("slurmctld has lost its state")

    def node_set_down(self, model: SlurmModel, name: str, who: str) -> None:
        """Another program than the operator, or a user, sets a node DOWN, by which Slurm ends its
        jobs.
        """
        for job in self.all:
            if job.model is model and job.runs and name in job.nodes:
                job.excused(f"{who} set {name} DOWN")

    def tick(self, now: float) -> None:
        """Start the jobs for which nodes are free, end those whose time is over, and check the
        others.
        """
        for job in tuple(self.all):
            if job.over:
                continue
            if job.required:
                self._check_records(job, now)
            if not job.job_id:
                self._check_pending(job)
                self._start(job, now)
                continue
            record = job.model.jobs.get(job.job_id)
            if record is None or record.states.isdisjoint({"RUNNING", "SUSPENDED"}):
                job.over = True
                if job.waits and record is not None:
                    self.requeued_before_start += 1
                elif not job.excuse:
                    states = sorted(record.states) if record else "gone"
                    self._note(
                        f"I1: job {job.job_id} on {job.nodes} didn't end normally: it is {states}"
                    )
                if record is not None:
                    job.processes.clear()
                    if record.states == {"PENDING"}:
                        self._requeue(job)
                else:
                    self._until_own_end(job, now)
            elif job.waits:
                if "CONFIGURING" not in record.states:
                    self._begin_processes(job, now)
            elif now >= job.suspend_at:
                job.suspend_at, job.resume_at = inf, now + SUSPENDED_FOR
                job.model.job_suspend(job.job_id)
            elif now >= job.resume_at:
                job.resume_at = inf
                job.model.job_resume(job.job_id)
            elif now >= job.ends and job.resume_at == inf:
                job.over = True
                job.model.job_end(job.job_id, completing=True)
                self._later(self._rng.uniform(0.1, 1.5), self._completed, job)

    def _check_records(self, job: Job, now: float) -> None:
        """Whether slurmctld has a record of each node that the job names, without which it ends the
        job some day.
        """
        model = job.model
        if model.faults & {Fault.EMPTY, Fault.STALE}:
            self._lied_at[id(model)] = now
        missing = {name for name in job.required if name not in model.nodes}
        for name in sorted(missing - job.lacks):
            if now - job.submitted < JUST_SUBMITTED:
                job.excused(f"it was submitted while the record of {name} was being deleted")
            elif now - self._lied_at.get(id(model), -inf) < LIED_FOR:
                job.excused(f"the record of {name} was deleted because of answers without jobs")
            elif not job.excuse:
                self._note(
                    f"I1: the record of {name} is deleted, which job "
                    f"{job.job_id or job.pending_id} names"
                )
        job.lacks = missing

    def _check_pending(self, job: Job) -> None:
        """Whether slurmctld still has it in its queue, if it had."""
        pending = job.model.jobs.get(job.pending_id)
        if job.pending_id and (pending is None or "PENDING" not in pending.states):
            job.over = True
            if not job.excuse:
                states = sorted(pending.states) if pending is not None else "gone"
                names = f", which names {job.required}," if job.required else ""
                self._note(f"I1: pending job {job.pending_id}{names} is {states}")

    def _start(self, job: Job, now: float) -> None:
        if job.over:
            return
        model = job.model
        # A job that is sent to a slurmd that has crashed is requeued at once.
        crashed = {
            it.slurm_node
            for it in self._kubelets.running.values()
            if it.model is model and not it.registered
        }
        shunned = {*crashed, *job.excluded}
        free = [name for name in sorted(model.nodes) if name not in shunned and _free(model, name)]
        if len(free) < job.count:
            return
        if job.required and not set(job.required) <= set(free):
            return
        job.nodes = job.required or tuple(self._rng.sample(free, job.count))
        if job.kind == "heterogeneous":
            # Each component is a job of its own; they start together.
            for name in job.nodes[1:]:
                component = Job(model, 1, job.seconds, nodes=(name,))
                self.all.append(component)
                self._begin(component, now)
            job.nodes = job.nodes[:1]
        self._begin(job, now)

    def _begin(self, job: Job, now: float) -> None:
        model = job.model
        if job.pending_id:
            del model.jobs[job.pending_id]
        opened = [name for name, it in model.partitions.items() if "UP" in it.states]
        job.job_id = model.job_start(
            job.nodes,
            partition=max(opened, key=len),
            kill_on_node_fail=job.kind != "no-kill",
            requeue=job.kind != "no-requeue",
            required=job.required,
            cpus=1 if job.required or job.excluded or not job.pending_id else 4 * len(job.nodes),
        )
        model.jobs[job.job_id].excluded = list(job.excluded)
        job.waits = "CONFIGURING" in model.jobs[job.job_id].states
        if not job.waits:
            self._begin_processes(job, now)

    def _begin_processes(self, job: Job, now: float) -> None:
        model = job.model
        job.waits, job.ends = False, now + job.seconds
        if job.kind == "suspended":
            job.suspend_at = now + SUSPENDED_AFTER
        job.processes = {it.uid for it in self._slurmds(model) if it.slurm_node in job.nodes}
        if any((id(model), name) in self._killed for name in job.nodes):
            job.excused(
                "it was started on a node whose slurmd was killed, which Slurm had not noticed yet"
            )

    def _requeue(self, job: Job) -> None:
        """Slurm starts it again, on other nodes unless it names its own."""
        again = Job(job.model, len(job.nodes), job.seconds, kind=job.kind, required=job.required)
        again.excluded = job.excluded
        if job.required or job.excluded:
            again.count, again.pending_id, again.submitted, again.excuse = (
                job.count,
                job.job_id,
                job.submitted,
                job.excuse,
            )
        else:
            del job.model.jobs[job.job_id]
        self.all.append(again)

    def _completed(self, job: Job) -> None:
        record = job.model.jobs.get(job.job_id)
        if record is not None and "COMPLETING" in record.states:
            job.model.job_end(job.job_id)
        job.processes.clear()

    def _until_own_end(self, job: Job, now: float) -> None:
        """slurmctld doesn't know it. Its processes end when slurmd registers again, or when they
        have finished.
        """
        self._later(max(0.0, job.ends - now), job.processes.clear)

    def _registered(self, slurmd: Slurmd) -> None:
        """slurmctld compares its jobs with those that slurmd has (job_mgr.c,
        validate_jobs_on_node).

        It ends processes of jobs that it doesn't know, and jobs that have no process there.
        """
        self._killed.discard((id(slurmd.model), slurmd.slurm_node))
        for job in self.all:
            record = job.model.jobs.get(job.job_id) if job.model is slurmd.model else None
            if slurmd.uid in job.processes and (record is None or not record.on_nodes):
                job.processes.discard(slurmd.uid)
            elif record is not None and self._is_missing(job, record, slurmd):
                job.model.job_end(job.job_id, state="NODE_FAIL")

    @staticmethod
    def _is_missing(job: Job, record: SimJob, slurmd: Slurmd) -> bool:
        return (
            job.runs
            and not job.waits
            and slurmd.slurm_node in record.nodes
            and slurmd.uid not in job.processes
        )

    def _slurmd_ended(self, slurmd: Slurmd, ending: Ending) -> None:
        name = slurmd.slurm_node
        if ending in (Ending.POWER, Ending.EVICTED, Ending.FORCE):
            self._killed.add((id(slurmd.model), name))
        for job in self.all:
            if slurmd.uid not in job.processes:
                continue
            job.processes.discard(slurmd.uid)
            completing = job.over and not job.excuse
            if ending is not Ending.STOPPED:
                job.excused(f"pod {slurmd.uid} with {name}: {ending.value}")
            elif not completing:
                self._note(
                    f"I1: slurmd of {name} is stopped while processes of job {job.job_id} run "
                    "beside it"
                )

    def _timed_out(self, slurmd: Slurmd) -> None:
        self.node_set_down(
            slurmd.model,
            slurmd.slurm_node,
            "slurmctld, which doesn't reach slurmd for SlurmdTimeout,",
        )

    def _slurmds(self, model: SlurmModel) -> list[Slurmd]:
        return [it for it in self._kubelets.running.values() if it.model is model and it.registered]

    def _later(self, seconds: float, call: Callable[..., None], *arguments: object) -> None:
        asyncio.get_running_loop().call_later(seconds, call, *arguments)


def _free(model: SlurmModel, name: str) -> bool:
    states = model.states(name)
    return "IDLE" in states and states.isdisjoint(
        {"DRAIN", "FAIL", "NOT_RESPONDING", "COMPLETING", "RESERVED", "POWERING_DOWN"}
    )
