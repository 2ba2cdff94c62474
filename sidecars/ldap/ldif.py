"""Entries from LDIF (RFC 2849), as ldapsearch prints them."""

import base64
import binascii
from collections.abc import Iterator


class LdifError(ValueError):
    """The text isn't LDIF; the message names the line."""


Entry = dict[str, list[str]]
"""The values of each attribute, whose name is in lower case and without options; `dn` is one of
them.

A server that gives only some values of an attribute states it with the option `range`, which stays:
`member;range=0-9`.
"""


def entries(text: str) -> Iterator[Entry]:
    """Yield each entry of the text. Values that are no text in UTF-8 are left out. Raises
    LdifError.
    """
    found: Entry = {}
    for number, line in _lines(text):
        if not line:
            if found:
                yield found
            found = {}
            continue
        name, colon, value = line.partition(":")
        if not colon or not name:
            raise LdifError(f"line {number}: neither an attribute nor a comment")
        if not found and name.lower() != "dn":
            # After the entries, ldapsearch reports how it went on in the same form, such as `ref:`.
            continue
        if value.startswith("<"):
            raise LdifError(f"line {number}: a value of `{name}` is in a file")
        if value.startswith(":"):
            try:
                value = base64.b64decode(value[1:].strip(), validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                continue
        else:
            value = value.strip(" ")
        kind, _, option = name.lower().partition(";")
        found.setdefault(f"{kind};{option}" if option.startswith("range=") else kind, []).append(
            value
        )
    if found:
        yield found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Whole lines with their numbers: folded ones in one piece, without comments."""
    whole, start = "", 0
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith(" ") and start:
            whole += line[1:]
            continue
        if start and not whole.startswith("#"):
            yield start, whole
        whole, start = line.removesuffix("\r"), number
    if start and not whole.startswith("#"):
        yield start, whole
