"""Which pods start together, and how many they are. Pure.

Labels and annotations of the pods are enough for the bridge's own labels and for a LeaderWorkerSet.
The size of a JobSet, of a PodGroup and of a Workload is in the object that the pods name:
`source_of` names it, `read` reads it. The controllers of other pods are read for their annotations,
and a Job for its time limit and for what is left of it: `object_of` names either.

A pod of a batch Job is a job of its own, because the pods of a Job are independent of each other:
the first ones run while the others wait. With the label of the group's size alone, all pods of the
same controller are one group.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.records import GroupKey
from sidecars.contract import bridge

MOST_PODS = 10_000
"""Pods of one group."""

POD_GROUP = "scheduling.x-k8s.io/pod-group"
"""Label of scheduler-plugins, which Kubeflow Trainer writes, too."""

JOB_SET = "jobset.sigs.k8s.io/"
"""Prefix of the labels that the JobSet controller writes on pods."""

LEADER_WORKER_SET = "leaderworkerset.sigs.k8s.io/"
"""Prefix of the labels and annotations that the LeaderWorkerSet controller writes on pods."""

_WHOLE = ""


class SourceKind(Enum):
    """A kind whose objects are read for the jobs of their pods: its API group, version, kind and
    plural.
    """

    JOB_SET = "jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"
    SCHEDULER_PLUGINS = "scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups"
    POD_GROUP = "scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups"
    WORKLOAD = "scheduling.k8s.io", "v1alpha1", "Workload", "workloads"
    JOB = "batch", "v1", "Job", "jobs"
    REPLICA_SET = "apps", "v1", "ReplicaSet", "replicasets"
    """It has the annotations of its Deployment."""
    STATEFUL_SET = "apps", "v1", "StatefulSet", "statefulsets"
    LEADER_WORKER_SET = "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"

    @property
    def kind(self) -> str:
        """As in `kind:`."""
        return self.value[2]

    def is_of(self, api_version: str, kind: str) -> bool:
        """Return whether an object with these two fields is of this kind."""
        return (f"{self.value[0]}/{self.value[1]}", self.value[2]) == (api_version, kind)

    @property
    def resource(self) -> str:
        """As in `kubectl get`, and in a role."""
        return f"{self.value[3]}.{self.value[0]}"


CONTROLLERS = frozenset(
    {
        SourceKind.JOB,
        SourceKind.REPLICA_SET,
        SourceKind.STATEFUL_SET,
        SourceKind.LEADER_WORKER_SET,
    }
)
"""The kinds whose pods have the size of their group, or are alone."""


class Source(NamedTuple):
    """An object that has the size of a group, or the controller of its pods."""

    kind: SourceKind
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Facts:
    """The sizes in the object, or why they aren't known."""

    sizes: Mapping[str, int | None] | None = None
    """The number of pods by the name of what starts together: "" for the whole object. None: each
    pod alone.
    """
    problem: str = ""
    refused: bool = False
    """Whether the problem remains until an administrator or the user changes something."""
    wishes: Mapping[str, str] = field(default_factory=dict)
    """The object's annotations about the job."""
    deadline: int | None = None
    """Seconds after which a Job ends its pods."""

    def __hash__(self) -> int:
        return hash((frozenset((self.sizes or {}).items()), self.problem, self.refused))


UNREAD = Facts()
"""Of an object that was not read yet."""


@dataclass(frozen=True, slots=True)
class Group:
    """The group of a pod."""

    key: GroupKey
    name: str = ""
    """The name of its job; "" for a pod alone."""
    words: str = ""
    """As messages name it."""
    size: int = 1
    """0: not known, or not yet."""
    problem: str = ""
    """Why the size isn't known. "" while it is being read."""
    refused: bool = False
    """Whether the problem remains until someone changes something."""
    wishes: Mapping[str, str] = field(default_factory=dict)
    """The annotations of its object about the job. Those of the pod come first."""
    deadline: int | None = None
    """Seconds after which the Job that the pod is of ends it."""


def source_of(pod: Pod) -> Source | None:
    """Return the object that has the size of the pod's group, or None if the pod has it, or is
    alone.
    """
    meta, spec = pod.metadata, pod.spec
    if bridge.GROUP_LABEL in meta.labels or bridge.GROUP_SIZE_LABEL in meta.labels:
        return None
    for kind, name in (
        (SourceKind.POD_GROUP, _text(spec.scheduling_group, "podGroupName")),
        (SourceKind.WORKLOAD, _text(spec.workload_ref, "name")),
        (SourceKind.SCHEDULER_PLUGINS, meta.labels.get(POD_GROUP, "")),
        (SourceKind.JOB_SET, meta.labels.get(JOB_SET + "jobset-name", "")),
    ):
        if name:
            return Source(kind, meta.namespace, name)
    return None


def object_of(pod: Pod) -> Source | None:
    """Return the object that has to be read before the pod can have a job: that of `source_of`, or
    else its controller. None for a pod of something else.
    """
    source = source_of(pod)
    if source is not None:
        return source
    meta = pod.metadata
    owner = meta.controller
    if owner is None:
        return None
    # Its pods are those of StatefulSets.
    name = meta.labels.get(LEADER_WORKER_SET + "name", "")
    if name:
        return Source(SourceKind.LEADER_WORKER_SET, meta.namespace, name)
    kind = next((it for it in CONTROLLERS if it.is_of(owner.api_version, owner.kind)), None)
    return Source(kind, meta.namespace, owner.name) if kind is not None else None


def group_of(pod: Pod, found: Mapping[Source, Facts]) -> Group:
    """Return the group that the pod starts with. `found`: what is known of the objects of
    `object_of`.
    """
    source = object_of(pod)
    if source is None:
        return _by_labels(pod)
    facts = found.get(source, UNREAD)
    if source.kind in CONTROLLERS:
        return _controlled(pod, _by_labels(pod), facts)
    return replace(_of_source(pod, source, facts), wishes=facts.wishes)


def _controlled(pod: Pod, group: Group, facts: Facts) -> Group:
    """Return the group with what its controller requests. Without a job, it waits until that is
    known.
    """
    if facts.sizes is None:
        has_job = bridge.JOB_LABEL in pod.metadata.labels
        if has_job or group.refused:
            return group
        return replace(group, size=0, problem=facts.problem, refused=facts.refused)
    left = facts.sizes[_WHOLE]
    # The label of a group may be on pods of several controllers.
    if left is not None and bridge.GROUP_LABEL not in pod.metadata.labels:
        group = replace(group, size=min(group.size, left))
    return replace(group, wishes=facts.wishes, deadline=facts.deadline)


def _by_labels(pod: Pod) -> Group:
    meta = pod.metadata
    name = meta.labels.get(bridge.GROUP_LABEL, "")
    if name:
        return _labelled(pod, bridge.group_id(name), name, f"group {name}")
    if bridge.GROUP_SIZE_LABEL in meta.labels:
        owner = meta.controller
        if owner is None:
            return Group(
                GroupKey(meta.namespace, meta.uid),
                size=0,
                problem=f"the pod has the label {bridge.GROUP_SIZE_LABEL} and no controller: add "
                f"{bridge.GROUP_LABEL}",
                refused=True,
            )
        return _labelled(pod, f"owner/{owner.uid}", owner.name, f"{owner.kind} {owner.name}")
    if LEADER_WORKER_SET + "name" in meta.labels:
        return _leader_worker_set(pod)
    return _alone(pod)


def read(source: Source, manifest: Mapping[str, Any]) -> Facts:
    """Return the sizes in the object."""
    spec = manifest.get("spec")
    try:
        spec = spec if isinstance(spec, Mapping) else {}
        if source.kind is SourceKind.JOB:
            seconds = spec.get("activeDeadlineSeconds")
            return Facts(
                {_WHOLE: _left(spec, manifest.get("status") or {})},
                wishes=_wishes(manifest),
                deadline=None if seconds is None else int(seconds),
            )
        return Facts(_SIZES[source.kind](spec), wishes=_wishes(manifest))
    except (ValueError, TypeError, AttributeError, KeyError):
        return Facts(
            problem=f"{source.kind.kind} {source.name} has no size that can be read", refused=True
        )


def _wishes(manifest: Mapping[str, Any]) -> dict[str, str]:
    metadata = manifest.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return {
        key: value
        for key, value in (annotations.items() if isinstance(annotations, Mapping) else ())
        # Who submits the job is a property of each pod.
        if isinstance(key, str) and key.startswith(bridge.WISHES) and key != bridge.NO_SUBMISSION
        if isinstance(value, str)
    }


def missing(source: Source) -> Facts:
    """Return the object, or its kind, doesn't exist."""
    return Facts(problem=f"{source.kind.kind} {source.name} ({source.kind.resource}) doesn't exist")


def forbidden(source: Source) -> Facts:
    """Return the bridge has no right to read it."""
    text = (
        f"the Slurm Bridge may not read {source.kind.kind} {source.name}: an administrator adds "
        f"`get` on {source.kind.resource} to its ClusterRole"
    )
    if source.kind not in CONTROLLERS:
        text += (
            f", or add the labels {bridge.GROUP_LABEL} and {bridge.GROUP_SIZE_LABEL} to the pods"
        )
    return Facts(problem=text, refused=True)


def failed(source: Source, error: str) -> Facts:
    """Return the facts of an object that could not be read."""
    return Facts(problem=f"{source.kind.kind} {source.name} can't be read: {error}")


def _alone(pod: Pod) -> Group:
    return Group(GroupKey(pod.metadata.namespace, pod.metadata.uid))


def _labelled(pod: Pod, group: str, name: str, words: str) -> Group:
    text = pod.metadata.labels.get(bridge.GROUP_SIZE_LABEL, "")
    problem = (
        f"label {bridge.GROUP_SIZE_LABEL} is {text!r}: a pod of a group needs the number of its "
        f"pods there, 1 to {MOST_PODS}"
    )
    return _sized(pod, group, name, words, _number(text), problem)


def _leader_worker_set(pod: Pod) -> Group:
    labels, key = pod.metadata.labels, LEADER_WORKER_SET + "size"
    name, index = (
        labels[LEADER_WORKER_SET + "name"],
        labels.get(LEADER_WORKER_SET + "group-index", ""),
    )
    size = pod.metadata.annotations.get(key, "")
    problem = (
        f"annotation {key} is {size[:20]!r}: the controller of LeaderWorkerSet writes the number "
        "of the group's pods"
    )
    words = f"LeaderWorkerSet {name}, group {index}"
    return _sized(pod, f"lws/{name}/{index}", f"{name}-{index}", words, _number(size), problem)


def _of_source(pod: Pod, source: Source, facts: Facts) -> Group:
    labels = pod.metadata.labels
    words = f"{source.kind.kind} {source.name}"
    match source.kind:
        case SourceKind.JOB_SET:
            # The uid, because pods of a deleted JobSet may remain when another one has its name.
            group, part = (
                f"jobset/{labels.get(JOB_SET + 'jobset-uid', source.name)}",
                labels.get(_REPLICATED_JOB, ""),
            )
        case SourceKind.WORKLOAD:
            part = _text(pod.spec.workload_ref, "podGroup")
            group = f"workload/{source.name}"
        case SourceKind.POD_GROUP:
            group, part = f"gang/{source.name}", ""
        case _:
            group, part = f"podgroup/{source.name}", ""
    if facts.sizes is None:
        key = GroupKey(pod.metadata.namespace, group)
        return Group(key, source.name, words, 0, facts.problem, facts.refused)
    name = source.name
    if part in facts.sizes and facts.sizes[part] is None:
        return _alone(pod)
    if _WHOLE in facts.sizes:
        part = _WHOLE
    else:
        replica = _text(pod.spec.workload_ref, "podGroupReplicaKey")
        group, name = "/".join(filter(None, (group, part, replica))), f"{name}-{part}"
        words = f"{words}, {part}"
    size = facts.sizes.get(part, 0)
    if size is None:
        return _alone(pod)
    return _sized(
        pod, group, name, words, size, f"{source.kind.kind} {source.name} has no size for this pod"
    )


def _sized(pod: Pod, group: str, name: str, words: str, size: int | None, problem: str) -> Group:
    key = GroupKey(pod.metadata.namespace, group)
    if size is None or not 1 <= size <= MOST_PODS:
        return Group(key, name, words, 0, problem, refused=True)
    return Group(key, name, words, size)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else None


def _text(fields: Mapping[str, Any] | None, key: str) -> str:
    found = (fields or {}).get(key)
    return found if isinstance(found, str) else ""


def _job_set(spec: Mapping[str, Any]) -> Mapping[str, int | None]:
    """Return the groups of a JobSet. Jobs that start one after the other never wait together: each
    replicated job is a group then.

    The pods of a job that has more of them than at a time never exist together either, and the last
    ones are fewer: each is alone.
    """
    jobs = spec["replicatedJobs"]
    alone: dict[str, int | None] = {
        str(job["name"]): None for job in jobs if _comes_in_waves(job["template"]["spec"])
    }
    sizes = {
        str(job["name"]): _replicas(job) * _parallel(job["template"]["spec"])
        for job in jobs
        if str(job["name"]) not in alone
    }
    order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder")
    if order == "InOrder" or any(job.get("dependsOn") for job in jobs):
        return {**sizes, **alone}
    return {_WHOLE: sum(sizes.values()), **alone}


def _comes_in_waves(job: Mapping[str, Any]) -> bool:
    completions, parallelism = job.get("completions"), job.get("parallelism")
    return completions is not None and int(completions) > int(
        1 if parallelism is None else parallelism
    )


def _left(spec: Mapping[str, Any], status: Mapping[str, Any]) -> int | None:
    """Return how many pods of a Job have to succeed, at least one; None without a number."""
    completions = spec.get("completions")
    if completions is None:
        return None
    uncounted = (status.get("uncountedTerminatedPods") or {}).get("succeeded") or ()
    return max(1, int(completions) - int(status.get("succeeded", 0)) - len(uncounted))


def _replicas(job: Mapping[str, Any]) -> int:
    return int(job.get("replicas", 1))


def _parallel(job: Mapping[str, Any]) -> int:
    """Return how many pods of a Job exist at the same time. Later ones replace those that have
    finished.
    """
    parallelism = job.get("parallelism")
    completions = job.get("completions")
    most = 1 if parallelism is None else int(parallelism)
    return most if completions is None else min(most, int(completions))


def _gang(policy: Mapping[str, Any]) -> int | None:
    """Return the size of the gang, None without one."""
    gang = policy.get("gang")
    return int(gang["minCount"]) if gang is not None else None


_REPLICATED_JOB = JOB_SET + "replicatedjob-name"
_SIZES: Mapping[SourceKind, Callable[[Mapping[str, Any]], Mapping[str, int | None]]] = {
    **dict.fromkeys(CONTROLLERS, lambda _: {_WHOLE: None}),
    SourceKind.JOB_SET: _job_set,
    SourceKind.SCHEDULER_PLUGINS: lambda spec: {_WHOLE: int(spec.get("minMember", 1))},
    SourceKind.POD_GROUP: lambda spec: {_WHOLE: _gang(spec.get("schedulingPolicy") or {})},
    SourceKind.WORKLOAD: lambda spec: {
        str(it["name"]): _gang(it.get("policy") or {}) for it in spec["podGroups"]
    },
}
