"""What `decide` looks at, and what it can answer."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from sidecars.bridge.core.devices import Claim, Device, Granted
from sidecars.bridge.core.feasible import Needs
from sidecars.bridge.core.shape import Shape
from sidecars.bridge.core.starting import Starting
from sidecars.contract.bridge import Comment
from sidecars.policy.reasons.bridge import PodDisrupted, PodQueued


@dataclass(frozen=True, slots=True)
class Own:
    """How a running job has its nodes."""

    shared: bool = False
    """Whether Slurm gives its cores to other jobs, too."""
    whole: bool = False
    """Whether no job of another user is on its nodes. Jobs of the same user may be."""
    gres: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()
    """How many it has of each GRES, of all of its types together, by Kubernetes node."""


NOTHING = Own()
"""That of a job without nodes."""


class Asked(NamedTuple):
    """What a job requests."""

    partitions: tuple[str, ...]
    tasks: int
    cpus: int
    """Of each task, as what follows."""
    memory: int
    """MiB."""
    gres: str


class Phase(Enum):
    """The state of a placeholder job, as far as decisions need it."""

    SUBMITTED = "submitted"
    """A held job, which the bridge has not started yet."""
    PENDING = "pending"
    STARTING = "starting"
    """It has nodes, and its prolog still runs."""
    RUNNING = "running"
    STOPPED = "stopped"
    """Suspended: others get its cores, and it keeps everything else."""
    ENDED = "ended"


class GroupKey(NamedTuple):
    """A group of pods that start together: one job."""

    namespace: str
    group: str


def concerns(comment: Comment, key: GroupKey) -> bool:
    """Return whether a job with the comment is of the pods' group.

    The ids of parts of an object begin with the object's own.
    """
    if comment.namespace != key.namespace:
        return False
    return comment.group == key.group or comment.group.startswith(f"{key.group}/")


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

    Also once a release was sent, while a cache still shows the pod gated: no other pod of the group
    gets its place.
    """
    bound: bool = False
    deleting: bool = False
    finished: bool = False
    exit_code: int | None = None
    """Of a finished one, the highest of its containers; None if that isn't known."""
    overdue: bool = False
    """Whether it is being deleted, and its grace period is over."""
    lost: bool = False
    """Whether its Kubernetes node is gone."""
    owner: str = ""
    """uid of what creates it again; "" for nothing."""
    group: str = ""
    """Its group, as messages name it; "" for a pod alone."""
    submit: bool = True
    """Whether the bridge submits its job. Otherwise its user does."""
    size: int = 1
    """The number of pods of its group; 0: not known."""
    unsized: str = ""
    """Why the size isn't known; "" while it is being read."""
    shape: Shape | None = None
    problem: str = ""
    """Why it can't have a job."""
    unguarded: str = ""
    """Why it can't run beside Slurm's own jobs, on a node with a slurmd."""
    unbound_seconds: float = 0.0
    """For how long it has been released without being bound."""
    unbound_reason: str = ""
    """The scheduler's words about it."""
    scheduler_away: bool = False
    """Whether the scheduler has bound and tried no pod since it should have tried this one, or has
    begun again a moment ago.
    """
    starting: Starting | None = None
    """What keeps a bound pod that never ran from its start; None for any other."""
    starting_seconds: float = 0.0
    """For how long that has lasted."""
    claims: tuple[Claim, ...] | None = ()
    """Its ResourceClaims; None: not all of them are known."""
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
    """A guard, an external job with a comment of the bridge, or the first component of a
    heterogeneous one.
    """

    job_id: int
    phase: Phase
    """Of all components together. ENDED: at least one has ended."""
    user: str
    comment: Comment
    slots: tuple[tuple[str, int], ...] = ()
    """How many pods fit on each of its Kubernetes nodes."""
    guard: bool = False
    completing: bool = False
    """Whether the Epilog of a node may still run. Until it has ended, a guard retains what it had
    on the node.
    """
    retains: bool = True
    """Whether its Epilogs will wait for its pods, if it is a guard. Its user may have changed by
    what they know it.
    """
    devices: tuple[tuple[str, str, tuple[Device, ...]], ...] = ()
    """The devices that Slurm has given to it, by Kubernetes node and GRES. Slurm may count others.
    """
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
    offset: int = 0
    """The place among the components of a heterogeneous job."""
    rest: "tuple[Job, ...]" = ()
    """The other components in their order, each with its own phase."""
    whole: int = 0
    """The heterogeneous job that a user has submitted, and of which this is a component; 0 for any
    other job.
    """
    cpus: tuple[tuple[str, int], ...] = ()
    """What it has on each of its Kubernetes nodes."""
    own: Own = NOTHING
    asked: Asked | None = None
    remaining: tuple[int, ...] = ()
    """The components that have not ended, of a heterogeneous job of which one has."""
    excluded: tuple[str, ...] = ()
    """The Kubernetes nodes that Slurm doesn't give to it."""

    @property
    def key(self) -> GroupKey:
        """The group that its comment names."""
        return GroupKey(self.comment.namespace, self.comment.group)

    def is_of(self, user: str | None) -> bool:
        """Return whether Slurm shows it as a job of this user, who has not uid 0."""
        return self.user == user and not self.root

    @property
    def components(self) -> "tuple[Job, ...]":
        """Itself alone, or the components of a heterogeneous job."""
        return (self, *self.rest)

    @property
    def ids(self) -> tuple[int, ...]:
        """Of all components."""
        return tuple(it.job_id for it in self.components)

    @property
    def requested(self) -> tuple[tuple[str, int], ...]:
        """Digest and pods of each component, as submitted."""
        return self.comment.parts or ((self.comment.digest, self.comment.pods),)

    @property
    def digest(self) -> str:
        """Of what this component requests for each pod."""
        return self._own[0]

    @property
    def size(self) -> int:
        """For how many pods this component is."""
        return self._own[1]

    @property
    def _own(self) -> tuple[str, int]:
        return self.requested[self.offset] if self.offset < len(self.requested) else ("", 0)


@dataclass(frozen=True, slots=True)
class Kind:
    """What the pods of a partition get as a placeholder."""

    guard: bool = False
    """A guard; otherwise an external job."""
    problem: str = ""
    """Why they get none."""


class Obstacle(NamedTuple):
    """What keeps the pods of a running job from being released, without a known end."""

    message: str
    node: str = ""
    """The Kubernetes node to avoid; "" for none."""
    seconds: float = 0.0
    """For how long the job has had an obstacle."""


@dataclass(frozen=True)
class View:
    """What is known at one moment."""

    pods: tuple[Pod, ...]
    jobs: Mapping[int, Job]
    """The bridge's jobs by id; of a heterogeneous job the id of its first component alone."""
    known: bool
    """Whether every job of Slurm's last answer was looked at, and the answer is fresh."""
    users: Mapping[str, str] = field(default_factory=dict)
    """The Slurm user of each namespace that has one."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """The Kubernetes nodes: why no pod can be released to it, "" if one can."""
    labelling: Mapping[str, int] = field(default_factory=dict)
    """The jobs of labels that were sent to pods which may not show them yet, by the pod's uid."""
    submitting: AbstractSet[GroupKey] = frozenset()
    """Groups of which a submission was sent whose job is not in `jobs` yet, or may not be."""
    paused: AbstractSet[int] = frozenset()
    """Jobs that were started again a moment ago, because Slurm had blocked them."""
    avoided: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Nodes to avoid, by `avoid_key`."""
    unfit: Mapping[Needs, Mapping[str, str]] = field(default_factory=dict)
    """Why the Kubernetes nodes that can't run the pods with such needs can't, by node."""
    places_of: Mapping[bool, AbstractSet[str]] = field(default_factory=dict)
    """The Kubernetes nodes of guards (True), and those of external jobs."""
    kinds: Mapping[str, Kind] | None = field(default_factory=dict)
    """What the pods of each partition get, an external job in others; None: not known."""
    holders: Mapping[Device, AbstractSet[str]] = field(default_factory=dict)
    """The uids of the ResourceClaims that have each device, or to which it was sent."""
    cpus: Mapping[str, int] = field(default_factory=dict)
    """Those of the nodes' records in Slurm, by Kubernetes node."""
    gres: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """How many of each GRES the nodes with a slurmd have, by Kubernetes node."""
    places: int | None = None
    """How many nodes Slurm has for the bridge's jobs; None: any number."""
    unwritable: Mapping[str, str] = field(default_factory=dict)
    """The namespaces of which it is not known that the bridge may change their pods: why, for the
    conditions of the pods; "" while it isn't known, or where the bridge may not write conditions.
    """
    refused: Mapping[str, str] = field(default_factory=dict)
    """The pods whose release Kubernetes has refused, by uid: why. Whether it still would shows the
    next one.
    """
    stuck: Mapping[str, int] = field(default_factory=dict)
    """The pods, by uid, off which Kubernetes has refused to take the id of this job."""
    obstacles: Mapping[int, Obstacle] = field(default_factory=dict)
    """Those that `decided` found in the last view, by job."""
    misnamed: Mapping[GroupKey, tuple[Job, str]] = field(default_factory=dict)
    """The jobs that the bridge has submitted just now and that Slurm shows as those of another
    user, each with the user who has submitted it.
    """
    unanswered: AbstractSet[int] = frozenset()
    """The jobs that Slurm doesn't list, and about which slurmdbd is still to be asked."""
    cluster: str = ""
    """The Kubernetes cluster that the admin comments of jobs name; "" for none."""

    @cached_property
    def labelled(self) -> Mapping[int, list[Pod]]:
        """The pods that are not gone by the job of their label."""
        found: dict[int, list[Pod]] = {}
        for pod in self.pods:
            if pod.present and pod.job is not None:
                found.setdefault(pod.job, []).append(pod)
        return found

    @cached_property
    def exit_codes(self) -> Mapping[int, list[int]]:
        """The known exit codes of the finished pods by the job of their label."""
        found: dict[int, list[int]] = {}
        for pod in self.pods:
            if pod.finished and pod.job is not None and pod.exit_code is not None:
                found.setdefault(pod.job, []).append(pod.exit_code)
        return found

    @cached_property
    def started(self) -> Mapping[GroupKey, tuple[int, ...]]:
        """The jobs that were started and have not ended, or not all of their components, by their
        group.

        But those of users: several may be in the queue for the same group, one after the other.
        """
        found: dict[GroupKey, tuple[int, ...]] = {}
        for job in self.jobs.values():
            ended = job.phase is Phase.ENDED and not job.remaining
            # Anyone can write the comment of their own job.
            ours = job.confirmed or self.users.get(job.comment.namespace) == job.user
            if job.phase is not Phase.SUBMITTED and not ended and ours and not job.comment.by_user:
                found[job.key] = (*found.get(job.key, ()), job.job_id)
        return found

    @cached_property
    def by_user(self) -> Mapping[GroupKey, Job]:
        """The first job that has not ended, of those which the user of a namespace has submitted
        for a group there.
        """
        return {
            job.key: job
            for job in sorted(self.jobs.values(), key=lambda it: -it.job_id)
            if job.comment.by_user and job.phase is not Phase.ENDED and not job.root
            if self.users.get(job.comment.namespace) == job.user
        }

    @cached_property
    def components(self) -> Mapping[int, tuple[Job, Job]]:
        """Each component of each job by its own id, after its job."""
        return {it.job_id: (job, it) for job in self.jobs.values() for it in job.components}


Why = PodQueued
"""The reason of the condition `Queued`."""

Disruption = PodDisrupted
"""The reason of the condition `DisruptionTarget`."""


class Part(NamedTuple):
    """Equal pods of a group: one component of its job."""

    shape: Shape
    pods: int


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit a held job for the group: a heterogeneous job if it has several parts."""

    key: GroupKey
    parts: tuple[Part, ...]
    excluded: tuple[str, ...] = ()
    guard: bool = False
    unfit: tuple[tuple[str, ...], ...] = ()
    """The nodes that can't run the pods of each part; () if all can."""
    pods: tuple[Pod, ...] = field(default=(), compare=False)
    """The pods that wait for it."""

    @property
    def user(self) -> str:
        """Who submits it."""
        return self.parts[0].shape.user


@dataclass(frozen=True, slots=True)
class Label:
    """Write the job's id on the pod."""

    pod: Pod
    job: int


@dataclass(frozen=True, slots=True)
class Start:
    """Let the held job start, with all of its components, and write its admin comment."""

    job: Job
    priority: int = 0
    """The lowest one of those that all of its pods set; 0: that of Slurm's scheduler."""


@dataclass(frozen=True, slots=True)
class Name:
    """Write the Kubernetes cluster into the admin comment of a job that an earlier bridge has let
    start: the bridge of another cluster would cancel it.
    """

    job: Job


@dataclass(frozen=True, slots=True)
class Allow:
    """Let the job, or component, that waits have all nodes but these."""

    job: Job
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Release:
    """Bind the pod to the node: gate off, affinity, toleration, deadline."""

    pod: Pod
    job: int
    node: str
    end_time: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """Write these devices of the node into the pod's claim, which shows none."""

    pod: Pod
    node: str
    claim: Claim
    granted: tuple[Granted, ...]


@dataclass(frozen=True, slots=True)
class Deallocate:
    """Take back the devices of the claim of a pod that waits."""

    pod: Pod
    claim: Claim


@dataclass(frozen=True, slots=True)
class Report:
    """Write the pod's condition `Queued`."""

    pod: Pod
    why: Why
    message: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the job, with all of its components."""

    job: int
    message: str
    avoid: tuple[str, str] | None = None
    """What is to avoid which node from now on."""
    unbound: Pod | None = None
    """The job is cancelled because this pod isn't bound: not if it is bound by now."""
    unstarted: Pod | None = None
    """The job is cancelled because this pod doesn't start: not if it has by now."""
    rest: tuple[int, ...] = ()
    """The ids of the other components."""
    refused: GroupKey | None = None
    """The group to submit no other job for during some seconds."""
    note: Comment | None = None
    """The admin comment that the job gets first: that its owner hasn't ended it, or how its pods
    have ended.
    """


@dataclass(frozen=True, slots=True)
class Requeue:
    """Take the job's id off a pod that waits. It gets another job when this one has ended."""

    pod: Pod
    job: int
    message: str
    node: str = ""
    """What its next job is to avoid."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete the pod, with its full grace."""

    pod: Pod
    message: str
    state: str = ""
    """Of its job: Slurm's word."""
    disruption: Disruption | None = None
    """Why it is no failure of the pod, which then gets the condition `DisruptionTarget` first."""


Action = (
    Submit
    | Label
    | Start
    | Name
    | Allow
    | Grant
    | Deallocate
    | Release
    | Report
    | Cancel
    | Requeue
    | DeletePod
)


def avoid_key(pod: Pod) -> str:
    """Return the key by which the pods that replace this one are known."""
    # Whoever creates a pod writes who its owner is.
    return f"{pod.namespace}/{pod.owner or pod.key.group}"
