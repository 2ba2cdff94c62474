"""A worker pod in virtual time: the state machine of `node`, slurmctld as of 26.05, and slurmd's
hook.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sidecars.contract.shape import Shape
from sidecars.node import machine
from sidecars.node.records import (
    INVALID_STOP,
    Absent,
    Answer,
    Call,
    Claim,
    Delete,
    Done,
    Down,
    Drain,
    Fault,
    Listening,
    Log,
    Named,
    Names,
    Observation,
    Phase,
    Probe,
    Read,
    Record,
    Release,
    Settings,
    Settled,
    Stop,
    Undrain,
)
from sidecars.slurm.records import Node

UID = "uid-1"
SCALE_IN = "slurm-operator: Pod (slurm/w-0) is pending termination for scale-in"
STEP = 0.5


def node(*states: str, uid: str = UID, reason: str = "", reservation: str = "") -> Node:
    """A node record of the pod with that uid."""
    extra = json.dumps({"podUid": uid}) if uid else ""
    return Node(
        "w-0",
        states=frozenset(states or ("IDLE",)),
        extra=extra,
        reason=reason,
        reservation=reservation,
        address="10.0.0.9",
        port=6818,
    )


@dataclass
class Slurm:
    """slurmctld with one record or none. `silent`: nothing gets through; `refuse`: calls of these
    types are refused.
    """

    record: Node | None = None
    silent: bool = False
    refuse: tuple[type[Call], ...] = ()
    listening: frozenset[str] = frozenset()
    named: str = ""
    """Who names the node."""
    calls: list[Call] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        """Whether a job is on the node."""
        return self.record is not None and bool(
            self.record.states & {"MIXED", "ALLOCATED", "COMPLETING"}
        )

    def perform(self, call: Call) -> Answer:
        """Do what slurmctld would."""
        if isinstance(call, Probe):
            return Listening(call.host in self.listening)
        self.calls.append(call)
        if self.silent:
            return Fault(call, "no answer within 1 s")
        if isinstance(call, self.refuse):
            return Fault(call, "refused", refused=True)
        if isinstance(call, Names):
            return Named(self.named)
        if self.record is None:
            return Absent()
        states = self.record.states
        match call:
            case Read():
                return Record(self.record)
            case Claim():
                self.record = replace(self.record, extra=json.dumps({"podUid": UID}))
            case Drain(drain_reason):
                reason = self.record.reason if drain_reason is None else drain_reason
                self.record = replace(
                    self.record, states=states - {"FAIL"} | {"DRAIN"}, reason=reason
                )
            case Undrain():
                self.record = replace(self.record, states=states - {"DRAIN"}, reason="")
            case Down(down_reason):
                flags = states - {"IDLE", "MIXED", "ALLOCATED", "COMPLETING"}
                reason = self.record.reason if down_reason is None else down_reason
                self.record = replace(self.record, states=flags | {"DOWN"}, reason=reason)
            case Delete():
                if self.busy:
                    return Fault(call, "Requested nodes are busy (2016)", refused=True)
                self.record = None
        return Done(call)

    def end_jobs(self) -> None:
        """All jobs end."""
        assert self.record is not None
        self.record = replace(
            self.record, states=self.record.states - {"MIXED", "ALLOCATED", "COMPLETING"} | {"IDLE"}
        )


@dataclass
class Pod:
    """The pod: what `node` sees of it, and what `node` did. `steps` is what the running hook
    counts, None for none.

    `clock_change` is by how many seconds the wall clock was set back since the hook began.
    """

    slurm: Slurm
    settings: Settings = field(default_factory=lambda: Settings(pod_uid=UID, grace=100))
    now: float = 1000.0
    steps: int | None = None
    hook_seen: float | None = None
    hook_cut: bool = False
    hook_name: int = 1
    clock_change: float = 0.0
    invalid: bool = False
    terminating: bool = False
    slurmd_may_run: bool = False
    shape: Shape | None = field(default_factory=Shape)
    released: bool = False
    released_at: float | None = None
    record: str = ""
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = machine.begin(self.now)

    @property
    def phase(self) -> Phase:
        """The phase of the state machine."""
        return self.state.phase

    def hook(self, steps: int) -> None:
        """slurmd's preStop hook runs and counts that many slurmstepd."""
        self.steps = steps
        self.hook_seen = self.now
        self.hook_cut = False

    def slurmd_starts_again(self) -> None:
        """What slurmd's postStart does."""
        self.steps = None
        self.released = False
        self.hook_name += 1

    def slurmd_stops(self) -> None:
        """slurmd's container has ended; the kubelet sends SIGTERM."""
        self.slurm.listening = frozenset()
        self.terminating = True

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> float:
        """Let time pass until `until` is true, at most `seconds`; the time that passed."""
        start = self.now
        while self.now < start + seconds and not until() and self.phase is not Phase.DONE:
            self._step()
            self.now += min(STEP, max(0.01, self.state.wake - self.now))
        return self.now - start

    def _step(self) -> None:
        answer: Answer | None = None
        for _ in range(20):
            before = self.phase
            self.state, actions = machine.step(
                self.settings, self.state, self._see(answer), self.now
            )
            answer = None
            for action in actions:
                match action:
                    case Log(text):
                        self.log.append(text)
                    case Settled(how):
                        self.record = how
                    case Release(hook):
                        self.released = self.released or hook == str(self.hook_name)
                        self.released_at = self.now
                    case call:
                        answer = self.slurm.perform(call)
            if answer is None and self.phase is before:
                return
        raise AssertionError(f"no end of steps in {self.phase}: {actions}")

    def _see(self, answer: Answer | None) -> Observation:
        stop = None
        if self.steps is not None and self.hook_seen is not None:
            if not self.released and not self.hook_cut:
                self.hook_seen = self.now
            stop = Stop(
                str(self.hook_name), self.steps, self.now - self.hook_seen - self.clock_change
            )
        return Observation(
            stop=INVALID_STOP if self.invalid else stop,
            slurmd_may_run=self.slurmd_may_run,
            shape=self.shape,
            terminating=self.terminating,
            answer=answer,
        )


def running_pod(*states: str, grace: float = 100, reason: str = "", reservation: str = "") -> Pod:
    """A pod whose slurmd runs and is registered, with a record of those states."""
    pod = Pod(Slurm(), Settings(pod_uid=UID, grace=grace))
    pod.run(1)
    pod.slurmd_may_run = True
    pod.slurm.record = node(*states, reason=reason, reservation=reservation)
    pod.slurm.listening = frozenset({"127.0.0.1"})
    pod.slurm.calls.clear()
    assert pod.phase is Phase.WATCH
    return pod
