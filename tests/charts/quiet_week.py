"""A week of a healthy cluster in virtual time, as series of Prometheus: nodes that boot and are
powered down, rolling updates behind long jobs, dependency chains and limits, restarts of daemons.

Nodes and jobs are counted by the exporter's own code. No alert may fire in it.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from sidecars.exporter.compatible import METRICS
from sidecars.exporter.jobs import add_jobs
from sidecars.exporter.nodes import add_nodes
from sidecars.exporter.samples import Samples
from sidecars.slurm.records import Node
from sidecars.slurm.usage import JobUsage, NodeUsage

STEP = 4
"""Minutes between two samples."""
DAYS = 7
STEPS = DAYS * 24 * 60 // STEP
UPDATES = (2, 5)
"""Days of rolling updates."""
STATIC, ADDED, SAVING = 10, 8, 10
"""Nodes that always exist, that autoscaling adds, and that Slurm powers up."""
PARTITIONS = ("cpu", "burst")
_NAME = re.compile(r"\bslurm_[a-z0-9_]+")
_OPERATOR = "slurm-operator: Pod (slurm/{}) is pending termination for {}"
_STOPPED = "slurm-node: slurmd has stopped"
State = tuple[frozenset[str], str]
"""The words of a node's state, and its reason."""
ABSENT: State = frozenset(), ""


def _state(*words: str, reason: str = "") -> State:
    return frozenset(words), reason


def _filled(states: list[State]) -> list[State]:
    return (states + [states[-1]] * STEPS)[:STEPS]


def _for(rng: random.Random, least: float, most: float) -> int:
    """So many steps as so many hours, at random."""
    return max(1, round(rng.uniform(least, most) * 60 / STEP))


def _powered(rng: random.Random) -> list[State]:
    """A node of power saving: it boots in up to 12 minutes, runs jobs, is idle, is powered down."""
    cloud = "CLOUD", "DYNAMIC_NORM"
    found: list[State] = []
    while len(found) < STEPS:
        found += [_state("IDLE", "POWERED_DOWN", *cloud)] * _for(rng, 0.1, 4)
        boots = _state("ALLOCATED", "POWERING_UP", "NOT_RESPONDING", *cloud)
        found += [boots] * _for(rng, 0.05, 0.2)
        found += [_state("ALLOCATED", *cloud)] * _for(rng, 0.5, 6)
        found += [_state("IDLE", *cloud)] * _for(rng, 0.05, 0.2)
        found += [_state("IDLE", "POWERING_DOWN", "NOT_RESPONDING", *cloud)]
    return _filled(found)


def _added(rng: random.Random, name: str) -> list[State]:
    """A node of autoscaling, which is gone between its jobs."""
    found: list[State] = []
    while len(found) < STEPS:
        found += [ABSENT] * _for(rng, 0.5, 5)
        found += [_state("ALLOCATED", "DYNAMIC_NORM")] * _for(rng, 0.5, 6)
        found += [_state("IDLE", "DYNAMIC_NORM")] * _for(rng, 0.05, 0.2)
        found += [_state("IDLE", "DRAIN", reason=_OPERATOR.format(name, "scale-in"))]
        found += [_state("DOWN", reason=_STOPPED)]
    return _filled(found)


def _static(rng: random.Random, name: str, number: int) -> list[State]:
    """A node with jobs by day and without some at night, updated with half of the others."""
    found: list[State] = []
    day = 24 * 60 // STEP
    for _ in range(DAYS):
        night = [_state("IDLE")] * (day // 3) if number % 2 else [_state("MIXED")] * (day // 3)
        found += [*night, *[_state("ALLOCATED")] * (day - len(night))]
    for update in UPDATES:
        begin = update * day + day // 2 + number // 5 * _for(rng, 2, 3)
        waits = _for(rng, 0.1, 3)
        reason = _OPERATOR.format(name, "an update")
        found[begin : begin + waits] = [_state("ALLOCATED", "DRAIN", reason=reason)] * waits
        found[begin + waits : begin + waits + 1] = [_state("DOWN", "DRAIN", reason=_STOPPED)]
    if number == 3:
        # An administrator looks at it for half a day.
        begin, waits = day + 10, _for(rng, 11, 12)
        found[begin : begin + waits] = [_state("IDLE", "DRAIN", reason="a look at its fan")] * waits
    return _filled(found)


def _usage(name: str, partition: str, state: State, since: int) -> NodeUsage:
    words, reason = state
    used = 8 if "ALLOCATED" in words else 4 if "MIXED" in words else 0
    gpus = "gpu:h100:4" if partition == "burst" else ""
    node = Node(
        name,
        words,
        partitions=(partition,),
        cpus=8,
        alloc_cpus=used,
        real_memory=8000,
        gres=gpus,
        gres_used=gpus if used else "",
        reason=reason,
        reason_set_by_user="root" if reason else "",
        reason_changed_at=since if reason else 0,
    )
    return NodeUsage(node, effective_cpus=8, idle_cpus=8 - used, effective_memory=8000)


def _jobs(minute: int, running: int) -> list[JobUsage]:
    """The queue: what can start waits for minutes, and what can't for days."""
    now = minute * 60
    found = [
        JobUsage(it, frozenset({"RUNNING"}), partition="cpu", user="ada", submit_time=1, cpus=8)
        for it in range(running)
    ]
    number = 1000
    for reason, count, days in (
        ("Dependency", 20, 7),
        ("DependencyNeverSatisfied", 1, 7),
        ("QOSMaxJobsPerUserLimit", 30, 2),
        ("AssocGrpCpuLimit", 5, 1),
        ("JobArrayTaskLimit", 3, 1),
        ("BeginTime", 4, 3),
        ("Licenses", 2, 1),
        ("JobHeldUser", 3, 7),
        ("Resources", 1, 0),
        ("Priority", 6, 0),
    ):
        for _ in range(count):
            number += 1
            submitted = max(1, now - days * 86_400 - 600)
            eligible = now + 3600 if reason == "BeginTime" else submitted
            found.append(
                JobUsage(
                    number,
                    frozenset({"PENDING"}),
                    reason=reason,
                    released=reason != "JobHeldUser",
                    partition="cpu" if number % 2 else "burst",
                    user="ada",
                    submit_time=submitted,
                    eligible_time=0 if reason.startswith("Dependency") else eligible,
                    cpus=8,
                )
            )
    return found


def _conditions(
    minute: int, states: Mapping[str, State], steps_with_ready: Mapping[str, tuple[int, int]]
) -> Iterable[tuple[str, float]]:
    """What the operator reports: each NodeSet isn't ready while workers boot or jobs are waited
    for.
    """
    words = 'slurm_operator_condition{{namespace="slurm", kind="{}", name="{}", type="{}", '
    words += 'status="{}", reason="{}"}}'
    for nodeset, (ready, desired) in steps_with_ready.items():
        draining = any(
            name.startswith(nodeset) and state[1].startswith("slurm-operator")
            for name, state in states.items()
        )
        status, reason = ("False", "Draining") if draining else ("True", "Ready")
        if ready < desired and not draining:
            status, reason = "False", "PodsNotReady"
        yield words.format("NodeSet", nodeset, "Ready", status, reason), 1
        yield words.format("NodeSet", nodeset, "SlurmReachable", "True", "Answers"), 1
        for state, count in (("desired", desired), ("ready", ready)):
            labels = f'namespace="slurm", nodeset="{nodeset}", state="{state}"'
            yield f"slurm_operator_nodeset_pods{{{labels}}}", count
    hour = minute // 60 % 24
    own = hour == 9 and minute % 60 < 6
    reason = "OtherOwner" if own else "Demand" if hour > 8 else "Satisfied"
    yield words.format("NodeSet", "added", "Autoscaled", "False" if own else "True", reason), 1
    yield words.format("NodeSet", "saving", "PowerSaving", "True", "Following"), 1
    waits = hour == 11 and minute % 60 < 20
    counted = ("False", "NotCounted") if waits else ("True", "Counted")
    yield words.format("Controller", "slurm", "JobsCounted", *counted), 1
    yield words.format("Controller", "slurm", "ConfigurationAccepted", "True", "DryRunPassed"), 1
    yield words.format("Controller", "slurm", "Ready", "True", "Ready"), 1


def series(expressions: Iterable[str]) -> dict[str, str]:
    """The series that these expressions name, in Prometheus' notation for tests, one sample each
    `STEP` minutes.
    """
    wanted = {name for it in expressions for name in _NAME.findall(it)}
    rng = random.Random(44)  # noqa: S311 - no secret
    nodes = {f"static-{it}": _static(rng, f"static-{it}", it) for it in range(STATIC)}
    nodes |= {f"added-{it}": _added(rng, f"added-{it}") for it in range(ADDED)}
    nodes |= {f"saving-{it}": _powered(rng) for it in range(SAVING)}
    since = dict.fromkeys(nodes, 0)
    served = [it for it in METRICS if it.name in wanted]
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    started = 0
    for step in range(STEPS):
        minute = step * STEP
        states = {name: each[step] for name, each in nodes.items()}
        for name in nodes:
            if step and nodes[name][step][1] != nodes[name][step - 1][1]:
                since[name] = minute * 60
        present = [
            _usage(name, "burst" if name.startswith("saving") else "cpu", it, since[name])
            for name, it in states.items()
            if it is not ABSENT
        ]
        samples = Samples(served)
        add_nodes(samples, present, PARTITIONS)
        running = sum("ALLOCATED" in it[0] for it in states.values())
        add_jobs(samples, _jobs(minute, running), PARTITIONS, now=minute * 60.0, most_jobs=0)
        night = minute // 60 % 24 < 8
        started += 0 if night else 2
        values = list(_conditions(minute, states, _ready(states)))
        for block in samples.blocks().values():
            for line in block.decode().splitlines():
                key, _, number = line.rpartition(" ")
                values.append((_of_cluster(key), float(number)))
        values += _cluster(minute, started, states)
        for key, value in values:
            if key.partition("{")[0] in wanted:
                found[key].append((step, value))
    return {key: _notation(values) for key, values in found.items()}


def _ready(states: Mapping[str, State]) -> dict[str, tuple[int, int]]:
    """Ready and desired pods of each NodeSet."""
    found = {}
    for nodeset in ("static", "added", "saving"):
        own = [it[0] for name, it in states.items() if name.startswith(nodeset)]
        runs = [it for it in own if it and "POWERED_DOWN" not in it and "POWERING_DOWN" not in it]
        ready = sum("POWERING_UP" not in it and "DOWN" not in it for it in runs)
        found[nodeset] = ready, len(runs)
    return found


def _cluster(minute: int, started: int, states: Mapping[str, State]) -> Iterable[tuple[str, float]]:
    """What the exporter reports of itself, slurmctld, checks and wanted replicas."""
    restarts = minute % (24 * 60) == 3 * 60
    yield _of_cluster("slurm_exporter_up"), float(not restarts)
    yield _of_cluster('slurm_exporter_stale{family="jobs"}'), 0
    restarted = 1 + (minute - 3 * 60) // (24 * 60)
    kind = 'slurm_exporter_errors_total{source="nodes",kind="unreachable"}'
    yield _of_cluster(kind), float(restarted)
    yield _of_cluster("slurm_controller_jobs_started_total"), float(started)
    yield _of_cluster("slurm_schedule_cycles_total"), float(minute)
    yield _of_cluster("slurm_schedule_cycle_seconds_total"), minute * 0.05
    yield _of_cluster("slurm_controller_server_threads"), 4
    yield _of_cluster("slurm_controller_slurmdbd_queue_messages"), 300 if restarts else 0
    day = 86_400
    due = (minute * 60 // day + 1) * day + 600
    yield _of_cluster('slurm_check_result_due_timestamp_seconds{check="disk"}'), float(due)
    yield _of_cluster('slurm_check_interval_seconds{check="disk"}'), float(day)
    count = sum(bool(it[0]) for name, it in states.items() if name.startswith("added"))
    yield _of_cluster('slurm_nodeset_wanted_replicas{nodeset="added"}'), float(count)
    yield 'slurm_operator_passes_failed_total{kind="NodeSet"}', float(restarted)


def _of_cluster(key: str) -> str:
    """The series with the labels of the cluster."""
    name, _, labels = key.partition("{")
    rest = labels.rstrip("}")
    return f'{name}{{slurm_cluster="slurm",namespace="slurm"{"," + rest if rest else ""}}}'


def _notation(values: list[tuple[int, float]]) -> str:
    """`1x30 _x5 0x3`: how often a value follows itself; `_` where no sample exists."""
    parts: list[str] = []
    at, last = 0, None
    count = 0
    for step, value in [*values, (STEPS, None)]:
        gap = step - at
        if (gap or value != last) and last is not None:
            parts.append(f"{last:g}x{count - 1}" if count > 1 else f"{last:g}")
            last = None
        if gap and step < STEPS:
            parts.append(f"_x{gap}")
        count = count + 1 if last is not None else 1
        last, at = value, step + 1
    return " ".join(parts)
