"""What `node` does, as a state machine: `step(settings, state, observation, now) -> (state, actions)`.

It reads no file, calls nothing, knows no clock. `now` is seconds on any clock that never goes back. Each step gives at
most one Call; its Answer is part of the next observation. A step without a Call asks to be taken again at
`state.wake`, or sooner when something is seen.

The phases of a worker pod's life, and what ends each:

| phase | does | goes on to |
|---|---|---|
| CLAIM | makes the record of this name this pod's, or removes it, before slurmd starts | LIFT, WATCH |
| WATCH | nothing | DRAIN when slurmd's preStop hook writes `stop`; DEPART at SIGTERM |
| DRAIN | drains the node, waits for the end of its work | RELEASED; LIFT when slurmd is back; DEPART |
| RELEASED | nothing: slurmd is being stopped | DEPART; LIFT when slurmd is back |
| LIFT | takes back the drain of this pod, no other | WATCH |
| DEPART | slurmd has stopped: deletes the record | DONE |

What Slurm 26.05 does, and this relies on:
- A record that exists keeps the `extra` it was made with, whoever registers under its name; the pod uid in it tells
  whose it is only because CLAIM sees to that.
- DELETE of a node with a job on it, COMPLETING included, is refused. Setting the node DOWN gives its jobs back to the
  queue at once, and then DELETE works.
- DOWN without a reason keeps the reason there is. A DOWN node that registers is up again (ReturnToService=2); its
  drain stays.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf

from sidecars.contract import extra
from sidecars.contract.reasons import POD_GONE, POD_LEAVING, is_departure, is_foreign
from sidecars.slurm import states
from sidecars.slurm.records import Node

STALE = 5.0
"""Seconds after which a `stop` file that is no longer renewed says nothing: its hook has been cut off."""
_CLAIM_TIME = 3.0
"""Seconds from the start within which a predecessor's record may be deleted: slurmd waits that long and longer."""
_SILENCE = 10.0
"""Seconds without slurmstepd and without a word from Slurm, after which slurmd may be stopped."""
_PORT_TIME = 2.0
"""Seconds that slurmd's port may outlive slurmd."""
_DEPARTURE = 15.0
_POLL_FIRST, _POLL_LAST = 1.0, 5.0
_BACKOFF_FIRST, _BACKOFF_LAST = 0.25, 60.0
_BACKOFF_LEAVING = 4.0


class Phase(Enum):
    """Where the pod is in its life; the table above."""

    CLAIM = "claim"
    WATCH = "watch"
    DRAIN = "drain"
    RELEASED = "released"
    LIFT = "lift"
    DEPART = "depart"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Settings:
    """`grace` is the pod's termination grace in seconds, `margin` what of it is kept for slurmd's end and ours."""

    pod_uid: str
    grace: float
    margin: float = 20.0
    slurmd_port: int = 6818


# ---- actions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """Read the node record. Answered by Record, Absent or Fault."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Write this pod's facts into the record's `extra`."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Set DRAIN with the reason."""

    reason: str = POD_LEAVING


@dataclass(frozen=True, slots=True)
class Undrain:
    """Take the drain back, which clears the reason."""


@dataclass(frozen=True, slots=True)
class Down:
    """Set DOWN; None leaves the reason as it is."""

    reason: str | None = POD_GONE


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the record."""


@dataclass(frozen=True, slots=True)
class Probe:
    """See whether something listens there. Answered by Listening."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Settled:
    """Let `register` go on, and slurmd start: what is known of the record, in words."""

    how: str


@dataclass(frozen=True, slots=True)
class Release:
    """Let slurmd's preStop hook end."""


@dataclass(frozen=True, slots=True)
class Say:
    """A line for the log."""

    text: str


Call = Read | Claim | Drain | Undrain | Down | Delete | Probe
Action = Call | Settled | Release | Say


# ---- answers and what is seen ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """The record as read."""

    node: Node


@dataclass(frozen=True, slots=True)
class Absent:
    """slurmctld has no such node: to any call about it."""


@dataclass(frozen=True, slots=True)
class Done:
    """The call was carried out."""

    call: Call


@dataclass(frozen=True, slots=True)
class Fault:
    """The call failed. `refused` when slurmctld understood and said no, as it does for a node with work on it."""

    call: Call
    text: str
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Listening:
    """What a Probe found."""

    yes: bool


Answer = Record | Absent | Done | Fault | Listening


@dataclass(frozen=True, slots=True)
class Stop:
    """The `stop` file: slurmstepd processes counted (None if unreadable), and its age in seconds."""

    steps: int | None
    age: float


@dataclass(frozen=True, slots=True)
class Observation:
    """What is seen now. `terminating`: SIGTERM came, so slurmd has stopped. `jitter` is random in [0, 1)."""

    stop: Stop | None = None
    released: bool = False
    slurmd_may_run: bool = False
    terminating: bool = False
    answer: Answer | None = None
    jitter: float = 0.5


@dataclass(slots=True)
class State:
    """All that is remembered. `wake`: when to step again though nothing is seen; inf for never."""

    phase: Phase = Phase.CLAIM
    since: float = 0.0
    """When the phase began."""
    wake: float = 0.0
    faults: int = 0
    """Failed calls in a row."""
    polls: int = 0
    """Reads that found work still there, since there was no slurmstepd."""
    settled: bool = False
    """`register` has been let go on."""
    record: Node | None = None
    """The record that the phase is dealing with."""
    heard: float = -inf
    """When Slurm last answered and did as it was told."""
    idle_since: float | None = None
    """Since when there has been no slurmstepd."""
    hook_since: float | None = None
    """When the preStop hook was first seen."""
    said: str = ""


@dataclass(slots=True)
class _Step:
    """One step in the making."""

    settings: Settings
    state: State
    seen: Observation
    now: float
    actions: list[Action] = field(default_factory=list)

    def say(self, text: str) -> None:
        if text != self.state.said:
            self.state.said = text
            self.actions.append(Say(text))

    def call(self, action: Call) -> None:
        self.actions.append(action)

    def sleep(self, seconds: float) -> None:
        self.state.wake = self.now + seconds

    def enter(self, phase: Phase) -> None:
        self.state.phase = phase
        self.state.since = self.now
        self.state.wake = self.now
        self.state.faults = 0
        self.state.polls = 0
        self.state.record = None

    def settle(self, how: str) -> None:
        if not self.state.settled:
            self.state.settled = True
            self.actions.append(Settled(how))

    def back_off(self, fault: Fault, last: float) -> None:
        """Wait longer after each failure, at random so that many pods don't come at once."""
        pause = min(last, _BACKOFF_FIRST * 2.0 ** min(self.state.faults, 16))
        self.state.faults = self.state.faults + 1
        self.sleep(pause * (0.5 + self.seen.jitter / 2))
        self.say(f"{_words(fault.call)} failed, will be tried again: {fault.text}")


def begin(now: float) -> State:
    """The state of a `node` that has just started."""
    return State(since=now, wake=now)


def step(settings: Settings, state: State, seen: Observation, now: float) -> tuple[State, tuple[Action, ...]]:
    """One step. Pure; see the module. After phase DONE nothing more is to be done."""
    this = _Step(settings, replace(state), seen, now)
    _PHASES[state.phase](this)
    return this.state, tuple(this.actions)


def _claim(this: _Step) -> None:
    state, seen = this.state, this.seen
    if seen.terminating or _hook_runs(this):
        this.settle("not asked: the pod is already being stopped")
        this.enter(Phase.DEPART if seen.terminating else Phase.DRAIN)
        return
    match seen.answer:
        case None:
            if this.now >= state.wake:
                this.call(Read())
        case Absent():
            this.settle("none before")
            this.enter(Phase.WATCH)
        case Record(node) if _is_own(this, node):
            this.settle("this pod's")
            this.enter(Phase.LIFT if _is_own_drain(node) else Phase.WATCH)
        case Record(node):
            this.state.record = node
            this.call(Probe(node.address, node.port) if _may_still_delete(this) else Claim())
        case Listening(yes):
            # A slurmd that still answers where the record says may be another live pod with the same name.
            if yes or not _may_still_delete(this):
                this.call(Claim())
            elif state.record is not None and states.is_busy(state.record.states):
                # slurmctld would go on to see that slurmd's jobs as running on its successor.
                this.call(Down(None if is_foreign(state.record.reason) else POD_GONE))
            else:
                _clear(this)
        case Done(Down()):
            _clear(this)
        case Done(Delete()):
            this.say("deleted the record that an earlier pod of this name left behind")
            this.settle("an earlier pod's, deleted")
            this.enter(Phase.WATCH)
        case Done(_):
            this.say("took over the record that an earlier pod of this name left behind")
            this.settle("an earlier pod's, taken over")
            this.enter(Phase.LIFT if state.record is not None and _is_own_drain(state.record) else Phase.WATCH)
        case Fault(call=Delete(), refused=True):
            this.call(Claim())
        case Fault() as fault:
            this.settle("not known, Slurm doesn't answer")
            this.back_off(fault, _BACKOFF_LAST)


def _clear(this: _Step) -> None:
    """Delete a predecessor's record, so that slurmd registers anew; take it over where it must stay."""
    node = this.state.record
    this.call(Claim() if node is None or _why_kept(node) or not _may_still_delete(this) else Delete())


def _watch(this: _Step) -> None:
    if this.seen.terminating:
        this.enter(Phase.DEPART)
    elif _hook_runs(this):
        this.enter(Phase.DRAIN)
    else:
        this.state.wake = inf


def _drain(this: _Step) -> None:
    seen = this.seen
    if this.state.hook_since is None:
        this.state.hook_since = this.now
        this.say(f"slurmd is to be stopped; may be held for {_hold(this.settings):.0f} s")
    if seen.terminating:
        this.enter(Phase.DEPART)
        return
    if seen.stop is None:
        this.say("slurmd is running again")
        this.state.hook_since = None
        this.state.idle_since = None
        this.enter(Phase.LIFT)
        return
    fresh = seen.stop.age <= STALE
    steps = seen.stop.steps if fresh else None
    if steps != 0:
        this.state.idle_since = None
        this.state.polls = 0
    elif this.state.idle_since is None:
        this.state.idle_since = this.now
        this.state.wake = this.now

    if this.now >= this.state.hook_since + _hold(this.settings):
        left = "an unknown number of" if steps is None else str(steps)
        _release(this, f"the grace is nearly used up: letting slurmd stop with {left} slurmstepd left")
        return
    _drain_answer(this, steps)
    if this.state.phase is not Phase.DRAIN or (this.actions and isinstance(this.actions[-1], Call)):
        return
    idle_since = this.state.idle_since
    if idle_since is not None and this.now - max(idle_since, this.state.heard) >= _SILENCE:
        _release(this, f"no slurmstepd for {_SILENCE:.0f} s and Slurm doesn't follow: letting slurmd stop")
    elif this.now >= this.state.wake and seen.answer is None and (this.state.record is None or idle_since is not None):
        this.call(Read())
    elif not fresh:
        this.say("slurmd's preStop hook has ended before its time; waiting for slurmd's end")
    elif steps is None:
        this.say("waiting for the number of slurmstepd: the hook's file holds none")
    elif steps:
        this.say(f"waiting for {steps} slurmstepd to end")


def _drain_answer(this: _Step, steps: int | None) -> None:
    """Take in what Slurm said while draining."""
    match this.seen.answer:
        case Absent():
            this.state.heard = this.now
            this.state.faults = 0
            this.state.record = Node("")
            if steps == 0:
                _release(this, "no record of this node in Slurm and no slurmstepd: letting slurmd stop")
        case Record(node) if not _is_own(this, node):
            this.state.heard = this.now
            this.state.faults = 0
            this.state.record = node
            if steps == 0:
                _release(this, "the record of this name is another pod's, no slurmstepd: letting slurmd stop")
        case Record(node) if not states.is_drain(node.states):
            this.call(Drain())
        case Record(node):
            this.state.heard = this.now
            this.state.faults = 0
            this.state.record = node
            if steps == 0 and states.is_drained(node.states):
                _release(this, "drained: letting slurmd stop")
            elif steps == 0:
                this.say(f"no slurmstepd left; waiting for Slurm to say drained (now {'+'.join(sorted(node.states))})")
                pause = min(_POLL_LAST, _POLL_FIRST * 1.5 ** min(this.state.polls, 16))
                this.state.polls = this.state.polls + 1
                this.sleep(pause * (0.75 + this.seen.jitter / 2))
        case Done(_):
            this.say(f"drained the Slurm node: {POD_LEAVING}")
            this.state.heard = this.now
            this.state.faults = 0
            this.state.wake = this.now
        case Fault() as fault:
            this.back_off(fault, _BACKOFF_LEAVING)
        case _:
            pass


def _release(this: _Step, why: str) -> None:
    this.say(why)
    this.actions.append(Release())
    this.enter(Phase.RELEASED)


def _released(this: _Step) -> None:
    seen = this.seen
    if seen.terminating:
        this.enter(Phase.DEPART)
    elif seen.stop is None:
        this.say("slurmd is running again")
        this.state.hook_since = None
        this.state.idle_since = None
        this.enter(Phase.LIFT)
    elif not seen.released and _hook_runs(this):
        this.state.hook_since = None
        this.state.idle_since = None
        this.enter(Phase.DRAIN)
    else:
        this.state.wake = inf


def _lift(this: _Step) -> None:
    if this.seen.terminating or _hook_runs(this):
        this.enter(Phase.DEPART if this.seen.terminating else Phase.DRAIN)
        return
    match this.seen.answer:
        case None:
            if this.now >= this.state.wake:
                this.call(Read())
        case Record(node) if _is_own(this, node) and _is_own_drain(node):
            this.call(Undrain())
        case Done(_):
            this.say("took back this pod's own drain")
            this.enter(Phase.WATCH)
        case Fault(refused=False) as fault:
            this.back_off(fault, _BACKOFF_LAST)
        case _:
            this.enter(Phase.WATCH)


def _depart(this: _Step) -> None:
    state, now = this.state, this.now
    if now >= _departure_end(this):
        this.say("could not take the record away in time; the operator prunes it")
        this.enter(Phase.DONE)
        return
    match this.seen.answer:
        case None:
            if now >= state.wake:
                this.call(Probe("127.0.0.1", this.settings.slurmd_port))
        case Listening(yes=True):
            if now - state.since >= _PORT_TIME:
                this.say("slurmd still listens: this is not the pod's end, its record stays")
                this.enter(Phase.DONE)
            else:
                this.sleep(0.1)
        case Listening():
            this.call(Read())
        case Absent():
            this.say("the record is gone")
            this.enter(Phase.DONE)
        case Record(node):
            _take_away(this, node)
        case Done(Delete()):
            this.say("deleted the record")
            this.enter(Phase.DONE)
        case Done(Down()) if state.record is not None and _why_kept(state.record):
            this.say(f"set the node DOWN and left its record: {_why_kept(state.record)}")
            this.enter(Phase.DONE)
        case Done(_):
            this.call(Delete())
        case Fault(call=Delete(), refused=True) if state.polls == 0:
            this.state.polls = 1
            this.call(Down())
        case Fault() as fault:
            this.back_off(fault, _BACKOFF_LEAVING)


def _take_away(this: _Step, node: Node) -> None:
    """Decide on the record of a pod whose slurmd has stopped."""
    this.state.record = node
    this.state.faults = 0
    if not _is_own(this, node):
        this.say("the record of this name is another pod's, it stays")
        this.enter(Phase.DONE)
    elif why := _why_kept(node):
        if states.is_down(node.states):
            this.say(f"left the record: {why}")
            this.enter(Phase.DONE)
        else:
            this.call(Down(None if is_foreign(node.reason) else POD_GONE))
    elif states.is_busy(node.states):
        # The work that Slurm still sees here died with slurmd's container.
        this.call(Down())
    else:
        this.call(Delete())


_PHASES: dict[Phase, Callable[[_Step], None]] = {
    Phase.CLAIM: _claim,
    Phase.WATCH: _watch,
    Phase.DRAIN: _drain,
    Phase.RELEASED: _released,
    Phase.LIFT: _lift,
    Phase.DEPART: _depart,
    Phase.DONE: lambda this: None,
}


def _hook_runs(this: _Step) -> bool:
    return this.seen.stop is not None and this.seen.stop.age <= STALE


def _hold(settings: Settings) -> float:
    """How long the hook may hold slurmd: all of the grace but the margin, or half of a short one."""
    return max(settings.grace - settings.margin, settings.grace / 2)


def _departure_end(this: _Step) -> float:
    end = this.state.since + _DEPARTURE
    if this.state.hook_since is not None:
        # The kubelet leaves a native sidecar about two seconds even where the grace is used up.
        end = min(end, max(this.state.hook_since + this.settings.grace, this.state.since + _PORT_TIME))
    return end


def _may_still_delete(this: _Step) -> bool:
    return not this.state.settled and not this.seen.slurmd_may_run and this.now - this.state.since < _CLAIM_TIME


def _is_own(this: _Step, node: Node) -> bool:
    facts = extra.pod_facts(node.extra)
    return facts is not None and facts.pod_uid == this.settings.pod_uid


def _is_own_drain(node: Node) -> bool:
    return states.is_drain(node.states) and is_departure(node.reason)


def _why_kept(node: Node) -> str:
    """Why the record must not be deleted, or ""."""
    if is_foreign(node.reason):
        return f"somebody else's reason is on it: {node.reason}"
    if node.reservation:
        return f"reservation {node.reservation} is on it"
    return ""


def _words(call: Call) -> str:
    match call:
        case Read():
            return "reading the node record"
        case Claim():
            return "taking the node record over"
        case Drain():
            return "draining the node"
        case Undrain():
            return "taking the drain back"
        case Down():
            return "setting the node DOWN"
        case Delete():
            return "deleting the node record"
        case Probe(host, port):
            return f"looking at {host}:{port}"
