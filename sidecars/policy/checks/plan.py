"""Which nodes a run of a check tests together, and what follows from the outcomes.

`Nodes` tests each node alone. `Pairs` tests N nodes in N/2 pairs. Both nodes of a pair that fails are suspects; each is
tested again with nodes that passed. A node is faulty if it fails with two of them, or with the only one.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from sidecars.policy.checks.declared import Check, Strategy
from sidecars.policy.checks.outcome import BAD, Kind, Outcome

MOST_INTERRUPTIONS = 3
"""Of a node in one run. After that it stays untested until the next run."""


@dataclass(frozen=True, slots=True)
class Item:
    """Nodes for one job."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run found out about a node."""

    kind: Kind
    text: str = ""
    measured: Mapping[str, str] | None = None


class Plan(Protocol):
    """A run's plan."""

    verdicts: dict[str, Verdict]
    """By node: those that are final."""

    @property
    def done(self) -> bool:
        """Whether nothing is left to test."""

    def next(self, free: Collection[str]) -> Item | None:
        """Nodes to test now, of the free ones; None for nothing. The item is under test until `ended`."""

    def ended(self, item: Item, outcome: Outcome) -> None:
        """Record how the test of an item ended. A second report of an item changes nothing."""

    def close(self) -> None:
        """End the run: nodes without a verdict get one with the cause."""


def plan(check: Check, nodes: Collection[str], drained: Collection[str]) -> Plan:
    """A plan for these nodes, and for those that the check has drained."""
    return Pairs(nodes, drained) if check.strategy is Strategy.PAIRS else Nodes([*sorted(drained), *sorted(nodes)])


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
            self.verdicts.setdefault(name, Verdict(Kind.INTERRUPTED, "the node was not idle, or a user's job waited"))
        self._left, self._tested = [], set()


class Pairs:
    """One job for two nodes."""

    def __init__(self, nodes: Collection[str], drained: Collection[str]) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self._fresh = sorted(set(nodes) - set(drained))
        self._suspects = {name: Verdict(Kind.FAILED, "drained by the check") for name in sorted(drained)}
        self._drained = frozenset(drained)
        self._good: dict[str, None] = {}
        self._failed_with: dict[str, set[str]] = {}
        self._tested: set[Item] = set()
        self._interruptions: Counter[str] = Counter()

    @property
    def done(self) -> bool:
        if self._tested:
            return False
        return not any(self._partners(name) for name in self._suspects) and not self._pairable()

    def _pairable(self) -> bool:
        return len(self._fresh) > 1 or bool(self._fresh and self._good)

    def _partners(self, name: str) -> list[str]:
        """Good nodes with which it has not failed yet."""
        return [it for it in self._good if it not in self._failed_with.get(name, set())]

    def next(self, free: Collection[str]) -> Item | None:
        under_test = {name for item in self._tested for name in item.nodes}
        usable = [name for name in free if name not in under_test]
        for name in self._suspects:
            partner = next((it for it in self._partners(name) if it in usable), None)
            if name in usable and partner is not None:
                return self._begin(name, partner)
        fresh = [name for name in self._fresh if name in usable]
        if len(fresh) > 1:
            return self._begin(fresh[0], fresh[1])
        partner = next((it for it in self._good if it in usable), None)
        if len(self._fresh) == 1 and fresh and partner is not None:
            return self._begin(fresh[0], partner)
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
                self._good.setdefault(name)
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
                enough = len(self._failed_with[name]) > 1 or name in self._drained or not self._partners(name)
                if enough and not self._more_to_come(name):
                    del self._suspects[name]
                    self.verdicts[name] = verdict

    def _more_to_come(self, name: str) -> bool:
        """Whether a second node may still turn out to be good. Until then, one failure is not enough."""
        return (
            name not in self._drained
            and len(self._failed_with[name]) < 2
            and (len(self._fresh) > 1 or any(not set(it.nodes) & set(self._suspects) for it in self._tested))
        )

    def close(self) -> None:
        for name, verdict in self._suspects.items():
            if self._failed_with.get(name) and not self._partners(name):
                self.verdicts.setdefault(name, verdict)
                continue
            text = f"{verdict.text}; no other node has confirmed it"
            self.verdicts.setdefault(name, Verdict(Kind.INTERRUPTED, text))
        left = (*self._fresh, *(name for item in self._tested for name in item.nodes))
        for name in left:
            self.verdicts.setdefault(name, Verdict(Kind.INTERRUPTED, "no second node was idle, or a user's job waited"))
        self._fresh, self._suspects, self._tested = [], {}, set()


def failed(verdicts: Mapping[str, Verdict]) -> list[str]:
    """The nodes that failed."""
    return sorted(name for name, verdict in verdicts.items() if verdict.kind in BAD)
