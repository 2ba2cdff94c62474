"""Measured values with their units, and the limits of a check."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_NUMBER = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([A-Za-z%/]+)")
NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
"""Names of measured values."""

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
UNITS: Mapping[str, tuple[str, float]] = {
    **{f"{prefix}bit/s": ("bandwidth", factor) for prefix, factor in _DECIMAL.items()},
    **{
        f"{prefix}B/s": ("bandwidth", 8 * factor)
        for prefix, factor in {**_DECIMAL, **_BINARY}.items()
    },
    **{f"{prefix}B": ("size", factor) for prefix, factor in {**_DECIMAL, **_BINARY}.items()},
    "us": ("time", 1e-6),
    "ms": ("time", 1e-3),
    "s": ("time", 1.0),
    "min": ("time", 60.0),
    "%": ("share", 0.01),
}
"""The kind of each unit, and its value in bit/s, bytes, seconds, or as a fraction."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value. Two compare only if they are of one kind."""

    kind: str
    value: float
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Limit:
    """What a measured value must be at least and at most. None: no limit."""

    least: Quantity | None = None
    most: Quantity | None = None


def quantity(text: str) -> Quantity:
    """Read `9.4 Gbit/s`. Raises ValueError, which names the remedy, for a number without a unit and
    for other texts.
    """
    found = _NUMBER.fullmatch(text.strip())
    if found is None or found[2] not in UNITS:
        raise ValueError(
            f"{text[:60]!r} is no quantity: give a number with a unit, for example 10Gbit/s, 5ms, "
            "20GiB or 5%"
        )
    kind, factor = UNITS[found[2]]
    return Quantity(kind, float(found[1]) * factor, text.strip())


def fault(limits: Mapping[str, Limit], measured: Mapping[str, str]) -> str:
    """Return why the measured values are not within the limits, "" if they are. A value that wasn't
    reported is not.
    """
    for name, limit in limits.items():
        if name not in measured:
            return f"the check reported no {name}"
        try:
            found = quantity(measured[name])
        except ValueError:
            return f"{name} is {measured[name]}, which has no known unit"
        for bound, word in ((limit.least, "less"), (limit.most, "more")):
            if bound is None:
                continue
            if bound.kind != found.kind:
                return f"{name} is {found}, which can't be compared with {bound}"
            if found.value < bound.value if word == "less" else found.value > bound.value:
                return f"{name} is {found}, {word} than {bound}"
    return ""
