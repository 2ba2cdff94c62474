"""Values → YAML that every parser takes for the same: Kubernetes', Helm's, PyYAML's and those of
YAML 1.2.

Strings are written plain only where no parser could take them for anything else. Text of several
lines is a block.
"""

import re
from typing import Any

from postrender.errors import PostrenderError

_PLAIN = re.compile(
    r"(?!(?:y|n|yes|no|on|off|true|false|null|nan|inf|infinity)\Z)"
    r"[a-z/][a-z0-9_./@+-]*(?:[ :][a-z0-9_/@(][a-z0-9_./@+()-]*)*",
    re.ASCII | re.IGNORECASE,
)
"""No digit or dot first; a colon or a space only between two words."""

_ODD = "\x00-\x08\x0b-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff"
_BLOCK = re.compile(rf"(?![ \n\t])[^{_ODD}]*\Z")
_SPACE_AT_END = re.compile(r"[ \t](?:\n|\Z)")
_ESCAPED = re.compile(rf'["\\\n\t{_ODD}]')
_SHORT = {"\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\"}

LONGEST_KEY = 256
"""Characters of a key that stands on the line of its value: that far all parsers look for the
colon.
"""

LARGEST = 64 << 20
"""Characters of a document at most: aliases can make a small text very large."""


def document(value: dict[str, Any]) -> str:
    """Return the YAML of a Kubernetes object, without `---`. Raises PostrenderError for what YAML
    can't express.
    """
    out = _Lines()
    try:
        if value:
            _mapping(value, "", "", out)
        else:
            out.append("{}")
    except RecursionError:
        raise PostrenderError("an object is nested too deeply to be written") from None
    return "".join(out.lines)


class _Lines:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.size = 0

    def append(self, line: str) -> None:
        self.lines.append(f"{line}\n")
        self.size += len(line)
        if self.size > LARGEST:
            raise PostrenderError(
                f"an object has more than {LARGEST >> 20} MiB of YAML: it has aliases of aliases"
            )


def _mapping(value: dict[str, Any], indent: str, first: str, out: _Lines) -> None:
    """`first`: what stands before the first key, `indent` before the others."""
    start = first
    for key, item in value.items():
        lead = f"{start}{_key(key)}:"
        if len(lead) - len(start) > LONGEST_KEY:
            out.append(f"{start}? {_key(key)}")
            lead = f"{indent}:"
        start = indent
        if isinstance(item, dict) and item:
            out.append(lead)
            _mapping(item, f"{indent}  ", f"{indent}  ", out)
        elif isinstance(item, list) and item:
            out.append(lead)
            _sequence(item, indent, indent, out)
        else:
            out.append(f"{lead} {_scalar(item, indent)}")


def _sequence(value: list[Any], indent: str, first: str, out: _Lines) -> None:
    start = first
    for item in value:
        lead = f"{start}- "
        start = indent
        if isinstance(item, dict) and item:
            _mapping(item, f"{indent}  ", lead, out)
        elif isinstance(item, list) and item:
            _sequence(item, f"{indent}  ", lead, out)
        else:
            out.append(f"{lead}{_scalar(item, indent)}")


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise PostrenderError(f"the key {key!r} is no string")
    return key if _PLAIN.fullmatch(key) else _quoted(key)


def _scalar(value: Any, indent: str) -> str:
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value, indent)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if value == {}:
        return "{}"
    if value == []:
        return "[]"
    raise PostrenderError(f"{value!r} can't be written as YAML")


def _string(text: str, indent: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    if "\n" not in text or not _BLOCK.match(text) or _SPACE_AT_END.search(text):
        return _quoted(text)
    body = text.rstrip("\n")
    chomp = {0: "-", 1: ""}.get(len(text) - len(body), "+")
    lines = "".join(f"\n{indent}  {line}" if line else "\n" for line in body.split("\n"))
    return f"|{chomp}{lines}" + "\n" * max(0, len(text) - len(body) - 1)


def _quoted(text: str) -> str:
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    code = ord(character)
    if 0xD800 <= code < 0xE000:
        raise PostrenderError(f"half a character, U+{code:04X}, can't be written as YAML")
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def _float(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        raise PostrenderError(f"{value} can't be in a Kubernetes object")
    return repr(value)
