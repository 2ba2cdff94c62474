"""The step `secrets`: finds secrets that are readable in the stream. Helm keeps the stream in the
release.

Messages name the place, never the value.
"""

import re
from collections.abc import Iterator
from typing import Any, TypedDict

from postrender import pods
from postrender.configuration import StepSettings
from postrender.report import Run, Severity, finding
from postrender.selectors import Selection, Selector
from postrender.stream import Object, Stream

RULES = {
    "secret-object": "a Secret with its content is in the stream: create it outside of Helm, or "
    "by an operator for it",
    "secret-private-key": "a private key is in the stream: move it into a Secret outside of Helm",
    "secret-text": "a password is in the stream: move it into a Secret outside of Helm, and refer "
    "to it",
    "secret-env": "an environment variable has a secret as its value: use valueFrom.secretKeyRef",
}
"""Each rule with its message."""

_KEY = re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----")
_LINE = re.compile(
    r"^[ \t]*(?:StoragePass|JobCompPass|AccountingStoragePass|bindpw|ldap_default_authtok)[ "
    r"\t]*[=: ][ \t]*[^\s$#]",
    re.MULTILINE | re.IGNORECASE,
)
_NAMED = re.compile(
    r"(?:^|_)(?:PASSWORD|PASSWD|PASS|TOKEN|SECRET|API_?KEY|PRIVATE_KEY|CREDENTIALS?)$",
    re.IGNORECASE,
)


class Settings(TypedDict, total=False):
    """Of the step."""

    severity: dict[str, Severity]
    allow: list[Selector]


def apply(stream: Stream, step: StepSettings[Settings], run: Run) -> None:
    """Apply the step."""
    severities = step.settings.get("severity", {})
    allow = step.settings.get("allow")
    allowed = set(Selection(step, allow, field="allow").objects(stream)) if allow else set[Object]()
    for it in stream.objects():
        if it in allowed:
            continue
        for rule, path in _found(it):
            run.add(finding(rule, severities.get(rule, "error"), it, path, RULES[rule]))


def _found(it: Object) -> Iterator[tuple[str, pods.Path]]:
    if it.kind == "Secret":
        for field in ("data", "stringData"):
            if it.value.get(field):
                yield "secret-object", (field,)
        return
    for path, container in pods.containers(it.value):
        env = container.get("env")
        for index, variable in enumerate(env if isinstance(env, list) else ()):
            if (
                isinstance(variable, dict)
                and variable.get("value")
                and _NAMED.search(str(variable.get("name")))
            ):
                yield "secret-env", (*path, "env", index)
    for path, text in _texts(it.value, ()):
        for rule, pattern in (("secret-private-key", _KEY), ("secret-text", _LINE)):
            if (match := pattern.search(text)) is not None:
                yield rule, (*path, text.count("\n", 0, match.start()) + 1)


def _texts(value: Any, path: pods.Path) -> Iterator[tuple[pods.Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))
