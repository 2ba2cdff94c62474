"""What was computed about needs and nodes, for all rooms and plans with the same settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from sidecars.autoscaling import one_node, several_nodes
from sidecars.autoscaling.one_node import Free

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecars.autoscaling.needs import Needs
    from sidecars.autoscaling.one_node import Kind, Use
    from sidecars.autoscaling.records import PresentNode, Settings, Shape

InUse: TypeAlias = "Mapping[str, Mapping[str, int]]"
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
        fills = (
            state.fills.get(self.needs) if state is not None and state.kind in self.kinds else []
        )
        if fills is None:
            return True
        self[state] = bool(fills)
        return bool(fills)


@dataclass(slots=True)
class Computed:
    """What was computed about needs and nodes, for all rooms with the same settings."""

    settings: Settings
    special: frozenset[str] = field(init=False)
    """The partitions in which a job needs something else than in others."""
    states: dict[tuple[Kind, Free], State] = field(default_factory=dict)
    kinds: dict[tuple[str, int, frozenset[str], int, int | None, bool], Kind] = field(
        default_factory=dict
    )
    shares: dict[tuple[Needs, int], Needs] = field(default_factory=dict)
    limited: dict[tuple[Needs, str], Needs] = field(default_factory=dict)
    mays: dict[tuple[Needs, frozenset[Kind]], May] = field(default_factory=dict)
    present: tuple[Sequence[PresentNode], int, InUse, Sequence[State | None]] = ((), 0, {}, ())
    """The nodes of the last plan, its minute if a node has a reservation, what its capped
    partitions had in use, and the nodes' states.
    """

    def __post_init__(self) -> None:
        own = self.settings
        self.special = frozenset().union(
            own.max_cpus_per_node, own.min_nodes, own.max_nodes, own.exclusive, own.oversubscribe
        )

    def kind(
        self,
        nodeset: str,
        shape: Shape,
        partitions: frozenset[str],
        weight: int,
        minutes: int | None = None,
        *,
        new: bool = False,
    ) -> Kind:
        """Return one object for all nodes of a kind."""
        # By identity, because the nodes share their shapes and a shape's hash is slow. The kind
        # keeps the shape alive.
        key = nodeset, id(shape), partitions, weight, minutes, new
        found = self.kinds.get(key)
        if found is None:
            found = self.kinds[key] = one_node.kind_of(
                nodeset, shape, partitions, weight, minutes, self.settings, new=new
            )
        return found

    def state(self, kind: Kind, free: Free) -> State:
        """Return one object for all nodes in the same state."""
        found = self.states.get((kind, free))
        if found is None:
            found = self.states[kind, free] = State(kind, free)
        return found

    def states_of(
        self, nodes: Sequence[PresentNode], now: float, in_use: InUse
    ) -> Sequence[State | None]:
        """Return the state of each node, or None for one that no job can use. `in_use`: see
        `Queue.cpus_in_use`.
        """
        nodes, minute = list(nodes), int(now // 60) if has_reservations(nodes) else 0
        if (nodes, minute, in_use) != self.present[:3]:
            self.present = (
                nodes,
                minute,
                in_use,
                [
                    self._state_of(node, minute, in_use.get(node.name, {})) if node.usable else None
                    for node in nodes
                ],
            )
        return self.present[3]

    def _state_of(self, node: PresentNode, minute: int, in_use: Mapping[str, int]) -> State:
        # Whole minutes, and not too many: the plan is one of this minute.
        minutes = (
            None if node.reserved_at is None else max(-1, int(node.reserved_at // 60) - minute - 1)
        )
        kind = self.kind(node.nodeset, node.shape, node.partitions, node.weight, minutes)
        caps = tuple(
            max(0, most - in_use.get(name, 0))
            for name, most in zip(kind.capped, kind.full.caps, strict=True)
        )
        counts = tuple([it.count for it in node.free_gres])
        free = Free(node.free_cores, node.free_memory, counts, caps, node.owner, bool(node.owner))
        return self.state(kind, free)

    def forget(self) -> bool:
        """Forget everything between two plans if it has become too much. Return whether it has."""
        if len(self.states) <= MOST_STATES:
            return False
        self.states.clear()
        self.kinds.clear()
        self.shares.clear()
        self.limited.clear()
        self.mays.clear()
        self.present = (), 0, {}, ()
        return True

    def use(self, needs: Needs, state: State) -> Use:
        """`one_node.usable`."""
        found = state.uses.get(needs)
        if found is None:
            found = state.uses[needs] = one_node.usable(
                needs, state.kind, state.free, self.settings
            )
        return found

    def fill(self, needs: Needs, state: State) -> list[State]:
        """Return the states after one, two, … jobs that run on this node as a whole, at most
        `MOST_FILLS`.
        """
        found = state.fills.get(needs)
        if found is None:
            found = state.fills[needs] = []
            use = self.use(needs, state)
            while len(found) < MOST_FILLS and several_nodes.alone(
                needs, state.kind, state.free, use
            ):
                free = one_node.after(
                    needs, state.kind, state.free, use, needs.cpus, needs.gres_per_job
                )
                state = self.state(state.kind, free)
                found.append(state)
                use = self.use(needs, state)
        return found

    def may(self, needs: Needs, kinds: frozenset[Kind]) -> May:
        """Return which nodes of these kinds may have room for the job."""
        found = self.mays.get((needs, kinds))
        if found is None:
            found = self.mays[needs, kinds] = May(needs, kinds)
        return found

    def within(self, needs: Needs, partition: str) -> Needs:
        """Return the needs with the limits of the partition, if it has some."""
        settings = self.settings
        if partition not in self.special:
            return needs
        found = self.limited.get((needs, partition))
        if found is None:
            found = self.limited[needs, partition] = needs.within(partition, settings)
        return found

    def most_nodes(self, needs: Needs) -> int:
        """Return `Needs.most_nodes` in the partition in which that is most."""
        if self.special.isdisjoint(needs.partitions):
            return needs.most_nodes
        return max(self.within(needs, it).most_nodes for it in needs.partitions)

    def share(self, needs: Needs, nodes: int) -> Needs:
        """Return what the job needs of each of so many nodes, if it needs the same of each."""
        found = self.shares.get((needs, nodes))
        if found is None:
            found = self.shares[needs, nodes] = needs.share(nodes)
        return found


def has_reservations(nodes: Sequence[PresentNode]) -> bool:
    """Return whether the time limits of jobs matter."""
    return any(node.reserved_at is not None for node in nodes)
