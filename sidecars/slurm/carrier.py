"""What sends the requests of `sidecars.slurm.protocol` in an event loop."""

from typing import Protocol, TypeVar

from sidecars.slurm.protocol import Request

T = TypeVar("T")


class Carrier(Protocol):
    """`sidecars.slurm.client.Client`, or a double."""

    async def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        """Send the request and decode its answer within `timeout` seconds. Raises SlurmError."""
