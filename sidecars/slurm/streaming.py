"""The answer with all jobs, read as it arrives: 50,000 jobs are hundreds of megabytes as JSON, and
few as records.

Sans I/O. Splits `{"jobs": [{…}, {…}, …], …}` at what looks like the end of a record and the
beginning of the next with the same first key, and takes a piece for a record only when it is a
complete JSON object. An answer of another form is buffered and decoded as a whole at the end:
expensive, but never wrong.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from sidecars.slurm.protocol import JOBS, Streamed
from sidecars.slurm.protocol.decoding import readable

_MISSES = 1000
"""Places in a row that look like a record's end and aren't one, after which splitting ends."""
_OVERLAP = 256
"""Bytes that are searched again with the next chunk: a boundary may arrive in two parts."""

_BEGINNING = re.compile(rb'\s*\{\s*"jobs"\s*:\s*\[\s*(?=\{\s*("(?:[^"\\]|\\.)*")\s*:)')
_LONGEST_BEGINNING = 4096
_SHOWN = 200


class JobsReader:
    """One answer. `feed` it as it arrives; `finish` returns its decoded JSON, with a record for
    each job.

    `streamed` reads the records.

    `start` contains its first bytes, to report what arrived instead of JSON.
    """

    def __init__(self, streamed: Streamed = JOBS) -> None:
        self.start = b""
        self._decode = _decoder(streamed.fields).decode
        self._record = streamed.record
        self._jobs: list[Any] = []
        self._beginning = b""
        self._rest = b""
        self._unsplit: list[bytes] = []
        self._looked = 0
        self._misses = 0
        self._boundary: re.Pattern[bytes] | None = None

    def feed(self, chunk: bytes) -> None:
        """Take in the next bytes of the body."""
        self.start = self.start or chunk[:_SHOWN]
        if self._misses >= _MISSES:
            self._unsplit.append(chunk)
            return
        self._rest += chunk
        if self._boundary is None:
            self._begin()
        if self._boundary is not None:
            self._split(self._boundary)

    def finish(self) -> Any:
        """Return the answer. Raises ValueError (or RecursionError) when it isn't JSON."""
        text = b"".join((self._beginning, self._rest, *self._unsplit))
        answer = _decoded(msgspec.json.decode, text)
        if self._jobs and isinstance(answer["jobs"], list):
            answer["jobs"] = self._jobs + answer["jobs"]
        return answer

    def _begin(self) -> None:
        found = _BEGINNING.match(self._rest)
        if found is not None:
            self._boundary = re.compile(rb"\}\s*,\s*(?=\{\s*" + re.escape(found[1]) + rb"\s*:)")
            self._beginning, self._rest = self._rest[: found.end()], self._rest[found.end() :]
        elif len(self._rest) > _LONGEST_BEGINNING:
            self._misses = _MISSES

    def _split(self, pattern: re.Pattern[bytes]) -> None:
        begin, text = 0, self._rest
        for boundary in pattern.finditer(text, self._looked):
            try:
                fields = _decoded(self._decode, text[begin : boundary.start() + 1])
            except (msgspec.MsgspecError, RecursionError):
                self._misses += 1
                continue
            self._jobs.append(self._record(fields))
            begin, self._misses = boundary.end(), 0
        self._rest = text[begin:]
        self._looked = max(0, len(self._rest) - _OVERLAP)


def _decoded(decode: Callable[[bytes], Any], text: bytes) -> Any:
    try:
        return decode(text)
    except UnicodeDecodeError:
        return decode(readable(text))


@cache
def _decoder(fields: type) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(fields)
