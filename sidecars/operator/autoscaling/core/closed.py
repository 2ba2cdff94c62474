"""NodeSets whose workers have not registered: they get no more for some time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from sidecars.autoscaling.nodesets import Pods

FIRST = 300.0
"""Seconds after the first time. Twice as many after each further one."""
LONGEST = 4 * 3600.0


@dataclass(slots=True)
class Closed:
    """What is remembered from pass to pass. Times are seconds since the epoch."""

    _failed: dict[str, frozenset[str]] = field(default_factory=dict)
    """The workers that have failed and still exist, by NodeSet."""
    _registered: dict[str, frozenset[str]] = field(default_factory=dict)
    _times: dict[str, int] = field(default_factory=dict)
    _until: dict[str, float] = field(default_factory=dict)

    def observe(self, pods: Pods, registered: Collection[str], nodeset: str, now: float) -> float:
        """Take over the workers of a NodeSet. Until when it gets no more."""
        failed = frozenset(name for name, it in pods.staying.items() if it.failed)
        new = frozenset(registered) - self._registered.get(nodeset, frozenset(registered))
        if new:
            self._times.pop(nodeset, None)
            self._until.pop(nodeset, None)
        elif failed and not failed <= self._failed.get(nodeset, frozenset()):
            times = self._times[nodeset] = min(16, self._times.get(nodeset, 0) + 1)
            self._until[nodeset] = now + min(LONGEST, FIRST * 2 ** (times - 1))
        self._failed[nodeset], self._registered[nodeset] = failed, frozenset(registered)
        return self._until.get(nodeset, 0.0)
