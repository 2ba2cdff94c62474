"""Requests that run in tasks of their own, so that no caller waits long for a slow slurmrestd.

All jobs of a large cluster may take a minute, and a slurmrestd that hangs uses up the whole
deadline of any request. A caller waits at most `PATIENCE`. After that it gets NotYet, is notified
when the request ends, and decides until then as if the answer was unknown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sidecars.slurm.errors import NotYet, SlurmError, Unreachable

T = TypeVar("T")

PATIENCE = 2.0
"""Seconds from the start of the request for which callers wait."""

CACHE_FOR = 1.0
"""Seconds for which an answer is not read again."""

LATE_FOR = 10.0
"""Seconds for which a late answer is not read again, so that the callers that left find it. Late:
after `PATIENCE`.
"""


class PendingRequest(Generic[T]):
    """One request in progress. `late` is called when it ends, successful or not, after a caller has
    left.
    """

    def __init__(
        self,
        what: str,
        send: Coroutine[Any, Any, T],
        clock: Callable[[], float],
        late: Callable[[], None],
    ) -> None:
        self._what = what
        self._clock = clock
        self._late = late
        self._caller_left = False
        self._began_at = clock()
        self._ended_at: float | None = None
        self._task: asyncio.Task[T | SlurmError] = asyncio.create_task(
            self._run(send), name=f"slurm {what}"
        )

    @property
    def ended(self) -> bool:
        """Whether the request has ended, successful or not."""
        return self._ended_at is not None

    def ended_before(self, at: float) -> bool:
        """Return whether the request had ended at that time of the clock."""
        return self._ended_at is not None and self._ended_at < at

    async def outcome(self, *, patience: float = PATIENCE) -> T:
        """Return the answer. Raises SlurmError, NotYet among them: after `patience` seconds since
        the request began.
        """
        await asyncio.wait(
            {self._task}, timeout=max(0.0, self._began_at + patience - self._clock())
        )
        if not self._task.done():
            self._caller_left = True
            raise NotYet(self._what, "waiting for an answer")
        if self._task.cancelled():
            raise Unreachable(self._what, "not known to be done: shutting down")
        outcome = self._task.result()
        if isinstance(outcome, SlurmError):
            raise outcome
        return outcome

    async def _run(self, send: Coroutine[Any, Any, T]) -> T | SlurmError:
        try:
            return await send
        except SlurmError as error:
            return error
        finally:
            self._ended_at = self._clock()
            if self._caller_left:
                self._late()

    async def close(self) -> None:
        """Cancel the request. Callers that wait get Unreachable."""
        self._caller_left = False
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A value that was read."""

    value: T
    asked_at: float
    """When it was asked for; the value is of that time of the clock or later."""
    arrived_at: float
    """When it arrived; the value is of that time or earlier."""


class CachedRead(Generic[T]):
    """Reads one thing on demand, at most once at a time.

    `read` gets the value of the last answer, None before the first. `clock` is monotonic seconds.
    `late` is called when a read ends, successful or not, after a caller has left. When `epoch`
    returns another number than before the last answer was asked for, that answer is forgotten.
    """

    def __init__(
        self,
        what: str,
        read: Callable[[T | None], Awaitable[T]],
        clock: Callable[[], float],
        late: Callable[[], None],
        epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        self._what = what
        self._read = read
        self._clock = clock
        self._late = late
        self._epoch = epoch
        self._last_epoch = epoch()
        self._last: Answer[T] | None = None
        self._pending: PendingRequest[Answer[T]] | None = None

    def recent(self, changed_at: float, since: float = float("-inf")) -> Answer[T] | None:
        """Return the last answer, if it need not be read again.

        That is an answer asked for within `CACHE_FOR` and after `changed_at`, or one that arrived
        late within `LATE_FOR`. None if it was asked for before `since`.
        """
        last, now = self._known(), self._clock()
        if last is None or last.asked_at < since:
            return None
        late = last.arrived_at - last.asked_at >= PATIENCE and now - last.arrived_at < LATE_FOR
        return (
            last
            if late or (now - last.asked_at < CACHE_FOR and last.asked_at >= changed_at)
            else None
        )

    async def get(self) -> Answer[T]:
        """Return the answer of the read in progress, or of a new one. Raises SlurmError, and NotYet
        among them.
        """
        if self._pending is None or self._pending.ended:
            self._pending = PendingRequest(self._what, self._once(), self._clock, self._late)
        return await self._pending.outcome()

    async def _once(self) -> Answer[T]:
        asked_at, epoch, last = self._clock(), self._epoch(), self._known()
        value = await self._read(None if last is None else last.value)
        self._last, self._last_epoch = Answer(value, asked_at, self._clock()), epoch
        return self._last

    def _known(self) -> Answer[T] | None:
        return self._last if self._last_epoch == self._epoch() else None

    async def close(self) -> None:
        """Cancel the read. Callers that wait get Unreachable."""
        if self._pending is not None:
            await self._pending.close()
