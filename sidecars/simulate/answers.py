"""slurmrestd's answers as it words them: JSON of records, refusals by number."""

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from sidecars.contract import ports
from sidecars.simulate.records import (
    Json,
    Reply,
    SimJob,
    SimLicense,
    SimNode,
    SimPartition,
    SimReservation,
)
from sidecars.slurm.hostlists import compress

BUSY, UNKNOWN_NODE, BAD_TRANSITION, NO_RIGHT, BAD_AUTH, NO_SLURMCTLD = (
    2016,
    2018,
    2180,
    2010,
    1007,
    1800,
)
UNKNOWN_JOB, JOB_ENDED, BAD_RESERVATION, BAD_TIME, NO_SLURMDBD, DENIED = (
    2017,
    2021,
    2053,
    2054,
    7000,
    2002,
)
BAD_PARENT, BAD_QOS, BAD_CLUSTER, BAD_FLAG, BAD_DATA, BAD_QUERY, STARTED = (
    2046,
    2066,
    7104,
    9207,
    9216,
    9000,
    2104,
)
JOBS_ACTIVE, DEFAULT_ACCOUNT, BAD_DEFAULT_QOS, BAD_PARTITION, BAD_USER = (
    7001,
    7009,
    7011,
    2000,
    6010,
)
NOT_PENDING, HELD_JOB, BAD_FEATURES = 2073, 2042, 2031
TEXT = {
    BUSY: "Requested nodes are busy",
    UNKNOWN_NODE: "Invalid node name specified",
    BAD_TRANSITION: "Invalid node state transition",
    BAD_FEATURES: "Active features not subset of available features",
    NO_RIGHT: "Invalid user id",
    BAD_AUTH: "Protocol authentication error",
    NO_SLURMCTLD: "Unable to contact slurm controller (connect failure)",
    UNKNOWN_JOB: "Invalid job id specified",
    JOB_ENDED: "Job/step already completing or completed",
    BAD_RESERVATION: "Requested reservation is invalid",
    HELD_JOB: "Job is in held state, pending scheduler release",
    BAD_TIME: "Invalid time specified",
    NO_SLURMDBD: "Unable to connect to database",
    DENIED: "Access/permission denied",
    BAD_PARENT: "Invalid parent account specified",
    BAD_QOS: "Invalid qos specification",
    BAD_CLUSTER: "Invalid cluster name",
    JOBS_ACTIVE: "Job(s) active, cancel job(s) before remove",
    DEFAULT_ACCOUNT: "You can not remove the default account of a user",
    BAD_DEFAULT_QOS: (
        "This request would make it so some associations would not have access to their default "
        "qos."
    ),
    BAD_FLAG: "Data parser unable to parse invalid flag",
    BAD_DATA: "Request to parse invalid data",
    BAD_QUERY: "Query empty or not RFC7320 compliant",
    BAD_PARTITION: "Invalid partition name specified",
    BAD_USER: "Rejecting authentication of user nobody or group nobody",
    9200: "Unable to resolve path",
    9202: "Unable to convert Data type",
    STARTED: "Reservation already started",
    0: "No error",
}
"""Slurm's error numbers (slurm_errno.h) and their texts."""

REPORTS_CHANGES = (26, 5, 3)
"""The first release whose slurmrestd reports that a node has changed when no partition has."""

RELEASE = (26, 5, 5)
"""Of the answers that this module composes."""

REFUSES_WITH_422 = (26, 5)
"""The first release whose slurmrestd answers a refusal of slurmctld with status 422."""

_SHOWN = b'"26.05.5"'

META = {"slurm": {"release": "26.05.5"}}
UNCHANGED = Reply(304)
NO_ENDPOINT = Reply(404, b"Unable to find requested URL endpoint.", "text/plain")
NO_TOKEN = Reply(401, b"Authentication failure", "text/plain")


def ok(content: Json) -> Reply:
    """HTTP 200 with this content."""
    return Reply(200, msgspec.json.encode({"meta": META, **content, "errors": [], "warnings": []}))


def of_release(reply: Reply, release: tuple[int, ...]) -> Reply:
    """Return the answer as that release of Slurm gives it."""
    if release == RELEASE or not reply.body:
        return reply
    shown = "{:02}.{:02}.{}".format(*release)
    reply = replace(reply, body=reply.body.replace(_SHOWN, f'"{shown}"'.encode()))
    if reply.status != 422 or release >= REFUSES_WITH_422:
        return reply
    errors = msgspec.json.decode(reply.body)["errors"]
    of_slurmctld = any(2000 <= error["error_number"] < 3000 for error in errors)
    return replace(reply, status=500) if of_slurmctld else reply


def listing(key: str, items: Iterable[Json], last_update: float) -> Reply:
    """HTTP 200 with a list and the server's time of it."""
    return ok({key: list(items), "last_update": number(int(last_update))})


def without_every_second_node(reply: Reply) -> Reply:
    """Return the same list of nodes, incomplete."""
    if not reply.body:
        return reply
    content = msgspec.json.decode(reply.body)
    return replace(
        reply, body=msgspec.json.encode({**content, "nodes": content.get("nodes", [])[::2]})
    )


def refusal(status: int, *numbers: int) -> Reply:
    """Return an answer with these error numbers."""
    errors = [
        {
            "error_number": number,
            "error": TEXT.get(number, "Unspecified error"),
            "description": "it failed",
            "source": "simulated slurmrestd",
        }
        for number in numbers
    ]
    return Reply(status, msgspec.json.encode({"meta": META, "errors": errors, "warnings": []}))


def statistics(jobs: Iterable[SimJob], now: float) -> Json:
    """Return what GET diag/ counts."""
    states = [job.states for job in jobs]
    return {
        "req_time": number(int(now)),
        "server_thread_count": 1,
        "agent_queue_size": 0,
        "jobs_submitted": len(states),
        "jobs_started": sum("PENDING" not in words for words in states),
        "jobs_completed": sum("COMPLETED" in words for words in states),
        "jobs_pending": sum("PENDING" in words for words in states),
        "jobs_running": sum("RUNNING" in words for words in states),
        "schedule_cycle_last": 240,
    }


_UNSET: Json = {"set": False, "infinite": False, "number": 0}


def number(value: int) -> Json:
    """Return a number as Slurm's schema has most of them."""
    return {"set": True, "infinite": False, "number": value}


def limit(value: int | None) -> Json:
    """Return a limit, or None for no limit."""
    return {"set": False, "infinite": True, "number": 0} if value is None else number(value)


def ping(status: str) -> Reply:
    """Return the answer for one slurmctld, which responds for the status "No error"."""
    good = status == TEXT[0]
    return ok(
        {
            "pings": [
                {
                    "hostname": "slurmctld",
                    "responding": good,
                    "latency": 500,
                    "primary": True,
                    "status": status,
                }
            ]
        }
    )


def node(
    node: SimNode,
    states: Iterable[str],
    *,
    alloc_cpus: int,
    reservation: str,
    partitions: list[str],
) -> Json:
    """Return a node as GET nodes/ shows it."""
    return {
        "name": node.name,
        "hostname": node.name,
        "address": node.address,
        "port": ports.SLURMD,
        "state": sorted(states),
        "reason": node.reason,
        "reason_changed_at": number(node.reason_changed_at),
        "reason_set_by_user": "slurm" if node.reason else "",
        "comment": node.comment,
        "extra": node.extra,
        "instance_id": node.instance_id,
        "features": node.features,
        "active_features": node.active_features,
        "partitions": partitions,
        "topology": node.topology,
        "reservation": reservation,
        "gres": node.gres,
        "gres_used": "",
        "weight": number(node.weight),
        "suspend_time": limit(node.suspend_time),
        "cpus": node.cpus,
        "sockets": 1,
        "cores": node.cpus,
        "threads": 1,
        "alloc_cpus": alloc_cpus,
        "real_memory": node.real_memory,
        "alloc_memory": 0,
        "boot_time": number(node.slurmd_start_time - 60),
        "slurmd_start_time": number(node.slurmd_start_time),
        "last_busy": number(int(node.busy_until or node.slurmd_start_time)),
        "free_mem": {"set": False, "infinite": False, "number": 0},
        "version": "26.05.5",
    }


def jobs(jobs: Iterable[SimJob], version: str, now: float) -> Reply:
    """Return the answer of GET jobs/ in a version of the API. Only v0.0.44 reports which jobs are
    exclusive.
    """
    shared = {True: ["none"] if version == "v0.0.44" else [], False: []}
    meta = {**META, "plugin": {"data_parser": f"data_parser/{version}"}}
    records = [{**job(it), "shared": shared[it.exclusive]} for it in jobs]
    return ok({"jobs": records, "last_update": number(int(now)), "meta": meta})


def job(job: SimJob) -> Json:
    """Return a job as GET jobs/ shows it."""
    end = job.start_time + 60 * job.time_limit if job.time_limit else 0
    return (
        (_pending(job) if "PENDING" in job.states else {})
        | (_external(job) if job.external or job.guard else {})
        | {
            "job_id": job.job_id,
            "job_state": sorted(job.states),
            "name": job.name,
            "partition": job.partition,
            "user_name": job.user,
            "user_id": 0 if job.user == "root" else 1000,
            "comment": job.comment,
            "admin_comment": job.admin_comment,
            "nodes": compress(job.nodes),
            "scheduled_nodes": compress(job.planned),
            "required_nodes": compress(job.required),
            "excluded_nodes": compress(job.excluded),
            "licenses": job.licenses,
            "submit_time": number(job.submit_time),
            "start_time": number(job.start_time),
            "end_time": number(end),
            "time_limit": limit(job.time_limit),
            "cpus": number(job.cpus),
            "node_count": number(len(job.nodes)),
        }
    )


def _external(job: SimJob) -> Json:
    """Return what is read of an external job or a guard alone. Its nodes remain after its end."""
    nodes = [
        {
            "index": index,
            "name": name,
            "cpus": {"count": cpus, "used": 0},
            "memory": {"used": 0, "allocated": job.memory * cpus // job.cpus},
        }
        for index, (name, cpus) in enumerate(job.allocation.items())
    ]
    return {
        "flags": [] if job.guard else ["EXTERNAL_JOB"],
        "standard_output": job.output,
        "priority": number(0 if job.blocked else job.priority),
        "state_reason": job.block_reason
        if job.blocked
        else "Resources"
        if "PENDING" in job.states
        else "None",
        "cpus_per_task": number(job.cpus),
        "tasks": number(job.tasks),
        "memory_per_cpu": _UNSET if job.tasks == 1 else number(-(-job.memory // job.cpus)),
        "memory_per_node": number(job.memory) if job.tasks == 1 else _UNSET,
        "tres_per_node" if job.tasks == 1 else "tres_per_task": job.tres,
        "het_job_id": number(job.het_id),
        "het_job_offset": number(job.het_offset),
        "job_resources": {
            "nodes": {"allocation": nodes, "whole": job.exclusive, "select_type": ["ONE_ROW"]}
        }
        if nodes
        else None,
        "gres_detail": [job.gres.get(name, "") for name in job.allocation] if job.gres else [],
    }


def _pending(job: SimJob) -> Json:
    """Return what a pending job requests, and why it waits."""
    return {
        "tres_req_str": f"cpu={job.cpus},node={job.node_count}",
        "max_nodes": number(job.node_count),
        "tasks": number(job.node_count),
        "cpus_per_task": number(max(1, job.cpus // job.node_count)),
        "memory_per_node": number(1),
        "priority": number(100),
        "state_reason": "Resources",
    }


def partition(partition: SimPartition, nodes: Iterable[str]) -> Json:
    """Return a partition as GET partitions/ shows it, with the names of its nodes."""
    names = list(nodes)
    return {
        "name": partition.name,
        "node_sets": "ALL" if partition.nodes is None else "",
        "nodes": {"configured": compress(names), "total": len(names)},
        "partition": {"state": list(partition.states)},
    }


def license_(it: SimLicense) -> Json:
    """Return a license as GET licenses/ shows it."""
    return {
        "LicenseName": it.name,
        "Total": it.total,
        "Used": it.used,
        "Free": it.total - it.used,
        "Reserved": 0,
    }


def reservation(reservation: SimReservation) -> Json:
    """Return a reservation as GET reservations/ shows it."""
    return {
        "name": reservation.name,
        "node_list": reservation.nodes,
        "flags": list(reservation.flags),
        "users": reservation.users,
        "accounts": "",
        "partition": "",
        "start_time": number(reservation.start_time),
        "end_time": number(reservation.end_time),
    }
