"""A server in a process of its own, so that its work doesn't count as the client's."""

import asyncio
import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

from aiohttp import web

START_SECONDS = 120.0


@contextlib.contextmanager
def served(application: Callable[[], web.Application]) -> Iterator[str]:
    """Serve the result of `application` in another process, on loopback; the URL. It must be a
    function of a module.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(application, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START_SECONDS):
            raise TimeoutError(f"the server didn't start within {START_SECONDS:g} s")
        try:
            port = ours.recv()
        except EOFError:
            raise RuntimeError("the server ended before it served; see its output") from None
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.join()


def _serve(application: Callable[[], web.Application], port: Connection) -> None:
    async def serve() -> None:
        runner = web.AppRunner(application(), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(serve())
