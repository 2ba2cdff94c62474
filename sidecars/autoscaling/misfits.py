"""NodeSets whose new nodes do not run the jobs for which they were added.

What a NodeSet offers is what its largest worker has registered. Where its Kubernetes nodes differ,
or a worker registers less than was declared, a job would get one node after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sidecars.policy.reasons.autoscaling import NotCounted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecars.autoscaling.queue import Queue
    from sidecars.autoscaling.records import Plan
    from sidecars.slurm.records import JobRequest

ENOUGH = 3
"""After so many nodes that a job can't use, its NodeSet gets no more for it."""
RETRY = 3600.0
"""Seconds after which it is tried again; twice as long after each further time."""
LONGEST = 86_400.0
"""At most so many."""


_FULL = frozenset({NotCounted.BEYOND_MAX, NotCounted.NEXT_STEP, NotCounted.BUDGET})
"""Why jobs get no node that count, and that no present node runs."""


@dataclass(slots=True)
class _Trial:
    begin: float
    unused: set[tuple[str, float]] = field(default_factory=set)
    """Nodes that have come since, and that the job can't use: names and starts of slurmd."""
    times: int = 0
    until: float = 0.0


@dataclass(slots=True)
class Misfits:
    """What is remembered from plan to plan. Times are seconds since the epoch."""

    _trials: dict[tuple[JobRequest, str], _Trial] = field(default_factory=dict)
    """By request and NodeSet."""

    def avoided(self, now: float) -> Mapping[JobRequest, frozenset[str]]:
        """Return the NodeSets that get no more nodes for a request."""
        found: dict[JobRequest, frozenset[str]] = {}
        for (request, name), trial in self._trials.items():
            if now < trial.until:
                found[request] = found.get(request, frozenset()) | {name}
        return found

    def observe(self, plan: Plan, queue: Queue, most: Mapping[str, int], now: float) -> bool:
        """Take over a plan. Whether the next one differs for it. `most`: the maxima of the
        NodeSets.
        """
        before = self.avoided(now)
        waiting: set[JobRequest] = set()
        for promise in plan.promises:
            pending = queue.pending(promise.jobs[0])
            for name in (it for it, count in promise.nodes.items() if count):
                if pending is not None:
                    waiting.add(pending.request)
                    self._trials.setdefault((pending.request, name), _Trial(now))
        for excluded in plan.excluded:
            if excluded.reason in _FULL:
                found = map(queue.pending, excluded.jobs)
                waiting |= {it.request for it in found if it is not None}
        for (request, name), trial in self._trials.items():
            if request not in waiting:
                continue
            new = (it for it in plan.unused.get(name, ()) if it[1] >= trial.begin)
            trial.unused.update(new)
            if len(trial.unused) >= max(1, min(ENOUGH, most.get(name, ENOUGH))):
                trial.times += 1
                trial.until = now + min(LONGEST, RETRY * 2 ** min(16, trial.times - 1))
                trial.begin, trial.unused = now, set()
        if self._trials:
            known = queue.requests()
            self._trials = {it: kept for it, kept in self._trials.items() if it[0] in known}
        return self.avoided(now) != before
