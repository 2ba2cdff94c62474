"""A job's request as the planner uses it, read once for all jobs that request the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sidecars.autoscaling.features import UnsupportedFeatures, alternatives
from sidecars.policy.reasons.autoscaling import NotCounted
from sidecars.slurm import gres, hostlists

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecars.autoscaling.features import Test
    from sidecars.autoscaling.records import Settings
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
    avoid: frozenset[str] = frozenset()
    """NodeSets that get no node for the job."""
    cpus_per_gpu: int = 0
    """That come with each GPU; 0 if the job and its partition set none."""
    capped: str = ""
    """The partition whose MaxCPUsPerNode counts; "" for none."""
    user: str = ""
    """Whose it is; "" if no job excludes other users."""
    owns: bool = False
    """Whether no other user may have its nodes."""
    may_share: bool = False
    """Whether it may share its cores where its partition lets jobs choose."""
    shares: bool | None = None
    """Whether it may share its cores; None if no job does."""
    memory_per_gpu: int = 0
    """Instead of memory per node and CPU; 0 if the job and its partition set none."""
    licenses: tuple[tuple[str, int], ...] = ()
    """Names and counts."""
    minutes: int = 0
    """Its time limit; 0 if no node has a reservation."""
    alone: Needs | None = None
    """What it needs if it is exclusive, where that is unknown."""

    @property
    def one_node(self) -> bool:
        """Whether the job can run on one node only."""
        return self.max_nodes == 1

    @property
    def contradictory(self) -> bool:
        """Whether the job must have more nodes than it may have."""
        return 0 < self.max_nodes < self.min_nodes

    @property
    def gpus_per_job(self) -> int:
        """The GPUs of the job's own count."""
        return count_of_gpus(self.gres_per_job)

    @property
    def most_nodes(self) -> int:
        """More nodes would have nothing of the job."""
        most = max(self.cpus, *(it.count for it in self.gres_per_job), self.min_nodes)
        return min(self.max_nodes or most, most)

    def within(self, partition: str, settings: Settings) -> Needs:
        """Return what it needs in a partition, with the rules of that one."""
        exclusive = settings.exclusive.get(partition, "")
        sharing = settings.oversubscribe.get(partition, "")
        least, most = settings.min_nodes.get(partition, 0), settings.max_nodes.get(partition, 0)
        max_nodes = min(self.max_nodes or most, most or self.max_nodes)
        return replace(
            self,
            min_nodes=max(self.min_nodes, least),
            max_nodes=max_nodes,
            aimed_nodes=max(least, min(self.aimed_nodes, max_nodes or self.aimed_nodes)),
            capped=partition if partition in settings.max_cpus_per_node else "",
            whole_node=self.whole_node or exclusive == "NODE",
            owns=self.owns or exclusive == "USER",
            shares=sharing == "FORCE" or (sharing == "YES" and self.may_share)
            if settings.oversubscribe
            else None,
        )

    def share(self, nodes: int) -> Needs:
        """Return what each of so many nodes has to give, rounded up."""
        tasks = -(-self.tasks // nodes)
        gres = tuple(replace(it, count=-(-it.count // nodes)) for it in self.gres_per_job)
        cpus = max(-(-self.cpus // nodes), tasks * self.cpus_per_task)
        return replace(
            self, min_nodes=1, max_nodes=1, aimed_nodes=1, tasks=tasks, cpus=cpus, gres_per_job=gres
        )


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a request can't be counted."""

    reason: NotCounted
    detail: str


def read(
    request: JobRequest,
    settings: Settings,
    *,
    minutes: int = 0,
    exclusive_known: bool = True,
    avoid: frozenset[str] = frozenset(),
    user: str = "",
) -> Needs | Unreadable:
    """Read the needs of a request. `exclusive_known`: whether the request shows that a job is
    exclusive. `avoid`, `user`: see Needs.
    """
    partitions = [it for it in request.partitions if it not in settings.down]
    if request.partitions and not partitions:
        return Unreadable(NotCounted.PARTITION, ", ".join(request.partitions))
    for detail, unsupported in (
        ("--extra", request.constraints),
        ("--core-spec or --thread-spec", request.specialized),
        ("--contiguous", request.contiguous and request.max_nodes != 1),
        ("--segment", request.segment_size > 1),
    ):
        if unsupported:
            return Unreadable(NotCounted.NOT_MODELLED, detail)
    try:
        features = alternatives(request.features) if request.features else ()
    except UnsupportedFeatures:
        return Unreadable(NotCounted.NOT_MODELLED, f"--constraint={request.features}")
    try:
        per_node, per_task, per_job, per_socket = map(
            _gres,
            (
                request.tres_per_node,
                _without_cpus(request.tres_per_task),
                request.tres_per_job,
                _without_cpus(request.tres_per_socket),
            ),
        )
        # Slurm accepts them only with the number of sockets of each node.
        sockets = max(1, _set(request.sockets_per_node))
        per_node += tuple(replace(it, count=it.count * sockets) for it in per_socket)
        cpus_per_gpu, memory_per_gpu = map(
            _per_gpu, (request.cpus_per_tres, request.memory_per_tres)
        )
        excluded = frozenset(hostlists.expand(request.excluded_nodes))
    except (gres.GresError, hostlists.HostlistError) as error:
        return Unreadable(NotCounted.NOT_MODELLED, str(error))
    cpus_per_task = max(1, _set(request.cpus_per_task), cpus_per_gpu * count_of_gpus(per_task))
    tasks = max(1, request.tasks)
    per_node_limit = _set(request.tasks_per_node)
    min_nodes = max(1, request.min_nodes, -(-tasks // per_node_limit) if per_node_limit else 1)
    # API v0.0.44 doesn't report that Slurm derived the number of nodes. It is then the number of
    # tasks.
    aimed = request.max_nodes
    if request.fewest_nodes or request.max_nodes_implied or request.max_nodes == tasks:
        aimed = min_nodes
    if request.most_nodes:
        aimed = min(tasks, request.max_nodes or tasks)
    found = Needs(
        partitions=tuple(sorted(partitions, key=lambda name: -settings.tiers.get(name, 1))),
        min_nodes=min_nodes,
        max_nodes=request.max_nodes,
        aimed_nodes=max(min_nodes, aimed),
        cpus=max(
            request.cpus,
            tasks * cpus_per_task,
            cpus_per_gpu * max(min_nodes * count_of_gpus(per_node), count_of_gpus(per_job)),
        ),
        tasks=tasks,
        cpus_per_task=cpus_per_task,
        tasks_per_node=per_node_limit,
        tasks_per_core=_set(request.tasks_per_core),
        tasks_per_socket=_set(request.tasks_per_socket),
        threads_per_core=_set(request.threads_per_core),
        sockets=_set(request.sockets_per_node),
        cores_per_socket=_set(request.cores_per_socket),
        cpus_per_node=max(request.min_cpus_per_node, cpus_per_gpu * count_of_gpus(per_node)),
        memory_per_cpu=request.memory_per_cpu,
        memory_per_node=request.memory_per_node,
        tmp_disk=request.tmp_disk,
        gres_per_node=per_node,
        gres_per_task=per_task,
        gres_per_job=per_job,
        features=features,
        features_text=request.features,
        # A node that only jobs of one label share is counted as if none shared it: never too few
        # nodes. Of a job with several partitions, Slurm reports what is so in one of them.
        whole_node=not request.shared.isdisjoint({"mcs", "topo"})
        or ("none" in request.shared and "NODE" not in map(settings.exclusive.get, partitions)),
        user=user,
        owns="user" in request.shared,
        may_share="oversubscribe" in request.shared,
        shares=False if settings.oversubscribe else None,
        excluded_nodes=excluded,
        minutes=minutes,
        licenses=_licenses(request.licenses),
        avoid=avoid,
        cpus_per_gpu=cpus_per_gpu,
        memory_per_gpu=memory_per_gpu,
    )
    return found if exclusive_known else replace(found, alone=replace(found, whole_node=True))


def rounded(minutes: int | None) -> int:
    """Return a time limit, rounded up by less than a tenth, so that jobs that request the same
    differ in few.
    """
    if minutes is None:
        return UNLIMITED_MINUTES
    step = 1 << max(0, minutes.bit_length() - 5)
    return -(-minutes // step) * step


def _set(number: int) -> int:
    return 0 if number >= _UNLIMITED - 1 else number


def _without_cpus(tres: str) -> str:
    """Remove the CPUs from TRES per task: Slurm reports `--cpus-per-task` as one as well."""
    return ",".join(item for item in tres.split(",") if not item.startswith(("cpu", "mem")))


def _licenses(text: str) -> tuple[tuple[str, int], ...]:
    """Return the licenses of a request such as `matlab:2,ansys`, () where the job may choose
    between some (`a|b`), or if they can't be read.
    """
    found: Counter[str] = Counter()
    for item in filter(None, text.split(",")):
        name, _, count = item.replace("=", ":").partition(":")
        if "|" in item or not (count or "1").isdecimal():
            return ()
        found[name] += int(count or 1)
    return tuple(found.items())


def count_of_gpus(items: Iterable[Gres]) -> int:
    """Count these GPUs of all types."""
    return sum(it.count for it in items if it.name == "gpu")


def _per_gpu(tres: str) -> int:
    """Return the number in `gpu:4`, which Slurm also reports of a partition's DefCpuPerGPU and
    DefMemPerGPU, or 0 for "". Raises GresError.
    """
    found = _gres(tres)
    if any(it.name != "gpu" or it.type for it in found):
        raise gres.GresError(f"CPUs or memory per {tres}")
    return count_of_gpus(found)


def _gres(tres: str) -> tuple[Gres, ...]:
    """Return the resources in Slurm's form `gres/gpu:h100:2,gres/shard:1`. Raises GresError."""
    plain = [
        item.removeprefix("gres/").removeprefix("gres:").replace("=", ":")
        for item in tres.split(",")
    ]
    return gres.total(gres.parse(",".join(plain)))
