"""The nodes with what is free on them, and where Slurm would start jobs.

Slurm's choice is reproduced: nodes with a lower weight first, then their order in slurmctld. A job
that may use several nodes gets consecutive ones, see `several_nodes`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

from sidecars.autoscaling import one_node, several_nodes
from sidecars.autoscaling.computed import MOST_FILLS
from sidecars.autoscaling.several_nodes import Candidate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sidecars.autoscaling.computed import Computed, May, State
    from sidecars.autoscaling.features import Test
    from sidecars.autoscaling.needs import Needs
    from sidecars.autoscaling.one_node import Kind
    from sidecars.autoscaling.order import Bundle

_Key = tuple["Needs", str, "Test | None"]
CHUNK = 128
"""So many nodes are looked at together."""
_Scan = tuple[tuple[int, ...], tuple[int, ...], int, int, "May"]
"""The nodes among the first so many of the order that may fit. Jobs only take, so no other ever
will.

Those that had room when they were last looked at; others; from which of these on none was looked
at; how many of the order were looked through; which may fit. Not a NamedTuple, which takes several
times as long to create.
"""


NONE: Mapping[str, int] = {}


def _licenses_of(bundle: Bundle) -> Mapping[str, int]:
    """Return the licenses of a job with all its components."""
    if not any(it.licenses for it in bundle):
        return NONE
    found: Counter[str] = Counter()
    for it in bundle:
        found.update(dict(it.licenses))
    return found


@dataclass(slots=True)
class Fresh:
    """Nodes of one NodeSet that could be added."""

    kind: Kind
    price: float
    order: int
    left: int
    """How many more."""


class Snapshot(NamedTuple):
    """What a room has at a time."""

    states: tuple[State | None, ...]
    order: tuple[int, ...]
    scans: Mapping[_Key, _Scan]
    full: frozenset[Bundle]
    used: Mapping[int, str]
    opened: Mapping[str, int]
    left: tuple[int, ...]
    budget: float | None
    licenses: Mapping[str, int]


class Room:
    """Nodes, which jobs fill up. They are numbered in the order of slurmctld.

    `rough`: jobs on several nodes get the same of each node, which is quicker than to follow Slurm
    exactly.
    """

    def __init__(
        self,
        fits: Computed,
        nodes: list[State | None],
        fresh: list[Fresh],
        *,
        names: Mapping[int, str],
        budget: float | None,
        rough: bool,
        licenses: Mapping[str, int] = NONE,
    ) -> None:
        """`nodes`: None for one that no job can use. `names`: of the nodes that exist, for jobs
        that exclude some. `licenses`: the free ones; others are not counted.
        """
        self._fits = fits
        self._states = list(nodes)
        weights = [
            (state.kind.weight, number)
            for number, state in enumerate(nodes)
            if state is not None and state.free.cores
        ]
        self._order = [number for _, number in sorted(weights)]
        """The nodes in the order in which Slurm uses them; those that are added come last."""
        self._fresh = sorted(fresh, key=lambda it: (it.price, it.order))
        self._names = names
        self._budget = budget
        self._rough = rough
        self._licenses = dict(licenses)
        self._kinds = {it.kind for it in (*nodes, *fresh) if it is not None}
        self._scans: dict[_Key, _Scan] = {}
        self._full: set[Bundle] = set()
        """Jobs for which nothing is left."""
        self.used: dict[int, str] = {}
        """The NodeSets of the nodes on which a job was placed, by number, in the order of first
        use.
        """
        self.opened: Counter[str] = Counter()
        """The nodes that were added, by NodeSet."""

    def place(self, bundle: Bundle, count: int) -> int:
        """Start so many jobs that need the same; how many fit."""
        if bundle in self._full:
            return 0
        placed = 0
        licenses = self._licenses and _licenses_of(bundle)
        if licenses:
            known = [name for name in licenses if name in self._licenses]
            count = min([count, *(self._licenses[name] // licenses[name] for name in known)])
        while placed < count:
            at_once = (
                self._place(bundle[0], count - placed)
                if len(bundle) == 1
                else self._place_all(bundle)
            )
            if not at_once:
                self._full.add(bundle)
                break
            placed += at_once
        for name, it in (licenses or NONE).items():
            if name in self._licenses:
                self._licenses[name] -= placed * it
        return placed

    def lacks(self, bundle: Bundle) -> str:
        """Return the licenses of which too few are left for the job, "" for none."""
        wanted = _licenses_of(bundle)
        return ", ".join(it for it in wanted if self._licenses.get(it, wanted[it]) < wanted[it])

    def _place_all(self, bundle: Bundle) -> int:
        """Return the components of a heterogeneous job, all or none."""
        before = self.snapshot()
        if all(self._place(needs, 1) for needs in bundle):
            return 1
        self.restore(before)
        return 0

    def snapshot(self) -> Snapshot:
        """Return the room as it is."""
        return Snapshot(
            tuple(self._states),
            tuple(self._order),
            dict(self._scans),
            frozenset(self._full),
            dict(self.used),
            dict(self.opened),
            tuple(it.left for it in self._fresh),
            self._budget,
            dict(self._licenses),
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Have it as it was in a snapshot of this room, or of another that began with the same
        nodes.
        """
        self._states, self._order = list(snapshot.states), list(snapshot.order)
        self._scans, self._full = dict(snapshot.scans), set(snapshot.full)
        self.used, self.opened = dict(snapshot.used), Counter(snapshot.opened)
        for fresh, left in zip(self._fresh, snapshot.left, strict=True):
            fresh.left = left
        self._budget, self._licenses = snapshot.budget, dict(snapshot.licenses)

    def _place(self, needs: Needs, most: int) -> int:
        """Place a job, and more of the same on the same node. Return how many. Nodes are added only
        if no partition has room.
        """
        if len(needs.partitions) == 1 and len(needs.features) <= 1:
            # Often nothing else is to be tried before nodes are added.
            partition, test = needs.partitions[0], needs.features[0] if needs.features else None
            needs = self._fits.within(needs, partition)
            if needs.contradictory:
                return 0
            nodes = needs.min_nodes
            if needs.max_nodes == 1:
                return self._in_groups(needs, needs, 1, partition, test, most)
            if self._rough and nodes <= needs.most_nodes < 2 * nodes:
                return self._in_groups(
                    needs, self._fits.share(needs, nodes), nodes, partition, test, most
                )
        for new in (False, True):
            if new and not any(it.left for it in self._fresh):
                return 0
            for partition in needs.partitions:
                own = self._fits.within(needs, partition)
                if own.contradictory:
                    continue
                for test in needs.features or (None,):
                    if own.one_node:
                        placed = self._evenly(own, own, 1, partition, test, most, new=new)
                    elif self._rough:
                        placed = self._shared(own, partition, test, most, new=new)
                    else:
                        placed = self._several(own, partition, test, new=new)
                    if placed:
                        return placed
        return 0

    def _shared(
        self, needs: Needs, partition: str, test: Test | None, most: int, *, new: bool
    ) -> int:
        """Place jobs on as few nodes as they may have. Return how many."""
        nodes = needs.min_nodes
        while nodes <= needs.most_nodes:
            share = self._fits.share(needs, nodes)
            placed = self._evenly(needs, share, nodes, partition, test, most, new=new)
            if placed:
                return placed
            nodes *= 2
        return 0

    def _evenly(
        self,
        needs: Needs,
        share: Needs,
        count: int,
        partition: str,
        test: Test | None,
        most: int,
        *,
        new: bool,
    ) -> int:
        """Place jobs with the same share of so many nodes each, on the same nodes as long as they
        have room. Return how many.
        """
        chosen, fills = self._fitting(share, partition, test, count)
        if len(chosen) < count:
            if not new:
                return 0
            opened = self._to_open(needs, share, partition, test, count - len(chosen))
            if len(chosen) + len(opened) < count:
                return 0
            fills += [
                self._fits.fill(share, self._fits.state(fresh.kind, fresh.kind.full))
                for fresh in opened
            ]
            chosen += [self._open(fresh) for fresh in opened]
        placed = min(most, *map(len, fills))
        states, used = self._states, self.used
        for number, fill in zip(chosen, fills, strict=True):
            states[number] = state = fill[placed - 1]
            if number not in used:
                used[number] = state.kind.nodeset
        return placed

    def _in_groups(
        self, needs: Needs, share: Needs, count: int, partition: str, test: Test | None, most: int
    ) -> int:
        """Place jobs as `_evenly` does again and again, for jobs that have no other place. Return
        how many. Not always all that could be placed: the caller asks again until none is.
        """
        key = share, partition, test
        scan = self._scans.get(key)
        if scan is None:
            scan = (), (), 0, 0, self._fits.may(share, self._kinds_for(share, partition, test))
        first, rest, begin, seen, may = scan
        fill, missing = self._fits.fill, most
        if first:
            rest, begin = (*first, *rest[begin:]), 0
        group: list[int] = []
        fills: list[list[State]] = []
        while missing:
            rest, begin, seen = self._gather(group, fills, count, share, rest, begin, seen, may)
            if len(group) < count:
                break
            missing -= self._take(share, group, fills, missing)
        self._scans[key] = tuple(group), rest, begin, seen, may
        if not missing:
            return most
        opened = self._to_open(needs, share, partition, test, count - len(group))
        if len(group) + len(opened) < count:
            return most - missing
        if not group and opened[0] is opened[-1]:
            return most - missing + self._opened(opened[0], share, count, missing)
        fills += [fill(share, self._fits.state(fresh.kind, fresh.kind.full)) for fresh in opened]
        group += [self._open(fresh) for fresh in opened]
        return most - missing + self._take(share, group, fills, missing)

    def _take(self, share: Needs, group: list[int], fills: list[list[State]], most: int) -> int:
        """Place jobs on these nodes. Return how many. `group` and `fills` keep the nodes that have
        room for more.
        """
        placed = min(most, *map(len, fills))
        states, used = self._states, self.used
        at = 0
        for number, after in zip(tuple(group), tuple(fills), strict=True):
            states[number] = state = after[placed - 1]
            if number not in used:
                used[number] = state.kind.nodeset
            left = after[placed:] if len(after) < MOST_FILLS else self._fits.fill(share, state)
            if left:
                group[at], fills[at] = number, left
                at += 1
        del group[at:], fills[at:]
        return placed

    def _opened(self, fresh: Fresh, share: Needs, count: int, most: int) -> int:
        """Place jobs with the same share of so many added nodes each, on as many nodes as may be
        added. Return how many.
        """
        fill = self._fits.fill(share, self._fits.state(fresh.kind, fresh.kind.full))
        placed = 0
        while True:
            now = min(most - placed, len(fill))
            state = fill[now - 1]
            for _ in range(count):
                number = self._open(fresh)
                self._states[number] = state
                self.used[number] = fresh.kind.nodeset
            placed += now
            # A node that is capped by MOST_FILLS may have room left; and the budget counts for each
            # job.
            if (
                placed == most
                or fresh.left < count
                or self._budget is not None
                or len(fill) == MOST_FILLS
            ):
                return placed

    def _fitting(
        self, share: Needs, partition: str, test: Test | None, count: int
    ) -> tuple[list[int], list[list[State]]]:
        """Return the first nodes that have room for one more, at most so many, and their states
        after one, two, … more.
        """
        key = share, partition, test
        scan = self._scans.get(key)
        if scan is None:
            scan = (), (), 0, 0, self._fits.may(share, self._kinds_for(share, partition, test))
        first, rest, begin, seen, may = scan
        if first:
            rest, begin = (*first, *rest[begin:]), 0
        found: list[int] = []
        fills: list[list[State]] = []
        rest, begin, seen = self._gather(found, fills, count, share, rest, begin, seen, may)
        self._scans[key] = tuple(found), rest, begin, seen, may
        return found, fills

    def _gather(
        self,
        group: list[int],
        fills: list[list[State]],
        count: int,
        share: Needs,
        rest: tuple[int, ...],
        begin: int,
        seen: int,
        may: May,
    ) -> tuple[tuple[int, ...], int, int]:
        """Append nodes that have room for one more until the group has so many, or no other node is
        left.

        Where the search continues: see `_Scan`.
        """
        states, fill = self._states, self._fits.fill
        while True:
            end = len(rest)
            while begin < end and len(group) < count:
                number = rest[begin]
                begin += 1
                state = states[number]
                if state is None:
                    continue
                after = state.fills.get(share)
                if after or (after is None and (after := fill(share, state))):
                    group.append(number)
                    fills.append(after)
            chunk = self._order[seen : seen + CHUNK] if len(group) < count else ()
            if not chunk:
                return rest, begin, seen
            seen += len(chunk)
            rest, begin = self._maybe(chunk, share, may), 0

    def _maybe(self, chunk: Sequence[int], needs: Needs, may: May) -> tuple[int, ...]:
        """Return those of the nodes that may have room: most are left out at little cost. One not
        looked at yet may have.
        """
        maybe: Iterable[int] = compress(
            chunk, map(may.__getitem__, map(self._states.__getitem__, chunk))
        )
        if needs.excluded_nodes:
            maybe = (
                number for number in maybe if self._names.get(number) not in needs.excluded_nodes
            )
        return tuple(maybe)

    def _kinds_for(self, needs: Needs, partition: str, test: Test | None) -> frozenset[Kind]:
        return frozenset(
            kind
            for kind in self._kinds
            if one_node.allowed(needs, kind, partition)
            and (test is None or test(kind.shape.features))
            and not (kind.new and kind.nodeset in needs.avoid)
        )

    def _to_open(
        self, needs: Needs, share: Needs, partition: str, test: Test | None, count: int
    ) -> list[Fresh]:
        """Return the cheapest nodes that could be added, at most so many."""
        found: list[Fresh] = []
        budget = self._budget
        kinds = self._kinds_for(needs, partition, test)
        for fresh in self._fresh:
            if fresh.kind not in kinds:
                continue
            if not self._fits.fill(share, self._fits.state(fresh.kind, fresh.kind.full)):
                continue
            more = min(count - len(found), fresh.left)
            if budget is not None and fresh.price > 0:
                more = min(more, int(budget // fresh.price))
                budget -= more * fresh.price
            found += [fresh] * more
        return found

    def _several(self, needs: Needs, partition: str, test: Test | None, *, new: bool) -> int:
        """Place one job, on the nodes that Slurm would choose."""
        candidates: list[Candidate] = []
        kinds = self._kinds_for(needs, partition, test)
        for number in self._order:
            state = self._state(number)
            use = self._fits.use(needs, state)
            excluded = needs.excluded_nodes and self._names.get(number) in needs.excluded_nodes
            if use.cpus and state.kind in kinds and not excluded:
                candidates.append(
                    Candidate((0, state.kind.weight, 0), number, state.kind, state.free, use)
                )
        sources: dict[int, Fresh] = {}
        if new:
            begin = len(self._states)
            for fresh in self._fresh:
                use = self._fits.use(needs, self._fits.state(fresh.kind, fresh.kind.full))
                usable = use.cpus and fresh.kind in kinds
                for _ in range(min(fresh.left, needs.most_nodes) if usable else 0):
                    rank = (1, fresh.price, fresh.order)
                    candidates.append(Candidate(rank, begin, fresh.kind, fresh.kind.full, use))
                    sources[begin] = fresh
                    begin += 1
        chosen = several_nodes.choose(needs, candidates)
        if chosen is None:
            return 0
        cost = sum(sources[it.number].price for it, _ in chosen if it.number in sources)
        if self._budget is not None and cost > self._budget:
            return 0
        for candidate, free in chosen:
            fresh_ = sources.get(candidate.number)
            number = candidate.number if fresh_ is None else self._open(fresh_)
            self._use(number, self._fits.state(candidate.kind, free))
        return 1

    # --- one node

    def _state(self, number: int) -> State:
        found = self._states[number]
        if found is None:
            raise ValueError(f"node {number} can't be used")
        return found

    def _open(self, fresh: Fresh) -> int:
        """Add a node; its number."""
        fresh.left -= 1
        self.opened[fresh.kind.nodeset] += 1
        if self._budget is not None:
            self._budget -= fresh.price
        self._states.append(self._fits.state(fresh.kind, fresh.kind.full))
        self._order.append(len(self._states) - 1)
        return len(self._states) - 1

    def _use(self, number: int, state: State) -> None:
        self._states[number] = state
        self.used.setdefault(number, state.kind.nodeset)
