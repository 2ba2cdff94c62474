"""One pass over one NodeSet: prepare, observe, decide, apply, report.

`sidecars.policy.nodeset` decides. When `replicas` changes, the watch wakes the NodeSet (`wiring`),
and a pass

1. prepares the decision: it adopts pods, and renders and stores what new pods are created from
   (`template`). The decision needs the revision that the API server has accepted;
2. observes the pods and Slurm (`observe`), without any write;
3. decides which pods are missing and which are condemned. What the decision needs to know first,
   such as the jobs, is read, and the decision is taken again (`answers`);
4. applies it (`effects`): it drains the Slurm nodes of condemned pods, deletes those whose nodes
   are drained, and creates missing ones;
5. reports conditions and status.

Each change in the pods or in Slurm starts another pass, until nothing is left to be done.
"""

from sidecars.autoscaling import sizing
from sidecars.custom_resources import NODESETS, WORKERS_TERMINATE_FIRST
from sidecars.operator.nodeset import cordons, deferral
from sidecars.operator.nodeset.adoption import adopt, delete_revisions
from sidecars.operator.nodeset.answers import decided
from sidecars.operator.nodeset.effects import apply
from sidecars.operator.nodeset.memories import Memories
from sidecars.operator.nodeset.observe import as_applied, observe
from sidecars.operator.nodeset.passes import Pass, PodSource
from sidecars.operator.nodeset.template import pod_source
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.finalizers import add_finalizer, remove_finalizers
from sidecars.operator.runtime.notices import is_unscheduled
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import own_id
from sidecars.policy.conditions import Condition
from sidecars.policy.nodeset.report import report
from sidecars.policy.reasons import Ready
from sidecars.workloads.resources import NodeSet, ResourceError, read

ADOPTED_SECONDS = 1.0
"""After pods or their cordons were taken over, how soon to look again if the watch doesn't show it
earlier.
"""


async def reconcile(runtime: Runtime, memories: Memories, key: Key) -> float | None:
    """Run one pass. Return after how many seconds to look again if nothing wakes the NodeSet
    earlier.
    """
    this = await _begin(runtime, memories, key)
    if this is None:
        return None
    source = await _prepare(this)
    if source is None:
        return ADOPTED_SECONDS
    await _ask_node_autoscalers(this)
    desired, observed = observe(this, source)
    decision, observed = await decided(this, desired, observed)
    this.memory.decided = decision.memory
    if this.cluster is not None and decision.progress.waiting:
        this.cluster.poller.hurry()

    outcome = await apply(this, desired, source, decision.actions)
    if outcome.released:
        return None

    conditions, status = decision.conditions, decision.status
    if outcome.applied:
        observed = as_applied(this, observed)
        progress = outcome.progress(decision.progress)
        conditions, status = report(desired, observed, progress, runtime.now(), outcome.condition)
    await runtime.status.report(NODESETS, this.manifest, (*conditions, *_autoscaled(this)), status)
    outcome.hint(
        deferral.wake_if_due(
            runtime, this.memory.deferral, observed.pods, desired.pods, outcome.failure
        )
    )
    if outcome.failure is not None:
        # For the queue's back-off.
        raise outcome.failure
    outcome.hint(decision.look_again)
    if outcome.look_again is not None and source.failure is not None:
        runtime.queues.nodesets.add_after(key, outcome.look_again)
    workload.raise_retried(source.failure)
    return outcome.look_again


async def _prepare(this: Pass) -> PodSource | None:
    """Write what the decision is based on, and return what new pods are created from.

    Return None when pods or cordons were taken over: another pass decides about them. Raises
    KubeError.
    """
    if await adopt(this) or await cordons.take_over(this):
        return None
    await delete_revisions(this)
    return await pod_source(this)


async def _ask_node_autoscalers(this: Pass) -> None:
    """Have what node autoscalers report, while a pod that power saving has started has no
    Kubernetes node.
    """
    if not this.nodeset.spec.power_saving.enabled:
        return
    if any(map(is_unscheduled, this.runtime.caches.pods.store.by("owner", this.nodeset.own_id))):
        await this.runtime.notices.refresh(
            this.runtime.client, this.nodeset.namespace, this.runtime.now()
        )


def _autoscaled(this: Pass) -> tuple[Condition, ...]:
    """Return what autoscaling reports about the NodeSet."""
    if this.nodeset.spec.autoscaling is None:
        return ()
    condition = this.runtime.autoscaled.get(("NodeSet", this.key)) or sizing.reported(
        (this.manifest.get("status") or {}).get("conditions") or ()
    )
    return (condition,) if condition is not None else ()


async def _begin(runtime: Runtime, memories: Memories, key: Key) -> Pass | None:
    """Return what the pass works with, None for a NodeSet that does not exist or can't be read."""
    manifest = runtime.caches.nodesets.store.get(*key)
    if manifest is None:
        runtime.expectations.forget(key)
        memories.forget(key)
        return None
    memory = memories.of(key)
    try:
        nodeset = read(NodeSet, manifest)
    except ResourceError as error:
        await runtime.status.report(
            NODESETS, manifest, [Condition("Ready", "False", Ready.INVALID, str(error))]
        )
        deferral.wake_all(runtime, memory.deferral)
        gone = not runtime.caches.pods.store.by("owner", own_id(manifest))
        if manifest["metadata"].get("deletionTimestamp") and gone:
            await remove_finalizers(runtime, NODESETS, manifest, {WORKERS_TERMINATE_FIRST})
        return None
    if nodeset.metadata.deletion_timestamp is None:
        manifest = await add_finalizer(runtime, NODESETS, manifest, WORKERS_TERMINATE_FIRST)
    # From here on: what the watch shows of the finalizer is no reason to hurry.
    memory.urgent = memory.slurm_changed = False
    cluster = runtime.clusters.get((nodeset.namespace, nodeset.spec.controller_ref.name))
    return Pass(runtime, memory, key, manifest, nodeset, cluster, memories)
