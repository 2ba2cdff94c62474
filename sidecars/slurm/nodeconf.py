"""The items that describe one Slurm node: a NodeSet's `extraConf`, NODESET_CONF of a worker pod,
slurmd's --conf.

Items are `Key=Value`, separated by white space. Keys are those of slurm.conf's NodeName line, in
any case. The last of a repeated key counts. A value with spaces is between double or single quotes.
slurmd's command line can't contain a quote, a backslash or a control character within a value
(https://slurm.schedmd.com/slurmd.html#OPT_conf).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

MOST_PLACES = 32
"""Switches and blocks of one node: slurmctld creates those that it doesn't have, which took 26.05.5
0.1 s for 32, 2 s for 100, and minutes for 500.
"""

_WORD = re.compile(r"""(?:"[^"]*"|'[^']*'|\S)+""", re.ASCII)
_ITEM = re.compile(
    r"""(?P<key>[A-Za-z][A-Za-z0-9_]*)=(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<plain>(?!["'])\S*))""",
    re.ASCII,
)
_LONG_NUMBER = re.compile(r"\d{19,}(?:$|(?=[^\[\]]*\]))")
_UNFIT = re.compile(r"""["'\\\x00-\x1f\x7f]""")


@dataclass(frozen=True, slots=True)
class Item:
    """One item."""

    key: str
    """As it was written."""

    value: str
    """Without quotes. May be empty."""

    def __str__(self) -> str:
        return f'{self.key}="{self.value}"' if " " in self.value else f"{self.key}={self.value}"


@dataclass(frozen=True, slots=True)
class NodeConf:
    """The items of a text."""

    items: tuple[Item, ...] = ()
    """In order. What is a problem is not among them."""

    problems: tuple[str, ...] = ()
    """What can't be an item, and why."""

    def get(self, key: str) -> str | None:
        """Return the value of the last item with this key, in any case, or None without one."""
        wanted = key.lower()
        return next(
            (item.value for item in reversed(self.items) if item.key.lower() == wanted), None
        )

    @property
    def keys(self) -> frozenset[str]:
        """All keys, in lower case."""
        return frozenset(item.key.lower() for item in self.items)


def parse(text: str) -> NodeConf:
    """Return the items of a text. Never raises."""
    items: list[Item] = []
    problems: list[str] = []
    for word in _WORD.findall(text):
        found = _ITEM.fullmatch(word)
        if found is None:
            problems.append(
                f"{word!r} is not of the form Key=Value; items are separated by spaces, and a "
                "value with a space is between double quotes"
            )
            continue
        value = next(it for it in found.group("plain", "double", "single") if it is not None)
        unfit = _UNFIT.search(value)
        if unfit is not None:
            problems.append(
                f"the value of {found['key']} has a {unfit[0]!r}, which slurmd's command line "
                "can't contain; write it without"
            )
            continue
        problem = topology_problem(value) if found["key"].lower() == "topology" else ""
        if problem:
            problems.append(f"the Topology {problem}")
            continue
        items.append(Item(found["key"], value))
    return NodeConf(tuple(items), tuple(problems))


def number_too_long(name: str) -> bool:
    """Return whether a name of a switch or block ends in more digits than Slurm can read as a
    number. slurmctld ends of it.
    """
    return _LONG_NUMBER.search(name) is not None


def topology_problem(value: str) -> str:
    """Return why slurmctld would end of this value of the item Topology, or not answer for a long
    time, with a remedy. Return "" if it doesn't.
    """
    places = value.count(":")
    if places > MOST_PLACES:
        return (
            f"names {places} switches and blocks, and slurmctld would not answer while it creates "
            f"so many; name at most {MOST_PLACES}"
        )
    for name in re.split(r"[,:]", value):
        if number_too_long(name):
            return (
                f"{name!r} ends in 19 digits or more, which Slurm can't read as a number: "
                "slurmctld would end; rename this switch or block, for example with a letter at "
                "its end"
            )
    return ""


def render(items: Iterable[Item]) -> str:
    """Return the items as one line, which `parse` reads back."""
    return " ".join(map(str, items))
