"""All jobs of one Slurm cluster, read beside whoever asks for them.

On a large cluster that may take a minute, and with a slurmrestd that hangs until its deadline. So nobody waits for it
longer than `PATIENCE`: who doesn't get the jobs is told when they are there, and decides meanwhile as if any node might
hold one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sidecars.slurm.errors import NotYet, SlurmError, Unreachable
from sidecars.slurm.records import Job, Jobs

PATIENCE = 2.0
"""Seconds, from the beginning of the reading, for which askers wait."""

CACHE_FOR = 1.0
"""Seconds for which jobs are not read again."""

LATE_FOR = 10.0
"""Seconds for which they are not read again when that took longer than `PATIENCE`, so that who asked finds them."""


@dataclass(frozen=True, slots=True)
class JobList:
    """All jobs, as they were at `asked_at` (of the clock) or later."""

    jobs: tuple[Job, ...]
    asked_at: float


class JobLists:
    """Reads them by `read`, which gets the update time of the jobs known (None: of none); None when they are the same.

    `there` is called when a reading ends, well or not, for which somebody would not wait. `clock` is monotonic seconds.
    """

    def __init__(
        self,
        read: Callable[[int | None], Awaitable[Jobs | None]],
        clock: Callable[[], float],
        there: Callable[[], None],
    ) -> None:
        self._read = read
        self._clock = clock
        self._there = there
        self._known: Jobs | None = None
        self._last: JobList | None = None
        self._came_at = float("-inf")
        self._began_at = float("-inf")
        self._reading: asyncio.Task[JobList | SlurmError] | None = None
        self._left = False

    def recent(self, changed_at: float) -> JobList | None:
        """Jobs that needn't be read again: asked for a moment ago and not before `changed_at`, or just come late."""
        last, now = self._last, self._clock()
        if last is None:
            return None
        late = self._came_at - last.asked_at >= PATIENCE and now - self._came_at < LATE_FOR
        return last if late or (now - last.asked_at < CACHE_FOR and last.asked_at >= changed_at) else None

    async def get(self) -> JobList:
        """The jobs as they are now, by the reading under way or a new one. Raises SlurmError, NotYet among them."""
        if self._reading is None:
            self._began_at = self._clock()
            self._reading = asyncio.create_task(self._one_reading(), name="slurm jobs")
        reading = self._reading
        await asyncio.wait({reading}, timeout=max(0.0, self._began_at + PATIENCE - self._clock()))
        if not reading.done():
            self._left = True
            raise NotYet("GET jobs/", "the jobs are being read")
        if reading.cancelled():
            raise Unreachable("GET jobs/", "not read: shutting down")
        outcome = reading.result()
        if isinstance(outcome, SlurmError):
            raise outcome
        return outcome

    async def _one_reading(self) -> JobList | SlurmError:
        asked_at, known = self._clock(), self._known
        try:
            answer = await self._read(None if known is None else known.last_update)
        except SlurmError as error:
            return error
        else:
            self._known = answer or known or Jobs((), 0)
            self._last = JobList(self._known.jobs, asked_at)
            self._came_at = self._clock()
            return self._last
        finally:
            self._reading = None
            if self._left:
                self._left = False
                self._there()

    async def close(self) -> None:
        """End the reading; who waits for it is told so."""
        if self._reading is not None:
            self._left = False
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
