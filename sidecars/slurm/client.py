"""The aiohttp carrier of `sidecars.slurm.protocol`, for operator and exporter."""

from types import TracebackType
from typing import Self, TypeVar

from sidecars.slurm.protocol import Request
from sidecars.slurm.tokens import TokenSource

T = TypeVar("T")


class Client:
    """Calls one slurmrestd over kept connections. Use as `async with Client(url, tokens) as client`."""

    def __init__(self, url: str, tokens: TokenSource, *, timeout: float = 10.0, concurrency: int = 8) -> None:
        raise NotImplementedError

    async def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        """Carry the request and decode its answer within `timeout` seconds. Raises SlurmError."""
        raise NotImplementedError

    async def close(self) -> None:
        """End the connections."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
