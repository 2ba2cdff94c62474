"""What was created in slurmdbd from declarations, as it is stored from pass to pass."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

_CREATED, _APPLIED = "created.json", "applied"


@dataclass(frozen=True)
class Record:
    """`created`: names as `plan.named` writes them. `applied`: the digest of the declaration that
    was applied last.
    """

    created: frozenset[str] = frozenset()
    applied: str = ""


def digest(text: str) -> str:
    """Return a digest that changes with the declaration."""
    return hashlib.sha256(text.encode()).hexdigest()


def encode(record: Record) -> dict[str, str]:
    """Return the data of the ConfigMap."""
    return {_CREATED: json.dumps(sorted(record.created)), _APPLIED: record.applied}


def decode(data: Mapping[str, str]) -> Record:
    """Return the record in such data. What can't be read counts as not created, so that nothing is
    deleted for it.
    """
    try:
        created = json.loads(data.get(_CREATED, "[]"))
    except ValueError:
        created = []
    if not isinstance(created, list):
        created = []
    return Record(frozenset(it for it in created if isinstance(it, str)), data.get(_APPLIED, ""))
