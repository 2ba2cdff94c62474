"""From the plan to what is written: the replicas of a NodeSet, which of its workers are removed,
and its condition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from sidecars.autoscaling.plan import bounds
from sidecars.contract.autoscaling import Applied
from sidecars.policy.conditions import Condition, timestamp
from sidecars.policy.reasons.autoscaling import Autoscaled, NotCounted
from sidecars.workloads import names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sidecars.autoscaling.applied import Owner
    from sidecars.autoscaling.nodesets import Pods
    from sidecars.autoscaling.records import Plan, ScaledNodeSet

_SILENT = frozenset({Autoscaled.SATISFIED, Autoscaled.MINIMUM, Autoscaled.COOLING_DOWN})
"""Their cause is enough. Numbers in the message would be a write for each job."""


_RETURN = (
    "autoscaling does nothing until it is removed and `kubectl annotate "
    f"nodesets.slinky.slurm.net NAME {names.AUTOSCALING}-` was run"
)


class Size(NamedTuple):
    """The decision for one NodeSet."""

    replicas: int
    remove: tuple[str, ...]
    """The Slurm nodes that are removed, earlier ones first."""
    reason: Autoscaled
    message: str


def size(
    nodeset: ScaledNodeSet, pods: Pods, registered: Collection[str], plan: Plan, now: float
) -> Size:
    """Decide the number of replicas. `registered`: the Slurm nodes of its staying pods that are in
    Slurm.
    """
    wanted, past = plan.wanted[nodeset.name], plan.memory.get(nodeset.name)
    if wanted.reason is Autoscaled.NO_DATA:
        return Size(wanted.replicas, pods.leaving, wanted.reason, wanted.reason.cause)
    if wanted.replicas < nodeset.replicas:
        chosen = wanted.removable[: nodeset.replicas - wanted.replicas]
        return Size(
            nodeset.replicas - len(chosen), (*pods.leaving, *chosen), wanted.reason, wanted.message
        )
    if wanted.replicas > nodeset.replicas:
        return Size(wanted.replicas, pods.leaving, wanted.reason, wanted.message)
    low, high = bounds(nodeset, now)
    waits = {it.reason for it in plan.excluded if it.concerns(nodeset.name)}
    if (
        nodeset.shape is None
        and nodeset.replicas == 0
        and high > 0
        and NotCounted.SHAPE_UNKNOWN in waits
    ):
        return Size(
            1, pods.leaving, Autoscaled.LEARNING, "a job waits; one node shows what they offer"
        )
    cool_down = nodeset.behavior.cool_down
    chosen = _unneeded(nodeset, pods, registered, plan, waits, now - cool_down)[
        : max(0, nodeset.replicas - low)
    ]
    if chosen and (past is None or past.raised_at is None or now - past.raised_at >= cool_down):
        more = f"{len(chosen)} pods that haven't started aren't needed"
        return Size(
            nodeset.replicas - len(chosen), (*pods.leaving, *chosen), Autoscaled.NOT_NEEDED, more
        )
    wait = nodeset.behavior.capacity_wait
    stuck = [it for it in pods.stuck if now > it.waited_until(wait)]
    if stuck:
        since = timestamp(stuck[0].stuck_since or now)
        message = (
            f"{stuck[0].slurm_node} and {len(stuck) - 1} more pods"
            if len(stuck) > 1
            else stuck[0].slurm_node
        )
        return Size(
            nodeset.replicas,
            pods.leaving,
            Autoscaled.NO_CAPACITY,
            f"{message}, since {since}: {stuck[0].why}",
        )
    message = wanted.reason.cause if wanted.reason in _SILENT else wanted.message
    return Size(nodeset.replicas, pods.leaving, wanted.reason, message)


def _unneeded(
    nodeset: ScaledNodeSet,
    pods: Pods,
    registered: Collection[str],
    plan: Plan,
    waits: Collection[NotCounted],
    created_by: float,
) -> tuple[str, ...]:
    """Return the pods that haven't started since then and that no job needs: those that can't start
    first, then the newest.
    """
    # A person may have started workers for a job that can't be counted.
    by_hand = any(it.reason is NotCounted.NOT_MODELLED for it in plan.excluded)
    if NotCounted.SHAPE_UNKNOWN in waits or by_hand:
        return ()
    absent = [it for name, it in pods.staying.items() if name not in registered]
    needed = plan.needed.get(nodeset.name, 0)
    # Jobs that only this NodeSet could run wait for its stuck pods.
    needed += len(pods.stuck) if NotCounted.NO_CAPACITY in waits else 0
    count = min(nodeset.replicas - len(registered), len(absent)) - needed
    able = sorted(
        (it for it in absent if (it.failed or not it.started) and it.created <= created_by),
        key=lambda it: (it.stuck_since is None, -it.created, it.slurm_node),
    )
    return tuple(it.slurm_node for it in able[: max(0, count)])


def condition(size: Size, differs: str = "") -> Condition:
    """Compose the condition of the NodeSet. `differs`: see `offers.differs`."""
    if differs and size.reason in _SILENT:
        return Condition("Autoscaled", "True", Autoscaled.SHAPE_DIFFERS, differs)
    failed = size.reason in (
        Autoscaled.NO_DATA,
        Autoscaled.NO_CAPACITY,
        Autoscaled.WORKERS_UNUSABLE,
    )
    return Condition("Autoscaled", "False" if failed else "True", size.reason, size.message)


def other_owner(owner: Owner, replicas: int, until: float | None) -> Condition:
    """Return the condition of a NodeSet whose number another client has set. `until`: None for as
    long as it stands.
    """
    rest = f"autoscaling continues at {timestamp(until)}" if until is not None else _RETURN
    return Condition(
        "Autoscaled",
        "False",
        Autoscaled.OTHER_OWNER,
        f"{owner} has set replicas to {replicas}: {rest}",
    )


def applied(
    size: Size,
    nodeset: ScaledNodeSet,
    before: Applied | None,
    node: str,
    now: float,
    declared: str = "",
) -> Applied | None:
    """Return what the annotation has to record, None if nothing has to be written. Neither another
    reason nor pods that are gone are worth a write.
    """
    if size.reason is Autoscaled.NO_DATA and size.replicas == nodeset.replicas:
        return None
    raised, lowered = (before.raised_at, before.lowered_at) if before is not None else (None, None)
    raised = now if size.replicas > nodeset.replicas else raised
    lowered = now if size.replicas < nodeset.replicas else lowered
    record = Applied(
        size.replicas,
        size.remove,
        raised,
        lowered,
        node,
        declared,
        f"{size.reason}: {size.message}",
    )
    if before is None or (before.replicas, before.node, before.declared) != (
        size.replicas,
        node,
        declared,
    ):
        return record
    return None if set(size.remove) <= set(before.remove) else record


def reported(conditions: Iterable[Mapping[str, object]]) -> Condition | None:
    """Return the condition of a NodeSet as its status has it: what stands until the first pass
    after a start.
    """
    for it in conditions:
        if it.get("type") == "Autoscaled":
            status: Literal["True", "False"] = "True" if it.get("status") == "True" else "False"
            reason = next((word for word in Autoscaled if word.value == it.get("reason")), None)
            return (
                Condition("Autoscaled", status, reason, str(it.get("message") or ""))
                if reason
                else None
            )
    return None
