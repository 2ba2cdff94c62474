"""One pass of the bridge: read what has changed, decide, apply."""

import asyncio
import dataclasses
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from sidecars.bridge import metrics
from sidecars.bridge.claimed_devices import Devices
from sidecars.bridge.effects import BY_JOB, Effects
from sidecars.bridge.guarded_nodes import Guards
from sidecars.bridge.memory import PerPod
from sidecars.bridge.node_records import NodeRecords
from sidecars.bridge.owners import Owners
from sidecars.bridge.parts import Books, Clock, Kubernetes
from sidecars.bridge.rights import Rights
from sidecars.bridge.slurm import SUBMIT_SECONDS, Slurm
from sidecars.kube import Event
from sidecars.policy.bridge import causes, groups, pods, shape, tenants
from sidecars.policy.bridge.claims import PodClaims
from sidecars.policy.bridge.decide import decided
from sidecars.policy.bridge.feasible import Needs, unfit
from sidecars.policy.bridge.manifests import Node, Pod
from sidecars.policy.bridge.pods import Shaped
from sidecars.policy.bridge.records import GroupKey, Job, Phase, View
from sidecars.policy.bridge.records import Pod as SeenPod
from sidecars.policy.bridge.shape import Shape
from sidecars.slurm import protocol, versions
from sidecars.slurm.errors import NotFound, SlurmError
from sidecars.slurm.versions import Release

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two looks at Slurm's jobs."""
LEAST_PAUSE = 0.1
"""Seconds between two passes, however much changes."""
CALM_SECONDS = 60.0
"""Seconds after which everything is looked at while a pod waits, even if nothing has changed."""
REST_SECONDS = 300.0
"""The same while no pod waits. Whether slurmctld has started again is asked each CALM_SECONDS all
the same.
"""
OTHERS_SECONDS = 5.0
"""Seconds after which everything is looked at when other pods have changed what they request of
nodes.
"""
_READS = 5
"""How many waiting jobs are read again each second for Slurm's reason."""
_Viewed = tuple[Pod, Shaped, PodClaims, str, bool, SeenPod]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a pass works with."""

    kube: Kubernetes
    slurm: Slurm
    effects: Effects
    node_records: NodeRecords
    guards: Guards
    owners: Owners
    rights: Rights
    devices: Devices
    books: Books
    release: Callable[[], Release | None]
    """The release that slurmrestd reports; None while that is unknown."""


class Passes:
    """`run` until cancelled."""

    def __init__(self, parts: Parts, clock: Clock, partition: str, cluster: str = "") -> None:
        self._slurm = parts.slurm
        self._effects = parts.effects
        self._release = parts.release
        self._node_records = parts.node_records
        self._guards = parts.guards
        self._owners = parts.owners
        self._rights = parts.rights
        self._pods = parts.kube.pods
        self._nodes = parts.kube.nodes
        self._config = parts.kube.config
        self._usage = parts.books.usage
        self._memory = parts.books.memory
        self._book = parts.books.jobs
        self._devices = parts.devices
        self._partition = partition
        self._cluster = cluster
        self._now = clock.now
        self._wall = clock.wall
        self._woken = asyncio.Event()
        self._dirty = True
        self._looked_at = float("-inf")
        self._confirmed_at = float("-inf")
        self._busy = False
        self._waits = True
        self._others = False
        self._concerned: dict[str, Pod] = {}
        self._source = PerPod(groups.object_of)
        self._own_shape = PerPod(partial(shape.own, extended=parts.devices.rules.extended))
        self._shapes: dict[str, tuple[object, Shaped]] = {}
        self._views: dict[str, _Viewed] = {}
        """The pods as `decide` looks at them, each after what it depends on."""
        self._fits: dict[Needs, dict[str, str]] = {}
        """See `_unfit`: what is known of the nodes as they are, `_fit_of`."""
        self._fit_of: frozenset[str] = frozenset()
        self._tenants: dict[str, tenants.Tenant] = {}
        self._problems: dict[str, str] = {}
        self._begun: set[int] = set()
        """The jobs that were read, and may have begun to run, since the jobs beside them were read.
        """
        self._listed_at = clock.now()
        self._answered_at: float | None = None
        self._jobs: Mapping[int, Job] = {}
        self._read_again_at = float("-inf")
        self._fault = ""
        self.unsupported = ""
        """Why Slurm can't be used, with the remedy; "" if it can. Nothing is decided then."""
        self.last_pass = clock.now()
        """When the last pass ended."""
        self._pods.add_index(
            BY_JOB, lambda pod: () if (job := pods.job_id_of(pod)) is None else (job,)
        )
        self._pods.subscribe(self._pod_changed)
        self._nodes.subscribe(self._node_changed)
        self._config.subscribe(lambda _: self._tenants_changed())
        self._devices.subscribe(self.wake)

    def wake(self) -> None:
        """Begin a pass soon."""
        self._dirty = True
        self._woken.set()

    async def run(self) -> None:
        """Run one pass after the other."""
        # So that the details of the first one need not be read twice.
        await self._confirm()
        while True:
            await self.one()
            await asyncio.sleep(LEAST_PAUSE)
            try:
                async with asyncio.timeout(INTERVAL - LEAST_PAUSE):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()

    async def one(self) -> None:
        """Run one pass. A fault of Slurm is logged, and nothing is decided then."""
        begun = self._now()
        if self._is_unsupported():
            self.last_pass = self._now()
            return
        changed = await self._read_jobs()
        calm = OTHERS_SECONDS if self._others else CALM_SECONDS if self._waits else REST_SECONDS
        due = self._dirty or self._busy or self._node_records.due()
        if changed or due or self._now() - self._looked_at >= calm:
            self._dirty, self._others, self._looked_at = False, False, self._now()
            await self._confirm()
            await self._decide()
        elif self._now() - self._confirmed_at >= CALM_SECONDS:
            await self._confirm()
        self.last_pass = self._now()
        metrics.SECONDS.observe(self.last_pass - begun)

    def _is_unsupported(self) -> bool:
        problem = versions.too_old(self._release(), versions.BRIDGE, "the Slurm Bridge")
        if problem and problem != self.unsupported:
            log.error("%s. No pod gets a job", problem)
        elif self.unsupported and not problem:
            log.info("Slurm has been updated: pods get jobs")
            self.wake()
        self.unsupported = problem
        return bool(problem)

    # --- counting, for metrics

    def waiting(self) -> Counter[tuple[str, str]]:
        """Return the pods that wait, by the reason of their condition and the class of Slurm's
        reason.
        """
        return causes.waiting(self._concerned.values(), self._jobs.values())

    def phases(self) -> Counter[str]:
        """Return the jobs by phase, but those that have ended."""
        found = Counter({phase.value: 0 for phase in Phase if phase is not Phase.ENDED})
        found.update(job.phase.value for job in self._jobs.values() if job.phase is not Phase.ENDED)
        return found

    def node_states(self) -> Counter[str]:
        """Return the Kubernetes nodes for Slurm by the state of their record."""
        return self._node_records.states()

    def answer_age(self) -> float | None:
        """Return the seconds since Slurm's last good answer about its jobs."""
        return None if self._answered_at is None else self._now() - self._answered_at

    # --- reading

    async def _read_jobs(self) -> bool:
        """Read the states, then the details of what has changed and of what is beside it, and then
        the states again.
        """
        try:
            changed = await self._list()
            due = {*self._book.to_read(), *self._due_again()}
            # Until all of this has been answered: a failure must not leave out the jobs beside
            # them.
            self._begun |= due
            new = bool(due) and await self._details(due)
            beside = self._book.beside(self._begun)
            await self._details(beside)
            self._begun.clear()
            if new or beside:
                changed = True
                await self._list(again=True)
        except SlurmError as error:
            self._fail(error)
            return True
        if self._fault:
            log.info("Slurm's jobs can be read again")
        self._fault = ""
        return changed

    async def _confirm(self) -> None:
        """Discard the details of jobs that an earlier slurmctld has given, so that nothing is
        decided by them.
        """
        self._confirmed_at = self._now()
        try:
            start = await self._slurm.call(protocol.slurmctld_start())
        except SlurmError as error:
            self._fail(error)
            return
        self._memory.started_at(start)
        if self._book.started_at(start):
            log.info("slurmctld has started again: all jobs are read again")
            self.wake()

    def _fail(self, error: SlurmError) -> None:
        self._book.fail()
        if str(error) != self._fault:
            log.warning("Slurm's jobs can't be read, so nothing is decided: %s", error)
        self._fault = str(error)

    async def _list(self, *, again: bool = False) -> bool:
        self._listed_at = self._now()
        listed = await self._slurm.call(protocol.get_job_states())
        self._answered_at = self._listed_at
        return self._book.states(listed, self._listed_at, again=again)

    def _due_again(self) -> list[int]:
        now = self._now()
        if now - self._read_again_at < INTERVAL:
            return []
        self._read_again_at = now
        return self._book.next_waiting(_READS)

    async def _details(self, due: Iterable[int]) -> bool:
        """Read the details of these jobs, some at the same time. Whether they are new."""
        answers = await asyncio.gather(*map(self._detail, due), return_exceptions=True)
        fault = next((it for it in answers if isinstance(it, BaseException)), None)
        if fault is not None:
            raise fault
        return any(answers)

    async def _detail(self, job_id: int) -> bool:
        record = None
        with suppress(NotFound):
            record = await self._slurm.call(protocol.get_external_job(job_id))
        return self._book.details(job_id, record)

    def _pod_changed(self, event: Event[Pod]) -> None:
        pod = event.object
        if event.old and event.new and pods.was_scheduled(event.old, event.new):
            self._memory.scheduled_at = self._now()
        if pod.spec.node_name:
            released = self._memory.released.pop(pod.metadata.uid, None)
            if released is not None:
                metrics.BIND_SECONDS.observe(self._now() - released)
        usage_changed = self._usage.discard(pod) if event.new is None else self._usage.put(pod)
        self._others = self._others or usage_changed
        # What other pods request is looked at with everything else: there may be thousands of
        # changes a second.
        if event.new is not None and pods.concerned(pod):
            self._concerned[pod.metadata.uid] = pod
            self.wake()
        elif self._concerned.pop(pod.metadata.uid, None) is not None:
            for known in (self._source, self._own_shape, self._shapes, self._views):
                known.pop(pod.metadata.uid, None)
            self.wake()

    def _node_changed(self, event: Event[Node]) -> None:
        old, new = event.old, event.new
        if old is None or new is None or _relevant(old) != _relevant(new):
            self._fits = {}
            self.wake()

    def _tenants_changed(self) -> None:
        data: dict[str, str] = {}
        for config in self._config.values():
            data |= config.data
        self._tenants, self._problems = tenants.parse_all(data, self._partition)
        for problem in self._problems.values():
            log.warning("%s", problem)
        self._shapes.clear()
        self.wake()

    # --- deciding

    async def _decide(self) -> None:
        now = self._now()
        self._read_owners()
        keys = frozenset(
            key
            for pod in self._concerned.values()
            if pods.is_gated(pod)
            for key in shape.selector_keys(pod)
        )
        self._guards.look()
        await self._node_records.apply(keys, self._guards.occupied, self._book.holding())
        if self._now() - self._confirmed_at >= LEAST_PAUSE:
            # slurmctld may have been killed, and have started again, while the records were
            # changed.
            await self._confirm()
        self._effects.slurm_nodes = self._node_records.slurm_nodes
        self._effects.foreign = self._node_records.foreign
        self._effects.guard_nodes = self._guards.slurm_nodes
        records, memory = self._node_records, self._memory
        # From here on nothing is awaited: pods and jobs are those of one moment.
        self._devices.forget()
        shaped = self._shaped()
        places = records.kube_nodes, self._guards.kube_nodes, records.numbered
        jobs = self._jobs = self._book.jobs(self._job_shapes(shaped), *places)
        if self._book.known:
            memory.settle(jobs, self._listed_at, SUBMIT_SECONDS)
            root = memory.find_root(jobs)
            for user in root:
                log.error("Slurm user %s of a tenant has uid 0: its pods are refused", user)
            if root:
                shaped = self._shaped()
        missed = {name for pod in self._concerned.values() if (name := pod.spec.node_name)}
        memory.missing = {
            name: at
            for name, at in memory.missing.items()
            if name in missed and self._nodes.get(None, name) is None
        }
        seen = tuple(self._seen(pod, shaped[uid], now) for uid, pod in self._concerned.items())
        self._forget(seen, now)
        # The tenants' namespaces with pods that wait for a job.
        asking = {
            pod.namespace for pod in seen if pod.gated and pod.job is None
        } & self._tenants.keys()
        self._rights.read(asking)
        places_of = {True: self._guards.slurm_nodes.keys(), False: records.slurm_nodes.keys()}
        view = View(
            pods=seen,
            jobs=jobs,
            known=self._book.known,
            cluster=self._cluster,
            users={namespace: tenant.user for namespace, tenant in self._tenants.items()},
            nodes=records.faults(),
            labelling=memory.labelling(now),
            submitting=memory.open_groups(now),
            misnamed=memory.misnamed(jobs),
            kinds=self._guards.kinds,
            holders=self._devices.holders(),
            places=len(records.slurm_nodes) or None,
            paused=memory.paused_jobs(jobs, records.sizes(), now),
            avoided=memory.avoided(now),
            unfit=self._unfit(seen, places_of),
            places_of=places_of,
            cpus=records.cpus() | self._guards.cpus,
            gres=self._guards.gres,
            unwritable=self._rights.unwritable(asking),
            refused=self._effects.refused.releases(),
            stuck=self._effects.refused.requeues(),
            obstacles=memory.obstacles(now),
        )
        decision = decided(view)
        memory.obstruct(decision.obstacles, now)
        actions = self._effects.refused.replaced(decision.actions)
        self._waits = any(pod.gated for pod in seen)
        # What waits for time to pass is looked at in each pass.
        due_later = (
            view.submitting or view.paused or memory.unbound or memory.missing or memory.obstructed
        )
        self._busy = bool(actions or due_later or self._owners.waiting or view.unwritable)
        whole = await self._effects.apply(actions)
        self._busy = await self._guards.apply(view) or self._busy
        if not whole:
            self.wake()

    def _read_owners(self) -> None:
        named = {
            uid: source
            for uid, pod in self._concerned.items()
            if (source := self._source(pod)) is not None
        }
        gated = {
            uid: pods.job_id_of(pod)
            for uid, pod in self._concerned.items()
            if uid in named and pods.is_gated(pod)
        }
        self._owners.forget(frozenset(named.values()))
        again = (named[uid] for uid, job in gated.items() if job is None)
        # After a start, what their object requests for pods with a job isn't known.
        once = (named[uid] for uid, job in gated.items() if job is not None)
        self._owners.read(again, once)

    def _job_shapes(self, shaped: Mapping[str, Shaped]) -> dict[int, set[tuple[GroupKey, Shape]]]:
        found: defaultdict[int, set[tuple[GroupKey, Shape]]] = defaultdict(set)
        for uid, pod in self._concerned.items():
            job_id = pods.job_id_of(pod)
            if job_id is not None:
                group, wanted, _ = shaped[uid]
                found[job_id].add((pods.key_of(pod, group), wanted or self._own_shape(pod)))
        return found

    def _shaped(self) -> dict[str, Shaped]:
        """Return the shapes by uid. The object is the same until something of it changes."""
        root = tenants.root_problems(self._memory.root)
        return {uid: self._shape(pod, root) for uid, pod in self._concerned.items()}

    def _shape(self, pod: Pod, root: Mapping[str, str]) -> Shaped:
        meta = pod.metadata
        source = self._source(pod)
        facts = self._owners.facts
        claims = self._devices.of(pod)
        known = claims.gres, claims.missing, claims.problem
        version = (
            meta.resource_version,
            frozenset(root),
            facts.get(source) if source is not None else None,
            known,
        )
        cached = self._shapes.get(meta.uid)
        if cached is None or cached[0] != version:
            group = groups.group_of(pod, facts)
            rules = self._devices.rules
            found = pods.shape_or_problem(
                pod, self._tenants, self._problems, root, group, rules, claims
            )
            cached = self._shapes[meta.uid] = version, Shaped(group, *found)
        return cached[1]

    def _seen(self, pod: Pod, shaped: Shaped, now: float) -> SeenPod:
        meta, spec, memory = pod.metadata, pod.spec, self._memory
        lost = False
        if spec.node_name and self._nodes.get(None, spec.node_name) is None:
            lost = memory.lost(spec.node_name, now)
        sent = memory.sent_to(meta.uid, meta.resource_version if pods.is_gated(pod) else None)
        known = self._views.get(meta.uid)
        claims = self._devices.of(pod)
        if (
            known is not None
            and known[0] is pod
            and known[1] is shaped
            and known[2:5] == (claims, sent, lost)
        ):
            found = known[5]
        else:
            found = pods.pod_of(
                pod, shaped, sent=sent, lost=lost, claims=claims, rules=self._devices.rules
            )
            self._views[meta.uid] = pod, shaped, claims, sent, lost, found
        ends = meta.deletion_timestamp
        if ends is not None and ends.timestamp() <= self._wall():
            found = dataclasses.replace(found, overdue=True)
        if found.gated or found.bound or not found.live:
            memory.bound(meta.uid)
            return found
        tried = bool(found.unbound_reason)
        return dataclasses.replace(
            found,
            unbound_seconds=memory.unbound_seconds(meta.uid, now, tried=tried),
            scheduler_away=not tried and memory.scheduler_away(meta.uid, now),
        )

    def _unfit(
        self, seen: Iterable[SeenPod], places_of: Mapping[bool, AbstractSet[str]]
    ) -> dict[Needs, dict[str, str]]:
        """Return why nodes can't run the pods that wait, by what the pods need."""
        names = frozenset().union(*places_of.values())
        if names != self._fit_of:
            self._fits, self._fit_of = {}, names
        wanted = {it.shape.needs for it in seen if it.gated and it.shape is not None}
        self._fits = {needs: its for needs, its in self._fits.items() if needs in wanted}
        if new := wanted - self._fits.keys():
            nodes = [it for name in sorted(names) if (it := self._nodes.get(None, name))]
            for needs in new:
                self._fits[needs] = {
                    it.metadata.name: text for it in nodes if (text := unfit(needs, it))
                }
        return {needs: its for needs, its in self._fits.items() if its}

    def _forget(self, seen: tuple[SeenPod, ...], now: float) -> None:
        self._book.forget(frozenset(pod.job for pod in seen if pod.job is not None))
        self._memory.forget(
            frozenset(pod.uid for pod in seen), frozenset(pod.key for pod in seen), now
        )


def _relevant(node: Node) -> tuple[object, ...]:
    """Return everything but the version: kubelets write often."""
    return node.metadata.labels, node.metadata.annotations, node.spec, node.status
