"""A small Slurm and a small Kubernetes around `decide`, with everything that can go wrong between
its steps.

The scheduler of this Kubernetes binds a released pod whatever else is on the node: only the bridge
prevents that two pods use the same CPU, MiB or device. Every reader sees pods late, each alone,
as in a cache. The bridge reads the jobs with its `JobBook` while Slurm continues.
"""

import dataclasses
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from sidecars.bridge.core import decide
from sidecars.bridge.core.devices import Device
from sidecars.bridge.core.jobs import JobBook
from sidecars.bridge.core.placeholder import comment_for
from sidecars.bridge.core.records import (
    Action,
    Cancel,
    Deallocate,
    DeletePod,
    Grant,
    GroupKey,
    Label,
    Obstacle,
    Phase,
    Pod,
    Release,
    Report,
    Requeue,
    Start,
    Submit,
    View,
    avoid_key,
)
from sidecars.bridge.core.shape import Shape, gpus_of
from sidecars.contract import bridge
from sidecars.contract.bridge import Comment
from sidecars.slurm.external import Allocation, ExternalJob, Gres
from tests.support.owners import Claim, Component, leaked, overbooked, rivals
from tests.unit.bridge.core.model_claims import GPUS, GRES, SimClaims, gpu

CPUS = 4
MEMORY = 8
"""MiB of each node."""
NAMESPACE, USER = "team", "ada"
TERMINATION = 3
"""Steps that a deleted pod still uses its node."""
FORGET = 6
"""Steps after which Slurm forgets an ended job."""
SECONDS = 10.0
"""Of a step, for the bridge."""
STATES = {
    Phase.SUBMITTED: ("PENDING",),
    Phase.PENDING: ("PENDING",),
    Phase.STARTING: ("RUNNING", "CONFIGURING"),
    Phase.RUNNING: ("RUNNING",),
    Phase.STOPPED: ("SUSPENDED",),
}
"""In Slurm."""
CANCELLED = "CANCELLED"
ENDS = (CANCELLED, "TIMEOUT", "PREEMPTED", "NODE_FAIL")
"""How jobs end."""


@dataclass
class Room:
    """What Slurm can give away of a node."""

    cpus: int
    memory: int
    indices: list[int]
    """Of its GPUs."""

    def fits(self, shape: Shape, most: int) -> int:
        """How many pods of the job, at most."""
        gpus = gpus_of(shape.gres)
        if shape.exclusive and (self.cpus, self.memory, len(self.indices)) != (CPUS, MEMORY, GPUS):
            return 0
        by_memory = self.memory // shape.memory if shape.memory else most
        return min(
            most, self.cpus // shape.cpus, by_memory, len(self.indices) // gpus if gpus else most
        )


@dataclass
class SimJob:
    """A job, or a component of a heterogeneous one."""

    job_id: int
    key: GroupKey
    shape: Shape
    pods: int
    comment: Comment
    lead: int
    """The first component."""
    phase: Phase = Phase.SUBMITTED
    confirmed: bool = False
    slots: dict[str, int] = field(default_factory=dict)
    indices: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Of its GPUs, by node."""
    rolled_back: bool = False
    """Whether Slurm has forgotten a start of it: it may give it other devices, and its pods keep
    theirs.
    """
    ended: int = 0
    state: str = CANCELLED
    """Once it has ended."""
    by_bridge: bool = False
    """Whether the bridge has cancelled it while it ran."""
    excluded: tuple[str, ...] = ()
    later: int = 0
    """Until then other jobs start before it."""

    def cpus(self, node: str) -> int:
        """What Slurm has given to it there."""
        return (
            CPUS
            if self.shape.exclusive and node in self.slots
            else self.slots.get(node, 0) * self.shape.cpus
        )

    def memory(self, node: str) -> int:
        """As `cpus`, in MiB."""
        return (
            MEMORY
            if self.shape.exclusive and node in self.slots
            else self.slots.get(node, 0) * self.shape.memory
        )

    def allocation(self, node: str) -> Allocation:
        """As Slurm's record has it."""
        indices = self.indices.get(node, ())
        gres = (Gres(GRES, len(indices), frozenset(indices)),) if indices else ()
        return Allocation(node, self.cpus(node), self.memory(node), len(indices), gres)


@dataclass
class SimPod:
    pod: Pod
    cpus: int
    memory: int = 0
    """MiB."""
    gpus: int = 0
    """By a claim."""
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
    book: JobBook = field(init=False)
    step: int = 0
    down: int = 0
    """Until then Slurm doesn't answer."""
    killed: int = 0
    """How often slurmctld was killed."""
    serial: int = 0
    submitting: dict[GroupKey, int] = field(default_factory=dict)
    avoided: dict[str, tuple[str, ...]] = field(default_factory=dict)
    obstructed: dict[int, tuple[int, Obstacle]] = field(default_factory=dict)
    """Since when something keeps the pods of a running job, as the bridge remembers it."""
    requeued: int = 0
    """How often a pod was queued again."""
    sent: dict[str, str] = field(default_factory=dict)
    """The nodes of releases that the bridge has sent, by pod."""
    labelling: dict[str, int] = field(default_factory=dict)
    """The jobs of labels that the bridge has sent, by pod."""
    seen: set[tuple[Phase, ...]] = field(default_factory=set)
    """The phases that components of one job had at the same time."""

    def __post_init__(self) -> None:
        self.claims = SimClaims(self.rng)
        self.begin()

    # --- users

    def create(
        self,
        *cpus: int,
        memory: int = 1,
        owner: str = "",
        unbindable: bool = False,
        gpus: int = 0,
        exclusive: bool = False,
    ) -> None:
        """A group of pods that wait: what each requests, and GPUs by a claim."""
        self.serial += 1
        group = f"group/g{self.serial}" if len(cpus) > 1 else ""
        gres = f"gres/{GRES}:{gpus}" if gpus else ""
        for each in cpus:
            shape = Shape(
                user=USER, partition="p", cpus=each, memory=memory, gres=gres, exclusive=exclusive
            )
            self._pod(group, shape, owner, len(cpus), unbindable=unbindable)

    def _pod(
        self, group: str, shape: Shape, owner: str, size: int, *, unbindable: bool = False
    ) -> None:
        self.serial += 1
        uid = f"u{self.serial}"
        key = GroupKey(NAMESPACE, group or uid)
        pod = Pod(uid, NAMESPACE, uid, key, gated=True, owner=owner, shape=shape, size=size)
        gpus = self.claimed(shape)
        self.pods[uid] = SimPod(pod, shape.cpus, shape.memory, gpus, unbindable)
        if gpus:
            self.claims.create(uid, gpus)

    def claimed(self, shape: Shape) -> int:
        """How many GPUs the claims of such a pod request."""
        return gpus_of(shape.gres)

    def change(self, uid: str, **values: object) -> None:
        found = self.pods.get(uid)
        if found is not None:
            found.pod = dataclasses.replace(found.pod, **values)  # type: ignore[arg-type]

    def delete(self, uid: str) -> None:
        """As kubectl delete: a gated or unbound pod is deleted at once, a bound one after its
        grace.
        """
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
        self.claims.end(uid, self.step)
        if found.pod.owner and not found.pod.finished and found.pod.shape is not None:
            group = found.pod.key.group if found.pod.key.group.startswith("group/") else ""
            self._pod(group, found.pod.shape, found.pod.owner, found.pod.size)

    # --- Slurm

    def submit(self, action: Submit) -> None:
        lead = max([*self.jobs, *self.forgotten, 0]) + 1
        comment = comment_for(action)
        for job_id, part in enumerate(action.parts, lead):
            self.jobs[job_id] = SimJob(
                job_id, action.key, *part, comment, lead, excluded=action.excluded
            )

    def components(self, job: SimJob) -> list[SimJob]:
        """All of the job."""
        return [it for it in self.jobs.values() if it.lead == job.lead]

    def end(self, job: SimJob, state: str = CANCELLED) -> None:
        """The end of the first component ends the others."""
        for it in self.components(job) if job.lead == job.job_id else [job]:
            if it.phase is not Phase.ENDED:
                it.phase, it.ended = Phase.ENDED, self.step
                it.state = state if it is job else CANCELLED

    def used(self, node: str) -> int:
        """CPUs that Slurm has given away."""
        on = (Phase.RUNNING, Phase.STARTING)
        return sum(job.cpus(node) for job in self.jobs.values() if job.phase in on)

    def used_memory(self, node: str) -> int:
        """MiB that Slurm has given away. A suspended job keeps them."""
        on = (Phase.RUNNING, Phase.STARTING, Phase.STOPPED)
        return sum(job.memory(node) for job in self.jobs.values() if job.phase in on)

    def free_gpus(self, node: str) -> list[int]:
        """A suspended job keeps them."""
        on = (Phase.RUNNING, Phase.STARTING, Phase.STOPPED)
        given = {
            index
            for job in self.jobs.values()
            if job.phase in on
            for index in job.indices.get(node, ())
        }
        return [index for index in range(GPUS) if index not in given]

    def resume(self, job: SimJob) -> None:
        """Have a suspended job run again, even if another one has got its cores, as Slurm does."""
        job.phase = Phase.RUNNING

    def roll_back(self, job: SimJob) -> None:
        """slurmctld was killed before it saved its state: a job that runs has not started, or is
        forgotten.
        """
        self.killed += 1
        its = self.components(job)
        forgets = self.rng.random() < 0.3
        for it in its:
            if forgets:
                self.forgotten.add(it.job_id)
                del self.jobs[it.job_id]
            else:
                it.phase, it.slots, it.later = Phase.PENDING, {}, self.step + self.rng.randrange(6)
                it.indices, it.rolled_back = {}, True
        if self.rng.random() < 0.5:
            # Others start, and the job itself elsewhere, before the bridge looks again.
            self.schedule()
            for it in its:
                it.later = 0
            self.schedule()

    def schedule(self) -> None:
        for job in sorted(self.jobs.values(), key=lambda it: it.job_id):
            if job.phase is Phase.STARTING:
                job.phase = Phase.RUNNING
            if job.phase is Phase.PENDING and job.lead == job.job_id and self.step >= job.later:
                self._place([it for it in self.components(job) if it.phase is not Phase.ENDED])
        for job in list(self.jobs.values()):
            if all(
                it.phase is Phase.ENDED and self.step - it.ended > FORGET
                for it in self.components(job)
            ):
                self.forgotten.add(job.job_id)
                del self.jobs[job.job_id]

    def go_on_meanwhile(self) -> None:
        """Slurm may start jobs before the bridge looks again."""
        if self.rng.random() < 0.3:
            self.schedule()

    def _place(self, components: list[SimJob]) -> None:
        """All of them start, or none does."""
        if any(it.phase is not Phase.PENDING for it in components):
            return
        rooms = {
            node: Room(
                cpus - self.used(node), MEMORY - self.used_memory(node), self.free_gpus(node)
            )
            for node, cpus in self.nodes.items()
        }
        found: list[tuple[dict[str, int], dict[str, tuple[int, ...]]]] = []
        for job in components:
            slots: dict[str, int] = {}
            indices: dict[str, tuple[int, ...]] = {}
            left = job.pods
            for node, room in self.rng.sample(list(rooms.items()), len(rooms)):
                if node in job.excluded and set(self.nodes) - set(job.excluded):
                    continue
                fit = room.fits(job.shape, left)
                if fit > 0:
                    slots[node] = fit
                    left -= fit
                    its = (
                        len(room.indices) if job.shape.exclusive else fit * gpus_of(job.shape.gres)
                    )
                    indices[node] = tuple(sorted(self.rng.sample(room.indices, its)))
                    room.cpus -= room.cpus if job.shape.exclusive else fit * job.shape.cpus
                    room.memory -= room.memory if job.shape.exclusive else fit * job.shape.memory
                    room.indices = [index for index in room.indices if index not in indices[node]]
            if left:
                return
            found.append((slots, indices))
        for job, given in zip(components, found, strict=True):
            (job.slots, job.indices), job.phase = (
                given,
                self.rng.choice((Phase.STARTING, Phase.RUNNING)),
            )

    def lose_node(self, node: str) -> None:
        """The Kubernetes node is gone, and so are its pods. Slurm keeps its record, and the jobs
        there run on.
        """
        self.nodes.pop(node, None)
        for uid in [uid for uid, it in self.pods.items() if it.pod.bound and it.pod.node == node]:
            self._gone(uid)

    # --- Kubernetes

    def kubelets(self) -> None:
        for uid, it in list(self.pods.items()):
            pod = it.pod
            if not pod.gated and not pod.bound and pod.node in self.nodes and not it.unbindable:
                # kube-scheduler would allocate a claim without devices itself, and any policy
                # refuses that.
                if self.rng.random() < 0.7 and (not it.gpus or self.claims.has(uid)):
                    self.change(uid, bound=True)
            elif pod.finished:
                self.claims.end(uid, self.step)
            elif pod.deleting and self.step >= it.terminating:
                self._gone(uid)

    def observe(self, *, all_of: bool = False) -> None:
        """The bridge's cache catches up with some of the pods, or with all."""
        self.claims.observe(all_of=all_of)
        for uid in sorted({*self.pods, *self.cache}):
            if all_of or self.rng.random() < 0.2:
                if uid in self.pods:
                    self.cache[uid] = self.pods[uid].pod
                else:
                    self.cache.pop(uid, None)

    # --- the bridge

    def states(self, job: SimJob) -> frozenset[str]:
        """In Slurm's list."""
        return frozenset((job.state,) if job.phase is Phase.ENDED else STATES[job.phase])

    def record(self, job: SimJob) -> ExternalJob:
        """Its details in Slurm."""
        comment, shape = job.comment, job.shape
        text = bridge.encode(comment)
        if comment.by_user:
            text = (
                f"{bridge.BY_USER}{comment.namespace}/"
                f"{comment.group.removeprefix(bridge.group_id(''))}"
            )
        return ExternalJob(
            job.job_id,
            self.states(job),
            external=True,
            user_name=USER,
            user_id=1000,
            comment=text,
            admin_comment=text if job.confirmed else "",
            blocked=job.phase is Phase.SUBMITTED,
            cpus_per_task=shape.cpus,
            het_id=job.lead if comment.parts else 0,
            het_offset=job.job_id - job.lead,
            allocations=tuple(map(job.allocation, job.slots)),
            partition=shape.partition,
            tasks=job.pods,
            memory_per_task=shape.memory,
            gres_per_task=shape.gres,
            whole=shape.exclusive,
        )

    def begin(self) -> None:
        """As a bridge that has just started: it asks first when slurmctld has."""
        self.book = JobBook()
        self.book.started_at(self.killed)

    def read(self) -> None:
        """Read the jobs as `Passes` does. Slurm may go on meanwhile."""
        if self.step < self.down:
            self.book.fail()
            return
        self._list()
        self.go_on_meanwhile()
        due = {*self.book.to_read(), *self.book.next_waiting(len(self.jobs), len(self.jobs))}
        for job_id in sorted(due):
            job = self.jobs.get(job_id)
            self.book.details(job_id, None if job is None else self.record(job))
        self.go_on_meanwhile()
        self._list(again=True)
        self.book.started_at(self.killed)

    def _list(self, *, again: bool = False) -> None:
        listed = {job.job_id: self.states(job) for job in self.jobs.values()}
        self.book.states(listed, SECONDS * self.step, again=again)

    def view(self) -> View:
        shapes: defaultdict[int, set[tuple[GroupKey, Shape]]] = defaultdict(set)
        for pod in self.cache.values():
            if pod.job is not None and pod.shape is not None:
                shapes[pod.job].add((pod.key, pod.shape))
        names = {node: node for node in self.nodes}
        devices = {
            node: tuple((GRES, gpu(node, index)) for index in range(GPUS)) for node in self.nodes
        }
        jobs = self.book.jobs(shapes, names, names, devices)
        self.seen |= {tuple(it.phase for it in self.components(job)) for job in self.jobs.values()}
        for key, since in list(self.submitting.items()):
            # A late submission arrives within two steps.
            if self.step > since + 2 or any(
                job.key == key and job.phase is Phase.SUBMITTED for job in jobs.values()
            ):
                del self.submitting[key]
        pods = []
        for uid, pod in self.cache.items():
            true = self.pods.get(uid)
            unbound = 0.0
            if not pod.gated and not pod.bound and true is not None:
                unbound = SECONDS * (self.step - true.released)
            if not pod.gated:
                self.sent.pop(uid, None)
            if pod.job is not None:
                self.labelling.pop(uid, None)
            node = pod.node or self.sent.get(uid, "")
            reason = "taint" if true is not None and true.unbindable else ""
            claims = self.claims.of(uid)
            seen = pod
            known = (pod.unbound_seconds, pod.unbound_reason, pod.node, pod.claims)
            if known != (unbound, reason, node, claims):  # few change between two views
                seen = dataclasses.replace(
                    pod, unbound_seconds=unbound, unbound_reason=reason, node=node, claims=claims
                )
            pods.append(
                seen if claims is not None else dataclasses.replace(seen, shape=None, size=0)
            )
        return View(
            pods=tuple(pods),
            jobs=jobs,
            known=self.book.known,
            users={NAMESPACE: USER},
            nodes=dict.fromkeys(self.nodes, ""),
            submitting=frozenset(self.submitting),
            labelling=dict(self.labelling),
            avoided=dict(self.avoided),
            obstacles={
                job: it._replace(seconds=SECONDS * (self.step - since))
                for job, (since, it) in self.obstructed.items()
            },
            cpus=dict(self.nodes),
            holders=self.claims.holders(),
        )

    def run_bridge(self, *, kill: bool = False) -> Sequence[object]:
        """One pass. A killed bridge applies some of its actions and forgets what it remembers."""
        self.read()
        actions = self.act(kill=kill)
        if kill:
            self.begin()
            self.submitting.clear()
            self.avoided.clear()
            self.obstructed.clear()
            self.sent.clear()
            self.labelling.clear()
            self.claims.sent.clear()
            self.claims.returned.clear()
            self.observe(all_of=True)
        return actions

    def act(self, *, kill: bool) -> Sequence[object]:
        """Apply what is decided, in any order; of a bridge that is killed, a part of it."""
        decision = decide.decided(self.view())
        self.obstructed = {
            job: (self.obstructed.get(job, (self.step,))[0], it)
            for job, it in decision.obstacles.items()
        }
        actions = list(decision.actions)
        most = self.rng.randrange(len(actions) + 1) if kill else len(actions)
        self.rng.shuffle(actions)
        for action in actions[:most]:
            self.apply(action)
        return actions

    def apply(self, action: Action) -> None:
        match action:
            case Submit():
                self._submit(action)
            case Label():
                self._label(action)
            case Start():
                self._start(action)
            case Grant():
                self.claims.grant(action)
            case Deallocate():
                self.claims.deallocate(action)
            case Release():
                self._release(action)
            case Report():
                self.change(action.pod.uid, reported=(action.why.value, action.message))
            case Cancel():
                self._cancel(action)
            case Requeue():
                self._requeue(action)
            case DeletePod():
                self._delete(action)

    def _submit(self, action: Submit) -> None:
        self.submitting[action.key] = self.step
        fate = self.rng.random()
        if fate < 0.8:
            self.submit(action)
        elif fate < 0.9:
            self.late.append((self.step + self.rng.randrange(1, 3), action))

    def _label(self, action: Label) -> None:
        self.labelling[action.pod.uid] = action.job
        found = self.pods.get(action.pod.uid)
        # The patch names the label's former value: a pod that has one by now is refused.
        if found is not None and found.pod.job is None:
            self.change(action.pod.uid, job=action.job)

    def _start(self, action: Start) -> None:
        # Each component is started alone, and the bridge may be killed between two of them.
        for job_id in action.job.ids[:: -1 if self.rng.random() < 0.8 else 1]:
            if self.rng.random() < 0.1:
                break
            job = self.jobs.get(job_id)
            if job is not None and job.phase is Phase.SUBMITTED:
                job.phase, job.confirmed = Phase.PENDING, True
                self.book.stale(job_id)
                if self.rng.random() < 0.9:
                    self.book.started(job_id, bridge.encode(action.job.comment))

    def _release(self, action: Release) -> None:
        self.sent[action.pod.uid] = action.node
        found = self.pods.get(action.pod.uid)
        job = self.jobs.get(action.job)
        if job is not None and not all(it.slots for it in self.components(job)):
            raise AssertionError(f"{action} while a component of {job} has no node")
        if found is not None and found.pod.gated and not found.pod.deleting:
            if found.gpus and not self.claims.has(action.pod.uid):
                raise AssertionError(f"{action} without its devices")
            self.change(action.pod.uid, gated=False, node=action.node)
            found.released = self.step

    def _cancel(self, action: Cancel) -> None:
        if action.avoid is not None:
            owner, node = action.avoid
            self.avoided[owner] = (*self.avoided.get(owner, ()), node)[-2:]
        for job_id in (action.job, *action.rest):
            job = self.jobs.get(job_id)
            if job is not None and action.note is not None:
                job.comment = action.note
                self.book.stale(job_id)
            if job is not None and self.rng.random() < 0.2:
                job.by_bridge = job.by_bridge or job.phase is Phase.RUNNING
                self.end(job)

    def _requeue(self, action: Requeue) -> None:
        found = self.pods.get(action.pod.uid)
        # The patch names the pod's version.
        if found is not None and found.pod.gated and found.pod.job == action.job:
            self.change(action.pod.uid, job=None)
            self.sent.pop(action.pod.uid, None)
            self.requeued += 1
            if action.node:
                key = avoid_key(action.pod)
                self.avoided[key] = (*self.avoided.get(key, ()), action.node)[-2:]

    def _delete(self, action: DeletePod) -> None:
        found = self.pods.get(action.pod.uid)
        job = self.jobs.get(found.pod.job or 0) if found is not None else None
        if found is not None and job is not None and not self.may_delete(job):
            raise AssertionError(f"{action} while job {job} runs")
        if found is not None and job is not None and found.pod.gated:
            self._check_deletion(action, job)
        if found is not None and job is not None:
            self._check_disruption(action, job)
        self.delete(action.pod.uid)

    def _check_deletion(self, action: DeletePod, job: SimJob) -> None:
        """A pod that never ran is deleted only if someone has cancelled its job."""
        ended = [it for it in self.components(job) if it.phase is Phase.ENDED]
        by_someone = any(it.state == CANCELLED and not it.by_bridge for it in ended)
        if not job.comment.by_user and not (
            by_someone and all(it.state == CANCELLED for it in ended)
        ):
            raise AssertionError(
                f"{action.pod.uid} never ran and is deleted: {action.message}, {ended}"
            )

    def _check_disruption(self, action: DeletePod, job: SimJob) -> None:
        """The end of a pod is its own failure only if its owner or its time limit caused it."""
        ended = [it for it in self.components(job) if it.phase is Phase.ENDED]
        # Without an end, it is a guard that was queued again.
        innocent = not ended or any(
            it.state in ("PREEMPTED", "NODE_FAIL") or it.comment.given_up for it in ended
        )
        if innocent != (action.disruption is not None):
            raise AssertionError(f"{action} with {action.disruption}, {ended}")

    def may_delete(self, job: SimJob) -> bool:
        """Whether the pods of the job may be deleted: a component has ended."""
        return any(it.phase is Phase.ENDED for it in self.components(job))

    # --- time

    def advance(self) -> None:
        self.step += 1
        for due, action in [it for it in self.late if it[0] <= self.step]:
            self.late.remove((due, action))
            self.submit(action)
        self.schedule()
        self.claims.advance(self.step)
        self.kubelets()

    def go_on(self, *, kill: float = 0.0, all_of: bool = False) -> None:
        """One step, checked twice. `kill`: how probably the bridge is killed in it; `all_of`: as in
        `observe`.
        """
        self.observe(all_of=all_of)
        self.run_bridge(kill=kill > 0 and self.rng.random() < kill)
        self.check()
        self.advance()
        self.check()

    def check(self) -> None:
        """No CPU, MiB or device has two owners, each device is the job's, and no group has two jobs
        that may run.
        """
        using = [(uid, it) for uid, it in self.pods.items() if it.pod.bound and not it.pod.finished]
        claims = [Claim(uid, it.pod.node, {"cpus": it.cpus, "MiB": it.memory}) for uid, it in using]
        started = [
            (job.key, job.lead)
            for job in self.jobs.values()
            if job.phase not in (Phase.SUBMITTED, Phase.ENDED)
        ]
        capacity = {node: {"cpus": CPUS, "MiB": MEMORY} for node in self.nodes}
        wrong = overbooked(capacity, claims) + rivals(started)
        assert not wrong, f"step {self.step}: {wrong}"
        owners: dict[Device, str] = {}
        for _, it in using:
            self._check_devices(it, it.pod.node, owners)

    def _check_devices(self, it: SimPod, node: str, owners: dict[Device, str]) -> None:
        """Of a pod that runs: `owners` are the pods that are known to have a device."""
        if not it.gpus:
            return
        has = self.claims.has(it.pod.uid)
        assert has is not None, f"step {self.step}: {it.pod} runs without devices"
        assert len(has) == it.gpus, f"step {self.step}: {it.pod} has {has}"
        for device in has:
            other = owners.setdefault(device, it.pod.uid)
            assert other == it.pod.uid, (
                f"step {self.step}: {device} has two owners, {other} and {it.pod.uid}"
            )
        job = self.jobs.get(it.pod.job or 0)
        if job is not None and job.phase is not Phase.ENDED and not job.rolled_back:
            given = {gpu(node, index) for index in job.indices.get(node, ())}
            assert set(has) <= given, f"step {self.step}: {it.pod} has {has}, and its job {given}"

    def leaks(self) -> list[str]:
        """What is left when all is settled; see `leaked`."""
        jobs = [
            Component(it.job_id, it.lead, it.phase is not Phase.ENDED) for it in self.jobs.values()
        ]
        pods = {
            uid: (it.pod.job, it.pod.bound and it.pod.job not in self.forgotten)
            for uid, it in self.pods.items()
            if not it.pod.finished
        }
        return leaked(jobs, pods)
