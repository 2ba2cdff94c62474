"""A job's request as the planner uses it, read once for all jobs that request the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sidecars.policy.autoscaling.features import UnsupportedFeatures, alternatives
from sidecars.policy.reasons.autoscaling import NotCounted
from sidecars.slurm import gres, hostlists

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecars.policy.autoscaling.features import Test
    from sidecars.slurm.gres import Gres
    from sidecars.slurm.records import JobRequest

UNLIMITED_MINUTES = 1 << 40
"""Of a job without a time limit."""
_UNLIMITED = 0xFFFF
"""`tasks_per_core` and the like of a job that sets none (INFINITE16); 0xFFFE is NO_VAL16."""


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """What one job, or one component of a heterogeneous job, needs."""

    partitions: tuple[str, ...]
    """Of the highest tier first."""
    min_nodes: int
    max_nodes: int
    """0 for no limit."""
    aimed_nodes: int
    """As many nodes as Slurm tries to give to the job; fewer are accepted down to `min_nodes`."""
    cpus: int
    """In all."""
    tasks: int
    cpus_per_task: int
    tasks_per_node: int
    """0 if the job doesn't set it."""
    tasks_per_core: int
    """0 if the job doesn't set it."""
    tasks_per_socket: int
    threads_per_core: int
    """0 if the job doesn't set it."""
    sockets: int
    cores_per_socket: int
    cpus_per_node: int
    memory_per_cpu: int | None
    memory_per_node: int
    tmp_disk: int
    gres_per_node: tuple[Gres, ...]
    gres_per_task: tuple[Gres, ...]
    gres_per_job: tuple[Gres, ...]
    features: tuple[Test, ...]
    features_text: str
    whole_node: bool
    excluded_nodes: frozenset[str]
    minutes: int = 0
    """Its time limit; 0 if no node has a reservation."""
    alone: Needs | None = None
    """What it needs if it is exclusive, where that is unknown."""

    @property
    def one_node(self) -> bool:
        """Whether the job can run on one node only."""
        return self.max_nodes == 1

    def share(self, nodes: int) -> Needs:
        """What each of so many nodes has to give, rounded up."""
        tasks = -(-self.tasks // nodes)
        gres = tuple(replace(it, count=-(-it.count // nodes)) for it in self.gres_per_job)
        cpus = max(-(-self.cpus // nodes), tasks * self.cpus_per_task)
        return replace(self, min_nodes=1, max_nodes=1, aimed_nodes=1, tasks=tasks, cpus=cpus, gres_per_job=gres)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a request can't be counted."""

    reason: NotCounted
    detail: str


def read(
    request: JobRequest, tiers: Mapping[str, int], *, minutes: int = 0, exclusive_known: bool = True
) -> Needs | Unreadable:
    """The needs of a request. `exclusive_known`: whether the request shows that a job is exclusive."""
    for detail, unsupported in (
        ("--extra", request.constraints),
        ("--core-spec or --thread-spec", request.specialized),
        ("GRES per socket", _without_cpus(request.tres_per_socket)),
        ("CPUs per GRES", request.cpus_per_tres),
        ("memory per GRES", request.memory_per_tres),
        ("--contiguous", request.contiguous),
        ("--segment", request.segment_size > 1),
    ):
        if unsupported:
            return Unreadable(NotCounted.NOT_MODELLED, detail)
    try:
        features = alternatives(request.features) if request.features else ()
    except UnsupportedFeatures:
        return Unreadable(NotCounted.NOT_MODELLED, f"--constraint={request.features}")
    try:
        per_node, per_task, per_job = map(
            _gres, (request.tres_per_node, _without_cpus(request.tres_per_task), request.tres_per_job)
        )
        excluded = frozenset(hostlists.expand(request.excluded_nodes))
    except (gres.GresError, hostlists.HostlistError) as error:
        return Unreadable(NotCounted.NOT_MODELLED, str(error))
    cpus_per_task = max(1, _set(request.cpus_per_task))
    tasks = max(1, request.tasks)
    per_node_limit = _set(request.tasks_per_node)
    min_nodes = max(1, request.min_nodes, -(-tasks // per_node_limit) if per_node_limit else 1)
    # API v0.0.44 doesn't report that Slurm derived the number of nodes. It is then the number of tasks.
    implied = request.max_nodes_implied or request.max_nodes == tasks
    found = Needs(
        partitions=tuple(sorted(request.partitions, key=lambda name: -tiers.get(name, 1))),
        min_nodes=min_nodes,
        max_nodes=request.max_nodes,
        aimed_nodes=min_nodes if implied else max(min_nodes, request.max_nodes),
        cpus=max(request.cpus, tasks * cpus_per_task),
        tasks=tasks,
        cpus_per_task=cpus_per_task,
        tasks_per_node=per_node_limit,
        tasks_per_core=_set(request.tasks_per_core),
        tasks_per_socket=_set(request.tasks_per_socket),
        threads_per_core=_set(request.threads_per_core),
        sockets=_set(request.sockets_per_node),
        cores_per_socket=_set(request.cores_per_socket),
        cpus_per_node=request.min_cpus_per_node,
        memory_per_cpu=request.memory_per_cpu,
        memory_per_node=request.memory_per_node,
        tmp_disk=request.tmp_disk,
        gres_per_node=per_node,
        gres_per_task=per_task,
        gres_per_job=per_job,
        features=features,
        features_text=request.features,
        # A node that only jobs of one user or label share is counted as if none shared it: never too few nodes.
        whole_node=not request.shared.isdisjoint({"none", "user", "mcs", "topo"}),
        excluded_nodes=excluded,
        minutes=minutes,
    )
    return found if exclusive_known else replace(found, alone=replace(found, whole_node=True))


def rounded(minutes: int | None) -> int:
    """A time limit, rounded up by less than a tenth, so that jobs that request the same differ in few."""
    if minutes is None:
        return UNLIMITED_MINUTES
    step = 1 << max(0, minutes.bit_length() - 5)
    return -(-minutes // step) * step


def _set(number: int) -> int:
    return 0 if number >= _UNLIMITED - 1 else number


def _without_cpus(tres: str) -> str:
    """Slurm reports `--cpus-per-task` as a TRES per task as well."""
    return ",".join(item for item in tres.split(",") if not item.startswith(("cpu", "mem")))


def _gres(tres: str) -> tuple[Gres, ...]:
    """The resources in Slurm's form `gres/gpu:h100:2,gres/shard:1`. Raises GresError."""
    plain = [item.removeprefix("gres/").removeprefix("gres:").replace("=", ":") for item in tres.split(",")]
    return gres.total(gres.parse(",".join(plain)))
