"""Whether a job fits on a node, and what it takes, as Slurm's select/cons_tres counts.

Cores are allocated whole. Which cores of which socket are free isn't known, only how many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecars.policy.autoscaling.needs import Needs
    from sidecars.policy.autoscaling.records import Settings, Shape
    from sidecars.slurm.gres import Gres


class Free(NamedTuple):
    """What is free on a node."""

    cores: int
    memory: int
    gres: tuple[int, ...]
    """In the order of the kind's GRES."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Nodes that are the same but for what is free on them."""

    nodeset: str
    shape: Shape
    partitions: frozenset[str]
    weight: int
    full: Free
    minutes: int | None = None
    """Until a reservation begins; None: no reservation."""


class Use(NamedTuple):
    """What a job could use of a node."""

    cpus: int
    """CPUs that the job can use, as Slurm counts them for it."""
    per_core: int
    """Of each core."""


NO_USE = Use(0, 1)


def kind_of(nodeset: str, shape: Shape, partitions: frozenset[str], weight: int, minutes: int | None) -> Kind:
    """The kind of a node."""
    full = Free(shape.all_cores, shape.memory, tuple(item.count for item in shape.gres))
    return Kind(nodeset, shape, partitions, weight, full, minutes)


def allowed(needs: Needs, kind: Kind, partition: str) -> bool:
    """Whether the node is in the partition, for long enough, and has what no job can use up. Features aside."""
    if kind.minutes is not None and needs.minutes > kind.minutes:
        return False
    return partition in kind.partitions and kind.shape.tmp_disk >= needs.tmp_disk


def usable(needs: Needs, kind: Kind, free: Free, settings: Settings) -> Use:
    """What the job could use of the node; `NO_USE` for nothing."""
    shape = kind.shape
    if free.cores < 1 or (needs.whole_node and free != kind.full):
        return NO_USE
    if needs.sockets > shape.sockets or needs.cores_per_socket > shape.cores:
        return NO_USE
    if free.cores < max(1, needs.sockets) * max(1, needs.cores_per_socket):
        return NO_USE
    per_core = shape.threads
    if needs.tasks_per_core:
        per_core = min(per_core, needs.tasks_per_core * needs.cpus_per_task)
    if needs.threads_per_core:
        if needs.threads_per_core > shape.threads:
            return NO_USE
        per_core = min(per_core, needs.threads_per_core)
    cpus = _cpus_for_tasks(needs, free.cores * per_core, per_core, shape)
    if cpus < needs.cpus_per_node:
        return NO_USE
    cpus = min(cpus, _tasks_with_gres(needs, kind, free) * needs.cpus_per_task)
    if settings.memory:
        cpus = _cpus_with_memory(needs, kind, free, cpus, per_core)
    least = needs.tasks_per_node or (needs.tasks if needs.one_node else 1)
    if cpus < least * needs.cpus_per_task:
        return NO_USE
    return Use(cpus, per_core)


def _cpus_for_tasks(needs: Needs, cpus: int, per_core: int, shape: Shape) -> int:
    """The CPUs that whole tasks can use."""
    tasks = cpus
    if needs.tasks_per_socket:
        tasks = min(tasks, needs.tasks_per_socket * shape.sockets)
    if needs.tasks_per_node and not needs.whole_node:
        tasks = min(tasks, needs.tasks_per_node)
    if needs.tasks_per_core == 1 and needs.cpus_per_task > per_core:
        cores_of_task = -(-needs.cpus_per_task // per_core)
        return min(tasks, cpus // (cores_of_task * per_core)) * needs.cpus_per_task
    return min(tasks, cpus // needs.cpus_per_task) * needs.cpus_per_task


def _tasks_with_gres(needs: Needs, kind: Kind, free: Free) -> int:
    """For how many tasks the node has GRES; 0 if it lacks those per node."""
    if any(available(item, kind, free) < item.count for item in needs.gres_per_node):
        return 0
    if needs.one_node and any(available(item, kind, free) < item.count for item in needs.gres_per_job):
        return 0
    return min((available(item, kind, free) // max(1, item.count) for item in needs.gres_per_task), default=1 << 20)


def available(wanted: Gres, kind: Kind, free: Free) -> int:
    """How many of a resource are free; of all types where the job names none."""
    return sum(
        count
        for item, count in zip(kind.shape.gres, free.gres, strict=True)
        if item.name == wanted.name and wanted.type in ("", item.type)
    )


def _cpus_with_memory(needs: Needs, kind: Kind, free: Free, cpus: int, per_core: int) -> int:
    if needs.memory_per_cpu is not None:
        if needs.memory_per_cpu * cpus <= free.memory:
            return cpus
        if needs.whole_node:
            return 0
        cpus = free.memory // needs.memory_per_cpu // per_core * per_core
        return cpus - cpus % needs.cpus_per_task
    if needs.memory_per_node == 0:
        return cpus if free.memory == kind.full.memory else 0
    return cpus if needs.memory_per_node <= free.memory else 0


def missing(needs: Needs, shape: Shape, settings: Settings) -> str:
    """Why the job can't run on an empty node of that shape: what it has too little of."""
    for item in (*needs.gres_per_node, *needs.gres_per_task, *needs.gres_per_job):
        has = sum(it.count for it in shape.gres if it.name == item.name and item.type in ("", it.type))
        if has < (1 if item in needs.gres_per_job and not needs.one_node else item.count):
            return f"{item} of a node that has {has}"
    if settings.memory and needs.memory_per_cpu is None and needs.memory_per_node > shape.memory:
        return f"{needs.memory_per_node} MiB of a node with {shape.memory} MiB"
    if needs.tmp_disk > shape.tmp_disk:
        return f"{needs.tmp_disk} MiB of temporary disk of a node with {shape.tmp_disk} MiB"
    cpus = shape.all_cores * shape.threads
    return f"CPUs, cores, sockets or memory per CPU that a node with {cpus} CPUs and {shape.memory} MiB doesn't have"


def after(needs: Needs, kind: Kind, free: Free, use: Use, cpus: int, gres: Sequence[Gres]) -> Free:
    """What is free once the job has `cpus` of the node and these GRES of the job's own count."""
    if needs.whole_node:
        return Free(0, 0, (0,) * len(free.gres))
    if needs.tasks_per_core == 1 and needs.cpus_per_task > use.per_core:
        cores = cpus // needs.cpus_per_task * -(-needs.cpus_per_task // use.per_core)
    else:
        cores = -(-cpus // use.per_core)
    tasks = max(1, cpus // needs.cpus_per_task)
    rest = list(free.gres)
    for items, times in ((needs.gres_per_node, 1), (needs.gres_per_task, tasks), (gres, 1)):
        for item in items:
            _subtract(rest, kind, item, item.count * times)
    memory = free.memory
    if needs.memory_per_cpu is not None:
        memory -= needs.memory_per_cpu * max(cpus, cores * use.per_core)
    else:
        memory = 0 if needs.memory_per_node == 0 else memory - needs.memory_per_node
    return Free(max(0, free.cores - cores), max(0, memory), tuple(rest))


def _subtract(rest: list[int], kind: Kind, wanted: Gres, count: int) -> None:
    for index, item in enumerate(kind.shape.gres):
        if item.name == wanted.name and wanted.type in ("", item.type) and not item.no_consume:
            taken = min(count, rest[index])
            rest[index] -= taken
            count -= taken
