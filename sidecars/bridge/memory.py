"""What the bridge remembers from pass to pass. A restart loses it, and costs no more than a second
look.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.records import GroupKey, Job, Obstacle, Phase

T = TypeVar("T")

LOST_AFTER = 60.0
"""Seconds for which a Kubernetes node has to be missing until its pods count as gone."""
AVOID_SECONDS = 600.0
MOST_AVOIDED = 5
"""Nodes that one group of pods avoids at the same time."""
LABEL_SECONDS = 60.0
"""How long a cache may take to show a label that was sent. The watch shows changes of pods in their
order.
"""
REPEAT_AFTER = 5.0
"""Seconds after which a request about a job is repeated that has changed nothing."""
OVERDUE_SECONDS = 240.0
"""Seconds after its release in which the scheduler usually has tried a pod, also one of thousands.
"""
RESUME_SECONDS = 60.0
"""Seconds that the scheduler has for such pods when it binds pods again."""
FIRST_RETRY, LONGEST_RETRY = 5.0, 120.0


class PerPod(Generic[T]):
    """What follows from the manifest of a pod alone, computed once for each version of it."""

    def __init__(self, compute: Callable[[Pod], T]) -> None:
        self._compute = compute
        self._known: dict[str, tuple[Pod, T]] = {}

    def __call__(self, pod: Pod) -> T:
        """Return the same object until the cache of the cluster has another version of the pod."""
        known = self._known.get(pod.metadata.uid)
        if known is None or known[0] is not pod:
            known = self._known[pod.metadata.uid] = pod, self._compute(pod)
        return known[1]

    def pop(self, uid: str, default: None = None) -> None:
        """Forget a pod."""
        self._known.pop(uid, default)


@dataclass(slots=True)
class Refusal:
    """A submission that failed, or whose job lacks something."""

    message: str
    tries: int
    again_at: float


@dataclass(slots=True)
class Submission:
    """One that was sent and whose job is not listed yet as the user's."""

    user: str
    sent: float
    job_id: int | None = None
    """Of Slurm's answer."""


@dataclass(slots=True)
class Memory:
    """Times are monotonic seconds."""

    submitted: dict[GroupKey, Submission] = field(default_factory=dict)
    """The open submission of each group."""
    refusals: dict[GroupKey, Refusal] = field(default_factory=dict)
    sent: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The releases that were sent, by the pod's uid: the version of the pod, and the node."""
    labels: dict[str, tuple[int, float]] = field(default_factory=dict)
    """The labels that were sent, by the pod's uid: the job, and when."""
    released: dict[str, float] = field(default_factory=dict)
    """When a pod was released that has not been seen bound yet, by its uid."""
    unbound: dict[str, float] = field(default_factory=dict)
    """Since when a released pod has been seen without a node, by its uid."""
    tried: dict[str, float] = field(default_factory=dict)
    """Since when it has the scheduler's words about it."""
    scheduled_at: float = float("-inf")
    """When the scheduler was last seen to bind or to try any pod."""
    resumed: dict[str, float] = field(default_factory=dict)
    """Since when the scheduler has done so with others, although it should have tried this pod
    before, by the pod's uid.
    """
    starting: dict[str, float] = field(default_factory=dict)
    """Since when a bound pod has been seen that never ran, by its uid."""
    failing: dict[str, float] = field(default_factory=dict)
    """Since when the kubelet has been seen to fail to start it."""
    missing: dict[str, float] = field(default_factory=dict)
    """Since when a Kubernetes node has been missing that pods are bound to."""
    asked: dict[tuple[str, int], float] = field(default_factory=dict)
    """When a request of that kind was last sent about a job."""
    obstructed: dict[int, tuple[float, Obstacle]] = field(default_factory=dict)
    """Since when a job has run whose pods something keeps, and what it was last."""
    root: set[str] = field(default_factory=set)
    """Slurm users that turned out to have uid 0."""
    paused: dict[int, Refusal] = field(default_factory=dict)
    """The jobs that were started again, because Slurm had blocked them."""
    nodes: object = None
    """What decides whether a node fits a job, of all nodes."""
    _avoided: dict[str, dict[str, float]] = field(default_factory=dict)
    _start: int | None = None
    """When slurmctld started."""

    def refuse(self, key: GroupKey, message: str, now: float) -> None:
        """Record that a submission failed, or that its job lacks something. It is repeated after a
        while, each time later.
        """
        self.refusals[key] = _later(self.refusals.get(key), message, now)

    def pause(self, job_id: int, now: float) -> None:
        """Record that a job was started again. The next time is after a while, each time later."""
        self.paused[job_id] = _later(self.paused.get(job_id), "", now)

    def paused_jobs(self, jobs: Container[int], nodes: object, now: float) -> frozenset[int]:
        """Return the jobs that are not started again now: none when `nodes` differ from those of
        the last call.
        """
        changed, self.nodes = nodes != self.nodes, nodes
        self.paused = (
            {} if changed else {job_id: it for job_id, it in self.paused.items() if job_id in jobs}
        )
        return frozenset(job_id for job_id, it in self.paused.items() if now < it.again_at)

    def open_groups(self, now: float) -> frozenset[GroupKey]:
        """Return the groups of which nothing is submitted now."""
        waiting = {key for key, refusal in self.refusals.items() if now < refusal.again_at}
        return frozenset(self.submitted.keys() | waiting)

    def settle(self, jobs: Mapping[int, Job], listed_at: float, limit: float) -> None:
        """Forget submissions whose job is listed, or that a list begun `limit` seconds after them
        lacks.

        But those whose job is listed as one of another user. Anyone's job can have the comment: it
        settles none.
        """
        found = {
            (job.key, job.user)
            for job in jobs.values()
            if job.phase is Phase.SUBMITTED and not job.root
        }
        misnamed = self.misnamed(jobs)
        for key, it in list(self.submitted.items()):
            if (key, it.user) in found or (key not in misnamed and listed_at >= it.sent + limit):
                del self.submitted[key]

    def misnamed(self, jobs: Mapping[int, Job]) -> dict[GroupKey, tuple[Job, str]]:
        """Return the jobs of open submissions that Slurm shows as those of another user, each with
        the submission's user.
        """
        found: dict[GroupKey, tuple[Job, str]] = {}
        for key, it in self.submitted.items():
            job = jobs.get(it.job_id) if it.job_id is not None else None
            # Slurm may have lost its state, and given the id to another job since.
            if (
                job is not None
                and job.key == key
                and not job.is_of(it.user)
                and job.phase is not Phase.ENDED
            ):
                found[key] = job, it.user
        return found

    def find_root(self, jobs: Mapping[int, Job]) -> set[str]:
        """Find the users of open submissions whose job has uid 0, add them to `root`, and return
        those that are new.
        """
        new = {user for job, user in self.misnamed(jobs).values() if job.root} - self.root
        self.root |= new
        return new

    def started_at(self, start: int) -> None:
        """Take in when slurmctld started. One that has lost its state gives the ids of before to
        other jobs.
        """
        if start != self._start:
            self._start = start
            for it in self.submitted.values():
                it.job_id = None

    def may_ask(self, kind: str, job_id: int, now: float) -> bool:
        """Return whether a request of that kind about the job is due, which counts as sent then."""
        if now < self.asked.get((kind, job_id), float("-inf")) + REPEAT_AFTER:
            return False
        self.asked[kind, job_id] = now
        return True

    def avoid(self, owner: str, node: str, now: float) -> None:
        """Have these pods avoid the node for a while."""
        nodes = self._avoided.setdefault(owner, {})
        nodes.pop(node, None)
        nodes[node] = now + AVOID_SECONDS
        while len(nodes) > MOST_AVOIDED:
            del nodes[next(iter(nodes))]

    def avoided(self, now: float) -> dict[str, tuple[str, ...]]:
        """Return the nodes to avoid, by owner."""
        for owner, nodes in list(self._avoided.items()):
            for node in [node for node, until in nodes.items() if until <= now]:
                del nodes[node]
            if not nodes:
                del self._avoided[owner]
        return {owner: tuple(nodes) for owner, nodes in self._avoided.items()}

    def obstruct(self, found: Mapping[int, Obstacle], now: float) -> None:
        """Take in what keeps the pods of running jobs at this moment."""
        self.obstructed = {
            job: (self.obstructed.get(job, (now,))[0], it) for job, it in found.items()
        }

    def obstacles(self, now: float) -> dict[int, Obstacle]:
        """Return what has kept the pods of running jobs, and for how long."""
        return {
            job: it._replace(seconds=now - since) for job, (since, it) in self.obstructed.items()
        }

    def sent_to(self, uid: str, version: str | None) -> str:
        """Return the node of a release that was sent and may have effect, "" for none. `version` is
        that of a gated pod. A release is refused when the pod has changed since the version that it
        was sent for.
        """
        found, node = self.sent.get(uid, ("", ""))
        return node if version is None or version == found else ""

    def labelling(self, now: float) -> dict[str, int]:
        """Return the jobs of labels that the cache may not show yet, by the pod's uid."""
        return {uid: job for uid, (job, sent) in self.labels.items() if now - sent < LABEL_SECONDS}

    def unbound_seconds(self, uid: str, now: float, *, tried: bool) -> float:
        """Return for how long a released pod has had no node: since the scheduler has tried it, or
        else since its release.
        """
        since = self.unbound.setdefault(uid, now)
        return now - (self.tried.setdefault(uid, now) if tried else since)

    def bound(self, uid: str) -> None:
        """Forget since when a pod has had no node."""
        for times in (self.unbound, self.tried, self.resumed):
            times.pop(uid, None)

    def starting_seconds(self, uid: str, now: float, *, fails: bool) -> float:
        """Return for how long a bound pod has not run: since the kubelet has failed to start it,
        or else since it was seen bound.
        """
        since = self.starting.setdefault(uid, now)
        return now - (self.failing.setdefault(uid, now) if fails else since)

    def begun(self, uid: str) -> None:
        """Forget since when a pod has not run."""
        for times in (self.starting, self.failing):
            times.pop(uid, None)

    def scheduler_away(self, uid: str, now: float) -> bool:
        """Return whether the scheduler has done nothing since it should have tried this pod, or has
        begun again a moment ago.
        """
        due = self.unbound.get(uid, now) + OVERDUE_SECONDS
        if now < due:
            return False
        if self.scheduled_at < due:
            return True
        return now - self.resumed.setdefault(uid, now) < RESUME_SECONDS

    def lost(self, kube_node: str, now: float) -> bool:
        """Return whether a missing Kubernetes node has been missing for long enough."""
        return now - self.missing.setdefault(kube_node, now) >= LOST_AFTER

    def forget(self, pods: frozenset[str], keys: frozenset[GroupKey], now: float) -> None:
        """Forget what concerns other pods and groups than these, and requests that may be
        repeated.
        """
        self.sent = {uid: it for uid, it in self.sent.items() if uid in pods}
        self.labels = {
            uid: it
            for uid, it in self.labels.items()
            if uid in pods and now - it[1] < LABEL_SECONDS
        }
        self.released = {uid: at for uid, at in self.released.items() if uid in pods}
        for uid in self.unbound.keys() - pods:
            self.bound(uid)
        for uid in self.starting.keys() - pods:
            self.begun(uid)
        self.refusals = {key: it for key, it in self.refusals.items() if key in keys}
        self.asked = {key: at for key, at in self.asked.items() if now - at < REPEAT_AFTER}


def _later(former: Refusal | None, message: str, now: float) -> Refusal:
    tries = former.tries + 1 if former is not None else 0
    return Refusal(message, tries, now + min(LONGEST_RETRY, FIRST_RETRY * 2.0 ** min(tries, 10)))
