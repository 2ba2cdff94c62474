"""The start gate of a slurmctld pod with standbys: slurmctld starts only after it has asked here.

`ASK` is a FIFO in a volume that this sidecar shares with the container slurmctld. The container's
command reads a line from it (charts/slurm-operator/workloads/slurmctld-ha.yaml), and blocks until
no standby leads. A command that starts slurmctld without asking can't be prevented from here. It is
detected, and /status reports it. Standard library only.
"""

import dataclasses
import os
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import NoReturn

from sidecars.contract.status import StartGatePhase
from sidecars.reconfigure.handover import PAUSE, Peers, lead_alone

ASK = "ask"
PASSED = "passed"
"""A file beside the FIFO while the slurmctld that runs has passed, for a sidecar that is restarted.
"""

LOOK = 0.5
"""Seconds between two looks at slurmctld."""
GONE = 1.0
"""Seconds for which nothing listens at slurmctld's port until it counts as ended."""


@dataclass(frozen=True, slots=True)
class State:
    """The gate, and what is known of slurmctld's port."""

    phase: StartGatePhase = StartGatePhase.CLOSED
    """As in `sidecars.contract.status.StartGate`."""

    problem: str = ""
    """ASKED: why it can't pass yet. PASSED: why a standby may still lead. Empty without a problem.
    """

    answered: bool = False
    """PASSED: whether slurmctld has answered since."""

    silent_since: float | None = None
    """Time since which every look found nobody listening; None if the last did not."""


def looked(state: State, answers: bool | None, now: float) -> State:
    """Return the state after a look at slurmctld's port. `answers`: False if nothing listens, None
    if that is not known.
    """
    if answers is None or state.phase is StartGatePhase.ASKED:
        return state
    if answers:
        phase = StartGatePhase.NOT_ASKED if state.phase is StartGatePhase.CLOSED else state.phase
        return dataclasses.replace(state, phase=phase, answered=True, silent_since=None)
    if state.phase is StartGatePhase.PASSED and not state.answered:
        return state  # It is starting.
    since = now if state.silent_since is None else state.silent_since
    return State() if now - since >= GONE else dataclasses.replace(state, silent_since=since)


class Server:
    """Serves the gate of one pod: `serve` and `watch` each in a thread of their own. `publish` gets
    every change.
    """

    def __init__(self, folder: Path, peers: Peers, publish: Callable[[State], None]) -> None:
        self._folder, self._peers, self._publish = folder, peers, publish
        self._lock = threading.Lock()
        if not (folder / ASK).is_fifo():
            os.mkfifo(folder / ASK, 0o644)
        self._state = State(StartGatePhase.PASSED) if (folder / PASSED).exists() else State()
        publish(self._state)

    def serve(self) -> NoReturn:
        """Let each slurmctld that asks start when no standby leads."""
        while True:
            # Opens when slurmctld's container has opened its end.
            with (self._folder / ASK).open("wb", buffering=0) as asked:
                self._answer(asked)
                # The same open end is not to be taken for the next start.
                _closed(asked, wait=True)

    def _answer(self, asked: FileIO) -> None:
        self._become(State(StartGatePhase.ASKED))
        while (problem := self._led()) is None:
            self._peers.pause(PAUSE)
            if _closed(asked, wait=False):
                self._become(State())
                return
        self._become(State(StartGatePhase.PASSED, problem))
        try:
            asked.write(b"go\n")
        except BrokenPipeError:
            # The container has ended meanwhile.
            self._become(State())

    def _led(self) -> str | None:
        """Return why a standby may lead when slurmctld starts, "" if none does. Return None while
        slurmctld can't start yet.
        """
        try:
            return lead_alone(self._peers)
        except OSError as error:
            problem = str(error)
            if self._state.problem != problem:
                self._peers.log_line(f"slurmctld can't start yet: {problem}")
            self._become(State(StartGatePhase.ASKED, problem))
            return None

    def watch(self, answers: Callable[[], bool | None]) -> NoReturn:
        """Notice when slurmctld ends, and when one runs that has not asked."""
        while True:
            self.look(answers)
            self._peers.pause(LOOK)

    def look(self, answers: Callable[[], bool | None]) -> None:
        """Look once at slurmctld's port."""
        before = self._state
        answer = answers()
        with self._lock:
            # What was seen of a slurmctld before it asked does not apply to the next.
            if self._state is before:
                self._change(looked(before, answer, self._peers.now()))

    def _become(self, new: State) -> None:
        with self._lock:
            self._change(new)

    def _change(self, new: State) -> None:
        before, self._state = self._state, new
        if (new.phase, new.problem) == (before.phase, before.problem):
            return
        if new.phase is StartGatePhase.PASSED:
            (self._folder / PASSED).touch()
        else:
            (self._folder / PASSED).unlink(missing_ok=True)
        if new.phase is StartGatePhase.NOT_ASKED:
            self._peers.log_line(
                "slurmctld runs without having asked the start gate: see the condition StartGated"
            )
        self._publish(new)


def _closed(written: FileIO, *, wait: bool) -> bool:
    """Return whether nobody has the other end of the FIFO open. `wait`: return only then."""
    poll = select.poll()
    poll.register(written, 0)
    return bool(poll.poll(None if wait else 0))
