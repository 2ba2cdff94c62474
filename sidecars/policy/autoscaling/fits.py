"""What was computed about needs and nodes, for all rooms and plans with the same settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sidecars.policy.autoscaling import fit, spread
from sidecars.policy.autoscaling.filling import Filling
from sidecars.policy.autoscaling.fit import Free

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecars.policy.autoscaling.fit import Kind, Use
    from sidecars.policy.autoscaling.needs import Needs
    from sidecars.policy.autoscaling.records import PresentNode, Settings, Shape

MOST_FILLS = 256
"""How many jobs are placed on one node at once. A node may be declared with any number of CPUs."""
MOST_STATES = 50_000
"""How many states are remembered from plan to plan."""


@dataclass(slots=True, eq=False)
class State:
    """A kind of node with so much free, and what jobs could use of it."""

    kind: Kind
    free: Free
    uses: dict[Needs, Use] = field(default_factory=dict)
    fills: dict[Needs, list[State]] = field(default_factory=dict)


class May(dict["State | None", bool]):
    """Whether a node in a state may have room for a job. True while that was not computed."""

    __slots__ = ("kinds", "needs")

    def __init__(self, needs: Needs, kinds: frozenset[Kind]) -> None:
        super().__init__()
        self.needs, self.kinds = needs, kinds

    def __missing__(self, state: State | None) -> bool:
        fills = state.fills.get(self.needs) if state is not None and state.kind in self.kinds else []
        if fills is None:
            return True
        self[state] = bool(fills)
        return bool(fills)


@dataclass(slots=True)
class Fits:
    """What was computed about needs and nodes, for all rooms with the same settings."""

    settings: Settings
    states: dict[tuple[Kind, Free], State] = field(default_factory=dict)
    kinds: dict[tuple[str, int, frozenset[str], int, int | None], Kind] = field(default_factory=dict)
    shares: dict[tuple[Needs, int], Needs] = field(default_factory=dict)
    mays: dict[tuple[Needs, frozenset[Kind]], May] = field(default_factory=dict)
    present: tuple[Sequence[PresentNode], int, Sequence[State | None]] = ((), 0, ())
    """The nodes of the last plan, its minute if a node has a reservation, and their states."""
    filling: Filling = field(default_factory=Filling)
    """The last one of a long queue."""

    def kind(
        self, nodeset: str, shape: Shape, partitions: frozenset[str], weight: int, minutes: int | None = None
    ) -> Kind:
        """One object for all nodes of a kind."""
        # By identity, because the nodes share their shapes and a shape's hash is slow. The kind keeps the shape alive.
        key = nodeset, id(shape), partitions, weight, minutes
        found = self.kinds.get(key)
        if found is None:
            found = self.kinds[key] = fit.kind_of(nodeset, shape, partitions, weight, minutes)
        return found

    def state(self, kind: Kind, free: Free) -> State:
        """One object for all nodes in the same state."""
        found = self.states.get((kind, free))
        if found is None:
            found = self.states[kind, free] = State(kind, free)
        return found

    def states_of(self, nodes: Sequence[PresentNode], now: float) -> Sequence[State | None]:
        """The state of each node; None for one that no job can use."""
        nodes, minute = list(nodes), int(now // 60) if has_reservations(nodes) else 0
        if (nodes, minute) != self.present[:2]:
            self.present = nodes, minute, [self._state_of(node, minute) if node.usable else None for node in nodes]
        return self.present[2]

    def _state_of(self, node: PresentNode, minute: int) -> State:
        # Whole minutes, and not too many: the plan is one of this minute.
        minutes = None if node.reserved_at is None else max(-1, int(node.reserved_at // 60) - minute - 1)
        kind = self.kind(node.nodeset, node.shape, node.partitions, node.weight, minutes)
        return self.state(kind, Free(node.free_cores, node.free_memory, tuple([it.count for it in node.free_gres])))

    def forget(self) -> None:
        """Between two plans: forget what has become too much."""
        if len(self.states) > MOST_STATES:
            self.states.clear()
            self.kinds.clear()
            self.shares.clear()
            self.mays.clear()
            self.present = (), 0, ()
            self.filling = Filling()

    def use(self, needs: Needs, state: State) -> Use:
        """`fit.usable`."""
        found = state.uses.get(needs)
        if found is None:
            found = state.uses[needs] = fit.usable(needs, state.kind, state.free, self.settings)
        return found

    def fill(self, needs: Needs, state: State) -> list[State]:
        """The states after one, two, … jobs that run on this node as a whole, at most `MOST_FILLS`."""
        found = state.fills.get(needs)
        if found is None:
            found = state.fills[needs] = []
            use = self.use(needs, state)
            while len(found) < MOST_FILLS and spread.alone(needs, state.kind, state.free, use):
                free = fit.after(needs, state.kind, state.free, use, needs.cpus, needs.gres_per_job)
                state = self.state(state.kind, free)
                found.append(state)
                use = self.use(needs, state)
        return found

    def may(self, needs: Needs, kinds: frozenset[Kind]) -> May:
        """Which nodes of these kinds may have room for the job."""
        found = self.mays.get((needs, kinds))
        if found is None:
            found = self.mays[needs, kinds] = May(needs, kinds)
        return found

    def share(self, needs: Needs, nodes: int) -> Needs:
        """What the job needs of each of so many nodes, if it needs the same of each."""
        found = self.shares.get((needs, nodes))
        if found is None:
            found = self.shares[needs, nodes] = needs.share(nodes)
        return found


def has_reservations(nodes: Sequence[PresentNode]) -> bool:
    """Whether the time limits of jobs matter."""
    return any(node.reserved_at is not None for node in nodes)
