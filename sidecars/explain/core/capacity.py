"""Where a pending job would start: on what is free now, and with changes.

The planner of autoscaling places the job, on the nodes as they are and as they could be. What it
can't model, such as named nodes and reservations, has no answer here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from sidecars.autoscaling.plan import Autoscaling, Jobs
from sidecars.autoscaling.present import present, reserved
from sidecars.autoscaling.queue import Queue
from sidecars.autoscaling.records import (
    Behavior,
    Nodes,
    PresentNode,
    ScaledNodeSet,
    Settings,
    Shape,
)
from sidecars.explain.core import nodeset_partitions as of_nodesets
from sidecars.explain.core import objects
from sidecars.explain.core.partition import excludes
from sidecars.policy.reasons.autoscaling import NotCounted
from sidecars.slurm import states
from sidecars.slurm.errors import Malformed
from sidecars.slurm.hostlists import HostlistError, expand

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecars.autoscaling.records import Plan
    from sidecars.explain.core.records import Object, Seen
    from sidecars.slurm.details import JobDetail
    from sidecars.slurm.records import JobRequest, Node, Pending

MOST_ADDED = 64
"""Nodes of a NodeSet that the job may be given to find out how many it needs."""
MOST_TRIED = 8
"""Nodes out of service, and partitions, that are tried one by one."""
NOT_MODELLED = frozenset(
    {NotCounted.NOT_MODELLED, NotCounted.NAMED_NODES, NotCounted.RESERVATION, NotCounted.EXTERNAL}
)


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the planner found."""

    now: bool = False
    """Whether it fits on what is free."""
    empty: bool = False
    """Whether it would fit if no job ran, and all nodes were in service."""
    busy: bool = False
    """Whether it would fit if no job ran."""
    reserved: tuple[str, ...] = ()
    """Free nodes on which it would fit if they were not reserved before it would end."""
    minutes: int | None = None
    """A time limit with which it would start on them; None if no time limit would do."""
    returned: tuple[str, ...] = ()
    """Nodes out of service with each of which it would start."""
    all_returned: int = 0
    """How many nodes are out of service, if it would start only with several of them; else 0."""
    added: dict[str, int] = field(default_factory=dict)
    """Nodes to add with which it would start, by NodeSet."""
    without: tuple[str, ...] = ()
    """Parts of its request without which it would start."""
    elsewhere: tuple[str, ...] = ()
    """Partitions in which it would start."""
    impossible: str = ""
    """What no node of its partitions has."""
    not_modelled: str = ""
    """What the planner can't count; all else is then unknown."""


def capacity(job: JobDetail, seen: Seen) -> Capacity | None:
    """Return the capacity for the job, None if Slurm's nodes are unknown, or the job isn't
    pending.
    """
    if job.pending is None or seen.slurm.nodes is None:
        return None
    trial = _Trial(job, job.pending, seen)
    return trial.examine()


class _Trial:
    def __init__(self, job: JobDetail, pending: Pending, seen: Seen) -> None:
        self._job, self._seen = job, seen
        self._pending = replace(
            pending,
            request=_without_names(pending.request),
            reason="",
            priority=1,
            eligible_time=0,
            dependency="",
            array_max_running=0,
            het_job_id=0,
            het_job_ids="",
        )
        config = seen.slurm.config or {}
        parameters = config.get("selecttypeparameters", "CR_CORE_MEMORY").upper()
        self._settings = Settings.of(seen.slurm.partitions or (), memory="MEMORY" in parameters)
        self._nodeset = of_nodesets.by_node(seen)
        named = _names(pending.request)
        self._named = bool(named)
        self._absent = named - {it.name for it in seen.slurm.nodes or ()}
        self._nodes = [it for it in seen.slurm.nodes or () if not named or it.name in named]
        self._reserved_at = _reserved(seen)

    def examine(self) -> Capacity:
        if self._absent:
            return Capacity(without=self._without())
        plan = self._plan(self._pending, self._present(), [])
        reasons = {it.reason: it.detail for it in plan.excluded}
        for reason, detail in reasons.items():
            if reason in NOT_MODELLED or reason is NotCounted.HET_JOB_PART_MISSING:
                return Capacity(not_modelled=detail or str(reason))
        if plan.promises:
            return Capacity(now=True, empty=True)
        # Nodes that power saving would start have no jobs.
        busy = any(it.alloc_cpus for it in self._nodes) and self._fits(_emptied)
        soon = self._reserved_soon()
        empty = self._fits(lambda it: _emptied(_returned(it)))
        returned, together = self._returned()
        return Capacity(
            empty=empty,
            busy=busy,
            reserved=soon,
            minutes=self._minutes() if soon else None,
            returned=returned,
            all_returned=together,
            added=self._added(),
            without=self._without(),
            elsewhere=self._elsewhere(),
            impossible="" if empty else self._impossible(),
        )

    def fits_now(self) -> bool:
        """Return whether it fits on what is free."""
        return self._fits()

    def _present(self, change: Callable[[Node], Node] = lambda it: it) -> list[PresentNode]:
        return [self._one(it, change(it)) for it in self._nodes]

    def _one(self, node: Node, changed: Node) -> PresentNode:
        begin = self._reserved_at.get(node.name)
        if changed is not node and begin is not None and begin <= self._seen.now:
            # The change takes the node out of the reservation that has begun.
            begin = None
        return present(changed, self._nodeset.get(node.name, ""), begin, powers_up=True)

    def _plan(
        self,
        pending: Pending,
        nodes: list[PresentNode],
        nodesets: list[ScaledNodeSet],
        minutes: int | None = None,
    ) -> Plan:
        """`minutes`: another time limit."""
        now = self._seen.now
        job = replace(
            self._job,
            pending=pending,
            time_limit=self._job.time_limit if minutes is None else minutes,
        )
        queue = Queue([job], self._settings)
        return Autoscaling(self._settings).plan(
            nodesets, Jobs(queue, now), Nodes(nodes, now), {}, now
        )

    def _fits(
        self, change: Callable[[Node], Node] = lambda it: it, request: JobRequest | None = None
    ) -> bool:
        pending = self._pending if request is None else replace(self._pending, request=request)
        return bool(self._plan(pending, self._present(change), []).promises)

    def _reserved_soon(self) -> tuple[str, ...]:
        """Return the nodes whose reservations, which have not begun, are all that prevents its
        start.
        """
        soon = {name for name, begin in self._reserved_at.items() if begin > self._seen.now}
        nodes = [replace(it, reserved_at=None) if it.name in soon else it for it in self._present()]
        if not soon or not self._plan(self._pending, nodes, []).promises:
            return ()
        wanted = of_nodesets.nodes_of(self._seen, self._pending.request.partitions)
        return tuple(it.name for it in wanted if it.name in soon and present(it, "").free_cores)

    def _minutes(self) -> int | None:
        """Return the longest time limit that ends before a reservation begins, and with which it
        starts.
        """
        begins = sorted(
            {it for it in self._reserved_at.values() if it > self._seen.now}, reverse=True
        )
        for begin in begins[:MOST_TRIED]:
            left = int(begin - self._seen.now) // 60 - 1
            # The planner rounds time limits up by less than a tenth.
            for minutes in (left, left * 10 // 11):
                if minutes > 0 and self._plan(self._pending, self._present(), [], minutes).promises:
                    return minutes
        return None

    def _returned(self) -> tuple[tuple[str, ...], int]:
        """Return the node as if it was in service, the same object if it is."""
        wanted = self._pending.request.partitions
        out = [it for it in of_nodesets.nodes_of(self._seen, wanted) if _returned(it) is not it]
        if not out or not self._fits(_returned):
            return (), 0
        alone = [
            node.name for node in out[:MOST_TRIED] if self._fits(partial(_one_returned, node.name))
        ]
        return tuple(alone), 0 if alone else len(out)

    def _scaled(self) -> list[ScaledNodeSet]:
        found = []
        if self._named:
            return []
        for nodeset in of_nodesets.of_partitions(self._seen, self._pending.request.partitions):
            name = objects.name(nodeset)
            shapes: list[Shape] = [
                present(it, name).shape for it in self._nodes if self._nodeset.get(it.name) == name
            ]
            replicas = sum(1 for it in self._nodeset.values() if it == name)
            found.append(
                ScaledNodeSet(
                    name,
                    max(shapes, key=lambda it: (it.all_cores, it.memory), default=None),
                    of_nodesets.partitions(nodeset, self._seen, self._nodeset),
                    replicas=replicas,
                    max=_most(nodeset, replicas),
                    behavior=Behavior(max_step_up=MOST_ADDED),
                )
            )
        return found

    def _added(self) -> dict[str, int]:
        # How many workers would do, and not whether autoscaling would add them now.
        nodes = [replace(it, fault="") for it in self._present()]
        plan = self._plan(self._pending, nodes, self._scaled())
        return {
            name: count
            for promise in plan.promises
            for name, count in promise.nodes.items()
            if count
        }

    def _impossible(self) -> str:
        plan = self._plan(
            self._pending, self._present(lambda it: _emptied(_returned(it))), self._scaled()
        )
        details = [it.detail for it in plan.excluded if it.reason is NotCounted.IMPOSSIBLE]
        return details[0] if details and not plan.promises else ""

    def _without(self) -> tuple[str, ...]:
        request = self._pending.request
        trials: list[tuple[str, JobRequest]] = []
        if self._named:
            named = self._job.pending.request.required_nodes if self._job.pending else ""
            everywhere = _Trial(self._job, replace(self._pending, request=request), self._seen)
            return (f"without --nodelist={named}",) if everywhere.fits_now() else ()
        if request.features:
            trials.append(
                (f"without --constraint={request.features}", replace(request, features=""))
            )
        if request.excluded_nodes:
            trials.append(
                (f"without --exclude={request.excluded_nodes}", replace(request, excluded_nodes=""))
            )
        if "none" in request.shared:
            trials.append(("without --exclusive", replace(request, shared=frozenset())))
        if request.contiguous:
            trials.append(("without --contiguous", replace(request, contiguous=False)))
        if request.tres_per_node or request.tres_per_job or request.tres_per_task:
            none = replace(
                request, tres_per_node="", tres_per_job="", tres_per_task="", tres_per_socket=""
            )
            trials.append(("without its GRES", none))
        if request.memory_per_node or request.memory_per_cpu:
            trials.append(
                ("with less memory", replace(request, memory_per_cpu=1, memory_per_node=0))
            )
        return tuple(text for text, changed in trials if self._fits(request=changed))

    def _elsewhere(self) -> tuple[str, ...]:
        request = self._pending.request
        others = [
            it for it in self._seen.slurm.partitions or () if it.name not in request.partitions
        ]
        able = [it.name for it in others if "UP" in it.states and not excludes(it, self._job)][
            :MOST_TRIED
        ]
        return tuple(it for it in able if self._fits(request=replace(request, partitions=(it,))))


def _names(request: JobRequest) -> frozenset[str]:
    """Return the nodes that it names, if it needs no others beside them."""
    try:
        found = frozenset(expand(request.required_nodes))
    except HostlistError:
        return frozenset()
    return found if len(found) >= request.min_nodes else frozenset()


def _without_names(request: JobRequest) -> JobRequest:
    """Return the request on the nodes that it names."""
    return replace(request, required_nodes="") if _names(request) else request


def _most(nodeset: Object, replicas: int) -> int:
    """Return how many nodes of the NodeSet the job may be given at most."""
    most = objects.dig(nodeset, "spec", "autoscaling", "max")
    return (
        min(replicas + MOST_ADDED, max(most, replicas))
        if isinstance(most, int)
        else (replicas + MOST_ADDED)
    )


def _reserved(seen: Seen) -> dict[str, float]:
    """Return when the nodes are reserved, {} while that is unknown."""
    try:
        return reserved(seen.slurm.reservations or (), seen.now)
    except Malformed:
        return {}


def _returned(node: Node) -> Node:
    """Return the node as if it was in service, the same object if it is."""
    out = {
        "DRAIN",
        "FAIL",
        "DOWN",
        "ERROR",
        "NOT_RESPONDING",
        "MAINTENANCE",
        "RESERVED",
        "INVALID_REG",
        "INVALID",
    }
    if node.states.isdisjoint(out) and not node.reservation:
        return node
    kept = node.states - out
    base = states.base_state(kept)
    return replace(node, states=kept if base else kept | {"IDLE"}, reservation="")


def _one_returned(name: str, node: Node) -> Node:
    return _returned(node) if node.name == name else node


def _emptied(node: Node) -> Node:
    kept = node.states - {"ALLOCATED", "MIXED", "COMPLETING"}
    return replace(
        node,
        states=kept if states.base_state(kept) else kept | {"IDLE"},
        alloc_cpus=0,
        alloc_memory=0,
        gres_used="",
    )
