"""The result of one part of the decision about a NodeSet, and how a part asks for what it lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecars.policy.nodeset import needs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sidecars.policy.nodeset.actions import Action
    from sidecars.policy.nodeset.memory import Memory
    from sidecars.policy.nodeset.needs import Answer, Need
    from sidecars.policy.nodeset.records import Desired
    from sidecars.policy.nodeset.report import Progress

RECORDS_SECONDS = 60.0
"""How long a NodeSet that is being deleted waits for the deletion of its node records, from its
last pod on.
"""

MAX_LOOKUPS = 256
"""Pods, node records or Kubernetes nodes that one pass reads one by one."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one part decides. A part is a function of `desired`, `observed`, `memory` and `now`.

    `observed.slurm` shows the jobs, as far as they are known. While a part has needs, nothing else
    of it counts.
    """

    memory: Memory
    """For the parts after this one, and for the next pass."""
    actions: tuple[Action, ...] = ()
    """In the order in which they are to be applied."""
    later: tuple[Action, ...] = ()
    """Actions that come after all others, and after the release of the NodeSet."""
    needs: tuple[Need, ...] = ()
    """What must be read first."""
    look_again: float | None = None
    """Seconds until time alone may have changed this."""
    keeps: bool = False
    """A NodeSet that is being deleted has to stay because of this part."""
    report: Callable[[Progress], Progress] = lambda progress: progress
    """Adds the conditions and the facts of the status that this part knows."""


class Questions:
    """The answers that one part gets, and the needs that have none yet."""

    def __init__(self, answers: Mapping[Need, Answer]) -> None:
        self._answers = answers
        self._asked: dict[Need, None] = {}

    def ask(self, need: Need) -> Answer:
        """Return the answer to a need. Until it has one, the step is repeated."""
        if need not in self._answers:
            self._asked[need] = None
        return self._answers.get(need, needs.Pending())

    @property
    def unanswered(self) -> tuple[Need, ...]:
        """The needs without an answer, in the order in which they were asked."""
        return tuple(self._asked)


def earliest(*times: float | None) -> float | None:
    """Return the shortest of these times in seconds, or None if none is set."""
    return min((it for it in times if it is not None), default=None)


def are_pods_gone(memory: Memory) -> bool:
    """Return whether the NodeSet is being deleted, and its pods are gone or overdue."""
    return memory.pods_gone_since is not None


def may_abandon_records(desired: Desired, memory: Memory, now: float) -> bool:
    """Return whether a NodeSet that is being deleted has waited long enough for its node
    records.
    """
    since = memory.pods_gone_since
    return desired.pods.forced or (since is not None and now >= since + RECORDS_SECONDS)
