"""One pass over what a Controller declares for slurmdbd: read, plan, apply, read again, report.

`sidecars.operator.accounts.core` decides. slurmdbd reports no changes, so it is read once a minute.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sidecars.kube import Manifest
from sidecars.operator.accounts import effects
from sidecars.operator.accounts.core import report, reservations
from sidecars.operator.accounts.core.declared import KEY, Declared, DeclaredError, faults, parse
from sidecars.operator.accounts.core.live import Live
from sidecars.operator.accounts.core.plan import exists, plan
from sidecars.operator.accounts.core.record import Record, digest
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.contents import NotReadError
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import AccountsApplied, EventReason
from sidecars.slurm.errors import SlurmError
from sidecars.workloads import references
from sidecars.workloads.facts import digest as text_digest
from sidecars.workloads.resources import Controller, ResourceError

EVERY = 60.0
"""Seconds between two readings of slurmdbd."""
FIRST_USERS_SECONDS = 60.0
"""How long to wait for the first users in a Secret that exists without its key: a directory's come
soon after it.
"""
USERS_SECONDS = 0.5
"""Seconds until the pass over declared users has surely looked at them."""
ROUNDS = 4
"""A deletion may become possible only after other changes."""


@dataclass(slots=True)
class Memory:
    """What is remembered of one Controller. `record` was stored last: it is newer than what the
    watch may show.
    """

    record: Record
    announced: Sequence[str] = ()
    """The changes of the last Event. A deletion that is refused each minute needs no Event each
    minute.
    """
    users: frozenset[str] | None = None
    """The users of the operating system at the last pass. None: this is the first."""


Memories = dict[Key, Memory]
"""By Controller; of those alone that declare something."""


async def reconcile(runtime: Runtime, memories: Memories, key: Key) -> float | None:
    """Run one pass. Return after how many seconds to look again, None if nothing is declared.
    Raises SlurmError.
    """
    manifest = runtime.caches.controllers.store.get(*key)
    controller = _controller(runtime, key)
    reference = controller.spec.declared_accounts_ref if controller is not None else None
    if (
        manifest is None
        or controller is None
        or reference is None
        or controller.metadata.deletion_timestamp
    ):
        memories.pop(key, None)
        _report(runtime, key, None)
        return None
    await runtime.contents.read(references.of(manifest))
    data = runtime.contents.config_map(key[0], reference.name)
    cluster = runtime.clusters.get(key)
    if data is None or KEY not in data:
        _report(runtime, key, report.missing(reference.name, exists=data is not None))
        return None
    if (seconds := _until_users_settle(runtime, key, controller)) > 0:
        return seconds
    if cluster is None:
        _report(runtime, key, report.no_rest_api())
        return None
    text = data[KEY]
    memory = memories.setdefault(key, Memory(effects.recorded(runtime, controller)))
    try:
        declared = parse(text)
        condition = await _apply(
            runtime,
            memory,
            manifest,
            controller,
            cluster,
            declared,
            digest(text if isinstance(text, str) else ""),
        )
    except DeclaredError as error:
        _report(runtime, key, Condition(report.TYPE, "False", AccountsApplied.INVALID, str(error)))
        return None
    except SlurmError as error:
        _report(
            runtime, key, Condition(report.TYPE, "Unknown", AccountsApplied.NO_ANSWER, str(error))
        )
        raise
    _report(runtime, key, condition)
    return EVERY


async def _apply(
    runtime: Runtime,
    memory: Memory,
    manifest: Manifest,
    controller: Controller,
    cluster: Cluster,
    declared: Declared,
    applied: str,
) -> Condition:
    """Bring slurmdbd to the declaration. Raises SlurmError, NotUsableError and KubeError."""
    record = memory.record
    former: Sequence[str] = ()
    refused: list[str] = []
    for number in range(ROUNDS):
        live = await effects.read(cluster, controller.cluster_name, runtime.now())
        if number == 0:
            await _look_up_late_users(runtime, memory, controller, cluster, live)
        wrong = [*faults(declared, live), *reservations.faults(declared, live)]
        if wrong:
            return report.invalid(wrong)
        step = plan(declared, live, record.created)
        texts = [change.text for change in step.changes]
        if declared.dry_run and texts:
            return report.planned(texts, step.left)
        if not texts:
            created = frozenset(name for name in record.created if exists(name, live))
            await _store(runtime, memory, manifest, controller, Record(created, applied))
            memory.announced = ()
            return report.applied(declared, step.left)
        if texts == former:
            break
        if number == 0 and texts != memory.announced:
            memory.announced = texts
            _announce(runtime, manifest, texts, drift=record.applied == applied)
        # Before the first of them, so that an interruption forgets nothing that was created.
        record = Record(step.created(record.created), record.applied)
        await _store(runtime, memory, manifest, controller, record)
        refused, others = await effects.apply(cluster, step.changes)
        record = Record(record.created - others, record.applied)
        former = texts
    await _store(runtime, memory, manifest, controller, record)
    return report.not_applied(former, refused)


async def _look_up_late_users(
    runtime: Runtime, memory: Memory, controller: Controller, cluster: Cluster, live: Live
) -> None:
    """Have slurmctld look up users that have come, as from a directory, after their accounts."""
    present = effects.present_users(runtime, controller)
    new = present - memory.users if memory.users is not None else frozenset()
    memory.users = present
    if late := sorted(
        {it.user for it in live.associations if it.cluster == live.cluster and it.user in new}
    ):
        await effects.look_up_users(cluster, (controller.namespace, controller.name), late)


async def _store(
    runtime: Runtime, memory: Memory, manifest: Manifest, controller: Controller, record: Record
) -> None:
    await effects.store(runtime, manifest, controller, record)
    memory.record = record


def _until_users_settle(runtime: Runtime, key: Key, controller: Controller) -> float:
    """Return the seconds until slurmctld can have the users of the operating system that are
    declared beside these, 0 if it has.

    slurmctld looks the number of a user up when slurmdbd reports the user, and of one that doesn't
    exist then only once an hour. Users that are declared wrongly, or nowhere, are not waited for,
    and those that are to come for a bounded time.
    """
    reference = controller.spec.users_ref
    try:
        secret = runtime.contents.secret(key[0], reference.name) if reference is not None else None
    except NotReadError:
        return USERS_SECONDS
    text = secret.data.get(reference.key) if secret is not None and reference is not None else None
    if text is None and secret is not None:
        since = runtime.users_awaited.setdefault(key, runtime.now())
        return USERS_SECONDS if runtime.now() - since < FIRST_USERS_SECONDS else 0.0
    runtime.users_awaited.pop(key, None)
    if text is None:
        return 0.0
    former, settled_at = runtime.users_settle.get(key, ("", 0.0))
    if former != text_digest(text):
        return USERS_SECONDS
    return max(0.0, settled_at - runtime.now())


def _controller(runtime: Runtime, key: Key) -> Controller | None:
    """Read the Controller. What can't be read is reported in the Controller's own pass."""
    try:
        return runtime.lookup.controller(*key)
    except ResourceError:
        return None


def _announce(runtime: Runtime, manifest: Manifest, texts: Sequence[str], *, drift: bool) -> None:
    if drift:
        runtime.events.emit(
            manifest, "Warning", EventReason.ACCOUNTS_DRIFT, "Apply", report.listed(texts, 10)
        )
    else:
        runtime.events.emit(
            manifest, "Normal", EventReason.ACCOUNTS_CHANGED, "Apply", report.listed(texts, 10)
        )


def _report(runtime: Runtime, key: Key, condition: Condition | None) -> None:
    """Have the pass over the Controller write the condition."""
    if runtime.accounts.get(key) == condition:
        return
    if condition is None:
        del runtime.accounts[key]
    else:
        runtime.accounts[key] = condition
    runtime.queues.controllers.add(key)
