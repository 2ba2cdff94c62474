"""The language of slurm.conf and its sister files: parse, print unchanged, find, render, merge.

The syntax is that of https://slurm.schedmd.com/slurm.conf.html as slurmctld reads it: lines of
`Key=Value` pairs, the first of which is the subject of the line; keys in any case; a value is a
word, or quoted; `#` begins a comment, also within quotes, unless a `\\` stands before it; a `\\` at
the end of a line, where no comment is, continues it; `\\` before any other character is dropped;
`Include FILE`.

Doesn't know which keys exist, and reads no included file. plugstack.conf and YAML files are other
languages.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

LIST_KEYS = (
    *("AuthAltParameters", "AuthInfo", "CommunicationParameters", "GresTypes", "PrologFlags"),
    *("SlurmctldParameters", "StorageParameters"),
)
"""Keys whose value is a list that the operator and the user's extraConf both add to."""

_SPACE = r"[ \t\n\v\f\r]"
_PAIR = re.compile(
    rf'{_SPACE}*([A-Za-z0-9_.]+){_SPACE}*[-*+/]?={_SPACE}*(?:"([^"]*)"|([^ '
    rf"\t\n\v\f\r]+))(?={_SPACE}|\Z)"
)
_INCLUDE = re.compile(rf"{_SPACE}*include{_SPACE}+([^ \t\n\v\f\r]+){_SPACE}*", re.IGNORECASE)
_KEY = re.compile(r"[A-Za-z0-9_.]+")
_COMMENT = re.compile(r"(?<!\\)(?:\\\\)*#")
_CONTINUED = re.compile(rf"(?<!\\)((?:\\\\)*)\\{_SPACE}*\Z")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SPACES = " \t\n\v\f\r"


class ConfError(ValueError):
    """The text isn't of this language, for this `reason`; `line` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Pair:
    """`key=value`; `value` without quotes and escapes."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Line:
    """One logical line. `text` is its source with continuations, comment and line end; `number`
    counts from 1.

    Without pairs and `include` it is blank or a comment.
    """

    number: int
    text: str
    pairs: tuple[Pair, ...] = ()
    include: str | None = None

    def get(self, key: str) -> str | None:
        """Return the value of a pair of this line, the last one of that key in any case, or None
        when absent.
        """
        wanted = key.lower()
        values = [pair.value for pair in self.pairs if pair.key.lower() == wanted]
        return values[-1] if values else None


@dataclass(frozen=True, slots=True)
class Conf:
    """A file as its lines. `str(conf)` is the text that was parsed, to the character."""

    lines: tuple[Line, ...]

    def get(self, key: str) -> str | None:
        """Return the value of a key that counts once: that of the last line that begins with it.
        Return None when absent.
        """
        lines = self.all(key)
        return lines[-1].pairs[0].value if lines else None

    def all(self, key: str) -> tuple[Line, ...]:
        """Return the lines that begin with this key, in any case, in order: for NodeName,
        PartitionName, Prolog, …
        """
        wanted = key.lower()
        return tuple(
            line for line in self.lines if line.pairs and line.pairs[0].key.lower() == wanted
        )

    def __str__(self) -> str:
        return "".join(line.text for line in self.lines)


def parse(text: str) -> Conf:
    """Return the lines of a configuration file. Raises ConfError for what slurmctld would refuse as
    a parse error.
    """
    return Conf(tuple(_lines(text)))


def parse_readable(text: str) -> Conf:
    """Parse a text that is checked elsewhere: a line that slurmctld would refuse has no pairs."""
    return Conf(tuple(_lines(text, strict=False)))


def without(pairs: str, key: str) -> str:
    """Return the text of a line's pairs without those of a key, in any case. What is no pair ends
    the search and stays.
    """
    kept: list[str] = []
    at = 0
    while found := _PAIR.match(pairs, at):
        if found[1].lower() != key.lower():
            kept.append(found[0].strip(_SPACES))
        at = found.end()
    return " ".join(filter(None, [*kept, pairs[at:].strip(_SPACES)]))


def render(key: str, value: str) -> str:
    """Write one line `Key=Value` without its line end, quoted and escaped as needed. It parses to
    the same value.

    Raises ValueError for a key that is none, an empty value, and a value that no line can contain:
    line ends and other control characters, or a quote where quotes are needed.
    """
    if not _KEY.fullmatch(key):
        raise ValueError(
            f"{key!r} is no key of Slurm's configuration: letters, digits, underscores and dots are"
        )
    if not value:
        raise ValueError(f"{key} has no value: leave the line out instead")
    bad = _CONTROL.search(value)
    if bad:
        raise ValueError(
            f"{key}: its value has the control character {bad[0]!r}, which no line of a Slurm "
            "file can contain"
        )
    quoted = " " in value
    if '"' in value and (quoted or value[0] == '"'):
        raise ValueError(
            f"{key}: a value with a quote can't begin with it or have spaces: {value!r}"
        )
    escaped = value.replace("\\", "\\\\").replace("#", "\\#")
    return f'{key}="{escaped}"' if quoted else f"{key}={escaped}"


def merge_lists(ours: Mapping[str, str], extra: Conf) -> dict[str, str]:
    """Return the merged value of each of `LIST_KEYS` that both `ours` and `extra` set, by our
    spelling, in order of the keys.

    Options are identified by their name before `=`, in any case; ours wins. They are sorted, and
    the user's names are in lower case, but for GresTypes. A user's value with a space is ignored,
    as Slinky does. Print the result with `render`, at the file's end, because the last line of a
    key counts.
    """
    merged: dict[str, str] = {}
    listed = {key.lower() for key in LIST_KEYS}
    for key in sorted(ours):
        value = extra.get(key)
        if key.lower() not in listed or value is None or any(space in value for space in _SPACES):
            continue
        options: dict[str, str] = {}
        for option in filter(None, value.split(",")):
            name, equals, rest = option.partition("=")
            # Options are known in any case; the names of resources are the user's own.
            options[name.lower()] = option if key == "GresTypes" else name.lower() + equals + rest
        options.update(
            (option.partition("=")[0].lower(), option)
            for option in filter(None, ours[key].split(","))
        )
        merged[key] = ",".join(sorted(options.values()))
    return merged


def _lines(text: str, *, strict: bool = True) -> Iterator[Line]:
    physical = re.findall(r"[^\n]*\n|[^\n]+\Z", text)
    at = 0
    while at < len(physical):
        first, content = at, ""
        continued = 1
        while continued and at < len(physical):
            # As slurmctld: the comment is removed first, so a backslash within it continues
            # nothing.
            comment = _COMMENT.search(physical[at])
            code = physical[at] if comment is None else physical[at][: comment.end() - 1]
            # Most lines have no backslash.
            code, continued = _CONTINUED.subn(r"\1", code) if "\\" in code else (code, 0)
            content += code
            at += 1
        source = "".join(physical[first:at])
        try:
            yield _line(first + 1, source, content)
        except ConfError:
            if strict:
                raise
            yield Line(first + 1, source)


def _line(number: int, source: str, content: str) -> Line:
    if "\0" in source:
        raise ConfError(number, "a NUL character; slurmctld would read the line only up to it")
    if "\\" in content:
        content = _ESCAPE.sub(r"\1", content)
    if not content.strip(_SPACES):
        return Line(number, source)
    included = _INCLUDE.fullmatch(content)
    if included is not None:
        return Line(number, source, include=included[1])
    pairs: list[Pair] = []
    at, end = 0, len(content.rstrip(_SPACES))
    while at < end:
        found = _PAIR.match(content, at)
        if found is None:
            # Not its text, which may be a part of a password.
            raise ConfError(
                number, f"{f'what follows {pairs[-1].key}' if pairs else 'it'} should be Key=Value"
            )
        if found[3] and found[3][0] == '"':
            raise ConfError(
                number,
                f"{found[1]}: a quote that isn't closed; a # ends the line within quotes, too",
            )
        pairs.append(Pair(found[1], found[3] if found[2] is None else found[2]))
        at = found.end()
    return Line(number, source, tuple(pairs))
