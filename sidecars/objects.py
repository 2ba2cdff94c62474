"""Partial records of built-in objects: the fields that controllers decide by, frozen, nothing else.

A field that isn't declared here isn't kept (`managedFields` among them), which keeps a cache of
thousands of pods small and a garbage collection short. An absent field reads as None or empty, as
in Kubernetes' API reference (https://kubernetes.io/docs/reference/kubernetes-api/). Maps and lists
are typed read-only: records are shared. Where a whole object is needed, read it as a Manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

Manifest: TypeAlias = dict[str, Any]
"""A whole Kubernetes object as JSON."""


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """metadata.ownerReferences[*]."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """metadata. `namespace` is empty for cluster-scoped objects; times are UTC."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner marked `controller: true`; None for an object that nobody controls."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    @property
    def controller_uid(self) -> str:
        """The uid of that owner; "" without one."""
        return self.controller.uid if self.controller is not None else ""


class PartialMeta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """metadata of a PartialObjectMetadata. Annotations are left out: `kubectl apply` stores the
    whole object in one.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    deletion_timestamp: datetime | None = None


class PartialObjectMetadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """meta.k8s.io/v1 PartialObjectMetadata: an object of any kind without its contents.

    Lists and watches of this type ask the API server to send metadata only:
    https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches
    """

    metadata: PartialMeta


class Condition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """status.conditions[*]. `status` is `True`, `False` or `Unknown`."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: datetime | None = None


class _Conditions:
    """Lookup by type, for every status that has conditions."""

    __slots__ = ()
    conditions: tuple[Condition, ...]

    def condition(self, type: str) -> Condition | None:
        """Return the condition of that type, or None when it was never set."""
        return next((condition for condition in self.conditions if condition.type == type), None)


class ContainerStateWaiting(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """state.waiting."""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """state.running."""

    started_at: datetime | None = None


class ContainerStateTerminated(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """state.terminated."""

    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None


class ContainerState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One of the three is set; none of them means waiting."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """status.containerStatuses[*]. `started` is None until the kubelet has reported it."""

    name: str
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    image: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """spec, as far as placement and identity go."""

    node_name: str = ""
    hostname: str = ""
    host_network: bool = False


class PodStatus(_Conditions, msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """status. An empty phase means that the kubelet hasn't reported yet."""

    phase: str = ""
    reason: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether the kubelet reports it as Ready."""
        found = self.condition("Ready")
        return found is not None and found.status == "True"


class Pod(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """v1 Pod."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """spec.taints[*] of a Node."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """spec of a Node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(_Conditions, msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """status of a Node. Quantities are Kubernetes' strings (`8`, `7910Mi`)."""

    capacity: Mapping[str, str] = {}
    allocatable: Mapping[str, str] = {}
    conditions: tuple[Condition, ...] = ()


class Node(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """v1 Node: a node of the Kubernetes cluster."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Secret(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """v1 Secret; `data` is decoded from base64. Its repr contains no value."""

    metadata: ObjectMeta
    type: str = ""
    data: Mapping[str, bytes] = {}
    immutable: bool = False

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name}, keys {sorted(self.data)})"


class ConfigMap(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """v1 ConfigMap; `binary_data` is decoded from base64."""

    metadata: ObjectMeta
    data: Mapping[str, str] = {}
    binary_data: Mapping[str, bytes] = {}
    immutable: bool = False


class VolumeResources(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """spec.resources of a claim."""

    requests: Mapping[str, str] = {}


class PersistentVolumeClaimSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """spec of a claim."""

    access_modes: tuple[str, ...] = ()
    resources: VolumeResources = VolumeResources()


class PersistentVolumeClaimStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """status of a claim."""

    phase: str = ""
    capacity: Mapping[str, str] = {}


class PersistentVolumeClaim(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """v1 PersistentVolumeClaim."""

    metadata: ObjectMeta
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()
