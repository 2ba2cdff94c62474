"""What kinds with one StatefulSet or Deployment share: objects applied in order, restarts reported,
readiness.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from sidecars import objects
from sidecars.kube import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SECRETS,
    STATEFUL_SETS,
    ApiError,
    Manifest,
    NotFound,
    Resource,
)
from sidecars.operator.core import rollout
from sidecars.operator.runtime.apply import APPLIED, is_ours, is_settled, with_former_image
from sidecars.operator.runtime.errors import NotUsableError, RefusedError
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy import immutable, upgrades
from sidecars.policy.conditions import Condition
from sidecars.policy.conditions import find as condition_of
from sidecars.policy.immutable import Claim, Plan, Resize
from sidecars.policy.reasons import EventReason, Ready
from sidecars.workloads import identity
from sidecars.workloads.facts import MissingReferenceError
from sidecars.workloads.resources import GROUP, ResourceError

log = logging.getLogger(__name__)

_WORKLOADS = {STATEFUL_SETS.kind, DEPLOYMENTS.kind}
_ALLOWED = "operator.allowedServiceAccounts in the values of the chart slurm-operator"

_WITH_EVERY_START = {
    Ready.WAITING_FOR_ACCOUNTING,
    Ready.WAITING_FOR_KEYS,
    Ready.WAITING_FOR_CONFIGURATION,
    Ready.TAKING_OVER,
}
"""Reasons that are no failure."""


@contextlib.contextmanager
def usable() -> Iterator[None]:
    """Turn what a render raises into NotUsableError."""
    try:
        yield
    except MissingReferenceError as error:
        raise NotUsableError(
            Ready.REFERENCE_MISSING, f"{error}; create it, and the operator continues"
        ) from error
    except ResourceError as error:
        raise NotUsableError(Ready.INVALID, str(error)) from error


async def apply_all(
    runtime: Runtime,
    owner: Manifest,
    kind: str,
    render: Callable[[], Sequence[Manifest]],
    *,
    recreates: bool = True,
) -> None:
    """Render and apply. `recreates`: whether a StatefulSet may be created again, without its pods,
    for a field that can't be changed.

    Raises NotUsableError, with what to do, when the resource can't be rendered or is refused. The
    first refusal is raised when everything else was applied, except for pods of which a Secret or
    ConfigMap was refused.
    """
    with usable():
        manifests = render()
        for each in manifests:
            if each["kind"] in _WORKLOADS:
                check_identity(runtime, each["metadata"]["namespace"], each["spec"]["template"])
    failures: list[NotUsableError] = []
    read: set[str] = set()
    for each in manifests:
        if each["kind"] in _WORKLOADS and read & {SECRETS.kind, CONFIG_MAPS.kind}:
            continue
        try:
            if await _apply(runtime, owner, each, recreates=recreates):
                log.info(
                    "%s %s: applied %s %s",
                    kind,
                    _name(owner),
                    each["kind"],
                    each["metadata"]["name"],
                )
        except NotUsableError as error:
            failures.append(error)
            read.add(each["kind"])
    if failures:
        raise failures[0]


def check_identity(runtime: Runtime, namespace: str, template: Manifest) -> None:
    """Raise ResourceError for a pod template with a token that the operator's settings don't
    allow.
    """
    identity.check(template["spec"], namespace, runtime.settings.allowed_service_accounts, _ALLOWED)


async def _apply(runtime: Runtime, owner: Manifest, desired: Manifest, *, recreates: bool) -> bool:
    """Return whether a request was needed. Raises NotUsableError and ApiError."""
    manifest = _with_former_sidecars(runtime, desired)
    restart = _restart(runtime, manifest)
    name = manifest["metadata"]["name"]
    try:
        plan = await _plan(runtime, owner, manifest)
        changed = await runtime.applier.apply(manifest if plan is None else plan.manifest)
        if changed and restart:
            runtime.events.emit(owner, "Normal", EventReason.RESTARTING, "Sync", restart)
        if (
            plan is not None
            and plan.recreate
            and recreates
            and not changed
            and _rolled_out(runtime, manifest)
        ):
            await runtime.applier.recreate(manifest)
    except ApiError as error:
        if error.status not in {400, 403, 422}:
            raise
        raise RefusedError(manifest["kind"], name, error) from error
    return changed


async def _plan(runtime: Runtime, owner: Manifest, manifest: Manifest) -> Plan | None:
    """Plan what can be applied of a changed workload, after its claims were resized. Return None
    for one that doesn't exist, isn't ours alone, or is no workload.
    """
    kind, live = manifest["kind"], _live(runtime, manifest)
    if live is None or not is_ours(live, manifest) or not is_settled(live):
        return None
    namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    claims = {
        it: claim
        for it in immutable.claim_names(manifest)
        if (claim := _claim(runtime, namespace, it))
    }
    plan = immutable.plan(live, manifest, claims, {})
    if plan.resize:
        refusals = runtime.kept.refusals(namespace, plan.resize, runtime.now())
        for resize in plan.resize:
            if resize.claim not in refusals and (
                answer := await _resize(runtime, owner, namespace, resize)
            ):
                runtime.kept.refuse(namespace, resize, answer, runtime.now())
                refusals[resize.claim] = answer
        plan = immutable.plan(live, manifest, claims, refusals)
    before = runtime.kept.of(kind, namespace, name)
    runtime.kept.remember((kind, namespace, name), plan.kept)
    reported = condition_of(owner, "Ready").get("message") or ""
    for text in plan.kept:
        if text not in before and text not in reported:
            runtime.events.emit(owner, "Warning", EventReason.CHANGE_NOT_APPLIED, "Sync", text)
    return plan


async def _resize(runtime: Runtime, owner: Manifest, namespace: str, resize: Resize) -> str:
    """Resize a claim. Return why the API server refuses it, "" if it doesn't. Raises ApiError for a
    fault.
    """
    patch = {"spec": {"resources": {"requests": {"storage": resize.after}}}}
    try:
        await runtime.client.merge_patch(PERSISTENT_VOLUME_CLAIMS, namespace, resize.claim, patch)
    except NotFound:
        return ""
    except ApiError as error:
        if error.status not in {400, 403, 422}:
            raise
        return error.message or str(error)
    log.info("%s", resize)
    runtime.events.emit(owner, "Normal", EventReason.VOLUME_RESIZED, "Sync", str(resize))
    return ""


def _claim(runtime: Runtime, namespace: str, name: str) -> Claim | None:
    found = runtime.caches.other_claims.store.get(namespace, name)
    if found is None or not found.spec.resources.requests.get("storage"):
        return None
    return Claim(
        name,
        found.spec.resources.requests["storage"],
        found.status.capacity.get("storage", ""),
        found.status.phase == "Bound",
    )


def _rolled_out(runtime: Runtime, manifest: Manifest) -> bool:
    live = _live(runtime, manifest) or manifest
    generation, replicas = live["metadata"].get("generation", 0), live["spec"].get("replicas", 1)
    return upgrades.rolled_out(live.get("status") or {}, generation, replicas)


def refused(
    runtime: Runtime, manifest: Manifest, error: NotUsableError | ResourceError
) -> Condition:
    """Return the condition `Ready` of a resource that can't be acted upon, and an Event if the
    condition is new.
    """
    reason = error.reason if isinstance(error, NotUsableError) else Ready.INVALID
    condition = Condition("Ready", "False", reason, str(error))
    present = condition_of(manifest, "Ready")
    reported = (present.get("reason"), present.get("message")) == (reason, condition.message)
    if reason not in _WITH_EVERY_START and not reported:
        runtime.events.emit(
            manifest, "Warning", EventReason.SYNC_FAILED, "Sync", f"{reason}: {error}"
        )
    return condition


def raise_retried(error: Exception | None) -> None:
    """Raise an error that the queue must retry. Call it after the status was written."""
    if error is not None and (not isinstance(error, NotUsableError) or error.retried):
        raise error


async def find(runtime: Runtime, resource: Resource, namespace: str, name: str) -> Manifest | None:
    """Return an object, also one of SchedMD's operator, which the caches don't show, or None if it
    doesn't exist.
    """
    live = runtime.caches.live(resource, namespace, name)
    if live is None:
        with contextlib.suppress(NotFound):
            live = await runtime.client.get(resource, namespace, name)
    return live


def readiness(runtime: Runtime, resource: Resource, namespace: str, name: str) -> Condition:
    """Return the condition `Ready` of a StatefulSet or Deployment that has been applied."""
    found = rollout.readiness(
        resource.kind, namespace, name, runtime.caches.live(resource, namespace, name)
    )
    return rollout.with_kept(found, runtime.kept.of(resource.kind, namespace, name))


async def counts(
    runtime: Runtime, resource: Resource, owner: Manifest, name: str
) -> dict[str, int]:
    """Return the numbers of pods of a custom resource's StatefulSet or Deployment, as they stand in
    its status.
    """
    metadata = owner["metadata"]
    live = runtime.caches.live(resource, metadata["namespace"], name)
    if live is None:
        # One of SchedMD's operator, which is yet to be taken over, has pods too.
        found = await find(runtime, resource, metadata["namespace"], name) or {"metadata": {}}
        owners = found["metadata"].get("ownerReferences") or ()
        live = found if any(it["uid"] == metadata["uid"] for it in owners) else None
    status = (live or {}).get("status") or {}
    return {"replicas": status.get("replicas", 0), "readyReplicas": status.get("readyReplicas", 0)}


async def annotate(
    runtime: Runtime, pods: Iterable[objects.Pod], annotation: str, value: str
) -> None:
    """Give the pods this annotation; one that is gone needs none."""
    patch = {"metadata": {"annotations": {annotation: value}}}
    for pod in pods:
        with contextlib.suppress(NotFound):
            await runtime.client.merge_patch(PODS, pod.metadata.namespace, pod.metadata.name, patch)


def _with_former_sidecars(runtime: Runtime, manifest: Manifest) -> Manifest:
    if manifest["kind"] not in _WORKLOADS:
        return manifest
    return with_former_image(manifest, _live(runtime, manifest), runtime.site.sidecars_image)


def _live(runtime: Runtime, manifest: Manifest) -> Manifest | None:
    """Return a workload as last seen, or None if it doesn't exist, or is none."""
    if manifest["kind"] not in _WORKLOADS:
        return None
    metadata = manifest["metadata"]
    return runtime.caches.live(APPLIED[manifest["kind"]], metadata["namespace"], metadata["name"])


def _restart(runtime: Runtime, manifest: Manifest) -> str:
    """Return why applying this StatefulSet or Deployment replaces its pods, as far as what they
    read changed, else "".
    """
    live = _live(runtime, manifest)
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
    return (
        f"{manifest['kind']} {live['metadata']['name']} restarts: its {' and '.join(changed)} "
        "changed"
        if changed
        else ""
    )


def _name(manifest: Manifest) -> str:
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"
