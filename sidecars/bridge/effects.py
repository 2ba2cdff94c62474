"""The requests that apply decisions about pods and jobs.

A request that fails is logged; the next pass decides again.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import msgspec

from sidecars.bridge import metrics
from sidecars.bridge.claimed_devices import Devices
from sidecars.bridge.core import pods
from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.placeholder import requests_of
from sidecars.bridge.core.records import (
    Action,
    Allow,
    Cancel,
    Deallocate,
    DeletePod,
    Disruption,
    Grant,
    Label,
    Name,
    Release,
    Report,
    Requeue,
    Start,
    Submit,
    Why,
    avoid_key,
)
from sidecars.bridge.core.records import Pod as SeenPod
from sidecars.bridge.core.starting import starting_of
from sidecars.bridge.memory import Submission
from sidecars.bridge.parts import NOWHERE, Books, Clock, Kubernetes, Places
from sidecars.bridge.refused import Change, Refused, is_refusal
from sidecars.bridge.rights import Rights
from sidecars.bridge.slurm import Slurm
from sidecars.contract import bridge, queued
from sidecars.kube import (
    PODS,
    Forbidden,
    Invalid,
    KubeError,
    Malformed,
    NotFound,
)
from sidecars.kube import Conflict as KubeConflict
from sidecars.policy.reasons.bridge import BridgeEvent
from sidecars.slurm import protocol
from sidecars.slurm.errors import Rejected, SlurmError
from sidecars.slurm.job_states import ENDED

log = logging.getLogger(__name__)

BY_JOB = "job"
"""Index of the pods by the job of their label."""

MOST_AT_ONCE = 100
"""Changes of one kind in one pass."""

MOST_SUBMISSIONS = 400
"""Submissions that are under way. Slurm takes some hundreds a second, and each has to be answered
within 15 s.
"""

REPORTS_SECONDS = 5.0
"""Seconds between two times when conditions of pods are written beside other changes. A condition
beside other changes, or one of more than MANY, is written when it has been due for so long.

A pod that starts meanwhile needs no condition: with many pods at once, each would cost the API
server two writes more.
"""

MANY = 20
"""Changes in one pass beside which Events wait: the API server has to do what starts pods first."""

EVENTS_SECONDS = 30.0
"""For so long at the most."""

MOST_EVENTS = 5000
"""Events that wait. Of more, the oldest are dropped."""

EVENTS_AT_ONCE = 20
"""Events that have waited and are written at the same time. Each has a few seconds, its wait for
others included.
"""

_ORDER: Mapping[type[Action], int] = {Label: 1, Report: 2}
"""What is sent after all else: the pods of a job that runs come first, because it has its resources
already.
"""


class Effects:
    """Applies decisions for the pods of the Kubernetes `cluster`. `wake` begins a pass soon."""

    def __init__(
        self,
        kube: Kubernetes,
        slurm: Slurm,
        books: Books,
        devices: Devices,
        rights: Rights,
        clock: Clock,
        wake: Callable[[], None],
        cluster: str = "",
    ) -> None:
        self._kube = kube.client
        self._slurm = slurm
        self._store = kube.pods
        self.refused = Refused(self._pod, clock.now)
        self._events = kube.events
        self._memory = books.memory
        self._book = books.jobs
        self._devices = devices
        self._rights = rights
        self._now = clock.now
        self._logged: dict[type[Action], str] = {}
        """The last reason why an action of a kind failed."""
        self._wall = clock.wall
        self._wake = wake
        self._cluster = cluster
        self._submissions: set[asyncio.Task[None]] = set()
        self._reported_at = float("-inf")
        self._due: dict[str, float] = {}
        """Since when a pod lacks its condition, by its uid."""
        self._many = False
        self._events_left: deque[tuple[float, dict[str, Any], BridgeEvent, str]] = deque()
        """Events that wait: when each happened, and what it is about."""
        self._writing: asyncio.Task[None] | None = None
        self._turn = 0

    async def apply(self, actions: Iterable[Action], places: Places = NOWHERE) -> bool:
        """Apply the actions, all at the same time. Submissions continue after this returns. False
        if some are left.

        Of each kind only some are applied, because no job is looked at meanwhile, and conditions
        beside other changes every few seconds alone. What is left out is decided again. Events wait
        beside many changes.
        """
        kinds: defaultdict[type[Action], list[Action]] = defaultdict(list)
        for action in actions:
            kinds[type(action)].append(action)
        reports = self._reports(kinds.pop(Report, []), alone=not kinds)
        self._many = sum(map(len, kinds.values())) > MANY
        if reports:
            kinds[Report] = reports
        chosen: list[Action] = []
        for kind, its in sorted(kinds.items(), key=lambda it: _ORDER.get(it[0], 0)):
            most = MOST_SUBMISSIONS - len(self._submissions) if kind is Submit else MOST_AT_ONCE
            # One that always fails must not keep others out. Submissions are in order, and a failed
            # one waits.
            start = self._turn % len(its) if len(its) > most and kind is not Submit else 0
            chosen += (its[start:] + its[:start])[: max(0, most)]
        self._turn += MOST_AT_ONCE
        await asyncio.gather(*(self._apply(action, places) for action in chosen))
        if self._may_write_events() and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(
                self._write_events(), name="events that have waited"
            )
        return len(chosen) == sum(map(len, kinds.values()))

    def _reports(self, reports: list[Action], *, alone: bool) -> list[Action]:
        """Select the conditions that are written now."""
        now = self._now()
        missing = [(it.pod.uid, it) for it in reports if isinstance(it, Report)]
        self._due = {uid: self._due.get(uid, now) for uid, _ in missing}
        if alone and len(reports) <= MANY:
            return reports
        # With a refusal comes a Warning, and the next pass may have no words for it: the job is
        # cancelled by then.
        refused = [it for _, it in missing if it.why is Why.REFUSED]
        late = [
            it
            for uid, it in missing
            if it.why is not Why.REFUSED and now - self._due[uid] >= REPORTS_SECONDS
        ]
        if not late or (not alone and now - self._reported_at < REPORTS_SECONDS):
            return [*refused]
        self._reported_at = now
        return [*refused, *late]

    def _may_write_events(self) -> bool:
        left = self._events_left
        if not left or len(left) >= MOST_EVENTS:
            return bool(left)
        return not self._many or self._now() - left[0][0] >= EVENTS_SECONDS

    async def _write_events(self) -> None:
        """Write the Events that wait, the oldest first, until many changes come again."""
        while self._may_write_events():
            for _ in range(min(EVENTS_AT_ONCE, len(self._events_left))):
                _, regarding, reason, note = self._events_left.popleft()
                self._events.emit(regarding, "Normal", reason, "Schedule", note)
            await self._events.flush()

    async def close(self) -> None:
        """Give up the submissions that are not answered yet, and the Events that wait."""
        tasks = [*self._submissions, *([self._writing] if self._writing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _apply(self, action: Action, places: Places) -> None:
        version = self.refused.version(action) if isinstance(action, Change) else ""
        try:
            match action:
                case Submit():
                    self._submit(action, places)
                case Label():
                    await self._label(action)
                case Start():
                    await self._start(action)
                case Name():
                    await self._name(action)
                case Allow():
                    await self._allow(action, places)
                case Grant() | Deallocate():
                    await self._claim(action)
                case Release():
                    await self._release(action)
                case Report():
                    await self._report(action.pod, action.why, action.message)
                case Cancel():
                    await self._cancel(action)
                case Requeue():
                    await self._requeue(action)
                case DeletePod():
                    await self._delete(action)
        except (KubeError, SlurmError) as error:
            if isinstance(action, Change) and is_refusal(error):
                self.refused.note(
                    action, version, self._rights.explained(action.pod.namespace, error)
                )
            elif isinstance(action, DeletePod | Grant | Deallocate) and isinstance(
                error, Forbidden
            ):
                self._rights.explained(action.pod.namespace, error)
            self._log(action, error)

    def _log(self, action: Action, error: KubeError | SlurmError) -> None:
        """Log why an action failed, once while the reason remains."""
        # In most cases, the pod or claim has changed or is gone: its cache shows that soon. A patch
        # that doesn't apply is Invalid, too.
        changed = isinstance(error, NotFound | KubeConflict | Invalid)
        refused = isinstance(action, Grant | Deallocate) and " is invalid: " in str(error)
        text = f"{type(action).__name__}: {error}"
        again = self._logged.get(type(action)) == text
        self._logged[type(action)] = text
        log.log(logging.DEBUG if again or (changed and not refused) else logging.WARNING, text)

    def _submit(self, action: Submit, places: Places) -> None:
        # Before anything is awaited: the next pass must not submit the group again.
        key = action.key
        submission = self._memory.submitted[key] = Submission(action.user, self._now())
        task = asyncio.create_task(
            self._submitted(action, submission, places), name=f"submit {key.namespace}/{key.group}"
        )
        self._submissions.add(task)
        task.add_done_callback(self._submissions.discard)

    async def _submitted(self, action: Submit, submission: Submission, places: Places) -> None:
        names = places.names(guard=action.guard)
        excluded = tuple(names[node] for node in action.excluded if node in names)
        unfit = [tuple(names[node] for node in it if node in names) for it in action.unfit]
        if any(len({*excluded, *it}) >= len(names) for it in unfit or [()]):
            excluded = ()
        key, count = action.key, len(names) - len(excluded)
        excluded += tuple(sorted(places.foreign(guard=action.guard)))
        try:
            job_id = await self._slurm.submit(
                action.user, requests_of(action, excluded, count, unfit, self._cluster)
            )
        except SlurmError as error:
            log.warning("submission for %s/%s: %s", key.namespace, key.group, error)
            metrics.REFUSED.labels(type(error).__name__).inc()
            self._memory.refuse(key, str(error), self._now())
            if isinstance(error, Rejected):
                # Only then is it certain that no job exists.
                self._memory.submitted.pop(key, None)
            await self._report_all(action.pods, Why.REFUSED, queued.REFUSED_JOB.write(error=error))
        else:
            submission.job_id = job_id
            log.info(
                "job %d was submitted for %s/%s as %s",
                job_id,
                key.namespace,
                key.group,
                action.user,
            )
            self._wake()

    async def _report_all(self, seen: Iterable[SeenPod], why: Why, message: str) -> None:
        """Report on the pods that have no job by now."""
        for it in seen:
            pod = self._pod(it)
            if pod is not None and pods.job_id_of(pod) is None:
                try:
                    await self._report(it, why, message)
                except KubeError as error:
                    log.debug("condition of %s: %s", it.name, error)

    async def _label(self, action: Label) -> None:
        pod = self._pod(action.pod)
        if pod is not None and pods.job_id_of(pod) is None:
            # Before anything is sent: until the cache shows the label, the job counts as one with
            # this pod.
            self._memory.labels[pod.metadata.uid] = action.job, self._now()
            await self._patch(pod, pods.label_patch(pod, action.job, action.pod.key.group))
            self._event(
                pod,
                "Normal",
                BridgeEvent.SUBMITTED,
                f"Slurm job {action.job} waits for this pod's resources",
            )

    async def _start(self, action: Start) -> None:
        job = action.job
        if not self._memory.may_ask("start", job.job_id, self._now()):
            return
        comment = self._admin_comment(job.comment)
        if job.confirmed:
            self._memory.pause(job.job_id, self._now())
            for job_id in job.ids:
                await self._slurm.start_again(job_id, comment, action.priority)
            return
        try:
            # The first component comes last: while it is a held job, Slurm keeps no node free for a
            # job with a component that no node fits.
            for job_id in reversed(job.ids):
                self._book.stale(job_id)
                if await self._slurm.start(job_id, comment, action.priority):
                    self._book.started(job_id, comment)
        except SlurmError as error:
            if not job.rest:
                raise
            # The component that no node fits shows Slurm's reason, and is tried again.
            log.debug("start of job %d: %s", job.job_id, error)
        self._wake()

    async def _name(self, action: Name) -> None:
        if not self._memory.may_ask("name", action.job.job_id, self._now()):
            return
        for job_id in action.job.ids:
            await self._slurm.note(job_id, self._admin_comment(action.job.comment))
            self._book.stale(job_id)
        self._wake()

    def _admin_comment(self, comment: bridge.Comment) -> str:
        return bridge.encode(replace(comment, cluster=self._cluster))

    async def _allow(self, action: Allow, places: Places) -> None:
        job = action.job
        if not self._memory.may_ask("allow", job.job_id, self._now()):
            return
        names = places.names(guard=job.guard)
        self._book.stale(job.job_id)
        excluded = [names[node] for node in action.excluded if node in names]
        excluded += sorted(places.foreign(guard=job.guard))
        await self._slurm.call(protocol.allow_nodes(job.job_id, excluded))
        log.info("job %d may run on nodes again that it was to avoid", job.job_id)
        self._wake()

    async def _claim(self, action: Grant | Deallocate) -> None:
        pod = self._pod(action.pod)
        if pod is None or not pods.is_gated(pod):
            return
        if isinstance(action, Grant):
            await self._devices.grant(pod, action)
        else:
            await self._devices.deallocate(pod, action)

    async def _release(self, action: Release) -> None:
        # Not before: the next job may lack the same as the last one.
        self._memory.refusals.pop(action.pod.key, None)
        pod = self._pod(action.pod)
        if pod is None or not pods.is_gated(pod):
            return
        # Before anything is sent: another pod of the group must not get this place.
        self._memory.sent[pod.metadata.uid] = pod.metadata.resource_version, action.node
        self._memory.released[pod.metadata.uid] = self._now()
        await self._patch(pod, pods.release_patch(pod, action.node, action.end_time, self._wall()))
        if pod.metadata.creation_timestamp is not None:
            metrics.WAIT_SECONDS.observe(
                max(0.0, self._wall() - pod.metadata.creation_timestamp.timestamp())
            )
        text = f"Slurm job {action.job} runs on Kubernetes node {action.node}"
        self._event(pod, "Normal", BridgeEvent.RELEASED, text)
        log.info("pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, text)

    async def _report(self, seen: SeenPod, why: Why, message: str) -> None:
        pod = self._pod(seen)
        if pod is None:
            return
        patch = pods.condition_patch(pod, why, message, self._wall())
        if patch:
            await self._patch(pod, patch, "status")
            if why is Why.REFUSED and seen.reported[0] != why.value:
                self._event(pod, "Warning", BridgeEvent.REFUSED, message)

    async def _cancel(self, action: Cancel) -> None:
        if not self._memory.may_ask("cancel", action.job, self._now()):
            return
        if action.unbound is not None and not await self._is_unbound(action.unbound):
            return
        if action.unstarted is not None and not await self._is_starting(action.unstarted):
            return
        if action.avoid is not None:
            self._memory.avoid(*action.avoid, self._now())
        if action.refused is not None:
            self._memory.refuse(action.refused, action.message, self._now())
        log.info("job %d is cancelled: %s", action.job, action.message)
        if action.avoid is not None:
            reason = BridgeEvent.NOT_STARTED
            if action.unstarted is None:
                reason = BridgeEvent.NOT_BOUND
                metrics.NOT_BOUND.inc()
            for pod in (
                pod
                for job_id in (action.job, *action.rest)
                for pod in self._store.by(BY_JOB, job_id)
            ):
                self._event(pod, "Warning", reason, action.message)
        ids = action.job, *action.rest
        if action.note is not None:
            # First: with a job that is CANCELLED without the words that it was given up, pods that
            # never ran would be deleted, and the end of the others would count as theirs.
            for job_id in ids:
                await self._slurm.note(job_id, self._admin_comment(action.note))
                self._book.stale(job_id)
        for job_id in ids:
            await self._slurm.cancel(job_id)
        self._wake()

    async def _is_unbound(self, seen: SeenPod) -> bool:
        """Return whether the pod waits for the scheduler at this moment. A watch may be silent for
        a minute before it is cut.
        """
        pod = await self._kube.get(PODS, seen.namespace, seen.name, Pod)
        return pod.metadata.uid == seen.uid and not pod.spec.node_name

    async def _is_starting(self, seen: SeenPod) -> bool:
        """Return whether the pod has not run at this moment either."""
        pod = await self._kube.get(PODS, seen.namespace, seen.name, Pod)
        return pod.metadata.uid == seen.uid and starting_of(pod) is not None

    async def _requeue(self, action: Requeue) -> None:
        pod, now = self._pod(action.pod), self._now()
        if pod is None or not pods.is_gated(pod) or pods.job_id_of(pod) != action.job:
            return
        if action.node:
            self._memory.avoid(avoid_key(action.pod), action.node, now)
        if self._memory.may_ask("requeue", action.job, now):
            # What keeps the pods may keep them on every node: each further job comes later.
            self._memory.refuse(action.pod.key, action.message, now)
        await self._patch(pod, pods.requeue_patch(pod, action.job))
        self._event(pod, "Normal", BridgeEvent.REQUEUED, action.message)
        log.info(
            "pod %s/%s is queued again: %s",
            pod.metadata.namespace,
            pod.metadata.name,
            action.message,
        )

    async def _delete(self, action: DeletePod) -> None:
        pod = self._pod(action.pod)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return
        if action.disruption is not None:
            await self._disrupt(pod, action.disruption, action.message)
        meta = pod.metadata
        await self._kube.delete(PODS, meta.namespace, meta.name, uid=meta.uid)
        metrics.ENDED.labels(min(ENDED & set(action.state.split(",")), default="OTHER")).inc()
        self._event(pod, "Normal", BridgeEvent.JOB_ENDED, action.message)
        log.info("pod %s/%s is deleted: %s", meta.namespace, meta.name, action.message)

    async def _disrupt(self, pod: Pod, why: Disruption, message: str) -> None:
        """Write the condition `DisruptionTarget`, on the newest version of the pod if the cache has
        a former one. A pod that mustn't have it is deleted all the same: it uses what isn't its.
        """
        meta = pod.metadata
        try:
            try:
                await self._patch_disruption(pod, why, message)
            except (KubeConflict, Invalid):
                newest = await self._kube.get(PODS, meta.namespace, meta.name, Pod)
                if newest.metadata.uid == meta.uid:
                    await self._patch_disruption(newest, why, message)
        except KubeError as error:
            if not is_refusal(error):
                raise
            log.warning(
                "pod %s/%s is deleted without the condition %s: %s",
                meta.namespace,
                meta.name,
                bridge.DISRUPTED,
                error,
            )

    async def _patch_disruption(self, pod: Pod, why: Disruption, message: str) -> None:
        patch = pods.disruption_patch(pod, why, message, self._wall())
        if patch:
            await self._patch(pod, patch, "status")

    def _pod(self, seen: SeenPod) -> Pod | None:
        pod = self._store.get(seen.namespace, seen.name)
        return pod if pod is not None and pod.metadata.uid == seen.uid else None

    async def _patch(self, pod: Pod, patch: pods.Patch, subresource: str | None = None) -> None:
        meta = pod.metadata
        try:
            await self._kube.json_patch(
                PODS, meta.namespace, meta.name, patch, msgspec.Raw, subresource=subresource
            )
        except Malformed as error:
            log.warning("answer to a patch of pod %s/%s: %s", meta.namespace, meta.name, error)

    def _event(
        self, pod: Pod, kind: Literal["Normal", "Warning"], reason: BridgeEvent, note: str
    ) -> None:
        if kind == "Normal" and (self._many or self._events_left):
            if len(self._events_left) >= MOST_EVENTS:
                self._events_left.popleft()
                metrics.EVENTS_DROPPED.inc()
            self._events_left.append((self._now(), reference(pod), reason, note))
            return
        self._events.emit(reference(pod), kind, reason, "Schedule", note)


def reference(pod: Pod) -> dict[str, Any]:
    """Return the reference to the pod that an Event is about."""
    meta = pod.metadata
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid},
    }
