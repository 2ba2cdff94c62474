"""Which nodes Slurm gives to a job that may use several: consecutive ones of the lowest weight
(eval_nodes.c).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from sidecars.autoscaling import one_node
from sidecars.autoscaling.needs import count_of_gpus
from sidecars.slurm.gres import Gres

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sidecars.autoscaling.needs import Needs
    from sidecars.autoscaling.one_node import Free, Kind, Use

Rank = tuple[int, float, int]
"""Nodes with a lower one are used first: 0 and the weight of one that exists, 1 and the price of
one to add.
"""


class Candidate(NamedTuple):
    """A node of which the job could use something."""

    rank: Rank
    number: int
    kind: Kind
    free: Free
    use: Use


Chosen = list[tuple[Candidate, "Free"]]
"""The nodes of a job, and what is free on each afterwards."""


def alone(needs: Needs, kind: Kind, free: Free, use: Use) -> bool:
    """Return whether the whole job runs on the node."""
    return use.cpus >= needs.cpus and all(
        one_node.of_job(item, kind, free, use) >= item.count for item in needs.gres_per_job
    )


def choose(needs: Needs, candidates: Sequence[Candidate]) -> Chosen | None:
    """Return the nodes of one job, or None if it doesn't fit.

    As Slurm does, the ranks are tried one after the other, each with those before it; and where the
    nodes with few CPUs use up the number of nodes that the job may have, it is tried again without
    them.
    """
    ranks = sorted({it.rank for it in candidates})
    for end in range(1, len(ranks) + 1):
        usable = [it for it in candidates if it.rank <= ranks[end - 1]]
        if end < len(ranks) and len(usable) < needs.aimed_nodes:
            continue
        while len(usable) >= needs.min_nodes:
            found = _accumulate(needs, usable)
            if found is not None:
                return found
            least = min(it.use.cpus for it in usable)
            usable = [it for it in usable if it.use.cpus > least]
    return None


class _Rest:
    """What a job still needs."""

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self.cpus = needs.cpus
        self.nodes = needs.aimed_nodes
        self.least_nodes = needs.min_nodes
        self.most_nodes = needs.max_nodes or 1 << 20
        self.gres = Counter({(it.name, it.type): it.count for it in needs.gres_per_job})
        self.chosen: Chosen = []

    @property
    def complete(self) -> bool:
        return self.nodes <= 0 and self.cpus <= 0 and not self.gres

    @property
    def enough(self) -> bool:
        return self.least_nodes <= 0 and self.cpus <= 0 and not self.gres

    def take(self, candidate: Candidate) -> None:
        """Use the node: as much as the job needs, and not what it needs on the nodes that it must
        have as well.
        """
        needs, kind, free, use = self.needs, candidate.kind, candidate.free, candidate.use
        reserved = max(0, self.least_nodes - 1) * use.per_core
        cpus = min(
            use.cpus,
            max(
                self.cpus - reserved,
                needs.cpus_per_node,
                needs.tasks_per_node * needs.cpus_per_task,
                1,
            ),
        )
        gres = []
        for (name, type_), count in list(self.gres.items()):
            found = min(count, one_node.of_job(Gres(name, type_, 1), kind, free, use))
            gres.append(Gres(name, type_, found))
            self.gres[name, type_] -= found
        self.gres = +self.gres
        cpus = max(cpus, needs.cpus_per_gpu * count_of_gpus(gres))
        self.chosen.append((candidate, one_node.after(needs, kind, free, use, cpus, gres)))
        self.cpus -= cpus
        self.nodes -= 1
        self.least_nodes -= 1
        self.most_nodes -= 1


def _accumulate(needs: Needs, usable: Iterable[Candidate]) -> Chosen | None:
    rest = _Rest(needs)
    sets = _consecutive(sorted(usable, key=lambda it: it.number))
    while sets and rest.most_nodes > 0:
        best = min(sets, key=lambda it: _order(rest, it))
        sets.remove(best)
        if rest.nodes <= 1 and (single := _best_single(rest, best)) is not None:
            best = [single]
        for candidate in best:
            if rest.most_nodes == 0 or rest.complete:
                break
            if rest.most_nodes == 1 and candidate.use.cpus < rest.cpus:
                continue
            rest.take(candidate)
        if rest.complete:
            break
    return rest.chosen if rest.enough else None


def _consecutive(candidates: Iterable[Candidate]) -> list[list[Candidate]]:
    """Return sets of nodes of one rank with numbers in a row."""
    sets: list[list[Candidate]] = []
    for candidate in candidates:
        last = sets[-1][-1] if sets else None
        if last is not None and last.rank == candidate.rank and last.number + 1 == candidate.number:
            sets[-1].append(candidate)
        else:
            sets.append([candidate])
    return sets


def _order(rest: _Rest, candidates: Sequence[Candidate]) -> tuple[Rank, bool, int]:
    """Order sets by the lowest rank, then by the smallest set that suffices, else the largest."""
    cpus = sum(it.use.cpus for it in candidates)
    sufficient = cpus >= rest.cpus and len(candidates) >= rest.least_nodes
    return candidates[0].rank, not sufficient, cpus if sufficient else -cpus


def _best_single(rest: _Rest, candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the node with the fewest CPUs that suffices for what is left."""
    fitting = [
        it
        for it in candidates
        if it.use.cpus >= rest.cpus
        and all(
            one_node.of_job(Gres(name, type_, 1), it.kind, it.free, it.use) >= count
            for (name, type_), count in rest.gres.items()
        )
    ]
    return min(fitting, key=lambda it: (it.use.cpus, it.number), default=None)
