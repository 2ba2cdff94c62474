"""One step of `sidecars.node.machine` in progress: what the functions of its phases read and
change.
"""

from dataclasses import dataclass, field

from sidecars.node.records import (
    Action,
    Call,
    Claim,
    Delete,
    Down,
    Drain,
    Fault,
    Log,
    Names,
    Observation,
    Phase,
    Probe,
    Read,
    Settings,
    Settled,
    State,
    Undrain,
)

RETRY_SECONDS_LEAVING = 4.0
"""Longest pause between attempts at a call that fails, while slurmd waits for it to stop, or the
pod to end.
"""
_FIRST_RETRY_SECONDS = 0.25


@dataclass(slots=True)
class Step:
    """One step in progress: its inputs, the state that it changes, and the actions so far."""

    settings: Settings
    state: State
    seen: Observation
    now: float
    actions: list[Action] = field(default_factory=list)

    def log(self, text: str) -> None:
        if text != self.state.logged:
            self.state.logged = text
            self.actions.append(Log(text))

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
        if phase is Phase.DRAIN:
            self.state.unnamed = False

    def settle(self, how: str) -> None:
        if not self.state.settled:
            self.state.settled = True
            self.actions.append(Settled(how))

    def back_off(self, fault: Fault, last: float) -> None:
        """Wait longer after each failure, and a random time so that many pods don't retry at
        once.
        """
        pause = min(last, _FIRST_RETRY_SECONDS * 2.0 ** min(self.state.faults, 16))
        self.state.faults = self.state.faults + 1
        self.sleep(pause * (0.5 + self.seen.jitter / 2))
        self.log(f"{_description(fault.call)} failed and will be retried: {fault.text}")


def _description(call: Call) -> str:
    match call:
        case Read():
            return "reading the node record"
        case Claim():
            return "claiming the node record"
        case Drain():
            return "draining the node"
        case Undrain():
            return "undraining the node"
        case Down():
            return "setting the node DOWN"
        case Delete():
            return "deleting the node record"
        case Names():
            return "reading which nodes jobs and reservations name"
        case Probe(host, port):
            return f"probing {host}:{port}"
