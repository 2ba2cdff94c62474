"""Names of the output files of a batch job: `slurm-%j.out` and the job to the path that slurmstepd
opens.

This follows Slurm 26.05 (https://slurm.schedmd.com/sbatch.html#SECTION_FILENAME-PATTERN).
"""

import re
from collections.abc import Mapping

LONGEST = 4096
"""Bytes of a path that Linux opens."""

_FIELD = re.compile(rb"%(?:(%)|([0-9]*)([AabJjrSsxNntu])|([0-9]*[^%]|[0-9]+\Z))", re.DOTALL)
_NUMBERS = frozenset(b"AabJjrsnt")
_MOST_DIGITS = 10


class UnknownNameError(ValueError):
    """The name of the file can't be known, or isn't one."""


def fields(pattern: bytes) -> frozenset[str]:
    """Return the letters of the fields in the pattern."""
    if b"\\" in pattern:
        return frozenset()
    return frozenset(match[3].decode() for match in _FIELD.finditer(pattern) if match[3])


def expand(pattern: bytes, work_dir: bytes, values: Mapping[str, bytes | int]) -> bytes:
    """Return the absolute path. `values` has the value of each field by its letter. Raises
    UnknownNameError.

    With a backslash in it, the pattern is a name: backslashes are left out, and nothing is
    replaced.
    """
    if b"\\" in pattern:
        name = pattern.replace(b"\\", b"")
    else:
        name = _FIELD.sub(lambda match: _replaced(match, values), pattern)
    path = name if name.startswith(b"/") else work_dir.rstrip(b"/") + b"/" + name
    if not path.startswith(b"/") or b"\0" in path or len(path) > LONGEST:
        raise UnknownNameError("it isn't an absolute path")
    return path


def _replaced(match: "re.Match[bytes]", values: Mapping[str, bytes | int]) -> bytes:
    percent, digits, letter = match[1], match[2], match[3]
    if percent:
        return percent
    if not letter:
        return match[0]
    value = values.get(letter.decode())
    if value is None:
        raise UnknownNameError(f"Slurm did not answer which value %{letter.decode()} has")
    if isinstance(value, int):
        # A user may write thousands of digits, which Python doesn't read as a number.
        short = digits.lstrip(b"0")[:3] if letter[0] in _NUMBERS else b""
        width = min(int(short or b"0"), _MOST_DIGITS)
        return b"%0*d" % (width, value)
    return value
