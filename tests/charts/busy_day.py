"""A busy day of a simulated cluster, as text that Prometheus can import: 64 nodes with eight GPUs
each, five accounts, a scale-out in the morning and an outage in the afternoon.

Slurm's nodes and jobs are counted by the exporter's own code. The series of NVIDIA's dcgm-exporter,
of kube-state-metrics and of kubelets have the names and labels that these programs document.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sidecars.exporter.compatible import METRICS
from sidecars.exporter.jobs import add_jobs
from sidecars.exporter.metrics import Metric, NameSet
from sidecars.exporter.nodes import add_nodes
from sidecars.exporter.samples import Samples
from sidecars.slurm.records import Node
from sidecars.slurm.usage import JobUsage, NodeUsage

START = 1_800_000_000
"""Seconds since the epoch: when the day begins."""
HOURS, MINUTE = 24, 60
DAY = HOURS * 60 * MINUTE
STEP = DAY // 40
"""Seconds between two points of a picture."""
POINTS = tuple(range(START, START + DAY + 1, STEP))
BEFORE = (120, 0)
"""Samples are taken so many seconds before each point, so that it has rates of five minutes."""
NODES, FIRST, GPUS, CPUS, MEMORY = 64, 48, 8, 96, 1_000_000
"""`FIRST` nodes run all day. Slurm powers the others up at `SCALE_OUT`, which takes `BOOT`."""
SCALE_OUT, BOOT = 9 * 60, 10
OUTAGE = range(14 * 60, 16 * 60 + 30)
"""Minutes in which `BROKEN` nodes are away."""
BROKEN = range(20, 28)
PARTITIONS = ("train", "interactive")
INTERACTIVE = range(6)
"""Nodes of the partition `interactive`."""
ACCOUNTS = {
    "vision": ("ada", "grace"),
    "speech": ("alan", "barbara"),
    "robotics": ("edsger",),
    "biology": ("rosalind", "francis"),
    "physics": ("emmy", "chien-shiung"),
}
ARRIVALS = (2, 1, 1, 1, 1, 2, 4, 8, 12, 14, 13, 11, 9, 12, 13, 12, 10, 9, 7, 6, 5, 5, 4, 3)
"""Jobs in each hour, in units of `UNIT`."""
UNIT = 2.6
SIZES = (1, 1, 2, 4, 8, 8, 16, 32, 64)
IDLE_WATT, MOST_WATT = 76.0, 690.0


@dataclass
class Job:
    """A job of the day. Times are minutes of the day."""

    number: int
    partition: str
    user: str
    account: str
    gpus: int
    submitted: int
    minutes: int
    use: float
    """What its GPUs are used, from 0 to 1."""
    started: int = -1
    places: dict[int, int] = field(default_factory=dict)
    """GPUs by node."""
    reason: str = "Priority"


@dataclass
class Day:
    """The state at one minute."""

    minute: int = 0
    waiting: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Jobs since the beginning by what happened to them, as slurmctld counts them."""
    used: Counter[int] = field(default_factory=Counter)
    """GPUs in use by node."""

    def exists(self, node: int) -> bool:
        """Whether the node's pod exists."""
        return node < FIRST or self.minute >= SCALE_OUT

    def boots(self, node: int) -> bool:
        """Whether the node is being powered up."""
        return node >= FIRST and SCALE_OUT <= self.minute < SCALE_OUT + BOOT

    def broken(self, node: int) -> bool:
        """Whether the node is away."""
        return self.minute in OUTAGE and node in BROKEN


def _boots(at: int) -> bool:
    return SCALE_OUT <= (at - START) // MINUTE < SCALE_OUT + BOOT


def _away(at: int) -> bool:
    # For an hour already.
    return (at - START) // MINUTE - 60 in OUTAGE


EVENTS = (_boots, _away)
"""Whether nodes boot, or are away, at a time."""


def days() -> Iterator[Day]:
    """The state at each minute, always the same object."""
    rng = random.Random(47)  # noqa: S311 - no secret
    day = Day()
    for job in _arriving(rng, 0, 150):
        day.waiting.append(job)
    for day.minute in range(HOURS * 60 + 1):
        rate = ARRIVALS[day.minute // 60 % HOURS] * UNIT / 60
        arrived = int(rate) + (rng.random() < rate % 1)
        day.waiting += _arriving(rng, day.minute, arrived, day.counts["submitted"] + 1000)
        day.counts["submitted"] += arrived
        _end(day)
        _start(day)
        yield day


def _arriving(rng: random.Random, minute: int, count: int, first: int = 1) -> Iterator[Job]:
    for number in range(first, first + count):
        account = rng.choices(tuple(ACCOUNTS), (9, 5, 4, 6, 7))[0]
        interactive = rng.random() < 0.2
        gpus = rng.choice((1, 1, 2)) if interactive else rng.choice(SIZES)
        minutes = rng.randint(10, 90) if interactive else round(rng.lognormvariate(5.0, 0.7))
        use = min(0.99, max(0.02, rng.betavariate(6, 1.3) * (0.6 if interactive else 1)))
        partition = "interactive" if interactive else "train"
        user = rng.choice(ACCOUNTS[account])
        yield Job(number, partition, user, account, gpus, minute, minutes, use)


def _end(day: Day) -> None:
    for job in list(day.running):
        failed = any(day.broken(node) for node in job.places)
        if failed or day.minute >= job.started + job.minutes:
            day.running.remove(job)
            day.used.subtract(job.places)
            day.counts["failed" if failed else "completed"] += 1


def _start(day: Day) -> None:
    """First come, first served, and smaller jobs fill what is left."""
    free = {
        partition: [it for it in range(NODES) if _takes(day, it, partition)]
        for partition in PARTITIONS
    }
    blocked: dict[str, int] = {}
    for job in list(day.waiting):
        # What had no place a moment ago has none now.
        places = (
            {}
            if job.gpus >= blocked.get(job.partition, NODES * GPUS + 1)
            else (_places(day, job, free[job.partition]))
        )
        if not places:
            job.reason = "Priority" if job.partition in blocked else "Resources"
            blocked[job.partition] = min(job.gpus, blocked.get(job.partition, job.gpus))
            continue
        job.started, job.places = day.minute, places
        day.used.update(places)
        day.waiting.remove(job)
        day.running.append(job)
        day.counts["started"] += 1


def _takes(day: Day, node: int, partition: str) -> bool:
    here = (node in INTERACTIVE) == (partition == "interactive")
    return here and day.exists(node) and not day.boots(node) and not day.broken(node)


def _places(day: Day, job: Job, nodes: Sequence[int]) -> dict[int, int]:
    each = min(job.gpus, GPUS)
    # The fullest nodes first, so that whole nodes stay free.
    fitting = sorted(
        (it for it in nodes if GPUS - day.used[it] >= each), key=lambda it: -day.used[it]
    )
    count = job.gpus // each
    return dict.fromkeys(fitting[:count], each) if len(fitting) >= count else {}


def text(points: Sequence[int] = POINTS) -> str:
    """The series in OpenMetrics' format, for the points of time, of which each has rates."""
    wanted = {(at - before - START) // MINUTE for at in points for before in BEFORE}
    served = [it for it in METRICS if it.name_set is NameSet.OWN]
    totals: defaultdict[str, float] = defaultdict(float)
    lines = []
    for day in days():
        for key, amount in _seconds(day):
            totals[key] += amount * MINUTE
        if day.minute in wanted:
            at = START + day.minute * MINUTE
            found = [*_slurm(day, served), *_gpus(day), *_kubernetes(day), *totals.items()]
            lines += [f"{key} {value:.10g} {at}" for key, value in found]
        if day.minute == max(wanted):
            break
    return "\n".join([*lines, "# EOF\n"])


def _slurm(day: Day, served: Sequence[Metric]) -> Iterator[tuple[str, float]]:
    samples = Samples(served)
    now = float(START + day.minute * MINUTE)
    add_nodes(samples, [_node(day, node) for node in range(NODES)], PARTITIONS)
    add_jobs(samples, list(_jobs(day)), PARTITIONS, now=now, most_jobs=0)
    for block in samples.blocks().values():
        for line in block.decode().splitlines():
            key, _, value = line.rpartition(" ")
            yield _labelled(key), float(value)
    for what in ("submitted", "started", "completed", "failed"):
        yield _labelled(f"slurm_controller_jobs_{what}_total"), day.counts[what]
    yield _labelled("slurm_exporter_up"), 1


def _labelled(key: str) -> str:
    """The key of a series with the labels that Prometheus adds."""
    labels = 'slurm_cluster="slurm",namespace="slurm"'
    return f"{key[:-1]},{labels}}}" if key.endswith("}") else f"{key}{{{labels}}}"


def _node(day: Day, node: int) -> NodeUsage:
    used, away = day.used[node], day.broken(node)
    words = [{0: "IDLE", GPUS: "ALLOCATED"}.get(used, "MIXED")]
    if away:
        words = ["DOWN", "NOT_RESPONDING"]
    elif not day.exists(node):
        words += ["CLOUD", "POWERED_DOWN"]
    elif day.boots(node):
        words += ["CLOUD", "POWERING_UP"]
    since = START + OUTAGE.start * MINUTE
    record = Node(
        f"h100-{node}",
        frozenset(words),
        partitions=(PARTITIONS[node in INTERACTIVE],),
        cpus=CPUS,
        alloc_cpus=used * CPUS // GPUS,
        real_memory=MEMORY,
        alloc_memory=used * MEMORY // GPUS,
        gres=f"gpu:h100:{GPUS}",
        gres_used=f"gpu:h100:{used}" if used else "",
        reason="Not responding" if away else "",
        reason_set_by_user="slurm" if away else "",
        reason_changed_at=since if away else 0,
    )
    return NodeUsage(
        record, effective_cpus=CPUS, idle_cpus=CPUS - record.alloc_cpus, effective_memory=MEMORY
    )


def _jobs(day: Day) -> Iterator[JobUsage]:
    for job in (*day.running, *day.waiting):
        runs = job.started >= 0
        yield JobUsage(
            job.number,
            frozenset({"RUNNING" if runs else "PENDING"}),
            reason="" if runs else job.reason,
            partition=job.partition,
            user=job.user,
            account=job.account,
            submit_time=START + job.submitted * MINUTE,
            eligible_time=START + job.submitted * MINUTE,
            start_time=START + job.started * MINUTE if runs else 0,
            cpus=job.gpus * CPUS // GPUS,
            node_count=len(job.places) or 1,
            memory=job.gpus * MEMORY // GPUS if runs else 0,
            gres=tuple(f"gpu:h100:{count}" for count in job.places.values()),
        )


def _gpus(day: Day) -> Iterator[tuple[str, float]]:
    """What dcgm-exporter serves where it maps GPUs to pods and to jobs."""
    for node in range(NODES):
        if not day.exists(node) or day.broken(node):
            continue
        owners = [job for job in day.running for _ in range(job.places.get(node, 0))]
        for gpu in range(GPUS):
            job = owners[gpu] if gpu < len(owners) else None
            # Each GPU and each hour differ a little.
            wobble = ((node * 7 + gpu * 3 + day.minute // 9) % 11 - 5) / 100
            use = min(1.0, max(0.0, job.use + wobble)) if job else 0.0
            labels = (
                f'{{gpu="{gpu}",UUID="GPU-{node:04d}-{gpu}",pci_bus_id="00000000:{gpu:02X}:00.0",'
                f'device="nvidia{gpu}",'
                f'modelName="NVIDIA H100 80GB HBM3",Hostname="node-{node}",container="slurmd",'
                f'namespace="slurm",pod="slurm-worker-h100-{node}"'
                + (f',hpc_job="{job.number}"}}' if job else "}")
            )
            yield f"DCGM_FI_DEV_GPU_UTIL{labels}", round(use * 100)
            yield f"DCGM_FI_DEV_POWER_USAGE{labels}", IDLE_WATT + (MOST_WATT - IDLE_WATT) * use
            yield f"DCGM_FI_DEV_GPU_TEMP{labels}", round(31 + 40 * use + node % 4)
            yield f"DCGM_FI_DEV_FB_USED{labels}", round(80_000 * (0.15 + 0.8 * use)) if job else 4
            yield (
                f"DCGM_FI_DEV_FB_FREE{labels}",
                round(80_000 * (0.85 - 0.8 * use)) if job else 79_996,
            )
            yield f"DCGM_FI_DEV_XID_ERRORS{labels}", 0


def _pods(day: Day) -> Iterator[tuple[str, str, str]]:
    """Name, Kubernetes node and phase of each pod."""
    for name in ("slurm-controller-0", "slurm-accounting-0", "slurm-restapi-0", "slurm-login-0"):
        yield name, "system-0", "Running"
    for node in range(NODES):
        if day.exists(node):
            phase = "Pending" if day.boots(node) else "Running"
            yield f"slurm-worker-h100-{node}", f"node-{node}", phase


def _kubernetes(day: Day) -> Iterator[tuple[str, float]]:
    """What kube-state-metrics and kubelets serve."""
    for node in ("system-0", *(f"node-{it}" for it in range(NODES) if day.exists(it))):
        away = node != "system-0" and day.broken(int(node.rpartition("-")[2]))
        for status in ("true", "false", "unknown"):
            key = f'kube_node_status_condition{{node="{node}",condition="Ready",status="{status}"}}'
            yield key, status == ("unknown" if away else "true")
        yield f'kube_node_spec_unschedulable{{node="{node}"}}', 0
    for pod, node, phase in _pods(day):
        of = f'namespace="slurm",pod="{pod}"'
        yield f'kube_pod_info{{{of},node="{node}"}}', 1
        for each in ("Pending", "Running", "Succeeded", "Failed", "Unknown"):
            yield f'kube_pod_status_phase{{{of},phase="{each}"}}', each == phase
        number = int(pod.rpartition("-")[2])
        away = "worker" in pod and day.broken(number)
        ready = phase == "Running" and not away
        yield f'kube_pod_status_ready{{{of},condition="true"}}', ready
        container = "slurmd" if "worker" in pod else "main"
        waits = f'kube_pod_container_status_waiting_reason{{{of},container="{container}"'
        if phase == "Pending":
            yield f'{waits},reason="ContainerCreating"}}', 1
        again = number in BROKEN and "worker" in pod and day.minute >= OUTAGE.stop
        yield (
            f'kube_pod_container_status_restarts_total{{{of},container="{container}"}}',
            float(again),
        )
        memory = 6e9 if "controller" in pod else 2e9
        if "worker" in pod:
            memory = day.used[number] * 0.6 * MEMORY / GPUS * 2**20 + 1e9
        if not away:
            yield f'container_memory_working_set_bytes{{{of},container="{container}"}}', memory
    for claim, size in (("statesave-slurm-controller-0", 10e9), ("data-slurm-mariadb-0", 50e9)):
        of = f'namespace="slurm",persistentvolumeclaim="{claim}"'
        yield f"kubelet_volume_stats_capacity_bytes{{{of}}}", size
        yield f"kubelet_volume_stats_available_bytes{{{of}}}", size * (0.8 - day.minute / 9000)


def _seconds(day: Day) -> Iterator[tuple[str, float]]:
    """CPU seconds of each second by container."""
    for pod, _, phase in _pods(day):
        worker = "worker" in pod
        node = int(pod.rpartition("-")[2])
        if phase == "Running" and not (worker and day.broken(node)):
            container = "slurmd" if worker else "main"
            key = f'namespace="slurm",pod="{pod}",container="{container}"'
            amount = day.used[node] * CPUS / GPUS * 0.7 if worker else 0.4
            yield f"container_cpu_usage_seconds_total{{{key}}}", amount
