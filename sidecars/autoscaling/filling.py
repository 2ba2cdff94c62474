"""Places a queue on nodes, from the first job on that isn't as it was at the last time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecars.autoscaling.order import Run
    from sidecars.autoscaling.room import Room, Snapshot

EVERY = 256
"""Runs between two snapshots: one costs about as much as placing ten runs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where the jobs of a queue find room."""

    placed: Sequence[int]
    """For each run."""
    used: Sequence[Mapping[str, int]]
    """For each run, the new nodes that it is the first to use."""
    room: Room


NO_NODES: Mapping[str, int] = {}


@dataclass(slots=True)
class Filling:
    """The last filling, and snapshots of the room on the way."""

    _key: object = None
    _runs: Sequence[Run] = ()
    _placed: list[int] = field(default_factory=list)
    _used: list[Mapping[str, int]] = field(default_factory=list)
    _snapshots: list[tuple[int, Snapshot]] = field(default_factory=list)
    """With the number of runs that were placed before."""

    def fill(self, key: object, room: Room, runs: Sequence[Run], existing: int) -> Outcome:
        """Place all runs in the room. With the same `key` the room was the same before the first
        run; None: never.
        """
        begin = 0
        if key is not None and key == self._key:
            begin = self._resume(room, runs)
        else:
            self._snapshots.clear()
        del self._placed[begin:], self._used[begin:]
        placed, used, place = self._placed.append, self._used.append, room.place
        for at, run in enumerate(islice(runs, begin, None), begin):
            if at % EVERY == 0 and at > begin and key is not None:
                self._snapshots.append((at, room.snapshot()))
            before = len(room.used)
            placed(place(run.bundle, run.count))
            if len(room.used) > before:
                new = islice(reversed(room.used.items()), len(room.used) - before)
                used(Counter(name for number, name in new if number >= existing))
            else:
                used(NO_NODES)
        self._key, self._runs = key, runs
        return Outcome(tuple(self._placed), tuple(self._used), room)

    def _resume(self, room: Room, runs: Sequence[Run]) -> int:
        """Have the room as it was before the first run that differs, or not far before; how many
        runs are placed.
        """
        same = 0
        for old, new in zip(self._runs, runs, strict=False):
            if old is not new and (old.bundle != new.bundle or old.count != new.count):
                break
            same += 1
        while self._snapshots and self._snapshots[-1][0] > same:
            self._snapshots.pop()
        if not self._snapshots:
            return 0
        begin, snapshot = self._snapshots[-1]
        room.restore(snapshot)
        return begin
