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
    seconds, end = 0.0, 0
    while (match := _DURATION.match(text, end)) is not None:
        seconds += float(match[1]) * _UNITS[match[2]]
        end = match.end()
    if text != "0" and (not text or end < len(text)):
        raise ResourceError(field, f"{text[:20]!r} isn't a duration such as 90s, 15m or 1h30m")
    if seconds >= _LONGEST_DURATION:
        raise ResourceError(field, f"{text[:20]} is longer than Go can count (2^63 ns)")
    return seconds
