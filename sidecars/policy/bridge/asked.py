"""What a job requests by its record."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sidecars.slurm.external import ExternalJob


class Asked(NamedTuple):
    """What a job requests."""

    partitions: tuple[str, ...]
    tasks: int
    cpus: int
    """Of each task, as what follows."""
    memory: int
    """MiB."""
    gres: str


def asked_of(record: ExternalJob) -> Asked:
    """What the job requests by its record."""
    partitions = tuple(filter(None, record.partition.split(",")))
    return Asked(partitions, record.tasks, record.cpus_per_task, record.memory_per_task, record.gres_per_task)
