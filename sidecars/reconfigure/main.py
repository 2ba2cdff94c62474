"""Role `reconfigure`: runs the state machine until the pod ends.

While nothing changes it reads two links four times a second. That costs under 0.1 % of a core, less
than a watch that must be set up again after each of the kubelet's swaps. With standbys it also
serves the start gate, in two threads.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from sidecars.contract import environment as variables
from sidecars.contract import manifest, paths, ports
from sidecars.contract.environment import number, required
from sidecars.contract.status import PORT
from sidecars.reconfigure import handover, machine, startgate, status
from sidecars.reconfigure.actions import Forget, Keep, Log, Refuse
from sidecars.reconfigure.dryrun import Host
from sidecars.reconfigure.edge import Edge, Places
from sidecars.reconfigure.fileset import Id
from sidecars.reconfigure.firststart import FirstStart
from sidecars.reconfigure.states import Phase, Seen, Settings, State
from sidecars.slurm import health

LOOK = 0.25
"""Seconds between two looks at the links."""
PARTIAL = 2.0
"""Seconds between two readings of a candidate that isn't whole."""


class System(Protocol):
    """The clock, the signals, the log and the HTTP server of the process."""

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait for SIGTERM, at most so long; whether it came."""
        ...

    def log_line(self, text: str) -> None:
        """Write a line to the log."""
        ...

    def publish(self, state: State, candidate: Id | None, problem: str) -> None:
        """Have /status report this."""
        ...


def run(settings: Settings, edge: Edge, system: System) -> None:
    """Step the state machine until SIGTERM. Raises OSError when the pod's folders can't be
    written.
    """
    state, answer = State(since=system.now()), None
    version: tuple[str, ...] | None = None
    candidate: Id | None = None
    published: State | None = None
    read_at = 0.0
    # Whether the last step left everything as it was. Only then can it wait until something
    # changes: what came while another configuration was being brought in has not been looked at
    # yet.
    still = False
    good, refused = edge.good(), edge.refused()
    present, interrupted = edge.present(), edge.interrupted()
    while True:
        now, latest = system.now(), edge.version()
        if latest != version or (candidate is None and now - read_at >= PARTIAL):
            before, version, read_at = candidate, latest, now
            candidate, good, refused = edge.candidate(), edge.good(), edge.refused()
            if candidate != before:
                system.log_line(f"candidate: {candidate or edge.problem}")
        elif still and answer is None and not machine.due(state, now):
            if system.wait(LOOK):
                return
            continue
        before_step = state
        seen = Seen(candidate, good, present, answer, interrupted, refused)
        state, actions = machine.step(settings, state, seen, now)
        still = state == before_step
        if still:
            state = before_step
        answer, installed = None, before_step.running or before_step.installed
        if published is not state:
            system.publish(state, candidate, edge.problem)
            published = state
        for action in actions:
            if isinstance(action, Log):
                system.log_line(action.text)
            else:
                answer = edge.perform(action, installed) or answer
                if isinstance(action, Keep | Refuse | Forget):
                    good, refused = edge.good(), edge.refused()
        edge.forget(
            {
                it
                for it in (
                    candidate,
                    good,
                    state.installed,
                    state.running,
                    state.former,
                    state.trying,
                )
                if it is not None
            }
        )
        if answer is None and state.phase is before_step.phase:
            pause = (
                LOOK if state.phase in (Phase.BEGIN, Phase.SETTLED) else state.wake - system.now()
            )
            if system.wait(min(LOOK, max(pause, 0.01))):
                return


class RealSystem:
    """The real System: monotonic clock, SIGTERM blocked and waited for, stdout, the server."""

    def __init__(self, server: status.Server) -> None:
        self._server = server
        self._ahead = time.time() - time.monotonic()

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        return time.monotonic()

    def wait(self, seconds: float) -> bool:
        """Wait for SIGTERM, at most so long; whether it came."""
        return signal.sigtimedwait({signal.SIGTERM}, seconds) is not None

    def log_line(self, text: str) -> None:
        """Write a line to the log."""
        print(f"reconfigure: {text}", flush=True)

    def publish(self, state: State, candidate: Id | None, problem: str) -> None:
        """Have /status report this."""
        self._server.publish(
            status.status_of(state, candidate, problem, lambda at: at + self._ahead)
        )


class Peers:
    """The other pods of slurmctld, as handover.Peers. Their sidecars listen at the port of this
    one.
    """

    def __init__(self, edge: Edge, port: int, system: RealSystem) -> None:
        self._edge, self._port = edge, port
        self.now, self.log_line, self.pause = system.now, system.log_line, time.sleep

    def standbys(self) -> Sequence[Host]:
        """Return the standbys behind this slurmctld, none if it isn't the first of SlurmctldHost.
        Raises OSError.
        """
        return handover.behind(self._edge.hosts(), self._edge.places.host)

    def leads(self, standby: Host) -> bool | None:
        """Return whether it is the primary, or None without an answer."""
        try:
            return health.leads(standby.address, self._edge.places.port, 1.0)
        except OSError:
            return None

    def ask_to_end(self, standby: Host) -> str:
        """Have its pod end its slurmctld if that leads. Returns why that failed, empty if it
        didn't.
        """
        try:
            key = (self._edge.places.keys / manifest.JWT_KEY).read_bytes()
        except OSError as error:
            return str(error)
        return status.ask_to_yield(standby.address, self._port, standby.name, key, time.time())


def end_with_container(work: Callable[[], object], end: Callable[[int], object] = os._exit) -> None:
    """Do work that never ends. Should it fail, the container ends too: without the gate slurmctld
    waits in vain.
    """
    try:
        work()
    finally:
        traceback.print_exc()
        end(1)


def answers_at(port: int) -> bool | None:
    """Return whether slurmctld answers at its port, or False if nothing listens, None if that is
    not known.
    """
    try:
        return health.answers("127.0.0.1", port, 1.0)
    except OSError:
        return None


def open_start_gate(
    folder: Path,
    slurmctld_port: int,
    peers: handover.Peers,
    publish: Callable[[startgate.State], None],
) -> None:
    """Serve the start gate in `folder`, in threads of their own."""
    gate = startgate.Server(folder, peers, publish)
    for work in (gate.serve, lambda: gate.watch(lambda: answers_at(slurmctld_port))):
        threading.Thread(target=end_with_container, args=(work,), daemon=True).start()


def look_after_first_start(
    first_start: FirstStart, edge: Edge, now: Callable[[], float], pause: Callable[[float], None]
) -> None:
    """Look until slurmctld has saved all of its state once."""
    while first_start.pending():
        first_start.look(now(), answers_at(edge.places.port), edge.has_accounting)
        pause(startgate.LOOK)


def main(arguments: Sequence[str] = (), *, environment: Mapping[str, str] = os.environ) -> int:
    """Run the role. Return 0 when the pod ends, 2 for a wrong configuration: arguments, as it takes
    none, or environment.
    """
    try:
        if arguments:
            raise ValueError(
                f"unexpected argument {arguments[0]!r}; it is configured by its environment"
            )
        settings, edge, host, port = configure(environment)
    except ValueError as fault:
        print(f"reconfigure: {fault}", file=sys.stderr)
        return 2
    # Before the server's threads begin, which inherit it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    key = edge.places.keys / manifest.JWT_KEY
    server = status.Server(
        host, port, edge.places.host, key.read_bytes, time.time, edge.end_if_leading
    )
    system = RealSystem(server)
    # slurmctld starts only when `run` has brought it a configuration.
    first_start = FirstStart(edge.places.state, system.log_line)
    first_start.begin()
    looks = (first_start, edge, system.now, time.sleep)
    threading.Thread(target=look_after_first_start, args=looks, daemon=True).start()
    if folder := environment.get(variables.START_GATE):
        open_start_gate(
            Path(folder), edge.places.port, Peers(edge, port, system), server.publish_start_gate
        )
    run(settings, edge, system)
    return 0


def configure(environment: Mapping[str, str]) -> tuple[Settings, Edge, str, int]:
    """Return settings, edge, and where to serve, from what the pod template sets. Raises
    ValueError.
    """
    update = environment.get(variables.CONFIG_UPDATE) or "Reconfigure"
    if update not in {"Reconfigure", "Recreate"}:
        raise ValueError(f"CONFIG_UPDATE is {update!r}: it must be Reconfigure or Recreate")
    state = Path(required(environment, variables.STATE_SAVE_LOCATION))
    places = Places(
        candidate=Path(environment.get(variables.CANDIDATE_DIR) or paths.CANDIDATE),
        keys=Path(environment.get(variables.KEYS_DIR) or paths.KEYS),
        live=Path(environment.get(variables.LIVE_DIR) or paths.SLURM_CONF_FOLDER),
        good=state / ".slurm-config",
        check=Path(environment.get(variables.CHECK_DIR) or paths.CHECK),
        state=state,
        host=required(environment, variables.POD_NAME),
        port=number(environment, variables.SLURMCTLD_PORT, ports.SLURMCTLD),
    )
    return (
        Settings(live=update == "Reconfigure"),
        Edge(places),
        environment.get(variables.POD_IP) or "127.0.0.1",
        number(environment, variables.STATUS_PORT, PORT),
    )
