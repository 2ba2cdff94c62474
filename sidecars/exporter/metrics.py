"""What describes a metric: its family, its source, whose name it has, its kind, labels and unit."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class NameSet(StrEnum):
    """Whose names a metric follows."""

    OWN = "own"
    """This product's."""
    REFERENCE = "reference"
    """Those of SchedMD's slurm-exporter, with its values and units."""
    VPENSO = "vpenso"
    """Those of vpenso's prometheus-slurm-exporter, with its values and units."""


class Source(StrEnum):
    """What is read from Slurm, each with its own request, schedule and age."""

    NODES = "nodes"
    JOBS = "jobs"
    PARTITIONS = "partitions"
    STATISTICS = "statistics"
    LICENSES = "licenses"
    RESERVATIONS = "reservations"
    AUTOSCALING = "autoscaling"
    """The queue, the nodes, the partitions and the reservations together, if EXPORTER_NODESETS has
    any.
    """
    CHECKS = "checks"
    """The files of EXPORTER_CHECKS_FOLDER, if it is set. Nothing of Slurm's."""
    NONE = "none"
    """The exporter itself."""


class Family(StrEnum):
    """A group of metrics that can be switched on and off together."""

    NODES = "nodes"
    """Totals of all nodes: states, CPUs, memory, GPUs, owners of drains."""
    NODE = "node"
    """Each node on its own."""
    PARTITIONS = "partitions"
    """Each partition: its nodes and its jobs."""
    JOBS = "jobs"
    """Totals of all jobs: states, reasons, waiting times, allocated resources."""
    USERS = "users"
    """Jobs and resources of each user."""
    ACCOUNTS = "accounts"
    """Jobs and resources of each account."""
    JOB = "job"
    """Each running and pending job on its own, up to EXPORTER_MAX_JOBS of them. Off by default."""
    SCHEDULER = "scheduler"
    """slurmctld: main scheduler, backfill, threads and queues."""
    RPCS = "rpcs"
    """Requests to slurmctld by type and by user."""
    LICENSES = "licenses"
    """Licenses."""
    RESERVATIONS = "reservations"
    """Reservations."""
    AUTOSCALING = "autoscaling"
    """What the planner wants for the NodeSets of EXPORTER_NODESETS."""
    CHECKS = "checks"
    """Results of the checks that run as Slurm jobs."""
    EXPORTER = "exporter"
    """The exporter itself. Always on."""


Kind = Literal["gauge", "counter"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. A counter's name ends in `_total`."""

    name: str
    help: str
    family: Family
    source: Source
    labels: tuple[str, ...] = ()
    kind: Kind = "gauge"
    unit: str = ""
    """`seconds` and `bytes`, or another unit of another name set; "" for a plain count."""
    name_set: NameSet = NameSet.OWN


DEFAULT_FAMILIES = frozenset(Family) - {Family.JOB}
"""The families that are served unless EXPORTER_FAMILIES lists others."""
