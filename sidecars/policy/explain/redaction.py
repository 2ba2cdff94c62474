"""What was read, without any secret: the content of `doctor --bundle`.

Secrets are never read. What may contain one anyway is left out or replaced: environment, commands, arguments and
annotations of pods are left out, and in all texts that remain, what follows a word such as `password` is replaced, and
so are tokens, private keys, and each value that was replaced elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sidecars.policy.explain import objects

if TYPE_CHECKING:
    from sidecars.policy.explain.records import Object, Seen

REDACTED = "REDACTED"
SHORTEST = 6
"""Characters of a value that is replaced wherever it occurs: shorter ones would replace ordinary words."""

_NAME = (
    r"[\w.-]*(?:pass(?:word|wd|phrase)?|secret|token|authtok|bindpw|mysql_pwd|api[_-]?key|private[_-]?key|credential|jwt"
    r"|bearer)[\w.-]*"
)
_SUSPICIOUS = re.compile(_NAME, re.IGNORECASE)
_PAIR = re.compile(
    rf"(?P<name>\b{_NAME})(?P<between>[\"']?\s*[=:]\s*|\s+)(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;\"']+)", re.IGNORECASE
)
_PATTERNS = (
    re.compile(r"eyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL),
    re.compile(r"(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"),
    re.compile(r"(?i)(?<=authorization: )\S+ \S+"),
)
_REFERENCES = re.compile(
    r"(?i)(ref|name|(?<!api)(?<!api[_-])(?<!private)(?<!private[_-])key|refresh|lifetime|seconds|enabled|username|version|expirationtimestamp)$"
)
"""Ends of field names whose values are names or settings, although a word before sounds like a secret."""


def bundle(seen: Seen) -> dict[str, Any]:
    """Everything that was read, by file name, without secrets."""
    kube = seen.kube
    found: dict[str, Any] = {
        "pods.json": [_pod(it) for it in kube.pods or ()],
        "kubernetes-nodes.json": [_kube_node(it) for it in kube.kube_nodes or ()],
        "events.json": [_event(it) for it in kube.events or ()],
        "custom-resources.json": [
            _resource(it) for it in (*(kube.controllers or ()), *(kube.nodesets or ()), *(kube.resources or ()))
        ],
        "quotas.json": [{"name": objects.name(it), "status": objects.dig(it, "status")} for it in kube.quotas or ()],
        "slurm-nodes.json": [_plain(asdict(it)) for it in seen.slurm.nodes or ()],
        "slurm-partitions.json": [_plain(asdict(it)) for it in seen.slurm.partitions or ()],
        "slurm-reservations.json": [_plain(asdict(it)) for it in seen.slurm.reservations or ()],
        "slurm-config.json": dict(seen.slurm.config or {}),
        "missing.json": [asdict(it) for it in seen.missing],
    }
    known = secrets(seen) | _values(found)
    return {name: scrubbed(content, known) for name, content in found.items()}


def pair(key: str, value: str) -> str:
    """`Key=Value` of a configuration for a message, without a value that is a secret."""
    return f"{key}={REDACTED if value and _is_secret_field(key) else text(value)}"


def secrets(seen: Seen) -> set[str]:
    """Values that are secrets because of the name of their variable, key or option, wherever they are."""
    kube = seen.kube
    found: set[str] = set()
    for it in (*(kube.pods or ()), *(kube.controllers or ()), *(kube.nodesets or ()), *(kube.resources or ())):
        found |= _environment(it) | _values(it)
    return found


def scrubbed(value: Any, known: frozenset[str] | set[str] = frozenset(), field: str = "") -> Any:
    """The value with all texts redacted. `known`: values to replace wherever they occur."""
    if isinstance(value, dict):
        return {text(str(key), known): scrubbed(item, known, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrubbed(item, known, field) for item in value]
    if isinstance(value, str):
        return REDACTED if value and _is_secret_field(field) else text(value, known)
    return value


def text(value: str, known: frozenset[str] | set[str] = frozenset()) -> str:
    """A text without what follows suspicious words, without tokens, keys, and the given values."""
    for secret in sorted(known, key=len, reverse=True):
        value = value.replace(secret, REDACTED)
    for pattern in _PATTERNS:
        value = pattern.sub(REDACTED, value)
    return _PAIR.sub(lambda it: f"{it['name']}{it['between']}{REDACTED}", value) if _SUSPICIOUS.search(value) else value


def _is_secret_field(field: str) -> bool:
    return bool(_SUSPICIOUS.fullmatch(field)) and not _REFERENCES.search(field)


def _values(value: Any, field: str = "") -> set[str]:
    """The values that will be replaced because of their names, to find them elsewhere too."""
    if isinstance(value, dict):
        return set().union(*(_values(item, str(key)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return set().union(*(_values(item, field) for item in value))
    if not isinstance(value, str):
        return set()
    found = (
        {value}
        if _is_secret_field(field)
        else {it["value"].strip("\"'") for it in _PAIR.finditer(value) if "=" in it["between"]}
    )
    return {it for it in found if len(it) >= SHORTEST}


def _environment(value: Any) -> set[str]:
    """The values of environment variables with suspicious names."""
    if isinstance(value, dict):
        own = value.get("value")
        found = (
            {own}
            if isinstance(own, str) and len(own) >= SHORTEST and _SUSPICIOUS.search(str(value.get("name")))
            else set()
        )
        return found.union(*(_environment(item) for item in value.values()))
    if isinstance(value, list | tuple):
        return set().union(*(_environment(item) for item in value))
    return set()


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    return {key: sorted(value) if isinstance(value, frozenset) else value for key, value in record.items()}


def _metadata(it: Object) -> Object:
    kept = (
        "name",
        "namespace",
        "uid",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "finalizers",
        "labels",
        "ownerReferences",
    )
    return {key: value for key in kept if (value := objects.dig(it, "metadata", key)) is not None}


def _pod(it: Object) -> Object:
    containers = [
        {"name": objects.text(c, "name"), "image": objects.text(c, "image"), "resources": objects.dig(c, "resources")}
        for key in ("initContainers", "containers")
        for c in objects.items(it, "spec", key)
    ]
    spec = {"nodeName": objects.text(it, "spec", "nodeName"), "containers": containers}
    return {"metadata": _metadata(it), "spec": spec, "status": objects.dig(it, "status")}


def _kube_node(it: Object) -> Object:
    kept = ("conditions", "capacity", "allocatable", "nodeInfo")
    status = {key: objects.dig(it, "status", key) for key in kept}
    spec = {key: objects.dig(it, "spec", key) for key in ("unschedulable", "taints")}
    return {"metadata": _metadata(it), "spec": spec, "status": status}


def _event(it: Object) -> Object:
    kept = ("involvedObject", "reason", "message", "type", "count", "firstTimestamp", "lastTimestamp", "eventTime")
    return {key: objects.dig(it, key) for key in kept}


def _resource(it: Object) -> Object:
    """A custom resource: its spec without pod templates' environment, commands and arguments."""
    return {
        "kind": objects.text(it, "kind"),
        "metadata": _metadata(it),
        "spec": _template(objects.dig(it, "spec")),
        "status": objects.dig(it, "status"),
    }


def _template(value: Any) -> Any:
    if isinstance(value, dict):
        left_out = ("env", "args", "command", "annotations", "stringData", "data")
        return {key: REDACTED if key in left_out else _template(item) for key, item in value.items()}
    return [_template(item) for item in value] if isinstance(value, list) else value
