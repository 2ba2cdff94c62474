"""The revision of a NodeSet's new pods, and the stored ones that may be deleted.

A revision is identified by its content, not by its name: an earlier spec finds its revision again.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sidecars.workloads.nodeset import Revision


@dataclass(frozen=True, slots=True)
class Stored:
    """A ControllerRevision of the NodeSet: its name, and its number, of which the highest is the
    newest.
    """

    name: str
    number: int
    revision: Revision


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be done to have the asked revision as the newest one.

    `revision`: to make pods from. `store_as`: its number if it has to be stored first. `renumber`:
    name and number of a stored one that is asked for again. `collision`: another content has its
    hash, so it needs another one first.
    """

    revision: Revision
    store_as: int | None = None
    renumber: tuple[str, int] | None = None
    collision: bool = False


def choose(asked: Revision, stored: Iterable[Stored]) -> Choice:
    """Find the asked revision among the stored ones; of several with its content the newest."""
    known = sorted(stored, key=lambda item: item.number, reverse=True)
    newest = known[0].number if known else 0
    for item in known:
        if item.revision.content == asked.content:
            renumber = (item.name, newest + 1) if item.number < newest else None
            return Choice(item.revision, renumber=renumber)
    if any(item.revision.hash == asked.hash for item in known):
        return Choice(asked, collision=True)
    return Choice(asked, store_as=newest + 1)


def surplus(
    stored: Iterable[Stored], current: str, in_use: AbstractSet[str], limit: int
) -> Sequence[str]:
    """Return the names of the stored revisions to delete, oldest first. Kept are the current one,
    those that a pod has, and of the others the newest `limit`.
    """
    old = [
        item
        for item in stored
        if item.revision.hash != current and item.revision.hash not in in_use
    ]
    old.sort(key=lambda item: item.number)
    return [item.name for item in old[: max(0, len(old) - limit)]]
