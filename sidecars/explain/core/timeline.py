"""What happened to a job so far, and what is planned, on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecars.explain.core import nodeset_partitions, objects
from sidecars.explain.core.records import Moment
from sidecars.slurm.hostlists import HostlistError, expand

if TYPE_CHECKING:
    from sidecars.explain.core.records import Seen
    from sidecars.slurm.details import JobDetail

SHOWN = 5
"""Events of one object."""


def of_job(job: JobDetail, seen: Seen) -> tuple[Moment, ...]:
    """Return the entries in the order of time."""
    moments = []
    if job.submit_time:
        moments.append(Moment(job.submit_time, "submitted", "Slurm"))
    if job.pending is not None:
        if job.pending.eligible_time and job.pending.eligible_time != job.submit_time:
            moments.append(Moment(job.pending.eligible_time, "may start from here on", "Slurm"))
        if job.last_evaluated:
            moments.append(Moment(job.last_evaluated, "the scheduler looked at it", "Slurm"))
        if job.start_time > seen.now:
            where = f" on {job.scheduled_nodes}" if job.scheduled_nodes else ""
            moments.append(Moment(job.start_time, f"expected start{where}", "Slurm"))
        names = [
            objects.name(it)
            for it in nodeset_partitions.of_partitions(seen, job.pending.request.partitions)
        ]
    else:
        if job.start_time:
            moments.append(Moment(job.start_time, f"started on {job.nodes}", "Slurm"))
        if job.end_time and job.states.isdisjoint({"RUNNING", "SUSPENDED", "CONFIGURING"}):
            moments.append(Moment(job.end_time, "ended", "Slurm"))
        names = []
    for name in names:
        moments += objects.moments(
            objects.recent(
                objects.events_of(seen.kube.events, "NodeSet", name),
                objects.text(objects.named(seen.kube.nodesets, name) or {}, "metadata", "uid"),
                since=job.submit_time,
            )[:SHOWN],
            f"NodeSet {name}",
        )
    hosts = _names(job.nodes)
    for it in seen.kube.pods or ():
        created = objects.time(it, "metadata", "creationTimestamp")
        if (
            not objects.is_worker(it)
            or created is None
            or not job.submit_time
            or created < job.submit_time
        ):
            continue
        if objects.slurm_node(it) in hosts or (
            names
            and any(
                objects.text(o, "name") in names
                for o in objects.items(it, "metadata", "ownerReferences")
            )
        ):
            pod = objects.name(it)
            moments.append(Moment(created, "pod created", f"pod {pod}"))
            moments += objects.moments(
                objects.recent(
                    objects.events_of(seen.kube.events, "Pod", pod),
                    objects.text(it, "metadata", "uid"),
                )[:SHOWN],
                f"pod {pod}",
            )
    by_name = {it.name: it for it in seen.slurm.nodes or ()}
    for host in sorted(hosts)[:SHOWN]:
        if host in by_name and by_name[host].slurmd_start_time > job.submit_time > 0:
            moments.append(
                Moment(by_name[host].slurmd_start_time, f"slurmd of {host} started", "Slurm")
            )
    return tuple(sorted(moments, key=lambda it: it.at))


def _names(hostlist: str) -> set[str]:
    try:
        return set(expand(hostlist))
    except HostlistError:
        return set()
