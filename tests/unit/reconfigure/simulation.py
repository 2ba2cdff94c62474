"""A slurmctld pod in virtual time: the kubelet, the volume of the state, and a slurmctld that fails
on demand.
"""

from dataclasses import dataclass, field, replace

from sidecars.reconfigure import machine
from sidecars.reconfigure.actions import (
    Action,
    Alive,
    Answer,
    Check,
    Forget,
    Install,
    Keep,
    Log,
    Look,
    Looked,
    NoAnswer,
    Passed,
    Probe,
    Reconfigure,
    Refuse,
    Refused,
    Restart,
    Taken,
)
from sidecars.reconfigure.fileset import Id
from sidecars.reconfigure.refusals import Refusal
from sidecars.reconfigure.slurmds import Slurmd
from sidecars.reconfigure.states import Phase, Seen, Settings, State
from sidecars.slurm.diagnosis import Culprit

TICK = 0.1
START = 2.0
"""Seconds that slurmctld takes to start."""
TAKE = 2.0
"""Seconds that a slurmd takes to execute itself again with what slurmctld has read, or to end of
it.
"""


def config(letter: str, keys: str = "k") -> Id:
    """A set by a letter."""
    return Id(letter * 64, keys)


@dataclass
class Worker:
    """A slurmd. `mute`: its answers are lost. `out`: its node is drained. `gone`: its node has no
    record.
    """

    record: Slurmd
    has: Id | None = None
    due: float | None = None
    listens: bool = True
    mute: bool = False
    out: bool = False
    gone: bool = False


def workers(count: int) -> list[Worker]:
    """So many."""
    return [Worker(Slurmd(f"w-{number}", f"10.0.0.{number}", 6818, "0")) for number in range(count)]


@dataclass
class Pod:
    """`bad`: sets that the dry run refuses. `deadly`: sets that pass it and that slurmctld dies of.

    `ending`: sets that slurmds end of.
    """

    candidate: Id | None = None
    good: Id | None = None
    bad: set[Id] = field(default_factory=set)
    deadly: set[Id] = field(default_factory=set)
    refused_live: set[Id] = field(default_factory=set)
    needs_restart: set[Id] = field(default_factory=set)
    ending: set[Id] = field(default_factory=set)
    workers: list[Worker] = field(default_factory=list)
    refused: Refusal | None = None
    check_works: bool = True
    silent_until: float = 0.0
    """Until when slurmctld listens, and answers nothing."""
    live: bool = True
    now: float = 1000.0
    state: State = field(default_factory=State)
    folder: Id | None = None
    reads: Id | None = None
    """What the running slurmctld has read; None while none runs."""
    starts_at: float | None = None
    starts: int = 0
    log: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    installed: list[Id] = field(default_factory=list)
    present: Id | None = None
    interrupted: bool = False
    folder_at: float = 0.0
    good_at: float = 0.0
    _answer: Answer | None = None

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self.now + seconds
        while self.now < end:
            self._kubelet()
            self._slurmds()
            seen = Seen(
                self.candidate,
                self.good,
                self.present,
                self._answer,
                self.interrupted,
                self.refused,
            )
            before = self.state
            self.state, actions = machine.step(Settings(self.live), self.state, seen, self.now)
            self._answer = None
            for action in actions:
                if isinstance(action, Log):
                    self.log.append(action.text)
                else:
                    self.done.append(type(action).__name__)
                    self._answer = self._perform(action) or self._answer
            if self._answer is None and self.state.phase is before.phase:
                self.now += TICK

    def settle(self, seconds: float = 200) -> None:
        """Let time pass until nothing is left to do."""
        end = self.now + seconds
        while self.now < end:
            self.run(TICK)
            if self.state.phase is Phase.SETTLED and self.reads is not None:
                self.run(1)
                return
        raise AssertionError(f"not settled: {self.state}, {self.log}")

    def restart_pod(self) -> None:
        """A new pod on the same volume."""
        self.state, self._answer, self.present = State(), None, None
        self.folder = self.reads = self.starts_at = None

    def restart_sidecar(self) -> None:
        """The container reconfigure alone is restarted."""
        self.state, self._answer, self.present = State(), None, self.folder
        self.interrupted = self.folder_at > self.good_at

    def keep(self, which: Id) -> None:
        """This pod, or another of the same cluster, stores a set as the last good one."""
        if which != self.good:
            self.good, self.good_at = which, self.now

    def end_slurmctld(self) -> None:
        """The kubelet starts it again."""
        self.reads = None

    def _kubelet(self) -> None:
        """slurmctld starts when its folder is filled, and again when it ended."""
        if self.reads is None and self.folder is not None:
            if self.starts_at is None:
                self.starts_at = self.now + START
            elif self.now >= self.starts_at:
                self.starts_at = None
                self.starts += 1
                self.reads = None if self.folder in self.deadly else self.folder

    def _slurmds(self) -> None:
        """Each takes what slurmctld has read, and starts again until it can."""
        for worker in self.workers:
            if self.reads is None or worker.has == self.reads:
                continue
            if worker.due is None:
                worker.due = self.now + TAKE
            elif self.now >= worker.due:
                worker.has, worker.due, worker.listens = (
                    self.reads,
                    None,
                    self.reads not in self.ending,
                )
                if worker.listens:
                    worker.record = replace(worker.record, started=str(self.now))

    def _listening(self) -> dict[str, bool]:
        return {it.record.name: it.listens for it in self.workers if not it.mute}

    def _check(self, which: Id) -> Answer:
        if not self.check_works:
            return NoAnswer("the container check is gone")
        if which in self.bad:
            return Refused(Culprit("unrecognized key: Foo", "slurm.conf", 7))
        answers = self._listening()
        ran = [
            it.record
            for it in self.workers
            if answers.get(it.record.name) and not (it.out or it.gone)
        ]
        return Passed("SlurmctldPort (1 → 2)" if which in self.needs_restart else "", tuple(ran))

    def _reconfigure(self) -> Answer:
        if self.reads is None:
            return NoAnswer("connection refused")
        assert self.folder is not None
        if self.now < self.silent_until:
            # It has the request, and reads its files when it gets to it.
            self.reads = None if self.folder in self.deadly else self.folder
            return NoAnswer("exit status 124")
        if self.folder in self.refused_live:
            return Refused(Culprit("refused by scontrol"))
        self.reads = None if self.folder in self.deadly else self.folder
        return Taken()

    def _perform(self, action: Action) -> Answer | None:
        match action:
            case Check(which):
                return self._check(which)
            case Install(which):
                self.folder, self.folder_at = which, self.now
                self.installed.append(which)
            case Keep(which):
                self.keep(which)
            case Reconfigure():
                return self._reconfigure()
            case Restart():
                self.reads = None
                return Taken()
            case Probe():
                if self.reads is not None and self.now < self.silent_until:
                    return NoAnswer("timed out")
                return Alive(self.reads is not None)
            case Look():
                records = tuple(it.record for it in self.workers if not (it.out or it.gone))
                return (
                    Looked(records, self._listening())
                    if self.reads is not None
                    else NoAnswer("refused")
                )
            case Refuse(refusal):
                self.refused = refusal
            case Forget():
                self.refused = None
            case _:
                pass
        return None
