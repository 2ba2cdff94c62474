"""The condition of the Controller: the reasons for which autoscaling does nothing for some jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sidecars.contract.text import printable
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons.autoscaling import JobsCounted, NotCounted

if TYPE_CHECKING:
    from sidecars.autoscaling.records import Plan

APPEARS = 60.0
"""Seconds for which a reason has to be there before it is reported: a short job is not worth a
write.
"""
ENDS = 300.0
"""Seconds after which a reason of no job is not reported any longer."""
MOST_NAMED = 5
"""Reasons that a message names."""
LONGEST = 150
"""Characters of what a message quotes for a reason."""

_HELPLESS = (
    NotCounted.IMPOSSIBLE,
    NotCounted.TOO_LARGE,
    NotCounted.NOT_STARTED,
    NotCounted.MISFIT,
    NotCounted.NOT_MODELLED,
    NotCounted.SHAPE_UNKNOWN,
    NotCounted.DEPENDENCY_NEVER_SATISFIED,
    NotCounted.WORKERS_UNUSABLE,
    NotCounted.BUDGET,
)
"""Why jobs aren't counted that would wait forever if nobody does anything."""

_Why = tuple[NotCounted, str]


@dataclass(slots=True)
class Standing:
    """The reasons that stand. Times are seconds since the epoch."""

    _since: dict[_Why, float] = field(default_factory=dict)
    _seen: dict[_Why, float] = field(default_factory=dict)
    _begun: bool = False

    def observe(self, plan: Plan | None, now: float) -> Condition:
        """Take over a plan; None: it is unknown."""
        if plan is None:
            return Condition(
                "JobsCounted", "Unknown", JobsCounted.NO_DATA, JobsCounted.NO_DATA.cause
            )
        # What the first plan has stood before the operator started.
        begin = now if self._begun else now - APPEARS
        self._begun = True
        for it in plan.excluded:
            if it.reason in _HELPLESS:
                # Users of jobs choose a part of it.
                why = it.reason, printable(it.detail, LONGEST)
                self._since.setdefault(why, begin)
                self._seen[why] = now
        for why, seen in tuple(self._seen.items()):
            stood = seen - self._since[why] >= APPEARS
            if seen < now and (not stood or now - seen >= ENDS):
                del self._seen[why], self._since[why]
        # The oldest first: what comes later is not worth a write if many stand already.
        found = sorted(
            (why for why, seen in self._seen.items() if seen - self._since[why] >= APPEARS),
            key=lambda why: (_HELPLESS.index(why[0]), self._since[why], why[1]),
        )
        if not found:
            return Condition("JobsCounted", "True", JobsCounted.COUNTED)
        text = "; ".join(
            f"{reason.value}: {detail}" if detail else reason.value
            for reason, detail in found[:MOST_NAMED]
        )
        more = "; and more reasons" if len(found) > MOST_NAMED else ""
        return Condition("JobsCounted", "False", JobsCounted.NOT_COUNTED, text + more)
