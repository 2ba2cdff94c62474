"""The maintenance reservation of a NodeSet with update strategy ScheduledUpdate.

Slurm creates one for a start in the future, moves a recurring one automatically when it is over,
and deletes one that is not recurring (scontrol, RESERVATIONS).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from sidecars.policy.conditions import Condition
from sidecars.policy.nodeset.actions import AdvanceReservation, RemoveReservation, Step
from sidecars.policy.nodeset.needs import Failed, Known, Pending, Reservations
from sidecars.policy.nodeset.parts import Part, Questions, may_abandon_records
from sidecars.policy.reasons import ReservationCreated
from sidecars.slurm.errors import Malformed
from sidecars.workloads.resources import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sidecars.policy.nodeset.memory import Memory
    from sidecars.policy.nodeset.records import Desired, Observed
    from sidecars.slurm.records import Reservation
    from sidecars.workloads.resources import NodeSet

FINALIZER = "nodeset.slinky.slurm.net/reservation"
"""Finalizer of a NodeSet, present while it may have a reservation."""

CONDITION = "ReservationCreated"

RECURRING = frozenset({"HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY"})
_SHOWN = RECURRING | {
    *(
        "MAINT",
        "IGNORE_JOBS",
        "ANY_NODES",
        "FLEX",
        "MAGNETIC",
        "NO_HOLD_JOBS_AFTER_END",
        "OVERLAP",
        "PURGE_COMP",
    ),
    *("SPEC_NODES", "STATIC", "TIME_FLOAT", "TRES_PER_NODE", "USER_DELETE"),
}
"""The flags that slurmrestd 26.05 shows of a reservation that has them; it does not show others."""
_DAY = 86_400
_PERIODS = {"HOURLY": 3600, "WEEKLY": 7 * _DAY}


def part(desired: Desired, observed: Observed, memory: Memory, now: float) -> Part:
    """Take the next step towards the reservation of ScheduledUpdate, or away from it."""
    questions = Questions(observed.answers)
    found = _decided(desired, observed, memory, now, questions)
    return Part(
        memory,
        actions=found.actions,
        needs=questions.unanswered,
        look_again=found.look_again,
        keeps=found.look_again is not None,
        report=lambda progress: replace(progress, reservation=found.condition),
    )


def _decided(
    desired: Desired, observed: Observed, memory: Memory, now: float, questions: Questions
) -> Outcome:
    nodeset, wanted, slurm = desired.nodeset, desired.pods, observed.slurm
    scheduled = is_scheduled(nodeset) and wanted.replicas > 0 and not wanted.deleting
    if not scheduled and FINALIZER not in nodeset.metadata.finalizers:
        return Outcome()
    name = name_of(nodeset.name)
    if not observed.connected or slurm.problem is not None:
        abandoned = may_abandon_records(desired, memory, now) and observed.controller_deleted
        if wanted.deleting and (not observed.connected or wanted.forced or abandoned):
            return Outcome(actions=(RemoveReservation(name, reachable=False),))
        return unknown(f"what becomes of the reservation is unknown: {slurm.problem}")
    if not scheduled:
        return Outcome(actions=(RemoveReservation(name),))
    answer = questions.ask(Reservations())
    if not isinstance(answer, Known):
        return failed(answer, observed.conditions)
    nodes = frozenset(pod.slurm_node for pod in observed.pods if pod.slurm_node in slurm.nodes)
    return outcome(nodeset, nodes, answer.value, observed.conditions, now)


def name_of(nodeset: str) -> str:
    """Return the reservation of a NodeSet."""
    return f"SlurmOperatorMaint-{nodeset}"


@dataclass(frozen=True, slots=True)
class DesiredReservation:
    """The reservation as the NodeSet asks for it."""

    name: str
    start: int
    """Seconds since the epoch."""
    minutes: int
    flags: frozenset[str]
    nodes: frozenset[str]
    """Names in Slurm."""
    users: tuple[str, ...] = ("slurm",)

    @property
    def all_flags(self) -> frozenset[str]:
        """The flags that are always set, and the NodeSet's."""
        return self.flags | {"MAINT", "IGNORE_JOBS"}

    @property
    def period(self) -> int | None:
        """Seconds between two starts; None for one that isn't recurring, a day for WEEKDAY and
        WEEKEND.
        """
        recurring = self.flags & RECURRING
        return min((_PERIODS.get(flag, _DAY) for flag in recurring), default=None)

    def next_start(self, now: float) -> int:
        """Return the first start that isn't over."""
        if self.period is None or self.start >= now:
            return self.start
        return self.start + self.period * -(-int(now - self.start) // self.period)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pass does about the reservation, and reports of it."""

    condition: Condition | None = None
    look_again: float | None = None
    """Seconds until time alone may have changed this; None too when nothing is left to be done."""
    actions: tuple[AdvanceReservation | RemoveReservation, ...] = ()


def is_scheduled(nodeset: NodeSet) -> bool:
    """Return whether its update strategy is ScheduledUpdate."""
    return nodeset.spec.update_strategy.type == "ScheduledUpdate"


def desired_reservation(nodeset: NodeSet, nodes: frozenset[str]) -> DesiredReservation:
    """Return the reservation that a NodeSet with ScheduledUpdate asks for. `nodes`: its workers
    that Slurm has.
    """
    spec = nodeset.spec.update_strategy.scheduled_update
    assert spec is not None  # noqa: S101 - a rule of the CRD
    assert spec.start_time is not None  # noqa: S101 - likewise
    seconds = duration(spec.duration, "spec.updateStrategy.scheduledUpdate.duration")
    return DesiredReservation(
        name=name_of(nodeset.name),
        start=int(spec.start_time.timestamp()),
        minutes=max(1, round(seconds / 60)) if seconds else 30,
        flags=frozenset(flag.upper() for flag in spec.flags or ()),
        nodes=nodes,
    )


def outcome(
    nodeset: NodeSet,
    nodes: frozenset[str],
    known: Iterable[Reservation],
    conditions: Sequence[Mapping[str, object]],
    now: float,
) -> Outcome:
    """Return the next step towards the reservation, given those that Slurm has. `conditions`: those
    of the NodeSet.
    """
    wanted = desired_reservation(nodeset, nodes)
    found = next((item for item in known if item.name == wanted.name), None)
    existed = _reported(conditions).get("status") == "True"
    try:
        step = next_step(wanted, found, now, existed=existed)
    except Malformed as error:
        return unknown(str(error))
    due = step.do != "nothing" or FINALIZER not in nodeset.metadata.finalizers
    return Outcome(
        Condition(CONDITION, "True" if step.exists else "False", step.reason, step.message),
        1.0 if step.do == "delete" else _until_start(wanted, found, now),
        (AdvanceReservation(wanted.name, step),) if due else (),
    )


def unknown(message: str) -> Outcome:
    """Report that Slurm can't be asked."""
    return Outcome(Condition(CONDITION, "Unknown", ReservationCreated.NO_ANSWER, message), 5.0)


def failed(answer: Known | Pending | Failed, conditions: Sequence[Mapping[str, object]]) -> Outcome:
    """Report that the reservations could not be read or written. `conditions`: status.conditions of
    the NodeSet.
    """
    if isinstance(answer, Failed) and answer.refused:
        message = f"Slurm refuses it: {answer.why}; see spec.updateStrategy.scheduledUpdate"
        return Outcome(Condition(CONDITION, "False", ReservationCreated.REFUSED, message), 30.0)
    if isinstance(answer, Failed):
        return unknown(answer.why)
    found = _reported(conditions)
    reason = next((it for it in ReservationCreated if it == found.get("reason")), None)
    if reason is None:
        return unknown(answer.why if isinstance(answer, Pending) else "")
    status: Literal["True", "False", "Unknown"] = (
        "True"
        if found["status"] == "True"
        else "False"
        if found["status"] == "False"
        else "Unknown"
    )
    return Outcome(Condition(CONDITION, status, reason, str(found["message"])), 5.0)


def _reported(conditions: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    """Return the NodeSet's condition ReservationCreated, empty if it has none."""
    return next((it for it in conditions if it.get("type") == CONDITION), {})


def _until_start(wanted: DesiredReservation, found: Reservation | None, now: float) -> float | None:
    """Return the seconds to the next start of the reservation. Slurm's nodes show the rest."""
    start = wanted.next_start(now)
    return max(1.0, start - now + 1.0) if found is not None and start >= now else None


def next_step(
    wanted: DesiredReservation, found: Reservation | None, now: float, *, existed: bool = False
) -> Step:
    """Return the next step towards the reservation. Raises Malformed if the nodes of `found` can't
    be read.

    `existed`: whether it was last reported as created. One that is then deleted in its time, by a
    user or by PURGE_COMP, is not created again.
    """
    if found is None:
        return _create(wanted, now, existed=existed)
    message = f"reservation {wanted.name} exists"
    hidden = sorted(wanted.flags - _SHOWN - found.flags - {"FORCE_START"})
    if hidden:
        message += f" (of its flags Slurm doesn't show {', '.join(hidden)})"
    begun = found.start_time <= now < found.end_time
    nodes = (
        tuple(sorted(wanted.nodes))
        if wanted.nodes and set(found.node_names()) != wanted.nodes
        else None
    )
    if begun:
        return Step(
            "save" if nodes else "nothing",
            True,
            ReservationCreated.CREATED,
            f"{message} and has begun",
            nodes=nodes,
        )
    if (wanted.all_flags & _SHOWN) - found.flags or (found.flags ^ wanted.flags) & RECURRING:
        # Flags can't be removed: it is created again.
        return Step(
            "delete",
            False,
            ReservationCreated.RECREATING,
            f"reservation {wanted.name} gets other flags",
        )
    start = (
        None
        if _same_start(wanted, found, now) or wanted.next_start(now) < now
        else wanted.next_start(now)
    )
    minutes = wanted.minutes if found.end_time - found.start_time != wanted.minutes * 60 else None
    changed = nodes is not None or start is not None or minutes is not None
    return Step(
        "save" if changed else "nothing",
        True,
        ReservationCreated.CREATED,
        message,
        start,
        minutes,
        nodes,
    )


def _create(wanted: DesiredReservation, now: float, *, existed: bool) -> Step:
    start, minutes = wanted.next_start(now), wanted.minutes
    if wanted.start < now and wanted.period is None and not existed:
        # No operator could create it in time: the rest of it, in whole minutes.
        start, minutes = int(now), int(wanted.start + 60 * wanted.minutes - now) // 60
    elif wanted.start < now and "FORCE_START" not in wanted.flags:
        minutes = 0
    if minutes < 1:
        expired = (
            f"reservation {wanted.name} doesn't exist and its time is over, or it was deleted in "
            "it: set spec.updateStrategy.scheduledUpdate.startTime to a time in the future for "
            "another update"
        )
        return Step("nothing", False, ReservationCreated.NOT_EXISTS, expired)
    if not wanted.nodes:
        return Step(
            "nothing",
            False,
            ReservationCreated.NO_NODES,
            "no worker is registered in Slurm yet; the reservation is created when one is",
        )
    return Step(
        "save",
        True,
        ReservationCreated.CREATED,
        f"reservation {wanted.name} exists",
        start=start,
        minutes=minutes,
        nodes=tuple(sorted(wanted.nodes)),
        flags=tuple(sorted(wanted.all_flags)),
        users=wanted.users,
    )


def _same_start(wanted: DesiredReservation, found: Reservation, now: float) -> bool:
    if wanted.period is None or wanted.start > now:
        return found.start_time == wanted.start
    # Slurm moved it; daylight saving time may have shifted it by an hour.
    off = (found.start_time - wanted.start) % wanted.period % _DAY
    return off in {0, 3600 % wanted.period, -3600 % wanted.period} or off == _DAY - 3600
