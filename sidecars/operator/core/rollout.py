"""The condition `Ready` of a custom resource, from the rollout of its StatefulSet or Deployment."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sidecars.contract import project
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import Ready


def readiness(kind: str, namespace: str, name: str, live: dict[str, Any] | None) -> Condition:
    """`live`: the object as last seen; None while it doesn't exist."""
    if live is None:
        return Condition("Ready", "False", Ready.STARTING, f"{kind} {name} is being created")
    status, wanted = live.get("status") or {}, (live.get("spec") or {}).get("replicas", 1)
    generation = live["metadata"].get("generation", 0)
    ready = status.get("readyReplicas", 0)
    updated = status.get("updatedReplicas", 0)
    if status.get("observedGeneration", 0) < generation or updated < wanted:
        return Condition(
            "Ready",
            "False",
            Ready.UPDATING,
            f"{updated} of {wanted} pods of {kind} {name} are updated",
        )
    if status.get("replicas", 0) > max(updated, wanted):
        message = (
            f"pods of {kind} {name} that are out of date stay until the updated ones are ready"
        )
        return Condition("Ready", "False", Ready.UPDATING, message)
    if not wanted:
        return Condition(
            "Ready", "True", Ready.SCALED_TO_ZERO, "spec.replicas is 0, so no pods run"
        )
    if ready < wanted:
        message = (
            f"{ready} of {wanted} pods of {kind} {name} are ready; see `kubectl -n {namespace} "
            "get pods`"
        )
        if remedy := project.remedy(_images(live)):
            message = f"{message}. If they show ErrImagePull: {remedy}"
        return Condition("Ready", "False", Ready.PODS_NOT_READY, message)
    return Condition("Ready", "True", Ready.READY, f"{ready} of {wanted} pods are ready")


def _images(live: dict[str, Any]) -> Iterator[str]:
    """Yield the images of its pod template."""
    pod = live["spec"].get("template", {}).get("spec", {})
    for container in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ())):
        yield container.get("image", "")


def with_kept(ready: Condition, kept: Sequence[str]) -> Condition:
    """Return the condition with what is not applied (`immutable.Plan.kept`). Its status is still
    that of the pods.
    """
    if not kept:
        return ready
    reason = Ready.CHANGE_NOT_APPLIED if ready.status == "True" else ready.reason
    return replace(ready, reason=reason, message="; ".join((ready.message, *kept)))
