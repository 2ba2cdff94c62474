"""One pass over the users that a Controller declares: read, check, apply, have the pods refresh,
report.

`sidecars.policy.users` decides. A declaration that is missing or wrong changes nothing: pods keep
the users that they have. Without a reference, they have none.
"""

from dataclasses import dataclass

from sidecars.kube import Manifest
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.users import effects
from sidecars.policy.conditions import Condition
from sidecars.policy.users import report
from sidecars.policy.users.declared import Declared, DeclaredError, faults, files, parse
from sidecars.workloads.facts import combined, config_map_digests, digest
from sidecars.workloads.references import Reference
from sidecars.workloads.resources import Controller, ResourceError

NUDGE_SECONDS = (0.0, 3.0)
"""Seconds after a change when pods are annotated. The second time is for a kubelet whose own watch
was late.
"""
SETTLE_SECONDS = 6.0
"""Seconds after a change until which running pods have it."""


@dataclass(slots=True)
class Change:
    """The files that were applied last, by this process."""

    mark: str
    since: float
    nudges: int = 0


Memories = dict[Key, Change]
"""By Controller; of those alone whose users have changed."""


async def reconcile(runtime: Runtime, memories: Memories, key: Key) -> float | None:
    """Run one pass. Return after how many seconds to look again, None if nothing is under way.
    Raises KubeError.
    """
    manifest = runtime.caches.controllers.store.get(*key)
    controller = _controller(runtime, key)
    if manifest is None or controller is None or controller.metadata.deletion_timestamp:
        _forget(runtime, memories, key)
        return None
    reference = controller.spec.users_ref
    declared, text, without = Declared(), b"", None
    if reference is None:
        if not effects.present(runtime, controller):
            _forget(runtime, memories, key)
            return None
    else:
        try:
            await runtime.contents.read([Reference("Secret", key[0], reference.name)])
            secret = runtime.contents.secret(key[0], reference.name)
        except NotUsableError as error:
            _report(runtime, key, report.unread(str(error)))
            raise
        if secret is None or reference.key not in secret.data:
            runtime.users_settle.pop(key, None)
            _report(
                runtime,
                key,
                report.missing(reference.name, reference.key, exists=secret is not None),
            )
            return None
        text, without = secret.data[reference.key], secret.data.get(report.LEFT_OUT)
        try:
            declared = parse(text)
            wrong = list(faults(declared))
        except DeclaredError as error:
            wrong = [str(error)]
        if wrong:
            runtime.users_settle[key] = digest(text), 0.0
            _report(runtime, key, report.invalid(reference.name, reference.key, wrong))
            return None
    again = await _distribute(
        runtime, memories, key, manifest, controller, files(declared) if reference else {}
    )
    if reference is None:
        runtime.users_settle.pop(key, None)
        _report(runtime, key, None)
    else:
        runtime.users_settle[key] = (
            digest(text),
            memories[key].since + SETTLE_SECONDS if key in memories else 0.0,
        )
        _report(runtime, key, report.applied(declared, without, settled=again is None))
    return again


async def _distribute(
    runtime: Runtime,
    memories: Memories,
    key: Key,
    manifest: Manifest,
    controller: Controller,
    desired: dict[str, str],
) -> float | None:
    """Bring the files into the ConfigMap and the pods. After how many seconds to continue; None
    when they have them.
    """
    mark = combined({"": config_map_digests(desired)})[:12]
    change = memories.get(key)
    # The cache may lag behind the last write. A ConfigMap that differs later was changed or deleted
    # by someone else.
    awaited = (
        change is not None and change.mark == mark and runtime.now() - change.since < SETTLE_SECONDS
    )
    if not awaited and effects.present(runtime, controller) != desired:
        await effects.store(runtime, manifest, controller, desired)
        change = memories[key] = Change(mark, runtime.now())
    if change is None:
        return None
    age = runtime.now() - change.since
    if change.nudges < len(NUDGE_SECONDS) and age >= NUDGE_SECONDS[change.nudges]:
        change.nudges += 1
        await effects.nudge(runtime, key, controller, f"{mark}.{change.nudges}")
    ahead = [*NUDGE_SECONDS[change.nudges :], SETTLE_SECONDS]
    if age >= SETTLE_SECONDS:
        del memories[key]
        return None
    return max(0.05, ahead[0] - age)


def _controller(runtime: Runtime, key: Key) -> Controller | None:
    """Read the Controller. What can't be read is reported in the Controller's own pass."""
    try:
        return runtime.lookup.controller(*key)
    except ResourceError:
        return None


def _forget(runtime: Runtime, memories: Memories, key: Key) -> None:
    memories.pop(key, None)
    runtime.users_settle.pop(key, None)
    _report(runtime, key, None)


def _report(runtime: Runtime, key: Key, condition: Condition | None) -> None:
    """Have the pass over the Controller write the condition."""
    if runtime.users.get(key) == condition:
        return
    if condition is None:
        del runtime.users[key]
    else:
        runtime.users[key] = condition
    runtime.queues.controllers.add(key)
