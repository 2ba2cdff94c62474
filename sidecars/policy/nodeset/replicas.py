"""Which pods a NodeSet has too many or too few of, and in which order they are deleted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sidecars.policy.nodeset.drain import is_busy
from sidecars.slurm import states

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sidecars.policy.nodeset.records import DesiredPods, SlurmView, WorkerPod
    from sidecars.policy.placement import Place
    from sidecars.slurm.records import Node

SCALE_IN = "scale-in"
MODE_CHANGE = "a change of scalingMode"
NO_MATCH = "its Kubernetes node, which does not match"
OTHER_HOSTNAME = "a change of its hostname"
POWERED_DOWN = "Slurm's power saving"
NOT_REPLACED = frozenset({SCALE_IN, MODE_CHANGE, NO_MATCH, POWERED_DOWN})
"""Causes after which no pod replaces the one that is deleted."""

_PHASE_ORDER = {"Pending": 0, "Unknown": 1, "Running": 2}


def condemn(
    desired: DesiredPods,
    everyone: Sequence[WorkerPod],
    working: Sequence[WorkerPod],
    slurm: SlurmView,
) -> dict[str, str]:
    """Return the pods to be deleted, by name, with the cause. `working`: those that have not
    finished, in deletion order.
    """
    if desired.deleting:
        return {pod.name: "removal of its NodeSet" for pod in working}
    condemned = {pod.name: MODE_CHANGE for pod in working if pod.mode != desired.mode}
    ours = [pod for pod in working if pod.mode == desired.mode]
    if desired.ordinals is not None:
        unneeded = [pod for pod in ours if pod.ordinal not in desired.ordinals]
        condemned |= {
            pod.name: POWERED_DOWN if pod.ordinal < desired.slots else SCALE_IN for pod in unneeded
        }
    elif desired.places is None:
        surplus = max(0, len(ours) - desired.replicas)
        chosen = (
            ours[:surplus]
            if desired.removable is None
            else _named(ours, desired.removable, slurm)[:surplus]
        )
        condemned |= {pod.name: SCALE_IN for pod in chosen}
    else:
        condemned |= misplaced(ours, desired.places)
    staying = [pod for pod in everyone if pod.mode == desired.mode and pod.name not in condemned]
    return condemned | dict.fromkeys(outdated(desired, staying, slurm), "an update")


def _named(pods: Sequence[WorkerPod], names: Sequence[str], slurm: SlurmView) -> list[WorkerPod]:
    """Return the pods with these Slurm nodes, or names where they have none yet, in the order of
    the names.

    One that got a job before it was drained stays: autoscaling sees the job, and decides again.
    """
    order = {name: number for number, name in enumerate(names)}
    named = [pod for pod in pods if (pod.slurm_node or pod.name) in order]
    found = [pod for pod in named if pod.cordon is not None or not is_busy(pod, slurm)]
    return sorted(found, key=lambda pod: order[pod.slurm_node or pod.name])


def misplaced(pods: Iterable[WorkerPod], places: Mapping[str, Place]) -> dict[str, str]:
    """Return the pods of DaemonSet mode without a place, by name, with the cause. Of several in one
    place the oldest stays.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for pod in sorted(pods, key=lambda pod: pod.created):
        place = places.get(pod.place or "")
        if place is None:
            found[pod.name] = "its Kubernetes node, which is gone"
        elif not place.may_stay:
            found[pod.name] = NO_MATCH
        elif pod.slurm_node and place.slurm_node != pod.slurm_node and not place.problem:
            found[pod.name] = OTHER_HOSTNAME
        elif place.kube_node in taken:
            found[pod.name] = "another pod on its Kubernetes node"
        taken.add(pod.place or "")
    return found


def free_places(
    pods: Iterable[WorkerPod], places: Mapping[str, Place]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the Kubernetes nodes on which a pod is missing and can be created, by name, and why
    others can't be created.

    A name in Slurm that a pod still has, even a terminating one, is not given to another. A pod
    whose place can't have the right name keeps its former one.
    """
    everyone = tuple(pods)
    named = {(pod.place, pod.slurm_node) for pod in everyone}
    occupied = {pod.place for pod in everyone if pod.place is not None}
    names = {pod.slurm_node for pod in everyone}
    missing = [
        place
        for _, place in sorted(places.items())
        if place.should_run and place.kube_node not in occupied
    ]
    able = tuple(
        place.kube_node for place in missing if not place.problem and place.slurm_node not in names
    )
    problems = (place for _, place in sorted(places.items()) if place.should_run and place.problem)
    return able, tuple(
        place.problem for place in problems if (place.kube_node, place.slurm_node) not in named
    )


def deletion_order(pod: WorkerPod, slurm: SlurmView) -> tuple[object, ...]:
    """Sort key: pods that are deleted first come first (slinky.slurm.net NodeSet, scale-in
    preference).

    Not bound to a node, then pending, not ready, low deletion cost, idle in Slurm, free of jobs the
    soonest, cordoned, high ordinal, ready for the shortest time, youngest.
    """
    return (
        pod.kube_node is not None,
        _PHASE_ORDER.get(pod.phase, 2),
        pod.ready,
        pod.deletion_cost,
        # Idle nodes are free already. A job whose end has not been read is not known to end soon.
        slurm.deadlines.get(pod.slurm_node, math.inf) if is_busy(pod, slurm) else 0.0,
        pod.cordon is None,
        -pod.ordinal,
        -(pod.ready_since or math.inf),
        -pod.created,
    )


def outdated(desired: DesiredPods, pods: Sequence[WorkerPod], slurm: SlurmView) -> list[str]:
    """Return the names of the pods of an old revision that the update strategy replaces now, none
    with OnDelete.

    Those that Slurm can't use come first and do not count. Not being ready is not enough for that:
    no worker is ready while slurmctld restarts. Of the others, those not ready first, RollingUpdate
    replaces some while fewer than `max_unavailable` pods are missing or not available, so that it
    stops when new pods fail. ScheduledUpdate replaces those whose Slurm node is in the
    reservation's maintenance. Pods that are already condemned stay so. A pod on a Kubernetes node
    on which none would be created stays until one would.
    """
    if desired.deleting or not (desired.rolling or desired.reservation is not None):
        return []
    if all(pod.revision == desired.revision for pod in pods):
        return []
    live = [
        pod
        for pod in pods
        if not pod.terminating and not pod.finished and not lingers(pod, desired)
    ]
    old = [pod for pod in live if pod.revision != desired.revision]
    useless = {
        pod.name for pod in old if not pod.started or (not pod.ready and _unusable(pod, slurm))
    }
    others = sorted(
        (pod for pod in old if pod.name not in useless),
        key=lambda pod: (pod.cordon != "operator", pod.ready, -pod.ordinal, -pod.created),
    )
    if desired.reservation is not None:
        chosen = [
            pod
            for pod in others
            if in_maintenance(slurm.nodes.get(pod.slurm_node), desired.reservation)
        ]
    else:
        missing = max(0, desired.replicas - len(live))
        unavailable = sum(
            1 for pod in live if pod.revision == desired.revision and not pod.available
        )
        chosen = others[: max(0, desired.max_unavailable - missing - unavailable)]
    return [*(pod.name for pod in old if pod.name in useless), *(pod.name for pod in chosen)]


def lingers(pod: WorkerPod, desired: DesiredPods) -> bool:
    """Return whether the pod is on a Kubernetes node where it may stay and none would be created.
    It is not a replica.
    """
    place = desired.places.get(pod.place or "") if desired.places is not None else None
    return place is not None and not place.should_run


def in_maintenance(node: Node | None, reservation: str) -> bool:
    """Return whether the Slurm node is in the maintenance of that reservation now."""
    return (
        node is not None
        and "MAINTENANCE" in node.states
        and reservation in node.reservation.split(",")
    )


def _unusable(pod: WorkerPod, slurm: SlurmView) -> bool:
    node = slurm.nodes.get(pod.slurm_node)
    return slurm.problem is None and (
        node is None or states.is_down(node.states) or "NOT_RESPONDING" in node.states
    )


def free_ordinals(pods: Iterable[WorkerPod], count: int) -> tuple[int, ...]:
    """Return the `count` lowest ordinals that no pod has, ascending. A terminating pod keeps its
    own until it is gone.
    """
    taken = {pod.ordinal for pod in pods if pod.mode == "StatefulSet"}
    free: list[int] = []
    ordinal = 0
    while len(free) < count:
        if ordinal not in taken:
            free.append(ordinal)
        ordinal += 1
    return tuple(free)
