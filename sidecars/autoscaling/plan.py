"""The replicas of each NodeSet: the demand within limits of number, speed and direction.

Missing or old data never changes a size, except up to the minimum. A node is removed only if it is
idle for `idle_seconds`, no pending job would use it, and nothing was added during `cool_down`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from sidecars.autoscaling.computed import Computed, has_reservations
from sidecars.autoscaling.demand import Allowance, Planner
from sidecars.autoscaling.filling import Filling
from sidecars.autoscaling.records import Past, Plan, Wanted
from sidecars.policy.reasons.autoscaling import Autoscaled, NotCounted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecars.autoscaling.demand import Demand
    from sidecars.autoscaling.queue import Queue
    from sidecars.autoscaling.records import Nodes, PresentNode, ScaledNodeSet, Settings

MINUTES_OF_DAY = 24 * 60
OK_UNUSABLE = 3
"""So many workers with a fault stop no growth. This and the next are cluster-autoscaler's own
defaults.
"""
MOST_UNUSABLE = 0.45
"""More than this share of the workers with a fault stops it."""


NO_LICENSES: Mapping[str, int] = {}


class Jobs(NamedTuple):
    """The queue as it was at a time."""

    queue: Queue
    at: float
    licenses: Mapping[str, int] = NO_LICENSES
    """How many of each are free; those that are not among them are not counted."""


class Autoscaling:
    """Decides again and again with the same settings.

    It remembers what it computed about needs and nodes, but no decision: `memory` is that of the
    previous plan.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._fits = Computed(settings)
        self._filling = Filling()

    def plan(
        self,
        nodesets: Sequence[ScaledNodeSet],
        jobs: Jobs | None,
        nodes: Nodes | None,
        memory: Mapping[str, Past],
        now: float,
    ) -> Plan:
        """Return the decision. `jobs` and `nodes`: None if Slurm didn't report them."""
        limits = {it.name: bounds(it, now) for it in nodesets}
        past = {it.name: _not_later(memory.get(it.name, Past()), now) for it in nodesets}
        if self._fits.forget():
            self._filling = Filling()
        problem = self._problem(jobs, nodes, now)
        if problem or jobs is None or nodes is None:
            unchanged = {it.name: _unchanged(it, limits[it.name][0], problem) for it in nodesets}
            return Plan(unchanged, (), (), past)
        present: dict[str, list[PresentNode]] = {it.name: [] for it in nodesets}
        for node in nodes.nodes:
            if node.nodeset in present:
                present[node.nodeset].append(node)
        faults = {it.name: _faults(it, limits[it.name][1], present[it.name]) for it in nodesets}
        allowances = [
            _allowance(
                it, limits[it.name][1], past[it.name], len(present[it.name]), faults[it.name], now
            )
            for it in nodesets
        ]
        budget = self.settings.budget
        if budget is not None:
            budget = max(0.0, budget - sum(it.price * it.replicas for it in nodesets))
        look = jobs.queue.look(now, timed=has_reservations(nodes.nodes))
        planner = Planner(
            look,
            allowances,
            nodes.nodes,
            self._fits,
            self._filling,
            self._fits.states_of(nodes.nodes, now, jobs.queue.cpus_in_use()),
            budget,
            jobs.licenses,
        )
        demand = planner.demand()
        wanted, after = {}, {}
        for nodeset in nodesets:
            name = nodeset.name
            wanted[name] = _size(
                nodeset, limits[name], demand, present[name], faults[name], past[name], now
            )
            after[name] = _remembered(past[name], nodeset.replicas, wanted[name].replicas, now)
        return Plan(
            wanted,
            demand.promises,
            demand.excluded,
            after,
            demand.needed,
            {name: _unused(found, demand) for name, found in present.items()},
            demand.startable,
        )

    def _problem(self, jobs: Jobs | None, nodes: Nodes | None, now: float) -> str:
        for what, data in (("jobs", jobs), ("nodes", nodes)):
            if data is None:
                return f"Slurm's {what} are unknown"
            if now - data.at > self.settings.max_age:
                return f"Slurm's {what} are from {now - data.at:.0f} s ago"
        return ""


def bounds(nodeset: ScaledNodeSet, now: float) -> tuple[int, int]:
    """Return the minimum and maximum at a time. Where several windows apply, the last one
    counts.
    """
    low, high = nodeset.min, nodeset.max
    time = datetime.fromtimestamp(now, UTC)
    minute = time.hour * 60 + time.minute
    for window in nodeset.windows:
        today = time.weekday() in window.weekdays
        yesterday = (time.weekday() - 1) % 7 in window.weekdays
        if window.start < window.end:
            applies = today and window.start <= minute < window.end
        else:
            applies = (today and minute >= window.start) or (yesterday and minute < window.end)
        if applies:
            low = low if window.min is None else window.min
            high = high if window.max is None else window.max
    return min(low, high), high


def _unchanged(nodeset: ScaledNodeSet, low: int, problem: str) -> Wanted:
    return Wanted(
        max(nodeset.replicas, low), Autoscaled.NO_DATA, f"{problem}: the number of replicas stays"
    )


def _not_later(past: Past, now: float) -> Past:
    """Return a clock that was set back prolongs no wait."""
    return Past(*(None if it is None else min(it, now) for it in (past.raised_at, past.lowered_at)))


def _faults(nodeset: ScaledNodeSet, high: int, present: Sequence[PresentNode]) -> str:
    """Return why more workers would hardly be of use: most of them, or the newest, can't run jobs.
    Return "" if they would.

    Without this limit a NodeSet would grow without end for one job that none of its workers can
    run. Few workers stop no growth, unless all are so at the maximum, or before one has shown what
    they offer.
    """
    faulty = [it for it in present if it.fault]
    newest = sorted(present, key=lambda it: it.started_at)[-OK_UNUSABLE - 1 :]
    many = len(faulty) > OK_UNUSABLE and (
        len(faulty) > MOST_UNUSABLE * len(present) or all(it.fault for it in newest)
    )
    only = (
        bool(faulty)
        and len(faulty) == len(present)
        and (nodeset.shape is None or nodeset.replicas >= high)
    )
    if not many and not only:
        return ""
    first = min(faulty, key=lambda it: it.name)
    number = f"{len(faulty)} of {len(present)} workers can't run jobs, so no more are added"
    return f"{number}. See `scontrol show node {first.name}`: {first.fault}"


def _allowance(
    nodeset: ScaledNodeSet, high: int, past: Past, present: int, faults: str, now: float
) -> Allowance:
    behavior = nodeset.behavior
    coming = max(0, nodeset.replicas - present)
    most = max(nodeset.most, high)
    since = nodeset.unschedulable_since
    waited = since is not None and now - since > behavior.capacity_wait
    if (nodeset.unschedulable and waited) or now < nodeset.closed_until:
        return Allowance(
            nodeset, 0, max(0, coming - nodeset.unschedulable), NotCounted.NO_CAPACITY, most=most
        )
    if faults:
        return Allowance(nodeset, 0, coming, NotCounted.WORKERS_UNUSABLE, most=most)
    step = behavior.max_step_up if _is_over(past.raised_at, behavior.step_seconds, now) else 0
    return Allowance(nodeset, max(0, high - nodeset.replicas), coming, step=step, most=most)


def _is_over(begin: float | None, seconds: float, now: float) -> bool:
    return begin is None or now - begin >= seconds


def _unused(present: Sequence[PresentNode], demand: Demand) -> tuple[tuple[str, float], ...]:
    """See `Plan.unused`."""
    return tuple(
        (it.name, it.started_at)
        for it in present
        if it.idle_since is not None and it.name not in demand.used
    )


def _size(
    nodeset: ScaledNodeSet,
    limits: tuple[int, int],
    demand: Demand,
    present: Sequence[PresentNode],
    faults: str,
    past: Past,
    now: float,
) -> Wanted:
    (low, high), behavior, replicas = limits, nodeset.behavior, nodeset.replicas
    added = demand.added.get(nodeset.name, 0)
    unused = [it for it in present if it.idle_since is not None and it.name not in demand.used]
    limits_of_jobs = {it.reason for it in demand.excluded if it.concerns(nodeset.name)}
    too_few = not limits_of_jobs.isdisjoint({NotCounted.TOO_LARGE, NotCounted.BEYOND_MAX})
    if added or replicas < low:
        more = max(replicas + added, low)
        if more > replicas + added:
            return Wanted(more, Autoscaled.MINIMUM, f"the minimum is {low}")
        reason = Autoscaled.DEMAND
        if NotCounted.NEXT_STEP in limits_of_jobs:
            reason = Autoscaled.STEP
        elif too_few and more >= high:
            reason = Autoscaled.MAXIMUM
        return Wanted(more, reason, f"pending jobs need {added} more")
    idle = sorted(
        (
            it
            for it in unused
            if it.idle_since is not None and now - it.idle_since >= behavior.idle_seconds
        ),
        key=lambda it: it.idle_since or 0.0,
    )
    fewer = max(low, replicas - min(len(idle), behavior.max_step_down))
    if fewer >= replicas:
        reason = Autoscaled.MINIMUM if unused and replicas <= low else Autoscaled.SATISFIED
        if faults:
            return Wanted(replicas, Autoscaled.WORKERS_UNUSABLE, faults)
        if (too_few and replicas >= high) or NotCounted.TOO_LARGE in limits_of_jobs:
            return Wanted(replicas, Autoscaled.MAXIMUM, f"jobs need more than {high} nodes")
        if NotCounted.BUDGET in limits_of_jobs:
            return Wanted(replicas, Autoscaled.BUDGET, Autoscaled.BUDGET.cause)
        return Wanted(replicas, reason, reason.cause)
    if not _is_over(past.raised_at, behavior.cool_down, now) or not _is_over(
        past.lowered_at, behavior.step_seconds, now
    ):
        return Wanted(
            replicas,
            Autoscaled.COOLING_DOWN,
            f"{len(idle)} nodes are idle, but the last change is too recent",
        )
    removable = tuple(it.name for it in idle)
    return Wanted(
        fewer,
        Autoscaled.IDLE,
        f"idle for {behavior.idle_seconds:.0f} s: {len(idle)} nodes",
        removable,
    )


def _remembered(past: Past, before: int, after: int, now: float) -> Past:
    if after > before:
        return Past(now, past.lowered_at)
    if after < before:
        return Past(past.raised_at, now)
    return past
