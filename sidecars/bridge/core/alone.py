"""Whether nobody else has what Slurm has given to a job: its cores, and the devices of a guard's
node. Pure.

Whoever is the Slurm user of a namespace can submit a job with the bridge's comment, or change a job
of the bridge while it waits. So what a job requests proves nothing: what it has when it runs
counts, which its user can't change.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from sidecars.bridge.core.records import Own
from sidecars.bridge.core.shape import counts_of
from sidecars.slurm.gres import GresError, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sidecars.bridge.core.records import Job, Pod, View
    from sidecars.slurm.external import ExternalJob


def own_of(record: ExternalJob, names: Mapping[str, str]) -> Own:
    """Return how the job has its nodes. `names`: the Kubernetes nodes by those of Slurm."""
    found = []
    for it in record.allocations:
        counts: Counter[str] = Counter()
        for gres in it.gres:
            counts[gres.name.partition(":")[0]] += gres.count
        found.append((names.get(it.node, it.node), tuple(sorted(counts.items()))))
    return Own(record.shared, record.whole, tuple(found))


@lru_cache(maxsize=1024)
def totals(gres: str) -> Mapping[str, int] | None:
    """Return how many a node has of each GRES, of all of its types together, by its record, None if
    that can't be read. No job ever has any of a GRES that jobs don't use up.
    """
    try:
        found = parse(gres)
    except GresError:
        return None
    counts: Counter[str] = Counter()
    for it in found:
        counts[it.name] += it.count
    return counts


def fault_of(job: Job, pairs: Iterable[tuple[Pod, str]], view: View) -> str:
    """Return why no pod can be released by a job that runs, because others may have the same, ""
    for nothing. `pairs`: the pods, each with its node.
    """
    if job.guard and not job.retains:
        return (
            f"its user has changed the output of job {job.job_id}, so that its nodes would not "
            "wait for its pods: cancel it, and the Slurm Bridge submits another one"
        )
    for it in job.components:
        if it.own.shared:
            return (
                f"Slurm gives the cores of job {it.job_id} to other jobs, too: cancel it, and use "
                "a partition without OverSubscribe"
            )
    for pod, node in pairs if job.guard else ():
        fault = _of_devices(job, pod, node, view)
        if fault:
            return fault
    return ""


def _of_devices(job: Job, pod: Pod, node: str, view: View) -> str:
    """Return why the job must not share the devices. The device plugin of a node with a slurmd may
    give any of its devices to the pod: the job has to have them all.

    A job that shares its nodes with others of its user (`--exclusive=user`) counts as one with
    whole nodes in Slurm's record.
    """
    if pod.unguarded:
        return f"{pod.name} can't run there: {pod.unguarded}"
    if pod.shape is None and not job.own.whole:
        # Its user can cause that with a wrong annotation.
        return f"what {pod.name} may use is not known: {pod.problem or pod.unsized}"
    has = dict(dict(job.own.gres).get(node, ()))
    wanted = counts_of(pod.shape.gres) if pod.shape is not None else has
    names = sorted({name.partition(":")[0] for name in wanted})
    if not names and pod.shape is not None and not pod.shape.exclusive:
        return ""
    remedy = "cancel it, and the next one of the Slurm Bridge has them all"
    if not job.own.whole:
        return (
            f"other jobs may be on the nodes of job {job.job_id}, whose devices the device plugin "
            f"chooses: {remedy}"
        )
    if not names:
        return ""
    all_of_it = view.gres.get(node)
    if all_of_it is None:
        return (
            f"Slurm's record of node {node} doesn't show how many {names[0]} it has: an "
            "administrator corrects its Gres (NAME[:TYPE]:NUMBER)"
        )
    for name in names:
        if has.get(name, 0) < all_of_it.get(name, 0):
            return (
                f"job {job.job_id} has {has.get(name, 0)} of {all_of_it[name]} {name} of node "
                f"{node}: {remedy}"
            )
    return ""
