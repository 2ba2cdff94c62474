"""A real Slurm cluster of three CPU nodes and one with GPUs, and what can break there: for each
fault, a job that waits because of it, and what `explain` should name first.

Slurm's side is real. Kubernetes' side is what its API would report: the NodeSets `cpu`, `gpu`,
`burst` and `empty` of the cluster, with the pods of their nodes, and what a fault changes there.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sidecars.contract.extra import PodFacts, encode
from sidecars.explain import commands
from sidecars.explain.core import cluster_health
from sidecars.explain.core import job as explained
from sidecars.explain.core.records import Answer, Kube, Seen
from sidecars.slurm.rest import Rest
from sidecars.slurm.tokens import sign
from tests.support.real import daemons
from tests.support.real.daemons import ADDRESS, MEMORY, Daemons
from tests.support.real.simulated_nodes import Slurmctld
from tests.unit.explain.core import building

CPUS, GPUS = ("cpu-0", "cpu-1", "cpu-2"), ("gpu-0",)
CLOUD = ("burst-0", "burst-1")
MOST_ADDED = 4
"""Nodes that may be added: as many ports are left."""
CONF = f"""\
{MEMORY}SlurmdParameters=config_overrides
GresTypes=gpu
MaxNodeCount=32
Licenses=matlab:2
PriorityType=priority/basic
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,default_queue_depth=1000
SlurmdTimeout=60
KillWait=1
SuspendTime=1000000000
ResumeProgram=/bin/true
SuspendProgram=/bin/true
ResumeTimeout=36000
NodeName=burst-[0-1] CPUs=4 RealMemory=4000 Feature=burst State=CLOUD
NodeSet=cpu Feature=cpu
NodeSet=gpu Feature=gpu
NodeSet=burst Feature=burst
NodeSet=empty Feature=empty
PartitionName=cpu Nodes=cpu Default=YES State=UP MaxTime=UNLIMITED
PartitionName=gpu Nodes=gpu State=UP
PartitionName=narrow Nodes=cpu State=UP MaxCPUsPerNode=1
PartitionName=burst Nodes=burst State=UP
PartitionName=empty Nodes=empty State=UP
"""
GAMES = 5
"""The user `games` of the images."""
PARTITIONS = ("cpu", "gpu", "narrow", "burst", "empty")
GRES = b"NodeName=gpu-0 Name=gpu Type=h100 File=/dev/null,/dev/zero\n"
_NODE = "CPUs=4 RealMemory=4000 Feature=cpu"
_WITH_GPUS = "CPUs=4 RealMemory=8000 Feature=gpu Gres=gpu:h100:2"
SECONDS = 60.0
Object = dict[str, Any]


@dataclass(frozen=True)
class Situation:
    """A job that waits, and what is first in the right answer."""

    job: str
    codes: frozenset[str]
    """One of these is the code of the first finding."""
    words: tuple[str, ...] = ()
    """What the first finding contains."""
    kube: dict[str, Any] = field(default_factory=dict)
    """What Kubernetes reports instead of a healthy cluster."""
    options: tuple[str, ...] = ()
    """Those of the job's submission."""
    person: bool | None = False
    """Whether the job waits for a person who looks after the cluster, or for its user who has to
    correct it. What its user intends, such as a later begin, counts as no. None: nobody can tell.
    """


class Cluster:
    """The daemons, and what is done to them."""

    def __init__(self, found: Daemons) -> None:
        """They run."""
        self.daemons = found
        self.slurm = Slurmctld(
            found, Rest(found.url, lambda: sign(found.key, "root", 900, time.time()))
        )
        self._added: list[str] = []

    def run(self, *words: str, check: bool = True) -> str:
        """The output of one of Slurm's commands."""
        return self.daemons.run("slurmctld", *words, check=check).stdout.strip()

    def node(self, name: str, **changes: str) -> None:
        """Change a node."""
        self.run(
            "scontrol", "update", f"nodename={name}", *(f"{k}={v}" for k, v in changes.items())
        )

    def submit(self, *options: str, script: str = "sleep 600", user: int = 0) -> str:
        """A job's id."""
        usual = ("--chdir=/", "--output=/dev/null", "--time=60", "--mem=100")
        words = ("sbatch", "--parsable", *usual, *options, f"--wrap={script}")
        # Users read the configuration of a node.
        where = CPUS[0] if user else "slurmctld"
        done = self.daemons.run(where, *words, user=user, check=True)
        return done.stdout.strip().partition(";")[0]

    def state(self, job: str) -> tuple[str, str]:
        """State and reason."""
        lines = self.run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T|%r")
        state, _, reason = (lines.splitlines() or ["|"])[0].partition("|")
        return state, reason

    def starts(self, *options: str) -> str:
        """A job that runs; its id."""
        job = self.submit(*options)
        self.until(f"job {job} to run", lambda: self.state(job)[0] == "RUNNING")
        return job

    def fill(self, *nodes: str, memory: int = 100, cpus: int = 4) -> list[str]:
        """Jobs on so many CPUs and so much memory of these nodes."""
        return [
            self.starts(
                f"--partition={it.partition('-')[0]}",
                f"--nodelist={it}",
                f"--cpus-per-task={cpus}",
                f"--mem={memory}",
            )
            for it in nodes
        ]

    def waits(self, *options: str) -> str:
        """A job for which Slurm has found a reason to wait."""
        job = self.submit(*options)
        self.until_reason(job)
        return job

    def until_reason(self, job: str, *reasons: str) -> None:
        """Wait until Slurm has looked at a pending job, and gives one of these reasons, if some are
        given.
        """
        before = self.slurm.cycles()

        def looked() -> bool:
            state, reason = self.state(job)
            assert state == "PENDING", (job, state)
            known = reason in reasons if reasons else reason not in ("None", "")
            return known and self.slurm.cycles() > before

        self.until(f"job {job} to wait", looked)

    def until(self, what: str, look: Callable[[], bool]) -> None:
        """Wait for something."""
        self.slurm.until(what, look)

    def begins(self, job: str) -> bool:
        """Whether a job that waits begins within a minute."""
        end = time.monotonic() + SECONDS
        while self.state(job)[0] == "PENDING" and time.monotonic() < end:
            time.sleep(0.1)
        return self.state(job)[0] not in ("PENDING", "")

    def change(self, job: str, change: str) -> None:
        """Change a job. While backfill plans it, slurmctld refuses that for a moment."""
        words = "scontrol", "update", f"jobid={job}", change
        self.until(
            f"{change} of job {job}",
            lambda: self.daemons.run("slurmctld", *words).returncode == 0,
        )

    def add(self, nodeset: str) -> str:
        """One more node of a NodeSet; its name."""
        name = f"{nodeset}-{10 + len(self._added)}"
        port = self.daemons.port("slurmd") + len(CPUS + GPUS) + len(self._added)
        self._added.append(name)
        options = f"NodeAddr={ADDRESS} Port={port} CPUs=4 RealMemory=4000 Feature={nodeset}"
        self.daemons.slurmd(name, "-Z", "--conf", options)
        self.until(f"{name} to register", lambda: name in self.run("sinfo", "-h", "-N", "-o%N %t"))
        return name

    # --- what is asked

    def explain(self, situation: Situation) -> Answer:
        """The answer about the job."""
        return explained.explain(self._seen(situation.kube, "job", situation.job), situation.job)

    def doctor(self, kube: dict[str, Any]) -> Answer:
        """The answer about the cluster, of which Kubernetes reports `kube` instead of health."""
        return cluster_health.explain(self._seen(kube, "queue"))

    def _seen(self, changed: dict[str, Any], subject: str, parameter: str = "") -> Seen:
        words = commands.script(subject, parameter)
        done = self.daemons.run("slurmctld", *words)
        slurm, missing = commands.read(commands.sections(done.stdout, done.stderr), subject)
        return Seen(time.time(), "slurm", slurm, replace(healthy(), **changed), missing)

    # --- afterwards

    def unreserve(self) -> None:
        """Delete all reservations."""
        for line in self.run("scontrol", "-o", "show", "reservation").splitlines():
            if line.startswith("ReservationName="):
                self.run("scontrol", "delete", line.split()[0])

    def mend(self) -> None:
        """Undo all faults, and end all jobs."""
        self.run("scancel", "--user=root", "--state=PENDING", check=False)
        self.run("scancel", "--user=root", check=False)
        self.unreserve()
        for name in PARTITIONS:
            self.run(
                "scontrol",
                "update",
                f"partitionname={name}",
                "state=up",
                "maxtime=unlimited",
                "maxnodes=unlimited",
                "allowgroups=all",
            )
        for name in self._added:
            self.daemons.forget(name)
        for name in CPUS + GPUS:
            if not self.daemons.runs(name):
                self.daemons.start(name)
            self.run("scontrol", "update", f"nodename={name}", "state=resume", check=False)
        self.node("gpu-0", activefeatures="gpu", availablefeatures="gpu")
        self.until("no job", lambda: not self.run("squeue", "--noheader"))
        for name in self._added:
            self.run("scontrol", "delete", f"nodename={name}", check=False)
        self._added.clear()
        self.until("all nodes to be idle", self._idle)

    def _idle(self) -> bool:
        names = ",".join(CPUS + GPUS)
        return set(self.run("sinfo", "-h", "-N", f"--nodes={names}", "-o%t").split()) == {"idle"}


@contextlib.contextmanager
def running(home: Path, port: int) -> Iterator[Cluster]:
    """The cluster, idle. Needs root."""
    lines = daemons.nodes(port, CPUS, _NODE)
    first = port + len(CPUS)
    lines += daemons.nodes(first, GPUS, _WITH_GPUS)
    with contextlib.closing(Daemons(home, port, f"{lines}{CONF}")) as found:
        found.files["gres.conf"] = GRES
        found.slurmctld()
        found.slurmrestd()
        for name in CPUS + GPUS:
            found.slurmd(name)
        cluster = Cluster(found)

        def answers() -> bool:
            return cluster._idle() if found.scontrol("ping").returncode == 0 else False

        cluster.until("the nodes to be idle", answers)
        for name in CLOUD:
            facts = PodFacts("", f"slurm-worker-{name}", "slurm", "uid-of-burst")
            cluster.node(name, extra=encode(facts))
        cluster.until("slurmrestd to answer", lambda: _answers(cluster))
        yield cluster


def _answers(cluster: Cluster) -> bool:
    try:
        return cluster.slurm.cycles() >= 0
    except (OSError, AssertionError, KeyError):
        return False


# --- Kubernetes' side


def nodeset(name: str, replicas: int, *conditions: Object, **spec: Any) -> Object:
    """A NodeSet whose nodes are in the partition of its name."""
    found = building.nodeset(name, replicas, tuple(conditions), partitions=[name])
    found["spec"] |= spec
    return found


def worker(name: str, found: Object | None = None) -> Object:
    """The worker pod of a node, or another form of it."""
    found = found or building.pod(name)
    own = name.partition("-")[0]
    found["metadata"]["ownerReferences"] = [
        {"kind": "NodeSet", "name": own, "uid": f"uid-of-{own}"}
    ]
    return found


def nodesets(*changed: Object) -> tuple[Object, ...]:
    """Those of the cluster, some of them changed."""
    usual = [nodeset("cpu", 3), nodeset("gpu", 1), nodeset("burst", 2), nodeset("empty", 0)]
    names = {it["metadata"]["name"] for it in changed}
    return (*changed, *(it for it in usual if it["metadata"]["name"] not in names))


def pods(*more: Object) -> tuple[Object, ...]:
    """Those of the nodes and of slurmctld, and more."""
    return (*map(worker, CPUS + GPUS), building.daemon(), *more)


def healthy() -> Kube:
    """A cluster whose pods run."""
    ready = building.condition("Ready", "True", "Ready")
    return Kube((building.controller(ready),), nodesets(), (), pods(), (), events=(), quotas=())


# --- faults

Random = random.Random
Fault = Callable[[Cluster, Random], Situation]
FAULTS: list[Fault] = []


def fault(function: Fault) -> Fault:
    """One that may be drawn."""
    FAULTS.append(function)
    return function


def _one(of: Cluster, random_: Random) -> tuple[str, list[str]]:
    """A node, and jobs on all others of its partition."""
    node = random_.choice(CPUS)
    of.fill(*(it for it in CPUS if it != node))
    return node, [f"--cpus-per-task={random_.randint(1, 4)}"]


@fault
def an_administrator_drains_the_only_free_node(of: Cluster, random_: Random) -> Situation:
    node, options = _one(of, random_)
    of.node(node, state="drain", reason=random_.choice(["bad disk", "fan", "moved"]))
    job = of.waits(*options)
    return Situation(job, frozenset({"Drained"}), (node,), options=(*options,), person=True)


@fault
def the_operator_drains_the_only_free_node_for_an_update(of: Cluster, random_: Random) -> Situation:
    node, options = _one(of, random_)
    why = f"slurm-operator: Pod (slurm/slurm-worker-{node}) is pending termination for an update"
    of.node(node, state="drain", reason=why)
    job = of.waits(*options)
    return Situation(job, frozenset({"Drained"}), (node, "an update"), options=(*options,))


@fault
def the_kubernetes_node_of_the_only_free_node_is_cordoned(
    of: Cluster, random_: Random
) -> Situation:
    node, options = _one(of, random_)
    why = (
        f"slurm-operator: Node (kube-{node}) was cordoned, Pod (slurm/slurm-worker-{node}) must be "
        "cordoned"
    )
    of.node(node, state="drain", reason=why)
    job = of.waits(*options)
    words = (node, f"kubectl uncordon kube-{node}")
    kube = {"kube_nodes": (building.kube_node(f"kube-{node}", cordoned=True),)}
    return Situation(job, frozenset({"Drained"}), words, kube, (*options,), person=True)


@fault
def a_check_drains_the_node_with_the_gpus(of: Cluster, random_: Random) -> Situation:
    of.node("gpu-0", state="drain", reason="slurm-node: check: gpu: Xid 79")
    options = ("--partition=gpu", f"--gres=gpu:{random_.randint(1, 2)}")
    job = of.waits(*options)
    return Situation(job, frozenset({"Drained"}), ("gpu-0", "Xid 79"), options=options, person=True)


@fault
def a_node_is_down(of: Cluster, random_: Random) -> Situation:
    node, options = _one(of, random_)
    of.node(node, state="down", reason="power supply")
    job = of.waits(*options)
    return Situation(job, frozenset({"Down"}), (node,), options=(*options,), person=True)


@fault
def a_named_node_is_drained_while_another_nodeset_is_at_zero(
    of: Cluster, random_: Random
) -> Situation:
    node = random_.choice(CPUS)
    of.node(node, state="drain", reason="bad disk")
    options = (f"--nodelist={node}",)
    job = of.waits(*options)
    return Situation(job, frozenset({"Drained"}), (node,), options=options, person=True)


@fault
def a_named_node_is_full(of: Cluster, random_: Random) -> Situation:
    node = random_.choice(CPUS)
    of.fill(node)
    options = (f"--nodelist={node}",)
    job = of.waits(*options)
    return Situation(job, frozenset({"NamedNodeBusy"}), (node, "0 of 4 CPUs"), options=options)


@fault
def a_named_node_is_gone(of: Cluster, random_: Random) -> Situation:
    node = of.add("cpu")
    of.fill(*CPUS)
    of.fill(node)
    options = (f"--nodelist={node}",)
    job = of.waits(*options)
    of.run("scontrol", "update", f"nodename={node}", "state=down", "reason=gone")
    of.run("scancel", "--nodelist=" + node)
    of.until("no job on it", lambda: not of.run("squeue", "-h", "--states=R,CG", f"-w{node}"))
    of.run("scontrol", "delete", f"nodename={node}")
    of.until_reason(job, "BadConstraints")
    codes = frozenset({"NamedNodeMissing", "BadConstraints"})
    return Situation(job, codes, options=options, person=True)


@fault
def all_nodes_are_full(of: Cluster, random_: Random) -> Situation:
    of.fill(*CPUS)
    options = (f"--cpus-per-task={random_.randint(1, 4)}",)
    job = of.waits(*options)
    return Situation(job, frozenset({"Resources", "Busy"}), options=options)


@fault
def all_memory_is_in_use(of: Cluster, random_: Random) -> Situation:
    of.fill(*CPUS, memory=3900, cpus=1)
    options = (f"--mem={random_.randint(200, 3900)}",)
    job = of.waits(*options)
    return Situation(job, frozenset({"Resources", "Busy"}), options=options)


@fault
def an_exclusive_job_waits_for_shared_nodes(of: Cluster, random_: Random) -> Situation:
    of.fill(*CPUS, cpus=random_.randint(1, 3))
    options = ("--exclusive",)
    job = of.waits(*options)
    return Situation(job, frozenset({"Resources", "Busy"}), options=options)


@fault
def others_have_a_higher_priority(of: Cluster, random_: Random) -> Situation:
    of.fill(*CPUS)
    for _ in range(random_.randint(1, 4)):
        of.waits("--cpus-per-task=4")
    job = of.waits()
    return Situation(job, frozenset({"Priority", "JobsAhead"}))


@fault
def a_partition_is_set_down_or_inactive(of: Cluster, random_: Random) -> Situation:
    state = random_.choice(["DOWN", "INACTIVE"])
    name, nodes = random_.choice([("cpu", CPUS), ("gpu", GPUS)])
    of.fill(*nodes)
    job = of.waits(f"--partition={name}")
    of.run("scontrol", "update", f"partitionname={name}", f"state={state}")
    of.until_reason(job, f"Partition{state.title()}")
    return Situation(
        job, frozenset({"PartitionExcludes", f"Partition{state.title()}"}), (name,), person=True
    )


@fault
def the_longest_time_of_a_partition_is_lowered(of: Cluster, random_: Random) -> Situation:
    limit = random_.choice([10, 20, 30])
    of.fill(*CPUS)
    job = of.waits("--cpus-per-task=4")
    of.run("scontrol", "update", "partitionname=cpu", f"maxtime={limit}")
    of.until_reason(job, "PartitionTimeLimit")
    return Situation(job, frozenset({"PartitionExcludes"}), (str(limit),), person=True)


@fault
def the_most_nodes_of_a_partition_are_lowered(of: Cluster, random_: Random) -> Situation:
    of.fill(*CPUS)
    job = of.waits("--nodes=2")
    of.run("scontrol", "update", "partitionname=cpu", "maxnodes=1")
    of.until_reason(job, "PartitionNodeLimit")
    return Situation(job, frozenset({"PartitionExcludes"}), ("MaxNodes of cpu is 1",), person=True)


@fault
def more_nodes_are_requested_than_exist(of: Cluster, random_: Random) -> Situation:
    count = random_.randint(4, 9)
    options = (f"--nodes={count}",)
    job = of.waits(*options)
    return Situation(
        job, frozenset({"TooManyNodes"}), (f"{count} nodes", "has 3"), options=options, person=True
    )


@fault
def a_reservation_has_the_nodes(of: Cluster, random_: Random) -> Situation:
    of.run(
        "scontrol",
        "create",
        "reservation=course",
        "users=games",
        "starttime=now",
        f"duration={random_.randint(10, 90)}",
        "flags=ignore_jobs",
        f"nodes={','.join(CPUS)}",
    )
    job = of.waits()
    return Situation(job, frozenset({"Reserved"}), ("course",))


@fault
def a_reservation_begins_before_the_job_would_end(of: Cluster, random_: Random) -> Situation:
    of.run(
        "scontrol",
        "create",
        "reservation=later",
        "users=games",
        f"starttime=now+{random_.randint(15, 40)}minutes",
        "duration=60",
        f"nodes={','.join(CPUS)}",
    )
    options = ("--time=120",)
    job = of.waits(*options)
    return Situation(job, frozenset({"ReservedSoon"}), ("later",), options=options)


@fault
def a_job_must_be_released(of: Cluster, random_: Random) -> Situation:
    job = of.submit("--hold")
    return Situation(job, frozenset({"JobHeldUser", "JobHeldAdmin"}))


@fault
def an_administrator_requeues_a_job_with_priority_0(of: Cluster, random_: Random) -> Situation:
    job = of.starts()
    of.run("scontrol", "requeuehold", job)
    of.until("it to be pending", lambda: of.state(job)[0] == "PENDING")
    return Situation(job, frozenset({"JobHeldUser", "JobHeldAdmin", "BeginTime"}))


@fault
def a_job_begins_later(of: Cluster, random_: Random) -> Situation:
    job = of.waits(f"--begin=now+{random_.randint(1, 9)}hours")
    return Situation(job, frozenset({"BeginTime"}))


@fault
def a_job_waits_for_one_that_must_be_released(of: Cluster, random_: Random) -> Situation:
    blocked = of.submit("--hold")
    kind = random_.choice(["afterok", "afterany", "afternotok"])
    job = of.waits(f"--dependency={kind}:{blocked}")
    return Situation(job, frozenset({"JobHeldUser", "JobHeldAdmin"}), (blocked,))


@fault
def a_job_waits_for_one_that_runs(of: Cluster, random_: Random) -> Situation:
    first = of.starts()
    job = of.waits(f"--dependency=afterok:{first}")
    return Situation(job, frozenset({"Dependency"}), (first,))


@fault
def the_job_that_it_waits_for_has_failed(of: Cluster, random_: Random) -> Situation:
    blocked = of.submit("--hold")
    job = of.waits(f"--dependency=afterok:{blocked}")
    of.run("scancel", blocked)
    of.until_reason(job, "DependencyNeverSatisfied")
    return Situation(job, frozenset({"DependencyNeverSatisfied"}), person=True)


@fault
def the_licenses_are_used_up(of: Cluster, random_: Random) -> Situation:
    of.starts("--licenses=matlab:2")
    job = of.waits(f"--licenses=matlab:{random_.randint(1, 2)}")
    return Situation(job, frozenset({"Licenses"}), ("0 of 2 are free",))


@fault
def an_array_may_run_few_tasks(of: Cluster, random_: Random) -> Situation:
    most = random_.randint(1, 2)
    array = of.submit(f"--array=0-5%{most}")
    of.until(
        "its tasks",
        lambda: (
            of.run("squeue", "-h", f"-j{array}", "-tR", "-o%i").count("\n") == most - 1
            and "JobArrayTaskLimit" in of.run("squeue", "-h", f"-j{array}", "-tPD", "-o%r")
        ),
    )
    return Situation(array, frozenset({"JobArrayTaskLimit"}))


@fault
def a_feature_is_gone(of: Cluster, random_: Random) -> Situation:
    of.node("gpu-0", activefeatures="gpu,zen5", availablefeatures="gpu,zen5")
    of.fill("gpu-0")
    job = of.waits("--partition=gpu", "--constraint=zen5")
    of.node("gpu-0", activefeatures="gpu", availablefeatures="gpu")
    of.until_reason(job, "BadConstraints", "Resources", "ReqNodeNotAvail")
    return Situation(job, frozenset({"Impossible", "BadConstraints"}), person=True)


@fault
def a_partition_counts_few_cpus_of_a_node(of: Cluster, random_: Random) -> Situation:
    for node in CPUS:
        of.starts("--partition=narrow", f"--nodelist={node}")
    job = of.waits("--partition=narrow")
    return Situation(job, frozenset({"UnknownRule", "Resources"}), ())


def _empty(of: Cluster, random_: Random) -> tuple[str, str]:
    """A job for the NodeSet without nodes, and the name of its first worker."""
    return of.waits("--partition=empty", f"--cpus-per-task={random_.randint(1, 4)}"), "empty-0"


@fault
def its_nodeset_has_no_workers(of: Cluster, random_: Random) -> Situation:
    job, _ = _empty(of, random_)
    return Situation(job, frozenset({"ScaledToZero", "NoNodes"}), ("empty",), person=True)


@fault
def autoscaling_starts_the_first_worker(of: Cluster, random_: Random) -> Situation:
    job, name = _empty(of, random_)
    condition = building.condition("Autoscaled", "True", "Demand", "1 job waits")
    own = nodeset("empty", 1, condition, autoscaling={"max": 4})
    kube = {"nodesets": nodesets(own), "pods": pods(worker(name, building.starting(name)))}
    codes = frozenset({"NoNodes", "Starting", "Demand"})
    return Situation(job, codes, ("empty",), kube)


@fault
def the_first_worker_can_not_be_scheduled(of: Cluster, random_: Random) -> Situation:
    job, name = _empty(of, random_)
    why = random_.choice(["3 Insufficient cpu", "3 node(s) had untolerated taint"])
    text = f"0/3 nodes are available: {why}."
    pod = worker(name, building.unscheduled(name, text))
    scaled = random_.choice([{}, {"autoscaling": {"max": 4}}])
    kube = {"nodesets": nodesets(nodeset("empty", 1, **scaled)), "pods": pods(pod)}
    return Situation(job, frozenset({"Unschedulable"}), (name, why), kube, person=True)


@fault
def the_image_of_the_first_worker_can_not_be_pulled(of: Cluster, random_: Random) -> Situation:
    job, name = _empty(of, random_)
    reason = random_.choice(["ImagePullBackOff", "ErrImagePull"])
    pod = worker(name, building.starting(name, reason, "no such tag"))
    kube = {"nodesets": nodesets(nodeset("empty", 1)), "pods": pods(pod)}
    return Situation(job, frozenset({reason}), (name, "no such tag"), kube, person=True)


@fault
def the_first_worker_crashes(of: Cluster, random_: Random) -> Situation:
    job, name = _empty(of, random_)
    pod = worker(name, building.starting(name, "CrashLoopBackOff", "back-off"))
    kube = {"nodesets": nodesets(nodeset("empty", 1)), "pods": pods(pod)}
    return Situation(job, frozenset({"CrashLoopBackOff"}), (name,), kube, person=True)


@fault
def a_quota_refuses_the_first_worker(of: Cluster, random_: Random) -> Situation:
    job, _ = _empty(of, random_)
    own = nodeset("empty", 1) | {"status": {"replicas": 0, "partitions": ["empty"]}}
    text = f'pods "x" is forbidden: exceeded quota: small, used: pods={random_.randint(1, 9)}'
    event = building.event("NodeSet", "empty", "FailedCreate", text)
    kube = {"nodesets": nodesets(own), "events": (event,)}
    return Situation(job, frozenset({"ExceededQuota"}), ("empty",), kube, person=True)


@fault
def autoscaling_does_not_scale_the_nodeset(of: Cluster, random_: Random) -> Situation:
    job, _ = _empty(of, random_)
    reason = random_.choice(["NoCapacity", "OtherOwner", "WorkersUnusable", "NoData"])
    condition = building.condition("Autoscaled", "False", reason, "why it does not")
    own = nodeset("empty", 0, condition, autoscaling={"max": 4})
    return Situation(
        job,
        frozenset({reason}),
        ("empty",),
        {"nodesets": nodesets(own)},
        person=None if reason == "OtherOwner" else True,
    )


@fault
def one_more_worker_can_not_be_scheduled(of: Cluster, random_: Random) -> Situation:
    of.fill(*CPUS)
    job = of.waits()
    pod = worker("cpu-3", building.unscheduled("cpu-3"))
    kube = {"nodesets": nodesets(nodeset("cpu", 4)), "pods": pods(pod)}
    return Situation(job, frozenset({"Unschedulable"}), ("cpu-3",), kube, person=True)


@fault
def the_worker_of_a_node_that_is_powered_up_does_not_start(
    of: Cluster, random_: Random
) -> Situation:
    job = of.submit("--partition=burst")
    of.until("a node", lambda: bool(of.run("squeue", "-h", f"-j{job}", "-tCF,R", "-o%N")))
    name = of.run("squeue", "-h", f"-j{job}", "-o%N")
    pod = random_.choice(
        [building.unscheduled(name), building.starting(name, "ImagePullBackOff", "no such tag")]
    )
    codes = frozenset({"Unschedulable", "ImagePullBackOff"})
    return Situation(job, codes, (name,), {"pods": pods(worker(name, pod))}, person=True)


@fault
def the_folder_of_a_job_does_not_exist(of: Cluster, random_: Random) -> Situation:
    folder = random_.choice(["/gone", "/root"])
    job = of.submit(f"--output={folder}/1.out", script="true", user=GAMES)
    of.until("it to end", lambda: of.state(job)[0] not in ("PENDING", "RUNNING", "COMPLETING"))
    return Situation(job, frozenset({"FAILED"}), (folder, "before its script began"))


@fault
def a_component_of_a_heterogeneous_job_needs_a_drained_node(
    of: Cluster, random_: Random
) -> Situation:
    of.node("gpu-0", state="drain", reason="bad disk")
    job = of.submit("--partition=cpu", ":", "--partition=gpu", f"--mem={random_.randint(50, 90)}")
    of.until_reason(job)
    return Situation(job, frozenset({"Drained"}), ("gpu-0",), person=True)


def situation(of: Cluster, seed: int) -> tuple[str, Situation]:
    """Break the running cluster in one way. The name of the fault, and the job that waits."""
    chosen = FAULTS[seed % len(FAULTS)]
    return chosen.__name__, chosen(of, random.Random(seed))  # noqa: S311 - no secret


# --- what would start the job


def apply(of: Cluster, found: Situation, change: str) -> str | None:
    """Do what would start the job according to `explain`; the job. None: this can't be done
    here.
    """
    job = found.job
    words = change.split()
    if change.startswith("released"):
        of.run(*change.partition("(")[2].rstrip(")").split())
    elif change.startswith("with a time limit"):
        of.change(job, f"timelimit={words[5]}")
    elif change.startswith("without the reservation"):
        of.unreserve()
    elif change.startswith("with node "):
        _return(of, words[2])
    elif change.startswith("with all "):
        for name in CPUS + GPUS:
            _return(of, name)
    elif " more node" in change:
        name, count = change.partition(" of NodeSet ")[2].split()[0], int(words[1])
        if name not in ("cpu", "empty") or count > MOST_ADDED or " and " in change:
            return None
        for _ in range(count):
            of.add(name)
    elif change.startswith("in partition "):
        of.change(job, f"partition={words[2]}")
    elif change.startswith("with less memory"):
        return _again(of, found, "--mem=", "--mem=1")
    elif change.startswith("without its GRES"):
        return _again(of, found, "--gres=")
    elif change.startswith("without --"):
        return _again(of, found, words[1].partition("=")[0])
    return job


def _return(of: Cluster, name: str) -> None:
    of.run("scontrol", "update", f"nodename={name}", "state=resume", check=False)


def _again(of: Cluster, found: Situation, without: str, *more: str) -> str:
    """Submit the job with other options."""
    of.run("scancel", found.job)
    kept = [it for it in found.options if not it.startswith(without)]
    return of.submit(*kept, *more)
