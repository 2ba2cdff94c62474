"""A small Slurm and a small Kubernetes around `decide`, with everything that can go wrong between its steps.

The scheduler of this Kubernetes binds a released pod whatever else is on the node: only the bridge prevents that two
pods use the same CPU. Every reader sees pods late, each by itself, as in a cache; Slurm's states are read after its
details, as the bridge does.
"""

import dataclasses
import random
from dataclasses import dataclass, field

from sidecars.contract.bridge import Comment
from sidecars.policy.bridge import decide
from sidecars.policy.bridge.records import (
    Action,
    Cancel,
    DeletePod,
    GroupKey,
    Job,
    Label,
    Phase,
    Pod,
    Release,
    Report,
    Start,
    Submit,
    View,
)
from sidecars.policy.bridge.shape import Shape

CPUS = 4
NAMESPACE, USER = "team", "ada"
TERMINATION = 3
"""Steps that a deleted pod still uses its node."""
FORGET = 6
"""Steps after which Slurm forgets an ended job."""


@dataclass
class SimJob:
    job_id: int
    key: GroupKey
    shape: Shape
    phase: Phase = Phase.SUBMITTED
    confirmed: bool = False
    slots: dict[str, int] = field(default_factory=dict)
    ended: int = 0
    excluded: tuple[str, ...] = ()


@dataclass
class SimPod:
    pod: Pod
    cpus: int
    unbindable: bool = False
    released: int = 0
    terminating: int = 0
    recreated: bool = False


@dataclass
class World:
    """Everything. `step` is the time."""

    rng: random.Random
    nodes: dict[str, int] = field(default_factory=lambda: {"a": CPUS, "b": CPUS, "c": CPUS})
    jobs: dict[int, SimJob] = field(default_factory=dict)
    forgotten: set[int] = field(default_factory=set)
    pods: dict[str, SimPod] = field(default_factory=dict)
    cache: dict[str, Pod] = field(default_factory=dict)
    late: list[tuple[int, Submit]] = field(default_factory=list)
    step: int = 0
    down: int = 0
    """Until then Slurm doesn't answer."""
    serial: int = 0
    submitting: dict[GroupKey, int] = field(default_factory=dict)
    avoided: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sent: dict[str, str] = field(default_factory=dict)
    """The nodes of releases that the bridge has sent, by pod."""

    # --- users

    def create(self, pods: int, cpus: int, *, owner: str = "", unbindable: bool = False) -> None:
        """A group of pods that wait."""
        self.serial += 1
        group = f"group/g{self.serial}" if pods > 1 else ""
        shape = Shape(user=USER, partition="p", pods=pods, cpus=cpus)
        for _ in range(pods):
            self._pod(group, shape, owner, unbindable=unbindable)

    def _pod(self, group: str, shape: Shape, owner: str, *, unbindable: bool = False) -> None:
        self.serial += 1
        uid = f"u{self.serial}"
        key = GroupKey(NAMESPACE, group or uid)
        pod = Pod(uid, NAMESPACE, uid, key, gated=True, owner=owner, shape=shape)
        self.pods[uid] = SimPod(pod, shape.cpus, unbindable)

    def change(self, uid: str, **values: object) -> None:
        found = self.pods.get(uid)
        if found is not None:
            found.pod = dataclasses.replace(found.pod, **values)  # type: ignore[arg-type]

    def delete(self, uid: str) -> None:
        """As kubectl delete: a gated or unbound pod goes at once, a bound one after its grace."""
        found = self.pods.get(uid)
        if found is None or found.pod.deleting:
            return
        if found.pod.bound:
            found.terminating = self.step + TERMINATION
            self.change(uid, deleting=True)
        else:
            self._gone(uid)

    def _gone(self, uid: str) -> None:
        found = self.pods.pop(uid)
        if found.pod.owner and not found.pod.finished and found.pod.shape is not None:
            group = found.pod.key.group if found.pod.key.group.startswith("group/") else ""
            self._pod(group, found.pod.shape, found.pod.owner)

    # --- Slurm

    def submit(self, action: Submit) -> None:
        job_id = max([*self.jobs, *self.forgotten, 0]) + 1
        self.jobs[job_id] = SimJob(job_id, action.key, action.shape, excluded=action.excluded)

    def end(self, job: SimJob) -> None:
        if job.phase is not Phase.ENDED:
            job.phase, job.ended = Phase.ENDED, self.step

    def used(self, node: str) -> int:
        """CPUs that Slurm has given away."""
        on = (Phase.RUNNING, Phase.STARTING, Phase.STOPPED)
        return sum(job.slots.get(node, 0) * job.shape.cpus for job in self.jobs.values() if job.phase in on)

    def schedule(self) -> None:
        for job in sorted(self.jobs.values(), key=lambda it: it.job_id):
            if job.phase is Phase.STARTING:
                job.phase = Phase.RUNNING
            if job.phase is not Phase.PENDING:
                continue
            slots, left = {}, job.shape.pods
            for node, cpus in self.nodes.items():
                if node in job.excluded and set(self.nodes) - set(job.excluded):
                    continue
                fit = min(left, (cpus - self.used(node)) // job.shape.cpus)
                if fit > 0:
                    slots[node] = fit
                    left -= fit
            if not left:
                job.slots, job.phase = slots, self.rng.choice((Phase.STARTING, Phase.RUNNING))
        for job in list(self.jobs.values()):
            if job.phase is Phase.ENDED and self.step - job.ended > FORGET:
                self.forgotten.add(job.job_id)
                del self.jobs[job.job_id]

    def lose_node(self, node: str) -> None:
        """The Kubernetes node and its record are gone: so are its pods."""
        self.nodes.pop(node, None)
        for job in self.jobs.values():
            if node in job.slots:
                self.end(job)
        for uid in [uid for uid, it in self.pods.items() if it.pod.bound and it.pod.node == node]:
            self._gone(uid)

    # --- Kubernetes

    def kubelets(self) -> None:
        for uid, it in list(self.pods.items()):
            pod = it.pod
            if not pod.gated and not pod.bound and pod.node in self.nodes and not it.unbindable:
                if self.rng.random() < 0.7:
                    self.change(uid, bound=True)
            elif pod.deleting and self.step >= it.terminating:
                self._gone(uid)

    def observe(self, *, all_of: bool = False) -> None:
        """The bridge's cache catches up with some of the pods, or with all."""
        for uid in {*self.pods, *self.cache}:
            if all_of or self.rng.random() < 0.6:
                if uid in self.pods:
                    self.cache[uid] = self.pods[uid].pod
                else:
                    self.cache.pop(uid, None)

    # --- the bridge

    def view(self) -> View:
        known = self.step >= self.down
        jobs = {}
        for it in self.jobs.values():
            comment = Comment(it.key.namespace, it.key.group, it.shape.digest)
            slots = tuple(it.slots.items())
            jobs[it.job_id] = Job(it.job_id, it.phase, USER, comment, slots, confirmed=it.confirmed, state="X")
        for key, since in list(self.submitting.items()):
            # A late submission arrives within two steps.
            if self.step > since + 2 or any(
                job.key == key and job.phase is Phase.SUBMITTED for job in self.jobs.values()
            ):
                del self.submitting[key]
        pods = []
        for uid, pod in self.cache.items():
            true = self.pods.get(uid)
            unbound = 0.0
            if not pod.gated and not pod.bound and true is not None:
                unbound = 10.0 * (self.step - true.released)
            if not pod.gated:
                self.sent.pop(uid, None)
            node = pod.node or self.sent.get(uid, "")
            pods.append(dataclasses.replace(pod, unbound_seconds=unbound, node=node))
        return View(
            pods=tuple(pods),
            jobs=jobs,
            known=known,
            users={NAMESPACE: USER},
            nodes=dict.fromkeys(self.nodes, ""),
            submitting=frozenset(self.submitting),
            avoided=dict(self.avoided),
        )

    def run_bridge(self, *, kill: bool = False) -> list[Action]:
        """One pass. A killed bridge applies some of its actions and forgets what it remembers."""
        actions = list(decide.decide(self.view()))
        most = self.rng.randrange(len(actions) + 1) if kill else len(actions)
        self.rng.shuffle(actions)
        for action in actions[:most]:
            self.apply(action)
        if kill:
            self.submitting.clear()
            self.avoided.clear()
            self.sent.clear()
            self.observe(all_of=True)
        return actions

    def apply(self, action: Action) -> None:
        match action:
            case Submit():
                self.submitting[action.key] = self.step
                fate = self.rng.random()
                if fate < 0.8:
                    self.submit(action)
                elif fate < 0.9:
                    self.late.append((self.step + self.rng.randrange(1, 3), action))
            case Label():
                found = self.pods.get(action.pod.uid)
                # The patch names the label's former value: a pod that has one by now is refused.
                if found is not None and found.pod.job is None:
                    self.change(action.pod.uid, job=action.job)
            case Start():
                job = self.jobs.get(action.job.job_id)
                if job is not None and job.phase is Phase.SUBMITTED:
                    job.phase, job.confirmed = Phase.PENDING, True
            case Release():
                self.sent[action.pod.uid] = action.node
                found = self.pods.get(action.pod.uid)
                if found is not None and found.pod.gated and not found.pod.deleting:
                    self.change(action.pod.uid, gated=False, node=action.node)
                    found.released = self.step
            case Report():
                self.change(action.pod.uid, reported=(action.why.value, action.message))
            case Cancel():
                if action.avoid is not None:
                    owner, node = action.avoid
                    self.avoided[owner] = (*self.avoided.get(owner, ()), node)[-2:]
                job = self.jobs.get(action.job)
                if job is not None:
                    self.end(job)
            case DeletePod():
                found = self.pods.get(action.pod.uid)
                job_id = found.pod.job if found is not None else None
                job = self.jobs.get(job_id) if job_id is not None else None
                if found is not None and job is not None and job.phase is not Phase.ENDED:
                    raise AssertionError(f"{action} while job {job} runs")
                self.delete(action.pod.uid)

    # --- time

    def advance(self) -> None:
        self.step += 1
        for due, action in [it for it in self.late if it[0] <= self.step]:
            self.late.remove((due, action))
            self.submit(action)
        self.schedule()
        self.kubelets()

    def check(self) -> None:
        """No CPU has two owners, and no group two jobs that may run."""
        for node in self.nodes:
            using = [it for it in self.pods.values() if it.pod.bound and it.pod.node == node and not it.pod.finished]
            assert sum(it.cpus for it in using) <= CPUS, f"step {self.step}: {node} has {[it.pod for it in using]}"
        seen: dict[GroupKey, int] = {}
        for job in self.jobs.values():
            if job.phase not in (Phase.SUBMITTED, Phase.ENDED):
                other = seen.setdefault(job.key, job.job_id)
                assert other == job.job_id, f"step {self.step}: jobs {other} and {job.job_id} of {job.key}"
