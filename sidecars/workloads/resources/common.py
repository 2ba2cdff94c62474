"""What all kinds of custom resources share: metadata, references, pod templates, Services, status.

Pod templates, container overrides and the specs of Services are plain JSON values: Kubernetes owns their schema.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

GROUP = "slinky.slurm.net"

VERSION = "v1beta1"

API_VERSION = f"{GROUP}/{VERSION}"

Json: TypeAlias = dict[str, Any]

Manifest: TypeAlias = dict[str, Any]
"""A whole Kubernetes object as JSON."""


class ResourceError(ValueError):
    """A custom resource that can't be used as it is: where, what stands there, and what to do.

    `field` is a path such as `spec.template.spec.hostname`.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem

    def under(self, place: str) -> "ResourceError":
        """The same error with its field inside `place`."""
        return ResourceError(f"{place}.{self.field}" if self.field else place, self.problem)


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """metadata.ownerReferences[*]."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """metadata; times are UTC."""

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

    @property
    def controller(self) -> OwnerReference | None:
        """The owner marked `controller: true`; None for an object that nobody controls."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of all records here: immutable, camelCase in JSON, unset fields not written."""


class LocalObjectReference(Part, frozen=True, kw_only=True):
    """An object of the same namespace; the API server takes no `namespace` but an empty one."""

    name: str = ""
    namespace: str = ""


class KeySelector(Part, frozen=True, kw_only=True):
    """One key of a Secret or ConfigMap of the same namespace; the API server takes no `namespace` but an empty one."""

    key: str
    name: str = ""
    namespace: str = ""
    optional: bool | None = None


class ExternalConfig(Part, frozen=True, kw_only=True):
    """Where a daemon runs that isn't ours to run."""

    host: str
    port: int


class TemplateMetadata(Part, frozen=True, kw_only=True):
    """Labels and annotations for the pods (or the Service)."""

    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class PodTemplate(Part, frozen=True, kw_only=True):
    """What the user wants different in the pods. `spec` is a PodSpec, laid over ours."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: Json = {}


class Service(Part, frozen=True, kw_only=True):
    """What the user wants different in the Service. `spec` is a ServiceSpec; ports of 0 mean the daemon's own."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: Json = {}
    port: int = 0
    node_port: int = 0


class Status(Part, frozen=True, kw_only=True):
    """What every kind reports: standard conditions, as JSON, and the generation that they are about."""

    conditions: list[Json] = []
    observed_generation: int = 0


class Resource(Part, frozen=True, kw_only=True):
    """What every custom resource has."""

    metadata: ObjectMeta
    api_version: str = API_VERSION
    kind: str = ""

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """metadata.namespace."""
        return self.metadata.namespace

    @property
    def own_id(self) -> tuple[str, str]:
        """Namespace and uid: what it controls is in its namespace, whatever others name its uid as an owner's."""
        return self.metadata.namespace, self.metadata.uid
