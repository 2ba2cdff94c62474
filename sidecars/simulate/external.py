"""Jobs by slurmrestd in a simulated cluster: external jobs and guards are submitted, started,
cancelled.

The caller runs them. A guard that has run is COMPLETING after its end, until the caller ends its
Epilog (`job_end`).
"""

from collections.abc import Mapping
from types import MappingProxyType

from sidecars.simulate import answers
from sidecars.simulate.answers import (
    BAD_DATA,
    BAD_PARTITION,
    BAD_QUERY,
    BAD_USER,
    DENIED,
    HELD_JOB,
    JOB_ENDED,
    NOT_PENDING,
    UNKNOWN_JOB,
    UNKNOWN_NODE,
    listing,
    ok,
    refusal,
)
from sidecars.simulate.power import PowerSaving
from sidecars.simulate.records import Json, Reply, SimJob, SimNode
from sidecars.slurm.external import GUARD_OUTPUT


class ExternalJobs(PowerSaving):
    """A cluster in which users submit external jobs."""

    users: frozenset[str] | None = None
    """The users whom slurmctld can resolve; None for any."""
    names: Mapping[str, str] = MappingProxyType({})
    """The names that slurmrestd finds for the uids of users, where a token has another one: "root"
    for uid 0, "" for a uid that it can't find.
    """

    def job_run(
        self, job_id: int, slots: Mapping[str, int], gres: Mapping[str, str] | None = None
    ) -> None:
        """Start a pending external job with that many tasks on each of these nodes. One that runs
        gets more nodes. `gres`: what it has of their GRES, as in `gpu:h100:2(IDX:0-1)`.
        """
        job = self.jobs[job_id]
        if "RUNNING" not in job.states:
            job.start_time, job.allocation, job.gres = int(self.clock()), {}, {}
        job.allocation |= {name: count * job.cpus for name, count in slots.items()}
        job.gres |= gres or {}
        job.states, job.nodes = {"RUNNING"}, list(job.allocation)
        self._touch_job(job)

    def job_suspend(self, job_id: int) -> None:
        """Suspend a job, as any other. slurmctld sends it to the slurmd of an external job's nodes,
        which have none.
        """
        super().job_suspend(job_id)
        self._send_to_slurmd(job_id, self.jobs[job_id].nodes)

    def job_resume(self, job_id: int) -> None:
        """Resume a job, as any other, whatever others have got meanwhile."""
        super().job_resume(job_id)
        self._send_to_slurmd(job_id, self.jobs[job_id].nodes)

    def job_block(self, job_id: int, blocked: bool, reason: str = "JobHeldUser") -> None:
        """Block a job with this reason, or release it. One that runs continues. slurmctld itself
        blocks a job that no node fits, as `BadConstraints`.
        """
        self.jobs[job_id].blocked, self.jobs[job_id].block_reason = blocked, reason
        self._touch_job(self.jobs[job_id])

    def job_requeue(self, job_id: int) -> bool:
        """Return whether a job can be requeued. An external one never can."""
        return not self.jobs[job_id].external

    def job_restart(self, job_id: int, *, output: str, completing: bool = True) -> None:
        """Have the user of a guard that runs queue it again, with this output. `completing`: as for
        `job_end`.
        """
        job = self.jobs[job_id]
        job.states, job.output = {"PENDING", *(("COMPLETING",) if completing else ())}, output
        self._touch_job(job)

    def job_shrink(self, job_id: int, nodes: int) -> bool:
        """Return a running job gives up its last nodes, without a change of its states. Whether it
        has so many.
        """
        job = self.jobs[job_id]
        if "RUNNING" not in job.states or not 0 < nodes <= len(job.nodes):
            return False
        released, job.nodes = job.nodes[nodes:], job.nodes[:nodes]
        job.allocation = {name: job.allocation[name] for name in job.nodes}
        self._touch_job(job)
        self._send_to_slurmd(job_id, released)
        return True

    def _send_to_slurmd(self, job_id: int, nodes: list[str]) -> None:
        for name in nodes if self.jobs[job_id].external else ():
            self.node_silence(name)

    def job_end(self, job_id: int, *, state: str = "COMPLETED", completing: bool = False) -> None:
        """End a job, as any other. The end of the first component of a heterogeneous job ends the
        others.
        """
        super().job_end(job_id, state=state, completing=completing)
        for it in self.jobs.values():
            if it.het_id == job_id != it.job_id and it.states & {"PENDING", "RUNNING", "SUSPENDED"}:
                super().job_end(it.job_id, state=state, completing=completing)

    def _down(self, node: SimNode) -> None:
        """Set a node DOWN, as any other. A heterogeneous job that loses one ends as a whole."""
        before = {it.job_id for it in self.jobs.values() if it.het_id and "RUNNING" in it.states}
        super()._down(node)
        lost = {self.jobs[it].het_id for it in before if "NODE_FAIL" in self.jobs[it].states}
        for it in [it for it in self.jobs.values() if it.het_id in lost and "RUNNING" in it.states]:
            super().job_end(it.job_id, state="NODE_FAIL")

    def submit_job(self, content: Json, user: str) -> Reply:
        """`POST job/submit` by that user. Of external jobs and guards alone."""
        several = content.get("jobs")
        components = several if isinstance(several, list) else [content.get("job")]
        if not components or not all(
            isinstance(it, dict) and (_external(it) or _guard(it)) for it in components
        ):
            return refusal(400, BAD_DATA)
        if self.users is not None and user not in self.users | self.names.keys():
            return refusal(500, BAD_USER)
        first = 0
        for offset, wanted in enumerate(components):
            refused = self._submit(wanted, user)
            if isinstance(refused, Reply):
                for job_id in range(first, first + offset):
                    self.job_end(job_id, state="CANCELLED")
                return refused
            first = first or refused.job_id
            refused.het_id, refused.het_offset = (first, offset) if several is not None else (0, 0)
        return ok({"job_id": first})

    def _submit(self, wanted: Json, user: str) -> SimJob | Reply:
        """Submit one component, or the only one."""
        if wanted.get("partition", "all") not in self.partitions:
            return refusal(422, BAD_PARTITION)
        if set(wanted.get("excluded_nodes", ())) - self.nodes.keys():
            return refusal(422, UNKNOWN_NODE)
        minutes = wanted.get("time_limit", {}).get("number")
        tasks, cpus = int(wanted.get("tasks", 1)), int(wanted.get("cpus_per_task", 1))
        job = SimJob(
            self._next_job, [], {"PENDING"}, cpus, 0, minutes, submit_time=int(self.clock())
        )
        job.user = self.names.get(user, user)
        job.name, job.partition = wanted.get("name", "job"), wanted.get("partition", "all")
        job.external, job.guard = _external(wanted), _guard(wanted)
        job.output = wanted.get("standard_output", "")
        job.blocked, job.tasks, job.requeue = bool(wanted.get("hold")), tasks, False
        job.comment, job.exclusive = (
            wanted.get("comment", ""),
            bool({"none", "user"} & set(wanted.get("shared", ()))),
        )
        per_cpu = wanted.get("memory_per_cpu", {}).get("number", 0)
        job.memory = wanted.get("memory_per_node", {}).get("number", 0) or per_cpu * cpus
        job.tres = wanted.get("tres_per_node", "") or wanted.get("tres_per_task", "")
        job.excluded = list(wanted.get("excluded_nodes", ()))
        self._add_job(job)
        return job

    def get_job(self, name: str) -> Reply:
        """`GET job/NAME`."""
        job = self.jobs.get(int(name)) if name.isdigit() else None
        if job is None:
            return refusal(404, UNKNOWN_JOB)
        all_of_it = [it for it in self.jobs.values() if job.het_id == job.job_id == it.het_id]
        return listing("jobs", [answers.job(it) for it in all_of_it or [job]], self.clock())

    def get_states(self) -> Reply:
        """`GET jobs/state/`."""
        return ok(
            {
                "jobs": [
                    {"job_id": _listed_id(it), "state": sorted(it.states)}
                    for it in self.jobs.values()
                ]
            }
        )

    def update_job(self, name: str, content: Json, *, trusted: bool) -> Reply:
        """`POST job/NAME` by an operator of Slurm (`trusted`) or by the job's user: the start of a
        held job, or other nodes to exclude.

        Any change has slurmctld look again at a job that no node fitted.
        """
        job = self.jobs.get(int(name)) if name.isdigit() else None
        if not name.isdigit():
            return refusal(422, BAD_QUERY)
        if job is None:
            return refusal(500, UNKNOWN_JOB)
        if content.keys() & {"admin_comment", "priority"} and not trusted:
            return refusal(422, DENIED)
        if "priority" in content and "PENDING" not in job.states:
            return refusal(422, NOT_PENDING)
        if "priority" in content and job.blocked:
            return refusal(422, HELD_JOB)
        job.admin_comment = content.get("admin_comment", job.admin_comment)
        job.blocked = content.get("hold", job.blocked and job.block_reason != "BadConstraints")
        if "priority" in content:
            job.priority = content["priority"]["number"]
        # An empty list changes nothing.
        if content.get("excluded_nodes", []) != []:
            if "PENDING" not in job.states:
                return refusal(422, NOT_PENDING)
            job.excluded = [it for it in content["excluded_nodes"].split(",") if it]
        self._touch_job(job)
        return ok({"results": None})

    def cancel(self, name: str) -> Reply:
        """`DELETE job/NAME`."""
        job = self.jobs.get(int(name)) if name.isdigit() else None
        if job is None:
            return refusal(500, UNKNOWN_JOB)
        if not job.states & {"PENDING", "RUNNING", "SUSPENDED"}:
            return refusal(500, JOB_ENDED)
        # A guard that was queued again is PENDING and COMPLETING.
        completing = job.guard and bool(job.states & {"RUNNING", "COMPLETING"})
        self.job_end(job.job_id, state="CANCELLED", completing=completing)
        return ok({})


def _external(wanted: Json) -> bool:
    return "EXTERNAL_JOB" in wanted.get("flags", ())


def _guard(wanted: Json) -> bool:
    return bool(wanted.get("script")) and wanted.get("standard_output") == GUARD_OUTPUT


def _listed_id(job: SimJob) -> str:
    return f"{job.job_id}+{job.het_offset}" if job.het_id else str(job.job_id)
