"""Which fields of objects differ, in words."""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from postrender import rules
from postrender.expand.cluster import is_custom, typed
from sidecars.contract import redaction
from sidecars.workloads.resources import Manifest, builtins

Identity = tuple[str, str, str, str]
"""API group, kind, namespace and name."""

LONGEST = 60
"""Characters of a value that is shown."""

_OF_TOOLS = ("helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version")
_PREFIXES = (
    "meta.helm.sh/",
    "kubectl.kubernetes.io/last-applied",
    "deployment.kubernetes.io/",
    "postrenderer.helm.sh/",
)


@dataclass(frozen=True, slots=True)
class Refused:
    """A custom resource that the API server would refuse, so that `helm upgrade` fails."""

    kind: str
    namespace: str
    name: str
    why: tuple[str, ...]
    """The fields, each with the rule that it breaks."""


@dataclass(frozen=True, slots=True)
class Change:
    """An object that is created, changed or deleted."""

    action: Literal["create", "change", "delete"]
    kind: str
    namespace: str
    name: str
    fields: tuple[str, ...] = ()
    """Of a change: what differs, such as `spec.replicas: 2 → 3`."""


def identity(manifest: Manifest, namespace: str = "") -> Identity:
    """Return what distinguishes the object from others. `namespace` is that of an object that names
    none.
    """
    group = str(manifest.get("apiVersion", "")).rpartition("/")[0]
    metadata = manifest.get("metadata") or {}
    return (
        group,
        str(manifest.get("kind")),
        metadata.get("namespace") or namespace,
        str(metadata.get("name")),
    )


def changes(
    before: Iterable[Manifest],
    after: Iterable[Manifest],
    namespace: str = "",
    *,
    live: bool = False,
) -> list[Change]:
    """Compare the objects, in the order of `after`, then those that are deleted. `live`: those
    before come from the API server, with defaults and fields of others. Only what `after` sets
    counts then, but for the data of ConfigMaps and Secrets, and for custom resources, which
    `ownership.retained` has completed.
    """
    old = {identity(it, namespace): it for it in before}
    new = {identity(it, namespace): it for it in after}
    found = []
    for key, manifest in new.items():
        if key not in old:
            found.append(Change("create", *key[1:]))
        elif fields := tuple(_of_object(old[key], manifest, live=live)):
            found.append(Change("change", *key[1:], fields))
    return found + [Change("delete", *key[1:]) for key in old if key not in new]


def refused(
    before: Iterable[Manifest], after: Iterable[Manifest], namespace: str = ""
) -> Iterator[Refused]:
    """Yield the custom resources whose change the API server would refuse by a rule."""
    old = {identity(it, namespace): it for it in before if is_custom(it)}
    for manifest in after:
        key = identity(manifest, namespace)
        if key in old:
            specs = [builtins(typed(it).spec) for it in (old[key], manifest)]
            found = tuple(
                f"{field}: {rule}" for field, rule in rules.refused_changes(key[1], *specs)
            )
            if found:
                yield Refused(*key[1:], found)


def fields(
    before: Any, after: Any, place: str = "", *, live: bool = False, secret: bool = False
) -> Iterator[str]:
    """Yield the fields that differ, each with its values where they are short.

    `live`: as for `changes`. `secret`: values are not shown, nor are those that may be a password.
    """
    secret = secret or _last(place) in _HIDDEN
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _of_maps(before, after, place, live=live, secret=secret)
    elif isinstance(before, list) and isinstance(after, list) and before != after:
        old, new = _by_name(before), _by_name(after)
        if old is not None and new is not None:
            yield from _of_maps(old, new, place, live=live, secret=secret, item=True)
        elif len(before) == len(after):
            for index, (one, other) in enumerate(zip(before, after, strict=True)):
                yield from fields(one, other, f"{place}[{index}]", live=live, secret=secret)
        else:
            yield f"{place} changes"
    elif not _equal(before, after):
        one, other = (_shown(it, place, secret=secret) for it in (before, after))
        yield f"{place} changes" if HIDDEN in (one, other) else f"{place}: {one} → {other}"


HIDDEN = "…"
"""In place of a value that is long, or that may be a password."""

_HIDDEN = frozenset({"args", "binaryData", "command", "data", "env", "stringData"})
"""Fields that may have passwords: those of ConfigMaps and Secrets, of environments and commands."""


def _of_object(before: Manifest, after: Manifest, *, live: bool) -> Iterator[str]:
    secret = after.get("kind") == "Secret"
    for part in ("labels", "annotations"):
        one, other = ((it.get("metadata") or {}).get(part) or {} for it in (before, after))
        yield from fields(_without_tools(one), _without_tools(other), f"metadata.{part}", live=live)
    if is_custom(after):
        # Without defaults, which the API server writes into the object.
        one, other = (builtins(typed(it).spec) for it in (before, after))
        yield from fields(one, other, "spec")
        return
    one, other = (
        {
            key: value
            for key, value in it.items()
            if key not in {"apiVersion", "kind", "metadata", "status"}
        }
        for it in (map(_stored, (before, after)) if secret else (before, after))
    )
    for field in _DATA if secret or after.get("kind") == "ConfigMap" else ():
        yield from fields(
            one.pop(field, None) or {}, other.pop(field, None) or {}, field, secret=True
        )
    yield from fields(one, other, live=live)


_DATA = ("data", "binaryData")


def _stored(secret: Manifest) -> Manifest:
    """Return the Secret as the API server stores it: `stringData` is data in base64."""
    text = secret.get("stringData")
    if not isinstance(text, dict):
        return secret
    encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in text.items()}
    kept = {key: value for key, value in secret.items() if key != "stringData"}
    return {**kept, "data": {**(secret.get("data") or {}), **encoded}}


def _without_tools(of: Mapping[str, str]) -> dict[str, str]:
    return {
        key: it for key, it in of.items() if key not in _OF_TOOLS and not key.startswith(_PREFIXES)
    }


def _of_maps(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    place: str,
    *,
    live: bool,
    secret: bool,
    item: bool = False,
) -> Iterator[str]:
    for key in [*after, *(key for key in before if key not in after and not live)]:
        inner = f"{place}[{key}]" if item else f"{place}.{key}" if place else key
        if key not in before:
            if not _is_unset(after[key]):
                shown = _shown(after[key], inner, secret=secret)
                yield f"{inner} is added" if shown == HIDDEN else f"{inner} is added: {shown}"
        elif key not in after:
            if not _is_unset(before[key]):
                yield f"{inner} is removed"
        else:
            yield from fields(before[key], after[key], inner, live=live, secret=secret)


def _by_name(items: Sequence[Any]) -> dict[str, Any] | None:
    named = {
        it["name"]: it for it in items if isinstance(it, dict) and isinstance(it.get("name"), str)
    }
    return named if len(named) == len(items) else None


def _is_unset(value: Any) -> bool:
    return value is None or value in ({}, [])


def _equal(before: Any, after: Any) -> bool:
    return (_is_unset(before) and _is_unset(after)) or (
        type(before) is type(after) and before == after
    )


def _shown(value: Any, place: str, *, secret: bool) -> str:
    if value is None:
        return "unset"
    text = str(value)
    if (
        secret
        or _last(place) in _HIDDEN
        or isinstance(value, dict | list)
        or "\n" in text
        or len(text) > LONGEST
    ):
        return HIDDEN
    named = {_last(place): value}
    return HIDDEN if redaction.scrubbed(named) != named else text or '""'


def _last(place: str) -> str:
    """Return the name of the field at a place."""
    return place.rpartition(".")[2].partition("[")[0]
