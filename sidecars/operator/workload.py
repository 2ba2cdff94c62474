"""What Controller, RestApi and LoginSet have in common: objects applied in order, and readiness of one workload."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence

from sidecars.kube import ApiError, Manifest, Resource
from sidecars.operator.context import Context, NotUsableError
from sidecars.policy.conditions import Condition
from sidecars.workloads.facts import MissingReferenceError
from sidecars.workloads.resources import ResourceError

log = logging.getLogger(__name__)


@contextlib.contextmanager
def usable() -> Iterator[None]:
    """Turns what a render raises into NotUsableError."""
    try:
        yield
    except MissingReferenceError as error:
        raise NotUsableError("ReferenceMissing", f"{error}; it is taken up as soon as it does") from error
    except ResourceError as error:
        raise NotUsableError("Invalid", str(error)) from error


async def apply_all(context: Context, owner: Manifest, kind: str, render: Callable[[], Sequence[Manifest]]) -> None:
    """Render and apply. Raises NotUsableError, with what to do, when the resource can't be rendered or is refused."""
    with usable():
        manifests = render()
    for manifest in manifests:
        try:
            changed = await context.applier.apply(manifest)
        except ApiError as error:
            if error.status not in {400, 403, 422}:
                raise
            name = manifest["metadata"]["name"]
            raise NotUsableError("Refused", f"the API server refuses {manifest['kind']} {name}: {error}") from error
        if changed:
            log.info("%s %s: applied %s %s", kind, _name(owner), manifest["kind"], manifest["metadata"]["name"])


def readiness(context: Context, resource: Resource, namespace: str, name: str) -> Condition:
    """The condition `Ready` of a StatefulSet or Deployment that has been applied."""
    live = context.caches.live(resource, namespace, name)
    if live is None:
        return Condition("Ready", "False", "Starting", f"{resource.kind} {name} is being created")
    status, wanted = live.get("status") or {}, (live.get("spec") or {}).get("replicas", 1)
    generation = live["metadata"].get("generation", 0)
    ready = status.get("readyReplicas", 0)
    updated = status.get("updatedReplicas", 0)
    if status.get("observedGeneration", 0) < generation or updated < wanted:
        return Condition(
            "Ready", "False", "Updating", f"{updated} of {wanted} pods of {resource.kind} {name} are updated"
        )
    if ready < wanted:
        said = f"{ready} of {wanted} pods of {resource.kind} {name} are ready; see `kubectl -n {namespace} get pods`"
        return Condition("Ready", "False", "PodsNotReady", said)
    return Condition("Ready", "True", "Ready", f"{ready} of {wanted} pods are ready")


def _name(manifest: Manifest) -> str:
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"
