"""What kinds with one StatefulSet or Deployment share: objects applied in order, restarts reported, readiness."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from sidecars.kube import DEPLOYMENTS, PODS, STATEFUL_SETS, ApiError, Manifest, NotFound, Resource, records
from sidecars.operator.runtime.apply import APPLIED, with_former_image
from sidecars.operator.runtime.errors import NotUsableError, RefusedError
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy import rollout
from sidecars.policy.conditions import Condition
from sidecars.policy.conditions import find as condition_of
from sidecars.policy.reasons import EventReason, Ready
from sidecars.workloads.facts import MissingReferenceError
from sidecars.workloads.resources import GROUP, ResourceError

log = logging.getLogger(__name__)

_WITH_EVERY_START = {
    Ready.WAITING_FOR_ACCOUNTING,
    Ready.WAITING_FOR_KEYS,
    Ready.WAITING_FOR_CONFIGURATION,
    Ready.TAKING_OVER,
}
"""Reasons that are no failure."""


@contextlib.contextmanager
def usable() -> Iterator[None]:
    """Turns what a render raises into NotUsableError."""
    try:
        yield
    except MissingReferenceError as error:
        raise NotUsableError(Ready.REFERENCE_MISSING, f"{error}; create it, and the operator continues") from error
    except ResourceError as error:
        raise NotUsableError(Ready.INVALID, str(error)) from error


async def apply_all(runtime: Runtime, owner: Manifest, kind: str, render: Callable[[], Sequence[Manifest]]) -> None:
    """Render and apply. Raises NotUsableError, with what to do, when the resource can't be rendered or is refused."""
    with usable():
        manifests = render()
    for each in manifests:
        manifest = _with_former_sidecars(runtime, each)
        restart = _restart(runtime, manifest)
        try:
            changed = await runtime.applier.apply(manifest)
        except ApiError as error:
            if error.status not in {400, 403, 422}:
                raise
            name = manifest["metadata"]["name"]
            raise RefusedError(manifest["kind"], name, error) from error
        if changed and restart:
            runtime.events.emit(owner, "Normal", EventReason.RESTARTING, "Sync", restart)
        if changed:
            log.info("%s %s: applied %s %s", kind, _name(owner), manifest["kind"], manifest["metadata"]["name"])


def refused(runtime: Runtime, manifest: Manifest, error: NotUsableError | ResourceError) -> Condition:
    """The condition `Ready` of a resource that can't be acted upon, and an Event if the condition is new."""
    reason = error.reason if isinstance(error, NotUsableError) else Ready.INVALID
    condition = Condition("Ready", "False", reason, str(error))
    present = condition_of(manifest, "Ready")
    reported = (present.get("reason"), present.get("message")) == (reason, condition.message)
    if reason not in _WITH_EVERY_START and not reported:
        runtime.events.emit(manifest, "Warning", EventReason.SYNC_FAILED, "Sync", f"{reason}: {error}")
    return condition


def raise_retried(error: NotUsableError | None) -> None:
    """Raise an error that the queue must retry. Call it after the status was written."""
    if error is not None and error.retried:
        raise error


async def find(runtime: Runtime, resource: Resource, namespace: str, name: str) -> Manifest | None:
    """An object, also one of SchedMD's operator, which the caches don't show; None if it doesn't exist."""
    live = runtime.caches.live(resource, namespace, name)
    if live is None:
        with contextlib.suppress(NotFound):
            live = await runtime.client.get(resource, namespace, name)
    return live


def readiness(runtime: Runtime, resource: Resource, namespace: str, name: str) -> Condition:
    """The condition `Ready` of a StatefulSet or Deployment that has been applied."""
    return rollout.readiness(resource.kind, namespace, name, runtime.caches.live(resource, namespace, name))


async def counts(runtime: Runtime, resource: Resource, owner: Manifest, name: str) -> dict[str, int]:
    """The numbers of pods of a custom resource's StatefulSet or Deployment, as they stand in its status."""
    metadata = owner["metadata"]
    live = runtime.caches.live(resource, metadata["namespace"], name)
    if live is None:
        # One of SchedMD's operator, which is yet to be taken over, has pods too.
        found = await find(runtime, resource, metadata["namespace"], name) or {"metadata": {}}
        owners = found["metadata"].get("ownerReferences") or ()
        live = found if any(it["uid"] == metadata["uid"] for it in owners) else None
    status = (live or {}).get("status") or {}
    return {"replicas": status.get("replicas", 0), "readyReplicas": status.get("readyReplicas", 0)}


async def annotate(runtime: Runtime, pods: Iterable[records.Pod], annotation: str, value: str) -> None:
    """Give the pods this annotation; one that is gone needs none."""
    patch = {"metadata": {"annotations": {annotation: value}}}
    for pod in pods:
        with contextlib.suppress(NotFound):
            await runtime.client.merge_patch(PODS, pod.metadata.namespace, pod.metadata.name, patch)


def _with_former_sidecars(runtime: Runtime, manifest: Manifest) -> Manifest:
    if manifest["kind"] not in {STATEFUL_SETS.kind, DEPLOYMENTS.kind}:
        return manifest
    metadata = manifest["metadata"]
    live = runtime.caches.live(APPLIED[manifest["kind"]], metadata["namespace"], metadata["name"])
    return with_former_image(manifest, live, runtime.site.sidecars_image)


def _restart(runtime: Runtime, manifest: Manifest) -> str:
    """Why applying this StatefulSet or Deployment replaces its pods, as far as what they read changed; else empty."""
    if manifest["kind"] not in {STATEFUL_SETS.kind, DEPLOYMENTS.kind}:
        return ""
    metadata = manifest["metadata"]
    live = runtime.caches.live(APPLIED[manifest["kind"]], metadata["namespace"], metadata["name"])
    if live is None:
        return ""
    before = live["spec"]["template"]["metadata"].get("annotations") or {}
    after = manifest["spec"]["template"]["metadata"].get("annotations") or {}
    suffix = "-hash"
    changed = sorted(
        key.partition("/")[2].removesuffix(suffix).replace("-", " ")
        for key, value in after.items()
        if key.startswith(GROUP) and key.endswith(suffix) and before.get(key, value) != value
    )
    return f"{manifest['kind']} {metadata['name']} restarts: its {' and '.join(changed)} changed" if changed else ""


def _name(manifest: Manifest) -> str:
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"
