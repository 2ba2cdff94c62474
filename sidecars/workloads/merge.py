"""Laying one piece of a Kubernetes object over another: strategic merge, and the custom resources' rules on top.

The rules per field come from merge_keys.json, which is generated from Kubernetes' OpenAPI document. Inputs are never
changed; results may share parts with them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources as packaged
from typing import Any

from sidecars.workloads.resources import Json, ResourceError

_TABLE: Mapping[str, Mapping[str, Mapping[str, str]]] = json.loads(
    packaged.files("sidecars.workloads").joinpath("merge_keys.json").read_text(encoding="utf-8")
)

_NO_RULES: Mapping[str, Mapping[str, str]] = {}
_NO_RULE: Mapping[str, str] = {}

_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
_HOOKS = ("preStop", "postStart")
_HANDLERS = ("exec", "grpc", "httpGet", "sleep", "tcpSocket")

_APPENDED = ("initContainers", "containers")
_UNITED = (
    ("tolerations",),
    ("dnsConfig", "searches"),
    *(
        ("affinity", kind, f"{strength}DuringSchedulingIgnoredDuringExecution")
        for kind in ("podAffinity", "podAntiAffinity")
        for strength in ("required", "preferred")
    ),
    ("affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"),
    ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"),
)


def kind_of(value: Any) -> str:
    """What a value is, for messages: not the value itself, which may be a password."""
    return {str: "a text", bool: "a boolean", list: "a list", dict: "a map"}.get(type(value), "a number")


def merge(base: Json, patch: Json, kind: str, *, retain_keys: bool = False) -> Json:
    """Kubernetes' strategic merge of a patch into an object of a type (`PodSpec`, `Container`, …).

    As the apiserver does it (https://kubernetes.io/docs/reference/using-api/api-concepts/#patch-and-update): null
    removes, maps merge, lists merge by their merge key if they have one and are replaced if not; `$patch: replace` and
    `$patch: delete` are understood. With `retain_keys`, a value of which only one of several keys may be set (a
    volume's source) keeps just the keys that the patch names, as `kubectl apply` asks for. Raises ResourceError, whose
    field is relative to the object, for what doesn't fit the type.
    """
    return _merge_map(base, patch, kind, retain_keys, "")


def has_rules(kind: str) -> bool:
    """Whether Kubernetes merges the lists of a type by keys. All lists of other types are replaced."""
    return kind in _TABLE


def _merge_map(base: Mapping[str, Any], patch: Mapping[str, Any], kind: str | None, retain: bool, place: str) -> Json:
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    patch = {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "replace":
        return patch
    rules = _TABLE.get(kind, _NO_RULES) if kind else _NO_RULES
    merged = dict(base)
    for field, new in patch.items():
        path = f"{place}.{field}" if place else field
        rule = rules.get(field, _NO_RULE)
        old = merged.get(field)
        if new is None:
            merged.pop(field, None)
        elif isinstance(new, Mapping):
            if old is not None and not isinstance(old, Mapping):
                raise ResourceError(path, "a map stands where another type belongs")
            merged[field] = _merge_map(_retained(old or {}, new, rule, retain), new, rule.get("type"), retain, path)
        elif isinstance(new, list) and "merge" in rule.get("strategy", "") and isinstance(old or [], list):
            merged[field] = _merge_list(old or [], new, rule, retain, path)
        elif isinstance(old, Mapping) or (isinstance(old, list) and not isinstance(new, list)):
            wanted = "map" if isinstance(old, Mapping) else "list"
            raise ResourceError(path, f"{kind_of(new)} stands where a {wanted} belongs")
        else:
            merged[field] = new
    return merged


def _retained(old: Mapping[str, Any], new: Mapping[str, Any], rule: Mapping[str, str], retain: bool) -> Json:
    if retain and "retainKeys" in rule.get("strategy", ""):
        return {key: value for key, value in old.items() if key in new}
    return dict(old)


def _merge_list(old: Sequence[Any], new: Sequence[Any], rule: Mapping[str, str], retain: bool, place: str) -> list[Any]:
    key = rule.get("key")
    if key is None:
        return _in_order(list(old), list(new), [*old, *(item for item in new if item not in old)], lambda item: item)
    identities = [_identity(item, key, place) for item in new]
    dropped = {identity for item, identity in zip(new, identities, strict=True) if item.get("$patch") == "delete"}
    if any(item.get("$patch") == "replace" for item in new):
        return [item for item in new if "$patch" not in item]
    kept = [item for item in old if not (isinstance(item, Mapping) and item.get(key) in dropped)]
    merged = list(kept)
    for item, identity in zip(new, identities, strict=True):
        if item.get("$patch") == "delete":
            continue
        found = next((i for i, present in enumerate(merged) if present.get(key) == identity), None)
        if found is None:
            merged.append(_merge_map({}, item, rule.get("type"), retain, place))
        else:
            present = _retained(merged[found], item, rule, retain)
            merged[found] = _merge_map(present, item, rule.get("type"), retain, f"{place}[{key}={identity}]")
    patched = [item for item in new if item.get("$patch") != "delete"]
    return _in_order(kept, patched, merged, lambda item: item.get(key))


def _identity(item: Any, key: str, place: str) -> Any:
    identity = item.get(key) if isinstance(item, Mapping) else None
    if not isinstance(identity, str | int):
        raise ResourceError(place, f"an item lacks `{key}`, which identifies the items of this list")
    return identity


def _in_order(old: list[Any], new: list[Any], merged: list[Any], identity: Any) -> list[Any]:
    """`merged` in the apiserver's order: the patch's order counts, and untouched items keep their place before those
    patched items that followed them; wholly new items come before the untouched ones that are left."""
    position = {_key(identity(item)): index for index, item in reversed(list(enumerate(old)))}
    wanted: dict[Any, int] = {}
    for index, item in enumerate(new):
        wanted.setdefault(_key(identity(item)), index)
    unique = {_key(identity(item)): item for item in merged}
    untouched = [item for key, item in unique.items() if key not in wanted]
    patched = sorted((key for key in unique if key in wanted), key=lambda key: wanted[key])
    untouched.sort(key=lambda item: position[_key(identity(item))])
    ordered: list[Any] = []
    while untouched and patched:
        before = position[_key(identity(untouched[0]))] < position.get(patched[0], -1)
        ordered.append(untouched.pop(0) if before else unique[patched.pop(0)])
    return ordered + [unique[key] for key in patched] + untouched


def _key(identity: Any) -> Any:
    """A list item's identity as a dictionary key that distinguishes 1, "1" and True."""
    return type(identity).__name__, identity


def chosen(value: Json) -> Json:
    """What a user really set: null, [] and {} mean unset, at any depth of maps; false, 0 and "" are choices.

    Lists are left alone: `emptyDir: {}` in a volume is a choice.
    """
    kept = {key: chosen(item) if isinstance(item, dict) else item for key, item in value.items()}
    return {key: item for key, item in kept.items() if item is not None and item not in ([], {})}


def container(base: Json, user: Json, place: str) -> Json:
    """Our container with a custom resource's override on it. `place` is the override's path, for errors.

    Strategic merge, except: args are appended; a probe or hook whose handler the user names loses ours, likewise an
    environment variable's `value` for `valueFrom`; a port is replaced by the user's of the same name; a resource for
    which the user sets a limit loses our request.
    """
    wanted = chosen(user)
    for field in ("args", "env", "ports"):
        _list(wanted, field, place)
    args = [*base.get("args", ()), *wanted.pop("args", ())]
    ours = dict(base)
    for probe in _PROBES:
        ours = _without_handler(ours, wanted, (probe,))
    for hook in _HOOKS:
        ours = _without_handler(ours, wanted, ("lifecycle", hook))
    ours = _without_limited_requests(_without_renamed_ports(ours, wanted), wanted)
    try:
        merged = merge(ours, wanted, "Container", retain_keys=True)
    except ResourceError as error:
        raise error.under(place) from error
    if "env" in merged:
        sourced = {item.get("name") for item in wanted.get("env", ()) if "valueFrom" in item}
        literal = {item.get("name") for item in wanted.get("env", ()) if "value" in item}
        merged["env"] = [
            _without(
                item, {"value"} if item["name"] in sourced else {"valueFrom"} if item["name"] in literal else set()
            )
            for item in merged["env"]
        ]
    return merged | ({"args": args} if args else {})


def _list(value: Json, field: str, place: str) -> list[Any]:
    found = value.get(field, [])
    if not isinstance(found, list):
        raise ResourceError(f"{place}.{field}", f"{kind_of(found)} stands where a list belongs")
    return found


def _without(item: Mapping[str, Any], keys: Iterable[str]) -> Json:
    return {key: value for key, value in item.items() if key not in keys}


def _without_handler(ours: Json, wanted: Json, path: tuple[str, ...]) -> Json:
    mine, theirs = _at(ours, path), _at(wanted, path)
    if isinstance(mine, dict) and isinstance(theirs, dict) and any(handler in theirs for handler in _HANDLERS):
        return _put(ours, path, _without(mine, _HANDLERS))
    return ours


def _without_renamed_ports(ours: Json, wanted: Json) -> Json:
    numbers = {
        port["name"]: port.get("containerPort")
        for port in wanted.get("ports", ())
        if isinstance(port, dict) and isinstance(port.get("name"), str)
    }
    ports = [
        port for port in ours.get("ports", ()) if numbers.get(port.get("name")) in (None, port.get("containerPort"))
    ]
    return ours | {"ports": ports} if "ports" in ours else ours


def _without_limited_requests(ours: Json, wanted: Json) -> Json:
    """Without our requests for what the user limits: Kubernetes then requests the limit, which may be below ours."""
    requests, limits = _at(ours, ("resources", "requests")), _at(wanted, ("resources", "limits"))
    if not isinstance(requests, Mapping) or not isinstance(limits, Mapping):
        return ours
    kept = _without(requests, limits)
    resources = _without(ours["resources"], {"requests"}) | ({"requests": kept} if kept else {})
    return ours | {"resources": resources}


def pod_spec(base: Json, user: Json, place: str) -> Json:
    """Our PodSpec with a custom resource's `template.spec` on it. `place` is the template spec's path, for errors.

    Strategic merge, except: containers and init containers are appended, ours first; tolerations, affinity terms and
    DNS search domains are united.
    """
    wanted = chosen(user)
    appended = {}
    for field in _APPENDED:
        appended[field] = [*base.get(field, ()), *_list(wanted, field, place)]
        wanted.pop(field, None)
    for path in _UNITED:
        mine, theirs = _at(base, path), _at(wanted, path)
        if isinstance(mine, list) and isinstance(theirs, list):
            wanted = _put(wanted, path, [*mine, *(item for item in theirs if item not in mine)])
    try:
        merged = merge(base, wanted, "PodSpec", retain_keys=True)
    except ResourceError as error:
        raise error.under(place) from error
    return merged | {field: items for field, items in appended.items() if items}


def _at(value: Any, path: Sequence[str]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _put(value: Json, path: Sequence[str], new: Any) -> Json:
    if len(path) == 1:
        return value | {path[0]: new}
    return value | {path[0]: _put(value.get(path[0]) or {}, path[1:], new)}
