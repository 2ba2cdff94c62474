"""Adds and removes the operator's finalizers."""

from sidecars.custom_resources import IN_USE
from sidecars.kube import Manifest, Resource
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.conditions import Condition


async def add_finalizer(runtime: Runtime, resource: Resource, manifest: Manifest, finalizer: str) -> None:
    """Add the finalizer unless the object has it. Raises ApiError, Conflict when the list changed meanwhile."""
    present = manifest["metadata"].get("finalizers") or []
    if finalizer not in present:
        await _set_finalizers(runtime, resource, manifest, [*present, finalizer])


async def remove_finalizer(runtime: Runtime, resource: Resource, manifest: Manifest, finalizer: str) -> None:
    """Remove the finalizer if the object has it. Raises ApiError, Conflict when the list changed meanwhile."""
    present = manifest["metadata"].get("finalizers") or []
    if finalizer in present:
        await _set_finalizers(runtime, resource, manifest, [other for other in present if other != finalizer])


async def remove_finalizer_unless_used(
    runtime: Runtime, resource: Resource, manifest: Manifest, users: list[str]
) -> None:
    """Remove `IN_USE` from a Controller or RestApi that is being deleted, or report which NodeSets still need it."""
    if not users:
        await remove_finalizer(runtime, resource, manifest, IN_USE)
        return
    message = f"kept until its NodeSets are gone: {', '.join(users)}"
    await runtime.status.report(resource, manifest, [Condition("Ready", "False", "InUse", message)])


async def _set_finalizers(runtime: Runtime, resource: Resource, manifest: Manifest, finalizers: list[str]) -> None:
    metadata = manifest["metadata"]
    # With the resourceVersion it is a Conflict if the list was changed meanwhile.
    patch = {"metadata": {"finalizers": finalizers, "resourceVersion": metadata["resourceVersion"]}}
    await runtime.client.merge_patch(resource, metadata["namespace"], metadata["name"], patch)
