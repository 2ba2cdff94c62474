"""What the bridge, its chart and Slurm agree on: keys of pods and nodes, the comment of a
placeholder job, node labels.

The keys are those of SchedMD's slurm-bridge (https://github.com/SlinkyProject/slurm-bridge), except
the gate, the condition and the pair of group labels, which that one doesn't have.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

GATE: Final = "scheduler.slinky.slurm.net/queued"
"""Scheduling gate of a pod that waits for its placeholder job."""

JOB_LABEL: Final = "scheduler.slinky.slurm.net/slurm-jobid"
"""Label of a pod: the id of its placeholder job. Only the bridge writes it."""

NODE_ANNOTATION: Final = "slinky.slurm.net/slurm-node"
"""Annotation of a pod: the Kubernetes node that its job has. Only the bridge writes it."""

GROUP_ANNOTATION: Final = "slinky.slurm.net/slurm-group"
"""Annotation of a pod with JOB_LABEL: the group of its job, as in the job's comment. Only the
bridge writes it.
"""

CONDITION: Final = "slinky.slurm.net/Queued"
"""Condition of a pod: True while it waits, with Slurm's reason."""

DISRUPTED: Final = "DisruptionTarget"
"""Condition of Kubernetes: the pod ends through no fault of its own. A podFailurePolicy can ignore
such an end.
"""

GROUP_LABEL: Final = "scheduler.slinky.slurm.net/group"
"""Label of pods that start together or not at all, as one job."""

GROUP_SIZE_LABEL: Final = "scheduler.slinky.slurm.net/group-size"
"""Label of each of them: their number. Without GROUP_LABEL, the pods of the same controller are a
group.
"""

WISHES: Final = "slurmjob.slinky.slurm.net/"
"""Prefix of a pod's annotations about its job, such as `slurmjob.slinky.slurm.net/partition`."""

NO_SUBMISSION: Final = f"{WISHES}submit"
"""Annotation of the pods of a group, "false": their user submits their job, and the bridge none."""

BY_USER: Final = "slurm-bridge:"
"""Begins the comment of an external job that a user submits for a group:
`slurm-bridge:NAMESPACE/GROUP`.
"""

TAINT: Final = "slinky.slurm.net/managed-node"
"""Key of the taint of Kubernetes nodes whose pods Slurm schedules. Released pods get a toleration
of it.
"""

THEIR_SCHEDULER: Final = "slurm-bridge-scheduler"
"""The scheduler of SchedMD's slurm-bridge. None has this name here: admission replaces it by
Kubernetes' own, which binds the pods that Slurm schedules.
"""

KUBERNETES_SCHEDULER: Final = "default-scheduler"

EXTERNAL_NODE: Final = "scheduler.slinky.slurm.net/external-node"
"""Label of a Kubernetes node that becomes an external node of Slurm, with any value."""

NODE_NAME: Final = "slinky.slurm.net/slurm-nodename"
"""Label of a Kubernetes node: its name in Slurm, if that is another one."""

NODE_FEATURES: Final = "scheduler.slinky.slurm.net/external-node-partitions"
"""Annotation of a Kubernetes node: features of its Slurm node, separated by commas."""

GUARD: Final = "scheduler.slinky.slurm.net/guard-epilog"
"""Annotation of a worker pod, by the chart slurm: GUARD_VERSION if the Epilog of its slurmd waits
for pods.
"""

GUARD_VERSION: Final = "1"

GONE: Final = "scheduler.slinky.slurm.net/guards-gone"
"""Annotation of a worker pod, by the bridge: the ids of the ended guards whose pods are gone from
its Kubernetes node, as `12,15`. The Epilog of such a job ends when it reads the job's id there (a
file of the downward API).
"""

ADMIN_COMMENT: Final = '{"slurmBridge":'
"""Begins the admin comment of a placeholder, which the bridge writes before a pod runs by it, and
no user can change. A batch job that has it is a guard: its Epilogs wait until their nodes have none
of its pods.
"""

DRAIN_PREFIX: Final = "slurm-bridge: "
"""Begins the reasons of the drains that the bridge sets and lifts."""

KUBE_NODE: Final = "scheduler.slinky.slurm.net/kube-node"
"""Key in the Extra of a Slurm node that the bridge has created: the name of its Kubernetes node."""

CLUSTER: Final = "scheduler.slinky.slurm.net/cluster"
"""Key in it of the Kubernetes cluster: the uid of its namespace kube-system. Records of an earlier
bridge lack it.
"""

DEVICES: Final = "scheduler.slinky.slurm.net/devices"
"""Key in it of the devices that Slurm has by index: GRES, driver, pool and name of each, in the
order of the indices.

It is written once: a job's indices mean the devices that the record had when it was created.
"""

MISSING: Final = "-"
"""The value in a Slurm node's Extra of a label that the Kubernetes node lacks. No label has this
value.
"""

EMPTY: Final = "_"
"""The same of a label whose value is empty."""


@dataclass(frozen=True, slots=True)
class Comment:
    """Whose placeholder a job is. It is in the job's comment from the submission on, and in its
    admin comment, which the job's user can't change, from the moment when the bridge lets it start.
    """

    namespace: str
    group: str
    """uid of the only pod, or another id of the group with a `/`, such as `group/NAME`."""
    digest: str = ""
    """Of what the job requests for each pod: equal for equal requests."""
    pods: int = 1
    """For how many pods the job is."""
    parts: tuple[tuple[str, int], ...] = ()
    """Digest and pods of each component of a heterogeneous job, in their order; () for any other
    job.

    All components have the same comment, because Slurm writes what is set on the first one on all
    of them.
    """
    by_user: bool = False
    """Whether the user has submitted the job, for any number of equal pods."""
    cluster: str = ""
    """The Kubernetes cluster of its pods, as CLUSTER. "" in the comment of an earlier bridge, and
    of a user.
    """
    given_up: bool = False
    """In the admin comment alone: whether the bridge cancels the job, for no fault of its pods.

    Those that never ran and still have its id are queued again when the API server takes the
    change.
    """
    exit_code: int | None = None
    """In the admin comment alone: the highest exit code of the pods of a job that the bridge
    cancels because all of them have ended.
    """


def encode(comment: Comment) -> str:
    """Return the text of a comment."""
    fields: dict[str, object] = {
        "namespace": comment.namespace,
        "group": comment.group,
        "digest": comment.digest,
    }
    fields["pods"] = comment.pods
    if comment.parts:
        fields["parts"] = comment.parts
    if comment.cluster:
        fields["cluster"] = comment.cluster
    if comment.given_up:
        fields["givenUp"] = True
    if comment.exit_code is not None:
        fields["exitCode"] = comment.exit_code
    return json.dumps({"slurmBridge": fields}, separators=(",", ":"))


def decode(text: str) -> Comment | None:
    """Return the comment in a text, or None for a text that the bridge hasn't written."""
    try:
        found = json.loads(text)["slurmBridge"] if "slurmBridge" in text else None
        fields = [found[name] for name in ("namespace", "group", "digest")] if found else []
        pods = found.get("pods", 1) if found else 1
        parts = tuple((digest, count) for digest, count in found.get("parts", ())) if found else ()
        cluster = found.get("cluster", "") if found else ""
        given_up = found.get("givenUp") is True if found else False
        exit_code = found.get("exitCode") if found else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    texts = [*fields, cluster, *(digest for digest, _ in parts)]
    numbers = [pods, *(count for _, count in parts), 0 if exit_code is None else exit_code]
    if (
        not fields
        or not all(isinstance(it, str) for it in texts)
        or not all(type(it) is int for it in numbers)
    ):
        return None
    namespace, group, digest = fields
    return Comment(
        *(namespace, group, digest, pods, parts),
        cluster=cluster,
        given_up=given_up,
        exit_code=exit_code,
    )


def decode_by_user(text: str) -> Comment | None:
    """Decode what the user of a job has written in its comment. Return None for any other text."""
    namespace, _, group = text.removeprefix(BY_USER).partition("/")
    if not text.startswith(BY_USER) or not namespace or not group:
        return None
    return Comment(namespace, group_id(group), by_user=True)


def group_id(name: str) -> str:
    """Return the group, in a Comment, of the pods with this GROUP_LABEL."""
    return f"group/{name}"


def node_extra(
    kube_node: str,
    labels: Mapping[str, str],
    keys: Iterable[str],
    devices: Iterable[tuple[str, ...]] = (),
    cluster: str = "",
) -> str:
    """Write the Extra of a Slurm node: its Kubernetes node and `cluster`, the values of these label
    keys on it, and its `devices_of`.

    Slurm finds no node by a key that the node lacks, not even by `!=`. Therefore every node has
    every key.
    """
    values: dict[str, object] = {
        key: labels[key] or EMPTY if key in labels else MISSING
        # A tenant's pods may name any key.
        for key in sorted({*keys} - _OWN_KEYS)
    }
    if cluster:
        values[CLUSTER] = cluster
    named = list(devices)
    if named:
        values[DEVICES] = named
    return json.dumps({KUBE_NODE: kube_node, **values}, separators=(",", ":"))


_OWN_KEYS = frozenset({KUBE_NODE, CLUSTER, DEVICES})


def devices_of(text: str) -> tuple[tuple[str, ...], ...]:
    """GRES, driver, pool and name of each device in a node's Extra; () for an Extra without any."""
    try:
        found = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return ()
    named = found.get(DEVICES) if isinstance(found, dict) else None
    if not isinstance(named, list) or not all(
        isinstance(it, list) and len(it) == 4 for it in named
    ):
        return ()
    return tuple(tuple(map(str, it)) for it in named)


def labels_of(text: str) -> dict[str, str] | None:
    """Read what `node_extra` has written, KUBE_NODE and CLUSTER among it. Return None for an Extra
    that the bridge hasn't written.
    """
    try:
        found = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get(KUBE_NODE), str):
        return None
    return {key: value for key, value in found.items() if isinstance(value, str)}
