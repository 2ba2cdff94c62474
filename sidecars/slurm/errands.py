"""Requests that are carried beside whoever asks for them, so that nobody waits for a slow slurmrestd.

All jobs of a large cluster may take a minute, and with a slurmrestd that hangs anything takes its whole deadline. So
nobody waits longer than `PATIENCE`: who leaves before is told when it is over, and decides meanwhile as if nothing was
known.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sidecars.slurm.errors import NotYet, SlurmError, Unreachable

T = TypeVar("T")

PATIENCE = 2.0
"""Seconds, from the beginning of the request, for which askers wait."""

CACHE_FOR = 1.0
"""Seconds for which something is not read again."""

LATE_FOR = 10.0
"""Seconds for which it is not asked again when that took longer than `PATIENCE`, so that who asked finds the answer."""


class Errand(Generic[T]):
    """One request under way. `over` is called at its end, well or not, when somebody would not wait for that."""

    def __init__(
        self, what: str, carry: Coroutine[Any, Any, T], clock: Callable[[], float], over: Callable[[], None]
    ) -> None:
        self._what = what
        self._clock = clock
        self._over = over
        self._left = False
        self._began_at = clock()
        self._ended_at: float | None = None
        self._task: asyncio.Task[T | SlurmError] = asyncio.create_task(self._run(carry), name=f"slurm {what}")

    @property
    def ended(self) -> bool:
        """Whether it is over, well or not."""
        return self._ended_at is not None

    def ended_before(self, at: float) -> bool:
        """Whether it was over at that time of the clock."""
        return self._ended_at is not None and self._ended_at < at

    async def outcome(self) -> T:
        """What came of it. Raises SlurmError, NotYet among them."""
        patience = max(0.0, self._began_at + PATIENCE - self._clock())
        await asyncio.wait({self._task}, timeout=patience)
        if not self._task.done():
            self._left = True
            raise NotYet(self._what, "an answer is waited for")
        if self._task.cancelled():
            raise Unreachable(self._what, "not known to be done: shutting down")
        outcome = self._task.result()
        if isinstance(outcome, SlurmError):
            raise outcome
        return outcome

    async def _run(self, carry: Coroutine[Any, Any, T]) -> T | SlurmError:
        try:
            return await carry
        except SlurmError as error:
            return error
        finally:
            self._ended_at = self._clock()
            if self._left:
                self._over()

    async def close(self) -> None:
        """End it; who waits for it is told so."""
        self._left = False
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What was read, as it was at `asked_at` (of the clock) or later."""

    value: T
    asked_at: float


class Reading(Generic[T]):
    """Reads by `read`, which gets what was read before (None: nothing). `clock` is monotonic seconds.

    `there` is called when a reading ends, well or not, for which somebody would not wait.
    """

    def __init__(
        self,
        what: str,
        read: Callable[[T | None], Awaitable[T]],
        clock: Callable[[], float],
        there: Callable[[], None],
    ) -> None:
        self._what = what
        self._read = read
        self._clock = clock
        self._there = there
        self._last: Answer[T] | None = None
        self._came_at = float("-inf")
        self._errand: Errand[Answer[T]] | None = None

    def recent(self, changed_at: float, since: float = float("-inf")) -> Answer[T] | None:
        """What needn't be read again: asked for a moment ago and not before `changed_at`, or just come late; in any
        case not asked for before `since`.
        """
        last, now = self._last, self._clock()
        if last is None or last.asked_at < since:
            return None
        late = self._came_at - last.asked_at >= PATIENCE and now - self._came_at < LATE_FOR
        return last if late or (now - last.asked_at < CACHE_FOR and last.asked_at >= changed_at) else None

    async def get(self) -> Answer[T]:
        """As it is now, by the reading under way or a new one. Raises SlurmError, NotYet among them."""
        if self._errand is None or self._errand.ended:
            self._errand = Errand(self._what, self._once(), self._clock, self._there)
        return await self._errand.outcome()

    async def _once(self) -> Answer[T]:
        asked_at = self._clock()
        value = await self._read(None if self._last is None else self._last.value)
        self._last, self._came_at = Answer(value, asked_at), self._clock()
        return self._last

    async def close(self) -> None:
        """End the reading; who waits for it is told so."""
        if self._errand is not None:
            await self._errand.close()
