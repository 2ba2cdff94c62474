"""Adds and removes the operator's finalizers."""

from collections.abc import Collection

from sidecars.custom_resources import IN_USE
from sidecars.kube import Manifest, Resource
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import Ready


async def add_finalizer(
    runtime: Runtime, resource: Resource, manifest: Manifest, finalizer: str
) -> Manifest:
    """Add the finalizer unless the object has it. Returns the object with it, to be used for
    further writes.

    Raises ApiError, Conflict when the list changed meanwhile.
    """
    newest = runtime.own_writes.newest(manifest)
    present = newest["metadata"].get("finalizers") or []
    if finalizer in present:
        return newest
    return await _set_finalizers(runtime, resource, newest, [*present, finalizer])


async def remove_finalizers(
    runtime: Runtime, resource: Resource, manifest: Manifest, finalizers: Collection[str]
) -> None:
    """Remove those that the object has, by one write. Raises ApiError, Conflict when the list
    changed meanwhile.
    """
    newest = runtime.own_writes.newest(manifest)
    present = newest["metadata"].get("finalizers") or []
    retained = [finalizer for finalizer in present if finalizer not in finalizers]
    if retained != present:
        await _set_finalizers(runtime, resource, newest, retained)


async def remove_finalizer_unless_used(
    runtime: Runtime, resource: Resource, manifest: Manifest, users: list[str]
) -> None:
    """Remove `IN_USE` from a Controller or RestApi that is being deleted, or report which NodeSets
    still need it.
    """
    if not users:
        await remove_finalizers(runtime, resource, manifest, {IN_USE})
        return
    message = f"NodeSets still refer to it: delete {', '.join(users)} first"
    await runtime.status.report(
        resource, manifest, [Condition("Ready", "False", Ready.IN_USE, message)]
    )


async def _set_finalizers(
    runtime: Runtime, resource: Resource, manifest: Manifest, finalizers: list[str]
) -> Manifest:
    metadata = manifest["metadata"]
    # With the resourceVersion it is a Conflict if the list was changed meanwhile.
    patch = {"metadata": {"finalizers": finalizers, "resourceVersion": metadata["resourceVersion"]}}
    request = runtime.client.merge_patch(resource, metadata["namespace"], metadata["name"], patch)
    await runtime.own_writes.write(manifest, request)
    return runtime.own_writes.newest(manifest)
