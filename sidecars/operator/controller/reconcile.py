"""One pass over one Controller."""

from sidecars.custom_resources import CONTROLLERS, IN_USE
from sidecars.kube import STATEFUL_SETS, Manifest
from sidecars.operator.controller import effects, leftovers, monitoring, observe
from sidecars.operator.controller.memory import Memory
from sidecars.operator.controller.observe import Observed
from sidecars.operator.core import keys
from sidecars.operator.keys import distribution, generation
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.finalizers import add_finalizer, remove_finalizer_unless_used
from sidecars.operator.runtime.kept import AGAIN_SECONDS
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.upgrade import accounting, order, takeover
from sidecars.policy import failover, gate
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import Ready
from sidecars.policy.upgrades import Block
from sidecars.workloads import names
from sidecars.workloads.resources import Controller, ResourceError


async def reconcile(runtime: Runtime, memory: Memory, key: Key) -> None:
    """Run one pass: connect to Slurm, publish the configuration, apply slurmctld and its objects,
    report.
    """
    namespace, name = key
    manifest = runtime.caches.controllers.store.get(namespace, name)
    if manifest is None:
        memory.forget(key)
        await distribution.forget(memory.distributions, key)
        await runtime.clusters.want(key, None)
        return
    if manifest["metadata"].get("deletionTimestamp"):
        unread = await effects.connect(runtime, key, manifest)
        await remove_finalizer_unless_used(
            runtime, CONTROLLERS, manifest, runtime.lookup.users_of(*key)
        )
        workload.raise_retried(unread)
        return
    try:
        controller = runtime.lookup.controller(namespace, name)
    except ResourceError as error:
        await runtime.status.report(
            CONTROLLERS, manifest, [Condition("Ready", "False", Ready.INVALID, str(error))]
        )
        return
    assert controller is not None  # noqa: S101 - its manifest was found above
    await effects.connect(runtime, key, manifest)
    await add_finalizer(runtime, CONTROLLERS, manifest, IN_USE)
    conditions: list[Condition] = []
    failure: Exception | None
    unknown: tuple[str, ...] = ()
    try:
        ready, failure = await _bring(runtime, memory, key, manifest, controller, conditions)
    except NotUsableError as error:
        failure, ready = error, workload.refused(runtime, manifest, error)
        # What this pass hasn't come to is as it was.
        unknown = _GATES if conditions else (*_GATES, keys.TYPE, monitoring.TYPE)
    await leftovers.prune(runtime, key)
    effects.emit_events(runtime, manifest, conditions)
    for reported in (
        runtime.autoscaled.get(("Controller", key)),
        runtime.accounts.get(key),
        runtime.users.get(key),
    ):
        conditions += [] if reported is None else [reported]
    reachable = observe.slurm_reachable(runtime, key)
    await runtime.status.report(
        CONTROLLERS, manifest, [ready, *conditions, reachable], unknown=unknown
    )
    workload.raise_retried(failure)


_GATES = (gate.ACCEPTED, gate.RUNNING, failover.START_GATED)


async def _bring(
    runtime: Runtime,
    memory: Memory,
    key: Key,
    manifest: Manifest,
    controller: Controller,
    conditions: list[Condition],
) -> tuple[Condition, Exception | None]:
    """Publish, apply, follow. The condition `Ready`, and a failure for which nothing waits.

    The other conditions are added to `conditions` as soon as they are known. Raises NotUsableError.
    """
    slurm_key, without_keys = await _keys(runtime, memory, manifest, controller)
    conditions.append(slurm_key)
    monitored, unmonitored = await monitoring.apply(runtime, manifest, controller)
    conditions += monitored
    ready, gates, unapplied = await _configure(runtime, memory, key, manifest, controller)
    conditions += gates
    return ready, without_keys or unapplied or unmonitored


async def _configure(
    runtime: Runtime, memory: Memory, key: Key, manifest: Manifest, controller: Controller
) -> tuple[Condition, list[Condition], Exception | None]:
    """Publish, apply, follow. The condition `Ready`, those of the gate, and why an object could not
    be applied: what doesn't need it continues.

    Raises NotUsableError.
    """
    accounting.check(runtime, controller)
    lacks = observe.claim_condition(runtime, controller)
    observed = await observe.configuration(runtime, controller)
    taking_over = await takeover.replaces_slurmctld(runtime, controller)
    if taking_over:
        takeover.check_slurmctld(runtime, controller, observed.faults)
    elif not observed.faults:
        # A configuration with a fault is not published; everything else continues.
        await effects.publish(runtime, manifest, controller, observed)
    blocked, unapplied = await effects.apply_slurmctld(runtime, manifest, controller, observed)
    unshared = await effects.apply_shared(runtime, manifest, controller, observed)
    if taking_over and unapplied is not None:
        raise unapplied
    if taking_over and blocked is None:
        # Not earlier: the former slurmctld reads it too.
        await effects.publish(runtime, manifest, controller, observed)
    ready, gates = await _follow(runtime, memory, manifest, controller, observed, blocked, lacks)
    failure = unapplied or unshared
    if isinstance(failure, NotUsableError):
        ready = workload.refused(runtime, manifest, failure)
    return ready, gates, failure


async def _follow(
    runtime: Runtime,
    memory: Memory,
    manifest: Manifest,
    controller: Controller,
    observed: Observed,
    blocked: Block | None,
    lacks: Condition | None,
) -> tuple[Condition, list[Condition]]:
    """Bring slurmctld to the published configuration. The condition `Ready`, and those of the gate.

    `blocked`: why slurmctld keeps its image. `lacks`: what is wrong with the claim of its state.
    Raises NotUsableError.
    """
    key = controller.namespace, controller.name
    if controller.spec.external:
        memory.forget(key)
        if observed.faults:
            return Condition("Ready", "False", Ready.INVALID, "; ".join(observed.faults)), []
        return Condition(
            "Ready", "True", Ready.EXTERNAL, "slurmctld runs outside this Kubernetes cluster"
        ), []
    await effects.label_primary(runtime, memory, key, controller)
    with workload.usable():
        gates = await effects.follow(runtime, memory, key, controller, observed)
    await effects.accept(runtime, memory, manifest, controller)
    if blocked is not None:
        if (seconds := order.again(blocked)) is not None:
            runtime.queues.controllers.add_after(key, seconds)
        return gate.ready(blocked.condition, gates), gates
    ready = workload.readiness(runtime, STATEFUL_SETS, key[0], names.controller(key[1]))
    if runtime.kept.of(STATEFUL_SETS.kind, key[0], names.controller(key[1])):
        runtime.queues.controllers.add_after(key, AGAIN_SECONDS)
    ready = lacks if lacks is not None and ready.status != "True" else ready
    return gate.ready(ready, gates), gates


async def _keys(
    runtime: Runtime, memory: Memory, manifest: Manifest, controller: Controller
) -> tuple[Condition, NotUsableError | None]:
    """Return the condition of the keys.

    Nothing waits for them if slurmctld is external: the problem is returned. Else raises
    NotUsableError.
    """
    try:
        facts = await runtime.lookup.facts(controller)
        with workload.usable():
            await generation.keys(runtime, controller)
        return await distribution.distribute(
            runtime, memory.distributions, manifest, controller, facts
        ), None
    except NotUsableError as error:
        if not controller.spec.external:
            raise
        return Condition("SlurmKey", "False", error.reason, str(error)), error
