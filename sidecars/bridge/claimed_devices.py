"""The devices of DRA drivers, and the ResourceClaims of pods: what is known of them, and what was
sent to claims.

Without a rule for a driver nothing of it is read, and the bridge needs no right to it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sidecars.bridge.core import claims
from sidecars.bridge.core.claim_manifests import DeviceClass, ResourceClaim, ResourceSlice
from sidecars.bridge.core.claims import PodClaims
from sidecars.bridge.core.devices import Device, Granted, Numbered, Rules, numbered
from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.records import Deallocate, Grant
from sidecars.kube import Client, Conflict, Event, Invalid, NotFound, Reflector, Resource, Store

log = logging.getLogger(__name__)

_GROUP = "resource.k8s.io"
CLAIMS = Resource(_GROUP, "v1", "ResourceClaim", "resourceclaims")
SLICES = Resource(_GROUP, "v1", "ResourceSlice", "resourceslices", namespaced=False)
CLASSES = Resource(_GROUP, "v1", "DeviceClass", "deviceclasses", namespaced=False)
BY_OWNER = "owner"
"""Index of the claims by the uid of the pod that controls them."""
REPEAT_AFTER = 5.0
"""Seconds after which a change of an allocation is sent again if it is not seen yet."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The caches of the cluster's objects."""

    claims: Store[ResourceClaim]
    slices: Store[ResourceSlice]
    classes: Store[DeviceClass]


@dataclass(frozen=True, slots=True)
class _Sent:
    """What was sent to a claim."""

    granted: tuple[Granted, ...]
    at: float


@dataclass(frozen=True, slots=True)
class _Returned:
    """A claim whose devices were taken back."""

    version: str
    """Its resourceVersion before that."""
    at: float


def reflectors(
    client: Client,
) -> tuple[Reflector[ResourceClaim], Reflector[ResourceSlice], Reflector[DeviceClass]]:
    """Return the reflectors that fill the stores."""
    return (
        Reflector(client, CLAIMS, type=ResourceClaim),
        Reflector(client, SLICES, type=ResourceSlice),
        Reflector(client, CLASSES, type=DeviceClass),
    )


class Devices:
    """`stores`: None without a rule for a driver or an unmanaged DeviceClass. `now` gives monotonic
    seconds.
    """

    def __init__(
        self, rules: Rules, stores: Stores | None, kube: Client, now: Callable[[], float]
    ) -> None:
        self.rules = rules
        self._stores = stores
        self._kube = kube
        self._now = now
        self._sent: dict[str, _Sent] = {}
        self._returned: dict[str, _Returned] = {}
        self._numbered: dict[str, tuple[Numbered, ...]] | None = None
        self._classes: set[str] = set()
        """The names of the DeviceClasses that exist."""
        self._resources: dict[str, str] = {}
        """The extended resources by which kube-scheduler allocates devices of a class, with its
        name.
        """
        if stores is not None:
            stores.claims.add_index(
                BY_OWNER, lambda it: list(filter(None, [it.metadata.controller_uid]))
            )
            stores.slices.subscribe(lambda _: self._forget_numbers())
            stores.classes.subscribe(self._class_changed)

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Call `wake` when something has changed."""
        if self._stores is not None:
            self._stores.claims.subscribe(lambda _: wake())
            self._stores.slices.subscribe(lambda _: wake())
            self._stores.classes.subscribe(lambda _: wake())

    def by_node(self) -> Mapping[str, tuple[Numbered, ...]]:
        """Return the devices that Slurm gives away by index, by Kubernetes node."""
        if self._stores is None:
            return {}
        if self._numbered is None:
            self._numbered = numbered(self._stores.slices.values(), self.rules)
        return self._numbered

    def of(self, pod: Pod) -> PodClaims:
        """Return the claims of a pod, which are equal while nothing of them changes."""
        problem = claims.of_a_class(pod, self._resources, self.rules)
        if problem:
            return PodClaims(None, problem=problem)
        if not pod.spec.resource_claims:
            return claims.NONE
        by_name = {it.metadata.name: it for it in (*self._named(pod), *self._its(pod))}
        returned = {uid: it.version for uid, it in self._returned.items()}
        return claims.claims_of(pod, by_name, self.rules, self._planned(), returned, self._classes)

    def holders(self) -> Mapping[Device, set[str]]:
        """Return the uids of the claims of the whole cluster that have each device, or to which it
        was sent.
        """
        return (
            {}
            if self._stores is None
            else claims.holders(self._stores.claims.values(), self._planned())
        )

    async def grant(self, pod: Pod, action: Grant) -> None:
        """Write the allocation. Raises KubeError."""
        claim = self._claim(pod, action)
        if claim is None or self._stores is None:
            return
        uid, now = claim.metadata.uid, self._now()
        former = self._sent.get(uid)
        if (
            former is not None
            and former.granted == action.granted
            and now < former.at + REPEAT_AFTER
        ):
            return
        # Before anything is sent: no other claim may get the devices while the answer is on its
        # way.
        self._sent[uid] = _Sent(action.granted, now)
        classes = {it.metadata.name: it for it in self._stores.classes.values()}
        try:
            kept = claims.finalizer_patch(claim)
            if kept:
                claim = await self._patch(claim, kept, None)
            patch = claims.allocation_patch(claim, action.granted, pod, action.node, classes)
            await self._patch(claim, patch, "status")
        except (Conflict, Invalid, NotFound):
            # It was not written, and the claim shows soon what has changed.
            self._sent.pop(uid, None)
            raise
        names = ", ".join(device.name for _, device in action.granted)
        log.info(
            "ResourceClaim %s/%s gets %s of node %s",
            pod.metadata.namespace,
            action.claim.name,
            names,
            action.node,
        )

    async def deallocate(self, pod: Pod, action: Deallocate) -> None:
        """Take back the devices. Raises KubeError."""
        claim = self._claim(pod, action)
        if claim is None or claim.status is None or claim.status.allocation is None:
            return
        uid, version, now = claim.metadata.uid, claim.metadata.resource_version, self._now()
        former = self._returned.get(uid)
        if former is not None and former.version == version and now < former.at + REPEAT_AFTER:
            return
        self._sent.pop(uid, None)
        # Before anything is sent: no pod may start with what the claim still shows.
        self._returned[uid] = _Returned(version, now)
        await self._patch(claim, claims.deallocation_patch(claim), "status")
        log.info(
            "ResourceClaim %s/%s gives its devices back", pod.metadata.namespace, action.claim.name
        )

    def _claim(self, pod: Pod, action: Grant | Deallocate) -> ResourceClaim | None:
        return next((it for it in self._its(pod) if it.metadata.uid == action.claim.uid), None)

    def _its(self, pod: Pod) -> list[ResourceClaim]:
        """Return the claims of the pod. Whoever creates a claim writes which pod it is of."""
        found = (
            self._stores.claims.by(BY_OWNER, pod.metadata.uid) if self._stores is not None else ()
        )
        return [it for it in found if it.metadata.namespace == pod.metadata.namespace]

    def _named(self, pod: Pod) -> Iterator[ResourceClaim]:
        """Yield the claims that the pod names, which may be those of several pods."""
        for it in pod.spec.resource_claims:
            if self._stores is not None and it.resource_claim_name:
                claim = self._stores.claims.get(pod.metadata.namespace, it.resource_claim_name)
                if claim is not None:
                    yield claim

    async def _patch(
        self, claim: ResourceClaim, patch: claims.Patch, subresource: str | None
    ) -> ResourceClaim:
        meta = claim.metadata
        place = CLAIMS, meta.namespace, meta.name
        return await self._kube.json_patch(*place, patch, ResourceClaim, subresource=subresource)

    def _planned(self) -> Mapping[str, tuple[Granted, ...]]:
        return {uid: it.granted for uid, it in self._sent.items()}

    def forget(self) -> None:
        """Forget what was sent to claims that show it, that show something else, or that are
        gone.
        """
        if self._stores is None or not (self._sent or self._returned):
            return
        present = {it.metadata.uid: it for it in self._stores.claims.values()}
        for uid, returned in list(self._returned.items()):
            if uid not in present or present[uid].metadata.resource_version != returned.version:
                del self._returned[uid]
        for uid in list(self._sent):
            claim = present.get(uid)
            shown = (
                claim is not None
                and claim.status is not None
                and claim.status.allocation is not None
            )
            if claim is None or shown:
                del self._sent[uid]

    def _class_changed(self, event: Event[DeviceClass]) -> None:
        name = event.object.metadata.name
        self._resources = {it: of for it, of in self._resources.items() if of != name}
        if event.new is None:
            self._classes.discard(name)
            return
        self._classes.add(name)
        resource = event.new.spec.extended_resource_name
        if resource:
            self._resources[resource] = name

    def _forget_numbers(self) -> None:
        self._numbered = None
