"""A placeholder job in Slurm: the request for it, and what its record means."""

from collections.abc import Mapping

from sidecars.contract import bridge
from sidecars.contract.bridge import Comment
from sidecars.policy.bridge.records import GroupKey, Job, Phase, Submit
from sidecars.policy.bridge.shape import Shape
from sidecars.slurm.external import STATES_ENDED, Allocation, ExternalJob, ExternalRequest

_GPU = "gres/gpu:"


def request_of(submit: Submit, excluded: tuple[str, ...]) -> ExternalRequest:
    """The request for the job. `excluded` are the names in Slurm of the nodes to avoid."""
    shape = submit.shape
    return ExternalRequest(
        name=shape.name,
        partition=shape.partition,
        comment=bridge.encode(Comment(submit.key.namespace, submit.key.group, shape.digest)),
        tasks=shape.pods,
        min_nodes=min(max(1, shape.min_nodes), shape.pods),
        max_nodes=min(shape.max_nodes or shape.pods, shape.pods),
        cpus_per_task=shape.cpus,
        memory_per_task=shape.memory,
        gres_per_task=shape.gres,
        account=shape.account,
        qos=shape.qos,
        minutes=shape.minutes,
        features=shape.features,
        extra=shape.extra,
        excluded_nodes=excluded,
        exclusive=shape.exclusive,
        licenses=shape.licenses,
        reservation=shape.reservation,
        wckey=shape.wckey,
    )


def comment_of(record: ExternalJob) -> Comment | None:
    """The comment of a placeholder; None for any other job. The admin comment counts where both have one."""
    if not record.external:
        return None
    return bridge.decode(record.admin_comment) or bridge.decode(record.comment)


def job_of(
    record: ExternalJob,
    comment: Comment,
    states: frozenset[str],
    *,
    current: bool,
    shapes: Mapping[GroupKey, Shape],
    kube_nodes: Mapping[str, str],
) -> Job:
    """The job, with the states of the last list. `current`: the details were read when it had these states.

    `kube_nodes` are the Kubernetes nodes by the names of their records in Slurm.
    """
    confirmed = bridge.decode(record.admin_comment) is not None
    shape = shapes.get(GroupKey(comment.namespace, comment.group))
    slots = [(kube_nodes.get(it.node, it.node), _slots(it, shape, record)) for it in record.allocations]
    return Job(
        job_id=record.job_id,
        phase=_phase(record, states, confirmed=confirmed, current=current),
        user=record.user_name,
        comment=comment,
        slots=tuple(slots),
        reason=record.reason,
        start_time=record.start_time,
        end_time=record.end_time,
        confirmed=confirmed,
        state=",".join(sorted(states)),
        root=record.user_id == 0,
    )


def _phase(record: ExternalJob, states: frozenset[str], *, confirmed: bool, current: bool) -> Phase:
    if states & STATES_ENDED:
        return Phase.ENDED
    if states & {"SUSPENDED", "STOPPED"}:
        return Phase.STOPPED
    if "PENDING" in states:
        return Phase.SUBMITTED if current and record.blocked and not confirmed else Phase.PENDING
    if "RUNNING" in states and "CONFIGURING" not in states and current and record.allocations:
        return Phase.RUNNING
    return Phase.STARTING


def _slots(it: Allocation, shape: Shape | None, record: ExternalJob) -> int:
    """How many pods fit into what the job really has: its user may have reduced it after the submission."""
    if shape is None:
        return it.cpus // record.cpus_per_task
    fits = it.cpus // shape.cpus
    if shape.memory and it.memory:
        fits = min(fits, it.memory // shape.memory)
    gpus = shape.gres.removeprefix(_GPU) if shape.gres.startswith(_GPU) else ""
    if gpus.isdecimal() and int(gpus):
        fits = min(fits, it.gpus // int(gpus))
    return fits
