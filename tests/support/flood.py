"""A client of a server with TLS that opens connections and sends nothing."""

import contextlib
import select
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

SECONDS = 10.0
"""For one handshake."""


class Flood:
    """Open connections."""

    def __init__(self, port: int, source: str) -> None:
        self._address, self._source = ("127.0.0.1", port), source
        self._open: list[ssl.SSLSocket] = []
        self._context = ssl.create_default_context()
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE

    def grow(self, count: int) -> None:
        """So many more. The server may end them at any time."""
        for _ in range(count):
            with contextlib.suppress(OSError):
                plain = socket.create_connection(self._address, SECONDS, (self._source, 0))
                self._open.append(self._context.wrap_socket(plain))

    def send(self, data: bytes) -> None:
        """Send it on all that are open."""
        for it in self._open:
            with contextlib.suppress(OSError):
                it.sendall(data)

    def alive(self) -> int:
        """How many the server has not ended."""
        return sum(not _ended(it) for it in self._open)

    def close(self) -> None:
        """End all."""
        for it in self._open:
            it.close()


def _ended(connection: ssl.SSLSocket) -> bool:
    # OpenSSL may want to read on after the end of the connection.
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


@contextlib.contextmanager
def flood(port: int, source: str = "127.0.0.2") -> Iterator[Flood]:
    """Connections from this address, none at first."""
    found = Flood(port, source)
    try:
        yield found
    finally:
        found.close()


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    line = next(
        it for it in Path(f"/proc/{pid}/status").read_text().splitlines() if it.startswith("VmRSS:")
    )
    return int(line.split()[1]) << 10
