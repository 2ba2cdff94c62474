"""One step of a plan."""

from dataclasses import dataclass
from typing import Any

from sidecars.slurm.protocol import Request


@dataclass(frozen=True)
class Change:
    """One request. `text` describes it in one line."""

    text: str
    request: Request[Any]
    creates: tuple[str, ...] = ()
    """What exists afterwards and did not before, as `created` names it."""
    deletes: tuple[str, ...] = ()


def named(kind: str, *parts: str) -> str:
    """Return how `created` names an account, a user, a QOS, a reservation or an association
    (account, user).
    """
    return "/".join((kind, *parts))
