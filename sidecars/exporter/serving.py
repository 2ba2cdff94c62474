"""What the exporter serves: /metrics, /healthz and /readyz on one port, plain or over TLS."""

import asyncio
import logging
import ssl
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from sidecars.exporter.collector import Collector

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
RELOAD_SECONDS = 60.0
"""Between two looks at the certificate."""
_FAST = 1  # zlib's level: pages are repetitive, and a scrape waits for it
_GZIP = 31  # zlib's wbits

log = logging.getLogger(__name__)


class Pages:
    """The collector's pages, compressed at most once each."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._compressed: dict[bool, tuple[object, bytes]] = {}
        self._compressing = asyncio.Lock()

    async def get(self, *, openmetrics: bool, gzip: bool) -> bytes:
        """The page in this format."""
        if not gzip:
            return self._collector.page(openmetrics=openmetrics)[1]
        async with self._compressing:
            key, text = self._collector.page(openmetrics=openmetrics)
            cached = self._compressed.get(openmetrics)
            if cached is None or cached[0] != key:
                body = await asyncio.to_thread(zlib.compress, text, _FAST, _GZIP)
                cached = self._compressed[openmetrics] = (key, body)
            return cached[1]


def application(collector: Collector) -> web.Application:
    """The paths."""
    pages = Pages(collector)

    async def metrics(request: web.Request) -> web.Response:
        _, chosen = choose_encoder(request.headers.get("Accept", ""))
        openmetrics = chosen.startswith("application/openmetrics-text")
        gzip = "gzip" in request.headers.get("Accept-Encoding", "")
        headers = {"Content-Type": OPENMETRICS if openmetrics else TEXT, "Vary": "Accept, Accept-Encoding"}
        if gzip:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=await pages.get(openmetrics=openmetrics, gzip=gzip), headers=headers)

    async def healthy(_: web.Request) -> web.Response:
        if collector.healthy:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="a collecting task has ended; see the log\n")

    async def ready(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthy)
    app.router.add_get("/readyz", ready)
    return app


async def serve(
    app: web.Application, host: str, port: int, certificate: tuple[Path, Path] | None
) -> Callable[[], Awaitable[None]]:
    """Serve until the returned function is called. Raises OSError for a port or a certificate that can't be used."""
    context = None if certificate is None else ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    reloading: asyncio.Task[None] | None = None
    if context is not None and certificate is not None:
        context.load_cert_chain(*certificate)
        reloading = asyncio.create_task(_reload(context, certificate), name="reload the certificate")
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port, ssl_context=context).start()

    async def end() -> None:
        if reloading is not None:
            reloading.cancel()
        await runner.cleanup()

    return end


async def _reload(context: ssl.SSLContext, certificate: tuple[Path, Path]) -> None:
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


def _times(certificate: tuple[Path, Path]) -> tuple[int, ...]:
    try:
        return tuple(path.stat().st_mtime_ns for path in certificate)
    except OSError:
        return ()
