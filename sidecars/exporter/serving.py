"""What the exporter serves: /metrics, /healthz and /readyz on one port, plain or over TLS."""

import asyncio
import zlib

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from sidecars.exporter.collector import Collector
from sidecars.serving import add_probes

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_FAST = 1  # zlib's level: pages are repetitive, and a scrape waits for it
_GZIP = 31  # zlib's wbits


class Pages:
    """The collector's pages, compressed at most once each."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._compressed: dict[bool, tuple[object, bytes]] = {}
        self._compressing = asyncio.Lock()

    async def get(self, *, openmetrics: bool, gzip: bool) -> bytes:
        """Return the page in this format."""
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
    """Return the paths."""
    pages = Pages(collector)

    async def metrics(request: web.Request) -> web.Response:
        _, chosen = choose_encoder(request.headers.get("Accept", ""))
        openmetrics = chosen.startswith("application/openmetrics-text")
        gzip = "gzip" in request.headers.get("Accept-Encoding", "")
        headers = {
            "Content-Type": OPENMETRICS if openmetrics else TEXT,
            "Vary": "Accept, Accept-Encoding",
        }
        if gzip:
            headers["Content-Encoding"] = "gzip"
        return web.Response(
            body=await pages.get(openmetrics=openmetrics, gzip=gzip), headers=headers
        )

    def fault() -> str:
        return "" if collector.healthy else "a collecting task has ended; see the log"

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    add_probes(app, fault)
    return app
