"""Laying one piece of a Kubernetes object over another: strategic merge, and the custom resources'
rules on top.

The rules per field come from merge_keys.json, which is generated from Kubernetes' OpenAPI document.
Inputs are never changed; results may share parts with them.
"""

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from importlib import resources as packaged
from typing import Any, TypeAlias

from sidecars.workloads import variables
from sidecars.workloads.resources import Json, ResourceError

Identity: TypeAlias = Hashable
"""What distinguishes an item from the others of its list."""

Rule: TypeAlias = Mapping[str, Any]

_TABLE: Mapping[str, Mapping[str, Rule]] = json.loads(
    packaged.files("sidecars.workloads").joinpath("merge_keys.json").read_text(encoding="utf-8")
)

_NO_RULES: Mapping[str, Rule] = {}
_NO_RULE: Rule = {}

_DEFAULTS: Mapping[str, str] = {"protocol": "TCP"}
"""What the apiserver takes for a key of a list that an item lacks."""

_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
_HOOKS = ("preStop", "postStart")
_HANDLERS = ("exec", "grpc", "httpGet", "sleep", "tcpSocket")

_PORT = ("containerPort", "protocol")

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
    (
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
    ),
)


def kind_of(value: Any) -> str:
    """Describe the type of a value for messages, without the value itself, which may be a
    password.
    """
    return {str: "a text", bool: "a boolean", list: "a list", dict: "a map"}.get(
        type(value), "a number"
    )


def merge(base: Json, patch: Json, kind: str, *, applied: bool = False) -> Json:
    """Apply Kubernetes' strategic merge of a patch to an object of a type (`PodSpec`, `Container`,
    …).

    As the apiserver does it
    (https://kubernetes.io/docs/reference/using-api/api-concepts/#patch-and-update): null removes,
    maps merge, lists merge by their merge key if they have one and are replaced if not. `$patch:
    replace` and `$patch: delete` are understood.

    A strategic merge drops one of two ports with one number, because its merge key isn't all that
    distinguishes ports. With `applied`, no item of the patch is dropped: all keys by which
    server-side apply distinguishes the items of a list count, and items that the patch repeats
    stay apart. A value of which only one of several keys may be set (a volume's source) then keeps
    just the keys that the patch names, as `kubectl apply` asks for. Raises ResourceError, whose
    field is relative to the object, for what doesn't fit the type.
    """
    return _merge_map(base, patch, kind, applied, "")


def has_rules(kind: str) -> bool:
    """Return whether Kubernetes merges the lists of a type by keys. All lists of other types are
    replaced.
    """
    return kind in _TABLE


def _merge_map(
    base: Mapping[str, Any], patch: Mapping[str, Any], kind: str | None, applied: bool, place: str
) -> Json:
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
            merged[field] = _merge_map(
                _retained(old or {}, new, rule, applied), new, rule.get("type"), applied, path
            )
        elif (
            isinstance(new, list)
            and "merge" in rule.get("strategy", "")
            and isinstance(old or [], list)
        ):
            merged[field] = (
                _first_list(new, rule, path)
                if old is None and not applied
                else _merge_list(old or [], new, rule, applied, path)
            )
        elif isinstance(old, Mapping) or (isinstance(old, list) and not isinstance(new, list)):
            wanted = "map" if isinstance(old, Mapping) else "list"
            raise ResourceError(path, f"{kind_of(new)} stands where a {wanted} belongs")
        else:
            merged[field] = new
    return merged


def _retained(old: Mapping[str, Any], new: Mapping[str, Any], rule: Rule, applied: bool) -> Json:
    if applied and "retainKeys" in rule.get("strategy", ""):
        return {key: value for key, value in old.items() if key in new}
    return dict(old)


def _first_list(new: Sequence[Any], rule: Rule, place: str) -> list[Any]:
    """Return a list that the object didn't have. The apiserver doesn't compare its items."""
    return [
        _merge_map({}, item, rule.get("type"), False, place) if isinstance(item, Mapping) else item
        for item in new
        if not (isinstance(item, Mapping) and "$patch" in item)
    ]


def _merge_list(
    old: Sequence[Any], new: Sequence[Any], rule: Rule, applied: bool, place: str
) -> list[Any]:
    if "key" not in rule:
        olds, news = ({_key(item): item for item in items} for items in (old, new))
        return _in_order(list(olds), list(news), news | olds)
    keys = tuple(rule["keys"]) if applied and "keys" in rule else (rule["key"],)
    identities = [_identity(item, keys, place) for item in new]
    if any(item.get("$patch") == "replace" for item in new):
        return [item for item in new if "$patch" not in item]
    if applied:
        new = [item for index, item in enumerate(new) if item not in new[:index]]
        identities = _numbered([_identity(item, keys, place) for item in new])
    else:
        identities = [(identity, 0) for identity in identities]
    dropped = {
        identity
        for item, identity in zip(new, identities, strict=True)
        if item.get("$patch") == "delete"
    }
    merged = {
        identity: item
        for identity, item in zip(_numbered([_found(it, keys) for it in old]), old, strict=True)
        if identity not in dropped
    }
    kept = list(merged)
    patched = []
    for item, identity in zip(new, identities, strict=True):
        if item.get("$patch") == "delete":
            continue
        patched.append(identity)
        present = merged.get(identity, {})
        within = f"{place}[{keys[0]}={item[keys[0]]}]" if identity in merged else place
        merged[identity] = _merge_map(
            _retained(present, item, rule, applied), item, rule.get("type"), applied, within
        )
    return _in_order(kept, list(dict.fromkeys(patched)), merged)


def _identity(item: Any, keys: Sequence[str], place: str) -> Identity:
    """Return what distinguishes an item of a patch. Raises ResourceError if it lacks a key."""
    for key in keys:
        found = item.get(key, _DEFAULTS.get(key)) if isinstance(item, Mapping) else None
        if not isinstance(found, str | int):
            raise ResourceError(
                place, f"an item lacks `{key}`, which identifies the items of this list"
            )
    return _found(item, keys)


def _found(item: Any, keys: Sequence[str]) -> Identity:
    return tuple(
        _key(item.get(key, _DEFAULTS.get(key)) if isinstance(item, Mapping) else item)
        for key in keys
    )


def _numbered(identities: Sequence[Identity]) -> list[Identity]:
    """Return each identity with the number of earlier items that have it."""
    seen: Counter[Identity] = Counter()
    numbered: list[Identity] = []
    for identity in identities:
        numbered.append((identity, seen[identity]))
        seen[identity] += 1
    return numbered


def _in_order(
    old: Sequence[Identity], new: Sequence[Identity], merged: Mapping[Identity, Any]
) -> list[Any]:
    """Return the items of `merged` in the apiserver's order. The patch's order counts, and
    untouched items keep their place before those patched items that followed them. Wholly new items
    come before the untouched ones that are left.
    """
    position = {identity: index for index, identity in enumerate(old)}
    patched = list(new)
    untouched = [identity for identity in old if identity not in set(new)]
    ordered = []
    while untouched and patched:
        before = position[untouched[0]] < position.get(patched[0], -1)
        ordered.append(untouched.pop(0) if before else patched.pop(0))
    return [merged[identity] for identity in ordered + patched + untouched]


def _key(value: Any) -> Identity:
    """Return a value as a dictionary key that distinguishes 1, "1" and True."""
    return type(value).__name__, json.dumps(value, sort_keys=True)


def chosen(value: Json) -> Json:
    """Return what a user really set: null, [] and {} mean unset, at any depth of maps. false, 0 and
    "" are choices. Lists are kept as they are: `emptyDir: {}` in a volume is a choice.
    """
    kept = {key: chosen(item) if isinstance(item, dict) else item for key, item in value.items()}
    return {key: item for key, item in kept.items() if item is not None and item not in ([], {})}


def container(base: Json, user: Json, place: str) -> Json:
    """Return our container with a custom resource's override on it. `place` is the override's path,
    for errors.

    Strategic merge without any loss of the user's items, except: args are appended; a probe or hook
    whose handler the user names loses ours, likewise an environment variable's `value` for
    `valueFrom`; a variable that the user sets twice has the value that the kubelet gives it; a port
    is replaced by the user's of the same name; a resource for which the user sets a limit loses our
    request.
    """
    wanted = chosen(user)
    for field in ("args", "env", "ports"):
        _list(wanted, field, place)
    args = [*base.get("args", ()), *wanted.pop("args", ())]
    if "env" in wanted:
        wanted["env"] = variables.each_once(wanted["env"], f"{place}.env")
    ours = dict(base)
    for probe in _PROBES:
        ours = _without_handler(ours, wanted, (probe,))
    for hook in _HOOKS:
        ours = _without_handler(ours, wanted, ("lifecycle", hook))
    ours = _without_limited_requests(_without_renamed_ports(ours, wanted), wanted)
    try:
        merged = merge(ours, wanted, "Container", applied=True)
    except ResourceError as error:
        raise error.under(place) from error
    if "env" in merged:
        sourced = {item.get("name") for item in wanted.get("env", ()) if "valueFrom" in item}
        literal = {item.get("name") for item in wanted.get("env", ()) if "value" in item}
        merged["env"] = [
            _without(
                item,
                {"value"}
                if item["name"] in sourced
                else {"valueFrom"}
                if item["name"] in literal
                else set(),
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
    if (
        isinstance(mine, dict)
        and isinstance(theirs, dict)
        and any(handler in theirs for handler in _HANDLERS)
    ):
        return _put(ours, path, _without(mine, _HANDLERS))
    return ours


def _without_renamed_ports(ours: Json, wanted: Json) -> Json:
    theirs = {
        port["name"]: _found(port, _PORT)
        for port in wanted.get("ports", ())
        if isinstance(port, dict) and isinstance(port.get("name"), str)
    }
    ports = [
        port
        for port in ours.get("ports", ())
        if theirs.get(port.get("name"), _found(port, _PORT)) == _found(port, _PORT)
    ]
    return ours | {"ports": ports} if "ports" in ours else ours


def _without_limited_requests(ours: Json, wanted: Json) -> Json:
    """Remove our requests for what the user limits: Kubernetes then requests the limit, which may
    be below ours.
    """
    requests, limits = _at(ours, ("resources", "requests")), _at(wanted, ("resources", "limits"))
    if not isinstance(requests, Mapping) or not isinstance(limits, Mapping):
        return ours
    kept = _without(requests, limits)
    resources = _without(ours["resources"], {"requests"}) | ({"requests": kept} if kept else {})
    return ours | {"resources": resources}


def pod_spec(base: Json, user: Json, place: str) -> Json:
    """Return our PodSpec with a custom resource's `template.spec` on it. `place` is the template
    spec's path, for errors.

    Strategic merge without any loss of the user's items, except: containers and init containers are
    appended, ours first; tolerations, affinity terms, DNS search domains and the names of one
    address are united.
    """
    wanted = chosen(user)
    if "hostAliases" in wanted:
        wanted["hostAliases"] = _with_all_names(_list(wanted, "hostAliases", place))
    appended = {}
    for field in _APPENDED:
        appended[field] = [*base.get(field, ()), *_list(wanted, field, place)]
        wanted.pop(field, None)
    for path in _UNITED:
        mine, theirs = _at(base, path), _at(wanted, path)
        if isinstance(mine, list) and isinstance(theirs, list):
            wanted = _put(wanted, path, [*mine, *(item for item in theirs if item not in mine)])
    try:
        merged = merge(base, wanted, "PodSpec", applied=True)
    except ResourceError as error:
        raise error.under(place) from error
    return merged | {field: items for field, items in appended.items() if items}


def _with_all_names(aliases: Sequence[Any]) -> list[Any]:
    """Return the host aliases with one item for each address, because the apiserver applies no list
    that has two.
    """
    united: dict[Identity, Any] = {}
    for alias in aliases:
        if not (isinstance(alias, Mapping) and isinstance(alias.get("hostnames", []), list)):
            return list(aliases)
        before = united.setdefault(_found(alias, ("ip",)), {**alias, "hostnames": []})
        before["hostnames"] += [
            name for name in alias.get("hostnames", ()) if name not in before["hostnames"]
        ]
    return list(united.values())


def _at(value: Any, path: Sequence[str]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _put(value: Json, path: Sequence[str], new: Any) -> Json:
    if len(path) == 1:
        return value | {path[0]: new}
    return value | {path[0]: _put(value.get(path[0]) or {}, path[1:], new)}
