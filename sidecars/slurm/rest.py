"""The standard library's carrier of `sidecars.slurm.protocol`, for the sidecars of a pod: blocking, with deadlines."""

import http.client
import queue
import threading
import urllib.parse
from collections.abc import Callable
from typing import TypeVar

from sidecars.slurm.errors import NoToken, Unreachable
from sidecars.slurm.protocol import STATUS_NO_SUCH_ENDPOINT, TOKEN_HEADER, Request, decode, versions_to_try

T = TypeVar("T")

MAX_ANSWER = 256 * 1024 * 1024
"""Bytes that an answer may have; no cluster's list comes near."""


class Rest:
    """Calls one slurmrestd, a connection for each call.

    `url` is e.g. `http://slurm-restapi.slurm:6820`; `token()` is asked before each call. Raises ValueError for another
    kind of address.
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
        """Carry the request and decode its answer; whole, name look-up included, within `timeout` seconds.

        The newest API version that the server offers is used. Raises SlurmError. After Unreachable a write may or may
        not have been done.
        """
        seconds = self._timeout if timeout is None else timeout
        try:
            token = self._token()
        except (OSError, ValueError) as error:
            raise NoToken(str(request), f"no token can be signed: {error}") from error
        for version in versions_to_try(self._version):
            status, body = self._exchange(request, version, token, seconds)
            if status != STATUS_NO_SUCH_ENDPOINT:
                self._version = version
                break
        return decode(request, status, body)

    def _exchange(self, request: Request[T], version: str, token: str, seconds: float) -> tuple[int, bytes]:
        # A thread, because neither a name look-up nor an answer that trickles in heeds a socket's timeout.
        connection = self._connection(seconds)
        outcome: queue.Queue[tuple[int, bytes] | Exception] = queue.Queue()

        def exchange() -> None:
            try:
                headers = {TOKEN_HEADER: token, "Accept": "application/json", "Content-Type": "application/json"}
                connection.request(request.method, self._base + request.target(version), request.content(), headers)
                response = connection.getresponse()
                body = response.read(MAX_ANSWER + 1)
                if len(body) > MAX_ANSWER:
                    outcome.put(Unreachable(str(request), f"the answer is larger than {MAX_ANSWER} bytes"))
                else:
                    outcome.put((response.status, body))
            except (OSError, ValueError, http.client.HTTPException) as error:
                outcome.put(error)
            finally:
                connection.close()

        threading.Thread(target=exchange, name=f"slurmrestd {request}", daemon=True).start()
        try:
            answer = outcome.get(timeout=seconds)
        except queue.Empty:
            connection.close()
            raise Unreachable(str(request), f"no whole answer from {self._host} within {seconds:g} s") from None
        if isinstance(answer, Unreachable):
            raise answer
        if isinstance(answer, Exception):
            raise Unreachable(str(request), f"{self._host}: {type(answer).__name__}: {answer}") from answer
        return answer

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(self._host, self._port, timeout=seconds)
        return http.client.HTTPConnection(self._host, self._port, timeout=seconds)
