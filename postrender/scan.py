"""Kind and name of a document from its lines, for the documents that no step selects: parsing is
what takes time.

A line is only believed if YAML allows no other reading of it. Any other document is parsed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ODD = re.compile("[\x85\u2028\u2029\ufeff\t]|\r(?!\n)")
"""Characters that YAML takes for line breaks or indentation in some places."""

_WORD = r"[A-Za-z](?:[A-Za-z0-9./_-]*[A-Za-z0-9])?"
_VALUE = rf"""(?:{_WORD}(?::{_WORD})*|[0-9][0-9.]*|"[^"\\\n]*"|'[^'\n]*'|\{{\}}|\[\])"""
_FIRST = re.compile(r"(?:---\r?\n)?(?:[ ]*(?:#[^\n]*)?\r?\n)*([^\n]?)")
_TOP = re.compile(r"^[^ #\r\n][^\n]*", re.MULTILINE)
_TOP_SIMPLE = re.compile(rf"---\r?\Z|-(?: |\r?\Z)|{_WORD}:(?: +(?:[|>][+-]?|{_VALUE}))? *\r?\Z")
_KIND = re.compile(rf"^kind: +([\"']?)({_WORD})\1 *\r?(?:\n *\r?)*(?:\n(?! )|\Z)", re.MULTILINE)
_METADATA = re.compile(r"^metadata: *\r?\n((?: [^\n]*(?:\n|\Z)|#[^\n]*\n|\r?\n)+)", re.MULTILINE)
_INNER_SIMPLE = re.compile(
    rf" *(?:#.*|(?:- +)*(?:{_WORD}|\"[^\"\\]*\"|'[^']*'):(?: +{_VALUE})? *)?\r?\Z"
)
_NAME = re.compile(rf"^( +)[\"']?name[\"']?: +([\"']?)({_WORD})\2 *\r?$", re.MULTILINE)
_INDENT = re.compile(r"^( +)[^ #\r\n]", re.MULTILINE)
_RESERVED = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))


@dataclass(frozen=True, slots=True)
class Head:
    """What steps select by first."""

    kind: str
    """"" for a document without content, or without a kind."""

    name: str

    @property
    def has_items(self) -> bool:
        """Whether it may be a `List`, which is selected by its items."""
        return self.kind.endswith("List")

    @classmethod
    def of(cls, value: Mapping[str, Any] | None) -> "Head":
        """Return kind and name of a parsed object."""
        metadata = (value or {}).get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        return cls(str((value or {}).get("kind") or ""), str(name or ""))


def head_of(text: str) -> Head | None:
    """Return kind and name. Return None if the document must be parsed to know them."""
    if _ODD.search(text):
        return None
    first = _FIRST.match(text)
    if first is None or first.group(1) in ("", " "):
        return Head("", "") if first is not None and first.end() == len(text) else None
    top = _TOP.findall(text)
    if not all(map(_TOP_SIMPLE.match, top)):
        return None
    kinds = _KIND.findall(text)
    blocks = _METADATA.findall(text)
    keys = [line.partition(":")[0] for line in top]
    if (
        len(kinds) != 1
        or len(blocks) != 1
        or keys.count("kind") != 1
        or keys.count("metadata") != 1
    ):
        return None
    name = _name(blocks[0])
    kind = kinds[0][1]
    return None if name is None or kind.lower() in _RESERVED else Head(kind, name)


def _name(block: str) -> str | None:
    """`metadata.name`, from the lines below `metadata:`."""
    if not all(map(_INNER_SIMPLE.match, block.split("\n"))):
        return None
    indent = _INDENT.search(block)
    names = [
        found
        for found in _NAME.findall(block)
        if indent is not None and found[0] == indent.group(1)
    ]
    if len(names) != 1 or (not names[0][1] and names[0][2].lower() in _RESERVED):
        return None
    return str(names[0][2])
