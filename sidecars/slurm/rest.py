"""The standard library's client of `sidecars.slurm.protocol`, for the sidecars of a pod: blocking,
with deadlines.
"""

import contextlib
import http.client
import queue
import socket
import threading
import urllib.parse
from collections.abc import Callable
from typing import TypeVar

from sidecars.slurm.errors import NoToken, Unreachable
from sidecars.slurm.protocol import (
    STATUS_NO_SUCH_ENDPOINT,
    TOKEN_HEADER,
    Request,
    decode,
    versions_to_try,
)

T = TypeVar("T")

MAX_ANSWER = 256 * 1024 * 1024
"""Largest answer in bytes; no cluster's list is nearly as long."""


class Rest:
    """Calls one slurmrestd, a connection for each call.

    `url` is e.g. `http://slurm-restapi.slurm:6820`; `token()` is asked before each call. Raises
    ValueError for another kind of address.
    """

    def __init__(self, url: str, token: Callable[[], str], *, timeout: float = 15.0) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"slurmrestd's address {url!r} should be http://HOST:PORT")
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._base = parts.path.rstrip("/")
        self._token = token
        self._timeout = timeout
        self._version: str | None = None

    def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        """Send the request and decode its answer within `timeout` seconds, name look-up included.

        The request's API version is used, or else the newest that the server offers. Raises
        SlurmError. After Unreachable the outcome of a write is unknown.
        """
        seconds = self._timeout if timeout is None else timeout
        try:
            token = self._token()
        except (OSError, ValueError) as error:
            raise NoToken(str(request), f"no token can be signed: {error}") from error
        for version in versions_to_try(request.version or self._version):
            status, body = self._exchange(request, version, token, seconds)
            if status != STATUS_NO_SUCH_ENDPOINT:
                if version != request.version:
                    self._version = version
                break
        return decode(request, status, body)

    def _exchange(
        self, request: Request[T], version: str, token: str, seconds: float
    ) -> tuple[int, bytes]:
        # A thread, because a socket's timeout bounds neither a name look-up nor an answer that
        # arrives byte by byte.
        exchange = _Exchange(self._connection(seconds))
        headers = {
            TOKEN_HEADER: token,
            "Accept": "application/json",
            "Content-Type": "application/json",
        }
        arguments = (
            request.method,
            self._base + request.target(version),
            request.content(),
            headers,
        )
        threading.Thread(
            target=exchange.run, args=arguments, name=f"slurmrestd {request}", daemon=True
        ).start()
        answer = exchange.wait(seconds)
        if answer is None or isinstance(answer, TimeoutError):
            raise Unreachable(
                str(request), f"no whole answer from {self._host} within {seconds:g} s"
            )
        if isinstance(answer, Exception):
            raise Unreachable(
                str(request), f"{self._host}: {type(answer).__name__}: {answer}"
            ) from answer
        return answer

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(self._host, self._port, timeout=seconds)
        return http.client.HTTPConnection(self._host, self._port, timeout=seconds)


class _Exchange:
    """One request and its answer in a thread of its own. The caller can stop waiting for it."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self._socket: socket.socket | None = None
        self._outcome: queue.Queue[tuple[int, bytes] | Exception] = queue.Queue()
        self._given_up = False
        self._lock = threading.Lock()

    def run(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> None:
        """Send, read to the end, and store the outcome. Nothing is sent after the caller has
        left.
        """
        try:
            self._connection.connect()
            with self._lock:
                self._socket = self._connection.sock
                if self._given_up:
                    return
            self._connection.request(method, target, body, headers)
            response = self._connection.getresponse()
            content = response.read(MAX_ANSWER + 1)
            if len(content) > MAX_ANSWER or response.length:
                raise http.client.IncompleteRead(b"", response.length)
            self._outcome.put((response.status, content))
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._outcome.put(error)
        finally:
            self._connection.close()

    def wait(self, seconds: float) -> tuple[int, bytes] | Exception | None:
        """Return the outcome, or None without one in time, and then the connection is closed."""
        try:
            return self._outcome.get(timeout=seconds)
        except queue.Empty:
            with self._lock:
                self._given_up = True
                if self._socket is not None:
                    # To close it here would leave a read in the thread waiting.
                    with contextlib.suppress(OSError):
                        self._socket.shutdown(socket.SHUT_RDWR)
            return None
