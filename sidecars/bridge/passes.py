"""One pass of the bridge: read what has changed, decide, apply."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sidecars.bridge import metrics
from sidecars.bridge.claimed_devices import Devices
from sidecars.bridge.core import pods
from sidecars.bridge.core.decide import decided
from sidecars.bridge.core.records import Job, Phase, View
from sidecars.bridge.core.records import Pod as SeenPod
from sidecars.bridge.effects import BY_JOB, Effects
from sidecars.bridge.guarded_nodes import Guards
from sidecars.bridge.job_reading import INTERVAL, JobReader
from sidecars.bridge.node_records import NodeRecords
from sidecars.bridge.owners import Owners
from sidecars.bridge.parts import Books, Clock, Kubernetes, Places
from sidecars.bridge.pod_views import PodViews
from sidecars.bridge.rights import Rights
from sidecars.bridge.slurm import SUBMIT_SECONDS, Slurm
from sidecars.slurm import versions
from sidecars.slurm.versions import Release

log = logging.getLogger(__name__)

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
        self._parts = parts
        self._memory = parts.books.memory
        self._book = parts.books.jobs
        self._cluster = cluster
        self._now = clock.now
        self._woken = asyncio.Event()
        self._dirty = True
        self._looked_at = float("-inf")
        self._busy = False
        self._waits = True
        self._jobs: Mapping[int, Job] = {}
        self._unlisted: frozenset[int] = frozenset()
        """The jobs of pods that Slurm doesn't list, and whose end isn't known."""
        self.unsupported = ""
        """Why Slurm can't be used, with the remedy; "" if it can. Nothing is decided then."""
        self.last_pass = clock.now()
        """When the last pass ended."""
        parts.kube.pods.add_index(
            BY_JOB, lambda pod: () if (job := pods.job_id_of(pod)) is None else (job,)
        )
        self._reader = JobReader(parts.slurm, parts.books, clock)
        self._views = PodViews(
            *(parts.kube, parts.books, parts.devices, parts.owners, clock, partition, self.wake)
        )

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
        changed = await self._reader.read()
        if self._unlisted:
            changed = await self._reader.recover(self._unlisted) or changed
        if changed or self._is_due():
            self._dirty, self._looked_at = False, self._now()
            self._views.look()
            await self._confirm()
            await self._decide()
        elif self._reader.since_confirmed() >= CALM_SECONDS:
            await self._confirm()
        self.last_pass = self._now()
        metrics.SECONDS.observe(self.last_pass - begun)

    def _is_due(self) -> bool:
        """Return whether everything is to be looked at, although Slurm's jobs have not changed."""
        calm = REST_SECONDS
        if self._views.others_changed:
            calm = OTHERS_SECONDS
        elif self._waits or self._memory.starting:
            calm = CALM_SECONDS
        due = self._dirty or self._busy or self._parts.node_records.due()
        return due or self._now() - self._looked_at >= calm

    def _is_unsupported(self) -> bool:
        problem = versions.too_old(self._parts.release(), versions.BRIDGE, "the Slurm Bridge")
        if problem and problem != self.unsupported:
            log.error("%s. No pod gets a job", problem)
        elif self.unsupported and not problem:
            log.info("Slurm has been updated: pods get jobs")
            self.wake()
        self.unsupported = problem
        return bool(problem)

    async def _confirm(self) -> None:
        if await self._reader.confirm():
            self.wake()

    # --- counting, for metrics

    def waiting(self) -> Counter[tuple[str, str]]:
        """Return the pods that wait, by the reason of their condition and the class of Slurm's
        reason.
        """
        return self._views.waiting(self._jobs.values())

    def phases(self) -> Counter[str]:
        """Return the jobs by phase, but those that have ended."""
        found = Counter({phase.value: 0 for phase in Phase if phase is not Phase.ENDED})
        found.update(job.phase.value for job in self._jobs.values() if job.phase is not Phase.ENDED)
        return found

    def node_states(self) -> Counter[str]:
        """Return the Kubernetes nodes for Slurm by the state of their record."""
        return self._parts.node_records.states()

    def answer_age(self) -> float | None:
        """Return the seconds since Slurm's last good answer about its jobs."""
        return self._reader.answer_age()

    # --- deciding

    async def _decide(self) -> None:
        records, guards = self._parts.node_records, self._parts.guards
        now = self._now()
        self._views.read_owners()
        guards.look()
        await records.apply(self._views.selector_keys(), guards.occupied, self._book.holding())
        if self._reader.since_confirmed() >= LEAST_PAUSE:
            # slurmctld may have been killed, and have started again, while the records were
            # changed.
            await self._confirm()
        # From here to `apply` nothing is awaited: pods and jobs are those of one moment.
        view = self._view(now)
        decision = decided(view)
        self._memory.obstruct(decision.obstacles, now)
        effects = self._parts.effects
        actions = effects.refused.replaced(decision.actions)
        self._waits = any(pod.gated for pod in view.pods)
        self._busy = bool(actions or self._has_due_later(view))
        places = Places(records.slurm_nodes, guards.slurm_nodes, records.foreign)
        whole = await effects.apply(actions, places)
        self._busy = await guards.apply(view) or self._busy
        if not whole:
            self.wake()

    def _has_due_later(self, view: View) -> bool:
        """Return whether anything waits for time to pass, which is looked at in each pass."""
        memory = self._memory
        remembered = memory.unbound or memory.missing or memory.obstructed
        waits = self._parts.owners.waiting or view.unwritable or view.unanswered
        return bool(view.submitting or view.paused or remembered or waits)

    def _view(self, now: float) -> View:
        parts, memory = self._parts, self._memory
        records, guards = parts.node_records, parts.guards
        parts.devices.forget()
        shaped = self._views.shaped()
        places = records.kube_nodes, guards.kube_nodes, records.numbered
        jobs = self._jobs = self._book.jobs(self._views.job_shapes(shaped), *places)
        if self._settle(jobs):
            shaped = self._views.shaped()
        seen = self._views.seen(shaped, now)
        labelled = frozenset(pod.job for pod in seen if pod.job is not None)
        self._book.forget(labelled)
        self._unlisted = self._book.unlisted(
            pod.job for pod in seen if pod.job is not None and pod.present
        )
        asking = self._asking(seen)
        parts.rights.read(asking)
        places_of = {True: guards.slurm_nodes.keys(), False: records.slurm_nodes.keys()}
        return View(
            pods=seen,
            jobs=jobs,
            known=self._book.known,
            unanswered=self._reader.unanswered(self._unlisted),
            cluster=self._cluster,
            users={namespace: tenant.user for namespace, tenant in self._views.tenants.items()},
            nodes=records.faults(),
            labelling=memory.labelling(now),
            submitting=memory.open_groups(now),
            misnamed=memory.misnamed(jobs),
            kinds=guards.kinds,
            holders=parts.devices.holders(),
            places=len(records.slurm_nodes) or None,
            paused=memory.paused_jobs(jobs, records.sizes(), now),
            avoided=memory.avoided(now),
            unfit=self._views.unfit(seen, places_of),
            places_of=places_of,
            cpus=records.cpus() | guards.cpus,
            gres=guards.gres,
            unwritable=parts.rights.unwritable(asking),
            refused=parts.effects.refused.releases(),
            stuck=parts.effects.refused.requeues(),
            obstacles=memory.obstacles(now),
        )

    def _settle(self, jobs: Mapping[int, Job]) -> bool:
        """Take in what the jobs say about open submissions. Return whether more users have turned
        out to have uid 0.
        """
        if not self._book.known:
            return False
        self._memory.settle(jobs, self._reader.listed_at, SUBMIT_SECONDS)
        root = self._memory.find_root(jobs)
        for user in root:
            log.error("Slurm user %s of a tenant has uid 0: its pods are refused", user)
        return bool(root)

    def _asking(self, seen: tuple[SeenPod, ...]) -> set[str]:
        """Return the tenants' namespaces with pods that wait for a job."""
        waiting = {pod.namespace for pod in seen if pod.gated and pod.job is None}
        return waiting & self._views.tenants.keys()
