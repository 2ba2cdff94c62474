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
    from collections.abc import Iterator

    from sidecars.policy.explain.records import Object, Seen

REDACTED = "REDACTED"
SHORTEST = 6
"""Characters of a value that is replaced wherever it occurs: shorter ones would replace ordinary words."""

_KEYWORD = re.compile(
    r"pass(?:word|wd|phrase)?|pwd|secret|token|authtok|bindpw|(?:api|private|account|access)[_-]?key|credential|jwt|bearer",
    re.IGNORECASE,
)
_REST = re.compile(r"[\w.-]*")
"""Of the word with a keyword in it."""
_BETWEEN = re.compile(r"(?:\s+(?:is|was)\b)(?P<phrase>\s*[=:]?\s*)|[\"']?\s*[=:]\s*|\s+", re.IGNORECASE)
_VALUE = re.compile(r"\"[^\"]*\"|'[^']*'|[^\s,;\"']+")
_PHRASE = re.compile(r"[^\r\n]+")
"""The value in `the password is: a b c`."""
_FIELD = re.compile(r"[\w.-]+")
_PATTERNS = tuple(
    (re.compile(pattern, re.DOTALL), replacement)
    for pattern, replacement in (
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", REDACTED),
        (r"(?<=://)[^\s/@:]*:[^\s/]+(?=@)", REDACTED),
        (r"(?i)(?<=authorization: )\S+ \S+", REDACTED),
        (r"(?i)\b((?:set-)?cookie\s*:)[^\r\n]+", rf"\1 {REDACTED}"),
        (r"(?i)(?<![\w-])(x-amz-signature|sig)=[^\s&\"']+", rf"\1={REDACTED}"),
        (r"(?i)(?<![\w-])(key[\"']?\s*[=:]\s*[\"']?)[\w+/=-]{32,}", rf"\1{REDACTED}"),
        (r"(\"k\"\s*:\s*)\"[^\"]*\"", rf"\1{REDACTED}"),
        (r"(?<!\w)(?:AKIA|ASIA)[A-Z0-9]{16}(?!\w)", REDACTED),
        (r"(?<!\w)(?:gh[a-z]_|github_pat_|glpat-|xox[a-z]-)[\w-]{10,}", REDACTED),
        (r"(https://hooks\.slack\.com/)\S+", rf"\1{REDACTED}"),
    )
)
_JWT = "eyJ"
"""What a JSON Web Token begins with."""
_SHORTEST_HEADER = 8
_REFERENCES = re.compile(
    r"(?i)(ref|name|(?<!api)(?<!api[_-])(?<!private)(?<!private[_-])(?<!account)(?<!account[_-])(?<!access)(?<!access[_-])key"
    r"|refresh|lifetime|seconds|enabled|username|version|expirationtimestamp)$"
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
    for pattern, replacement in _PATTERNS:
        value = pattern.sub(replacement, value)
    if _JWT in value:
        value = _FIELD.sub(lambda it: _without_jwt(it[0]), value)
    parts, end = [], 0
    for start, stop, _ in _pairs(value):
        parts += [value[end:start], REDACTED]
        end = stop
    return "".join((*parts, value[end:]))


def _pairs(value: str) -> Iterator[tuple[int, int, str]]:
    """Where the values are that follow words with a keyword, and what is between word and value.

    Each character is read a bounded number of times, however long a word is: users choose what is in a log.
    """
    end = 0
    while (keyword := _KEYWORD.search(value, end)) is not None:
        end = _end(_REST, value, keyword.end())
        between = _BETWEEN.match(value, end)
        if between is None:
            continue
        found = (_VALUE if between["phrase"] is None else _PHRASE).match(value, between.end())
        if found is not None:
            yield *found.span(), between[0]
            end = found.end()


def _end(pattern: re.Pattern[str], value: str, start: int) -> int:
    found = pattern.match(value, start)
    return start if found is None else found.end()


def _without_jwt(word: str) -> str:
    """Without what follows the header of a token, and that header."""
    parts = word.split(".")
    for place, part in enumerate(parts[:-1]):
        at = part.find(_JWT)
        if at >= 0 and len(part) - at >= _SHORTEST_HEADER and parts[place + 1]:
            return ".".join((*parts[:place], part[:at] + REDACTED))
    return word


def _is_secret_field(field: str) -> bool:
    return bool(_FIELD.fullmatch(field) and _KEYWORD.search(field)) and not _REFERENCES.search(field)


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
        else {value[start:end].strip("\"'") for start, end, between in _pairs(value) if "=" in between}
    )
    return {it for it in found if len(it) >= SHORTEST}


def _environment(value: Any) -> set[str]:
    """The values of environment variables with suspicious names."""
    if isinstance(value, dict):
        own = value.get("value")
        found = (
            {own}
            if isinstance(own, str) and len(own) >= SHORTEST and _KEYWORD.search(str(value.get("name")))
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
