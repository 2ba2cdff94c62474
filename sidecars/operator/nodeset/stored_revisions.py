"""The ControllerRevisions of a NodeSet: stored before a pod is created from one, pruned when no pod
has one.
"""

import contextlib
import logging

from sidecars.kube import CONTROLLER_REVISIONS, AlreadyExists, Manifest, NotFound
from sidecars.operator.nodeset.passes import Pass
from sidecars.operator.nodeset.rendering import Inputs
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.nodeset import revisions
from sidecars.workloads import nodeset as render
from sidecars.workloads.resources import NodeSet

log = logging.getLogger(__name__)

_COLLISIONS = 20


async def current(this: Pass, given: Inputs) -> tuple[render.Revision, int]:
    """Return the revision to create pods from, stored as the newest one, and the NodeSet's
    collision count. Raises ResourceError, MissingReferenceError and ApiError.
    """
    runtime, nodeset, rendered = this.runtime, this.nodeset, this.memory.rendered
    first = nodeset.status.collision_count or 0
    stored = stored_of(runtime, nodeset)
    for collisions in range(first, first + _COLLISIONS):
        asked = rendered.revision(given, collisions)
        choice = revisions.choose(asked, stored)
        if choice.store_as is not None:
            manifest = render.revision_object(nodeset, asked, choice.store_as)
            try:
                await runtime.client.create(CONTROLLER_REVISIONS, manifest)
                log.info(
                    "NodeSet %s/%s: stored revision %s", nodeset.namespace, nodeset.name, asked.hash
                )
            except AlreadyExists:
                # Ours, and the cache lags; or another owner's of the same name.
                there = await _same(runtime, nodeset, asked, manifest["metadata"]["name"])
                if there is None:
                    continue
                return there, collisions
        elif choice.collision:
            continue
        elif choice.renumber is not None:
            name, number = choice.renumber
            # Created again: any patch re-encodes `data`, which the API server then takes for a
            # change of it. A crash in between costs nothing but the old base.
            with contextlib.suppress(NotFound):
                await runtime.client.delete(CONTROLLER_REVISIONS, nodeset.namespace, name)
            manifest = render.revision_object(nodeset, choice.revision, number)
            await runtime.client.create(CONTROLLER_REVISIONS, manifest)
            log.info(
                "NodeSet %s/%s: rolls to revision %s again",
                nodeset.namespace,
                nodeset.name,
                choice.revision.hash,
            )
        return choice.revision, collisions
    raise RuntimeError(f"{_COLLISIONS} names of ControllerRevisions in a row are taken")


def stored_of(runtime: Runtime, nodeset: NodeSet) -> list[revisions.Stored]:
    """Return the NodeSet's revisions as last seen. Objects without a revision of ours are left
    out.
    """
    stored = []
    for manifest in runtime.caches.controller_revisions.store.by("owner", nodeset.own_id):
        try:
            revision = render.revision_of(manifest)
        except ValueError as error:
            log.debug("%s", error)
            continue
        stored.append(
            revisions.Stored(
                manifest["metadata"]["name"], int(manifest.get("revision") or 0), revision
            )
        )
    return stored


async def _same(
    runtime: Runtime, nodeset: NodeSet, asked: render.Revision, name: str
) -> render.Revision | None:
    """Return the live revision of that name if it is this NodeSet's and has the asked content."""
    manifest: Manifest = await runtime.client.get(CONTROLLER_REVISIONS, nodeset.namespace, name)
    owners = manifest["metadata"].get("ownerReferences") or ()
    if not any(owner.get("uid") == nodeset.metadata.uid for owner in owners):
        return None
    try:
        revision = render.revision_of(manifest)
    except ValueError:
        return None
    return revision if revision.content == asked.content else None
