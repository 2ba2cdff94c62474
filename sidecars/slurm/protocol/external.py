"""Requests about external jobs, which need no slurmd, and about guards, which are batch jobs.

Observed with Slurm 26.05:
- `GET jobs/state/` has the ids as texts. It is much cheaper than `GET jobs/`, and has nothing but
  the states.
- A task of a job array is in that list as `8_3`, also while it waits. `GET job/8` has the records
  of all tasks if 8 is the id of the array.
- The components of a heterogeneous job have the ids N, N+1, …; the list of states names them by id
  and place, `7+0` and `8+1`. `GET job/N` has the records of all components, `GET job/N+1` that of
  one.
- A heterogeneous job starts when no component is a held job; each is started alone. The end of the
  first component ends the others; the end of another one ends no other, not even of a job that
  waits. The loss of a node ends all.
- Components never share a node.
- The CPUs, the memory and the GRES that a job has on its nodes remain in its record after its end.
- A user's own token submits a held job, but can't set its admin comment. One update with
  SlurmUser's token sets the admin comment and lets the held job start.
- The user of a running job can't change the path of its output (422), but its comment and its name.
  A batch job can be queued again: while its Epilogs run, it is PENDING and COMPLETING, retains its
  admin comment and what it had in its record, and its output can be changed.
- A running job can give up nodes (`scontrol update NumNodes=`) without a change of its states, but
  not change its CPUs or tasks. It is never requeued. To make it a held job changes nothing of it.
- A suspended job keeps what it had in its record, and others get its cores. It continues beside
  them when it is resumed.
- slurmctld sends both to a slurmd that doesn't exist, also for nodes that a job gives up: such a
  node is NOT_RESPONDING seconds later, until its record is deleted and created again.
- `job_resources` shows `whole` for `--exclusive` and for `--exclusive=user` alike. Only the former
  has all GRES of its nodes. Its `select_type` is ONE_ROW, or AVAILABLE for a job whose cores others
  may get, too (OverSubscribe).
- The user of a pending job can change its CPUs, tasks, memory, GRES, partition and output, but not
  whether it shares.
- To cancel a job that has ended, or none, is answered with HTTP 200.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sidecars.slurm.external import GUARD_OUTPUT, Allocation, ExternalJob, ExternalRequest, Gres
from sidecars.slurm.hostlists import HostlistError, expand
from sidecars.slurm.protocol.fields import Fields, WrongField
from sidecars.slurm.protocol.request import Request, nothing

_GUARD = "#!/bin/sh\nexec sleep infinity\n"
"""The script of a guard. It ends at the first signal."""

_OWN_ID = re.compile(r"([0-9]+)(?:$|\+)")
"""The id of the record in `7`, and in `7+0` of a component."""

_GPUS = re.compile(r"(?:^|,)gpu(?::[^,():]+)?(?:\(CNT:(\d+)|:(\d+)\(IDX:)")
"""The GPUs in a detail such as `gpu(CNT:2)` or `gpu:h100:2(IDX:0,3)`."""

_DETAIL = re.compile(r"([^,():]+(?::[^,():]+)??)(?:\(CNT:(\d+)\)|:(\d+)\(IDX:([0-9,-]*)\))(?:,|$)")
"""One GRES of such a detail with its number and its indices, as in
`gpu:h100:2(IDX:0-1),mig:1(IDX:3)`.
"""


_MOST_INDICES = 1 << 16
"""More than a node has devices."""


def get_job_states() -> Request[Mapping[int, frozenset[str]]]:
    """Return the states of all jobs by id, without the tasks of job arrays.

    The bridge submits no array. A record of a task can't always be had without those of all others.
    """
    return Request("GET", "jobs/state/", read=_states)


def get_external_job(job_id: int) -> Request[ExternalJob]:
    """Request one job, external or not, or one component of a heterogeneous job. An unknown one is
    NotFound.
    """
    return Request("GET", f"job/{job_id}", read=lambda answer: _one(answer, job_id))


def submit_external(job: ExternalRequest, *others: ExternalRequest) -> Request[int]:
    """Submit an external job or a guard, a held job, of the token's user; its id.

    With `others`, it is a heterogeneous job. If Slurm refuses one of its components, the ones
    before it are cancelled jobs.
    """
    body = {"jobs": [_body(it) for it in (job, *others)]} if others else {"job": _body(job)}
    return Request("POST", "job/submit", body=body, read=lambda answer: answer.number("job_id"))


def start_external(job_id: int, admin_comment: str) -> Request[None]:
    """Write the admin comment and let the held job start; of a heterogeneous job this component
    alone.

    Rejected with 2015 when no node could ever run it; it isn't a held job afterwards, all the same.
    """
    return Request(
        "POST", f"job/{job_id}", body={"hold": False, "admin_comment": admin_comment}, read=nothing
    )


def set_priority(job_id: int, priority: int) -> Request[None]:
    """Give a job that waits a priority, which it keeps. Use an operator's token: no other user may
    raise it.

    Rejected for a held job (2042), and for one that has begun.
    """
    return Request("POST", f"job/{job_id}", body={"priority": _number(priority)}, read=nothing)


def start_again(job_id: int, admin_comment: str) -> Request[None]:
    """Write the admin comment again: slurmctld looks again at a job that it has blocked, because no
    node fitted it.

    Such a job (BadConstraints) waits until something of it is changed. A job that was blocked by
    hand stays so.
    """
    return Request("POST", f"job/{job_id}", body={"admin_comment": admin_comment}, read=nothing)


def cancel_job(job_id: int) -> Request[None]:
    """Cancel a job. Use SlurmUser's token alone: another user's blocks slurmctld (observed with
    26.05.5).
    """
    return Request("DELETE", f"job/{job_id}", read=nothing)


def allow_nodes(job_id: int, excluded: Sequence[str]) -> Request[None]:
    """Let a job that waits have all nodes but these; of a heterogeneous job this component alone.

    A held job with the reason BadConstraints is none afterwards. Rejected with 2073 when the job
    has begun.
    """
    # Slurm ignores an empty list.
    return Request(
        "POST", f"job/{job_id}", body={"excluded_nodes": ",".join(excluded)}, read=nothing
    )


def _states(answer: Fields) -> Mapping[int, frozenset[str]]:
    found: dict[int, frozenset[str]] = {}
    for job in answer.items("jobs"):
        number, states = _OWN_ID.match(job.text("job_id", required=True)), job.states("state")
        if number is not None:
            found[int(number[1])] = states
    return found


def _one(answer: Fields, job_id: int) -> ExternalJob:
    jobs = [it for it in answer.records("jobs", ExternalJob, _job) if it.job_id == job_id]
    if len(jobs) != 1:
        raise WrongField("jobs", f"should contain job {job_id} once, contains it {len(jobs)} times")
    return jobs[0]


def _job(job: Fields) -> ExternalJob:
    states = job.states("job_state")
    priority = job.number_or_none("priority") if "PENDING" in states else None
    nodes = job.nested("job_resources").nested("nodes")
    return ExternalJob(
        job_id=job.number("job_id"),
        states=states,
        external="EXTERNAL_JOB" in job.states("flags"),
        guard=job.text("standard_output") == GUARD_OUTPUT,
        user_name=job.text("user_name"),
        user_id=job.number("user_id"),
        comment=job.text("comment"),
        admin_comment=job.text("admin_comment"),
        blocked=priority == 0,
        priority=priority or 0,
        reason=job.text("state_reason"),
        start_time=job.number("start_time"),
        end_time=job.number("end_time"),
        cpus_per_task=max(1, job.number("cpus_per_task")),
        het_id=job.number("het_job_id"),
        het_offset=job.number("het_job_offset"),
        allocations=_allocations(job),
        partition=job.text("partition"),
        tasks=max(1, job.number("tasks")),
        memory_per_task=_memory_per_task(job),
        gres_per_task=job.text("tres_per_node")
        if job.number("tasks") <= 1
        else job.text("tres_per_task"),
        shared="AVAILABLE" in nodes.words("select_type"),
        whole=nodes.flag("whole", optional=True),
        excluded_nodes=_names(job.text("excluded_nodes")),
    )


def _names(hostlist: str) -> tuple[str, ...]:
    try:
        return tuple(expand(hostlist))
    except HostlistError:
        return (hostlist,)


def _memory_per_task(job: Fields) -> int:
    """Return the least memory of a task, whichever way it was requested."""
    tasks, per_cpu = max(1, job.number("tasks")), job.number_or_none("memory_per_cpu")
    if per_cpu is None:
        return job.number("memory_per_node") // tasks
    return per_cpu * max(1, job.number("cpus_per_task"))


def _allocations(job: Fields) -> tuple[Allocation, ...]:
    gres = job.words("gres_detail")
    found = []
    for index, it in enumerate(
        job.nested("job_resources").nested("nodes").items("allocation", optional=True)
    ):
        detail = gres[index] if index < len(gres) else ""
        try:
            gpus, its = (
                sum(int(one or other) for one, other in _GPUS.findall(detail)),
                _gres(detail),
            )
        except ValueError:
            raise WrongField("gres_detail", f"should count devices, is {detail[:80]!r}") from None
        found.append(
            Allocation(
                node=it.text("name", required=True),
                cpus=it.nested("cpus").number("count"),
                memory=it.nested("memory").number("allocated"),
                gpus=gpus,
                gres=its,
            )
        )
    return tuple(found)


def _gres(detail: str) -> tuple[Gres, ...]:
    """Parse the GRES of the job, without those of which it has none. Raises ValueError."""
    found = []
    for it in _DETAIL.finditer(detail):
        name, counted, number, indices = it.groups()
        if indices is None:
            found.append(Gres(name, int(counted)))
        elif indices:
            found.append(Gres(name, int(number), frozenset(_numbers(indices))))
    return tuple(found)


def _numbers(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, dash, last = part.partition("-")
        begin, end = int(first), int(last if dash else first)
        if not begin <= end < _MOST_INDICES:
            raise ValueError(f"{part!r} is no range of indices")
        yield from range(begin, end + 1)


def _body(job: ExternalRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        **(_guard() if job.guard else {"flags": ["EXTERNAL_JOB"]}),
        "hold": True,
        "name": job.name,
        "comment": job.comment,
        # Slurm refuses a job without any.
        "environment": ["PATH=/usr/bin:/bin"],
        "nodes": str(job.min_nodes)
        if job.min_nodes == job.max_nodes
        else f"{job.min_nodes}-{job.max_nodes}",
        "tasks": job.tasks,
        "cpus_per_task": job.cpus_per_task,
    }
    if job.memory_per_task and job.tasks == 1:
        body["memory_per_node"] = _number(job.memory_per_task)
    elif job.memory_per_task:
        # Slurm has no memory for each task.
        body["memory_per_cpu"] = _number(math.ceil(job.memory_per_task / job.cpus_per_task))
    if job.gres_per_task:
        body["tres_per_node" if job.tasks == 1 else "tres_per_task"] = job.gres_per_task
    if job.minutes is not None:
        body["time_limit"] = _number(job.minutes)
    if job.exclusive:
        body["shared"] = ["none"]
    if job.excluded_nodes:
        body["excluded_nodes"] = list(job.excluded_nodes)
    texts = {
        "partition": job.partition,
        "account": job.account,
        "qos": job.qos,
        "constraints": job.features,
        "extra": job.extra,
        "licenses": job.licenses,
        "reservation": job.reservation,
        "wckey": job.wckey,
    }
    return {**body, **{key: text for key, text in texts.items() if text}}


def _guard() -> dict[str, Any]:
    """Return what a guard has beyond an external job. It is never queued again: its pods end with
    it.
    """
    output = {
        "standard_output": GUARD_OUTPUT,
        "standard_error": "/dev/null",
        "standard_input": "/dev/null",
    }
    return {"script": _GUARD, "current_working_directory": "/", "requeue": False, **output}


def _number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}
