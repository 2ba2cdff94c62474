"""The role `webhook`: answers the API server with the scheduling gate for new pods. It needs no
right in Kubernetes.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from sidecars.bridge.core.admission import NotAReviewError, answer
from sidecars.bridge.core.certificate import CERTIFICATE, KEY
from sidecars.bridge.settings import port
from sidecars.commandline import Parser
from sidecars.connections import Limits
from sidecars.program import log_to_stderr, stop_signal
from sidecars.serving import add_probes, serve

log = logging.getLogger(__name__)

PATH = "/gate"
LARGEST = 4 << 20
"""Bytes of a question. The API server accepts objects of 3 MiB."""
LIMITS = Limits(connections=512, in_flight=32 << 20)
"""API servers open a connection for each question that they send at the same time."""
QUESTION_SECONDS = 5.0
"""For which a client may send a question. It is what an API server waits for the answer."""
DRAIN_SECONDS = 5.0
"""For which questions are answered after SIGTERM, until API servers know that the pod is going."""
_HOST = ""
"""All addresses: API servers come by the pod's own."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one pod of the webhook."""

    certificate: Path
    """Folder with tls.crt and tls.key."""
    port: int = 8443
    log_level: str = "info"


def parse(arguments: Sequence[str]) -> Settings:
    """Read the flags; exits with a usage error for a bad one (argparse)."""
    parser = Parser(
        prog="slurm-sidecars webhook",
        description="Adds the scheduling gate of the Slurm Bridge to new pods.",
    )
    add = parser.add_argument
    add(
        "--certificate",
        required=True,
        type=Path,
        metavar="FOLDER",
        help="with tls.crt and tls.key; read again",
    )
    add("--port", default=8443, type=port, help="default: %(default)s")
    add("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    given = parser.parse_args(arguments)
    return Settings(given.certificate, given.port, given.log_level)


def main(arguments: Sequence[str]) -> int:
    """Serve; 0 after SIGTERM or SIGINT, 1 for a port or a certificate that can't be used."""
    settings = parse(arguments)
    log_to_stderr(settings.log_level)
    try:
        asyncio.run(run(settings))
    except OSError as error:  # ssl.SSLError is one
        log.error(
            "can't serve on port %d with the certificate in %s: %s",
            settings.port,
            settings.certificate,
            error,
        )
        return 1
    return 0


async def run(settings: Settings, host: str = _HOST) -> None:
    """Serve until SIGTERM or SIGINT, and DRAIN_SECONDS longer. Raises OSError."""
    stop = stop_signal()
    files = settings.certificate / CERTIFICATE, settings.certificate / KEY
    end = await serve(application(stop.is_set), host, settings.port, files, LIMITS)
    log.info("answering on port %d", settings.port)
    try:
        await stop.wait()
        await asyncio.sleep(DRAIN_SECONDS)
    finally:
        await end()


def application(stopping: Callable[[], bool] = lambda: False) -> web.Application:
    """Return the paths. While it stops, each answer ends its connection, so that another pod gets
    the next question.
    """

    async def gate(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(QUESTION_SECONDS):
                body = await request.read()
            response = web.json_response(answer(body))
        except TimeoutError:
            return web.Response(status=408, text="the question was not sent in time\n")
        except NotAReviewError as error:
            log.warning("refused a request from %s: %s", request.remote, error)
            return web.Response(status=400, text=f"{error}\n")
        if stopping():
            response.force_close()
        return response

    app = web.Application(client_max_size=LARGEST)
    app.router.add_post(PATH, gate)
    add_probes(app)
    return app
