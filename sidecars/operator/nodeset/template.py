"""What new worker pods are created from: the template and its revision, rendered and stored before
a pass decides.
"""

import logging
from dataclasses import replace

from sidecars.kube import Forbidden, Invalid, Manifest
from sidecars.operator.keys import distribution
from sidecars.operator.nodeset import creation, gpus, rendering, stored_revisions
from sidecars.operator.nodeset.passes import Pass, PodSource
from sidecars.operator.nodeset.rendering import Inputs, Rendered
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.errors import NotUsableError, RefusedError
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.upgrade import order, takeover
from sidecars.policy import upgrades
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import Ready
from sidecars.policy.upgrades import Block, Live
from sidecars.workloads.controller import slurm_key
from sidecars.workloads.facts import MissingReferenceError
from sidecars.workloads.nodeset import Revision
from sidecars.workloads.resources import Controller, NodeSet, ResourceError
from sidecars.workloads.structure import StructureError

log = logging.getLogger(__name__)


async def pod_source(this: Pass) -> PodSource:
    """Render and store what new pods are created from. Raises KubeError.

    Without a template no pod is created. Those that exist are still drained and scaled in.
    """
    nodeset = this.nodeset
    nothing = PodSource(nodeset.status.node_set_hash, nodeset.status.collision_count, None)
    if nodeset.metadata.deletion_timestamp is not None:
        return nothing
    try:
        return await _rendered_source(this)
    except NotUsableError as error:
        return replace(
            nothing, problem=Condition("Ready", "False", error.reason, str(error)), failure=error
        )


async def _rendered_source(this: Pass) -> PodSource:
    """Render the source of the pods. Raises NotUsableError with the reason why no pod can be
    created.
    """
    runtime, manifest, nodeset, rendered = (
        this.runtime,
        this.manifest,
        this.nodeset,
        this.memory.rendered,
    )
    try:
        controller = runtime.lookup.needed_controller(
            nodeset.namespace, nodeset.spec.controller_ref.name
        )
        taken = creation.conflict(
            nodeset, runtime.lookup.nodesets_of(nodeset.namespace, controller.name)
        )
        if taken is not None:
            raise NotUsableError(Ready.NAME_CONFLICT, taken)
        distribution.wait_for(runtime, nodeset.namespace, slurm_key(controller))
        given = rendering.inputs(
            nodeset, controller, await runtime.lookup.facts(controller, manifest)
        )
        # First of all, so that what can't be rendered is never stored.
        template = rendered.template(given)
        workload.check_identity(runtime, nodeset.namespace, template)
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
        await workload.apply_all(runtime, manifest, "NodeSet", lambda: rendered.objects(given))
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
            stay = _template_of(rendered, given, stays)
            workload.check_identity(runtime, nodeset.namespace, stay)
            return PodSource(
                stays.hash,
                nodeset.status.collision_count,
                stay,
                block.condition,
                order.again(block),
            )
        revision, collisions = await stored_revisions.current(this, given)
        return PodSource(revision.hash, collisions or None, _template_of(rendered, given, revision))
    except MissingReferenceError as error:
        raise NotUsableError(
            Ready.REFERENCE_MISSING, f"{error}; create it, and the operator continues"
        ) from error
    except ResourceError as error:
        raise NotUsableError(Ready.INVALID, str(error)) from error
    except (Forbidden, Invalid) as error:
        raise RefusedError("the ControllerRevision of", nodeset.name, error) from error


def _has_former_pods(runtime: Runtime, nodeset: NodeSet) -> bool:
    return any(map(takeover.is_former, runtime.caches.pods.store.by("owner", nodeset.own_id)))


def _blocked(
    runtime: Runtime, nodeset: NodeSet, controller: Controller
) -> tuple[Revision | None, Block] | None:
    """Return the revision to stay with, if any, and why not to use the newest, or None if nothing
    prevents that.
    """
    stored = stored_revisions.stored_of(runtime, nodeset)
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
    block = upgrades.block(
        "slurmd", Live(image, ready=True), wanted, order.before_workers(runtime, controller)
    )
    return (newest, block) if block is not None else None


def _template_of(rendered: Rendered, given: Inputs, revision: Revision) -> Manifest:
    try:
        return rendered.template_of(given, revision)
    except StructureError as error:
        # A base of another release, with variables that this one doesn't know.
        nodeset = given.nodeset
        log.warning(
            "NodeSet %s/%s: revision %s: %s", nodeset.namespace, nodeset.name, revision.hash, error
        )
        return rendered.template(given)
