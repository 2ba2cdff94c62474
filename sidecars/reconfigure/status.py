"""What the sidecar tells: `GET /status` for the operator, `GET /started` for the kubelet.

/status wants a bearer token that is signed with the cluster's jwt.key for the user OPERATOR, which no user of Slurm can
be, so that the token serves nowhere else, and no token of Slurm serves here. The answer holds no file's content but the
word or line that slurmctld stumbled over.
"""

import http.server
import json
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from sidecars.reconfigure.fileset import Id
from sidecars.reconfigure.machine import Rejected, State
from sidecars.slurm.tokens import user_of

OPERATOR = "@slurm-operator"
PORT = 6816
_SECONDS = 5.0


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


class Server:
    """Serves the last `publish`ed state, in threads of its own. `key` gives jwt.key."""

    def __init__(self, host: str, port: int, key: Callable[[], bytes], clock: Callable[[], float]) -> None:
        self._body = b"{}"
        self._started = False
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = _SECONDS

            def do_GET(self) -> None:
                status, body = outer.answer(self.path, self.headers.get("Authorization", ""), key, clock())
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
        self._body = json.dumps(document).encode()
        self._started = document["installed"] is not None

    def answer(self, path: str, authorization: str, key: Callable[[], bytes], now: float) -> tuple[HTTPStatus, bytes]:
        """Status and body for a request."""
        if path == "/started":
            return (HTTPStatus.OK if self._started else HTTPStatus.SERVICE_UNAVAILABLE), b""
        if path != "/status":
            return HTTPStatus.NOT_FOUND, b""
        try:
            user = user_of(authorization.removeprefix("Bearer ").strip(), key(), now)
        except OSError:
            user = None
        return (HTTPStatus.OK, self._body) if user == OPERATOR else (HTTPStatus.UNAUTHORIZED, b"")

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
