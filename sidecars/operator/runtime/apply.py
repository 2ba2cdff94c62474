"""Bringing objects to what we want by server-side apply, and only when they differ from it.

Not for pods: those are created by POST, where a conflict matters.
"""

import copy
import hashlib
import json
from collections.abc import Callable
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
    Manifest,
    Resource,
)
from sidecars.workloads.assembly import containers_of

FIELD_MANAGER = "slurm-operator"
APPLIED_HASH = "slinky.slurm.net/applied-hash"
MANAGED_BY = "app.kubernetes.io/managed-by"

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


def covers(live: object, wanted: object) -> bool:
    """Whether each field that `wanted` sets is the same in `live`.

    Fields that the API server or other managers added don't count. Lists must have the same length and order.
    """
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(key in live and covers(live[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(live, list)
            and len(live) == len(wanted)
            and all(covers(there, here) for there, here in zip(live, wanted, strict=True))
        )
    return live == wanted


def stamped(manifest: Manifest) -> Manifest:
    """The manifest with the label and the annotation by which the operator knows its own work."""
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


def with_former_image(wanted: Manifest, live: Manifest | None, image: str) -> Manifest:
    """`wanted`, a StatefulSet or Deployment, with the image that its containers of `image` have in `live`, if its pods
    differ in nothing else: another release of the operator alone is no reason to replace them.
    """
    if live is None:
        return wanted
    former = {it["name"]: it.get("image") for it in _containers(live)}
    ours = {it["name"] for it in _containers(wanted) if it.get("image") == image}
    # Nearly always all of them have it already.
    others = {name for name in ours if former.get(name) not in (None, image)}
    if not others:
        return wanted
    kept = copy.deepcopy(wanted)
    for container in _containers(kept):
        if container["name"] in others:
            container["image"] = former[container["name"]]
    # By its hash, too, as the API server may have written a quantity another way.
    applied = (live["metadata"].get("annotations") or {}).get(APPLIED_HASH)
    same = (
        covers(live["spec"]["template"], kept["spec"]["template"])
        or stamped(kept)["metadata"]["annotations"][APPLIED_HASH] == applied
    )
    return kept if same else wanted


def _containers(workload: Manifest) -> list[Manifest]:
    return containers_of(workload["spec"]["template"]["spec"])


class Applier:
    """Applies manifests that differ from what is live.

    `live` looks an object up in the caches. The result of our last apply is remembered by its
    resourceVersion, so a value that the server normalises (a quantity, a default) isn't taken for a difference.
    """

    def __init__(self, client: Client, live: Callable[[Resource, str, str], Manifest | None]) -> None:
        self._client = client
        self._live = live
        self._settled: dict[tuple[str, str, str], tuple[str, str]] = {}

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """The object is gone."""
        self._settled.pop((kind, namespace, name), None)

    async def apply(self, manifest: Manifest) -> bool:
        """Apply the object as `manifest` describes; True when a request was needed. Raises ApiError, KeyError for a
        kind that the operator doesn't apply.
        """
        resource = APPLIED[manifest["kind"]]
        wanted = stamped(manifest)
        metadata: dict[str, Any] = wanted["metadata"]
        key = (resource.kind, metadata["namespace"], metadata["name"])
        live = self._live(resource, metadata["namespace"], metadata["name"])
        stamp = metadata["annotations"][APPLIED_HASH]
        if live is not None:
            if live["metadata"].get("deletionTimestamp"):
                return False
            if self._settled.get(key) == (stamp, live["metadata"]["resourceVersion"]):
                return False
            if covers(live, wanted):
                return False
        answer = await self._client.apply(resource, wanted, field_manager=FIELD_MANAGER)
        self._settled[key] = (stamp, answer["metadata"]["resourceVersion"])
        return True
