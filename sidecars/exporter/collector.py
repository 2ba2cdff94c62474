"""Reads each source on its own schedule and renders its samples; scrapes join what is rendered.

A source is read again after the interval, or after `SHARE` times as long as the last read took, so
that a slow slurmctld is asked less often. Its samples are withdrawn `FRESH_PERIODS` periods after
the last success. A list that lacks most of what it had is no success until it stays so (`doubt`).
Nodes and jobs are asked for changes, and each `FULL_EVERY` in full: a slurmctld whose clock was set
back reports no change until its time has passed that of the former answer.
"""

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sidecars.exporter import controller, families
from sidecars.exporter.checks import add_checks, read_checks
from sidecars.exporter.compatible import served
from sidecars.exporter.doubt import Doubt, Suspect
from sidecars.exporter.external import NoData, NoNodeSet
from sidecars.exporter.jobs import add_jobs
from sidecars.exporter.metrics import Family, Source
from sidecars.exporter.nodes import add_nodes
from sidecars.exporter.samples import Samples, page
from sidecars.exporter.settings import Settings
from sidecars.exporter.wanted import Wanted
from sidecars.exporter.wanted import read as read_cluster
from sidecars.slurm import protocol
from sidecars.slurm.carrier import Carrier
from sidecars.slurm.errors import (
    AuthenticationError,
    Malformed,
    NoToken,
    Refused,
    SlurmError,
    Unreachable,
)
from sidecars.slurm.news import read_news
from sidecars.slurm.usage import JobUsages, NodeUsages

T = TypeVar("T")
Offload = Callable[[Callable[[], None]], Awaitable[None]]

SHARE = 4.0
"""A source is read for at most a fifth of the time."""
FRESH_PERIODS = 3.0
FULL_EVERY = 600.0
"""Seconds between requests for everything."""
TIME_LIMITS = {Source.NODES: 60.0, Source.JOBS: 120.0}
"""Seconds for an answer. slurmrestd needs about a millisecond of CPU for each job."""
TIME_LIMIT = 15.0
KINDS = ("token", "unreachable", "refused", "malformed", "suspect", "internal")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _State:
    """What is known of one source."""

    doubt: Doubt
    value: Any = None
    """The last answer that counts."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the first read has ended, successful or not."""
    successful: bool = False
    """Whether the last read succeeded."""
    success_time: float | None = None
    """When the last success was asked for, in seconds since the epoch."""
    fresh_until: float = float("-inf")
    """Of the monotonic clock."""
    full_at: float = float("-inf")
    """When everything was last asked for, of the monotonic clock."""
    duration: float | None = None
    period: float = 0.0
    reads: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    blocks: Mapping[str, bytes] = field(default_factory=dict)
    unreadable: int = 0


class Collector:
    """Collects for one exporter. `clock` is monotonic seconds, `now` seconds since the epoch.

    `offload` runs what takes long, so that scrapes are answered meanwhile.
    """

    def __init__(
        self,
        client: Carrier,
        settings: Settings,
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
        offload: Offload = asyncio.to_thread,
    ) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._now = now
        self._offload = offload
        chosen = served(settings.families, settings.name_sets)
        absent = {Source.AUTOSCALING: not settings.nodesets, Source.CHECKS: settings.checks is None}
        self._metrics = [it for it in chosen if not absent.get(it.source)]
        needed = {metric.source for metric in self._metrics}
        if settings.nodesets:
            needed.add(Source.AUTOSCALING)
        if needed & {Source.NODES, Source.JOBS}:
            needed.add(Source.PARTITIONS)
        self.sources = tuple(source for source in Source if source in needed - {Source.NONE})
        self._states = {
            source: _State(Doubt(source), period=settings.interval) for source in self.sources
        }
        self._wanted = Wanted(settings.nodesets)
        self._jobs_dropped = 0
        self._version = 0
        self._pages: dict[bool, tuple[object, bytes]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    # --- collecting

    def start(self) -> None:
        """Collect in tasks of its own until `close`."""
        self._tasks = [
            asyncio.create_task(self._repeat(source), name=f"read {source}")
            for source in self.sources
        ]

    @property
    def healthy(self) -> bool:
        """Whether all tasks still run."""
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    async def close(self) -> None:
        """End the tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, source: Source) -> None:
        if source in (Source.NODES, Source.JOBS):
            # Their samples have zeros for partitions without nodes and jobs.
            await self._states[Source.PARTITIONS].ended.wait()
        while True:
            began = self._clock()
            await self.collect(source)
            await asyncio.sleep(max(0.0, began + self._states[source].period - self._clock()))

    async def collect(self, source: Source) -> None:
        """Read one source and render its samples. Never raises for a fault of Slurm's."""
        state = self._states[source]
        began, asked_at = self._clock(), self._now()
        try:
            if source is Source.CHECKS and self._settings.checks is not None:
                value: Any = read_checks(self._settings.checks, state.value, asked_at)
            else:
                full = state.doubt.raised or began - state.full_at >= FULL_EVERY
                value = await _READS[source](self._client, None if full else state.value)
                state.full_at = began if full else state.full_at
            state.doubt.check(state.value, value, began)
            await self._offload(functools.partial(self._render, source, value))
        except SlurmError as error:
            self._failed(source, _kind(error), error)
        except Exception as error:
            # A defect must not end the collection of everything else, nor pass unnoticed.
            log.exception("reading %s", source)
            self._failed(source, "internal", error)
        else:
            if state.errors and not state.successful:
                log.info("%s: slurmrestd answers again", source)
            state.value, state.successful, state.success_time = value, True, asked_at
        took = self._clock() - began
        state.reads += 1
        state.duration = took
        if state.successful:
            state.period = max(self._settings.interval, took * (1 + SHARE))
            state.fresh_until = began + FRESH_PERIODS * state.period
        else:
            # A read that ran into its time limit has cost slurmctld little, and the next may
            # succeed.
            state.period = took + self._settings.interval
        state.ended.set()
        self._version += 1

    def _failed(self, source: Source, kind: str, error: Exception) -> None:
        state = self._states[source]
        if state.successful or not state.errors[kind]:
            log.warning("%s: %s", source, error)
        state.successful = False
        state.errors[kind] += 1

    def _render(self, source: Source, value: Any) -> None:
        samples = Samples(metric for metric in self._metrics if metric.source is source)
        partitions = self._partitions()
        match source:
            case Source.NODES:
                add_nodes(samples, value.nodes, partitions)
            case Source.JOBS:
                most = self._settings.most_jobs
                self._jobs_dropped = add_jobs(
                    samples, value.jobs, partitions, now=self._now(), most_jobs=most
                )
            case Source.PARTITIONS:
                controller.add_partitions(samples, value)
            case Source.STATISTICS:
                controller.add_statistics(samples, value)
            case Source.LICENSES:
                controller.add_licenses(samples, value)
            case Source.RESERVATIONS:
                controller.add_reservations(samples, value, now=self._now())
            case Source.CHECKS:
                add_checks(samples, value)
            case Source.AUTOSCALING:
                self._wanted.decide(value, samples, self._now())
        state = self._states[source]
        state.blocks, state.unreadable = samples.blocks(), samples.unreadable

    def _partitions(self) -> tuple[str, ...]:
        state = self._states.get(Source.PARTITIONS)
        return tuple(it.name for it in state.value or ()) if state is not None else ()

    # --- serving

    def page(self, *, openmetrics: bool = False) -> tuple[object, bytes]:
        """Return the exposition, and a value that differs whenever the exposition does."""
        now = self._clock()
        fresh = frozenset(
            source for source in self.sources if now < self._states[source].fresh_until
        )
        key = (self._version, fresh)
        cached = self._pages.get(openmetrics)
        if cached is None or cached[0] != key:
            blocks = [self._states[source].blocks for source in self.sources if source in fresh]
            text = page((*blocks, self._own(fresh)), openmetrics=openmetrics)
            cached = self._pages[openmetrics] = (key, text)
        return cached

    def wanted(self, nodeset: str) -> tuple[int, float]:
        """Return the wanted replicas of a NodeSet, and when Slurm was read. Raises NoData and
        NoNodeSet.
        """
        names = [it.name for it in self._settings.nodesets]
        if nodeset not in names:
            raise NoNodeSet(
                f"the exporter computes nothing for NodeSet {nodeset!r}; it has {', '.join(names)}"
            )
        state = self._states[Source.AUTOSCALING]
        if state.success_time is None or self._clock() >= state.fresh_until:
            raise NoData(
                "Slurm's jobs and nodes are unknown or too old; see slurm_exporter_errors_total"
            )
        replicas = self._wanted.replicas.get(nodeset)
        if replicas is None:
            raise NoData(
                f"no node of NodeSet {nodeset} has registered yet, and its shape is not declared"
            )
        return replicas, state.success_time

    def _own(self, fresh: frozenset[Source]) -> Mapping[str, bytes]:
        samples = Samples(metric for metric in self._metrics if metric.source is Source.NONE)
        add = samples.add
        add(families.UP, int(all(state.successful for state in self._states.values())))
        for family in sorted(self._settings.families - {Family.EXPORTER}):
            sources = {metric.source for metric in self._metrics if metric.family is family}
            times = [self._states[source].success_time for source in sources]
            known = [time for time in times if time is not None]
            if known and len(known) == len(times):
                add(families.LAST_SUCCESS, min(known), family)
            if sources:
                add(families.STALE, int(not sources <= fresh), family)
        for source, state in self._states.items():
            if state.duration is not None:
                add(families.DURATION, state.duration, source)
            add(families.COLLECTIONS, state.reads, source)
            for kind in KINDS:
                add(families.ERRORS, state.errors[kind], source, kind)
            series = (
                sum(block.count(b"\n") for block in state.blocks.values()) if source in fresh else 0
            )
            add(families.SERIES, series, source)
            add(families.UNREADABLE, state.unreadable, source)
            add(families.INTERVAL, state.period, source)
        if Family.JOB in self._settings.families:
            add(families.JOBS_DROPPED, self._jobs_dropped)
        return samples.blocks()


def _kind(error: SlurmError) -> str:
    match error:
        case Suspect():
            return "suspect"
        case NoToken() | AuthenticationError():
            return "token"
        case Malformed():
            return "malformed"
        case Refused():
            return "refused"
    return "unreachable"


async def _read_nodes(client: Carrier, former: NodeUsages | None) -> NodeUsages:
    since = None if former is None else former.last_update
    answer = await read_news(
        client, protocol.get_node_usage, since, timeout=TIME_LIMITS[Source.NODES]
    )
    return _or_former(answer, former, "GET nodes/")


async def _read_jobs(client: Carrier, former: JobUsages | None) -> JobUsages:
    since = None if former is None else former.last_update
    answer = await read_news(
        client, protocol.get_job_usage, since, timeout=TIME_LIMITS[Source.JOBS]
    )
    return _or_former(answer, former, "GET jobs/")


def _or_former(answer: T | None, former: T | None, request: str) -> T:
    found = former if answer is None else answer
    if found is None:
        raise Unreachable(request, "it reports no change in answer to a request for everything")
    return found


_READS: Mapping[Source, Callable[[Carrier, Any], Awaitable[Any]]] = {
    Source.AUTOSCALING: read_cluster,
    Source.NODES: _read_nodes,
    Source.JOBS: _read_jobs,
    Source.PARTITIONS: lambda client, _: client.call(protocol.get_partitions(), timeout=TIME_LIMIT),
    Source.STATISTICS: lambda client, _: client.call(protocol.get_statistics(), timeout=TIME_LIMIT),
    Source.LICENSES: lambda client, _: client.call(protocol.get_licenses(), timeout=TIME_LIMIT),
    Source.RESERVATIONS: lambda client, _: client.call(
        protocol.get_reservation_usage(), timeout=TIME_LIMIT
    ),
}
