"""The HTTP server of `reconfigure`, and the request of one sidecar to another: see
`sidecars.contract.status`.

`POST /yield` has a slurmctld that took over save its state and end. The answer to /status has no
content of a file but the word or line that slurmctld refused.
"""

import contextlib
import http.client
import http.server
import json
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from sidecars.contract.signature import Request, Verifier, authorization
from sidecars.contract.status import (
    STARTED_PATH,
    STATUS_PATH,
    YIELD_PATH,
    Rejection,
    StartGate,
    Status,
    encode,
)
from sidecars.reconfigure import startgate
from sidecars.reconfigure.fileset import Id
from sidecars.reconfigure.states import Phase, Rejected, State

_SECONDS = 5.0
CONNECTIONS = 16
"""How many requests are served at once, each by a thread."""


def status_of(
    state: State, candidate: Id | None, problem: str, wall: Callable[[float], float]
) -> Status:
    """Return what /status serves. `wall` converts the state's times to seconds since the epoch."""
    running = state.running if state.running == state.installed else None
    return Status(
        candidate=candidate.config if candidate else None,
        problem=problem or None,
        accepted=state.accepted.config if state.accepted else None,
        running=running.config if running else None,
        rejected=_rejection(state.rejected, wall) if state.rejected else None,
        restart=state.restart or None,
        watching=state.phase is Phase.WATCH and not state.restoring,
        installed=state.installed.config if state.installed else None,
        phase=state.phase.value,
        since=round(wall(state.since), 3),
    )


def _rejection(rejected: Rejected, wall: Callable[[float], float]) -> Rejection:
    return Rejection(
        sha256=rejected.id.config,
        stage=rejected.stage,
        file=rejected.culprit.file,
        line=rejected.culprit.line,
        reason=rejected.culprit.reason,
        final=rejected.final,
        since=round(wall(rejected.since), 3),
        daemon=rejected.daemon,
        nodes=rejected.nodes,
    )


def ask_to_yield(host: str, port: int, pod: str, key: bytes, now: float) -> str:
    """Ask the sidecar of another pod, at `host`, to end its slurmctld if that leads; why it
    doesn't, else empty.
    """
    connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    try:
        signed = authorization(Request("POST", YIELD_PATH, pod), key, now)
        connection.request("POST", YIELD_PATH, headers={"Authorization": signed})
        answer = connection.getresponse()
        if answer.status == HTTPStatus.OK:
            return ""
        body = answer.read().decode(errors="replace")
        return f"{host} answers {answer.status} {answer.reason} {body}".strip()
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"{host}: {error}"
    finally:
        connection.close()


class _BoundedServer(http.server.ThreadingHTTPServer):
    """At most CONNECTIONS threads. One more connection ends the oldest, so that idle connections
    keep nobody out.
    """

    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], handler: type[http.server.BaseHTTPRequestHandler]
    ) -> None:
        self._free = threading.Semaphore(CONNECTIONS)
        self._lock = threading.Lock()
        self._open: dict[socket.socket, None] = {}
        """By age. A connection that was ended from here is missing, though its thread may still
        run.
        """
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start the connection's thread."""
        free = self._free.acquire(blocking=False)
        while not free:
            self._end_oldest()
            free = self._free.acquire(timeout=0.1)
        with self._lock:
            self._open[request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def shutdown_request(self, request: Any) -> None:
        """Close the connection."""
        with self._lock:
            self._open.pop(request, None)
            super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing of a client that ends its connection."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def _end_oldest(self) -> None:
        with self._lock, contextlib.suppress(StopIteration, OSError):
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.shutdown(socket.SHUT_RDWR)


class Server:
    """Serves the last `publish`ed state, in threads of its own. `pod` is the name of its pod, `key`
    gives jwt.key.

    `end` has slurmctld end if it leads. It returns why slurmctld does not end; "" if it ends or
    does not lead.
    """

    def __init__(
        self,
        host: str,
        port: int,
        pod: str,
        key: Callable[[], bytes],
        clock: Callable[[], float],
        end: Callable[[], str],
    ) -> None:
        self._key, self._clock, self._end = key, clock, end
        self._verifier = Verifier(pod)
        self._status: Status | None = None
        self._start_gate: StartGate | None = None
        self._started = self._settled = False
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = _SECONDS

            def do_GET(self) -> None:
                self._reply(*outer.answer(self.path, self.headers.get("Authorization", "")))

            def do_POST(self) -> None:
                self._reply(*outer.perform(self.path, self.headers.get("Authorization", "")))

            def _reply(self, status: HTTPStatus, body: bytes) -> None:
                self.send_response_only(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing of a kubelet's probes."""

        self._host = host
        self._server = _BoundedServer((host, port), Handler)
        self._closed = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def publish(self, status: Status) -> None:
        """Serve this from now on."""
        self._status = status
        self._started = status.installed is not None
        self._settled = status.phase in (Phase.SETTLED.value, Phase.WATCH.value)

    def publish_start_gate(self, state: startgate.State) -> None:
        """Have /status report this of the start gate. A pod without one never calls it."""
        self._start_gate = StartGate(state.phase, state.problem or None)

    def answer(self, path: str, authorization: str) -> tuple[HTTPStatus, bytes]:
        """Status and body for a GET."""
        if path == STARTED_PATH:
            return (HTTPStatus.OK if self._started else HTTPStatus.SERVICE_UNAVAILABLE), b""
        if path != STATUS_PATH:
            return HTTPStatus.NOT_FOUND, b""
        if not self._is_signed("GET", path, authorization):
            return HTTPStatus.UNAUTHORIZED, b""
        status = self._status
        document = (
            encode(replace(status, start_gate=self._start_gate)) if status is not None else {}
        )
        return HTTPStatus.OK, json.dumps(document).encode()

    def perform(self, path: str, authorization: str) -> tuple[HTTPStatus, bytes]:
        """Status and body for a POST."""
        if path != YIELD_PATH:
            return HTTPStatus.NOT_FOUND, b""
        if not self._is_signed("POST", path, authorization):
            return HTTPStatus.UNAUTHORIZED, b""
        # slurmctld that ends while it takes a configuration would seem to die of it.
        why_not = self._end() if self._settled else "a configuration is being applied"
        return (HTTPStatus.SERVICE_UNAVAILABLE if why_not else HTTPStatus.OK), json.dumps(
            {"whyNot": why_not}
        ).encode()

    def _is_signed(self, method: str, path: str, header: str) -> bool:
        try:
            return self._verifier.accepts(method, path, header, self._key(), self._clock())
        except OSError:
            return False

    def close(self) -> None:
        """End it; for a server on loopback."""
        self._closed = True
        with socket.create_connection((self._host, self.port)):
            self._thread.join()
        self._server.server_close()

    def _serve(self) -> None:
        # Not serve_forever, which wakes up twice a second.
        while not self._closed:
            self._server.handle_request()
