"""What `doctor` finds: each trap where it is, and nothing where it isn't."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from sidecars.contract import bridge
from sidecars.contract.extra import PodFacts, encode
from sidecars.explain.core import cluster_health as subject
from sidecars.explain.core.records import Level, Missing, Qos, Seen, Waiting
from tests.unit.explain.core.building import (
    NODESET,
    condition,
    controller,
    daemon,
    kube_node,
    node,
    nodeset,
    partition,
    pod,
    seen,
    starting,
)

EXEC = "kubectl -n slurm exec slurm-controller-0 -c slurmctld --"
EXTERNAL = node("ext-0", "IDLE", "EXTERNAL", address="10.0.0.9", partitions=("ext",), extra="")
OF_THE_BRIDGE = replace(EXTERNAL, extra=bridge.node_extra("kube-1", {}, ()))
GPU_NODESET = nodeset() | {"spec": {"replicas": 2, "gpu": {"enabled": True}}}
OPERATOR = {
    "metadata": {"name": "slurm-operator", "namespace": "slinky"},
    "spec": {"replicas": 1},
    "status": {"readyReplicas": 1},
}

BRIDGE = {
    "metadata": {
        "name": "slurm-bridge",
        "namespace": "slurm",
        "labels": {
            "app.kubernetes.io/part-of": "slurm-bridge",
            "app.kubernetes.io/component": "bridge",
        },
    },
    "spec": {"replicas": 1},
    "status": {"readyReplicas": 1},
}


@dataclass(frozen=True)
class Case:
    """What is seen, and the code and object of each finding."""

    name: str
    seen: Seen
    findings: set[tuple[str, str]]


def of(slurm: dict[str, Any] | None = None, **kube: Any) -> Seen:
    return seen(slurm, kube, exec_in=EXEC)


QOS = (
    Qos("normal", "cluster", "00:00:00"),
    Qos("low", "suspend", "00:00:00"),
    Qos("slow", "cancel", "00:00:30"),
)


def guarding(name: str) -> Any:
    """A worker on which Slurm schedules pods."""
    found = pod(name)
    return found | {
        "metadata": found["metadata"] | {"annotations": {bridge.GUARD: bridge.GUARD_VERSION}}
    }


def with_config(**config: str) -> dict[str, Any]:
    return {"config": config}


CASES = [
    Case("a healthy cluster", of(), set()),
    Case("the operator runs", of(workloads=(OPERATOR,)), set()),
    Case(
        "the operator is scaled to zero",
        of(workloads=(OPERATOR | {"spec": {"replicas": 0}, "status": {}},)),
        {("OperatorDown", "Deployment slinky/slurm-operator")},
    ),
    Case("the Slurm Bridge runs", of(workloads=(OPERATOR, BRIDGE)), set()),
    Case(
        "no pod of the Slurm Bridge is ready",
        of(workloads=(OPERATOR, BRIDGE | {"status": {}})),
        {("BridgeDown", "Deployment slurm/slurm-bridge")},
    ),
    Case(
        "a configuration is refused",
        of(
            controllers=(
                controller(condition("ConfigurationAccepted", "False", "Rejected", "line 3")),
            )
        ),
        {("Rejected", "Controller slurm/slurm")},
    ),
    Case(
        "a volume can't grow",
        of(controllers=(controller(condition("Ready", "True", "ChangeNotApplied", "4Gi → 8Gi")),)),
        {("ChangeNotApplied", "Controller slurm/slurm")},
    ),
    Case(
        "slurmrestd is not reachable",
        of(
            controllers=(
                controller(condition("SlurmReachable", "False", "NoAnswer", "connection refused")),
            )
        ),
        {("NoAnswer", "Controller slurm/slurm")},
    ),
    Case(
        "slurmrestd starts",
        of(
            pods=(
                pod("cpu-0"),
                pod("cpu-1"),
                daemon(),
                daemon(
                    "slurmrestd",
                    "rest-0",
                    phase="Pending",
                    conditions=[condition("PodScheduled", "False", "Unschedulable", "no")],
                ),
            )
        ),
        {("Unschedulable", "pod slurm/rest-0")},
    ),
    Case(
        "a worker's image is missing",
        of(
            {"nodes": (node("cpu-0"),)},
            pods=(pod("cpu-0"), starting("cpu-1", "ErrImagePull"), daemon()),
        ),
        {("ErrImagePull", "pod slurm/slurm-worker-cpu-1")},
    ),
    Case(
        "a cordoned Kubernetes node with a worker, and one without",
        of(kube_nodes=(kube_node("kube-cpu-0", cordoned=True), kube_node("other", cordoned=True))),
        {("Cordoned", "Kubernetes node kube-cpu-0")},
    ),
    Case(
        "powered-down nodes of a NodeSet, of none, and of another namespace",
        of(
            {
                "nodes": (
                    node("cpu-0"),
                    node("cpu-1"),
                    node("cpu-2", "IDLE", "CLOUD", "POWERED_DOWN"),
                    node(
                        "burst-0",
                        "IDLE",
                        "CLOUD",
                        "POWERED_DOWN",
                        extra=encode(PodFacts("", "p", "slurm", "gone")),
                    ),
                    node(
                        "far-0",
                        "IDLE",
                        "CLOUD",
                        "POWERED_DOWN",
                        extra=encode(PodFacts("", "p", "other", "gone")),
                    ),
                )
            }
        ),
        {("NodeOfNoNodeSet", "node burst-0")},
    ),
    Case(
        "a powered-down node whose Extra was changed, and one that has a worker",
        of(
            {
                "config": {"resumeprogram": "/bin/true"},
                "nodes": (
                    node("cpu-0"),
                    node("cpu-1", "IDLE", "CLOUD", extra="mine"),
                    node("burst-0", "IDLE", "CLOUD", "POWERED_DOWN", extra="mine"),
                ),
            }
        ),
        {("NodeOfUnknownNodeSet", "node burst-0")},
    ),
    Case(
        "a powered-down node that a program of the site powers up",
        of(
            {
                "config": {"resumeprogram": "/opt/site/resume"},
                "nodes": (
                    node("cpu-0"),
                    node("cpu-1"),
                    node("burst-0", "IDLE", "CLOUD", "POWERED_DOWN", extra="mine"),
                ),
            }
        ),
        set(),
    ),
    Case(
        "two nodes with the same foreign reason are one finding",
        of(
            {
                "nodes": (
                    node("cpu-0", "IDLE", "DRAIN", reason="maintenance", reason_set_by_user="root"),
                    node("cpu-1", "IDLE", "DRAIN", reason="maintenance", reason_set_by_user="root"),
                )
            }
        ),
        {("Drained", "2 nodes (cpu-0,cpu-1)")},
    ),
    Case(
        "a node that doesn't respond",
        of({"nodes": (node("cpu-0", "IDLE", "NOT_RESPONDING"), node("cpu-1"))}),
        {("NotResponding", "node cpu-0")},
    ),
    Case(
        "a node that powers up",
        of(
            {
                "nodes": (
                    node("cpu-0", "IDLE", "POWERING_UP", "NOT_RESPONDING"),
                    node("cpu-1"),
                )
            }
        ),
        set(),
    ),
    Case(
        "an external node with an address",
        of({"nodes": (node("cpu-0"), node("cpu-1"), EXTERNAL)}),
        set(),
    ),
    Case(
        "an external node without one",
        of({"nodes": (node("cpu-0"), node("cpu-1"), replace(EXTERNAL, address="ext-0"))}),
        {("ExternalNodeWithoutAddress", "node ext-0")},
    ),
    Case(
        "an external node that a signal has stopped",
        of(
            {
                "nodes": (
                    node("cpu-0"),
                    node("cpu-1"),
                    replace(EXTERNAL, states=frozenset({"IDLE", "EXTERNAL", "NOT_RESPONDING"})),
                )
            }
        ),
        {("ExternalNodeNotResponding", "node ext-0")},
    ),
    Case(
        "nodes of the Slurm Bridge without what it needs of the scheduler",
        of({"nodes": (node("cpu-0"), node("cpu-1"), OF_THE_BRIDGE)} | with_config()),
        {
            (code, "SchedulerParameters")
            for code in ("ExtraConstraintsOff", "JobsCanShrink", "PodsWaitForScheduler")
        },
    ),
    Case(
        "nodes of the Slurm Bridge with all that it needs of the scheduler",
        of(
            {"nodes": (node("cpu-0"), node("cpu-1"), OF_THE_BRIDGE)}
            | with_config(
                schedulerparameters="Extra_Constraints, sched_interval=2,disable_job_shrink"
            )
        ),
        set(),
    ),
    Case(
        "workers of pods, of which only the owner of a job can give up a node",
        of(
            with_config(schedulerparameters="sched_interval=60"),
            pods=(guarding("cpu-0"), pod("cpu-1"), daemon()),
        ),
        {("JobsCanShrink", "SchedulerParameters")},
    ),
    Case(
        "a GraceTime on external nodes, and one on others",
        of(
            {
                "nodes": (node("cpu-0"), node("cpu-1"), EXTERNAL),
                "partitions": (partition(grace_time=30), partition("ext", grace_time=30)),
            }
        ),
        {("GraceTimeOfExternalNodes", "partition ext")},
    ),
    Case(
        "partitions of pods, and another one, in which a preemption suspends jobs",
        of(
            {
                "nodes": (node("cpu-0"), node("cpu-1", partitions=("other",)), EXTERNAL),
                "partitions": tuple(
                    partition(name, preempt_modes=frozenset({"SUSPEND"}))
                    for name in ("cpu", "other", "ext")
                ),
            }
            | with_config(schedulerparameters="disable_job_shrink"),
            pods=(guarding("cpu-0"), pod("cpu-1"), daemon()),
        ),
        {("PreemptionSuspends", "partition cpu"), ("PreemptionSuspends", "partition ext")},
    ),
    Case(
        "a preemption suspends jobs in each partition without a mode of its own",
        of(
            {
                "nodes": (
                    node("cpu-0"),
                    node("cpu-1"),
                    EXTERNAL,
                    replace(EXTERNAL, name="own-0", partitions=("own",)),
                ),
                "partitions": (
                    partition("ext", preempt_modes=frozenset({"CLUSTER_GLOBAL"})),
                    partition("own", preempt_modes=frozenset({"CANCEL"})),
                    partition(),
                ),
            }
            | with_config(preemptmode="GANG,SUSPEND"),
        ),
        {("PreemptionSuspends", "partition ext")},
    ),
    Case(
        "a preemption suspends the jobs of one QOS, and one has a GraceTime",
        of(
            {"nodes": (node("cpu-0"), node("cpu-1"), EXTERNAL), "qos": QOS}
            | with_config(preempttype="preempt/qos")
        ),
        {("PreemptionSuspends", "QOS low"), ("GraceTimeOfExternalNodes", "QOS slow")},
    ),
    Case(
        "a preemption suspends jobs, and none of a pod",
        of({"qos": QOS} | with_config(preempttype="preempt/qos", preemptmode="GANG,SUSPEND")),
        set(),
    ),
    Case(
        "a QOS decides nothing",
        of({"nodes": (node("cpu-0"), node("cpu-1"), EXTERNAL), "qos": QOS}),
        set(),
    ),
    Case(
        "power saving of a partition alone",
        of({"partitions": (partition(suspend_time=600),)} | with_config(suspendtime="INFINITE")),
        {("PowerSavingOff", "configuration of namespace slurm")},
    ),
    Case(
        "power saving of a partition with CLOUD nodes",
        of(
            {
                "nodes": (node("cpu-0", "IDLE", "CLOUD"), node("cpu-1")),
                "partitions": (partition(suspend_time=600),),
            }
            | with_config(suspendtime="INFINITE")
        ),
        set(),
    ),
    Case(
        "power saving with external nodes",
        of(
            {"nodes": (node("cpu-0"), node("cpu-1"), EXTERNAL)}
            | with_config(suspendtime="600 sec", suspendexcstates="(null)")
        ),
        {("ExternalNodesAreSuspended", "configuration of namespace slurm")},
    ),
    Case(
        "power saving that excludes external nodes",
        of(
            {"nodes": (node("cpu-0"), node("cpu-1"), EXTERNAL)}
            | with_config(suspendtime="600 sec", suspendexcstates="EXTERNAL")
        ),
        set(),
    ),
    Case(
        "nodes that stay DOWN",
        of(with_config(returntoservice="0")),
        {("ReturnToService", "configuration of namespace slurm")},
    ),
    Case("nodes that return", of(with_config(returntoservice="2")), set()),
    Case(
        "GPUs that accounting doesn't record",
        of(
            {"nodes": (node("cpu-0", gres="gpu:h100:8"), node("cpu-1"))}
            | with_config(
                accountingstoragetype="accounting_storage/slurmdbd", accountingstoragetres="cpu,mem"
            )
        ),
        {("GpusNotAccounted", "configuration of namespace slurm")},
    ),
    Case(
        "a Slurm newer than all that are known",
        of(with_config(slurm_version="27.05.0-0rc1")),
        {("ReleaseNotTested", "configuration of namespace slurm")},
    ),
    Case(
        "a Slurm whose release can't be read",
        of(with_config(slurm_version="next")),
        set(),
    ),
    Case(
        "a slurmd newer than slurmctld",
        of(
            {"nodes": (node("cpu-0", version="26.11.0"), node("cpu-1", version="26.05.5"))}
            | with_config(slurm_version="26.05.5")
        ),
        {("NewerThanLeader", "configuration of namespace slurm")},
    ),
    Case(
        "slurmds of slurmctld's release and of older ones",
        of(
            {"nodes": (node("cpu-0", version="26.05.9"), node("cpu-1", version="25.11.4"))}
            | with_config(slurm_version="26.05.5")
        ),
        set(),
    ),
    Case(
        "GPUs that Slurm doesn't have",
        of(nodesets=(GPU_NODESET,)),
        {("GpusMissing", f"NodeSet slurm/{NODESET}")},
    ),
    Case(
        "GPUs that Slurm has",
        of(
            {"nodes": (node("cpu-0", gres="gpu:1"), node("cpu-1", gres="gpu:1"))},
            nodesets=(GPU_NODESET,),
        ),
        set(),
    ),
    Case(
        "jobs that never start",
        of(
            {
                "waiting": (
                    Waiting("5", 0, "bob", "BadConstraints"),
                    Waiting("6", 1, "bob", "Priority"),
                )
            }
        ),
        {("BadConstraints", "the queue")},
    ),
    Case(
        "a partition that is down",
        of({"partitions": (partition(), partition("old", states=frozenset({"DOWN"})))}),
        {("PartitionNotUp", "partition old")},
    ),
    Case(
        "a condition that needs no remedy",
        of(controllers=(controller(condition("SlurmReachable", "True", "Polled", "")),)),
        set(),
    ),
    Case(
        "a condition that stops nothing",
        of(
            controllers=(
                controller(condition("ServiceMonitor", "False", "KindMissing", "no such kind")),
            )
        ),
        {("KindMissing", "Controller slurm/slurm")},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda it: it.name)
def test_the_findings_are_those_of_the_case(case: Case) -> None:
    answer = subject.explain(case.seen)
    assert {(it.code, it.about) for it in answer.findings} == case.findings
    assert (answer.state == "all is well") is not bool(case.findings)


def test_every_finding_that_blocks_has_a_remedy() -> None:
    for case in CASES:
        for it in subject.explain(case.seen).findings:
            assert it.remedy or it.level is not Level.BLOCKS, it


def test_one_command_resumes_all_nodes_with_one_reason() -> None:
    drained = [
        node(f"cpu-{number}", "IDLE", "DRAIN", reason="maintenance", reason_set_by_user="root")
        for number in range(7)
    ]
    [finding] = subject.explain(of({"nodes": tuple(drained)}, pods=(daemon(),))).findings
    assert finding.commands == (
        f"{EXEC} scontrol update nodename=cpu-0,cpu-1,cpu-2,cpu-3,cpu-4,cpu-5,cpu-6 state=resume",
    )
    assert "7 nodes" in finding.about


@pytest.mark.parametrize(
    ("job", "commands"),
    [("12_3", (f"{EXEC} scancel 12_3",)), ("12_[3-5]", ()), ("12", (f"{EXEC} scancel 12",))],
)
def test_no_command_ends_the_running_tasks_of_an_array(job: str, commands: tuple[str, ...]) -> None:
    found = of({"waiting": (Waiting(job, 0, "bob", "DependencyNeverSatisfied"),)}, pods=(daemon(),))
    [finding] = subject.explain(found).findings
    assert finding.commands == commands
    assert finding.remedy == f"kubectl slurm explain job {job.removesuffix('_[3-5]')}"


def test_what_was_not_read_is_no_proof_of_health() -> None:
    answer = subject.explain(
        seen({"nodes": None}, missing=(Missing("Events", "you lack the right"),))
    )
    assert answer.state == "all is well, as far as was read"


def test_what_needs_a_remedy_is_first() -> None:
    found = of(
        {
            "nodes": (
                node("cpu-0", "IDLE", "DRAIN", reason="x", reason_set_by_user="root"),
                node("cpu-1"),
            )
        }
        | with_config(returntoservice="0")
    )
    assert [it.level for it in subject.explain(found).findings] == [Level.BLOCKS, Level.WARNS]


def test_a_remedy_of_the_documentation_is_printed_without_markdown() -> None:
    found = of(
        controllers=(controller(condition("SlurmReachable", "False", "NoAnswer", "refused")),)
    )
    [finding] = subject.explain(found).findings
    assert finding.level is Level.BLOCKS
    assert (
        finding.remedy
        == "See slurmrestd is not reachable (docs/troubleshooting.md#slurmrestd-is-not-reachable)."
    )


def blocking(found: Seen) -> dict[str, str]:
    """The findings that need a remedy: code and object."""
    findings = subject.explain(found).findings
    return {it.code: it.about for it in findings if it.level is Level.BLOCKS}


@pytest.mark.parametrize(
    "reason", ["BadConstraints", "PartitionTimeLimit", "QOSMaxCpuPerJobLimit", "InvalidAccount"]
)
def test_jobs_that_never_start_need_a_remedy_and_no_command_skips_the_correction(
    reason: str,
) -> None:
    found = of({"waiting": (Waiting("5", 0, "bob", reason),)}, pods=(daemon(),))
    assert blocking(found) == {reason: "the queue"}
    [finding] = subject.explain(found).findings
    assert finding.commands == ()


@pytest.mark.parametrize("reason", ["JobHeldUser", "Resources", "QOSMaxJobsPerUserLimit", "New"])
def test_jobs_that_their_user_releases_or_that_start_later_need_none(reason: str) -> None:
    found = of({"waiting": (Waiting("5", 0, "bob", reason),)}, pods=(daemon(),))
    assert blocking(found) == {}


def test_a_partition_that_is_down_needs_a_remedy_while_a_job_has_no_other() -> None:
    down = {"partitions": (partition(states=frozenset({"DOWN"})),)}
    waits = {"waiting": (Waiting("5", 9, "bob", "PartitionDown", ("cpu",)),)}
    assert blocking(of(down | waits, pods=(daemon(),))) == {"PartitionNotUp": "partition cpu"}
    either = {"waiting": (Waiting("5", 9, "bob", "PartitionDown", ("cpu", "gpu")),)}
    assert blocking(of(down | either, pods=(daemon(),))) == {}


def test_jobs_in_a_partition_whose_nodesets_are_at_zero_need_one() -> None:
    empty = {"nodes": (), "waiting": (Waiting("5", 9, "bob", "PartitionConfig", ("cpu",)),)}
    own = nodeset(replicas=0)
    found = of(empty, nodesets=(own,), pods=(daemon(),))
    assert blocking(found) == {"NoNodes": "partition cpu"}
    scaled = own | {"spec": {"replicas": 0, "autoscaling": {"max": 4}}}
    assert blocking(of(empty, nodesets=(scaled,), pods=(daemon(),))) == {}


@pytest.mark.parametrize("reason", ["NoCapacity", "WorkersUnusable", "NoData", "Refused"])
def test_jobs_need_a_remedy_while_autoscaling_can_not_start_the_only_nodes_for_them(
    reason: str,
) -> None:
    stopped = nodeset(replicas=0, conditions=(condition("Autoscaled", "False", reason, "why"),))
    stopped["spec"]["autoscaling"] = {"max": 4}
    wait = {"waiting": (Waiting("5", 9, "bob", "PartitionConfig", ("cpu",)),)}
    none, kube = {"nodes": ()}, {"nodesets": (stopped,), "pods": (daemon(),)}
    assert blocking(of(none | wait, **kube)) == {reason: f"NodeSet slurm/{NODESET}"}
    # Nothing waits for it, or other nodes of the partition may run the jobs.
    for found in (of(none, **kube), of(wait, **kube)):
        assert blocking(found) == {}
        assert [it.code for it in subject.explain(found).findings] == [reason]


@pytest.mark.parametrize("reason", ["JobHeldUser", "JobHeldAdmin", "BeginTime", "Dependency"])
def test_a_job_that_would_wait_anyway_needs_no_node_and_no_open_partition(reason: str) -> None:
    waits = {"waiting": (Waiting("5", 9, "bob", reason, ("cpu",)),)}
    own = {"nodesets": (nodeset(replicas=0),), "pods": (daemon(),)}
    assert blocking(of({"nodes": ()} | waits, **own)) == {}
    down = {"partitions": (partition(states=frozenset({"DOWN"})),)}
    assert blocking(of(waits | down)) == {}


def test_nodes_that_were_not_read_are_not_absent() -> None:
    unread = {"nodes": None, "waiting": (Waiting("5", 9, "bob", "PartitionConfig", ("cpu",)),)}
    assert blocking(of(unread, nodesets=(nodeset(replicas=0),), pods=(daemon(),))) == {}


def test_a_size_that_another_client_has_set_needs_none_until_autoscaling_sets_it_again() -> None:
    own = nodeset(replicas=0, conditions=(condition("Autoscaled", "False", "OtherOwner", "who"),))
    own["spec"]["autoscaling"] = {"max": 4}
    wait = {"nodes": (), "waiting": (Waiting("5", 9, "bob", "PartitionConfig", ("cpu",)),)}
    assert blocking(of(wait, nodesets=(own,), pods=(daemon(),))) == {}


def test_a_link_of_a_remedy_names_its_page() -> None:
    counted = condition("JobsCounted", "False", "NotCounted", "Impossible")
    [finding] = subject.explain(of(controllers=(controller(counted),), pods=(daemon(),))).findings
    assert "(docs/reference/conditions.md#jobs-that-autoscaling-does-not-count)" in finding.remedy
