"""Serves an application over HTTP, or over TLS with a certificate that is renewed in place, within
`Limits`.
"""

import asyncio
import logging
import ssl
from asyncio import sslproto
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web
from aiohttp.http import HttpProcessingError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from sidecars.connections import (
    HEADER_SECONDS,
    IDLE_SECONDS,
    UNREAD_SECONDS,
    Connection,
    Connections,
    Limits,
)

log = logging.getLogger(__name__)
requests_log = logging.getLogger(f"{__name__}.requests")

RELOAD_SECONDS = 10.0
"""Seconds between two looks at the certificate."""
BUFFER = 16 << 10
"""Bytes that are read at once, which is a record of TLS. asyncio reserves 256 KiB for each
connection with TLS.
"""
_LINGER_SECONDS = 5.0
"""For which the rest of a refused request is read, so that its client sees the answer."""
_BACKLOG = 128
DEFAULT = Limits()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Certificate = tuple[Path, Path]
"""Files: the certificate, and its key."""


def add_probes(
    app: web.Application, fault: Callable[[], str] = str, problem: Callable[[], str] = str
) -> None:
    """Answer a kubelet, at /healthz with `fault`: why the program has to be restarted, and at
    /readyz with `problem`: why it can't be used. "" while nothing is wrong.
    """
    for path, why in (("/healthz", fault), ("/readyz", problem)):
        app.router.add_get(path, _probe(why))


def _probe(why: Callable[[], str]) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        text = why()
        return web.Response(status=503 if text else 200, text=f"{text or 'ok'}\n")

    return answer


async def measurements(_: web.Request) -> web.Response:
    """Answer Prometheus with the metrics of this process."""
    return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def serve(
    app: web.Application,
    host: str | None,
    port: int,
    tls: Certificate | ssl.SSLContext | None,
    limits: Limits = DEFAULT,
    *,
    clients: str = "",
) -> Callable[[], Awaitable[None]]:
    """Serve until the returned function is called. Raises OSError for a port or a certificate that
    can't be used.

    `host`: None or "" for all addresses of IPv4 and IPv6 that this host has.
    `clients`: an authority as PEM, if only clients with a certificate of it are served over TLS.
    """
    loop = asyncio.get_running_loop()
    context = tls if isinstance(tls, ssl.SSLContext) else None
    reloading: asyncio.Task[None] | None = None
    if isinstance(tls, tuple):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*tls)
        if clients:
            context.load_verify_locations(cadata=clients)
            context.verify_mode = ssl.CERT_REQUIRED
            # The authorities of Kubernetes clusters are older than this check, which is Python's
            # default from 3.13 on.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        reloading = asyncio.create_task(_reload(context, tls), name="reload the certificate")
    connections = Connections(limits, loop.time)
    tracks: dict[asyncio.BaseProtocol, _Track] = {}

    @web.middleware
    async def tracked(request: web.Request, handler: Handler) -> web.StreamResponse:
        track = tracks.get(request.protocol)
        if track is None:
            return web.Response()  # its connection has just ended
        track.begins()
        try:
            return await handler(request)
        except web.RequestPayloadError:
            refusal = web.Response(status=400, text="the body can't be read\n")
            refusal.force_close()
            return refusal
        except ConnectionError:
            if request.transport is not None and not request.transport.is_closing():
                raise
            return web.Response()  # to nobody: a client that ends its connection fills no log
        finally:
            track.answered()

    app.middlewares.insert(0, tracked)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=requests_log,
        keepalive_timeout=IDLE_SECONDS,
        lingering_time=_LINGER_SECONDS,
        read_bufsize=BUFFER,
    )
    await runner.setup()
    make = runner.server
    assert make is not None  # noqa: S101 - after its setup
    buffer = memoryview(bytearray(BUFFER))

    def accept() -> asyncio.BufferedProtocol:
        handler = make()
        track = _Track(connections, lambda: tracks.pop(handler, None))
        tracks[handler] = track
        return (
            _Plain(handler, track, buffer)
            if context is None
            else _Encrypted(loop, handler, context, track)
        )

    try:
        listening = await loop.create_server(accept, host or None, port, backlog=_BACKLOG)
    except OSError:
        await runner.cleanup()
        raise

    async def end() -> None:
        if reloading is not None:
            reloading.cancel()
        listening.close()
        await runner.cleanup()
        connections.end_all()

    return end


class _Track:
    """What one protocol reports of its connection."""

    def __init__(self, connections: Connections, forget: Callable[[], object]) -> None:
        self._connections, self._forget = connections, forget
        self._connection: Connection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    def opened(self, transport: asyncio.BaseTransport) -> None:
        """Note that the client has connected, without anything of TLS yet."""
        address = (transport.get_extra_info("peername") or ("",))[0]
        end = transport.abort if isinstance(transport, asyncio.Transport) else transport.close
        connection = self._connection = self._connections.opened(address, end)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HEADER_SECONDS, self._connections.end_silent, connection)

    def received(self, count: int) -> None:
        """Note that bytes have arrived."""
        if self._connection is not None:
            self._connections.received(self._connection, count)

    def begins(self) -> None:
        """Note that a request has arrived with all its headers."""
        if self._connection is not None:
            self._connections.begins(self._connection)

    def answered(self) -> None:
        """Note that the request is answered."""
        if self._connection is not None:
            self._connections.answered(self._connection)

    def stuck(self) -> None:
        """Note that the client doesn't take what it is sent."""
        if self._connection is not None:
            self._connections.stuck(self._connection)
            self._unread_timer = asyncio.get_running_loop().call_later(
                UNREAD_SECONDS, self._connections.end_stuck, self._connection
            )

    def flows(self) -> None:
        """Note that the client has taken most of what it was sent."""
        if self._connection is not None:
            self._connections.flows(self._connection)
        if self._unread_timer is not None:
            self._unread_timer.cancel()

    def closed(self) -> None:
        """Note that the connection has ended."""
        if self._connection is not None:
            self._connections.closed(self._connection)
        for timer in (self._timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        self._forget()


class _Plain(asyncio.BufferedProtocol):
    """HTTP. All connections are read into one buffer, because what is read is handled at once."""

    def __init__(self, handler: asyncio.Protocol, track: _Track, buffer: memoryview) -> None:
        self._handler, self._track, self._buffer = handler, track, buffer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._track.opened(transport)
        self._handler.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._track.received(nbytes)
        self._handler.data_received(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool | None:
        return self._handler.eof_received()

    def pause_writing(self) -> None:
        self._track.stuck()
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._track.flows()
        self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._track.closed()
        self._handler.connection_lost(exc)


class _Encrypted(sslproto.SSLProtocol):
    """HTTP over TLS, as of `create_server(ssl=...)`, but counted from the first byte, and with a
    small buffer.
    """

    max_size = BUFFER

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: asyncio.Protocol,
        context: ssl.SSLContext,
        track: _Track,
    ) -> None:
        self._track = track
        handshake = loop.create_future()
        handshake.add_done_callback(lambda it: it.cancelled() or it.exception())
        super().__init__(
            loop,
            handler,
            context,
            handshake,
            server_side=True,
            ssl_handshake_timeout=HEADER_SECONDS,
        )
        self._app_transport.set_read_buffer_limits(BUFFER)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._track.opened(transport)
        super().connection_made(transport)

    def buffer_updated(self, nbytes: int) -> None:
        self._track.received(nbytes)
        super().buffer_updated(nbytes)

    def pause_writing(self) -> None:
        self._track.stuck()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._track.flows()
        super().resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._track.closed()
        super().connection_lost(exc)


class _OfTheServer(logging.Filter):
    """Records that no client alone is responsible for: any number of bytes that are no request
    fills no log.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


requests_log.addFilter(_OfTheServer())


async def _reload(context: ssl.SSLContext, certificate: Certificate) -> None:
    """Have new connections use a certificate that was renewed in place."""
    seen = _times(certificate)
    while True:
        await asyncio.sleep(RELOAD_SECONDS)
        times = _times(certificate)
        if times != seen:
            try:
                context.load_cert_chain(*certificate)
                seen = times
            except OSError as error:  # ssl.SSLError is one
                log.warning("the renewed certificate %s can't be used: %s", certificate[0], error)


def _times(certificate: Certificate) -> tuple[int, ...]:
    try:
        return tuple(path.stat().st_mtime_ns for path in certificate)
    except OSError:
        return ()
