"""Lists that lack what they had count only when later ones lack it too. Pure: the caller passes
answers and times.

slurmrestd may answer with HTTP 200 and an empty list, or one that lacks most nodes, because
slurmctld has just started without its state. For how long is that of `sidecars.slurm.node_cache`,
by whose rule the operator decides as well.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from sidecars.exporter.metrics import Source
from sidecars.slurm.errors import SlurmError
from sidecars.slurm.node_cache import CONFIRM_AFTER, vanished_at_once
from sidecars.slurm.records import Partition, QueuedJobs
from sidecars.slurm.usage import JobUsages, NodeUsages

_UNFINISHED = frozenset({"PENDING", "RUNNING", "SUSPENDED"})


class Suspect(SlurmError):
    """A list that lacks too much to count yet."""


class Doubt:
    """Of one source: whether its answers count."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._since: float | None = None

    @property
    def raised(self) -> bool:
        """Whether the last answer did not count. Then ask for everything, and not for changes."""
        return self._since is not None

    def check(self, former: Any, found: Any, now: float) -> None:
        """Raise Suspect if `found` does not count. `former`: the last answer that did; None before
        the first.
        """
        why = next(_suspicions(self._source, former, found), "")
        if not why:
            self._since = None
            return
        if self._since is None:
            self._since = now
        if now - self._since < CONFIRM_AFTER:
            raise Suspect(
                f"reading {self._source}", f"{why}; such a list counts after {CONFIRM_AFTER:g} s"
            )
        self._since = None


def _suspicions(source: Source, former: Any, found: Any) -> Iterator[str]:
    """Yield the reasons to doubt the answer."""
    match source:
        case Source.NODES:
            yield from _nodes(None if former is None else _names(former), _names(found))
        case Source.JOBS:
            yield from _jobs(former, found)
        case Source.PARTITIONS:
            yield from _partitions(former, found)
        case Source.AUTOSCALING:
            known = None if former is None else {it.name for it in former.nodes}
            yield from _nodes(known, {it.name for it in found.nodes})
            yield from _jobs(former and former.queue, found.queue)
            yield from _partitions(former and former.partitions, found.partitions)


def _names(usages: NodeUsages) -> set[str]:
    return {it.node.name for it in usages.nodes}


def _nodes(former: set[str] | None, found: set[str]) -> Iterator[str]:
    if former is None:
        if not found:
            yield "it lists no node at all"
        return
    lost = len(former - found)
    if vanished_at_once(lost, len(former), left=len(found)):
        yield f"{lost} of {len(former)} nodes vanished at once"


def _jobs(former: JobUsages | QueuedJobs | None, found: JobUsages | QueuedJobs) -> Iterator[str]:
    # A job that ends stays in the list for MinJobAge. Where that is short, most jobs may vanish
    # between two reads.
    if former is not None and not found.jobs:
        unfinished = sum(1 for it in former.jobs if not _UNFINISHED.isdisjoint(it.states))
        if unfinished:
            yield f"it lists no job at all, and {unfinished} were not finished"


def _partitions(former: Sequence[Partition] | None, found: Sequence[Partition]) -> Iterator[str]:
    if former and not found:
        yield f"it lists no partition at all, and {len(former)} existed"
