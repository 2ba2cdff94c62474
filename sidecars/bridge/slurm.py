"""Requests to Slurm: everything as SlurmUser, but a submission as the tenant's user, with a token
of one minute.
"""

import asyncio
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
"""Connections of so many users are kept open, and those of all with a submission that is not
answered yet.
"""

Connect = Callable[[str], contextlib.AbstractAsyncContextManager[Carrier]]
"""Opens a connection with tokens of a user."""


class _Connection:
    """With tokens of one user."""

    def __init__(self) -> None:
        self.open = contextlib.AsyncExitStack()
        self.opening = asyncio.Lock()
        self.carrier: Carrier | None = None
        self.submissions = 0
        """That wait for their answer."""


class Slurm:
    """`carrier` has SlurmUser's tokens, `connect` opens connections of other users.

    With 0 `seconds_left` or less, no write is sent: another bridge may lead.
    """

    def __init__(
        self, carrier: Carrier, connect: Connect, seconds_left: Callable[[], float]
    ) -> None:
        self._carrier = carrier
        self._connect = connect
        self._left = seconds_left
        self._users: dict[str, _Connection] = {}
        """Those that were used last come last."""

    async def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        """Send as SlurmUser. Raises SlurmError."""
        if request.method != "GET":
            timeout = self._guard(request, timeout)
        return await self._carrier.call(request, timeout=timeout)

    async def submit(self, user: str, components: Sequence[ExternalRequest]) -> int:
        """Submit one job as that user; its id. Raises SlurmError: unless it is Rejected, the job
        may exist.
        """
        request = protocol.submit_external(*components)
        timeout = self._guard(request, SUBMIT_SECONDS / 2)
        connection = self._users.pop(user, None)
        if connection is None:
            connection = _Connection()
        self._users[user] = connection
        connection.submissions += 1
        try:
            async with connection.opening:
                if connection.carrier is None:
                    connection.carrier = await connection.open.enter_async_context(
                        self._connect(user)
                    )
            return await connection.carrier.call(request, timeout=timeout)
        finally:
            connection.submissions -= 1
            await self._close_some()

    async def start(self, job_id: int, admin_comment: str, priority: int = 0) -> bool:
        """Let a held job start, with a priority if one is given. A job that Slurm doesn't know is
        no error. Whether it knows it.
        """
        with contextlib.suppress(NotFound):
            try:
                await self.call(protocol.start_external(job_id, admin_comment))
            finally:
                await self._prioritize(job_id, priority)
            return True
        return False

    async def start_again(self, job_id: int, admin_comment: str, priority: int = 0) -> None:
        """Have Slurm look again at a job that no node fitted, and give it its priority again:
        Slurm has computed one. If no node fits now, or the job is gone, it is no error.
        """
        with contextlib.suppress(NotFound, Rejected):
            await self.call(protocol.start_again(job_id, admin_comment))
            await self._prioritize(job_id, priority)

    async def _prioritize(self, job_id: int, priority: int) -> None:
        # Slurm refuses it for a held job, which this is none if no node fits it. One that has begun
        # needs none.
        if priority:
            with contextlib.suppress(Rejected):
                await self.call(protocol.set_priority(job_id, priority))

    async def note(self, job_id: int, admin_comment: str) -> None:
        """Write the admin comment of a job. One that Slurm doesn't know is no error."""
        with contextlib.suppress(NotFound):
            await self.call(protocol.start_again(job_id, admin_comment))

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
        for connection in self._users.values():
            await connection.open.aclose()
        self._users.clear()

    async def _close_some(self) -> None:
        """Close connections that are not in use, in the order of their last use, until few enough
        are left.
        """
        idle = [user for user, it in self._users.items() if not it.submissions]
        closed = [self._users.pop(user) for user in idle[: max(0, len(self._users) - _MOST_USERS)]]
        for connection in closed:
            await connection.open.aclose()

    def _guard(self, request: Request[T], timeout: float | None) -> float:
        left = self._left()
        if left <= 0:
            raise Unreachable(str(request), "not sent: this bridge does not lead")
        return min(left, _SECONDS if timeout is None else timeout)
