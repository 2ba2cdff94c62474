"""The edge of `node`: reads the shared files and does the calls that the state machine asks for.
Decides nothing.
"""

import os
import re
import socket
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from sidecars.contract import extra, podfiles, shape
from sidecars.contract.shape import Shape
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
    Named,
    Names,
    Probe,
    Read,
    Record,
    Stop,
    Undrain,
)
from sidecars.slurm import protocol
from sidecars.slurm.errors import AuthenticationError, NotFound, Rejected, SlurmError
from sidecars.slurm.naming import named_nodes

if TYPE_CHECKING:
    from sidecars.slurm.records import Node

T = TypeVar("T")

CALL_SECONDS = 1.0
"""Deadline of one call. slurmd waits for it to start, or the pod to end."""
NAMES_SECONDS = 2.0
"""Deadline of reading all jobs. Where they are too many for it, the record is kept for the
operator.
"""
PROBE_SECONDS = 0.5
"""Deadline of one probe of a port."""

_STOP = re.compile(rb"([0-9]+\.[0-9]+) ([0-9]{1,9})\n")


class Carrier(Protocol):
    """Sends requests to slurmrestd: `sidecars.slurm.rest.Rest`."""

    def call(self, request: protocol.Request[T], *, timeout: float | None = None) -> T:
        """Send the request and decode its answer. Raises SlurmError."""
        ...


class Slurm:
    """Calls about one Slurm node. `facts` returns what a claim writes, `forget` drops a token that
    was refused.
    """

    def __init__(
        self,
        carrier: Carrier,
        node: str,
        facts: Callable[[], extra.PodFacts],
        forget: Callable[[], None],
    ) -> None:
        self._carrier = carrier
        self._node = node
        self.facts = facts
        self._forget = forget
        self._namespace_uid = ""
        """That of the record that was read last, if it is one of this pod's NodeSet."""
        self._record: tuple[Node, ...] = ()
        """The one that was read last."""

    def perform(self, call: Call) -> Answer:
        """Return the answer to `call`. A failure of Slurm, the network or the key file is an
        answer, too, and never raised.
        """
        try:
            return self._perform(call)
        except NotFound:
            return Absent()
        except AuthenticationError as error:
            self._forget()
            return Fault(
                call, f"{error}; check that the key is the one of the Controller's jwtKeyRef"
            )
        except Rejected as error:
            return Fault(call, str(error), refused=True)
        except (SlurmError, OSError, ValueError) as error:
            return Fault(call, str(error))

    def _perform(self, call: Call) -> Answer:
        names = [self._node]
        match call:
            case Probe(host, port):
                return Listening(listening(host, port))
            case Names():
                return Named(self._named_by())
            case Read():
                # The operator's polls make slurmctld count, too, but the operator may be down.
                self._send(protocol.count_allocations())
                node = self._send(protocol.get_node(self._node))
                self._record = (node,)
                self._namespace_uid = self._origin(node.extra)
                return Record(node)
            case Claim():
                facts = replace(self.facts(), namespace_uid=self._namespace_uid)
                self._send(protocol.update_nodes(names, extra=extra.encode(facts)))
            case Drain(reason):
                self._send(protocol.update_nodes(names, state=["DRAIN"], reason=reason))
            case Undrain():
                self._send(protocol.update_nodes(names, state=["UNDRAIN"]))
            case Down(down_reason):
                self._send(protocol.update_nodes(names, state=["DOWN"], reason=down_reason))
            case Delete():
                self._send(protocol.delete_node(self._node))
        return Done(call)

    def _origin(self, text: str) -> str:
        found, own = extra.pod_facts(text), self.facts()
        if found is None or not own.nodeset_uid:
            return ""
        same = (found.namespace, found.nodeset_uid) == (own.namespace, own.nodeset_uid)
        return found.namespace_uid if same else ""

    def _named_by(self) -> str:
        jobs = self._carrier.call(protocol.get_jobs(), timeout=NAMES_SECONDS)
        reservations = self._send(protocol.get_reservations())
        listed = () if jobs is None else jobs.jobs
        return named_nodes(listed, reservations, self._record).get(self._node, "")

    def _send(self, request: protocol.Request[T]) -> T:
        return self._carrier.call(request, timeout=CALL_SECONDS)


def listening(host: str, port: int) -> bool:
    """Return whether the port accepts a TCP connection within `PROBE_SECONDS`."""
    try:
        with socket.create_connection((host, port), timeout=PROBE_SECONDS):
            return True
    except OSError:
        return False


def read_shape(folder: Path) -> Shape | None:
    """Read what slurmd is about to register. Return None until `register` has written it."""
    try:
        return shape.decode((folder / podfiles.SHAPE).read_text())
    except (OSError, UnicodeDecodeError):
        return None


def read_stop(folder: Path, owner: int = 0, now: float | None = None) -> Stop | None:
    """Read the `stop` file with its age at `now` (seconds since the epoch, default the current
    time). Return None without it.

    Its writer runs as the user `owner`. Anything else in its place is `INVALID_STOP`: the hook's
    state is unknown.
    """
    try:
        descriptor = os.open(
            folder / podfiles.STOP, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except FileNotFoundError:
        return None
    except OSError:
        return INVALID_STOP
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != owner or facts.st_nlink != 1:
            return INVALID_STOP
        text = os.read(descriptor, 100)
    except OSError:
        return INVALID_STOP
    finally:
        os.close(descriptor)
    age = (time.time() if now is None else now) - facts.st_mtime
    found = _STOP.fullmatch(text)
    return Stop(found[1].decode(), int(found[2]), age) if found else Stop("", None, age)
