"""ConfigMaps on a real API server, and a reflector that follows them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from sidecars.kube import Manifest, Reflector, identity


def config_map(namespace: str, name: str, **data: str) -> Manifest:
    """A ConfigMap with this data."""
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait until the condition is true. AssertionError, naming `what`, when the time is over."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - other processes bring it about
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"waited {seconds:g} s for {what}") from None


@contextlib.asynccontextmanager
async def following(reflector: Reflector[Any]) -> AsyncIterator[list[tuple[str, str]]]:
    """Run the reflector while the block runs; its events so far as (kind, name)."""
    seen: list[tuple[str, str]] = []
    reflector.store.subscribe(
        lambda event: seen.append((event.kind, identity(event.object).key.name))
    )
    task = asyncio.create_task(reflector.run())
    try:
        await reflector.wait_synced(60)
        yield seen
    finally:
        assert not task.done()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
