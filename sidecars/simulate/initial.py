"""The file that a simulator starts from: YAML (or JSON) of nodes, partitions, jobs and
reservations.
"""

import msgspec

from sidecars.simulate.model import SlurmModel
from sidecars.simulate.records import SimPartition
from sidecars.slurm.hostlists import HostlistError, expand


class InitialError(ValueError):
    """The file isn't valid; the text names the place."""


class Nodes(msgspec.Struct, forbid_unknown_fields=True):
    """Nodes that are alike; `names` is a hostlist. With a `reason` they are drained."""

    names: str
    cpus: int = 4
    real_memory: int = 16_000
    features: list[str] = []
    gres: str = ""
    extra: str = ""
    reason: str = ""


class Partition(msgspec.Struct, forbid_unknown_fields=True):
    """A partition; without `nodes` it has them all."""

    name: str
    nodes: str | None = None


class Jobs(msgspec.Struct, forbid_unknown_fields=True):
    """`count` jobs that run on these nodes, or are pending without nodes."""

    nodes: str = ""
    count: int = 1
    cpus: int = 1
    time_limit: int | None = None
    name: str = "job"
    user: str = "root"


class Reservation(msgspec.Struct, forbid_unknown_fields=True):
    """A reservation that begins `starts_in` seconds after the simulator."""

    name: str
    nodes: str
    minutes: int
    starts_in: int = 0
    flags: tuple[str, ...] = ("MAINT", "IGNORE_JOBS")


class Initial(msgspec.Struct, forbid_unknown_fields=True):
    """The initial content of the simulator."""

    nodes: list[Nodes] = []
    partitions: list[Partition] = []
    jobs: list[Jobs] = []
    reservations: list[Reservation] = []


def fill(model: SlurmModel, text: bytes) -> None:
    """Put the content of the file into the model. Raises InitialError."""
    try:
        initial = msgspec.yaml.decode(text, type=Initial) if text.strip() else Initial()
        _fill(model, initial)
    except (msgspec.MsgspecError, HostlistError, UnicodeDecodeError) as error:
        raise InitialError(str(error)) from error
    except KeyError as error:
        raise InitialError(
            f"a job is on {error.args[0]!r}, which no entry of nodes names"
        ) from error


def _fill(model: SlurmModel, initial: Initial) -> None:
    for nodes in initial.nodes:
        for name in expand(nodes.names):
            node = model.node_register(
                name,
                cpus=nodes.cpus,
                real_memory=nodes.real_memory,
                features=nodes.features,
                gres=nodes.gres,
                extra=nodes.extra,
            )
            if nodes.reason:
                node.flags.add("DRAIN")
                node.reason, node.reason_changed_at = nodes.reason, int(model.clock())
    if initial.partitions:
        model.partitions = {p.name: SimPartition(p.name, p.nodes) for p in initial.partitions}
    for jobs in initial.jobs:
        for _ in range(jobs.count):
            if jobs.nodes:
                model.job_start(
                    jobs.nodes,
                    cpus=jobs.cpus,
                    time_limit=jobs.time_limit,
                    name=jobs.name,
                    user=jobs.user,
                )
            else:
                model.job_submit(name=jobs.name, cpus=jobs.cpus, user=jobs.user)
    for reservation in initial.reservations:
        start = int(model.clock()) + reservation.starts_in
        model.reserve(
            reservation.name,
            reservation.nodes,
            start=start,
            minutes=reservation.minutes,
            flags=reservation.flags,
        )
