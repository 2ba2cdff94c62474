"""What is rendered for a NodeSet, kept from pass to pass until something changes that it is
rendered from.

A kept result is never stale: the renderers see nothing but the records whose digest it is kept by,
and of Secrets and ConfigMaps, which they look up by name, each lookup is compared again, of missing
objects too.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import msgspec

from sidecars.workloads import nodeset as render
from sidecars.workloads.facts import Facts, Site
from sidecars.workloads.nodeset import Revision
from sidecars.workloads.resources import Controller, Json, Manifest, NodeSet, Resource

R = TypeVar("R", bound=Resource)
T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a NodeSet is rendered from, without what changes often and is never rendered."""

    nodeset: NodeSet
    controller: Controller
    facts: Facts
    digest: bytes
    """Of all of it but the site, the Secrets and the ConfigMaps."""


def inputs(nodeset: NodeSet, controller: Controller, facts: Facts) -> Inputs:
    """Return the inputs of one pass. Their `status` is empty, and their metadata has only names,
    uid, labels and annotations.

    The digest distinguishes what Python takes for equal: true, 1 and 1.0.
    """
    nodeset, controller = _rendered_part(nodeset), _rendered_part(controller)
    facts = replace(
        facts,
        accounting=_rendered_part(facts.accounting) if facts.accounting is not None else None,
        restapi=_rendered_part(facts.restapi) if facts.restapi is not None else None,
    )
    found = (nodeset, controller, facts.accounting, facts.restapi, sorted(facts.published))
    return Inputs(nodeset, controller, facts, hashlib.sha256(msgspec.json.encode(found)).digest())


def _rendered_part(resource: R) -> R:
    meta = resource.metadata
    metadata = type(meta)(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        labels=meta.labels,
        annotations=meta.annotations,
    )
    status: Any = resource.status  # type: ignore[attr-defined]  # each kind has one, of a type of its own
    return msgspec.structs.replace(resource, metadata=metadata, status=type(status)())


class _Lookups(Mapping[str, V]):
    """Objects by name, and what was found of those that were looked up."""

    def __init__(self, objects: Mapping[str, V]) -> None:
        self._objects = objects
        self.found: dict[str, V | None] = {}

    def __getitem__(self, name: str) -> V:
        found = self.found[name] = self._objects.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        raise TypeError("objects can only be looked up by name")

    def __len__(self) -> int:
        raise TypeError("objects can only be looked up by name")


@dataclass(frozen=True, slots=True)
class _Kept:
    """A result, and all that it was rendered from."""

    result: object
    digest: bytes
    site: Site
    revision: Json | None
    collisions: int
    secrets: Mapping[str, Mapping[str, str] | None]
    config_maps: Mapping[str, Mapping[str, str | bytes] | None]

    def is_current(self, given: Inputs, revision: Json | None, collisions: int) -> bool:
        """Return whether a render would have the same result. Raises NotUsableError where an object
        can't be read.
        """
        facts = given.facts
        return (
            self.digest == given.digest
            # Neither is changed in place. To compare their contents would take as long as a render.
            and self.site is facts.site
            and self.revision is revision
            and self.collisions == collisions
            and all(facts.secrets.get(name) == found for name, found in self.secrets.items())
            and all(
                facts.config_maps.get(name) == found for name, found in self.config_maps.items()
            )
        )


class Rendered:
    """The last results for one NodeSet. Callers must not change them.

    Each method raises ResourceError and MissingReferenceError as its renderer does. Such an outcome
    isn't kept.
    """

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def template(self, given: Inputs) -> Manifest:
        """Return the pod template of the NodeSet's own choices and the current base."""
        return self._last(
            "template",
            given,
            lambda facts: render.pod_template(given.nodeset, given.controller, facts),
        )

    def template_of(self, given: Inputs, revision: Revision) -> Manifest:
        """Return the pod template of a revision. Raises StructureError, too: its base may be of
        another release.
        """
        return self._last(
            "template of a revision",
            given,
            lambda facts: render.pod_template(given.nodeset, given.controller, facts, revision),
            revision=revision.data,
        )

    def objects(self, given: Inputs) -> list[Manifest]:
        """Return what the NodeSet owns beside pods, claims and revisions."""
        return self._last(
            "objects", given, lambda facts: render.objects(given.nodeset, given.controller, facts)
        )

    def revision(self, given: Inputs, collisions: int) -> Revision:
        """Return the revision that the spec describes, with the current base."""
        return self._last(
            "revision",
            given,
            lambda facts: render.revision(given.nodeset, given.controller, facts, collisions),
            collisions=collisions,
        )

    def _last(
        self,
        what: str,
        given: Inputs,
        renderer: Callable[[Facts], T],
        *,
        revision: Json | None = None,
        collisions: int = 0,
    ) -> T:
        kept = self._kept.get(what)
        if kept is None or not kept.is_current(given, revision, collisions):
            secrets, config_maps = _Lookups(given.facts.secrets), _Lookups(given.facts.config_maps)
            result = renderer(replace(given.facts, secrets=secrets, config_maps=config_maps))
            kept = _Kept(
                result,
                given.digest,
                given.facts.site,
                revision,
                collisions,
                secrets.found,
                config_maps.found,
            )
            self._kept[what] = kept
        return cast("T", kept.result)
