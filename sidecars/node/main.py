"""Role `node`, a native sidecar of worker pods: runs the state machine until the pod has ended.

Between steps it waits for SIGTERM and reads the shared folder twice a second. That is the cheapest
way without a dependency: less than 0.1 % of a core.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from sidecars.contract import environment as variables
from sidecars.contract import extra, paths, podfiles, ports
from sidecars.contract.environment import number, required
from sidecars.node import edge, machine, records
from sidecars.slurm.rest import Rest
from sidecars.slurm.tokens import TokenSource

READ_EVERY = 0.5
"""Seconds between two reads of the shared folder."""
TOKEN_SECONDS = 300


class System(Protocol):
    """What the loop needs of the system that it runs on."""

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait for SIGTERM for at most `seconds`. Returns whether it arrived."""
        ...

    def perform(self, call: records.Call) -> records.Answer:
        """Make a call to Slurm or to a port."""
        ...

    def log(self, text: str) -> None:
        """Write a line to the log."""
        ...


def run(
    settings: records.Settings, folder: Path, system: System, jitter: Callable[[], float]
) -> None:
    """Step the state machine until phase DONE. Raises OSError when the shared folder can't be
    written.
    """
    state = machine.begin(system.now())
    answer: records.Answer | None = None
    terminating = False
    while state.phase is not records.Phase.DONE:
        seen = records.Observation(
            stop=edge.read_stop(folder, settings.hook_user),
            slurmd_may_run=(folder / podfiles.CONF).exists(),
            shape=edge.read_shape(folder),
            terminating=terminating,
            answer=answer,
            jitter=jitter(),
        )
        before = state.phase
        state, actions = machine.step(settings, state, seen, system.now())
        answer = None
        for action in actions:
            match action:
                case records.Log(text):
                    system.log(text)
                case records.Settled(how):
                    podfiles.write(folder / podfiles.RECORD, f"{how}\n")
                case records.Release(hook):
                    podfiles.write(folder / podfiles.RELEASED, f"{hook}\n")
                case call:
                    answer = system.perform(call)
        if answer is None and state.phase is before:
            ahead = state.wake - system.now()
            terminating = (
                system.wait(min(READ_EVERY, ahead) if ahead > 0 else READ_EVERY) or terminating
            )


class RealSystem:
    """The real System: monotonic clock, SIGTERM blocked and waited for, stdout."""

    def __init__(self, slurm: edge.Slurm) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self._slurm = slurm

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        return time.monotonic()

    def wait(self, seconds: float) -> bool:
        """Wait for SIGTERM for at most `seconds`. Returns whether it arrived."""
        return signal.sigtimedwait({signal.SIGTERM}, seconds) is not None

    def perform(self, call: records.Call) -> records.Answer:
        """Make a call to Slurm or to a port."""
        return self._slurm.perform(call)

    def log(self, text: str) -> None:
        """Write a line to the log."""
        print(f"node: {text}", flush=True)


def main(arguments: Sequence[str] = (), *, environment: Mapping[str, str] = os.environ) -> int:
    """Run the role. Return 0 when the pod has ended, and 2 for an argument or for an environment
    that can't be used.
    """
    try:
        if arguments:
            raise ValueError(
                f"unexpected argument {arguments[0]!r}; it is configured by its environment"
            )
        settings, slurm = configure(environment)
    except ValueError as fault:
        print(f"node: {fault}", file=sys.stderr)
        return 2
    run(settings, podfiles.folder(environment), RealSystem(slurm), random.random)
    return 0


def configure(environment: Mapping[str, str]) -> tuple[records.Settings, edge.Slurm]:
    """Return the settings, and the calls to Slurm, from the environment that the pod template sets.
    Raises ValueError.

    The key file is read at each use, so that a new key takes effect at once.
    """
    node, uid = (
        required(environment, variables.SLURM_NODE_NAME),
        required(environment, variables.POD_UID),
    )
    settings = records.Settings(
        pod_uid=uid,
        grace=number(environment, variables.GRACE_SECONDS, 3600),
        slurmd_port=number(environment, variables.SLURMD_PORT, ports.SLURMD),
    )
    key = Path(environment.get(variables.SLURM_JWT_KEY_FILE) or paths.JWT_KEY)
    tokens = TokenSource(key.read_bytes, clock=time.time, lifetime_seconds=TOKEN_SECONDS)
    rest = Rest(required(environment, variables.SLURMRESTD_URL), tokens.token)
    folder = podfiles.folder(environment)

    def facts() -> extra.PodFacts:
        """Return the facts that `register` has written. Before that, return those of the
        environment.
        """
        try:
            written = extra.pod_facts((folder / podfiles.EXTRA).read_text())
        except OSError:
            written = None
        if written is not None and written.pod_uid == uid:
            return written
        pod, namespace = (
            environment.get(variables.POD_NAME, ""),
            environment.get(variables.POD_NAMESPACE, ""),
        )
        return extra.PodFacts(uid, pod, namespace, environment.get(variables.NODESET_UID, ""))

    return settings, edge.Slurm(rest, node, facts, tokens.forget)
