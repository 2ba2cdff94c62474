"""What all kinds of custom resources share: metadata and the conditions of their status."""

from typing import Any, TypeAlias

import msgspec

from sidecars.objects import ObjectMeta

GROUP = "slinky.slurm.net"

VERSION = "v1beta1"

API_VERSION = f"{GROUP}/{VERSION}"

Json: TypeAlias = dict[str, Any]


class ResourceError(ValueError):
    """A custom resource that can't be used as it is: where, what stands there, and what to do.

    `field` is a path such as `spec.template.spec.hostname`.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem

    def under(self, place: str) -> "ResourceError":
        """Return the same error with its field inside `place`."""
        return ResourceError(f"{place}.{self.field}" if self.field else place, self.problem)


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of all records here: immutable, camelCase in JSON, unset fields not written."""


class Status(Part, frozen=True, kw_only=True):
    """What every kind reports: standard conditions, as JSON, and the generation that they are
    about.
    """

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
        """Namespace and uid: what it controls is in its namespace, whatever others name its uid as
        an owner's.
        """
        return self.metadata.namespace, self.metadata.uid
