"""Bytes of a file to JSON lines, each with the same fields. Pure.

A line has at most 16 KiB, which is the most that container runtimes write as one piece. Longer
lines of a file are split into parts, and what isn't UTF-8 is escaped.
"""

import re
from collections.abc import Mapping
from json.encoder import encode_basestring, encode_basestring_ascii

PART_BYTES = 8192
"""Bytes of a file's line that are printed as one JSON line."""

ESCAPED_PART_BYTES = 2048
"""The same for a line whose characters need up to six bytes each."""

LINES_AT_ONCE = 2048
"""JSON lines that one call returns, about."""

_UNSAFE = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Characters that control a terminal, the direction of text, or lines. JSON doesn't require to
escape them.
"""
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")


def quoted(text: str) -> str:
    """Return the text as a JSON string without characters that could control a terminal."""
    return encode_basestring_ascii(text) if _UNSAFE.search(text) else encode_basestring(text)


def encoded(value: object) -> str:
    """Encode a value of a field as JSON: text, number or truth value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else quoted(str(value))


def event(time: str, fields: Mapping[str, object], message: str) -> bytes:
    """Compose one JSON line of this container itself."""
    inner = "".join(f',"{name}":{encoded(value)}' for name, value in fields.items())
    return f'{{"time":"{time}"{inner},"message":{quoted(message)}}}\n'.encode(
        "utf-8", "backslashreplace"
    )


def consumable(data: bytes) -> int:
    """Return how many of these bytes `Lines.feed` may get at once, so that its answer is
    bounded.
    """
    at = 0
    if data.count(b"\n") <= LINES_AT_ONCE:
        return len(data)
    for _ in range(LINES_AT_ONCE):
        at = data.index(b"\n", at) + 1
    return at


class Lines:
    """The lines of one file: what it is fed, in order, comes out as JSON lines with `fields`."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        self.fields = dict(fields)
        self._head = "".join(f',"{name}":{encoded(value)}' for name, value in fields.items())
        self._rest = b""
        self._part = 0
        self.count = 0
        """Lines so far."""

    @property
    def pending(self) -> int:
        """Bytes of a line that has no end yet."""
        return len(self._rest)

    def feed(self, data: bytes, time: str) -> bytes:
        """Return the lines that these bytes complete. At most `PART_BYTES` are kept for the next
        call.
        """
        whole, newline, last = data.rpartition(b"\n")
        out: list[str] = []
        if newline:
            self._complete(self._rest + whole, time, out)
            self._rest = b""
        self._rest += last
        while len(self._rest) > PART_BYTES:
            self._rest = self._one(self._rest, time, out, more=True)
        self.count += len(out)
        return "".join(out).encode("utf-8", "backslashreplace")

    def flush(self, time: str) -> bytes:
        """Print the last line, which has no end. Return b"" if no byte follows the last line's
        end.
        """
        out: list[str] = []
        if self._rest:
            self._line(self._rest, time, out)
            self._rest = b""
        self._part = 0
        self.count += len(out)
        return "".join(out).encode("utf-8", "backslashreplace")

    def mark(self, time: str, fields: Mapping[str, object], message: str) -> bytes:
        """Return a line about the file itself, after what was read of it so far."""
        return self.flush(time) + event(time, self.fields | dict(fields), message)

    def _complete(self, data: bytes, time: str, out: list[str]) -> None:
        """Complete lines, without the end of the last one."""
        parts = data.split(b"\n")
        if self._part:
            self._line(parts.pop(0), time, out)
        texts = None if any(len(part) > ESCAPED_PART_BYTES for part in parts) else _texts(parts)
        if texts is not None:
            start = f'{{"time":"{time}"{self._head},"message":'
            out += [f"{start}{encode_basestring(text)}}}\n" for text in texts]
            return
        for part in parts:
            self._line(part, time, out)

    def _line(self, line: bytes, time: str, out: list[str]) -> None:
        """Print one complete line."""
        line = line.removesuffix(b"\r")
        while len(line) > _limit(line):
            line = self._one(line, time, out, more=True)
        self._one(line, time, out, more=False)
        self._part = 0

    def _one(self, data: bytes, time: str, out: list[str], *, more: bool) -> bytes:
        """Print the first part of these bytes. Returns the others."""
        end = _cut(data, _limit(data)) if more else len(data)
        part, rest = data[:end], data[end:]
        flags = ""
        try:
            text = part.decode()
        except UnicodeDecodeError:
            text, flags = part.decode("utf-8", "backslashreplace"), ',"binary":true'
        if more or self._part:
            self._part += 1
            flags += f',"part":{self._part}' + (',"more":true' if more else "")
        out.append(f'{{"time":"{time}"{self._head}{flags},"message":{quoted(text)}}}\n')
        return rest


def _texts(parts: list[bytes]) -> list[str] | None:
    """Return the lines as text, all at once, which is fast, or None if one needs more than JSON's
    escapes.
    """
    try:
        text = b"\n".join(parts).decode()
    except UnicodeDecodeError:
        return None
    if "\x7f" in text if text.isascii() else _UNSAFE.search(text):
        return None
    if "\r" in text:
        text = text.replace("\r\n", "\n").removesuffix("\r")
    return text.split("\n") if parts else []


def _limit(data: bytes) -> int:
    """Return how many bytes of these are printed at once."""
    first = data[:PART_BYTES]
    return PART_BYTES if first.isascii() and _CONTROL.search(first) is None else ESCAPED_PART_BYTES


def _cut(data: bytes, end: int) -> int:
    """`end`, or up to three bytes before it, so that no character of UTF-8 is cut."""
    for at in range(end, max(end - 4, 0), -1):
        if at >= len(data) or data[at] & 0xC0 != 0x80:
            return at
    return end
