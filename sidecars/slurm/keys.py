"""Which keys Slurm's configuration files have, and what kind of value each takes, by Slurm's
version.

keys.json contains the tables that slurmctld 26.05 parses by (`slurm_conf_options` and the ones
beside it in its libslurmfull.so; of cgroup.conf those of its manual page), and which of the keys
are newer than 25.11. A file or line that isn't in it isn't known here at all.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources as packaged
from typing import Any, Literal

from sidecars.slurm import versions
from sidecars.slurm.versions import Version

Kind = Literal["text", "number", "boolean", "line"]
"""What a key's value is; a `line` key can be repeated, and names the subject of its line."""

READ_AT_START = ("SlurmctldPort", "CommunicationParameters")
"""Keys of slurm.conf that a running slurmctld does not take: it keeps the sockets on which it
listens, whatever their port and family.
"""

_TABLES: dict[str, Any] = json.loads(
    packaged.files("sidecars.slurm").joinpath("keys.json").read_text(encoding="utf-8")
)
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+|infinite|unlimited", re.IGNORECASE)
_BOOLEANS = frozenset({"yes", "no", "up", "down", "true", "false", "1", "0"})


KNOWN: tuple[Version, ...] = tuple(
    found for text in _TABLES["versions"] if (found := versions.parse(text)) is not None
)
"""The releases whose keys are known, the oldest first."""


@cache
def of(scope: str, release: Version) -> Mapping[str, Kind] | None:
    """Return the kind of each key, in lower case, of a file (`slurm.conf`, …) or of the lines that
    begin with a key (`NodeName`, …). Return None for an unknown scope. An unknown release has the
    keys of the one before it.
    """
    if scope not in _TABLES["keys"]:
        return None
    newer = {
        key
        for since, scopes in _TABLES["since"].items()
        if (versions.parse(since) or release) > release
        for key in scopes.get(scope, ())
    }
    return {
        key.lower(): kind
        for kind, keys in _TABLES["keys"][scope].items()
        for key in keys
        if key not in newer
    }


def spelled(scope: str) -> tuple[str, ...]:
    """Return the keys of a scope as Slurm spells them."""
    return tuple(key for keys in _TABLES["keys"].get(scope, {}).values() for key in keys)


def unfit(kind: Kind, value: str) -> str | None:
    """Describe what a value of this kind should be. Return None if it is."""
    if kind == "number" and not _NUMBER.fullmatch(value):
        return "a number without unit, or UNLIMITED"
    if kind == "boolean" and value.lower() not in _BOOLEANS:
        return "YES or NO"
    return None
