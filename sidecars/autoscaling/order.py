"""The jobs that count, in Slurm's order, in slices: a change of one job affects only its own slice.

A slice ends at a job whose id hashes to zero. So the same jobs are always in the same slices,
whatever changed before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sidecars.autoscaling.needs import Needs

EXACT = 512
"""So many jobs are taken one by one. More are taken in slices, and the jobs of a slice by what they
request.
"""
SLICES = 64
"""At least so many slices on average; less than twice as many."""

Bundle = tuple["Needs", ...]
"""A job, or the components of a heterogeneous job, which start together."""
Key = tuple[int, int, int, int]
"""Jobs with a lower one come first; the last number is the id."""


class Entry(NamedTuple):
    """A job in the queue."""

    key: Key
    bundle: Bundle
    tasks: int
    """The pending tasks of an array that may run, 1 for another job."""


_KEY = itemgetter(0)
_BUNDLE = itemgetter(1)


@dataclass(frozen=True, slots=True)
class Run:
    """Jobs in a row that request the same."""

    bundle: Bundle
    jobs: tuple[int, ...]
    """Ids of jobs and arrays, in Slurm's order."""
    counts: tuple[int, ...]
    """Of each: the tasks of an array, 1 for another job."""
    count: int = field(init=False)
    """All of them."""
    least: int = field(init=False)
    """The lowest id."""
    unsure: bool = field(init=False)
    """Whether it is unknown of a job, or of a component, whether it is exclusive."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", sum(self.counts))
        object.__setattr__(self, "least", min(self.jobs, default=0))
        object.__setattr__(self, "unsure", any(it.alone is not None for it in self.bundle))

    def first(self, placed: int) -> tuple[int, ...]:
        """Return the jobs of which the first so many are."""
        if placed == self.count:
            return self.jobs
        found = bisect_left(list(accumulate(self.counts)), placed)
        return self.jobs[: found + 1] if placed else ()

    def rest(self, placed: int) -> tuple[int, ...]:
        """Return the jobs that aren't, or not with all tasks, among the first so many."""
        return (
            self.jobs[bisect_right(list(accumulate(self.counts)), placed) :]
            if placed
            else self.jobs
        )


@dataclass(slots=True)
class _Slice:
    entries: list[Entry]
    runs: tuple[Run, ...] | None = None
    """None after a change."""


class Order:
    """Sorted entries. No two have the same key."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._slices: list[_Slice] = []
        self._bits = 0
        """One of 2 ** bits jobs ends a slice; 0 for all jobs in one."""
        self._count = 0
        self._begin(sorted(entries, key=_KEY))

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        at = self._at(entry.key)
        slice_ = self._slices[at]
        insort(slice_.entries, entry, key=_KEY)
        slice_.runs = None
        self._count += 1
        if self._ends(entry):
            end = bisect_right(slice_.entries, entry.key, key=_KEY)
            self._slices.insert(at + 1, _Slice(slice_.entries[end:]))
            del slice_.entries[end:]

    def remove(self, key: Key) -> None:
        """Remove the entry with this key."""
        at = self._at(key)
        slice_ = self._slices[at]
        entry = slice_.entries.pop(bisect_left(slice_.entries, key, key=_KEY))
        slice_.runs = None
        self._count -= 1
        if self._ends(entry):
            slice_.entries += self._slices.pop(at + 1).entries

    def runs(self) -> tuple[Run, ...]:
        """Return the runs: the same objects as before where nothing changed."""
        if self._bits != self._wanted_bits():
            self._begin([entry for slice_ in self._slices for entry in slice_.entries])
        found: list[Run] = []
        for slice_ in self._slices:
            if slice_.runs is None:
                slice_.runs = _grouped(slice_.entries) if self._bits else _in_a_row(slice_.entries)
            found += slice_.runs
        return tuple(found)

    def _begin(self, entries: list[Entry]) -> None:
        self._count = len(entries)
        self._bits = self._wanted_bits()
        ends = [at for at, entry in enumerate(entries, 1) if self._ends(entry)]
        self._slices = [
            _Slice(entries[begin:end]) for begin, end in zip([0, *ends], [*ends, None], strict=True)
        ]

    def _wanted_bits(self) -> int:
        return 0 if self._count <= EXACT else (self._count // SLICES).bit_length() - 1

    def _ends(self, entry: Entry) -> bool:
        # Fibonacci hashing: ids in a row are spread evenly.
        return (
            self._bits > 0 and (entry.key[-1] * 0x9E3779B1 & 0xFFFFFFFF) >> (32 - self._bits) == 0
        )

    def _at(self, key: Key) -> int:
        """Return the slice in which the key is or would be. Each but the last ends with an
        entry.
        """
        return bisect_left(
            self._slices, key, hi=len(self._slices) - 1, key=lambda slice_: slice_.entries[-1].key
        )


def _in_a_row(entries: Sequence[Entry]) -> tuple[Run, ...]:
    return tuple(_run(bundle, list(found)) for bundle, found in groupby(entries, key=_BUNDLE))


def _grouped(entries: Sequence[Entry]) -> tuple[Run, ...]:
    found: defaultdict[Bundle, list[Entry]] = defaultdict(list)
    for entry in entries:
        found[entry.bundle].append(entry)
    return tuple(_run(bundle, group) for bundle, group in found.items())


def _run(bundle: Bundle, entries: Sequence[Entry]) -> Run:
    return Run(bundle, tuple([it.key[-1] for it in entries]), tuple([it.tasks for it in entries]))
