"""The nodes that the queue could use: which NodeSets get how many, for which jobs, and which jobs
get none and why.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import nsmallest
from math import inf
from typing import TYPE_CHECKING

from sidecars.autoscaling import one_node
from sidecars.autoscaling.filling import Filling
from sidecars.autoscaling.order import EXACT
from sidecars.autoscaling.queue import SHOWN
from sidecars.autoscaling.records import Excluded, Promise
from sidecars.autoscaling.room import Fresh, Room
from sidecars.policy.reasons.autoscaling import NotCounted
from sidecars.slurm.gres import Gres

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecars.autoscaling.computed import Computed, State
    from sidecars.autoscaling.filling import Outcome
    from sidecars.autoscaling.needs import Needs
    from sidecars.autoscaling.one_node import Kind, Use
    from sidecars.autoscaling.order import Bundle, Run
    from sidecars.autoscaling.queue import Look
    from sidecars.autoscaling.records import PresentNode, ScaledNodeSet

MANY_JOBS = 10 * SHOWN
"""Of more ids the first ones are selected."""
MOST_CORRECTIONS = 8
"""Nodes that are added because Slurm would use the first choice of nodes in another order."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many nodes a NodeSet may get."""

    nodeset: ScaledNodeSet
    left: int
    """In all steps together."""
    coming: int
    """Its nodes that have a pod and aren't in Slurm yet."""
    limit: NotCounted = NotCounted.BEYOND_MAX
    """What limits it."""
    step: int = 0
    """In this step."""
    most: int = 0
    """How many nodes it can have at any time."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What the queue could use."""

    added: Mapping[str, int]
    """Nodes to add, by NodeSet."""
    promises: tuple[Promise, ...]
    excluded: tuple[Excluded, ...]
    used: frozenset[str]
    """The nodes that Slurm has and that pending jobs would use."""
    needed: Mapping[str, int]
    """See `Plan.needed`."""
    startable: tuple[int, ...] = ()
    """See `Plan.startable`."""


@dataclass(slots=True)
class _Tally:
    """The jobs that find no room for the same reason."""

    count: int = 0
    jobs: list[int] = field(default_factory=list)
    """Those with the lowest ids, and others."""
    most: float = inf
    """No job with a higher id is wanted."""

    def add(self, jobs: Sequence[int]) -> None:
        """Add some, of which the lowest are kept."""
        self.jobs += jobs
        if len(self.jobs) > MANY_JOBS:
            self.jobs = nsmallest(SHOWN, set(self.jobs))
            if len(self.jobs) == SHOWN:
                self.most = self.jobs[-1]


class Planner:
    """One decision."""

    def __init__(
        self,
        look: Look,
        allowances: Sequence[Allowance],
        nodes: Sequence[PresentNode],
        fits: Computed,
        filling: Filling,
        existing: Sequence[State | None],
        budget: float | None,
        licenses: Mapping[str, int],
    ) -> None:
        """Take the nodes and the limits of the plan. `filling`: the last one of a long queue, with
        the same `fits`. `existing`: the state of each of the nodes, None for one that no job can
        have.
        """
        self._look, self._licenses = look, licenses
        self._nodes = nodes
        self._fits = fits
        self._filling = filling
        self._budget = budget
        wishes = sum(run.count * sum(map(fits.most_nodes, run.bundle)) for run in look.runs)
        self._allowances = allowances = [
            replace(it, left=min(it.left, wishes)) for it in allowances
        ]
        self._rough = (
            max(len(look.runs), len(nodes) + sum(it.coming + it.left for it in allowances)) > EXACT
        )
        """Many jobs and nodes are counted, and Slurm's choice of nodes isn't followed one by one.
        """
        self._names = {number: node.name for number, node in enumerate(nodes)}
        self._existing = existing
        self._kinds = {it.kind for it in self._existing if it is not None}
        self._reasons: dict[Bundle, tuple[NotCounted, str]] = {}
        """Why no more jobs like that find room."""
        self._fresh = {
            it.nodeset.name: Fresh(kind, it.nodeset.price, order, it.left)
            for order, it in enumerate(
                sorted(allowances, key=lambda it: (it.nodeset.weight, it.nodeset.name))
            )
            if (kind := self._kind_of(it.nodeset)) is not None
        }

    def demand(self) -> Demand:
        """Return the demand. What is promised is what Slurm would start on the nodes with those
        that are added.

        The first choice places each job as if Slurm used added nodes last. Slurm uses them by
        weight, so the jobs are placed again on all nodes, and nodes are added or left out until the
        promise is true with as few as possible.

        A job that needs more nodes than one step adds gets them step by step, and is promised with
        the last one.

        Where it is unknown whether a job is exclusive, nodes are added as if it was not: else each
        small job would get a node of its own. Promised is only what starts on these nodes even if
        all such jobs are exclusive.
        """
        first = self._fill({}, offer=True)
        added: Mapping[str, int] = dict(first.room.opened)
        outcome = first
        if added and not self._rough:
            outcome, added = self._corrected(first, self._fill(added), added)
            outcome, added = self._smallest(outcome, added)
        later, missing = outcome, self._unplaced(outcome, added)
        step = {it.nodeset.name: it.step for it in self._allowances}
        slow = [name for name, count in added.items() if count > step[name]]
        if slow:
            added = {name: min(count, step[name]) for name, count in added.items() if step[name]}
            outcome = self._fill(added)
            detail = ", ".join(f"NodeSet {name}" for name in slow)
            missing += [
                Excluded(NotCounted.NEXT_STEP, detail, late - now, run.rest(now)[:SHOWN])
                for run, late, now in zip(
                    self._look.runs, later.placed, outcome.placed, strict=True
                )
                if now < late
            ]
        numbers, promised = {*outcome.room.used, *later.room.used}, outcome.placed
        unsure = list[Excluded]()
        if any(run.unsure for run in self._look.runs):
            alone = self._fill(added, alone=True)
            numbers |= alone.room.used.keys()
            promised = tuple(map(min, outcome.placed, alone.placed))
            unsure = [
                Excluded(NotCounted.EXCLUSIVE_UNKNOWN, "", placed - sure, run.rest(sure)[:SHOWN])
                for run, placed, sure in zip(self._look.runs, outcome.placed, promised, strict=True)
                if sure < placed
            ]
        promises = tuple(
            Promise(run.first(placed), placed, used)
            for run, placed, used in zip(self._look.runs, promised, outcome.used, strict=True)
            if placed
        )
        excluded = _united([*self._look.excluded, *missing, *unsure])
        names = frozenset(self._names[it] for it in numbers if it in self._names)
        needed = Counter(
            name for number, name in later.room.used.items() if number >= len(self._nodes)
        )
        return Demand(added, promises, excluded, names, needed, self._startable())

    def _startable(self) -> tuple[int, ...]:
        """Return the jobs that fit on the nodes that Slurm has, up to the first one that
        doesn't.
        """
        states = [
            None if node.unsettled else state
            for node, state in zip(self._nodes, self._existing, strict=True)
        ]
        room = Room(
            self._fits,
            states,
            [],
            names=self._names,
            budget=None,
            rough=self._rough,
            licenses=self._licenses,
        )
        found: list[int] = []
        for run in self._look.runs[:EXACT]:
            bundle = tuple(it.alone or it for it in run.bundle)
            placed = room.place(bundle, run.count)
            found += run.first(placed)
            if placed < run.count:
                break
        return tuple(found)

    def _fill(
        self, added: Mapping[str, int], *, offer: bool = False, alone: bool = False
    ) -> Outcome:
        """Place the queue on all nodes and those `added`; `offer`: and on as many more as are
        allowed.

        `alone`: each job that may be exclusive is.
        """
        states = list(self._existing)
        for allowance in self._allowances:
            fresh = self._fresh.get(allowance.nodeset.name)
            if fresh is not None:
                count = allowance.coming + added.get(allowance.nodeset.name, 0)
                states += [self._fits.state(fresh.kind, fresh.kind.full)] * count
        offers = [replace(it) for it in self._fresh.values()] if offer else []
        room = Room(
            self._fits,
            states,
            offers,
            names=self._names,
            budget=self._budget,
            rough=self._rough,
            licenses=self._licenses,
        )
        runs: Sequence[Run] = self._look.runs
        if alone:
            runs = [replace(run, bundle=tuple(it.alone or it for it in run.bundle)) for run in runs]
        if not offer or not self._rough:
            return Filling().fill(None, room, runs, len(self._nodes))
        offered = [(it.kind, it.price, it.order, it.left) for it in offers]
        key = states, list(self._names.values()), offered, self._budget, self._licenses
        return self._filling.fill(key, room, runs, len(self._nodes))

    def _corrected(
        self, first: Outcome, outcome: Outcome, added: Mapping[str, int]
    ) -> tuple[Outcome, Mapping[str, int]]:
        """Add nodes until as many jobs start, where Slurm would use the nodes otherwise than they
        were chosen.
        """
        best = outcome, added
        for _ in range(MOST_CORRECTIONS):
            lacking = [
                run
                for run, wish, placed in zip(
                    self._look.runs, first.placed, outcome.placed, strict=True
                )
                if placed < wish
            ]
            if not lacking:
                return outcome, added
            name = self._cheapest(lacking[0], added)
            if name is None:
                break
            added = {**added, name: added.get(name, 0) + 1}
            outcome = self._fill(added)
            if sum(outcome.placed) > sum(best[0].placed):
                best = outcome, added
        return best

    def _cheapest(self, run: Run, added: Mapping[str, int]) -> str | None:
        """Return a NodeSet that may still get a node and could run a job of the run."""
        cost = sum(self._fresh[name].price * count for name, count in added.items())
        for name, fresh in sorted(self._fresh.items(), key=lambda it: (it[1].price, it[1].order)):
            if added.get(name, 0) >= fresh.left:
                continue
            if self._budget is not None and cost + fresh.price > self._budget:
                continue
            if any(
                name not in needs.avoid and self._runs_on(needs, fresh.kind) for needs in run.bundle
            ):
                return name
        return None

    def _smallest(
        self, outcome: Outcome, added: Mapping[str, int]
    ) -> tuple[Outcome, Mapping[str, int]]:
        """Leave out each node without which the same jobs start."""
        for name in sorted(added, key=lambda it: -self._fresh[it].price):
            while added[name]:
                fewer = {**added, name: added[name] - 1}
                found = self._fill(fewer)
                if found.placed != outcome.placed:
                    break
                outcome, added = found, fewer
        return outcome, {name: count for name, count in added.items() if count}

    # --- why not

    def _unplaced(self, outcome: Outcome, added: Mapping[str, int]) -> list[Excluded]:
        tallies: dict[tuple[NotCounted, str], _Tally] = {}
        of: dict[Bundle, _Tally] = {}
        for run, placed in zip(self._look.runs, outcome.placed, strict=True):
            if placed < run.count:
                tally = of.get(run.bundle)
                if tally is None:
                    why = self._reasons.get(run.bundle)
                    if why is None:
                        lacking = outcome.room.lacks(run.bundle)
                        why = (NotCounted.LICENSES, lacking) if lacking else self._why(run, added)
                        self._reasons[run.bundle] = why
                    tally = of[run.bundle] = tallies.setdefault(why, _Tally())
                tally.count += run.count - placed
                if placed or run.least <= tally.most:
                    tally.add(run.rest(placed)[:SHOWN])
        return [Excluded(*why, it.count, tuple(it.jobs)) for why, it in tallies.items()]

    def _why(self, run: Run, added: Mapping[str, int]) -> tuple[NotCounted, str]:
        for needs in run.bundle:
            possible = [it for it in self._allowances if self._possible(needs, it)]
            if not possible and not any(self._runs_on(needs, kind) for kind in self._kinds):
                return self._impossible(needs)
        reasons = {
            it.limit: it.nodeset.name for it in possible if added.get(it.nodeset.name, 0) >= it.left
        }
        if not possible:
            return NotCounted.NOT_SCALED, ", ".join(run.bundle[0].partitions)
        for needs in run.bundle:
            if (too_large := self._too_large(needs)) is not None:
                return NotCounted.TOO_LARGE, too_large
        avoided = [it.nodeset.name for it in possible if it.nodeset.name in needs.avoid]
        if avoided and len(avoided) == len(possible):
            return NotCounted.MISFIT, ", ".join(f"NodeSet {name}" for name in avoided)
        for reason in (NotCounted.NO_CAPACITY, NotCounted.WORKERS_UNUSABLE):
            if reason in reasons:
                return reason, f"NodeSet {reasons[reason]}"
        names = ", ".join(f"NodeSet {it.nodeset.name}" for it in possible)
        if len(reasons) < len({it.limit for it in possible}) and self._budget is not None:
            return NotCounted.BUDGET, names
        return NotCounted.BEYOND_MAX, names

    @cached_property
    def _others(self) -> Counter[Kind]:
        """The nodes of no NodeSet that is scaled, also those that no job can have now."""
        scaled = {it.nodeset.name for it in self._allowances}
        return Counter(
            self._fits.kind(it.nodeset, it.shape, it.partitions, it.weight)
            for it in self._nodes
            if it.nodeset not in scaled
        )

    def _too_large(self, needs: Needs) -> str | None:
        """Return what the job needs more of than all nodes that there can ever be have together,
        None if they have enough.
        """
        if needs.one_node:
            return None
        counts = Counter(
            {it: count for it, count in self._others.items() if self._runs_on(needs, it)}
        )
        names = []
        for it in self._allowances:
            kind = self._kind_of(it.nodeset)
            if kind is not None and self._runs_on(needs, kind):
                counts[kind] = max(it.most, it.nodeset.replicas)
                names.append(f"NodeSet {it.nodeset.name}")
        short = [self._short(needs, counts, partition) for partition in needs.partitions]
        return None if None in short else f"{short[0]}: {', '.join(names)}"

    def _short(self, needs: Needs, counts: Counter[Kind], partition: str) -> str | None:
        """Return what so many empty nodes lack of what the job needs in this partition."""
        nodes, cpus, gres = 0, 0, Counter[Gres]()
        left = needs.max_nodes or sum(counts.values())
        kinds = [it for it in counts if partition in it.partitions]
        uses = {it: self._use(needs, it, partition) for it in kinds}
        for kind in sorted(kinds, key=lambda it: -uses[it].cpus):
            nodes += counts[kind]
            cpus += min(counts[kind], left) * uses[kind].cpus
            left -= min(counts[kind], left)
            for item in needs.gres_per_job:
                gres[item] += counts[kind] * one_node.of_job(item, kind, kind.full, uses[kind])
        if nodes < needs.min_nodes:
            return f"{needs.min_nodes} nodes of {nodes}"
        if cpus < needs.cpus:
            return f"{needs.cpus} CPUs of {cpus}"
        return next(
            (f"{it} of {gres[it]}" for it in needs.gres_per_job if gres[it] < it.count), None
        )

    def _impossible(self, needs: Needs) -> tuple[NotCounted, str]:
        near = [
            it.nodeset
            for it in self._allowances
            if not it.nodeset.partitions.isdisjoint(needs.partitions)
        ]
        if not near:
            return NotCounted.NOT_SCALED, ", ".join(needs.partitions)
        if any(it.shape is None for it in near):
            return NotCounted.SHAPE_UNKNOWN, ", ".join(
                f"NodeSet {it.name}" for it in near if it.shape is None
            )
        shapes = [it.shape for it in near if it.shape is not None]
        fitting = (
            [it for it in shapes if any(test(it.features) for test in needs.features)]
            if needs.features
            else shapes
        )
        if not fitting:
            return NotCounted.IMPOSSIBLE, f"no NodeSet with the features {needs.features_text}"
        largest = max(fitting, key=lambda it: (it.all_cores * it.threads, it.memory))
        return NotCounted.IMPOSSIBLE, one_node.missing(needs, largest, self._fits.settings)

    def _possible(self, needs: Needs, allowance: Allowance) -> bool:
        kind = self._kind_of(allowance.nodeset)
        return kind is not None and self._runs_on(needs, kind)

    def _kind_of(self, nodeset: ScaledNodeSet) -> Kind | None:
        if nodeset.shape is None:
            return None
        return self._fits.kind(
            nodeset.name, nodeset.shape, nodeset.partitions, nodeset.weight, new=True
        )

    def _runs_on(self, needs: Needs, kind: Kind) -> bool:
        """Return whether the job, or a part of it, runs on an empty node of that kind."""
        if needs.features and not any(test(kind.shape.features) for test in needs.features):
            return False
        return any(
            one_node.allowed(needs, kind, partition) and self._use(needs, kind, partition).cpus
            for partition in needs.partitions
        )

    def _use(self, needs: Needs, kind: Kind, partition: str) -> Use:
        """Return what the job could use of an empty node of that kind."""
        full = self._fits.state(kind, kind.full)
        return self._fits.use(self._fits.within(needs, partition), full)


def _united(excluded: Sequence[Excluded]) -> tuple[Excluded, ...]:
    """Return one record for each reason and detail."""
    counts: Counter[tuple[NotCounted, str]] = Counter()
    jobs: defaultdict[tuple[NotCounted, str], list[int]] = defaultdict(list)
    for it in excluded:
        counts[it.reason, it.detail] += it.count
        jobs[it.reason, it.detail] += it.jobs
    return tuple(
        Excluded(reason, detail, count, tuple(nsmallest(SHOWN, set(jobs[reason, detail]))))
        for (reason, detail), count in counts.items()
    )
