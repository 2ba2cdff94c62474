"""Kubernetes quantities (https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/)."""

import math
import re
from decimal import Decimal
from typing import Any

from sidecars.workloads.resources import ResourceError

MEBIBYTE = 1 << 20

_LIMIT = 1 << 63
"""No quantity may be as large: Kubernetes counts in 64 bits."""

_LONGEST = 100
"""Characters of a quantity."""

_QUANTITY = re.compile(
    r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d{1,3})|([KMGTPE]i|[numkMGTPE]))?", re.ASCII
)
_SUFFIXES = {
    **{
        suffix: Decimal(1000) ** power
        for power, suffix in enumerate("numkMGTPE", start=-3)
        if power < 0
    },
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}


def quantity(value: Any, field: str) -> Decimal:
    """Return the number that a quantity such as `1500m`, `2Gi`, `1e3` or 2 stands for. Raises
    ResourceError at `field`.
    """
    text = str(value)
    if len(text) > _LONGEST:
        raise ResourceError(
            field, f"{text[:20]}… has {len(text)} characters: at most {_LONGEST} are possible"
        )
    match = _QUANTITY.fullmatch(text) if not isinstance(value, bool) else None
    if match is None:
        raise ResourceError(field, f"{value!r} isn't a quantity such as 2, 1500m or 4Gi")
    number, exponent, suffix = match.groups()
    found = Decimal(number + (exponent or "")) * _SUFFIXES.get(suffix, Decimal(1))
    if abs(found) >= _LIMIT:
        raise ResourceError(field, f"{text[:20]} is more than Kubernetes can count (2^63 - 1)")
    return found


def whole(value: Any, field: str) -> int:
    """Return a quantity rounded up to a whole number."""
    return math.ceil(quantity(value, field))


def mebibytes(value: Any, field: str) -> int:
    """Return a quantity of bytes in whole MiB, rounded down."""
    return int(quantity(value, field) // MEBIBYTE)
