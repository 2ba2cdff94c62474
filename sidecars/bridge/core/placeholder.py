"""A placeholder job in Slurm: the request for it, and what its record means."""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from sidecars.bridge.core.alone import own_of
from sidecars.bridge.core.devices import Device, Numbered, by_index
from sidecars.bridge.core.records import Asked, GroupKey, Job, Part, Phase, Submit, concerns
from sidecars.bridge.core.shape import Shape, counts_of, gpus_of
from sidecars.contract import bridge
from sidecars.contract.bridge import Comment
from sidecars.slurm.external import Allocation, ExternalJob, ExternalRequest
from sidecars.slurm.job_states import has_ended

NO_DEVICES: Mapping[str, tuple[Numbered, ...]] = {}


def requests_of(
    submit: Submit,
    excluded: tuple[str, ...],
    places: int = 0,
    unfit: Sequence[tuple[str, ...]] = (),
    cluster: str = "",
) -> tuple[ExternalRequest, ...]:
    """Return the requests for the job's components, in the name of this Kubernetes cluster.

    `excluded` are the names in Slurm of the nodes to avoid, and `unfit` those of the nodes that
    can't run the pods of each component.

    `places`: the number of the other nodes; 0: not known. A component may only have so many of them
    that the others get theirs: Slurm gives each as many as it may have, and no two components the
    same one.
    """
    comment = bridge.encode(dataclasses.replace(comment_for(submit), cluster=cluster))
    most = _most_nodes(submit.parts, places)
    without = [tuple(dict.fromkeys((*excluded, *it))) for it in unfit or ((),) * len(most)]
    return tuple(
        _request(part, most[index], comment, without[index], guard=submit.guard)
        for index, part in enumerate(submit.parts)
    )


def _most_nodes(parts: tuple[Part, ...], places: int) -> list[int]:
    """Return how many nodes each component may have: its pods, or its part of the nodes by what it
    requests.
    """
    if len(parts) == 1 or places < len(parts) or places >= sum(it.pods for it in parts):
        return [it.pods for it in parts]
    most = [1] * len(parts)
    for _ in range(places - len(parts)):
        open_ones = [index for index, it in enumerate(parts) if most[index] < it.pods]
        neediest = max(
            open_ones, key=lambda index: parts[index].pods * parts[index].shape.cpus / most[index]
        )
        most[neediest] += 1
    return most


def comment_for(submit: Submit) -> Comment:
    """Return the comment of the job, in which each component has the digest of what it requests."""
    parts = tuple((it.shape.digest, it.pods) for it in submit.parts)
    pods = sum(it.pods for it in submit.parts)
    key = submit.key
    if len(parts) == 1:
        return Comment(key.namespace, key.group, parts[0][0], pods)
    return Comment(key.namespace, key.group, "", pods, parts)


def _request(
    part: Part, most: int, comment: str, excluded: tuple[str, ...], *, guard: bool
) -> ExternalRequest:
    shape, pods = part
    if shape.alone:
        shape, most = dataclasses.replace(shape, min_nodes=pods, max_nodes=0), pods
    return ExternalRequest(
        name=shape.name,
        partition=shape.partition,
        comment=comment,
        tasks=pods,
        min_nodes=min(max(1, shape.min_nodes), pods),
        max_nodes=max(min(shape.max_nodes or most, most), min(shape.min_nodes, pods)),
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
        guard=guard,
    )


def comment_of(record: ExternalJob, cluster: str = "") -> Comment | None:
    """Return the comment of a placeholder of this Kubernetes cluster, or None for any other job.
    The admin comment counts where both have one.

    A job for whose pods Epilogs wait is one, whatever its user has changed since.
    """
    found = _comment_of(record)
    return found if found is None or found.cluster in ("", cluster) else None


def _comment_of(record: ExternalJob) -> Comment | None:
    found = bridge.decode(record.admin_comment)
    if not record.external and record.admin_comment.startswith(bridge.ADMIN_COMMENT):
        return found or NOBODY
    found = found or bridge.decode(record.comment)
    if not record.external:
        return found if record.guard else None
    return found or bridge.decode_by_user(record.comment)


NOBODY = Comment("", "", pods=0)
"""The comment of a guard whose admin comment can't be read."""


def job_of(
    record: ExternalJob,
    comment: Comment,
    states: frozenset[str],
    *,
    current: bool,
    shapes: Mapping[int, Collection[tuple[GroupKey, Shape]]],
    kube_nodes: Mapping[str, str],
    guard_nodes: Mapping[str, str] = MappingProxyType({}),
    devices: Mapping[str, tuple[Numbered, ...]] = NO_DEVICES,
) -> Job:
    """Return the job, with the states of the last list. `current`: the details were read when it
    had these states.

    `shapes`: what the pods with a job's label request, each after its group, by the job's id: after
    a loss of Slurm's state, pods of other groups may have the same id. `kube_nodes` are the
    Kubernetes nodes by the names of their external records in Slurm, `guard_nodes` those by the
    names of their nodes with a slurmd. A job that Slurm has run on a node of the other kind has no
    place there. `devices` are those that the external records have, by index.
    """
    # The bridge writes the comment itself as the admin comment.
    admin = record.admin_comment
    confirmed = bool(admin) and (admin == record.comment or bridge.decode(admin) is not None)
    its = {shape for key, shape in shapes.get(record.job_id, ()) if concerns(comment, key)}
    names = kube_nodes if record.external else guard_nodes
    slots = [
        (
            names.get(it.node, f"of Slurm node {it.node}"),
            slots_of(it, its, record, by_user=comment.by_user),
        )
        for it in record.allocations
    ]
    phase = _phase(record, states, confirmed=confirmed, current=current)
    if comment.by_user and phase is Phase.SUBMITTED:
        # Whoever has submitted it lets it start.
        phase = Phase.PENDING
    return Job(
        job_id=record.job_id,
        phase=phase,
        user=record.user_name,
        comment=comment,
        slots=tuple(slots),
        guard=not record.external,
        retains=record.external or record.guard,
        completing="COMPLETING" in states,
        devices=tuple(_devices(record, kube_nodes, devices)),
        reason=record.reason,
        start_time=record.start_time,
        end_time=record.end_time,
        confirmed=confirmed,
        state=",".join(sorted(states)),
        root=record.user_id == 0,
        offset=record.het_offset,
        whole=record.het_id if comment.by_user else 0,
        cpus=tuple(
            (names.get(it.node, f"of Slurm node {it.node}"), it.cpus) for it in record.allocations
        ),
        own=own_of(record, names),
        asked=asked_of(record),
        # No other node is a place of the job, such as one of another Kubernetes cluster.
        excluded=tuple(names[name] for name in record.excluded_nodes if name in names),
    )


def _devices(
    record: ExternalJob, kube_nodes: Mapping[str, str], devices: Mapping[str, tuple[Numbered, ...]]
) -> Iterator[tuple[str, str, tuple[Device, ...]]]:
    for it in record.allocations:
        for gres in it.gres:
            known = by_index(devices.get(it.node, ()), gres.name)
            places = sorted(gres.indices or ())
            found = [known[place] for place in places if place < len(known)]
            named = tuple(device for device in found if device is not None)
            # An index without a device of this type: the record is another one than its Extra
            # describes.
            if named and len(named) == len(places):
                yield kube_nodes.get(it.node, it.node), gres.name, named


def together(components: Iterable[Job]) -> Job:
    """Return a heterogeneous job: all of its components run, or it doesn't. It has ended as soon as
    one of them has.

    A component that Slurm doesn't list is neither running nor ended.
    """
    first, *rest = sorted(components, key=lambda it: it.offset)
    every = (first, *rest)
    phases = {it.phase for it in every}
    ended = next((it for it in every if it.phase is Phase.ENDED), None)
    complete = [it.offset for it in every] == list(range(len(first.requested)))
    if ended is not None:
        phase = Phase.ENDED
    elif not complete:
        phase = Phase.STARTING
    else:
        phase = next((it for it in _FIRST if it in phases), Phase.RUNNING)
    waiting = next((it for it in every if it.phase is phase), first)
    return dataclasses.replace(
        first,
        phase=phase,
        rest=tuple(rest),
        reason=waiting.reason,
        start_time=max(it.start_time for it in every),
        end_time=min((it.end_time for it in every if it.end_time), default=0),
        confirmed=all(it.confirmed for it in every),
        state=(ended or first).state,
        root=any(it.root for it in every),
        remaining=tuple(it.job_id for it in every if it.phase is not Phase.ENDED)
        if ended is not None
        else (),
    )


_FIRST = (Phase.SUBMITTED, Phase.STOPPED, Phase.PENDING, Phase.STARTING)


def _phase(record: ExternalJob, states: frozenset[str], *, confirmed: bool, current: bool) -> Phase:
    if has_ended(states):
        return Phase.ENDED
    if states & {"SUSPENDED", "STOPPED"}:
        return Phase.STOPPED
    if "PENDING" in states:
        return Phase.SUBMITTED if current and record.blocked and not confirmed else Phase.PENDING
    if "RUNNING" in states and "CONFIGURING" not in states and current and record.allocations:
        return Phase.RUNNING
    return Phase.STARTING


def slots_of(
    it: Allocation, shapes: Collection[Shape], record: ExternalJob, *, by_user: bool = False
) -> int:
    """Return how many pods fit into what the job really has: its user may have reduced it after the
    submission.

    No more than it has tasks there, because `shapes` lacks what the object of the group requests
    while that isn't read. But the tasks of a user's job need not be pods.
    """
    fits = [_fits(it, shape) for shape in shapes]
    if not by_user or not fits:
        fits.append(it.cpus // record.cpus_per_task)
    if not by_user and record.memory_per_task and it.memory:
        fits.append(it.memory // record.memory_per_task)
    return min(fits)


def _fits(it: Allocation, shape: Shape) -> int:
    fits = it.cpus // shape.cpus
    if shape.alone:
        fits = min(fits, 1)
    if shape.memory and it.memory:
        fits = min(fits, it.memory // shape.memory)
    gpus = gpus_of(shape.gres)
    if gpus:
        fits = min(fits, it.gpus // gpus)
    for name, count in counts_of(shape.gres).items():
        # GPUs of any type are counted above.
        if name != "gpu" and count:
            has = sum(
                gres.count
                for gres in it.gres
                if gres.name == name or gres.name.startswith(f"{name}:")
            )
            fits = min(fits, has // count)
    return fits


def asked_of(record: ExternalJob) -> Asked:
    """Return what the job requests by its record."""
    partitions = tuple(filter(None, record.partition.split(",")))
    return Asked(
        partitions, record.tasks, record.cpus_per_task, record.memory_per_task, record.gres_per_task
    )
