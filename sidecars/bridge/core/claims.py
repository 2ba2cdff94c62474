"""What the ResourceClaims of a pod request in words of Slurm, and the patches that write and remove
allocations. Pure.

Kubernetes takes the allocation of a claim as given. Therefore the bridge writes the devices that
Slurm has given to the job, and releases the pod afterwards. Nothing but the rule of a DeviceClass
is evaluated: what would need more is refused.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from sidecars.bridge.core.claim_manifests import Config, DeviceClass, ResourceClaim
from sidecars.bridge.core.claim_manifests import Request as Asked
from sidecars.bridge.core.devices import Claim, Device, Granted, Rules, Wish
from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.shape import ShapeError

FINALIZER = "resource.kubernetes.io/delete-protection"
"""Keeps an allocated claim until kube-controller-manager has taken back its devices, after the end
of its pod.
"""

MOST_RESULTS = 32
"""Devices of one claim."""

Patch = list[dict[str, Any]]
_TEMPLATE = "use resourceClaimTemplateName, so that each pod has a claim of its own"


@dataclass(frozen=True)
class PodClaims:
    """The claims of one pod."""

    claims: tuple[Claim, ...] | None = ()
    """None: not all of them are known."""
    gres: tuple[tuple[str, int], ...] = ()
    """What they request together, as `gpu:h100`."""
    missing: str = ""
    """Why they aren't known."""
    problem: str = ""
    """Why they can't be a job's."""


NONE = PodClaims()


def of_a_class(pod: Pod, resources: Mapping[str, str], rules: Rules) -> str:
    """Describe why a pod can't have an extended resource by which kube-scheduler allocates devices
    of a DeviceClass; "" if it can.

    `resources`: those of the classes, with the name of the class.
    """
    if not resources:
        return ""
    levels = (
        pod.spec.resources,
        *(it.resources for it in (*pod.spec.containers, *pod.spec.init_containers)),
    )
    wanted = {name for it in levels for name in (*it.requests, *it.limits)}
    name = min(wanted & resources.keys() - rules.extended.keys(), default="")
    if not name:
        return ""
    return (
        f"{name} is of DeviceClass {resources[name]}, whose devices Slurm doesn't count so: "
        "request them by a ResourceClaimTemplate"
    )


def claims_of(
    pod: Pod,
    found: Mapping[str, ResourceClaim],
    rules: Rules,
    planned: Mapping[str, tuple[Granted, ...]],
    returned: Mapping[str, str],
    classes: Collection[str] | None = None,
) -> PodClaims:
    """`found`: its own claims by name, and those that it names. `planned`: what was sent to claims
    that don't show it, by uid.

    `returned`: the resourceVersions that claims had when their devices were taken back, by uid.
    `classes`: the names of the DeviceClasses that exist. None: any does.
    """
    if not pod.spec.resource_claims:
        return NONE
    names = {it.name: it.resource_claim_name for it in pod.status.resource_claim_statuses}
    claims: list[Claim] = []
    total: dict[str, int] = {}
    for it in pod.spec.resource_claims:
        its = found.get(it.resource_claim_name or names.get(it.name) or "")
        if its is not None and is_unmanaged(its, rules):
            continue
        if not rules.claims:
            text = (
                "the administrator has mapped no DeviceClass to Slurm, and left none to "
                "kube-scheduler: request GPUs in the limits, as nvidia.com/gpu"
            )
            return PodClaims(None, problem=f"resource claim {it.name}: {text}")
        if it.resource_claim_name:
            text = (
                f"{it.resource_claim_name} may be of several pods, and a job's devices are of "
                f"one: {_TEMPLATE}"
            )
            return PodClaims(None, problem=f"resource claim {it.name}: {text}")
        name = names.get(it.name)
        claim = found.get(name) if name else None
        if claim is None or claim.metadata.controller_uid != pod.metadata.uid:
            text = (
                f"the ResourceClaim of {it.name}, template {it.resource_claim_template_name}, "
                "doesn't exist yet"
            )
            return PodClaims(None, missing=f"{text}: kube-controller-manager creates it")
        try:
            wishes = wishes_of(claim, rules)
        except ShapeError as error:
            return PodClaims(None, problem=str(error))
        named = [
            it.exactly.device_class_name
            for it in claim.spec.devices.requests
            if it.exactly is not None
        ]
        absent = next((name for name in named if classes is not None and name not in classes), None)
        if absent is not None:
            # Its settings for the driver are not known.
            return PodClaims(
                None, missing=f"DeviceClass {absent} doesn't exist: an administrator creates it"
            )
        for wish in wishes:
            total[wish.gres] = total.get(wish.gres, 0) + wish.number
        uid, version = claim.metadata.uid, claim.metadata.resource_version
        claims.append(
            _claim(claim, wishes, pod, planned.get(uid), returned=returned.get(uid) == version)
        )
    return PodClaims(tuple(claims), tuple(sorted(total.items())))


def is_unmanaged(claim: ResourceClaim, rules: Rules) -> bool:
    """Return whether all that the claim requests is kube-scheduler's to give: Slurm counts none of
    it.
    """
    named = {name for it in claim.spec.devices.requests for name in it.device_classes}
    return bool(named) and named <= rules.unmanaged


def wishes_of(claim: ResourceClaim, rules: Rules) -> tuple[Wish, ...]:
    """Return what each request of a claim wants. Raises ShapeError for what Slurm can't be asked
    for.
    """
    devices, place = claim.spec.devices, f"ResourceClaim {claim.metadata.name}"
    if devices.constraints:
        raise ShapeError(
            f"{place} has constraints: Slurm can't evaluate them; name a DeviceClass of equal "
            "devices"
        )
    found = tuple(_wish(it, f"{place}, request {it.name}", rules) for it in devices.requests)
    if sum(it.number for it in found) > MOST_RESULTS:
        raise ShapeError(f"{place} requests more than {MOST_RESULTS} devices: use several claims")
    return found


def holders(
    claims: Iterable[ResourceClaim], planned: Mapping[str, tuple[Granted, ...]]
) -> dict[Device, set[str]]:
    """Return the uids of the claims that have each device, or to which it was sent."""
    found: dict[Device, set[str]] = {}
    for claim in claims:
        uid = claim.metadata.uid
        for _, device in (*(_granted(claim) or ()), *planned.get(uid, ())):
            found.setdefault(device, set()).add(uid)
    return found


def finalizer_patch(claim: ResourceClaim) -> Patch:
    """Keep the claim while it is allocated. Return [] if that is so already."""
    present = claim.metadata.finalizers
    if FINALIZER in present:
        return []
    if present:
        return [*_same(claim), {"op": "add", "path": "/metadata/finalizers/-", "value": FINALIZER}]
    return [*_same(claim), {"op": "add", "path": "/metadata/finalizers", "value": [FINALIZER]}]


def allocation_patch(
    claim: ResourceClaim,
    granted: Iterable[Granted],
    pod: Pod,
    node: str,
    classes: Mapping[str, DeviceClass],
) -> Patch:
    """Give these devices of the node to a claim that has none, for the pod. For the claim's
    status.
    """
    results = [
        {
            "request": request,
            "driver": device.driver,
            "pool": device.device_pool,
            "device": device.name,
        }
        for request, device in granted
    ]
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    devices: dict[str, Any] = {"results": results}
    config = list(_config(claim, classes))
    if config:
        devices["config"] = config
    allocation = {
        "devices": devices,
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
    }
    consumer = {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}
    status = {"allocation": allocation, "reservedFor": [consumer]}
    return [*_same(claim), {"op": "add", "path": "/status", "value": status}]


def deallocation_patch(claim: ResourceClaim) -> Patch:
    """Take back the devices of a claim that nobody but its gated pod has. For the claim's
    status.
    """
    patch = [*_same(claim), {"op": "remove", "path": "/status/allocation"}]
    if claim.status is not None and claim.status.reserved_for:
        patch.append({"op": "remove", "path": "/status/reservedFor"})
    return patch


def _claim(
    claim: ResourceClaim,
    wishes: tuple[Wish, ...],
    pod: Pod,
    planned: tuple[Granted, ...] | None,
    *,
    returned: bool,
) -> Claim:
    meta = claim.metadata
    granted = _granted(claim)
    reserved = claim.status.reserved_for if claim.status is not None else ()
    return Claim(
        uid=meta.uid,
        name=meta.name,
        wishes=wishes,
        granted=planned if granted is None else granted,
        shown=granted is not None,
        others=any(it.uid != pod.metadata.uid for it in reserved),
        deleting=meta.deletion_timestamp is not None,
        returned=returned,
    )


def _granted(claim: ResourceClaim) -> tuple[Granted, ...] | None:
    if claim.status is None or claim.status.allocation is None:
        return None
    results = claim.status.allocation.devices.results
    return tuple(
        Granted(it.request, Device(it.driver, it.device_pool, it.device))
        for it in results
        if not it.admin_access
    )


def _wish(request: Asked, place: str, rules: Rules) -> Wish:
    asked = request.exactly
    if asked is None or request.first_available:
        raise ShapeError(
            f"{place} has alternatives (firstAvailable): a job has one request; use `exactly`"
        )
    gres = rules.classes.get(asked.device_class_name)
    if asked.device_class_name in rules.unmanaged:
        raise ShapeError(
            f"{place}: DeviceClass {asked.device_class_name} is kube-scheduler's to give, and "
            "others of the claim are Slurm's: use a claim for each"
        )
    if gres is None:
        choice = ", ".join(sorted(rules.classes)) or "none"
        text = (
            f"DeviceClass {asked.device_class_name} is no GRES of Slurm; those that are: {choice}"
        )
        raise ShapeError(f"{place}: {text}")
    if asked.selectors:
        raise ShapeError(
            f"{place} has selectors: Slurm can't evaluate them; use a DeviceClass of such devices"
        )
    if asked.allocation_mode != "ExactCount":
        raise ShapeError(
            f"{place} has the allocationMode {asked.allocation_mode}: write ExactCount and a count"
        )
    if asked.admin_access:
        raise ShapeError(
            f"{place} has adminAccess: such pods don't wait for Slurm; use another namespace"
        )
    if asked.capacity is not None:
        raise ShapeError(
            f"{place} requests a part of a device's capacity: Slurm gives away whole devices"
        )
    return Wish(request.name, gres, asked.count)


def _config(claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> Iterable[dict[str, Any]]:
    """Yield the settings for the drivers: of each request's class first, then the claim's own."""
    for request in claim.spec.devices.requests:
        its = (
            classes.get(request.exactly.device_class_name) if request.exactly is not None else None
        )
        for it in its.spec.config if its is not None else ():
            yield _configured("FromClass", (request.name,), it)
    for it in claim.spec.devices.config:
        yield _configured("FromClaim", it.requests, it)


def _configured(source: str, requests: tuple[str, ...], config: Config) -> dict[str, Any]:
    found = {
        "source": source,
        "requests": list(requests),
        "opaque": msgspec.to_builtins(config.opaque),
    }
    return {key: value for key, value in found.items() if value}


def _same(claim: ResourceClaim) -> Patch:
    meta = claim.metadata
    return [
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
    ]
