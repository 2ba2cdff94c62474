"""The connections of one server, bounded in number, in time and in bytes.

Any pod that reaches the port of a server can open connections, and send and read as slowly as it
likes. What is over a bound ends a connection of the address that has most, so that a client that
asks little keeps its own.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

HEADER_SECONDS = 30
"""Within which a new connection must have asked: TLS handshake, request line and headers."""
IDLE_SECONDS = 90.0
"""For which a connection is kept between two requests."""
UNREAD_SECONDS = 30
"""Within which a client must take an answer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one server."""

    connections: int = 64
    in_flight: int = 4 << 20
    """Bytes received of all requests that aren't answered yet, headers and TLS included."""
    unread: int = 8
    """Answers that wait in memory because their clients don't take them."""


@dataclass(eq=False, slots=True)
class Connection:
    """One client's connection."""

    address: str
    end: Callable[[], None]
    since: float
    """When it was accepted or last answered."""
    asked: bool = False
    """Whether a request has arrived with all its headers, now or before."""
    busy: bool = False
    """Whether a request is being answered."""
    in_flight: int = 0
    """Bytes received since the last answer."""
    stuck_since: float | None = None
    """Since when the client doesn't take what it is sent; None while it does."""


class Connections:
    """All open connections of a server."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._limits, self._clock = limits, clock
        self._open: dict[Connection, None] = {}
        """By age."""
        self._in_flight = 0

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, address: str, end: Callable[[], None]) -> Connection:
        """Return a new connection. One too many ends another one."""
        if len(self._open) >= self._limits.connections:
            crowd = _most(Counter(it.address for it in self._open))
            # First one that has asked nothing, then one between two requests, and a request last.
            self._end(
                min(crowd_of(self._open, crowd), key=lambda it: (it.busy, it.asked, it.since))
            )
        connection = Connection(address, end, self._clock())
        self._open[connection] = None
        return connection

    def received(self, connection: Connection, count: int) -> None:
        """Note that bytes have arrived. Too many of all clients end connections, this one
        included.
        """
        if connection not in self._open:
            return
        connection.in_flight += count
        self._in_flight += count
        while self._in_flight > self._limits.in_flight:
            bytes_of: Counter[str] = Counter()
            for it in self._open:
                bytes_of[it.address] += it.in_flight
            self._end(max(crowd_of(self._open, _most(bytes_of)), key=lambda it: it.in_flight))

    def begins(self, connection: Connection) -> None:
        """Note that a request has arrived with all its headers."""
        connection.asked = connection.busy = True

    def answered(self, connection: Connection) -> None:
        """Note that the request is answered."""
        self._in_flight -= connection.in_flight
        connection.in_flight, connection.busy, connection.since = 0, False, self._clock()

    def stuck(self, connection: Connection) -> None:
        """Note that the client doesn't take what it is sent. One too many ends another one."""
        if connection not in self._open:
            return
        connection.stuck_since = self._clock()
        stuck = [it for it in self._open if it.stuck_since is not None]
        if len(stuck) > self._limits.unread:
            crowd = _most(Counter(it.address for it in stuck))
            self._end(min(crowd_of(stuck, crowd), key=lambda it: it.stuck_since or 0.0))

    def flows(self, connection: Connection) -> None:
        """Note that the client has taken most of what it was sent."""
        connection.stuck_since = None

    def end_stuck(self, connection: Connection) -> None:
        """End it if its client still takes nothing; for UNREAD_SECONDS after `stuck`."""
        if connection in self._open and connection.stuck_since is not None:
            self._end(connection)

    def closed(self, connection: Connection) -> None:
        """Note that the connection has ended. It may be called again."""
        if connection in self._open:
            del self._open[connection]
            self._in_flight -= connection.in_flight
            connection.in_flight = 0

    def end_silent(self, connection: Connection) -> None:
        """End it, unless it has asked; for HEADER_SECONDS after it was accepted."""
        if connection in self._open and not connection.asked:
            self._end(connection)

    def end_all(self) -> None:
        """End what is open."""
        for connection in list(self._open):
            self._end(connection)

    def _end(self, connection: Connection) -> None:
        self.closed(connection)
        connection.end()


def crowd_of(connections: Iterable[Connection], addresses: set[str]) -> list[Connection]:
    """Return the connections of these addresses."""
    return [it for it in connections if it.address in addresses]


def _most(counted: Counter[str]) -> set[str]:
    """Return the addresses with the largest count."""
    largest = max(counted.values())
    return {address for address, count in counted.items() if count == largest}
