"""What `node` does, as a state machine: `step(settings, state, observation, now) -> (state,
actions)`.

It reads no file, calls nothing and has no clock. `now` is seconds on any monotonic clock. Each step
returns at most one Call; its Answer is part of the next observation. After a step without a Call,
step again at `state.wake`, or sooner when something is observed.

The phases of a worker pod's life:

| phase | action | next phase |
|---|---|---|
| CLAIM | claims this name's record for this pod or deletes it, before slurmd starts | LIFT, WATCH |
| WATCH | nothing | DRAIN when slurmd's preStop hook writes `stop`; DEPART at SIGTERM |
| DRAIN | drains the node until its work has ended | RELEASED; LIFT when slurmd is back; DEPART |
| RELEASED | nothing: slurmd is being stopped | DEPART; LIFT when slurmd is back |
| LIFT | undrains the node if this pod drained it | WATCH |
| DEPART | deletes the record, or sets it DOWN while a job or a reservation names it | DONE |

slurmd has stopped when DEPART begins.

This relies on the following behaviour of Slurm 26.05:
- An existing record keeps the `extra` that it was created with, whichever slurmd registers under
  its name. CLAIM writes `extra`, so that its pod uid identifies the owner.
- DELETE of a node with a job on it, COMPLETING included, is rejected. Setting the node DOWN
  requeues its jobs at once, and then DELETE works.
- DOWN without a reason keeps the present reason. A DOWN node that registers is up again
  (ReturnToService=2) and stays drained.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf

from sidecars.contract.reasons import POD_GONE, POD_LEAVING, is_for_deletion, is_kept
from sidecars.node import oversized
from sidecars.node.departing import depart
from sidecars.node.records import (
    Absent,
    Action,
    Call,
    Claim,
    Delete,
    Done,
    Down,
    Drain,
    Fault,
    Listening,
    Named,
    Names,
    Observation,
    Phase,
    Probe,
    Read,
    Record,
    Release,
    Settings,
    State,
    Stop,
    Undrain,
)
from sidecars.node.stepping import RETRY_SECONDS_LEAVING, Step
from sidecars.slurm import owners, states
from sidecars.slurm.records import Node

STALE_SECONDS = 5.0
"""Seconds after which a `stop` file that nobody renews is void: its hook was killed. The same
before it: the wall clock was changed, or it is not of the hook.
"""
_CLAIM_SECONDS = 3.0
"""Seconds from the start within which a predecessor's record may be deleted: slurmd waits at least
that long.
"""
_SILENCE_SECONDS = 10.0
"""Seconds without a slurmstepd and without an answer from Slurm after which slurmd may be stopped.
"""
_POLL_FIRST, _POLL_LAST = 1.0, 5.0
_RETRY_SECONDS = 60.0
"""Longest pause between attempts at a call that fails."""


def begin(now: float) -> State:
    """Return the state of a `node` that has just started."""
    return State(since=now, wake=now)


def step(
    settings: Settings, state: State, seen: Observation, now: float
) -> tuple[State, tuple[Action, ...]]:
    """Take one step, without effects. After phase DONE no more steps are needed."""
    this = Step(settings, replace(state), seen, now)
    _PHASES[state.phase](this)
    return this.state, tuple(this.actions)


def _claim(this: Step) -> None:
    state, seen = this.state, this.seen
    if seen.terminating or _hook_runs(this):
        this.settle("not read: the pod is already being stopped")
        this.enter(Phase.DEPART if seen.terminating else Phase.DRAIN)
        return
    match seen.answer:
        case None:
            if this.now >= state.wake:
                this.call(Read())
        case Absent():
            this.settle("none before")
            this.enter(Phase.WATCH)
        case Record(node) if owners.belongs_to(node, this.settings.pod_uid):
            _keep(this, node)
        case Record(node):
            this.state.record = node
            this.call(Probe(node.address, node.port) if _may_still_delete(this) else Claim())
        case Listening(yes):
            _replace(this, listens=yes)
        case Done(Down()):
            _clear(this)
        case Done(Drain()):
            this.call(Claim())
        case Named(by):
            this.call(Claim() if by or not _may_still_delete(this) else Delete())
        case Done(Delete()):
            this.log(f"deleted the record: it was {oversized.owner(this)}")
            this.settle(f"{oversized.owner(this)}, deleted")
            this.enter(Phase.WATCH)
        case Done(_):
            this.log(f"claimed the record: it was {oversized.owner(this)}")
            this.settle(f"{oversized.owner(this)}, taken over")
            this.enter(
                Phase.LIFT
                if state.record is not None and owners.is_departing(state.record)
                else Phase.WATCH
            )
        case Fault(call=Delete(), refused=True):
            this.call(Claim())
        case Fault() as fault:
            this.settle("not known, Slurm doesn't answer")
            this.back_off(fault, _RETRY_SECONDS)


def _keep(this: Step, node: Node) -> None:
    """Keep this pod's own record, unless it promises more than the pod has."""
    if _may_still_delete(this) and oversized.is_replaced(this, node):
        return
    this.settle("this pod's")
    this.enter(Phase.LIFT if owners.is_departing(node) else Phase.WATCH)


def _replace(this: Step, *, listens: bool) -> None:
    """Take over a predecessor's record. `listens`: whether a slurmd listens at its address."""
    record = this.state.record
    # A slurmd that still listens at the record's address may belong to another live pod of this
    # name.
    if listens or not _may_still_delete(this):
        this.call(Claim())
    elif record is not None and _is_busy(record):
        # slurmctld would otherwise consider the predecessor's jobs as running on this pod's slurmd.
        this.call(Down(owners.reason_to_write(record, POD_GONE)))
    else:
        _clear(this)


def _clear(this: Step) -> None:
    """Delete a predecessor's record, so that slurmd creates its own; claim it if it must be
    retained.
    """
    node = this.state.record
    if node is None or not _may_still_delete(this):
        this.call(Claim())
    elif owners.must_be_drained(node):
        this.call(Drain(None))
    else:
        # slurmd can't create a record for power saving.
        retained = owners.why_retained(node) or "CLOUD" in node.states or is_kept(node.reason)
        this.call(Claim() if retained else Names())


def _watch(this: Step) -> None:
    if this.seen.terminating:
        this.enter(Phase.DEPART)
    elif _hook_runs(this):
        this.enter(Phase.DRAIN)
    else:
        this.state.wake = inf


def _drain(this: Step) -> None:
    seen = this.seen
    if this.state.hook_since is None:
        this.state.hook_since = this.now
        this.log(
            "slurmd is about to be stopped; waiting for its work for at most "
            f"{_hook_limit(this.settings):.0f} s"
        )
    if seen.terminating:
        this.enter(Phase.DEPART)
        return
    if seen.stop is None:
        this.log("slurmd is running again")
        this.state.hook_since = None
        this.state.idle_since = None
        this.enter(Phase.LIFT)
        return
    fresh = _is_fresh(seen.stop)
    steps = seen.stop.steps if fresh else None
    if steps != 0:
        this.state.idle_since = None
        this.state.polls = 0
    elif this.state.idle_since is None:
        this.state.idle_since = this.now
        this.state.wake = this.now

    if this.now >= this.state.hook_since + _hook_limit(this.settings):
        left = "an unknown number of" if steps is None else str(steps)
        _release(
            this,
            f"the grace period is nearly over: letting slurmd stop with {left} slurmstepd left",
        )
        return
    _drain_answer(this, steps)
    if this.state.phase is not Phase.DRAIN or (this.actions and isinstance(this.actions[-1], Call)):
        return
    idle_since = this.state.idle_since
    if (
        idle_since is not None
        and this.now - max(idle_since, this.state.last_success) >= _SILENCE_SECONDS
    ):
        _release(
            this,
            f"no slurmstepd for {_SILENCE_SECONDS:.0f} s, and no call to Slurm has succeeded: "
            "letting slurmd stop",
        )
    elif (
        this.now >= this.state.wake
        and seen.answer is None
        and (this.state.record is None or idle_since is not None)
    ):
        this.call(Read())
    elif not fresh:
        this.log("slurmd's preStop hook has ended early; waiting until slurmd has stopped")
    elif steps is None:
        this.log("waiting for the number of slurmstepd: the hook's file does not contain it")
    elif steps:
        this.log(f"waiting for {steps} slurmstepd to end")


def _drain_answer(this: Step, steps: int | None) -> None:
    """Handle the answer to a call in phase DRAIN."""
    match this.seen.answer:
        case Absent():
            this.state.last_success = this.now
            this.state.faults = 0
            this.state.record = Node("")
            if steps == 0:
                _release(
                    this,
                    "Slurm has no record of this node, and no slurmstepd runs: letting slurmd stop",
                )
        case Record(node) if not owners.belongs_to(node, this.settings.pod_uid):
            this.state.last_success = this.now
            this.state.faults = 0
            this.state.record = node
            if steps == 0:
                _release(
                    this,
                    "the record belongs to another pod, and no slurmstepd runs: letting slurmd "
                    "stop",
                )
        case Record(node) if not (states.is_drain(node.states) or states.is_vacant(node.states)):
            this.call(Drain(owners.reason_to_write(node, POD_LEAVING)))
        case Record(node):
            this.state.last_success = this.now
            this.state.faults = 0
            if this.state.record is None:
                # Of a pod with work the operator hasn't read the jobs yet: another program deletes
                # it.
                this.state.unnamed = states.is_vacant(node.states) and is_for_deletion(node.reason)
            this.state.record = node
            if steps == 0 and states.is_vacant(node.states):
                how = "drained" if states.is_drained(node.states) else "powered down"
                _release(this, f"{how}: letting slurmd stop")
            elif steps == 0:
                now = "+".join(sorted(node.states))
                this.log(
                    "no slurmstepd left; waiting until Slurm reports the node as drained (now "
                    f"{now})"
                )
                pause = min(_POLL_LAST, _POLL_FIRST * 1.5 ** min(this.state.polls, 16))
                this.state.polls = this.state.polls + 1
                this.sleep(pause * (0.75 + this.seen.jitter / 2))
        case Done(call):
            reason = call.reason if isinstance(call, Drain) else None
            this.log(f"drained the Slurm node: {reason or 'its present reason is kept'}")
            this.state.last_success = this.now
            this.state.faults = 0
            this.state.wake = this.now
        case Fault() as fault:
            this.back_off(fault, RETRY_SECONDS_LEAVING)
        case _:
            pass


def _release(this: Step, why: str) -> None:
    this.log(why)
    this.state.released = "" if this.seen.stop is None else this.seen.stop.hook
    this.actions.append(Release(this.state.released))
    this.enter(Phase.RELEASED)


def _released(this: Step) -> None:
    seen = this.seen
    if seen.terminating:
        this.enter(Phase.DEPART)
    elif seen.stop is None:
        this.log("slurmd is running again")
        this.state.hook_since = None
        this.state.idle_since = None
        this.enter(Phase.LIFT)
    elif seen.stop.hook != this.state.released and _hook_runs(this):
        this.state.hook_since = None
        this.state.idle_since = None
        this.enter(Phase.DRAIN)
    else:
        this.state.wake = inf


def _lift(this: Step) -> None:
    if this.seen.terminating or _hook_runs(this):
        this.enter(Phase.DEPART if this.seen.terminating else Phase.DRAIN)
        return
    match this.seen.answer:
        case None:
            if this.now >= this.state.wake:
                this.call(Read())
        case Record(node) if owners.belongs_to(node, this.settings.pod_uid) and owners.is_departing(
            node
        ):
            this.call(Undrain())
        case Done(_):
            this.log("undrained the Slurm node, which this pod had drained")
            this.enter(Phase.WATCH)
        case Fault(refused=False) as fault:
            this.back_off(fault, _RETRY_SECONDS)
        case _:
            this.enter(Phase.WATCH)


def _is_busy(node: Node) -> bool:
    """Return whether jobs count as running there. Those of a node that is being started wait for
    this pod.
    """
    return states.is_busy(node.states) and not states.is_powering_up(node.states)


_PHASES: dict[Phase, Callable[[Step], None]] = {
    Phase.CLAIM: _claim,
    Phase.WATCH: _watch,
    Phase.DRAIN: _drain,
    Phase.RELEASED: _released,
    Phase.LIFT: _lift,
    Phase.DEPART: depart,
    Phase.DONE: lambda this: None,
}


def _hook_runs(this: Step) -> bool:
    return this.seen.stop is not None and _is_fresh(this.seen.stop)


def _is_fresh(stop: Stop) -> bool:
    return abs(stop.age) <= STALE_SECONDS


def _hook_limit(settings: Settings) -> float:
    """Return the seconds for which the hook may block: the grace period without the margin, or half
    of a short one.
    """
    return max(settings.grace - settings.margin, settings.grace / 2)


def _may_still_delete(this: Step) -> bool:
    return (
        not this.state.settled
        and not this.seen.slurmd_may_run
        and this.now - this.state.since < _CLAIM_SECONDS
    )
