"""Whether a job fits on a node, and what it takes, as Slurm's select/cons_tres counts.

Cores are allocated whole. Which cores of which socket are free isn't known, only how many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sidecars.autoscaling.needs import count_of_gpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecars.autoscaling.needs import Needs
    from sidecars.autoscaling.records import Settings, Shape
    from sidecars.slurm.gres import Gres


SEVERAL = "*"
"""Of a node with jobs of several users."""
ANY = 1 << 40
"""A number without a limit."""


class Free(NamedTuple):
    """What is free on a node."""

    cores: int
    memory: int
    gres: tuple[int, ...]
    """In the order of the kind's GRES."""
    caps: tuple[int, ...] = ()
    """CPUs that jobs of the kind's capped partitions may still have, in their order."""
    user: str = ""
    """The one whose jobs alone are on it, or `SEVERAL`; "" if it doesn't matter or isn't known."""
    owned: bool = False
    """Whether no other user may have it."""
    shared: bool | None = None
    """Whether its jobs may share their cores; None if it has none, or it isn't known."""


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
    new: bool = False
    """Whether Slurm doesn't have them yet."""
    capped: tuple[str, ...] = ()
    """Its partitions with MaxCPUsPerNode."""


class Use(NamedTuple):
    """What a job could use of a node."""

    cpus: int
    """CPUs that the job can use, as Slurm counts them for it."""
    per_core: int
    """Of each core."""
    gpus: int = ANY
    """GPUs for which it has the CPUs and the memory."""


NO_USE = Use(0, 1)


def kind_of(
    nodeset: str,
    shape: Shape,
    partitions: frozenset[str],
    weight: int,
    minutes: int | None,
    settings: Settings,
    *,
    new: bool,
) -> Kind:
    """Return the kind of a node."""
    caps = {name: it for name, it in settings.max_cpus_per_node.items() if name in partitions}
    counts = tuple(item.count for item in shape.gres)
    full = Free(shape.all_cores, shape.memory, counts, tuple(caps.values()))
    return Kind(nodeset, shape, partitions, weight, full, minutes, new, tuple(caps))


def allowed(needs: Needs, kind: Kind, partition: str) -> bool:
    """Return whether the node is in the partition, for long enough, and has what no job can use up.
    Features aside.
    """
    if kind.minutes is not None and needs.minutes > kind.minutes:
        return False
    return partition in kind.partitions and kind.shape.tmp_disk >= needs.tmp_disk


def usable(needs: Needs, kind: Kind, free: Free, settings: Settings) -> Use:
    """Return what the job could use of the node, `NO_USE` for nothing."""
    shape = kind.shape
    if free.cores < 1 or not _may_join(needs, kind, free):
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
    cores = free.cores
    if needs.capped in kind.capped:
        cores = min(cores, free.caps[kind.capped.index(needs.capped)] // per_core)
    cpus = _cpus_for_tasks(needs, cores * per_core, per_core, shape)
    if cpus < needs.cpus_per_node:
        return NO_USE
    cpus = min(cpus, _tasks_with_gres(needs, kind, free) * needs.cpus_per_task)
    if settings.memory:
        cpus = _cpus_with_memory(needs, kind, free, cpus, per_core)
    least = (
        needs.tasks_per_node
        or needs.tasks_per_socket
        or needs.tasks_per_core
        or (needs.tasks if needs.one_node else 1)
    )
    if cpus < least * needs.cpus_per_task or cpus < needs.cpus_per_node:
        return NO_USE
    use = Use(cpus, per_core, _gpus(needs, free, cpus, settings))
    for item in needs.gres_per_job:
        # A node without any of them is none for the job, even if another one has them all.
        if of_job(item, kind, free, use) < (item.count if needs.one_node else 1):
            return NO_USE
    return use


def _may_join(needs: Needs, kind: Kind, free: Free) -> bool:
    """Return whether the job may have the node with the jobs that are on it."""
    if needs.whole_node or needs.owns:
        if free == kind.full:
            return True
        if needs.whole_node or free.user != needs.user:
            return False
    if free.owned and free.user != needs.user:
        return False
    # Slurm never has jobs that share cores beside others.
    return needs.shares is None or free.shared is None or free.shared == needs.shares


def _gpus(needs: Needs, free: Free, cpus: int, settings: Settings) -> int:
    """Return for how many GPUs of the job's own count the node has CPUs and memory."""
    found = cpus // needs.cpus_per_gpu if needs.cpus_per_gpu else ANY
    if settings.memory and needs.memory_per_gpu:
        found = min(found, free.memory // needs.memory_per_gpu)
    return found


def _cpus_for_tasks(needs: Needs, cpus: int, per_core: int, shape: Shape) -> int:
    """Return the CPUs that whole tasks can use."""
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
    """Return for how many tasks the node has GRES, 0 if it lacks those per node."""
    if any(available(item, kind, free) < item.count for item in needs.gres_per_node):
        return 0
    return min(
        (available(item, kind, free) // max(1, item.count) for item in needs.gres_per_task),
        default=1 << 20,
    )


def available(wanted: Gres, kind: Kind, free: Free) -> int:
    """Count what is free of a resource, of all types where the job names none."""
    return sum(
        count
        for item, count in zip(kind.shape.gres, free.gres, strict=True)
        if item.name == wanted.name and wanted.type in ("", item.type)
    )


def of_job(wanted: Gres, kind: Kind, free: Free, use: Use) -> int:
    """Count what the job could use on the node of a resource of its own count."""
    found = available(wanted, kind, free)
    return min(found, use.gpus) if wanted.name == "gpu" else found


def _cpus_with_memory(needs: Needs, kind: Kind, free: Free, cpus: int, per_core: int) -> int:
    if needs.memory_per_gpu:
        of_task = needs.memory_per_gpu * count_of_gpus(needs.gres_per_task)
        if needs.memory_per_gpu * count_of_gpus(needs.gres_per_node) > free.memory:
            return 0
        return min(cpus, free.memory // of_task * needs.cpus_per_task) if of_task else cpus
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
    """Return why the job can't run on an empty node of that shape: what it has too little of."""
    for item in (*needs.gres_per_node, *needs.gres_per_task, *needs.gres_per_job):
        has = sum(
            it.count for it in shape.gres if it.name == item.name and item.type in ("", it.type)
        )
        if has < (1 if item in needs.gres_per_job and not needs.one_node else item.count):
            return f"{item} of a node that has {has}"
    memory = needs.memory_per_node
    if needs.memory_per_gpu:
        gpus = (*needs.gres_per_node, *needs.gres_per_task, *needs.gres_per_job * needs.one_node)
        memory = needs.memory_per_gpu * count_of_gpus(gpus)
    if settings.memory and needs.memory_per_cpu is None and memory > shape.memory:
        return f"{memory} MiB of a node with {shape.memory} MiB"
    if needs.tmp_disk > shape.tmp_disk:
        return f"{needs.tmp_disk} MiB of temporary disk of a node with {shape.tmp_disk} MiB"
    cpus = shape.all_cores * shape.threads
    return (
        f"CPUs, cores, sockets or memory per CPU that a node with {cpus} CPUs and {shape.memory} "
        "MiB doesn't have"
    )


def after(needs: Needs, kind: Kind, free: Free, use: Use, cpus: int, gres: Sequence[Gres]) -> Free:
    """Return what is free once the job has `cpus` of the node and these GRES of the job's own
    count.
    """
    if needs.whole_node:
        return Free(0, 0, (0,) * len(free.gres), free.caps, needs.user, needs.owns, needs.shares)
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
    if needs.memory_per_gpu:
        of_tasks = tasks * count_of_gpus(needs.gres_per_task)
        gpus = count_of_gpus(needs.gres_per_node) + of_tasks + count_of_gpus(gres)
        memory -= needs.memory_per_gpu * gpus
    elif needs.memory_per_cpu is not None:
        memory -= needs.memory_per_cpu * max(cpus, cores * use.per_core)
    else:
        memory = 0 if needs.memory_per_node == 0 else memory - needs.memory_per_node
    caps = free.caps
    if needs.capped in kind.capped:
        used = cores * use.per_core
        caps = tuple(
            max(0, it - used) if name == needs.capped else it
            for name, it in zip(kind.capped, caps, strict=True)
        )
    alone = free == kind.full or free.user == needs.user
    return Free(
        max(0, free.cores - cores),
        max(0, memory),
        tuple(rest),
        caps,
        needs.user if alone or not needs.user else SEVERAL,
        free.owned or needs.owns,
        free.shared if needs.shares is None else needs.shares,
    )


def _subtract(rest: list[int], kind: Kind, wanted: Gres, count: int) -> None:
    for index, item in enumerate(kind.shape.gres):
        if item.name == wanted.name and wanted.type in ("", item.type) and not item.no_consume:
            taken = min(count, rest[index])
            rest[index] -= taken
            count -= taken
