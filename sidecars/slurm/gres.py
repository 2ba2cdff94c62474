"""Slurm's words for generic resources: `Gres=` lists, gres.conf lines, and the types that
AutoDetect gives to GPUs.

A type is the product name in lower case with `_` for each space: `NVIDIA H100 80GB HBM3` is
`nvidia_h100_80gb_hbm3` (gpu_common_underscorify_tolower of Slurm's gpu plugins, which
AutoDetect=nvml and AutoDetect=nvidia both use). A MIG device is typed as the product up to its
first `-`, `_` and the profile in slices and whole GiB: `nvidia_a100_1g.5gb` (AutoDetect=nvml;
AutoDetect=nvidia sees no MIG devices). See https://slurm.schedmd.com/gres.html.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+/-]*")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_ITEM = re.compile(r"([^:(,]+)((?::[^:(,]*)*)(?:\([^)]*\))?")
_NO_CONSUME = re.compile(r":no_consume(?=:)", re.IGNORECASE)
"""Between type and count (_build_node_gres_str of Slurm's gres.c)."""
_UNTYPED = ":(null)"
"""slurmctld reports it as the type of an untyped resource, if other nodes have typed ones."""
_PROFILE = re.compile(r"(?:[1-9][0-9]*c\.)?([1-9][0-9]*)g\.([1-9][0-9]*)gb(?:\+[a-z.+]+)?")
_SUFFIXES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_COUNT = re.compile(r"([0-9]{1,15})([kmgtp]?)", re.IGNORECASE)


class GresError(ValueError):
    """The text is no GRES, or a product has no name that Slurm could use. The text names the value
    and the remedy.
    """


@dataclass(frozen=True, slots=True)
class Gres:
    """So many of a resource; `type` is "" for an untyped one. Jobs don't use up one with
    `no_consume`.
    """

    name: str
    type: str
    count: int
    no_consume: bool = False

    def __str__(self) -> str:
        words = self.name, self.type, "no_consume" if self.no_consume else ""
        return ":".join((*filter(None, words), str(self.count)))


def type_name(product: str, mig_profile: str = "") -> str:
    """Return the type that Slurm's AutoDetect gives to a GPU, or to a MIG device of it. Raises
    GresError.

    `mig_profile` is NVIDIA's name of it (`1g.5gb`, `1c.3g.20gb`, `1g.10gb+me`), of which Slurm
    keeps slices and memory.
    """
    name = product.strip().lower().replace(" ", "_")
    if mig_profile:
        match = _PROFILE.fullmatch(mig_profile.strip().lower())
        if match is None:
            raise GresError(
                f"{mig_profile!r} isn't the name of a MIG profile such as 1g.5gb; set the type "
                "yourself"
            )
        name = f"{name.partition('-')[0]}_{match[1]}g.{match[2]}gb"
    return checked_type(name, product)


def checked_type(name: str, origin: str = "") -> str:
    """`name` if it can be a type in Slurm's configuration. Raises GresError."""
    if not _TYPE.fullmatch(name):
        problem = (
            f"{origin!r} gives no type for Slurm" if origin else f"{name!r} is no type for Slurm"
        )
        raise GresError(f"{problem}: letters, digits and _ . + / - are; set the type yourself")
    return name


def total(items: Iterable[Gres]) -> tuple[Gres, ...]:
    """Return the same resources, each name and type once, in the order of names and types."""
    counts: Counter[tuple[str, str, bool]] = Counter()
    for item in items:
        counts[item.name, item.type, item.no_consume] += item.count
    return tuple(
        Gres(name, kind, count, kept) for (name, kind, kept), count in sorted(counts.items())
    )


def render(items: Iterable[Gres]) -> str:
    """Write a `Gres=` value, "" for none, which no `Gres=` may have."""
    return ",".join(str(item) for item in total(items) if item.count)


def parse(text: str) -> tuple[Gres, ...]:
    """Parse a `Gres=` value, or what Slurm reports as a node's gres (`gpu:h100:8(S:0-1)`). Return
    () for "" and `(null)`. A name without a count stands for one. Raises GresError.
    """
    text = text.strip()
    if text in ("", "(null)", "N/A"):
        return ()
    text = text.replace(_UNTYPED, "")
    found = []
    at = 0
    while True:
        match = _ITEM.match(text, at)
        if match is None:
            raise GresError(f"{text!r} isn't a list of NAME[:TYPE]:COUNT")
        found.append(_item(match[1], match[2], text))
        at = match.end()
        if at == len(text):
            return tuple(found)
        if text[at] != ",":
            raise GresError(f"{text!r} isn't a list of NAME[:TYPE]:COUNT")
        at += 1


def _item(name: str, rest: str, text: str) -> Gres:
    if not _NAME.fullmatch(name):
        raise GresError(f"{text!r}: {name!r} is no name of a resource")
    rest, no_consume = _NO_CONSUME.subn("", rest, count=1)
    *types, last = rest.split(":")[1:] or ["1"]
    number = _COUNT.fullmatch(last)
    if number is None and not types:
        return Gres(name, checked_type(last, text), 1)
    if number is None or len(types) > 1:
        raise GresError(f"{text!r}: {':'.join((*types[1:], last))!r} is no count")
    return Gres(
        name, checked_type(types[0], text) if types else "", _number(number), bool(no_consume)
    )


def _number(match: re.Match[str]) -> int:
    return int(match[1]) * _SUFFIXES[match[2].lower()]
