"""Texts without secrets: what follows a word such as `password` is replaced, and so are tokens,
private keys, and given values.

Standard library only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

REDACTED = "REDACTED"
SHORTEST = 6
"""Characters of a value that is replaced wherever it occurs: shorter ones would replace ordinary
words.
"""

_KEYWORD = re.compile(
    r"pass(?:word|wd|phrase)?|pwd|secret|token|authtok|bindpw|(?:api|private|account|access)[_-]?key|credential|jwt|bearer",
    re.IGNORECASE,
)
_REST = re.compile(r"[\w.-]*")
"""Of the word with a keyword in it."""
_BETWEEN = re.compile(
    r"(?:\s+(?:is|was)\b)(?P<phrase>\s*[=:]?\s*)|[\"']?\s*[=:]\s*|\s+", re.IGNORECASE
)
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
        (r"(\"(?:k|auth)\"\s*:\s*)\"[^\"]*\"", rf"\1{REDACTED}"),
        (r"(?<!\w)(?:AKIA|ASIA)[A-Z0-9]{16}(?!\w)", REDACTED),
        (r"(?<!\w)(?:gh[a-z]_|github_pat_|glpat-|hf_|npm_|xox[a-z]-)[\w-]{10,}", REDACTED),
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
"""Ends of field names whose values are names or settings, although a word before sounds like a
secret.
"""


def pair(key: str, value: str) -> str:
    """`Key=Value` of a configuration for a message, without a value that is a secret."""
    return f"{key}={REDACTED if value and _is_secret_field(key) else text(value)}"


def text(value: str, known: frozenset[str] | set[str] = frozenset()) -> str:
    """Return a text without what follows suspicious words, without tokens, keys, and the given
    values.
    """
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


def scrubbed(value: Any, known: frozenset[str] | set[str] = frozenset(), field: str = "") -> Any:
    """Return the value with all texts redacted. `known`: values to replace wherever they occur."""
    if isinstance(value, dict):
        return {
            text(str(key), known): scrubbed(item, known, str(key)) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [scrubbed(item, known, field) for item in value]
    if isinstance(value, str):
        return REDACTED if value and _is_secret_field(field) else text(value, known)
    return value


def secret_values(value: Any, field: str = "") -> set[str]:
    """Return the values that will be replaced because of their names, to find them elsewhere
    too.
    """
    if isinstance(value, dict):
        return set().union(*(secret_values(item, str(key)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return set().union(*(secret_values(item, field) for item in value))
    if not isinstance(value, str):
        return set()
    found = (
        {value}
        if _is_secret_field(field)
        else {
            value[start:end].strip("\"'") for start, end, between in _pairs(value) if "=" in between
        }
    )
    return {it for it in found if len(it) >= SHORTEST}


def secret_variables(value: Any) -> set[str]:
    """Return the values of environment variables with suspicious names."""
    if isinstance(value, dict):
        own = value.get("value")
        found = (
            {own}
            if isinstance(own, str)
            and len(own) >= SHORTEST
            and _KEYWORD.search(str(value.get("name")))
            else set()
        )
        return found.union(*(secret_variables(item) for item in value.values()))
    if isinstance(value, list | tuple):
        return set().union(*(secret_variables(item) for item in value))
    return set()


def _pairs(value: str) -> Iterator[tuple[int, int, str]]:
    """Find the values that follow words with a keyword, and what is between word and value.

    Each character is read a bounded number of times, however long a word is: users choose what is
    in a log.
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
    """Return the word without what follows the header of a token, and without that header."""
    parts = word.split(".")
    for place, part in enumerate(parts[:-1]):
        at = part.find(_JWT)
        if at >= 0 and len(part) - at >= _SHORTEST_HEADER and parts[place + 1]:
            return ".".join((*parts[:place], part[:at] + REDACTED))
    return word


def _is_secret_field(field: str) -> bool:
    return bool(_FIELD.fullmatch(field) and _KEYWORD.search(field)) and not _REFERENCES.search(
        field
    )
