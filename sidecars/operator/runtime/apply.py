"""Bringing objects to what we want by server-side apply, and only when they differ from it.

An object of another owner is never written to: the first apply of an object creates it or fails,
and an object that exists is adopted only if it belongs to the same custom resource, or has our
label and no controller.

An object that SchedMD's operator has created for the same custom resource is taken over: its fields
become ours first, so that those which we don't set are removed. A StatefulSet or Deployment of
which a field differs that can't be changed is deleted without its pods and claims, and created
again. One that SchedMD's operator then changes back is left to it for some time (`contest`). Of one
that is ours already, `workload` decides when it is created again.

Not for pods: those are created by POST.
"""

import contextlib
import copy
import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sidecars.kube import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    POD_DISRUPTION_BUDGETS,
    SECRETS,
    SERVICE_MONITORS,
    SERVICES,
    STATEFUL_SETS,
    Client,
    Conflict,
    Manifest,
    NotFound,
    Resource,
)
from sidecars.operator.runtime import managed_fields
from sidecars.operator.runtime.contest import Contests
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.policy import immutable
from sidecars.policy.reasons import Ready
from sidecars.workloads.assembly import containers_of

log = logging.getLogger(__name__)

FIELD_MANAGER = "slurm-operator"
APPLIED_HASH = "slinky.slurm.net/applied-hash"
MANAGED_BY = "app.kubernetes.io/managed-by"

NEW = "1"
"""A resourceVersion that no object has: an apply with it creates the object, and is a Conflict if
one exists.
"""

APPLIED = {
    resource.kind: resource
    for resource in (
        CONFIG_MAPS,
        SECRETS,
        SERVICES,
        STATEFUL_SETS,
        DEPLOYMENTS,
        POD_DISRUPTION_BUDGETS,
        ENDPOINT_SLICES,
        SERVICE_MONITORS,
    )
}
"""The kinds that the operator applies."""


def covers(live: object, desired: object) -> bool:
    """Return whether each field that `desired` sets is the same in `live`.

    Fields that the API server or other managers added don't count. Lists must have the same length
    and order.
    """
    if isinstance(desired, dict):
        return isinstance(live, dict) and all(
            key in live and covers(live[key], value) for key, value in desired.items()
        )
    if isinstance(desired, list):
        return (
            isinstance(live, list)
            and len(live) == len(desired)
            and all(covers(there, here) for there, here in zip(live, desired, strict=True))
        )
    return live == desired


def stamped(manifest: Manifest) -> Manifest:
    """Return the manifest with the label and the annotation by which the operator knows its own
    work.
    """
    metadata = manifest["metadata"]
    content = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    return {
        **manifest,
        "metadata": {
            **metadata,
            "labels": {**metadata.get("labels", {}), MANAGED_BY: FIELD_MANAGER},
            "annotations": {
                **metadata.get("annotations", {}),
                APPLIED_HASH: hashlib.sha256(content).hexdigest()[:16],
            },
        },
    }


def with_former_image(desired: Manifest, live: Manifest | None, image: str) -> Manifest:
    """`desired`, a StatefulSet or Deployment, with the image that its containers of `image` have in
    `live`, if its pods differ in nothing else: another release of the operator alone is no reason
    to replace them.
    """
    if live is None:
        return desired
    former = {it["name"]: it.get("image") for it in _containers(live)}
    ours = {it["name"] for it in _containers(desired) if it.get("image") == image}
    # Nearly always all of them have it already.
    others = {name for name in ours if former.get(name) not in (None, image)}
    if not others:
        return desired
    kept = copy.deepcopy(desired)
    for container in _containers(kept):
        if container["name"] in others:
            container["image"] = former[container["name"]]
    # By its hash, too, as the API server may have written a quantity another way.
    applied = (live["metadata"].get("annotations") or {}).get(APPLIED_HASH)
    same = (
        covers(live["spec"]["template"], kept["spec"]["template"])
        or stamped(kept)["metadata"]["annotations"][APPLIED_HASH] == applied
    )
    return kept if same else desired


def _containers(workload: Manifest) -> list[Manifest]:
    return containers_of(workload["spec"]["template"]["spec"])


class NameTakenError(NotUsableError):
    """An object of another owner has the name. The operator may not watch it, so no event reports
    its deletion.
    """

    retried = True

    def __init__(self, live: Manifest, desired: Manifest) -> None:
        metadata, controller = live["metadata"], _controller(live)
        belongs = (
            f"belongs to {controller['kind']} {controller['name']}"
            if controller
            else "was created by another client"
        )
        owner = _controller(desired)
        rename = (
            f"give {owner['kind']} {owner['name']} another name" if owner else "use another name"
        )
        message = (
            f"{desired['kind']} {metadata['namespace']}/{metadata['name']} exists and {belongs}, "
            f"so it is not changed: {rename}, or delete that {desired['kind']}"
        )
        super().__init__(Ready.NAME_TAKEN, message)


class ReplacedError(NotUsableError):
    """The object is being deleted, and is created again afterwards. It isn't watched, so no event
    reports its end.
    """

    retried = True

    def __init__(self, live: Manifest, desired: Manifest, differing: Sequence[str] = ()) -> None:
        metadata = live["metadata"]
        because = (
            f" because its {' and '.join(differing)} can't be changed; its pods and claims stay"
            if differing
            else ""
        )
        name = f"{desired['kind']} {metadata['namespace']}/{metadata['name']}"
        super().__init__(
            Ready.TAKING_OVER, f"{name} is being deleted, and is created again{because}"
        )


def is_settled(live: Manifest) -> bool:
    """Return whether the object is ours alone: we have applied it, and SchedMD's operator has not
    written to it since.
    """
    return (live["metadata"].get("labels") or {}).get(
        MANAGED_BY
    ) == FIELD_MANAGER and not managed_fields.has_former(live)


def is_ours(live: Manifest, desired: Manifest) -> bool:
    """Return whether an object may be changed to `desired`: they share an owner, or it has our
    label and no controller. If it has a controller, that must be the shared owner.
    """
    controller = _controller(live)
    owners = _owners(live) if controller is None else [controller]
    if {owner.get("uid") for owner in owners} & {owner["uid"] for owner in _owners(desired)}:
        return True
    if controller is not None:
        return False
    return (live["metadata"].get("labels") or {}).get(
        MANAGED_BY
    ) == FIELD_MANAGER or _is_shared_by_former(live, desired)


def _is_shared_by_former(live: Manifest, desired: Manifest) -> bool:
    """Return whether SchedMD's operator created the object for all NodeSets of the same Controller.

    It gives such an object no owner and no label, so its name and what it selects must be the same.
    """
    selectors = [
        manifest["spec"].get("selector") for manifest in (live, desired) if "spec" in manifest
    ]
    return (
        _controller(desired) is None
        and not _owners(live)
        and managed_fields.has_former(live)
        and len(selectors) == 2
        and bool(selectors[0])
        and selectors[0] == selectors[1]
    )


def _owners(manifest: Manifest) -> Sequence[dict[str, Any]]:
    return manifest["metadata"].get("ownerReferences") or ()


def _controller(manifest: Manifest) -> dict[str, Any] | None:
    """Return the owner reference of the controller, or None for an object without one."""
    return next((owner for owner in _owners(manifest) if owner.get("controller")), None)


def _trial(desired: Manifest) -> Manifest:
    """Return the object under a name that is free, to see whether it could be created."""
    metadata = desired["metadata"]
    return {
        **desired,
        "metadata": {**metadata, "name": f"{metadata['name']}-trial", "resourceVersion": NEW},
    }


class Applier:
    """Applies manifests that differ from what is live.

    `live` looks an object up in the caches. The result of our last apply is remembered by its
    resourceVersion, so a value that the server normalises (a quantity, a default) isn't taken for a
    difference.
    """

    def __init__(
        self,
        client: Client,
        live: Callable[[Resource, str, str], Manifest | None],
        now: Callable[[], float],
    ) -> None:
        self._client = client
        self._live = live
        self._settled: dict[tuple[str, str, str], tuple[str, str]] = {}
        self._deleted: dict[tuple[str, str, str], str] = {}
        """The uids of the objects that we have deleted to create them again."""
        self._contests = Contests(now)

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Forget an object that is gone."""
        key = kind, namespace, name
        self._settled.pop(key, None)
        self._contests.forget(key)

    async def apply(self, manifest: Manifest) -> bool:
        """Apply the object as `manifest` describes; True when a request was needed. Raises
        ApiError, NameTakenError, KeyError for a kind that the operator doesn't apply.
        """
        resource = APPLIED[manifest["kind"]]
        desired = stamped(manifest)
        metadata: dict[str, Any] = desired["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        live = self._live(resource, namespace, name)
        if live is not None and self._must_be_read(resource, desired, live):
            live = await self._current(resource, namespace, name)
        try:
            return await self._bring(resource, desired, live)
        except Conflict:
            # The cache is behind, or another client's object has the name.
            return await self._bring(
                resource, desired, await self._current(resource, namespace, name)
            )

    async def _bring(self, resource: Resource, desired: Manifest, live: Manifest | None) -> bool:
        if live is None:
            return await self._write(resource, desired, resourceVersion=NEW)
        if not is_ours(live, desired):
            raise NameTakenError(live, desired)
        metadata = live["metadata"]
        if metadata.get("deletionTimestamp"):
            if not is_settled(live):
                # With this finalizer its pods and claims stay, whoever deletes it.
                orphaning = "orphan" in (metadata.get("finalizers") or ())
                raise ReplacedError(
                    live, desired, immutable.differences(live, desired) if orphaning else ()
                )
            return False
        if not is_settled(live):
            return await self._take_over(resource, desired, live)
        if self._is_as_desired(resource, desired, live):
            return False
        # An object that replaces this one meanwhile may be another client's: it has another uid,
        # and is refused.
        return await self._write(resource, desired, uid=metadata["uid"])

    def _must_be_read(self, resource: Resource, desired: Manifest, live: Manifest) -> bool:
        """Return whether the cached object doesn't show whether SchedMD's operator has written to
        it.
        """
        if resource is SECRETS:
            # Their records lack managedFields.
            return not self._is_as_desired(resource, desired, live)
        # The cache may not show yet that it was taken over.
        metadata = live["metadata"]
        key = resource.kind, metadata["namespace"], metadata["name"]
        return key in self._settled and managed_fields.has_former(live)

    def _is_as_desired(self, resource: Resource, desired: Manifest, live: Manifest) -> bool:
        metadata = live["metadata"]
        applied = desired["metadata"]["annotations"][APPLIED_HASH], metadata["resourceVersion"]
        key = resource.kind, metadata["namespace"], metadata["name"]
        return self._settled.get(key) == applied or covers(live, desired)

    async def _take_over(self, resource: Resource, desired: Manifest, live: Manifest) -> bool:
        metadata = live["metadata"]
        place, uid, version = (
            (metadata["namespace"], metadata["name"]),
            metadata["uid"],
            metadata["resourceVersion"],
        )
        key, former = (resource.kind, *place), managed_fields.has_former(live)
        if former and (key in self._settled or self._deleted.get(key, uid) != uid):
            self._contests.check(key, desired)
        differing = immutable.differences(live, desired)
        if differing:
            await self._delete(resource, desired, live, differing)
            raise ReplacedError(live, desired, differing)
        if former:
            await self._hand_over(
                resource, metadata, version, managed_fields.handed_over(live, FIELD_MANAGER)
            )
            log.info("%s %s/%s is taken over", resource.kind, *place)
        return await self._write(resource, desired, uid=uid)

    async def recreate(self, manifest: Manifest) -> None:
        """Delete an object of ours without its pods and claims, for fields that can't be changed.
        Its deletion wakes its owner, whose next pass creates it again, also if the operator ends
        before. Raises ApiError.
        """
        resource, desired = APPLIED[manifest["kind"]], stamped(manifest)
        metadata = desired["metadata"]
        live = await self._current(resource, metadata["namespace"], metadata["name"])
        if live is None or not is_ours(live, desired) or live["metadata"].get("deletionTimestamp"):
            return
        if differing := immutable.differences(live, desired):
            # Another client may have changed it meanwhile: the next pass looks again.
            with contextlib.suppress(Conflict, NotFound):
                await self._delete(resource, desired, live, differing)

    async def _delete(
        self, resource: Resource, desired: Manifest, live: Manifest, differing: Sequence[str]
    ) -> None:
        metadata = live["metadata"]
        place, uid, version = (
            (metadata["namespace"], metadata["name"]),
            metadata["uid"],
            metadata["resourceVersion"],
        )
        # Slurm's daemon would be without a controller if the next one were refused.
        await self._client.apply(
            resource, _trial(desired), field_manager=FIELD_MANAGER, dry_run=True
        )
        self._deleted[resource.kind, *place] = uid
        log.info("%s %s/%s is replaced for its %s", resource.kind, *place, " and ".join(differing))
        await self._client.delete(
            resource, *place, uid=uid, resource_version=version, propagation_policy="Orphan"
        )

    async def _hand_over(
        self,
        resource: Resource,
        metadata: Manifest,
        version: str,
        owners: Sequence[Mapping[str, Any]],
    ) -> None:
        operations: list[dict[str, Any]] = [
            # As a condition: another version is a Conflict.
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            {"op": "replace", "path": "/metadata/managedFields", "value": owners},
        ]
        if APPLIED_HASH in (metadata.get("annotations") or {}):
            # If the operator ends before it applies, the object then counts as not applied.
            operations.append(
                {"op": "remove", "path": f"/metadata/annotations/{APPLIED_HASH.replace('/', '~1')}"}
            )
        place = metadata["namespace"], metadata["name"]
        await self._client.json_patch(
            resource, *place, operations, dict, field_manager=FIELD_MANAGER
        )

    async def _current(self, resource: Resource, namespace: str, name: str) -> Manifest | None:
        try:
            return await self._client.get(resource, namespace, name)
        except NotFound:
            return None

    async def _write(self, resource: Resource, desired: Manifest, **precondition: str) -> bool:
        metadata: dict[str, Any] = desired["metadata"]
        conditional = {**desired, "metadata": {**metadata, **precondition}}
        answer = await self._client.apply(resource, conditional, field_manager=FIELD_MANAGER)
        key = (resource.kind, metadata["namespace"], metadata["name"])
        self._settled[key] = (
            metadata["annotations"][APPLIED_HASH],
            answer["metadata"]["resourceVersion"],
        )
        return True
