"""What `decide` looks at, and what it can answer."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from sidecars.contract.bridge import Comment
from sidecars.policy.bridge.shape import Shape
from sidecars.policy.reasons.bridge import PodQueued


class Phase(Enum):
    """The state of a placeholder job, as far as decisions need it."""

    SUBMITTED = "submitted"
    """A held job, which the bridge has not started yet."""
    PENDING = "pending"
    STARTING = "starting"
    """It has nodes, and its prolog still runs."""
    RUNNING = "running"
    STOPPED = "stopped"
    """Suspended: it keeps its nodes."""
    ENDED = "ended"


class GroupKey(NamedTuple):
    """A group of pods that start together: one job."""

    namespace: str
    group: str


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod with our gate or with the label of a job."""

    uid: str
    namespace: str
    name: str
    key: GroupKey
    gated: bool = False
    """Whether our gate is on it."""
    blocked: bool = False
    """Whether gates of others are on it, too."""
    job: int | None = None
    """By its label."""
    node: str = ""
    """Where it is bound, or else where it was released to.

    Also from the moment on when a release was sent, while a cache still shows the pod gated: otherwise another pod of
    the group would get its place.
    """
    bound: bool = False
    deleting: bool = False
    finished: bool = False
    lost: bool = False
    """Whether its Kubernetes node is gone."""
    owner: str = ""
    """uid of what creates it again; "" for nothing."""
    shape: Shape | None = None
    problem: str = ""
    """Why it has no shape."""
    unbound_seconds: float = 0.0
    """For how long it has been released without being bound."""
    unbound_reason: str = ""
    """The scheduler's words about it."""
    reported: tuple[str, str] = ("", "")
    """Reason and message of its condition `Queued`."""

    @property
    def live(self) -> bool:
        """Whether it runs or will."""
        return not (self.deleting or self.finished or self.lost)

    @property
    def present(self) -> bool:
        """Whether it may use resources: it does until it is gone."""
        return not (self.finished or self.lost)


@dataclass(frozen=True, slots=True)
class Job:
    """An external job of Slurm with a comment of the bridge."""

    job_id: int
    phase: Phase
    user: str
    comment: Comment
    slots: tuple[tuple[str, int], ...] = ()
    """How many pods fit on each of its Kubernetes nodes."""
    reason: str = ""
    """Slurm's reason while it waits."""
    start_time: int = 0
    """When Slurm expects it to start, in seconds since the epoch; 0: unknown."""
    end_time: int = 0
    """When its time limit ends it; 0: never, or not running."""
    confirmed: bool = False
    """Whether its admin comment is ours, too."""
    state: str = ""
    """Slurm's word."""
    root: bool = False
    """Whether its user has uid 0: no pod may run by it."""


@dataclass(frozen=True, slots=True)
class View:
    """What is known at one moment."""

    pods: tuple[Pod, ...]
    jobs: Mapping[int, Job]
    """The bridge's jobs."""
    known: bool
    """Whether every job of Slurm's last answer was looked at, and the answer is fresh."""
    users: Mapping[str, str] = field(default_factory=dict)
    """The Slurm user of each namespace that has one."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """The Kubernetes nodes: why no pod can be released to it, "" if one can."""
    submitting: AbstractSet[GroupKey] = frozenset()
    """Groups of which a submission was sent whose job is not in `jobs` yet, or may not be."""
    avoided: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Nodes to avoid, by `avoid_key`."""


Why = PodQueued
"""The reason of the condition `Queued`."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit a held job for the group."""

    key: GroupKey
    shape: Shape
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Label:
    """Write the job's id on the pod."""

    pod: Pod
    job: int


@dataclass(frozen=True, slots=True)
class Start:
    """Let the held job start, and write its admin comment."""

    job: Job


@dataclass(frozen=True, slots=True)
class Release:
    """Bind the pod to the node: gate off, affinity, toleration, deadline."""

    pod: Pod
    job: int
    node: str
    end_time: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """Write the pod's condition `Queued`."""

    pod: Pod
    why: Why
    message: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the job."""

    job: int
    message: str
    avoid: tuple[str, str] | None = None
    """What is to avoid which node from now on."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete the pod, with its full grace."""

    pod: Pod
    message: str
    state: str = ""
    """Of its job: Slurm's word."""


Action = Submit | Label | Start | Release | Report | Cancel | DeletePod


def avoid_key(pod: Pod) -> str:
    """By what the pods that replace this one are known."""
    return pod.owner or f"{pod.key.namespace}/{pod.key.group}"
