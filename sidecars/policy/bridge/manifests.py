"""Pods and nodes as the bridge reads them: only the fields that its decisions need.

Maps of whole manifests stay out, because the bridge caches every pod of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec


class Owner(msgspec.Struct, frozen=True, rename="camel"):
    """metadata.ownerReferences[*]."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """metadata."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[Owner, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None

    @property
    def controller(self) -> str:
        """uid of the owner that creates such pods again; "" without one."""
        return next((it.uid for it in self.owner_references if it.controller), "")


class Name(msgspec.Struct, frozen=True):
    """An element of a list that only has to be named, such as a scheduling gate."""

    name: str = ""


class Requirements(msgspec.Struct, frozen=True):
    """resources of a container or of a pod."""

    requests: Mapping[str, str] = {}
    limits: Mapping[str, str] = {}
    claims: tuple[Name, ...] = ()


class Port(msgspec.Struct, frozen=True, rename="camel"):
    """ports[*] of a container."""

    host_port: int = 0
    """0: none. With hostNetwork, the API server sets that of the container."""
    protocol: str = "TCP"


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """spec.containers[*] and spec.initContainers[*]."""

    name: str = ""
    resources: Requirements = Requirements()
    ports: tuple[Port, ...] = ()
    restart_policy: str = ""
    """`Always` for an init container that runs beside the others (a sidecar)."""


class Requirement(msgspec.Struct, frozen=True):
    """One requirement of a node selector term."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Term(msgspec.Struct, frozen=True, rename="camel"):
    """A node selector term: all of its requirements."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(msgspec.Struct, frozen=True, rename="camel"):
    """requiredDuringSchedulingIgnoredDuringExecution: one of its terms."""

    node_selector_terms: tuple[Term, ...] = ()


class NodeAffinity(msgspec.Struct, frozen=True, rename="camel"):
    """spec.affinity.nodeAffinity."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(msgspec.Struct, frozen=True, rename="camel"):
    """spec.affinity."""

    node_affinity: NodeAffinity | None = None


class Toleration(msgspec.Struct, frozen=True):
    """spec.tolerations[*]."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Spread(msgspec.Struct, frozen=True, rename="camel"):
    """spec.topologySpreadConstraints[*]."""

    topology_key: str = ""
    when_unsatisfiable: str = ""


class PodClaim(msgspec.Struct, frozen=True, rename="camel"):
    """spec.resourceClaims[*], and status.resourceClaimStatuses[*]."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """spec of a pod."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Mapping[str, str] = {}
    resources: Requirements = Requirements()
    node_name: str = ""
    scheduler_name: str = ""
    node_selector: Mapping[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[Spread, ...] = ()
    scheduling_gates: tuple[Name, ...] = ()
    resource_claims: tuple[PodClaim, ...] = ()
    scheduling_group: Mapping[str, Any] | None = None
    workload_ref: Mapping[str, Any] | None = None
    active_deadline_seconds: int | None = None


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """status.conditions[*]."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """status of a pod."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodClaim, ...] = ()

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of that type."""
        return next((it for it in self.conditions if it.type == kind), None)


class Pod(msgspec.Struct, frozen=True):
    """v1 Pod."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def finished(self) -> bool:
        """Whether all of its containers have ended for good."""
        return self.status.phase in ("Succeeded", "Failed")


class Address(msgspec.Struct, frozen=True):
    """status.addresses[*]."""

    type: str
    address: str


class Taint(msgspec.Struct, frozen=True):
    """spec.taints[*]."""

    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(msgspec.Struct, frozen=True):
    """spec of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(msgspec.Struct, frozen=True):
    """status of a node."""

    allocatable: Mapping[str, str] = {}
    addresses: tuple[Address, ...] = ()
    conditions: tuple[Condition, ...] = ()


class Node(msgspec.Struct, frozen=True):
    """v1 Node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Whether its kubelet reports that it is."""
        return any(it.type == "Ready" and it.status == "True" for it in self.status.conditions)

    @property
    def address(self) -> str:
        """Its first InternalIP; "" without one."""
        return next((it.address for it in self.status.addresses if it.type == "InternalIP"), "")
