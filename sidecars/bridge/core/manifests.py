"""Pods and nodes as the bridge reads them: only the fields that its decisions need.

Maps of whole manifests stay out, because the bridge caches every pod of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sidecars.objects import NodeSpec, ObjectMeta


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


class LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    """labelSelector and namespaceSelector of a term."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class PodTerm(msgspec.Struct, frozen=True, rename="camel"):
    """requiredDuringSchedulingIgnoredDuringExecution[*] of the affinity to pods."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    """null selects no pod."""
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    mismatch_label_keys: tuple[str, ...] = ()


class PodAntiAffinity(msgspec.Struct, frozen=True, rename="camel"):
    """spec.affinity.podAntiAffinity."""

    required_during_scheduling_ignored_during_execution: tuple[PodTerm, ...] = ()


class Affinity(msgspec.Struct, frozen=True, rename="camel"):
    """spec.affinity."""

    node_affinity: NodeAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


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


class Terminated(msgspec.Struct, frozen=True, rename="camel"):
    """state.terminated of a container that has ended."""

    exit_code: int = 0


class Waiting(msgspec.Struct, frozen=True):
    """state.waiting of a container that doesn't run."""

    reason: str = ""


class Running(msgspec.Struct, frozen=True):
    """state.running of a container."""


class ContainerState(msgspec.Struct, frozen=True):
    """state and lastState of a container."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """status.containerStatuses[*] and status.initContainerStatuses[*]."""

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """status of a pod."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodClaim, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of that type."""
        return next((it for it in self.conditions if it.type == kind), None)


class Pod(msgspec.Struct, frozen=True):
    """v1 Pod."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def finished(self) -> bool:
        """Whether all of its containers have ended for good."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def exit_code(self) -> int | None:
        """The highest exit code of its containers, init containers apart. None until all of them
        have one, and for a pod that has failed without a container that has.
        """
        ends = [it.state.terminated for it in self.status.container_statuses]
        codes = [it.exit_code for it in ends if it is not None]
        if not self.finished or not codes or len(codes) < len(ends):
            return None
        found = max(codes)
        return found if found or self.status.phase == "Succeeded" else None


class Address(msgspec.Struct, frozen=True):
    """status.addresses[*]."""

    type: str
    address: str


class NodeStatus(msgspec.Struct, frozen=True):
    """status of a node."""

    allocatable: Mapping[str, str] = {}
    addresses: tuple[Address, ...] = ()
    conditions: tuple[Condition, ...] = ()


class Node(msgspec.Struct, frozen=True):
    """v1 Node."""

    metadata: ObjectMeta
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
