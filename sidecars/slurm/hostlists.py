"""Slurm's hostlist expressions: `gpu-[0-3,007-009],login` to names and back (scontrol show
hostnames, hostlist).

Only the language is here; whether such nodes exist is not its business.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

MAX_NAMES = 65_536
"""As many names as one expression may stand for; slurmctld itself takes no more nodes."""

MAX_NAME_LENGTH = 255
"""Characters of one name."""

MAX_LENGTH = 4_194_304
"""Characters of an expression: room for 65,536 usual names without a range."""

_MAX_BRACKETS = 8

_MAX_DIGITS = 18
_NO_NAME = re.compile(r"[\[\],\s\x00-\x1f\x7f]")
_LITERAL = re.compile(r"[^\[\],\s\x00-\x1f\x7f]*")
_BRACKET = re.compile(r"\[([0-9,-]*)\]")
_SEPARATORS = re.compile(r"[, \t\n]*")
_FUNCTION = re.compile(r"([^{]*)\{([^}]*)")


class HostlistError(ValueError):
    """The text is no hostlist, stands for too many names, or a name can't be written in one."""


def expand(expression: str) -> list[str]:
    """Return the names that a hostlist stands for, in its own order, each as often as it occurs, []
    for "".

    A range keeps the width of its first number when that begins with 0: `n[08-10]` is n08, n09,
    n10. Several brackets in one name multiply, the last one runs fastest. As in Slurm, white space
    separates names too, and separators may follow each other. Raises HostlistError.
    """
    if len(expression) > MAX_LENGTH:
        raise HostlistError(
            f"a hostlist of {len(expression)} characters is longer than {MAX_LENGTH}"
        )
    names: list[str] = []
    at = _next_item(expression, 0)
    while at < len(expression):
        at = _next_item(expression, _expand_item(expression, at, names))
    return names


def nodes_in(expression: str) -> list[str]:
    """Return the nodes that a list such as that of `--nodelist` names: without them Slurm refuses
    it.

    It may have hostlist functions. Of `switchwith{w-1}` and the like that is the node; of
    `feature{gpu}`, Slurm finds those that exist; for `switch{r1}` see `units_in`. Raises
    HostlistError.
    """
    nodes: list[str] = []
    for name in expand(expression):
        function = _FUNCTION.match(name)
        if function is None:
            nodes.append(name)
        elif function[1].endswith("with"):
            nodes.append(function[2])
    return nodes


def units_in(expression: str) -> list[str]:
    """Return the switches and blocks that a list such as that of `--nodelist` names, as in
    `switch{r1}`: without them Slurm refuses it. Raises HostlistError.
    """
    if "{" not in expression:
        return []
    functions = filter(None, map(_FUNCTION.match, expand(expression)))
    return [it[2] for it in functions if it[1] in {"switch", "block"}]


def compress(names: Iterable[str]) -> str:
    """Write one hostlist for the names: sorted by prefix and number, without duplicates, "" for
    none.

    Only a name's last digits become a range. Raises HostlistError for an empty name or one with a
    bracket, a comma or white space.
    """
    items: list[tuple[str, int, str]] = []
    ranges: dict[tuple[str, int], list[int]] = defaultdict(list)
    # In their order: most are sorted as they come.
    unique = dict.fromkeys(names)
    if "" in unique or _NO_NAME.search("".join(unique)):
        bad = min(name for name in unique if not name or _NO_NAME.search(name))
        raise HostlistError(f"{bad!r} can't be a node name in a hostlist")
    for name in unique:
        prefix = name.rstrip("0123456789")
        digits = name[len(prefix) :]
        if not 0 < len(digits) <= _MAX_DIGITS:
            items.append((name, 0, name))
        elif digits[0] == "0" and len(digits) > 1:
            ranges[prefix, len(digits)].append(int(digits))
        else:
            ranges[prefix, 0].append(int(digits))
    for prefix, width in [key for key in ranges if key[1]]:
        # n100 continues n099 if such names exist, else it belongs to the numbers without leading
        # zeros.
        for number in ranges.pop((prefix, 0), []):
            fits = 10 ** (width - 1) <= number < 10**width
            ranges[prefix, width if fits else 0].append(number)
    for (prefix, width), numbers in ranges.items():
        items.append((prefix, width, _render(prefix, width, numbers)))
    return ",".join(text for _, _, text in sorted(items))


def _next_item(text: str, at: int) -> int:
    separators = _SEPARATORS.match(text, at)
    assert separators is not None  # noqa: S101 - it matches the empty string
    return separators.end()


def _expand_item(text: str, at: int, names: list[str]) -> int:
    """Append the names of the item that begins at `at`; return where it ends."""
    found = [""]
    brackets = 0
    while True:
        literal = _LITERAL.match(text, at)
        assert literal is not None  # noqa: S101 - it matches the empty string
        if len(found[0]) + len(literal[0]) > MAX_NAME_LENGTH:
            raise HostlistError(
                f"a name longer than {MAX_NAME_LENGTH} characters in hostlist {_cut(text)}"
            )
        if literal[0]:
            found = [name + literal[0] for name in found]
            at = literal.end()
        if at == len(text) or text[at] in ", \t\n":
            if len(names) + len(found) > MAX_NAMES:
                raise HostlistError(f"hostlist {_cut(text)} stands for more than {MAX_NAMES} names")
            names.extend(found)
            return at
        bracket = _BRACKET.match(text, at)
        brackets += 1
        if brackets > _MAX_BRACKETS:
            raise HostlistError(
                f"more than {_MAX_BRACKETS} brackets in one name of hostlist {_cut(text)}"
            )
        if bracket is None:
            raise HostlistError(
                f"unexpected {text[at]!r} at character {at + 1} of hostlist {_cut(text)}"
            )
        numbers = _numbers(bracket[1], text, MAX_NAMES // len(found))
        found = [name + number for name in found for number in numbers]
        at = bracket.end()


def _numbers(body: str, text: str, limit: int) -> list[str]:
    numbers: list[str] = []
    for part in body.split(","):
        if "-" not in part and 0 < len(part) <= _MAX_DIGITS and len(numbers) < limit:
            numbers.append(part)
            continue
        low, dash, high = part.partition("-")
        high = (high.lstrip("0") or high[:1]) if dash else low
        if not (0 < len(low) <= _MAX_DIGITS and 0 < len(high) <= _MAX_DIGITS) or "-" in high:
            raise HostlistError(f"{part!r} is no range in hostlist {_cut(text)}")
        count = int(high) - int(low) + 1
        if count < 1:
            raise HostlistError(f"range {part!r} runs backwards in hostlist {_cut(text)}")
        if len(numbers) + count > limit:
            raise HostlistError(f"hostlist {_cut(text)} stands for more than {MAX_NAMES} names")
        if low[0] == "0":
            numbers.extend(str(number).zfill(len(low)) for number in range(int(low), int(high) + 1))
        else:
            numbers.extend(map(str, range(int(low), int(high) + 1)))
    return numbers


def _render(prefix: str, width: int, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return prefix + str(numbers[0]).zfill(width)
    numbers.sort()
    parts: list[str] = []
    first = last = numbers[0]
    for number in (*numbers[1:], -1):
        if number == last + 1:
            last = number
            continue
        low = str(first).zfill(width)
        parts.append(low if first == last else f"{low}-{str(last).zfill(width)}")
        first = last = number
    return f"{prefix}[{','.join(parts)}]"


def _cut(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
