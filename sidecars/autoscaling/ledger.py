"""Promises that Slurm doesn't keep: jobs for which it has free nodes, and which it doesn't start.

The planner doesn't know each rule of Slurm. Without this check, a job that a rule excludes would
keep the nodes that were added for it, and no other job would get more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sidecars.autoscaling.queue import Queue
    from sidecars.slurm.records import JobRequest

RETRY = 600.0
"""Seconds after which such a request is tried again; twice as long after each further time."""
LONGEST = 86_400.0
"""At most so many."""
GAP = 180.0
"""Seconds without a plan after which waiting times begin again."""
_NOT_TRIED = frozenset({"", "None", "Priority", "BeginTime", "SchedDefer", "JobArrayTaskLimit"})
"""Slurm's reasons of jobs that it has not tried to start, or not yet."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    reason: str
    """Slurm's."""
    until: float
    times: int


@dataclass(slots=True)
class Ledger:
    """What is remembered from plan to plan. Times are seconds since the epoch."""

    _since: dict[int, tuple[object, float]] = field(default_factory=dict)
    """Of each job that could start: its request and pending tasks, and since when they could."""
    _refusals: dict[JobRequest, _Refusal] = field(default_factory=dict)
    _at: float = float("-inf")

    def refused(self, now: float) -> Mapping[JobRequest, str]:
        """Return the requests that Slurm doesn't start, with its reasons."""
        return {it: why.reason for it, why in self._refusals.items() if now < why.until}

    def observe(
        self, startable: Collection[int], queue: Queue, now: float, patience: float
    ) -> bool:
        """Take over a plan. Whether the next one differs for it.

        `startable`: the jobs that fit on free nodes of Slurm, and before which none waits.
        `patience`: seconds in which its schedulers look at each job twice.
        """
        former_refused = self.refused(now)
        before = self._since if now - self._at <= GAP else {}
        self._at, self._since = now, {}
        for job_id in startable:
            pending = queue.pending(job_id)
            if pending is None or pending.reason in _NOT_TRIED:
                continue
            mark = pending.request, pending.array_tasks
            former = before.get(job_id)
            since = former[1] if former is not None and former[0] == mark else now
            self._since[job_id] = mark, since
            if now - since >= patience:
                refusal = self._refusals.get(pending.request)
                times = 1 if refusal is None else refusal.times + 1
                until = now + min(LONGEST, RETRY * 2 ** min(times - 1, 16))
                self._refusals[pending.request] = _Refusal(pending.reason, until, times)
        if self._refusals:
            waiting = queue.requests()
            self._refusals = {it: why for it, why in self._refusals.items() if it in waiting}
        return self.refused(now) != former_refused
