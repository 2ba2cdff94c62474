"""ScheduledUpdate: keeps the NodeSet's maintenance reservation in Slurm, held by a finalizer."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from sidecars.custom_resources import NODESETS
from sidecars.kube import Manifest
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.finalizers import add_finalizer, remove_finalizer
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.conditions import Condition, find
from sidecars.policy.nodeset import maintenance
from sidecars.policy.nodeset.records import Desired, SlurmView, WorkerPod
from sidecars.slurm import protocol
from sidecars.slurm.errors import NotFound, NotYet, Refused, ServerFault, SlurmError
from sidecars.workloads.resources import NodeSet, duration

log = logging.getLogger(__name__)

FINALIZER = "nodeset.slinky.slurm.net/reservation"
"""Finalizer of a NodeSet: held while it may have a reservation."""

CONDITION = "ReservationCreated"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The condition to report, None for none, and after how many seconds to look again."""

    condition: Condition | None = None
    again: float | None = None


async def keep(
    runtime: Runtime,
    manifest: Manifest,
    nodeset: NodeSet,
    desired: Desired,
    pods: Sequence[WorkerPod],
    cluster: Cluster | None,
    view: SlurmView,
) -> Outcome:
    """Bring the reservation one step on. A refusal of Slurm's is a condition; raises ApiError."""
    scheduled = nodeset.spec.update_strategy.type == "ScheduledUpdate" and desired.replicas > 0 and not desired.deleting
    held = FINALIZER in nodeset.metadata.finalizers
    if not scheduled and not held:
        return Outcome()
    if cluster is None or view.problem is not None:
        going = desired.deleting and (cluster is None or desired.forced)
        if not scheduled and going:
            await remove_finalizer(runtime, NODESETS, manifest, FINALIZER)
            return Outcome()
        said = f"what becomes of the reservation is unknown: {view.problem}"
        return Outcome(Condition(CONDITION, "Unknown", "NoAnswer", said), 5.0)
    name = maintenance.name_of(nodeset.name)
    try:
        if not scheduled:
            await _delete(cluster, name)
            await remove_finalizer(runtime, NODESETS, manifest, FINALIZER)
            return Outcome()
        await add_finalizer(runtime, NODESETS, manifest, FINALIZER)
        return await _step(runtime, nodeset, cluster, _wanted(nodeset, pods, view))
    except NotYet as error:
        return Outcome(_as_it_was(manifest) or Condition(CONDITION, "Unknown", "NoAnswer", str(error)), 5.0)
    except SlurmError as error:
        log.warning("NodeSet %s/%s: reservation %s: %s", nodeset.namespace, nodeset.name, name, error)
        if isinstance(error, ServerFault) or not isinstance(error, Refused):
            return Outcome(Condition(CONDITION, "Unknown", "NoAnswer", str(error)), 5.0)
        said = f"Slurm refuses it: {error}; see spec.updateStrategy.scheduledUpdate"
        return Outcome(Condition(CONDITION, "False", "Refused", said), 30.0)


async def _step(
    runtime: Runtime, nodeset: NodeSet, cluster: Cluster, wanted: maintenance.DesiredReservation
) -> Outcome:
    now = runtime.now()
    known = await cluster.poller.reservations()
    found = next((item for item in known if item.name == wanted.name), None)
    step = maintenance.next_step(wanted, found, now)
    if step.do == "delete":
        await _delete(cluster, wanted.name)
    elif step.do == "save":
        request = protocol.save_reservation(
            wanted.name,
            start_time=step.start,
            minutes=step.minutes,
            nodes=step.nodes,
            users=step.users,
            flags=step.flags,
        )
        await cluster.poller.reserve(wanted.name, request)
        log.info("NodeSet %s/%s: saved reservation %s", nodeset.namespace, nodeset.name, wanted.name)
    again = 1.0 if step.do == "delete" else _until_it_changes(wanted, found, now)
    return Outcome(Condition(CONDITION, "True" if step.exists else "False", step.reason, step.message), again)


def _as_it_was(manifest: Manifest) -> Condition | None:
    found = find(manifest, CONDITION)
    return Condition(CONDITION, found["status"], found["reason"], found["message"]) if found else None


def _until_it_changes(wanted: maintenance.DesiredReservation, found: object, now: float) -> float | None:
    """Seconds to the next start of the reservation; Slurm's nodes tell the rest."""
    start = wanted.next_start(now)
    return max(1.0, start - now + 1.0) if found is not None and start >= now else None


async def _delete(cluster: Cluster, name: str) -> None:
    try:
        await cluster.poller.reserve(name, protocol.delete_reservation(name))
    except NotFound:
        log.debug("there is no reservation %s", name)


def _wanted(nodeset: NodeSet, pods: Sequence[WorkerPod], view: SlurmView) -> maintenance.DesiredReservation:
    spec = nodeset.spec.update_strategy.scheduled_update
    assert spec is not None  # noqa: S101 - a rule of the CRD
    assert spec.start_time is not None  # noqa: S101 - likewise
    seconds = duration(spec.duration, "spec.updateStrategy.scheduledUpdate.duration")
    return maintenance.DesiredReservation(
        name=maintenance.name_of(nodeset.name),
        start=int(spec.start_time.timestamp()),
        minutes=max(1, round(seconds / 60)) if seconds else 30,
        flags=frozenset(flag.upper() for flag in spec.flags or ()),
        nodes=frozenset(pod.slurm_node for pod in pods if pod.slurm_node in view.nodes),
    )
