"""Serves an application over HTTP, or over TLS with a certificate that is renewed in place."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

log = logging.getLogger(__name__)

RELOAD_SECONDS = 10.0
"""Seconds between two looks at the certificate."""


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
