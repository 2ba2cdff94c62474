"""Ways to a simulated Slurm: within the process, and over HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TypeVar

from aiohttp import web

from sidecars.simulate.model import SlurmModel
from sidecars.simulate.records import Reply
from sidecars.slurm.errors import Unreachable
from sidecars.slurm.protocol import (
    STATUS_NO_SUCH_ENDPOINT,
    TOKEN_HEADER,
    USER_HEADER,
    VERSIONS,
    Request,
    decode,
    versions_to_try,
)

T = TypeVar("T")


class ModelCarrier:
    """Carries a Poller's requests to a model within the process; time passes only for slow and
    missing answers.
    """

    def __init__(
        self, model: SlurmModel, *, timeout: float = 15.0, version: str = VERSIONS[0]
    ) -> None:
        self.model = model
        self.timeout = timeout
        self.version = version

    async def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        """Send a request, as `sidecars.slurm.client.Client.call` does."""
        seconds = self.timeout if timeout is None else timeout
        for version in versions_to_try(self.version):
            reply = self.model.handle(request.method, request.target(version), request.content())
            if reply.status != STATUS_NO_SUCH_ENDPOINT:
                break
        await asyncio.sleep(seconds if reply.delay is None else min(reply.delay, seconds))
        return answered(request, reply, seconds)


def answered(request: Request[T], reply: Reply, seconds: float) -> T:
    """Return the outcome of the reply for a client that waits at most `seconds`. Raises
    SlurmError.
    """
    if reply.delay is None or reply.delay >= seconds:
        raise Unreachable(str(request), f"no whole answer within {seconds:g} s")
    if reply.reset:
        raise Unreachable(str(request), "the connection ended without an answer")
    if reply.cut:
        raise Unreachable(str(request), "the answer was cut off")
    return decode(request, reply.status, reply.body)


@contextlib.asynccontextmanager
async def serve(model: SlurmModel, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """slurmrestd on this port (0: any free one); its URL. Raises OSError."""
    ended = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        reply = model.handle(
            request.method,
            request.raw_path,
            await request.read(),
            request.headers.get(TOKEN_HEADER),
            request.headers.get(USER_HEADER),
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(reply.delay):
                if reply.delay != 0:
                    await ended.wait()
        if reply.reset and request.transport is not None:
            request.transport.abort()
        if reply.cut:
            response = web.StreamResponse(
                status=reply.status, headers={"Content-Length": str(len(reply.body) + 1)}
            )
            await response.prepare(request)
            await response.write(reply.body[: len(reply.body) // 2])
            if request.transport is not None:
                request.transport.abort()
            return response
        if reply.status >= 400 and request.transport is not None:
            # As slurmrestd: the answer, and behind it the error's text as another one.
            request.transport.write(
                _raw(reply) + _raw(Reply(reply.status, b"the error", "text/plain"))
            )
            request.transport.close()
        return web.Response(status=reply.status, body=reply.body, content_type=reply.content_type)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    await site.start()
    try:
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        ended.set()
        await runner.cleanup()


def _raw(reply: Reply) -> bytes:
    head = (
        f"HTTP/1.1 {reply.status} X\r\nConnection: Close\r\nContent-Length: {len(reply.body)}\r\n"
    )
    return f"{head}Content-Type: {reply.content_type}\r\n\r\n".encode() + reply.body
