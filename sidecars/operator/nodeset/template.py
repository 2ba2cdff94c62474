"""What new worker pods are created from: the template and its revision, rendered and stored before a pass decides."""

import logging
from dataclasses import replace

from sidecars.kube import Forbidden, Invalid, Manifest
from sidecars.operator.keys import distribution
from sidecars.operator.nodeset import creation, gpus, revisions
from sidecars.operator.nodeset.passes import PodSource
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.errors import NotUsableError, RefusedError
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.upgrade import order, takeover
from sidecars.policy import upgrades
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import Ready
from sidecars.policy.upgrades import Block, Live
from sidecars.workloads import nodeset as render
from sidecars.workloads.controller import slurm_key
from sidecars.workloads.facts import Facts, MissingReferenceError
from sidecars.workloads.resources import Controller, NodeSet, ResourceError
from sidecars.workloads.structure import StructureError

log = logging.getLogger(__name__)


async def pod_source(runtime: Runtime, manifest: Manifest, nodeset: NodeSet) -> PodSource:
    """Render and store what new pods are created from. Raises KubeError.

    Without a template no pod is created. Those that exist are still drained and scaled in.
    """
    nothing = PodSource(nodeset.status.node_set_hash, nodeset.status.collision_count, None)
    if nodeset.metadata.deletion_timestamp is not None:
        return nothing
    try:
        return await _rendered_source(runtime, manifest, nodeset)
    except NotUsableError as error:
        return replace(nothing, problem=Condition("Ready", "False", error.reason, str(error)), failure=error)


async def _rendered_source(runtime: Runtime, manifest: Manifest, nodeset: NodeSet) -> PodSource:
    """Raises NotUsableError with the reason why no pod can be created."""
    try:
        controller = runtime.lookup.needed_controller(nodeset.namespace, nodeset.spec.controller_ref.name)
        taken = creation.conflict(nodeset, runtime.lookup.nodesets_of(nodeset.namespace, controller.name))
        if taken is not None:
            raise NotUsableError(Ready.NAME_CONFLICT, taken)
        distribution.wait_for(runtime, nodeset.namespace, slurm_key(controller))
        facts = await runtime.lookup.facts(controller, manifest)
        # First of all, so that what can't be rendered is never stored.
        template = render.pod_template(nodeset, controller, facts)
        refused = gpus.refusal(runtime, nodeset, template)
        if refused:
            raise NotUsableError(Ready.FEWER_GPUS_THAN_NODE, refused)
        waits = takeover.slurmctld_first(runtime, controller)
        if waits is not None and _has_former_pods(runtime, nodeset):
            return PodSource(
                nodeset.status.node_set_hash,
                nodeset.status.collision_count,
                None,
                waits.condition,
                order.again(waits),
            )
        await workload.apply_all(runtime, manifest, "NodeSet", lambda: render.objects(nodeset, controller, facts))
        blocked = _blocked(runtime, nodeset, controller)
        if blocked is not None:
            stays, block = blocked
            if stays is None:
                return PodSource(
                    nodeset.status.node_set_hash,
                    nodeset.status.collision_count,
                    None,
                    block.condition,
                    order.again(block),
                )
            stay = _rendered(nodeset, controller, facts, stays)
            return PodSource(stays.hash, nodeset.status.collision_count, stay, block.condition, order.again(block))
        revision, collisions = await revisions.current(runtime, nodeset, controller, facts)
        return PodSource(revision.hash, collisions or None, _rendered(nodeset, controller, facts, revision))
    except MissingReferenceError as error:
        raise NotUsableError(Ready.REFERENCE_MISSING, f"{error}; create it, and the operator continues") from error
    except ResourceError as error:
        raise NotUsableError(Ready.INVALID, str(error)) from error
    except (Forbidden, Invalid) as error:
        raise RefusedError("the ControllerRevision of", nodeset.name, error) from error


def _has_former_pods(runtime: Runtime, nodeset: NodeSet) -> bool:
    return any(map(takeover.is_former, runtime.caches.pods.store.by("owner", nodeset.own_id)))


def _blocked(runtime: Runtime, nodeset: NodeSet, controller: Controller) -> tuple[render.Revision | None, Block] | None:
    """The revision to stay with, if any, and why not to use the newest; None if nothing prevents that."""
    stored = revisions.stored_of(runtime, nodeset)
    wanted = str(nodeset.spec.slurmd.get("image") or "")
    if not wanted:
        return None
    if not stored:
        block = upgrades.block("slurmd", None, wanted, order.before_workers(runtime, controller))
        return (None, block) if block is not None else None
    newest = max(stored, key=lambda item: item.number).revision
    image = str((newest.data["spec"].get("slurmd") or {}).get("image") or "")
    if not image or image == wanted:
        return None
    block = upgrades.block("slurmd", Live(image, ready=True), wanted, order.before_workers(runtime, controller))
    return (newest, block) if block is not None else None


def _rendered(nodeset: NodeSet, controller: Controller, facts: Facts, revision: render.Revision) -> Manifest:
    try:
        return render.pod_template(nodeset, controller, facts, revision)
    except StructureError as error:
        # A base of another release, with variables that this one doesn't know.
        log.warning("NodeSet %s/%s: revision %s: %s", nodeset.namespace, nodeset.name, revision.hash, error)
        return render.pod_template(nodeset, controller, facts)
