"""What is read only when it is needed (jobs, partitions, reservations), and changes of
reservations.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sidecars.slurm import protocol
from sidecars.slurm.carrier import Carrier
from sidecars.slurm.errors import NotYet, SlurmError
from sidecars.slurm.news import read_news
from sidecars.slurm.node_cache import NodeCache
from sidecars.slurm.pending import CACHE_FOR, LATE_FOR, Answer, CachedRead, PendingRequest
from sidecars.slurm.protocol import Request
from sidecars.slurm.records import Jobs, Partition, QueuedJobs, Reservation
from sidecars.slurm.usage import License

T = TypeVar("T")

JOBS_WITHIN = 120.0
"""Deadline in seconds for reading all jobs: slurmrestd needs about a millisecond of CPU for each.
"""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _PendingChange:
    """A change of a reservation that is in progress, or whose outcome no caller has got yet."""

    request: Request[None]
    pending: PendingRequest[None]


class OnDemand:
    """Reads of one cluster on demand.

    `guard` raises SlurmError for a request that must not be sent. `late` is called when a request
    ends after a caller has left, `wake` after a change of a reservation.

    All methods raise SlurmError; NotYet for a request that takes longer than
    `sidecars.slurm.pending.PATIENCE`. Its answer is then used for a while although it is old.
    """

    def __init__(
        self,
        client: Carrier,
        clock: Callable[[], float],
        cache: NodeCache,
        guard: Callable[[Request[Any]], None],
        late: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        self._client = client
        self._clock = clock
        self._cache = cache
        self._guard = guard
        self._late = late
        self._wake = wake
        self._jobs = CachedRead("GET jobs/", self._read_jobs, clock, late, self._reversals)
        self._queue = CachedRead("GET jobs/", self._read_queue, clock, late, self._reversals)
        self._partitions = CachedRead("GET partitions/", self._read_partitions, clock, late)
        self._reservations = CachedRead("GET reservations/", self._read_reservations, clock, late)
        self._licenses = CachedRead("GET licenses/", self._read_licenses, clock, late)
        self._changes: dict[str, _PendingChange] = {}
        self._reserved_at = float("-inf")

    async def jobs(self) -> Answer[Jobs]:
        """Return all jobs, read within the last second and after the last change of a node, unless
        the answer was late. Compare a late answer with `NodeCache.changed_after`.
        """
        changed_at = self._cache.last_change
        recent = self._jobs.recent(changed_at)
        if recent is not None:
            return recent
        self._guard(protocol.get_jobs())
        answer = await self._jobs.get()
        # The read in progress may have begun before the change.
        return answer if answer.asked_at >= changed_at else await self._jobs.get()

    async def queue(self) -> Answer[QueuedJobs]:
        """Return all jobs with what pending ones request, read within the last second, unless the
        answer was late. The value is the same object as that of the former answer if no job has
        changed.
        """
        recent = self._queue.recent(float("-inf"))
        if recent is not None:
            return recent
        self._guard(protocol.get_queue())
        return await self._queue.get()

    async def partitions(self, since: float) -> tuple[Partition, ...]:
        """Return all partitions, as they were at `since` (of the clock) or later."""
        return await self._asked_since(since, self._partitions, protocol.get_partitions())

    async def reservations(self) -> tuple[Reservation, ...]:
        """Return all reservations, including our own changes."""
        return await self._asked_since(
            self._reserved_at, self._reservations, protocol.get_reservations()
        )

    async def licenses(self) -> tuple[License, ...]:
        """Return all licenses, read within the last second, unless the answer was late."""
        return await self._asked_since(
            self._clock() - CACHE_FOR, self._licenses, protocol.get_licenses()
        )

    async def reserve(self, name: str, request: Request[None]) -> None:
        """Create, change or delete the reservation of that name.

        After NotYet, call it again with the same request to get its outcome.
        """
        change = self._changes.get(name)
        if change is not None and change.request != request:
            try:
                await change.pending.outcome()
            except NotYet:
                raise
            except SlurmError as error:
                log.debug("reservation %s: an earlier change failed: %s", name, error)
            change = None
        if change is None or change.pending.ended_before(self._clock() - LATE_FOR):
            self._guard(request)
            pending = PendingRequest(str(request), self._reserve(request), self._clock, self._late)
            change = self._changes[name] = _PendingChange(request, pending)
        try:
            await change.pending.outcome()
        finally:
            if change.pending.ended:
                self._changes.pop(name, None)

    async def close(self) -> None:
        """Cancel all requests. Callers that wait get Unreachable."""
        reads = self._jobs, self._queue, self._partitions, self._reservations, self._licenses
        for read in reads:
            await read.close()
        for change in tuple(self._changes.values()):
            await change.pending.close()

    async def _asked_since(self, since: float, read: CachedRead[T], request: Request[T]) -> T:
        answer = read.recent(since, since)
        if answer is None:
            self._guard(request)
            answer = await read.get()
        # The read in progress may have begun before `since`.
        return answer.value if answer.asked_at >= since else (await read.get()).value

    async def _read_jobs(self, former: Jobs | None) -> Jobs:
        since = None if former is None else former.last_update
        answer = await read_news(self._client, protocol.get_jobs, since, timeout=JOBS_WITHIN)
        return answer or former or Jobs((), 0)

    async def _read_queue(self, former: QueuedJobs | None) -> QueuedJobs:
        answer = await read_news(self._client, protocol.get_queue, former, timeout=JOBS_WITHIN)
        return answer or former or QueuedJobs((), 0)

    def _reversals(self) -> int:
        return self._cache.reversals

    async def _read_partitions(self, _: tuple[Partition, ...] | None) -> tuple[Partition, ...]:
        return await self._client.call(protocol.get_partitions())

    async def _read_reservations(
        self, _: tuple[Reservation, ...] | None
    ) -> tuple[Reservation, ...]:
        return await self._client.call(protocol.get_reservations())

    async def _read_licenses(self, _: tuple[License, ...] | None) -> tuple[License, ...]:
        return await self._client.call(protocol.get_licenses())

    async def _reserve(self, request: Request[None]) -> None:
        try:
            await self._client.call(request)
        finally:
            self._reserved_at = self._clock()
            self._wake()
