"""The language of slurm.conf and its sister files: parse, print unchanged, find, merge.

Knows the syntax (https://slurm.schedmd.com/slurm.conf.html): `Key=Value` pairs, several on a line, quotes, `#` comments, `\\` at the end of a line continuing it, `Include`, keys in any case.
Doesn't know which keys exist, reads no included file.
"""

from collections.abc import Mapping
from dataclasses import dataclass


class ConfError(ValueError):
    """The text isn't of this language; `line` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


@dataclass(frozen=True, slots=True)
class Pair:
    """`key=value`; `value` without its quotes."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Line:
    """One logical line. `text` is its source, continuations, comment and line ends included; `number` counts from 1."""

    number: int
    text: str
    pairs: tuple[Pair, ...] = ()
    include: str | None = None


@dataclass(frozen=True, slots=True)
class Conf:
    """A file as its lines. `str(conf)` is the text that was parsed, to the byte."""

    lines: tuple[Line, ...]

    def get(self, key: str) -> str | None:
        """The value that counts for a key that may stand once (the last one), in any case; None when absent."""
        raise NotImplementedError

    def all(self, key: str) -> tuple[Line, ...]:
        """The lines that begin with this key, in order: for NodeName, PartitionName, Prolog, …"""
        raise NotImplementedError


def parse(text: str) -> Conf:
    """The lines of a configuration file. Raises ConfError."""
    raise NotImplementedError


def render(key: str, value: str) -> str:
    """One line `Key=value` without its line end, quoted if need be. Raises ValueError for what would break out of the line."""
    raise NotImplementedError


def merge_lists(ours: Mapping[str, str], extra: Conf) -> dict[str, str]:
    """For each of our list-valued keys that `extra` sets too, the merged value; see `LIST_KEYS`."""
    raise NotImplementedError
