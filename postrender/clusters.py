"""Slurm clusters of a stream, checked as the operator does: custom resources, slurm.conf, pods of
NodeSets.
"""

import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from postrender import rules
from postrender.pods import Path
from postrender.stream import Object
from sidecars.policy.configuration import lint
from sidecars.slurm import versions
from sidecars.workloads import config, nodeset, structure
from sidecars.workloads.facts import (
    Facts,
    MissingReferenceError,
    Site,
    UnreadObjects,
    config_map_contents,
)
from sidecars.workloads.resources import (
    Accounting,
    Controller,
    NodeSet,
    Resource,
    ResourceError,
    RestApi,
    read,
)
from sidecars.workloads.resources.reading import KINDS
from sidecars.workloads.structure import StructureError

Found = tuple[str, Object, Path, str]
R = TypeVar("R", bound=Resource)


@dataclass(slots=True)
class _Namespace:
    """What a stream has of one namespace."""

    resources: list[tuple[Resource, Object]] = field(default_factory=list)
    config_maps: dict[str, Mapping[str, str | bytes]] = field(default_factory=dict)
    sources: dict[str, Object] = field(default_factory=dict)
    """The ConfigMaps, by name."""

    def of(self, kind: type[R]) -> list[tuple[R, Object]]:
        """Return the resources of a kind, by name."""
        found = [(resource, it) for resource, it in self.resources if isinstance(resource, kind)]
        return sorted(found, key=lambda pair: pair[0].name)


def found(everything: Sequence[Object], namespace: str) -> Iterator[Found]:
    """Yield all findings about the Slurm clusters of the stream. `namespace`: of objects that name
    none.
    """
    spaces: dict[str, _Namespace] = {}
    for it in everything:
        space = spaces.setdefault(it.namespace or namespace, _Namespace())
        yield from _collect(it, space, it.namespace or namespace)
    site = Site(workloads=structure.load(structure.folder(None)), sidecars_image="sidecars")
    for space in spaces.values():
        names = {controller.name for controller, _ in space.of(Controller)}
        for controller, it in space.of(Controller):
            yield from _cluster(space, controller, it, site)
        for kind in (NodeSet, RestApi):
            for resource, it in cast("list[tuple[NodeSet | RestApi, Object]]", space.of(kind)):
                wanted = resource.spec.controller_ref.name
                if wanted not in names:
                    message = (
                        f"Controller {wanted!r} isn't in the stream, so this {it.kind} isn't "
                        "checked further"
                    )
                    yield "missing-reference", it, ("spec", "controllerRef"), message


def _collect(it: Object, space: _Namespace, namespace: str) -> Iterator[Found]:
    version = str(it.value.get("apiVersion") or "")
    if version == "v1" and it.kind == "ConfigMap":
        try:
            space.config_maps[it.name] = config_map_contents(
                it.value.get("data"), it.value.get("binaryData")
            )
            space.sources[it.name] = it
        except (binascii.Error, ValueError, TypeError, AttributeError) as error:
            yield "invalid-resource", it, ("binaryData",), f"no ConfigMap: {error}"
    elif version.startswith("slinky.slurm.net/") and it.kind in KINDS:
        try:
            manifest = {**it.value, "metadata": {**it.metadata, "namespace": namespace}}
            space.resources.append(
                (cast("Resource", read(cast("Any", KINDS[it.kind]), manifest)), it)
            )
        except ResourceError as error:
            yield "invalid-resource", it, _path(error.field), str(error)
        else:
            for place, message in rules.messages(it.kind, it.value):
                yield "invalid-resource", it, place, message


def _cluster(space: _Namespace, controller: Controller, it: Object, site: Site) -> Iterator[Found]:
    users = [
        pair for pair in space.of(NodeSet) if pair[0].spec.controller_ref.name == controller.name
    ]
    nodesets = [resource for resource, _ in users]
    reference = controller.spec.accounting_ref
    accountings = {resource.name: resource for resource, _ in space.of(Accounting)}
    restapis = [r for r, _ in space.of(RestApi) if r.spec.controller_ref.name == controller.name]
    facts = Facts(
        site=site,
        secrets=UnreadObjects(),
        config_maps=space.config_maps,
        accounting=accountings.get(reference.name) if reference is not None else None,
        restapi=restapis[0] if restapis else None,
    )
    if reference is not None and facts.accounting is None:
        message = (
            f"Accounting {reference.name!r} isn't in the stream: slurm.conf is checked without it"
        )
        yield "missing-reference", it, ("spec", "accountingRef"), message
    try:
        config_set = config.compose(controller, nodesets, facts)
    except MissingReferenceError as error:
        yield (
            "missing-reference",
            it,
            _path(error.field),
            f"{error} in the stream, so slurm.conf isn't checked",
        )
    except ResourceError as error:
        yield "invalid-resource", it, _path(error.field), str(error)
    else:
        release = versions.of_image(str(controller.spec.slurmctld.get("image") or ""))
        for finding in lint.lint(config_set, nodesets, release, None):
            at, path = _origin(finding.origin, finding.line, space, it)
            yield f"configuration-{finding.severity}", at, path, str(finding)
    for resource, user in users:
        try:
            nodeset.pod_template(resource, controller, facts)
        except MissingReferenceError as error:
            yield "missing-reference", user, _path(error.field), f"{error} in the stream"
        except (ResourceError, StructureError) as error:
            yield "invalid-resource", user, _path(getattr(error, "field", "")), str(error)


def _origin(
    origin: str, line: int | None, space: _Namespace, controller: Object
) -> tuple[Object, Path]:
    """Return the object and the path that a finding's origin names. A last number is a line of the
    text at the path.
    """
    kind, _, rest = origin.partition(" ")
    name, _, place = rest.partition(" ")
    if kind == "ConfigMap" and name in space.sources:
        key = place.removeprefix("key ")
        return space.sources[name], ("data", key, line) if line else ("data", key)
    if kind == "NodeSet":
        wanted = name.rpartition("/")[2]
        return next(
            (it for nodeset, it in space.of(NodeSet) if nodeset.name == wanted), controller
        ), _path(place)
    field, _, number = origin.partition(" line ")
    if not field.startswith("spec."):
        return controller, ("spec",)
    return controller, (*_path(field), *([int(number)] if number.isdecimal() else []))


def _path(field: str) -> Path:
    """Return a field as messages name it, such as `spec.template.spec.hostname`, as a path."""
    parts = field.replace("[", ".").replace("]", "").split(".")
    return tuple(int(part) if part.isdecimal() else part for part in parts if part)
