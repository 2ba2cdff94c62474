"""Requests to Slurm: everything as SlurmUser, but a submission as the tenant's user, with a token of one minute."""

import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from sidecars.slurm import protocol
from sidecars.slurm.carrier import Carrier
from sidecars.slurm.errors import NotFound, Rejected, Unreachable
from sidecars.slurm.external import ExternalRequest
from sidecars.slurm.protocol import Request

T = TypeVar("T")

SUBMIT_SECONDS = 30.0
"""After this time, a submission has arrived or never will."""

_SECONDS = 15.0
"""Of any other write."""
_JOB_ENDED = 2021
_MOST_USERS = 64
"""Connections of so many users are kept open."""

Connect = Callable[[str], contextlib.AbstractAsyncContextManager[Carrier]]
"""Opens a connection with tokens of a user."""


class Slurm:
    """`carrier` has SlurmUser's tokens, `connect` opens connections of other users.

    With 0 `seconds_left` or less, no write is sent: another bridge may lead.
    """

    def __init__(self, carrier: Carrier, connect: Connect, seconds_left: Callable[[], float]) -> None:
        self._carrier = carrier
        self._connect = connect
        self._left = seconds_left
        self._users: dict[str, Carrier] = {}
        self._open = contextlib.AsyncExitStack()

    async def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        """Send as SlurmUser. Raises SlurmError."""
        if request.method != "GET":
            timeout = self._guard(request, timeout)
        return await self._carrier.call(request, timeout=timeout)

    async def submit(self, user: str, components: Sequence[ExternalRequest]) -> int:
        """Submit one job as that user; its id. Raises SlurmError: unless it is Rejected, the job may exist."""
        request = protocol.submit_external(*components)
        timeout = self._guard(request, SUBMIT_SECONDS / 2)
        if user not in self._users:
            if len(self._users) >= _MOST_USERS:
                self._users.clear()
                await self._open.aclose()
            self._users[user] = await self._open.enter_async_context(self._connect(user))
        return await self._users[user].call(request, timeout=timeout)

    async def start(self, job_id: int, admin_comment: str) -> bool:
        """Let a held job start. A job that Slurm doesn't know is no error. Whether it knows it."""
        with contextlib.suppress(NotFound):
            await self.call(protocol.start_external(job_id, admin_comment))
            return True
        return False

    async def cancel(self, job_id: int) -> None:
        """Cancel a job. One that has ended, or that Slurm doesn't know, is no error."""
        try:
            await self.call(protocol.cancel_job(job_id))
        except NotFound:
            pass
        except Rejected as error:
            if _JOB_ENDED not in error.numbers:
                raise

    async def close(self) -> None:
        """End the connections of other users."""
        await self._open.aclose()

    def _guard(self, request: Request[T], timeout: float | None) -> float:
        left = self._left()
        if left <= 0:
            raise Unreachable(str(request), "not sent: this bridge does not lead")
        return min(left, _SECONDS if timeout is None else timeout)
