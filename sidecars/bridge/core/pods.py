"""Pods as the decisions see them, and the patches that apply decisions to them. Pure.

Each patch tests the version that it was computed from: what has changed in the meantime is never
overruled.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from sidecars.bridge.core import guards, records
from sidecars.bridge.core.claims import NONE, PodClaims
from sidecars.bridge.core.devices import NO_RULES, Rules
from sidecars.bridge.core.groups import Group
from sidecars.bridge.core.manifests import Condition, Pod
from sidecars.bridge.core.records import Disruption, GroupKey, Why
from sidecars.bridge.core.shape import Shape, ShapeError, shape_of
from sidecars.bridge.core.starting import starting_of
from sidecars.bridge.core.tenants import Tenant
from sidecars.contract import bridge, queued
from sidecars.contract.text import printable
from sidecars.policy.conditions import timestamp

Patch = list[dict[str, Any]]

DEADLINE_MARGIN = 5
"""Seconds by which the kubelet ends a pod before Slurm ends its job."""

_MESSAGE_LIMIT = 1024
_HIGHEST_JOB = 2**32


class Shaped(NamedTuple):
    """The group of a pod, and what it requests of Slurm."""

    group: Group
    shape: Shape | None
    problem: str
    """Why it can't have a job."""


def condition_message(message: str) -> str:
    """Return the message as a condition has it. What is shown already stays as it is."""
    return printable(message, _MESSAGE_LIMIT)


def concerned(pod: Pod) -> bool:
    """Return whether the bridge has to do with the pod."""
    return bridge.JOB_LABEL in pod.metadata.labels or is_gated(pod)


def shape_or_problem(
    pod: Pod,
    tenants: Mapping[str, Tenant],
    problems: Mapping[str, str],
    refused: Mapping[str, str],
    group: Group | None = None,
    rules: Rules = NO_RULES,
    claims: PodClaims = NONE,
) -> tuple[Shape | None, str]:
    """Return what the pod's job requests, or why it can't have one. `refused`: why Slurm users
    can't be used, by name.
    """
    namespace = pod.metadata.namespace
    tenant = tenants.get(namespace)
    if tenant is None:
        missing = (
            f"{queued.NO_USER.write(namespace=namespace)}: an administrator adds it to the "
            "ConfigMap of tenants"
        )
        return None, problems.get(namespace, missing)
    if tenant.user in refused:
        return None, refused[tenant.user]
    if claims.claims is None:
        return None, claims.problem
    try:
        group = group or Group(GroupKey(namespace, pod.metadata.uid))
        more = (group.wishes, group.deadline)
        return shape_of(pod, tenant, group.name, rules.extended, claims.gres, *more), ""
    except ShapeError as error:
        return None, condition_message(str(error))


def _unguarded(pod: Pod, shape: Shape, claims: PodClaims, rules: Rules) -> str:
    return guards.problem_of(
        pod,
        exclusive=shape.exclusive,
        gres=shape.gres,
        claims=bool(claims.claims),
        extended=rules.extended,
    )


def pod_of(
    pod: Pod,
    shaped: Shaped,
    *,
    sent: str = "",
    unbound_seconds: float = 0.0,
    lost: bool = False,
    claims: PodClaims = NONE,
    rules: Rules = NO_RULES,
) -> records.Pod:
    """Return the pod for `decide`. `sent`: the node of a release that was sent; `lost`: its
    Kubernetes node is gone.
    """
    group, shape, problem = shaped
    meta, spec = pod.metadata, pod.spec
    gates = {it.name for it in spec.scheduling_gates}
    gated = bridge.GATE in gates
    # The annotation of a pod that waits can't be the bridge's.
    released = "" if gated else meta.annotations.get(bridge.NODE_ANNOTATION, "")
    shown = pod.status.condition(bridge.CONDITION)
    job = job_id_of(pod)
    if group.refused and job is None:
        shape, problem = None, problem or group.problem
    waits = shape is None and not problem and bool(claims.missing)
    return records.Pod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        key=key_of(pod, group),
        gated=gated,
        blocked=bool(gates - {bridge.GATE}),
        job=job,
        node=spec.node_name or released or sent,
        bound=bool(spec.node_name),
        deleting=meta.deletion_timestamp is not None,
        finished=pod.finished,
        exit_code=pod.exit_code,
        lost=lost,
        owner=meta.controller_uid,
        group=group.words,
        submit=meta.annotations.get(bridge.NO_SUBMISSION) != "false",
        # Like a group that isn't complete: its job is submitted when its claims exist.
        size=0 if waits else group.size,
        unsized=claims.missing if waits else group.problem,
        shape=shape,
        problem=problem,
        unguarded=_unguarded(pod, shape, claims, rules) if shape is not None and gated else "",
        unbound_seconds=unbound_seconds,
        unbound_reason=_tried(pod.status.condition("PodScheduled")),
        starting=starting_of(pod),
        claims=claims.claims,
        reported=(shown.reason, shown.message) if shown is not None else ("", ""),
    )


def is_gated(pod: Pod) -> bool:
    """Return whether it has the gate of the bridge."""
    return any(it.name == bridge.GATE for it in pod.spec.scheduling_gates)


def key_of(pod: Pod, group: Group) -> GroupKey:
    """Return the pod's group, or that of its job: its owner can change its labels, but not of which
    group its job is.
    """
    meta = pod.metadata
    settled = (
        meta.annotations.get(bridge.GROUP_ANNOTATION, "") if job_id_of(pod) is not None else ""
    )
    return GroupKey(meta.namespace, settled) if settled else group.key


def _tried(scheduled: Condition | None) -> str:
    """Return the scheduler's words, "" while it has not tried to bind the pod: the gate's own
    condition remains until then.
    """
    if scheduled is None or scheduled.status != "False" or scheduled.reason == "SchedulingGated":
        return ""
    return scheduled.message or scheduled.reason


def was_scheduled(old: Pod, new: Pod) -> bool:
    """Return whether the scheduler has bound or tried the pod between these two versions of it."""
    if new.spec.node_name:
        return not old.spec.node_name
    tried = _tried(new.status.condition("PodScheduled"))
    return bool(tried) and tried != _tried(old.status.condition("PodScheduled"))


def job_id_of(pod: Pod) -> int | None:
    """Return the job's id by the pod's label. Return 0, which no job has, for a label that isn't an
    id.
    """
    text = pod.metadata.labels.get(bridge.JOB_LABEL)
    if text is None:
        return None
    return int(text) if text.isascii() and text.isdecimal() and int(text) < _HIGHEST_JOB else 0


def label_patch(pod: Pod, job: int, group: str) -> Patch:
    """Write the job's id, and the group that the job is for, on a pod without one."""
    return [
        *_same(pod),
        *_entry("/metadata/labels", pod.metadata.labels, bridge.JOB_LABEL, str(job)),
        *_entry("/metadata/annotations", pod.metadata.annotations, bridge.GROUP_ANNOTATION, group),
    ]


def requeue_patch(pod: Pod, job: int) -> Patch:
    """Take the id of this job off a pod that waits. It is then as before it got the job."""
    gates = [it.name for it in pod.spec.scheduling_gates]
    gate = f"/spec/schedulingGates/{gates.index(bridge.GATE)}/name"
    label = f"/metadata/labels/{_escaped(bridge.JOB_LABEL)}"
    patch: Patch = [
        *_same(pod),
        {"op": "test", "path": gate, "value": bridge.GATE},
        {"op": "test", "path": label, "value": str(job)},
        {"op": "remove", "path": label},
    ]
    if bridge.GROUP_ANNOTATION in pod.metadata.annotations:
        patch.append(
            {"op": "remove", "path": f"/metadata/annotations/{_escaped(bridge.GROUP_ANNOTATION)}"}
        )
    return patch


def release_patch(pod: Pod, node: str, end_time: int, now: float) -> Patch:
    """Remove the gate, and bind the pod to the node. `end_time`: of its job. 0: never."""
    gates = [it.name for it in pod.spec.scheduling_gates]
    gate = f"/spec/schedulingGates/{gates.index(bridge.GATE)}"
    patch = [*_same(pod), *_affinity(pod, node)]
    toleration = {"key": bridge.TAINT, "operator": "Exists"}
    if not pod.spec.tolerations:
        patch.append({"op": "add", "path": "/spec/tolerations", "value": [toleration]})
    elif all(it.key != bridge.TAINT for it in pod.spec.tolerations):
        patch.append({"op": "add", "path": "/spec/tolerations/-", "value": toleration})
    if end_time:
        # The kubelet ends the pod in time while the bridge or Slurm doesn't run.
        seconds = max(1, int(end_time - now) - DEADLINE_MARGIN)
        if pod.spec.active_deadline_seconds is None or seconds < pod.spec.active_deadline_seconds:
            patch.append({"op": "add", "path": "/spec/activeDeadlineSeconds", "value": seconds})
    patch += _entry("/metadata/annotations", pod.metadata.annotations, bridge.NODE_ANNOTATION, node)
    return [
        *patch,
        {"op": "test", "path": f"{gate}/name", "value": bridge.GATE},
        {"op": "remove", "path": gate},
    ]


def annotation_patch(pod: Pod, key: str, value: str) -> Patch:
    """Write one annotation, if the pod is still this one."""
    meta = pod.metadata
    same: Patch = [{"op": "test", "path": "/metadata/uid", "value": meta.uid}]
    return [*same, *_entry("/metadata/annotations", meta.annotations, key, value)]


def condition_patch(pod: Pod, why: Why, message: str, now: float) -> Patch:
    """Write the condition `Queued`, for the status of the pod. Return [] if it has it already."""
    status = "False" if why is Why.RELEASED else "True"
    return _condition(
        pod, Condition(bridge.CONDITION, status, why.value, condition_message(message)), now
    )


def disruption_patch(pod: Pod, why: Disruption, message: str, now: float) -> Patch:
    """Write the condition `DisruptionTarget`, for the status of the pod. Return [] if it is true
    already: whoever was first has the cause.
    """
    shown = pod.status.condition(bridge.DISRUPTED)
    if shown is not None and shown.status == "True":
        return []
    wanted = Condition(bridge.DISRUPTED, "True", why.value, condition_message(message))
    return _condition(pod, wanted, now)


def _condition(pod: Pod, wanted: Condition, now: float) -> Patch:
    present = pod.status.conditions
    index = next((i for i, it in enumerate(present) if it.type == wanted.type), None)
    value = msgspec.to_builtins(wanted)
    if index is None:
        patch = (
            [*_same(pod)]
            if present
            else [*_same(pod), {"op": "add", "path": "/status/conditions", "value": []}]
        )
        return [
            *patch,
            {"op": "add", "path": "/status/conditions/-", "value": {**value, **_since(now)}},
        ]
    shown = present[index]
    if shown == wanted:
        return []
    path = f"/status/conditions/{index}"
    changes = value if shown.status == wanted.status else {**value, **_since(now)}
    return [
        *_same(pod),
        *(
            {"op": "add", "path": f"{path}/{name}", "value": it}
            for name, it in changes.items()
            if name != "type"
        ),
    ]


def _since(now: float) -> dict[str, str]:
    return {"lastTransitionTime": timestamp(now)}


def _same(pod: Pod) -> Patch:
    meta = pod.metadata
    return [
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
    ]


def _entry(path: str, present: Mapping[str, str], key: str, value: str) -> Patch:
    if not present:
        return [{"op": "add", "path": path, "value": {key: value}}]
    return [{"op": "add", "path": f"{path}/{_escaped(key)}", "value": value}]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _affinity(pod: Pod, node: str) -> Patch:
    """Add the node to each term, because one of the terms has to fit."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    required: dict[str, Any] = {"nodeSelectorTerms": [{"matchFields": fields}]}
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = pod.spec.affinity
    if affinity is None:
        return [
            {"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": {name: required}}}
        ]
    path = "/spec/affinity/nodeAffinity"
    if affinity.node_affinity is None:
        return [{"op": "add", "path": path, "value": {name: required}}]
    present = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    if present is None:
        return [{"op": "add", "path": f"{path}/{name}", "value": required}]
    terms = range(len(present.node_selector_terms))
    return [
        {
            "op": "add",
            "path": f"{path}/{name}/nodeSelectorTerms/{index}/matchFields",
            "value": fields,
        }
        for index in terms
    ]
