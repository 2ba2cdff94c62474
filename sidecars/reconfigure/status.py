"""What the sidecar tells: `GET /status` for the operator, `GET /started` for the kubelet. What it does for another one:
`POST /yield` for the primary's, so that a slurmctld that took over saves its state and ends.

/status and /yield want a bearer token that is signed with the cluster's jwt.key for the user OPERATOR or PRIMARY, which
no user of Slurm can be, so that the token serves nowhere else, and no token of Slurm serves here. The answer to /status
holds no file's content but the word or line that slurmctld stumbled over.
"""

import http.client
import http.server
import json
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from sidecars.reconfigure import startgate
from sidecars.reconfigure.fileset import Id
from sidecars.reconfigure.machine import Phase, Rejected, State
from sidecars.slurm.tokens import sign, user_of

OPERATOR = "@slurm-operator"
PRIMARY = "@slurmctld-primary"
PORT = 6816
_SECONDS = 5.0
_YIELD = "/yield"


def document(state: State, candidate: Id | None, problem: str, wall: Callable[[float], float]) -> dict[str, Any]:
    """The answer to /status. Hashes are the manifests'; `wall` makes the machine's time seconds since the epoch."""
    return {
        "phase": state.phase.value,
        "since": round(wall(state.since), 3),
        "candidate": candidate.config if candidate else None,
        "problem": problem or None,
        "accepted": state.accepted.config if state.accepted else None,
        "installed": state.installed.config if state.installed else None,
        "running": state.running.config if state.running and state.running == state.installed else None,
        "rejected": _rejected(state.rejected, wall) if state.rejected else None,
        "restart": state.restart or None,
    }


def _rejected(rejected: Rejected, wall: Callable[[float], float]) -> dict[str, Any]:
    return {
        "sha256": rejected.id.config,
        "stage": rejected.stage,
        "file": rejected.culprit.file,
        "line": rejected.culprit.line,
        "reason": rejected.culprit.reason,
        "final": rejected.final,
        "since": round(wall(rejected.since), 3),
    }


def ask_to_yield(host: str, port: int, key: bytes, now: float) -> str:
    """Ask another pod's sidecar to end its slurmctld if that leads; why it doesn't, else empty."""
    connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    try:
        token = sign(key, PRIMARY, 60, now)
        connection.request("POST", _YIELD, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        if answer.status == HTTPStatus.OK:
            return ""
        said = answer.read().decode(errors="replace")
        return f"{host} says {answer.status} {answer.reason} {said}".strip()
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"{host}: {error}"
    finally:
        connection.close()


class Server:
    """Serves the last `publish`ed state, in threads of its own. `key` gives jwt.key.

    `end` has slurmctld end if it leads, and says why it doesn't; empty if it does or doesn't lead.
    """

    def __init__(
        self, host: str, port: int, key: Callable[[], bytes], clock: Callable[[], float], end: Callable[[], str]
    ) -> None:
        self._key, self._clock, self._end = key, clock, end
        self._document: dict[str, Any] = {}
        self._start_gate: dict[str, Any] | None = None
        self._started = self._settled = False
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = _SECONDS

            def do_GET(self) -> None:
                self._reply(*outer.answer(self.path, self.headers.get("Authorization", "")))

            def do_POST(self) -> None:
                self._reply(*outer.carry_out(self.path, self.headers.get("Authorization", "")))

            def _reply(self, status: HTTPStatus, body: bytes) -> None:
                self.send_response_only(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """A kubelet's probes fill no log."""

        self._server = http.server.ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self._closed = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def publish(self, document: dict[str, Any]) -> None:
        """Have this served from now on."""
        self._document = document
        self._started = document["installed"] is not None
        self._settled = document["phase"] == Phase.SETTLED.value

    def publish_start_gate(self, state: startgate.State) -> None:
        """Have /status report this of the start gate. A pod without one never calls it."""
        self._start_gate = {"phase": state.phase.value, "problem": state.problem or None}

    def answer(self, path: str, authorization: str) -> tuple[HTTPStatus, bytes]:
        """Status and body for a GET."""
        if path == "/started":
            return (HTTPStatus.OK if self._started else HTTPStatus.SERVICE_UNAVAILABLE), b""
        if path != "/status":
            return HTTPStatus.NOT_FOUND, b""
        if not self._is(OPERATOR, authorization):
            return HTTPStatus.UNAUTHORIZED, b""
        return HTTPStatus.OK, json.dumps(self._document | {"startGate": self._start_gate}).encode()

    def carry_out(self, path: str, authorization: str) -> tuple[HTTPStatus, bytes]:
        """Status and body for a POST."""
        if path != _YIELD:
            return HTTPStatus.NOT_FOUND, b""
        if not self._is(PRIMARY, authorization):
            return HTTPStatus.UNAUTHORIZED, b""
        # slurmctld that ends while it takes a configuration would seem to die of it.
        why_not = self._end() if self._settled else "a configuration is being brought in"
        return (HTTPStatus.SERVICE_UNAVAILABLE if why_not else HTTPStatus.OK), json.dumps({"whyNot": why_not}).encode()

    def _is(self, user: str, authorization: str) -> bool:
        try:
            return user_of(authorization.removeprefix("Bearer ").strip(), self._key(), self._clock()) == user
        except OSError:
            return False

    def close(self) -> None:
        """End it; for a server on loopback."""
        self._closed = True
        with socket.create_connection(("127.0.0.1", self.port)):
            self._thread.join()
        self._server.server_close()

    def _serve(self) -> None:
        # Not serve_forever, which wakes up twice a second.
        while not self._closed:
            self._server.handle_request()
