"""Which nodes a run of a check tests together, and what follows from the outcomes.

`Nodes` tests each node alone. `Pairs` tests N nodes in N/2 pairs of nodes that share a partition.
Both nodes of a pair that fails are suspects; each is tested again with nodes that passed. A node is
faulty if it fails with two of them, or with the only one.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from sidecars.checks.core.outcome import Outcome
from sidecars.policy.checks.declared import Check, Strategy
from sidecars.policy.checks.results import BAD, Kind, Verdict

MOST_INTERRUPTIONS = 3
"""Of a node in one run. After that it stays untested until the next run."""
ALONE = "it shares no partition in which the check may run with another node in service"
"""Of a node that no pair can have."""


@dataclass(frozen=True, slots=True)
class Item:
    """Nodes for one job."""

    nodes: tuple[str, ...]


class Plan(Protocol):
    """A run's plan."""

    verdicts: dict[str, Verdict]
    """By node: those that are final."""

    @property
    def done(self) -> bool:
        """Whether nothing is left to test."""

    def next(self, free: Collection[str]) -> Item | None:
        """Choose nodes to test now, of the free ones. Return None for nothing. The item is under
        test until `ended`.
        """

    def ended(self, item: Item, outcome: Outcome) -> None:
        """Record how the test of an item ended. A second report of an item changes nothing."""

    def close(self) -> None:
        """End the run: nodes without a verdict get one with the cause."""


def plan(
    check: Check, nodes: Mapping[str, Collection[str]], drained: Mapping[str, Collection[str]]
) -> Plan:
    """Return a plan for these nodes, and for those that the check has drained, each with the
    partitions of its jobs.
    """
    return (
        Pairs(nodes, drained)
        if check.strategy is Strategy.PAIRS
        else Nodes([*sorted(drained), *sorted(nodes)])
    )


class Nodes:
    """One job for each node."""

    def __init__(self, nodes: Collection[str]) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self._left = list(dict.fromkeys(nodes))
        self._tested: set[Item] = set()
        self._interruptions: Counter[str] = Counter()

    @property
    def done(self) -> bool:
        return not self._left and not self._tested

    def next(self, free: Collection[str]) -> Item | None:
        name = next((it for it in self._left if it in free), None)
        if name is None:
            return None
        self._left.remove(name)
        item = Item((name,))
        self._tested.add(item)
        return item

    def ended(self, item: Item, outcome: Outcome) -> None:
        if item not in self._tested:
            return
        self._tested.remove(item)
        (name,) = item.nodes
        if outcome.kind is Kind.INTERRUPTED:
            self._interruptions[name] += 1
            if self._interruptions[name] < MOST_INTERRUPTIONS:
                self._left.append(name)
                return
        self.verdicts[name] = Verdict(outcome.kind, outcome.text, outcome.measured)

    def close(self) -> None:
        for name in (*self._left, *(name for item in self._tested for name in item.nodes)):
            self.verdicts.setdefault(
                name, Verdict(Kind.INTERRUPTED, "the node was not idle, or a user's job waited")
            )
        self._left, self._tested = [], set()


class Pairs:
    """One job for two nodes that share a partition. `nodes` and `drained` are the partitions of
    each node.
    """

    def __init__(
        self, nodes: Mapping[str, Collection[str]], drained: Mapping[str, Collection[str]]
    ) -> None:
        self._partitions = {**nodes, **drained}
        self._fresh = sorted(nodes.keys() - drained.keys())
        self._drained = frozenset(drained)
        left = self._left_in()
        self.verdicts: dict[str, Verdict] = {
            name: Verdict(Kind.SKIPPED, ALONE)
            for name, partitions in self._partitions.items()
            if not any(left[it] > (name not in drained) for it in partitions)
        }
        self._fresh = [name for name in self._fresh if name not in self.verdicts]
        self._suspects = {
            name: Verdict(Kind.FAILED, "drained by the check")
            for name in sorted(drained)
            if name not in self.verdicts
        }
        self._good: set[str] = set()
        self._good_in: dict[str, dict[str, None]] = {}
        """By partition, in the order in which they passed."""
        self._failed_with: dict[str, set[str]] = {}
        self._tested: set[Item] = set()
        self._interruptions: Counter[str] = Counter()

    @property
    def done(self) -> bool:
        if self._tested:
            return False
        return (
            not any(True for name in self._suspects for _ in self._partners(name))
            and not self._testable()
        )

    def _left_in(self) -> Counter[str]:
        """Count the nodes of each partition that have not been in a test."""
        return Counter(it for name in self._fresh for it in self._partitions[name])

    def _testable(self) -> list[str]:
        """Return the nodes that have not been in a test and have a possible partner."""
        left = self._left_in()
        return [
            name
            for name in self._fresh
            if any(left[it] > 1 or it in self._good_in for it in self._partitions[name])
        ]

    def _partners(self, name: str) -> Iterator[str]:
        """Good nodes that share a partition with it, and with which it has not failed yet."""
        tried = self._failed_with.get(name, set())
        return (
            it
            for place in self._partitions[name]
            for it in self._good_in.get(place, ())
            if it not in tried
        )

    def _share(self, name: str, other: str) -> bool:
        return not set(self._partitions[name]).isdisjoint(self._partitions[other])

    def next(self, free: Collection[str]) -> Item | None:
        usable = set(free).difference(*(item.nodes for item in self._tested))
        fresh = [name for name in self._fresh if name in usable]
        return (
            self._with_a_good_one((name for name in self._suspects if name in usable), usable)
            or self._of_fresh_ones(fresh)
            or self._with_a_good_one(fresh, usable)
        )

    def _of_fresh_ones(self, names: Iterable[str]) -> Item | None:
        """Return the first two that share a partition."""
        first: dict[str, str] = {}
        for name in names:
            for place in self._partitions[name]:
                if place in first:
                    return self._begin(first[place], name)
            first.update(dict.fromkeys(self._partitions[name], name))
        return None

    def _with_a_good_one(self, names: Iterable[str], usable: Collection[str]) -> Item | None:
        for name in names:
            partner = next((it for it in self._partners(name) if it in usable), None)
            if partner is not None:
                return self._begin(name, partner)
        return None

    def _begin(self, name: str, other: str) -> Item:
        self._fresh = [it for it in self._fresh if it not in (name, other)]
        item = Item((name, other))
        self._tested.add(item)
        return item

    def ended(self, item: Item, outcome: Outcome) -> None:
        if item not in self._tested:
            return
        self._tested.remove(item)
        if outcome.kind is Kind.INTERRUPTED:
            self._again(item, outcome)
        elif outcome.kind is Kind.SKIPPED:
            self._settle(item, Verdict(Kind.SKIPPED, outcome.text, outcome.measured))
        elif outcome.kind is Kind.PASSED:
            for name in item.nodes:
                self._suspects.pop(name, None)
                self._good.add(name)
                for place in self._partitions[name]:
                    self._good_in.setdefault(place, {})[name] = None
                self.verdicts[name] = Verdict(Kind.PASSED, outcome.text, outcome.measured)
        else:
            self._failed(item, outcome)

    def _again(self, item: Item, outcome: Outcome) -> None:
        for name in item.nodes:
            if name in self._good:
                continue
            self._interruptions[name] += 1
            if self._interruptions[name] >= MOST_INTERRUPTIONS:
                self._suspects.pop(name, None)
                self.verdicts[name] = Verdict(Kind.INTERRUPTED, outcome.text)
            elif name not in self._suspects:
                self._fresh.append(name)

    def _settle(self, item: Item, verdict: Verdict) -> None:
        for name in item.nodes:
            if name not in self._good:
                self._suspects.pop(name, None)
                self.verdicts[name] = verdict

    def _failed(self, item: Item, outcome: Outcome) -> None:
        for name, other in (item.nodes, item.nodes[::-1]):
            if name in self._good:
                continue
            text = f"with {other}: {outcome.text}" if outcome.text else f"with {other}"
            verdict = Verdict(outcome.kind, text, outcome.measured)
            self._suspects[name] = verdict
            if other in self._good:
                self._failed_with.setdefault(name, set()).add(other)
                enough = (
                    len(self._failed_with[name]) > 1
                    or name in self._drained
                    or not any(self._partners(name))
                )
                if enough and not self._more_to_come(name):
                    del self._suspects[name]
                    self.verdicts[name] = verdict

    def _more_to_come(self, name: str) -> bool:
        """Return whether a second node may still turn out to be good. Until then, one failure is
        not enough.
        """
        if name in self._drained or len(self._failed_with[name]) > 1:
            return False
        under_test = (
            it
            for item in self._tested
            if not set(item.nodes) & self._suspects.keys()
            for it in item.nodes
        )
        return any(self._share(name, it) for it in chain(self._testable(), under_test))

    def close(self) -> None:
        for name, verdict in self._suspects.items():
            if self._failed_with.get(name) and not any(self._partners(name)):
                self.verdicts.setdefault(name, verdict)
                continue
            text = f"{verdict.text}; no other node has confirmed it"
            self.verdicts.setdefault(name, Verdict(Kind.INTERRUPTED, text))
        testable = {*self._testable(), *(name for item in self._tested for name in item.nodes)}
        for name in (*self._fresh, *testable):
            text = "no second node was idle, or a user's job waited"
            if name not in testable:
                text = "no node that shares a partition with it has passed"
            self.verdicts.setdefault(name, Verdict(Kind.INTERRUPTED, text))
        self._fresh, self._suspects, self._tested = [], {}, set()


def failed(verdicts: Mapping[str, Verdict]) -> list[str]:
    """Return the nodes that failed."""
    return sorted(name for name, verdict in verdicts.items() if verdict.kind in BAD)
