"""What the decisions for one NodeSet remember from pass to pass."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sidecars.policy.nodeset.failures import MAX_BACKOFF_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecars.policy.nodeset.failures import Failures


@dataclass(frozen=True, slots=True)
class Memory:
    """Times are seconds since the epoch, except for those by the clock of `Observed.clock`."""

    failures: Mapping[str, Failures] = field(default_factory=dict)
    """Failures in a row, by name of the pod."""
    absent_since: Mapping[str, float] = field(default_factory=dict)
    """Since when Slurm has no node of a pod whose slurmd runs, by uid of the pod."""
    replaced: Mapping[str, float] = field(default_factory=dict)
    """When a pod was last deleted because Slurm has no node of it, by uid of the pod."""
    spared: frozenset[str] = frozenset()
    """uids of the pods that Slurm has not known since most were missing: see `lost.Spared.kept`."""
    orphaned_since: Mapping[str, float] = field(default_factory=dict)
    """Since when a node record has no pod, by its name."""
    pods_gone_since: float | None = None
    """Since when a NodeSet that is being deleted has no pods."""
    records_since: float | None = None
    """Since when newer node records are needed than the present ones, by the clock of
    `Observed.clock`.
    """
    removed_partitions: tuple[str, ...] = ()
    """The partitions that are to be removed from slurm.conf."""
    removed_since: float = 0.0
    """Since when these are to be, by the clock of `Observed.clock`."""
    closed_since: Mapping[str, float] = field(default_factory=dict)
    """When those of them that Slurm has closed were first seen so, by that clock."""

    created_records: Mapping[str, str] = field(default_factory=dict)
    """With which line of slurm.conf the record of a Slurm node was last created, by its name."""
    refused_records: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    """When Slurm last refused to create a record with this line, and how it put that."""

    closed_at: float = -math.inf
    """When the powered-down nodes were last closed, because pods can't start."""
    closed_because: str = ""
    """Why they can't."""

    planned_starts: Mapping[str, float] = field(default_factory=dict)
    """When jobs are planned to start on Slurm nodes, by name: the first of each."""
    planned_at: float = -math.inf
    """When that was read."""

    def at(self, now: float) -> Memory:
        """Return the same without times after `now`: after the clock was set back, they would
        prolong each wait.
        """
        gone = self.pods_gone_since
        return replace(
            self,
            failures={
                name: replace(item, until=min(item.until, now + MAX_BACKOFF_SECONDS))
                for name, item in self.failures.items()
            },
            absent_since=_until(now, self.absent_since),
            replaced=_until(now, self.replaced),
            orphaned_since=_until(now, self.orphaned_since),
            refused_records={
                line: (min(at, now), why) for line, (at, why) in self.refused_records.items()
            },
            planned_at=min(self.planned_at, now),
            closed_at=min(self.closed_at, now),
            pods_gone_since=None if gone is None else min(gone, now),
        )


def _until(now: float, times: Mapping[str, float]) -> Mapping[str, float]:
    return {name: min(at, now) for name, at in times.items()}
