"""The edge of `node`: sees the shared files and carries out the machine's calls. Decides nothing."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from sidecars.contract import extra, podfiles
from sidecars.node.machine import (
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
    Probe,
    Read,
    Record,
    Stop,
    Undrain,
)
from sidecars.slurm import protocol
from sidecars.slurm.errors import AuthenticationError, NotFound, Rejected, SlurmError

T = TypeVar("T")

CALL_SECONDS = 1.0
"""Bound of one call while slurmd waits for it to start, or the pod to end."""
PROBE_SECONDS = 0.5


class Carrier(Protocol):
    """What carries requests to slurmrestd: `sidecars.slurm.rest.Rest`."""

    def call(self, request: protocol.Request[T], *, timeout: float | None = None) -> T:
        """Carry the request and decode its answer. Raises SlurmError."""
        ...


class Slurm:
    """Calls about one Slurm node. `facts` is what a claim writes; `forget` drops a token that was refused."""

    def __init__(
        self, carrier: Carrier, node: str, facts: Callable[[], extra.PodFacts], forget: Callable[[], None]
    ) -> None:
        self._carrier = carrier
        self._node = node
        self.facts = facts
        self._forget = forget

    def perform(self, call: Call) -> Answer:
        """The answer to `call`; never raises for what Slurm, the network or the key file do."""
        try:
            return self._perform(call)
        except NotFound:
            return Absent()
        except AuthenticationError as error:
            self._forget()
            return Fault(call, f"{error}; is the key that of the Controller's jwtKeyRef?")
        except Rejected as error:
            return Fault(call, str(error), refused=True)
        except (SlurmError, OSError, ValueError) as error:
            return Fault(call, str(error))

    def _perform(self, call: Call) -> Answer:
        names = [self._node]
        match call:
            case Probe(host, port):
                return Listening(listening(host, port))
            case Read():
                # The operator's polls have slurmctld count as well, but it may be down.
                self._carry(protocol.count_allocations())
                return Record(self._carry(protocol.get_node(self._node)))
            case Claim():
                self._carry(protocol.update_nodes(names, extra=extra.encode(self.facts())))
            case Drain(reason):
                self._carry(protocol.update_nodes(names, state=["DRAIN"], reason=reason))
            case Undrain():
                self._carry(protocol.update_nodes(names, state=["UNDRAIN"]))
            case Down(down_reason):
                self._carry(protocol.update_nodes(names, state=["DOWN"], reason=down_reason))
            case Delete():
                self._carry(protocol.delete_node(self._node))
        return Done(call)

    def _carry(self, request: protocol.Request[T]) -> T:
        return self._carrier.call(request, timeout=CALL_SECONDS)


def listening(host: str, port: int) -> bool:
    """Whether a TCP connection to it is accepted within half a second."""
    try:
        with socket.create_connection((host, port), timeout=PROBE_SECONDS):
            return True
    except OSError:
        return False


def read_stop(folder: Path, now: float | None = None) -> Stop | None:
    """The `stop` file with its age against `now` (seconds since the epoch, default the present); None without it."""
    path = folder / podfiles.STOP
    try:
        age = (time.time() if now is None else now) - path.stat().st_mtime
        text = path.read_text()
    except OSError:
        return None
    return Stop(int(text) if text.strip().isdecimal() else None, max(0.0, age))
