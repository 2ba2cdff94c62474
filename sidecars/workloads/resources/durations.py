"""Durations in Go's notation, which custom resources use."""

import re

from sidecars.workloads.resources.common import ResourceError

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

_LONGEST_DURATION = 2.0**63 / 1e9

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)", re.ASCII)


def duration(text: str, field: str) -> float:
    """Return the seconds, not negative, of a Go duration (https://pkg.go.dev/time#ParseDuration).
    Raises ResourceError.
    """
    found = list(_DURATION.finditer(text))
    if text != "0" and (not found or "".join(match.group() for match in found) != text):
        raise ResourceError(field, f"{text!r} isn't a duration such as 90s, 15m or 1h30m")
    seconds = sum(float(match.group(1)) * _UNITS[match.group(2)] for match in found)
    if seconds >= _LONGEST_DURATION:
        raise ResourceError(field, f"{text[:20]} is longer than Go can count (2^63 ns)")
    return seconds
