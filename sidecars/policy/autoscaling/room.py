"""The nodes with what is free on them, and where Slurm would start jobs.

Slurm's choice is reproduced: nodes with a lower weight first, then their order in slurmctld. A job that may use several
nodes gets consecutive ones, see `spread`. Nodes that are the same and have the same free are one class, so that tens of
thousands of jobs are placed quickly.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sidecars.policy.autoscaling import fit, spread
from sidecars.policy.autoscaling.fit import Free, Kind, Use
from sidecars.policy.autoscaling.spread import Candidate, Rank

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sidecars.policy.autoscaling.features import Test
    from sidecars.policy.autoscaling.needs import Needs
    from sidecars.policy.autoscaling.queue import Bundle
    from sidecars.policy.autoscaling.records import Settings

Class = tuple[Kind, Free]

MOST_REMEMBERED = 100_000


@dataclass(slots=True)
class Fits:
    """What was computed about needs and nodes, for all rooms with the same settings."""

    settings: Settings
    uses: dict[tuple[Needs, Kind, Free], Use] = field(default_factory=dict)
    fills: dict[tuple[Needs, Kind, Free], list[Free]] = field(default_factory=dict)

    def use(self, needs: Needs, kind: Kind, free: Free) -> Use:
        """`fit.usable`."""
        key = needs, kind, free
        found = self.uses.get(key)
        if found is None:
            if len(self.uses) >= MOST_REMEMBERED:
                self.uses.clear()
            found = self.uses[key] = fit.usable(needs, kind, free, self.settings)
        return found

    def fill(self, needs: Needs, kind: Kind, free: Free) -> list[Free]:
        """What is free after one, two, … jobs that fit on the node as a whole."""
        key = needs, kind, free
        found = self.fills.get(key)
        if found is None:
            if len(self.fills) >= MOST_REMEMBERED:
                self.fills.clear()
            found = self.fills[key] = []
            use = self.use(needs, kind, free)
            while spread.alone(needs, kind, free, use):
                free = fit.after(needs, kind, free, use, needs.cpus, needs.gres_per_job)
                found.append(free)
                use = self.use(needs, kind, free)
        return found


@dataclass(slots=True)
class Fresh:
    """Nodes of one NodeSet that could be added."""

    kind: Kind
    price: float
    order: int
    left: int
    """How many more."""


class Room:
    """Nodes, which jobs fill up. Nodes are numbered as they are added."""

    def __init__(self, fits: Fits, names: Mapping[int, str] | None = None, budget: float | None = None) -> None:
        self._fits = fits
        self._names = names or {}
        """Of the nodes that exist, for jobs that exclude some."""
        self._classes: dict[Class, list[int]] = {}
        """Their numbers, sorted."""
        self._fresh: list[Fresh] = []
        self._full: set[Bundle] = set()
        """Jobs for which nothing is left: jobs only take, so the next that needs the same gets nothing either."""
        self._budget = budget
        self._log: list[tuple[int, Class, Class | Fresh]] = []
        """Number, class and former class of each node that changed, for a heterogeneous job that doesn't fit whole."""
        self.count = 0
        self.used: dict[int, str] = {}
        """The NodeSets of the nodes on which a job was placed, by number, in the order of first use."""
        self.opened: Counter[str] = Counter()
        """The nodes that were added, by NodeSet."""

    def add(self, kind: Kind, free: Free | None = None) -> None:
        """A node that exists."""
        self._put(self.count, (kind, kind.full if free is None else free))
        self.count += 1

    def skip(self) -> None:
        """A node that no job can use: it has a number in slurmctld, too."""
        self.count += 1

    def offer(self, fresh: Fresh) -> None:
        """Nodes that could be added, if the budget allows it."""
        self._fresh.append(fresh)

    def place(self, bundle: Bundle, count: int) -> int:
        """Start so many jobs that need the same; how many there is room for."""
        if bundle in self._full:
            return 0
        placed = 0
        while placed < count:
            at_once = self._place(bundle[0], count - placed) if len(bundle) == 1 else self._place_all(bundle)
            if not at_once:
                self._full.add(bundle)
                break
            placed += at_once
        return placed

    def has_room(self, fresh: Fresh) -> bool:
        """Whether one more node of that kind may be added."""
        return fresh.left > 0 and (self._budget is None or fresh.price <= self._budget)

    def _place_all(self, bundle: Bundle) -> int:
        """The components of a heterogeneous job, all or none."""
        self._log.clear()
        used, opened = dict(self.used), Counter(self.opened)
        if all(self._place(needs, 1) for needs in bundle):
            return 1
        for index, now, before in reversed(self._log):
            self._remove(index, now)
            if isinstance(before, Fresh):
                before.left += 1
                self.count -= 1
                if self._budget is not None:
                    self._budget += before.price
            else:
                self._put(index, before)
        self.used, self.opened = used, opened
        return 0

    def _place(self, needs: Needs, most: int) -> int:
        """A job, and more of the same on the same node; how many. Nodes are added only if no partition has room."""
        for new in (False, True) if self._fresh else (False,):
            for partition in needs.partitions:
                for test in needs.features or (None,):
                    if needs.one_node:
                        placed = self._first_fit(needs, partition, test, most, new=new)
                    else:
                        placed = self._several(needs, partition, test, new=new)
                    if placed:
                        return placed
        return 0

    def _first_fit(self, needs: Needs, partition: str, test: Test | None, most: int, *, new: bool) -> int:
        best: tuple[Rank, int, Kind, Free, Fresh | None] | None = None
        for rank, kind, free, numbers, fresh in self._sources(needs, partition, test, new=new):
            if best is not None and (rank, numbers[0]) >= best[:2]:
                continue
            if self._fits.fill(needs, kind, free):
                best = rank, numbers[0], kind, free, fresh
        if best is None:
            return 0
        _, index, kind, free, fresh = best
        states = self._fits.fill(needs, kind, free)
        placed = min(most, len(states))
        self._change(index, kind, free, states[placed - 1], fresh)
        return placed

    def _several(self, needs: Needs, partition: str, test: Test | None, *, new: bool) -> int:
        limit = needs.max_nodes or needs.cpus + needs.min_nodes
        candidates: list[Candidate] = []
        begin = self.count
        for rank, kind, free, numbers, fresh in self._sources(needs, partition, test, new=new):
            use = self._fits.use(needs, kind, free)
            if fresh is not None:
                numbers = range(begin, begin + min(limit, fresh.left))  # noqa: PLW2901
                begin = numbers.stop
            candidates += [Candidate(rank, index, kind, free, use, fresh) for index in numbers[:limit]]
        chosen = spread.choose(needs, candidates)
        if chosen is None or not self._affordable(chosen):
            return 0
        for candidate, after in chosen:
            fresh = candidate.source if isinstance(candidate.source, Fresh) else None
            self._change(candidate.number, candidate.kind, candidate.free, after, fresh)
        return 1

    def _affordable(self, chosen: list[tuple[Candidate, Free]]) -> bool:
        cost = sum(it.source.price for it, _ in chosen if isinstance(it.source, Fresh))
        return self._budget is None or cost <= self._budget

    def _sources(
        self, needs: Needs, partition: str, test: Test | None, *, new: bool
    ) -> Iterator[tuple[Rank, Kind, Free, Sequence[int], Fresh | None]]:
        """The classes that a job could use some of: rank, kind, free, numbers, and what is added from."""
        for (kind, free), numbers in self._classes.items():
            if not fit.allowed(needs, kind, partition) or (test is not None and not test(kind.shape.features)):
                continue
            if not self._fits.use(needs, kind, free).cpus:
                continue
            if needs.excluded_nodes:
                numbers = [it for it in numbers if self._names.get(it) not in needs.excluded_nodes]  # noqa: PLW2901
                if not numbers:
                    continue
            yield (0, kind.weight, 0), kind, free, numbers, None
        if not new:
            return
        for fresh in self._fresh:
            kind = fresh.kind
            if not self.has_room(fresh) or not fit.allowed(needs, kind, partition):
                continue
            if (test is None or test(kind.shape.features)) and self._fits.use(needs, kind, kind.full).cpus:
                yield (1, fresh.price, fresh.order), kind, kind.full, [self.count], fresh

    # --- one node

    def _change(self, index: int, kind: Kind, before: Free, after: Free, fresh: Fresh | None) -> None:
        if fresh is None:
            self._remove(index, (kind, before))
        else:
            index = self.count
            self.count += 1
            fresh.left -= 1
            self.opened[kind.nodeset] += 1
            if self._budget is not None:
                self._budget -= fresh.price
        self._put(index, (kind, after))
        self._log.append((index, (kind, after), fresh or (kind, before)))
        self.used.setdefault(index, kind.nodeset)

    def _put(self, index: int, class_: Class) -> None:
        numbers = self._classes.get(class_)
        if numbers is None:
            self._classes[class_] = [index]
        else:
            insort(numbers, index)

    def _remove(self, index: int, class_: Class) -> None:
        numbers = self._classes[class_]
        del numbers[bisect_left(numbers, index)]
        if not numbers:
            del self._classes[class_]
