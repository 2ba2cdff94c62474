"""What of a changed StatefulSet or Deployment can be applied, and how its claims grow.

The API server refuses an object as a whole if one field differs that can't be changed. So such a
field stays as it is, and everything else is applied. A StatefulSet can also be deleted without its
pods and claims, and created again: its pods keep running, because their template is the same.

A claim grows if its StorageClass allows it
(https://kubernetes.io/docs/concepts/storage/persistent-volumes/). Only the API server can tell for
certain: its refusal is an input.
"""

import contextlib
import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sidecars.workloads import names
from sidecars.workloads.quantities import quantity
from sidecars.workloads.resources import Manifest, ResourceError

IMMUTABLE: dict[str, dict[str, Any]] = {
    "StatefulSet": {
        "serviceName": "",
        "selector": {},
        "podManagementPolicy": "OrderedReady",
        "volumeClaimTemplates": [],
    },
    "Deployment": {"selector": {}},
}
"""Fields of `spec` that the API server never changes, and their defaults, of the kinds that can be
created again.
"""

_PLACES = {"statesave": "spec.persistence"}
"""By claim template: the field of the custom resource that it is rendered from."""

_STORAGE = "resources.requests.storage"

_SHOWN = 40
"""Characters of a size that a message shows."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim of a pod."""

    name: str
    storage: str
    """What it requests."""
    capacity: str = ""
    """What its volume has; empty while that is unknown."""
    bound: bool = True


@dataclass(frozen=True, slots=True)
class Resize:
    """Have a claim request another size."""

    claim: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"claim {self.claim}: {self.before} → {self.after}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with a changed workload, in this order."""

    resize: tuple[Resize, ...]
    manifest: Manifest
    """What the API server takes for the live object."""
    recreate: bool
    """Whether it then has to be created again, without its pods, for the rest."""
    kept: tuple[str, ...]
    """What is not applied: each with the field, its values, the reason and the remedy."""


def differences(live: Manifest, wanted: Manifest) -> list[str]:
    """Return the fields of `spec` that differ and can't be changed, none of a kind that is never
    created again.
    """
    return [
        field
        for field, default in IMMUTABLE.get(wanted["kind"], {}).items()
        if _comparable(live["spec"].get(field, default))
        != _comparable(wanted["spec"].get(field, default))
    ]


def plan(
    live: Manifest, wanted: Manifest, claims: Mapping[str, Claim], refused: Mapping[str, str]
) -> Plan:
    """Decide. `claims`: by name, those of the namespace. `refused`: by claim, why the API server
    doesn't resize it.
    """
    differing = differences(live, wanted)
    resize: list[Resize] = []
    kept: list[str] = []
    before, after = _templates(live), _templates(wanted)
    for name, template in after.items():
        present = [claims[it] for it in _claim_names(wanted, name) if it in claims]
        steps = list(_sizes(before.get(name), template, present, refused))
        resize += [it for it in steps if isinstance(it, Resize)]
        kept += [it for it in steps if isinstance(it, str)][:1]
    if "volumeClaimTemplates" in differing:
        kept += _unchangeable(before, after)
    if "selector" in differing:
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        kept.append(
            f"spec.selector of {kind} {name} can't be changed, and stays: delete the {kind}, and "
            "the operator creates it again with other pods"
        )
    manifest = copy.deepcopy(wanted) if differing else wanted
    for field in differing:
        manifest["spec"].pop(field, None)
        if field in live["spec"]:
            manifest["spec"][field] = copy.deepcopy(live["spec"][field])
    return Plan(tuple(resize), manifest, bool(differing) and not kept, tuple(kept))


def claim_names(wanted: Manifest) -> list[str]:
    """Return the claims of the pods of a StatefulSet."""
    return [it for template in _templates(wanted) for it in _claim_names(wanted, template)]


def _claim_names(wanted: Manifest, template: str) -> list[str]:
    pods = (
        f"{wanted['metadata']['name']}-{ordinal}"
        for ordinal in range(wanted["spec"].get("replicas", 1))
    )
    return [names.claim(template, pod) for pod in pods]


def _templates(workload: Manifest) -> dict[str, Manifest]:
    """Return the workload's claim templates by name."""
    return {it["metadata"]["name"]: it for it in workload["spec"].get("volumeClaimTemplates") or ()}


def _sizes(
    before: Manifest | None, after: Manifest, claims: Iterable[Claim], refused: Mapping[str, str]
) -> Iterator[Resize | str]:
    """Yield how each claim of a template that has another size gets this one, or why it doesn't."""
    asked, had = (_fields(it).get(_STORAGE) if it is not None else None for it in (after, before))
    wanted, former = _amount(_STORAGE, asked), _amount(_STORAGE, had)
    if not isinstance(wanted, Decimal):
        if before is not None and asked != had:
            yield (
                f"{_place(after)}.{_STORAGE}: {_shown(had)} → {_shown(asked)[:_SHOWN]} is not "
                f"applied: {_no_size(asked)}. Set it to a size such as {_shown(had)}"
            )
        return
    shrinks = isinstance(former, Decimal) and wanted < former
    for claim in claims:
        size = quantity(claim.storage, claim.name)
        # One that someone has resized by hand stays larger, unless a smaller size is asked for now.
        if size == wanted or (size > wanted and not shrinks):
            continue
        change = f"{_place(after)}.{_STORAGE}: {claim.storage} → {asked} is not applied"
        # A size that the volume hasn't reached yet may be taken back.
        if size > wanted and (not claim.capacity or wanted <= quantity(claim.capacity, claim.name)):
            yield f"{change}: a volume can't shrink. Set it to {claim.storage} or more"
        elif not claim.bound:
            yield (
                f"{change} yet: claim {claim.name} is not bound to a volume, which `kubectl "
                f"describe pvc {claim.name}` explains. The operator continues when it is"
            )
        elif claim.name in refused:
            yield (
                f"{change}: the API server refuses it for claim {claim.name}: "
                f"{refused[claim.name]}. Set it back to {claim.storage}, or change what refuses "
                "it, such as allowVolumeExpansion of the StorageClass: the operator asks again "
                "every 5 minutes"
            )
        else:
            yield Resize(claim.name, claim.storage, str(asked))


def _unchangeable(before: Mapping[str, Manifest], after: Mapping[str, Manifest]) -> Iterator[str]:
    """Yield what differs between claim templates beside the size."""
    for name in sorted(before.keys() ^ after.keys()):
        verb = "added" if name in after else "removed"
        yield (
            f"claim template {name} can't be {verb} after the StatefulSet was created, so it is "
            "not: change it back"
        )
    for name in sorted(before.keys() & after.keys()):
        old, new = (_fields(it) for it in (before[name], after[name]))
        for field in sorted(old.keys() | new.keys()):
            one, other = old.get(field), new.get(field)
            if _amount(field, one) != _amount(field, other) and field != _STORAGE:
                yield (
                    f"{_place(after[name])}.{field}: {_shown(one)} → {_shown(other)} is not "
                    "applied: a claim keeps what it was created with. Set it back to "
                    f"{_shown(one)}"
                )


def _place(template: Manifest) -> str:
    name = template["metadata"]["name"]
    return _PLACES.get(name, f"volumeClaimTemplates[{name}].spec")


def _comparable(value: Any) -> Any:
    """Claim templates without what the API server adds to them; any other value as it is."""
    if not isinstance(value, list):
        return value
    return [
        (
            {key: it for key, it in template["metadata"].items() if key != "creationTimestamp"},
            {field: _amount(field, it) for field, it in _fields(template).items()},
        )
        for template in value
    ]


def _fields(template: Manifest) -> dict[str, Any]:
    """Return the fields of a claim template's spec by their places."""
    return dict(_flat({"volumeMode": "Filesystem", **(template.get("spec") or {})}, ""))


def _flat(value: Mapping[str, Any], place: str) -> Iterator[tuple[str, Any]]:
    for key, it in value.items():
        inner = f"{place}.{key}" if place else key
        if isinstance(it, Mapping):
            yield from _flat(it, inner)
        else:
            yield inner, it


def _amount(field: str, value: Any) -> Any:
    """Return a size as a number, which may be written in several ways, and anything else as it
    is.
    """
    if field.startswith("resources."):
        with contextlib.suppress(ResourceError):
            return quantity(value, field)
    return value


def _no_size(value: Any) -> str:
    """Return why it is no size that Kubernetes can count."""
    if value is None:
        return "a claim needs a size"
    try:
        quantity(value, _STORAGE)
    except ResourceError as error:
        return error.problem
    return ""


def _shown(value: Any) -> str:
    if value is None:
        return "unset"
    return json.dumps(value) if isinstance(value, list) or value == "" else str(value)
