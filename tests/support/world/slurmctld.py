"""The slurmctld pod of one Slurm cluster, and which configuration slurmctld reads. `reconfigure` is
the shipped one.

The files are a ConfigMap's slurm.conf, whole. A line with REFUSED fails the dry run; slurmctld
refuses one with REFUSED_LATER only when it is to read it, which no dry run shows.
"""

import asyncio
import random
import re
from collections.abc import Callable
from hashlib import sha256

from sidecars.reconfigure import actions, machine, states
from sidecars.reconfigure.fileset import Id
from sidecars.simulate import SlurmModel
from sidecars.simulate.records import SimPartition
from sidecars.slurm.diagnosis import Culprit

REFUSED = "LaunchParameters=refused_by_the_dry_run"
REFUSED_LATER = "LaunchParameters=refused_by_reconfigure"

_STATE = re.compile(r"State=(\w+)")


class Slurmctld:
    """`note` records a broken invariant, `log` what the sidecar logs, `started` that slurmctld's
    container starts.

    `run` it until it is cancelled.
    """

    def __init__(
        self,
        model: SlurmModel,
        rng: random.Random,
        note: Callable[[str], None],
        log: Callable[[str], None],
        started: Callable[[], None],
    ) -> None:
        self.running = ""
        """The slurm.conf that slurmctld has read."""
        self._model, self._rng, self._note, self._log, self._started = (
            model,
            rng,
            note,
            log,
            started,
        )
        self._texts: dict[Id, str] = {}
        self._candidate: Id | None = None
        self._good: Id | None = None
        self._installed: Id | None = None
        self._state = states.State()
        self._alive = False
        self._restarted = False
        self._changed = asyncio.Event()

    def offer(self, text: str) -> None:
        """The kubelet has brought another slurm.conf into the pod."""
        self._candidate = Id(sha256(text.encode()).hexdigest(), "")
        self._texts[self._candidate] = text
        self._changed.set()

    def restart(self) -> None:
        """The pod is replaced: what lies on its volume stays."""
        self._restarted = True
        self._changed.set()

    def begin_again(self) -> None:
        """The pod and its volume were deleted, and another one is created."""
        self.running, self._candidate, self._good = "", None, None
        self.restart()

    async def run(self) -> None:
        """As `sidecars.reconfigure.main.run`, but events wake it where that looks twice a
        second.
        """
        answer: actions.Answer | None = None
        while True:
            now = asyncio.get_running_loop().time()
            if self._restarted:
                self._restarted, answer, self._installed, self._alive = False, None, None, False
                self._state = states.State(since=now)
                self._model.restart()
                self._started()
            before = self._state
            seen = states.Seen(candidate=self._candidate, good=self._good, answer=answer)
            self._state, wanted = machine.step(states.Settings(), before, seen, now)
            answer = None
            for action in wanted:
                if isinstance(action, actions.Log):
                    self._log(f"reconfigure: {action.text}")
                else:
                    await asyncio.sleep(self._rng.uniform(0.01, 0.1))
                    answer = self._perform(action) or answer
            if answer is None and self._state.phase is before.phase:
                await self._wait()

    async def _wait(self) -> None:
        self._changed.clear()
        now = asyncio.get_running_loop().time()
        rests = self._state.phase in (states.Phase.SETTLED, states.Phase.BEGIN)
        until = self._state.retry if rests else self._state.wake
        try:
            async with asyncio.timeout(max(0.1, until - now) if until > now or not rests else None):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _perform(self, action: actions.Action) -> actions.Answer | None:
        match action:
            case actions.Check(it):
                refused = REFUSED in self._texts[it]
                return actions.Refused(Culprit("it is refused")) if refused else actions.Passed()
            case actions.Install(it):
                self._installed = it
                if self._state.phase is states.Phase.START:
                    self._read()
            case actions.Reconfigure() | actions.Restart():
                if not self._read():
                    return actions.Refused(Culprit("slurmctld refuses it"))
                self._model.reconfigure()
                if isinstance(action, actions.Restart):
                    self._started()
                return actions.Taken()
            case actions.Keep(it):
                if REFUSED_LATER in self._texts[it]:
                    self._note(
                        "I9: a configuration is stored as the last good one that slurmctld has "
                        "refused"
                    )
                self._good = it
            case actions.Probe():
                return actions.Alive(self._alive)
        return None

    def _read(self) -> bool:
        """slurmctld reads its files. Returns whether it accepts them."""
        assert self._installed is not None
        text = self._texts[self._installed]
        if REFUSED in text:
            self._note("I9: slurmctld reads a configuration that the dry run has refused")
        if REFUSED_LATER in text:
            # One that runs keeps its configuration; one that starts ends.
            self._alive = self._alive and self._state.phase is not states.Phase.START
            return False
        self.running, self._alive = text, True
        lines = re.findall(r"^PartitionName=(\S+)(.*)$", text, re.MULTILINE)
        declared = {
            it: SimPartition(it, states=tuple(_STATE.findall(rest)) or ("UP",))
            for it, rest in lines
        }
        self._model.partitions = {"all": SimPartition("all"), **declared}
        return True
