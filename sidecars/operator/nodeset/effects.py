"""Applies the actions of a decision, in their order. Each is tried, whatever becomes of the
others.
"""

import asyncio
import itertools
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from sidecars.contract import reasons
from sidecars.contract.reasons import Owner
from sidecars.custom_resources import NODESETS, WORKERS_TERMINATE_FIRST
from sidecars.kube import (
    CONTROLLER_REVISIONS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    AlreadyExists,
    Forbidden,
    Invalid,
    KubeError,
    Manifest,
    NotFound,
)
from sidecars.operator.nodeset import creation, power_saving
from sidecars.operator.nodeset.answers import as_answer
from sidecars.operator.nodeset.observe import slurm_nodes_in_use
from sidecars.operator.nodeset.passes import Pass, PodSource
from sidecars.operator.runtime import bulk
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.finalizers import add_finalizer, remove_finalizers
from sidecars.policy.conditions import Condition
from sidecars.policy.nodeset import actions, maintenance
from sidecars.policy.nodeset.actions import Action, SetOwners
from sidecars.policy.nodeset.records import Deletion, Desired, WorkerPod
from sidecars.policy.nodeset.report import Progress
from sidecars.policy.reasons import EventReason, Ready
from sidecars.slurm import protocol, states
from sidecars.slurm.errors import NotFound as UnknownToSlurm
from sidecars.slurm.errors import SlurmError
from sidecars.slurm.hostlists import compress
from sidecars.slurm.pending import PATIENCE
from sidecars.workloads import names

log = logging.getLogger(__name__)
A = TypeVar("A")

LIFTED = reasons.OURS | {Owner.SLURMCTLD}
"""Owners of the drains and of the DOWN that the operator may end; `sidecars.policy.nodeset.drain`
decides which.
"""

DRAIN_AGAIN = 5.0
"""Seconds after which a drain that Slurm failed to set or to lift is tried again."""

RECORD_AGAIN = 1.0
"""The same for a node record that it failed to delete or to set DOWN."""

FEW = 16
"""Up to so many drained pods, the record of each is read right before its pod is deleted. Of more
pods, which take longer to delete, the list that is polled all the while counts: so many requests
would delay Slurm.
"""

NAMED_PODS = 10
"""Pods that one event names."""


@dataclass(slots=True)
class Outcome:
    """What has become of the actions."""

    applied: bool = False
    """At least one was tried."""
    failure: Exception | None = None
    """The first failure of Kubernetes or of the NodeSet itself, for the queue's back-off."""
    slurm_failed: bool = False
    """Slurm failed to do something that the next pass decides on again."""
    look_again: float | None = None
    """Seconds until what was not done, or not yet, is due."""
    reservation: Condition | None = None
    """What became of the reservation, if not what was decided."""
    creating: bool = False
    """Creations of pods were tried."""
    removed_finalizers: set[str] = field(default_factory=set)
    """Those of the NodeSet that are to be removed, by one write after all actions."""
    released: bool = False
    """The finalizer was removed: the NodeSet is gone."""

    def hint(self, seconds: float | None) -> None:
        """Look again after so many seconds at the latest."""
        if seconds is not None:
            self.look_again = seconds if self.look_again is None else min(self.look_again, seconds)

    def failed(self, error: Exception) -> None:
        """Keep the first failure. Raises what no action is expected to fail with."""
        if not isinstance(error, KubeError | SlurmError | NotUsableError):
            raise error
        log.debug("an action failed: %s", error)
        self.failure = self.failure or error

    def progress(self, decided: Progress) -> Progress:
        """Return what the decision reports, with the results of its actions."""
        return (
            decided if self.reservation is None else replace(decided, reservation=self.reservation)
        )

    @property
    def condition(self) -> Condition | None:
        """The failure as condition `Ready`."""
        error = self.failure
        if error is None:
            return None
        reason = Ready.REFUSED if isinstance(error, Forbidden | Invalid) else Ready.FAILED
        if isinstance(error, NotUsableError):
            reason = error.reason
        elif isinstance(error, AlreadyExists):
            reason = Ready.NAME_TAKEN
        return Condition("Ready", "False", reason, str(error))


async def apply(
    this: Pass, desired: Desired, source: PodSource, asked: Sequence[Action]
) -> Outcome:
    """Apply the actions. Failures are in the outcome; none of them stops another action."""
    outcome = Outcome(applied=bool(asked))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_cordons(this, outcome, asked))
        await _drains(this, outcome, asked)
        await _deletions(this, outcome, _of(actions.DeletePod, asked))
        for order in _of(actions.CreatePods, asked):
            await _creation(this, outcome, desired, source, order)
        await _writes(
            this, outcome, [partial(_set_owners, this, it) for it in _of(SetOwners, asked)]
        )
        for step in asked:
            await _one(this, outcome, step)
    await _remove_finalizers(this, outcome)
    outcome.hint(this.runtime.expectations.remaining(this.key) or None)
    return outcome


def _of(kind: type[A], wanted: Iterable[Action]) -> list[A]:
    return [action for action in wanted if isinstance(action, kind)]


def _event_target(this: Pass) -> Manifest:
    return {**this.manifest, "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet"}


async def _writes(
    this: Pass,
    outcome: Outcome,
    steps: Sequence[Callable[[], Awaitable[object]]],
    going_on: Callable[[], bool] | None = None,
) -> list[object]:
    """Many requests, for a slice of time; the rest is left to another pass, at once. What each
    returned or raised.
    """
    results = await bulk.each(
        steps, going_on or bulk.a_slice(this.runtime.now, lambda: this.memory.urgent)
    )
    for result in results:
        if isinstance(result, Exception):
            outcome.failed(result)
    if len(results) < len(steps):
        outcome.hint(0.0)
    return list(results)


async def _drains(this: Pass, outcome: Outcome, wanted: Iterable[Action]) -> None:
    """First of all: Slurm must know before a pod is deleted."""
    if this.cluster is None:
        return
    poller = this.cluster.poller
    drains, drained = _of(actions.Drain, wanted), list[str]()

    async def drain(action: actions.Drain) -> None:
        await poller.drain(action.slurm_nodes, action.reason, owners=frozenset({Owner.OPERATOR}))
        drained.extend(action.slurm_nodes)

    steps: list[Callable[[], Awaitable[None]]] = [partial(drain, action) for action in drains]
    steps += [
        partial(poller.undrain, it.slurm_nodes, owners=LIFTED)
        for it in _of(actions.Undrain, wanted)
    ]
    steps += [
        partial(poller.resume, it.slurm_nodes, owners=LIFTED) for it in _of(actions.Resume, wanted)
    ]
    if await _slurm_writes(outcome, steps):
        outcome.hint(DRAIN_AGAIN)
    if drained:
        message = f"Draining Slurm nodes {compress(drained)}"
        this.runtime.events.emit(
            _event_target(this), "Normal", EventReason.DRAINING, "Drain", message
        )


async def _slurm_writes(outcome: Outcome, steps: Sequence[Callable[[], Awaitable[None]]]) -> bool:
    """Return whether one failed. That is no failure of the pass: the next one decides again."""
    failed = False
    for result in await bulk.each(steps):
        if isinstance(result, SlurmError):
            log.warning("Slurm: %s", result)
            failed = True
        elif isinstance(result, Exception):
            raise result
    outcome.slurm_failed |= failed
    return failed


async def _deletions(this: Pass, outcome: Outcome, wanted: Sequence[actions.DeletePod]) -> None:
    """Delete pods, and report them by one event for each kind of cause."""
    deleted: dict[tuple[object, ...], list[Deletion]] = defaultdict(list)
    live = sum(1 for action in wanted if action.deletion.drained) <= FEW
    results = await _writes(
        this, outcome, [partial(_delete, this, action, live=live) for action in wanted]
    )
    for action, result in zip(wanted, results, strict=False):
        deletion = action.deletion
        if result is True:
            cause = (deletion.event, deletion.drained, deletion.absent, deletion.kube_node_lost)
            deleted[cause].append(deletion)
        elif result is False:
            outcome.hint(0.0)
    for group in deleted.values():
        message = deletion_message(group)
        log.info("NodeSet %s/%s: %s", *this.key, message)
        first = group[0]
        this.runtime.events.emit(
            _event_target(this), first.severity, first.event, "Delete", message
        )


def deletion_message(deletions: Sequence[Deletion]) -> str:
    """Describe in an Event the pods that were deleted."""
    if len(deletions) == 1:
        return f"Deleted pod {deletions[0].pod.name}: {deletions[0].because}"
    some = ", ".join(it.pod.name for it in deletions[:NAMED_PODS])
    more = ", …" if len(deletions) > NAMED_PODS else ""
    return (
        f"Deleted {len(deletions)} pods ({some}{more}): {deletions[0].because}, and likewise the "
        "others"
    )


async def _delete(this: Pass, action: actions.DeletePod, *, live: bool) -> bool | None:
    """Delete the pod, and return whether it was deleted: False if its cause may have ended
    meanwhile, None if it was gone already. `live`: the Slurm node of a drained pod is read at this
    moment.
    """
    deletion, pod, runtime = action.deletion, action.deletion.pod, this.runtime
    if deletion.valid_until is not None and runtime.now() > deletion.valid_until:
        return False
    if not await _is_still_free(this.cluster, deletion, live=live):
        # Before the last of many pods is deleted, someone may have lifted its drain, or its slurmd
        # has registered.
        return None
    for change in action.claims:
        await _set_owners(this, change)
    if not pod.terminating:
        runtime.expectations.expect_deletions(this.key, [pod.uid])
    try:
        await runtime.client.delete(
            PODS,
            this.key[0],
            pod.name,
            uid=pod.uid,
            # The cache may be behind: slurmd may have started, and a job on it.
            resource_version=pod.resource_version if deletion.only_unchanged else None,
            grace_period_seconds=deletion.grace_seconds,
        )
    except NotFound:
        runtime.expectations.deletion_observed(this.key, pod.uid)
        return None
    except BaseException:
        runtime.expectations.deletion_observed(this.key, pod.uid)
        raise
    return True


async def _is_still_free(cluster: Cluster | None, deletion: Deletion, *, live: bool) -> bool:
    """Return whether Slurm's newest answer still allows a deletion that was decided because of an
    earlier one.

    Raises SlurmError if it can't be read.
    """
    if not (deletion.drained or deletion.absent):
        return True
    if cluster is None:
        return False
    node = cluster.poller.nodes.get(deletion.pod.slurm_node)
    if deletion.absent:
        return node is None and not cluster.poller.trouble
    if node is None or not states.is_vacant(node.states):
        return False
    try:
        return not live or states.is_vacant(
            (await cluster.client.call(protocol.get_node(node.name), timeout=PATIENCE)).states
        )
    except UnknownToSlurm:
        return False


async def _creation(
    this: Pass, outcome: Outcome, desired: Desired, source: PodSource, action: actions.CreatePods
) -> None:
    outcome.creating = True
    try:
        await creation.create(this, _event_target(this), creation.orders(desired, source, action))
    except (KubeError, NotUsableError) as error:
        outcome.failed(error)


async def _set_owners(this: Pass, change: SetOwners) -> None:
    patch = {"metadata": {"uid": change.claim.uid, "ownerReferences": list(change.owners) or None}}
    try:
        await this.runtime.client.merge_patch(
            PERSISTENT_VOLUME_CLAIMS, this.key[0], change.claim.name, patch
        )
    except NotFound:
        log.debug("claim %s/%s is gone already", this.key[0], change.claim.name)


async def _one(this: Pass, outcome: Outcome, action: Action) -> None:
    """Apply the actions that come one by one."""
    try:
        match action:
            case actions.AdvanceReservation() | actions.RemoveReservation():
                await _reservation(this, outcome, action)
            case actions.SetDown(reason, slurm_nodes) if this.cluster is not None:
                unused = _still_unused(this, outcome, slurm_nodes)
                if await _slurm_writes(outcome, [partial(_set_down, this.cluster, unused, reason)]):
                    outcome.hint(RECORD_AGAIN)
            case (
                actions.Close()
                | actions.Reopen()
                | actions.CreateRecords()
                | actions.PowerUp()
                | actions.PowerDown()
                | actions.PowerDownWhenIdle()
            ) if this.cluster is not None:
                if await _slurm_writes(
                    outcome, [partial(power_saving.apply, this, this.cluster.poller, action)]
                ):
                    outcome.hint(RECORD_AGAIN)
            case actions.ReplaceRecords(_, former) if this.cluster is not None:
                unused = _still_unused(this, outcome, tuple(former))
                if await _slurm_writes(
                    outcome,
                    [
                        partial(
                            power_saving.replace_records, this, this.cluster.poller, action, unused
                        )
                    ],
                ):
                    outcome.hint(RECORD_AGAIN)
            case actions.DeleteRecords(slurm_nodes) if this.cluster is not None:
                await _delete_records(
                    this, this.cluster, outcome, _still_unused(this, outcome, slurm_nodes)
                )
            case actions.PruneRevision(name):
                await _prune(this, name)
            case actions.ReleaseNodeSet():
                if outcome.failure is None and not outcome.slurm_failed:
                    outcome.removed_finalizers.add(WORKERS_TERMINATE_FIRST)
    except KubeError as error:
        outcome.failed(error)


async def _remove_finalizers(this: Pass, outcome: Outcome) -> None:
    try:
        await remove_finalizers(this.runtime, NODESETS, this.manifest, outcome.removed_finalizers)
    except KubeError as error:
        outcome.failed(error)
    else:
        outcome.released = WORKERS_TERMINATE_FIRST in outcome.removed_finalizers


async def _reservation(
    this: Pass, outcome: Outcome, action: actions.AdvanceReservation | actions.RemoveReservation
) -> None:
    runtime, manifest = this.runtime, this.manifest
    try:
        if isinstance(action, actions.AdvanceReservation):
            await add_finalizer(runtime, NODESETS, manifest, maintenance.FINALIZER)
            if action.step.do == "delete":
                await _delete_reservation(this, action.name)
            elif action.step.do == "save":
                await _save_reservation(this, action.name, action.step)
            return
        if action.reachable:
            await _delete_reservation(this, action.name)
        outcome.removed_finalizers.add(maintenance.FINALIZER)
    except SlurmError as error:
        outcome.slurm_failed = True
        conditions = (manifest.get("status") or {}).get("conditions") or ()
        found = maintenance.failed(as_answer(error), conditions)
        outcome.reservation = found.condition
        outcome.hint(found.look_again)


async def _save_reservation(this: Pass, name: str, step: actions.Step) -> None:
    request = protocol.save_reservation(
        name,
        start_time=step.start,
        minutes=step.minutes,
        nodes=step.nodes,
        users=step.users,
        flags=step.flags,
    )
    assert this.cluster is not None  # noqa: S101 - decided from what it answered
    await this.cluster.poller.reserve(name, request)
    log.info("NodeSet %s/%s: saved reservation %s", *this.key, name)


async def _delete_reservation(this: Pass, name: str) -> None:
    assert this.cluster is not None  # noqa: S101 - decided while it was reachable
    try:
        await this.cluster.poller.reserve(name, protocol.delete_reservation(name))
    except UnknownToSlurm:
        log.debug("no reservation %s exists", name)


def _still_unused(this: Pass, outcome: Outcome, slurm_nodes: Sequence[str]) -> list[str]:
    """Return the Slurm nodes of which no pod is known now: since the decision pods may have been
    created, and their slurmd may run.
    """
    in_use = slurm_nodes_in_use(this)
    unused = [name for name in slurm_nodes if name not in in_use]
    if outcome.creating and not this.runtime.expectations.satisfied(this.key):
        # The watch does not show all of them yet.
        unused = []
    if len(unused) < len(slurm_nodes):
        outcome.hint(RECORD_AGAIN)
    return unused


async def _set_down(cluster: Cluster, slurm_nodes: Sequence[str], reason: str | None) -> None:
    if reason is None:
        await cluster.poller.drain(slurm_nodes, None)
    await cluster.poller.down(slurm_nodes, reason, owners=reasons.REPLACEABLE)


async def _delete_records(
    this: Pass, cluster: Cluster, outcome: Outcome, slurm_nodes: Sequence[str]
) -> None:
    deleted: list[str] = []

    async def delete(name: str) -> None:
        await cluster.poller.delete(name)
        deleted.append(name)

    if await _slurm_writes(outcome, [partial(delete, name) for name in slurm_nodes]):
        outcome.hint(RECORD_AGAIN)
    if deleted:
        log.info(
            "NodeSet %s/%s: deleted the records of Slurm nodes without a pod: %s",
            *this.key,
            compress(deleted),
        )


async def _prune(this: Pass, name: str) -> None:
    try:
        await this.runtime.client.delete(CONTROLLER_REVISIONS, this.key[0], name)
    except NotFound:
        return
    log.info("NodeSet %s/%s: deleted the old revision %s", *this.key, name)


async def _cordons(this: Pass, outcome: Outcome, wanted: Iterable[Action]) -> None:
    """Cordon and uncordon beside everything else, which does not wait for it. Given up as soon as
    something new is to be decided.
    """
    steps = [
        partial(_cordon, this, action.pod, "operator") for action in _of(actions.Cordon, wanted)
    ]
    steps += [partial(_cordon, this, action.pod, None) for action in _of(actions.Uncordon, wanted)]
    begun, in_time = itertools.count(), bulk.a_slice(this.runtime.now, lambda: False)

    def going_on() -> bool:
        # Some are written in every pass.
        hurried = this.memory.urgent or this.memory.slurm_changed
        return next(begun) < bulk.AT_ONCE or (in_time() and not hurried)

    await _writes(this, outcome, steps, going_on)


async def _cordon(this: Pass, pod: WorkerPod, by: str | None) -> None:
    annotations = {names.POD_CORDON: "true" if by else None, names.POD_CORDONED_BY: by}
    patch = {"metadata": {"uid": pod.uid, "annotations": annotations}}
    try:
        await this.runtime.client.merge_patch(PODS, this.key[0], pod.name, patch)
    except NotFound:
        log.debug("pod %s/%s is gone already", this.key[0], pod.name)
