"""Why a job waits: seeded situations, each with exactly the findings that belong to it."""

from dataclasses import dataclass
from typing import Any

import pytest

from sidecars.contract import bridge
from sidecars.contract.bridge import Comment
from sidecars.explain.core import job as subject
from sidecars.explain.core.records import Answer, Ending, Level, Missing, Seen, Waiting
from sidecars.slurm.records import Reservation
from sidecars.slurm.usage import License
from tests.unit.explain.core.building import (
    NODESET,
    NOW,
    at,
    busy,
    condition,
    controller,
    daemon,
    event,
    job,
    kube_node,
    node,
    nodeset,
    partition,
    pod,
    seen,
    started,
    starting,
    unscheduled,
)

FULL = (busy("cpu-0"), busy("cpu-1"))
GPU = {"gres": "gpu:h100:8", "features": ("cpu", "h100")}
SCALED = nodeset() | {"spec": {"replicas": 2, "autoscaling": {"max": 8}}}
QUOTA_EVENT = event(
    "NodeSet", NODESET, "FailedCreate", 'pods "x" is forbidden: exceeded quota: small, used: pods=1'
)
QUOTA = {"metadata": {"name": "small"}, "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}}
ASSOC = "ClusterName=c Account=physics UserName= Partition= GrpTRES=cpu=4(4) Comment=\n"


OF_PHYSICS = bridge.encode(Comment("physics", "u"))


@dataclass(frozen=True)
class Situation:
    """What is seen, the codes of all findings, and words that the answer contains."""

    name: str
    seen: Seen
    codes: set[str]
    words: tuple[str, ...] = ()
    would_start: tuple[str, ...] = ()


def of(
    found: Any, slurm: dict[str, Any] | None = None, kube: dict[str, Any] | None = None, **more: Any
) -> Seen:
    """The cluster with this job."""
    return seen({"jobs": (found,)} | (slurm or {}), kube, **more)


SITUATIONS = [
    Situation("not looked at yet", of(job("None")), {"None", "FitsNow"}),
    Situation(
        "all nodes busy",
        of(job(), {"nodes": FULL}),
        {"Resources", "Busy"},
        would_start=(f"1 more node of NodeSet {NODESET}",),
    ),
    Situation(
        "backfill has planned its start",
        of(job(start_time=int(NOW) + 900), {"nodes": FULL}),
        {"Resources", "Busy"},
        ("Slurm expects to start it",),
    ),
    Situation(
        "the first job to end is known",
        of(
            job(),
            {
                "nodes": FULL,
                "running": (
                    Ending("7", NOW - 5, "bob", "cpu-1"),
                    Ending("8", NOW + 60, "bob", "cpu-0"),
                ),
            },
        ),
        {"Resources", "Busy", "FirstToEnd"},
        ("8 of bob on cpu-0",),
    ),
    Situation(
        "others have a higher priority",
        of(
            job("Priority"),
            {
                "nodes": FULL,
                "waiting": (
                    Waiting("5", 900, "bob", "Resources"),
                    Waiting("12", 100),
                    Waiting("13", 90),
                ),
            },
        ),
        {"Priority", "Busy", "JobsAhead", "WouldFit"},
        ("Slurm tries 1 pending jobs", "5 of bob"),
    ),
    Situation(
        "others have a higher priority and nodes are free",
        of(job("Priority"), {"waiting": (Waiting("5", 900, "bob", "Resources"),)}),
        {"Priority", "FitsNow", "JobsAhead"},
        ("reserves nodes for jobs ahead",),
    ),
    Situation(
        "more memory than any node has",
        of(job(memory_per_node=64_000)),
        {"Resources", "Impossible"},
        would_start=("with less memory",),
    ),
    Situation(
        "more CPUs for a task than any node has",
        of(job(cpus_per_task=8, cpus=8)),
        {"Resources", "Impossible"},
        ("No node of its partitions",),
    ),
    Situation(
        "a GPU type that no node has",
        of(job(tres_per_node="gres/gpu:b200:1"), {"nodes": (node("cpu-0", **GPU),)}),
        {"Resources", "Impossible"},
        would_start=("without its GRES",),
    ),
    Situation(
        "a feature that no node has",
        of(job(features="zen5"), {"nodes": (node("cpu-0", **GPU),)}),
        {"Resources", "Impossible"},
        ("zen5",),
        ("without --constraint=zen5",),
    ),
    Situation(
        "another partition has room",
        of(
            job(),
            {
                "nodes": (*FULL, node("spare-0", partitions=("spare",), extra="")),
                "partitions": (partition(), partition("spare")),
            },
        ),
        {"Resources", "Busy"},
        would_start=("in partition spare",),
    ),
    Situation(
        "another partition has room and denies the account",
        of(
            job(),
            {
                "nodes": (*FULL, node("spare-0", partitions=("spare",), extra="")),
                "partitions": (partition(), partition("spare", allow_accounts=("chemistry",))),
            },
        ),
        {"Resources", "Busy"},
        would_start=(f"NodeSet {NODESET}",),
    ),
    Situation(
        "an administrator has drained the only free node",
        of(
            job(),
            {
                "nodes": (
                    busy("cpu-0"),
                    node("cpu-1", "IDLE", "DRAIN", reason="bad disk", reason_set_by_user="root"),
                )
            },
        ),
        {"Resources", "Busy", "Drained"},
        ("bad disk", "an administrator or another program (root)"),
        ("with node cpu-1 in service",),
    ),
    Situation(
        "the operator drains a node for an update",
        of(
            job(),
            {
                "nodes": (
                    busy("cpu-0"),
                    node(
                        "cpu-1",
                        "IDLE",
                        "DRAIN",
                        reason="slurm-operator: Pod (slurm/a) is pending termination for an update",
                    ),
                )
            },
        ),
        {"Resources", "Busy", "Drained"},
        ("set by the operator",),
    ),
    Situation(
        "all nodes are DOWN",
        of(
            job("ReqNodeNotAvail", description="ReqNodeNotAvail, UnavailableNodes:cpu-0"),
            {
                "nodes": (
                    node("cpu-0", "DOWN", reason="Not responding", reason_set_by_user="slurm"),
                )
            },
        ),
        {"ReqNodeNotAvail", "Down"},
        ("UnavailableNodes:cpu-0",),
    ),
    Situation(
        "a node of a future reservation is not out of service",
        of(
            job(),
            {
                "nodes": FULL,
                "reservations": (
                    Reservation(
                        "maint", "cpu-0", start_time=int(NOW) + 600, end_time=int(NOW) + 900
                    ),
                ),
            },
        ),
        {"Resources", "Busy"},
    ),
    Situation(
        "free nodes are reserved before it would end",
        of(
            job(),
            {
                "nodes": (node("cpu-0"), busy("cpu-1")),
                "reservations": (
                    Reservation(
                        "maint", "cpu-0", start_time=int(NOW) + 600, end_time=int(NOW) + 900
                    ),
                ),
            },
        ),
        {"Resources", "ReservedSoon"},
        ("before it would end: cpu-0 (reservation maint)",),
        (f"1 more node of NodeSet {NODESET}", "--time=9"),
    ),
    Situation(
        "free nodes are reserved after it would end",
        of(
            job(time_limit=5),
            {
                "nodes": (node("cpu-0"), busy("cpu-1")),
                "reservations": (
                    Reservation(
                        "maint", "cpu-0", start_time=int(NOW) + 600, end_time=int(NOW) + 900
                    ),
                ),
            },
        ),
        {"Resources", "FitsNow"},
    ),
    Situation(
        "a reservation has the nodes",
        of(
            job(),
            {
                "nodes": (node("cpu-0", "IDLE", "RESERVED", reservation="course"),),
                "reservations": (
                    Reservation(
                        "course",
                        "cpu-0",
                        users=("bob",),
                        start_time=int(NOW) - 60,
                        end_time=int(NOW) + 900,
                    ),
                ),
            },
        ),
        {"Resources", "Reserved"},
        ("reserves it for bob",),
    ),
    Situation(
        "it requests a node that does not exist",
        of(job("ReqNodeNotAvail", required_nodes="cpu-9")),
        {"ReqNodeNotAvail", "NamedNodeMissing"},
        ("cpu-9",),
        ("without --nodelist=cpu-9",),
    ),
    Situation(
        "a user has to release it",
        of(job("JobHeldUser", priority=0)),
        {"JobHeldUser"},
        would_start=("released",),
    ),
    Situation(
        "an administrator has stopped it",
        of(job("JobHeldAdmin", priority=0), {"nodes": FULL}),
        {"JobHeldAdmin"},
    ),
    Situation(
        "requeued too often", of(job("JobHoldMaxRequeue", priority=0)), {"JobHoldMaxRequeue"}
    ),
    Situation("a launch failed", of(job("JobLaunchFailure", priority=0)), {"JobLaunchFailure"}),
    Situation(
        "it waits for a job",
        of(job("Dependency", dependency="afterok:7(unfulfilled)")),
        {"Dependency"},
        ("afterok:7(unfulfilled)",),
    ),
    Situation(
        "the job that it waits for failed",
        of(job("DependencyNeverSatisfied", dependency="afterok:7(failed)")),
        {"DependencyNeverSatisfied"},
    ),
    Situation(
        "it begins later", of(job("BeginTime", eligible_time=int(NOW) + 3600)), {"BeginTime"}
    ),
    Situation(
        "licenses are used up",
        of(
            job("Licenses", licenses="matlab:2"),
            {"licenses": (License("matlab", 4, 3, 1, 0), License("ansys", 1, 0, 1, 0))},
        ),
        {"Licenses"},
        ("matlab: 1 of 4 are free",),
    ),
    Situation(
        "its reservation begins later",
        of(
            job("Reservation", reservation="course"),
            {
                "reservations": (
                    Reservation(
                        "course", "cpu-0", start_time=int(NOW) + 60, end_time=int(NOW) + 900
                    ),
                )
            },
        ),
        {"Reservation"},
        ("has not begun",),
    ),
    Situation(
        "its reservation was deleted",
        of(job("ReservationDeleted", reservation="gone")),
        {"ReservationDeleted"},
    ),
    Situation(
        "its partition is down",
        of(job("PartitionDown"), {"partitions": (partition(states=frozenset({"DOWN"})),)}),
        {"PartitionDown", "PartitionExcludes"},
    ),
    Situation(
        "its time limit is too long",
        of(job("PartitionTimeLimit", time_limit=120), {"partitions": (partition(max_minutes=60),)}),
        {"PartitionTimeLimit", "PartitionExcludes"},
        ("120 minutes, and MaxTime of cpu 60",),
    ),
    Situation(
        "it requests more nodes than the partition has",
        of(job("PartitionConfig", min_nodes=5, max_nodes=5, cpus=5, tasks=5)),
        {"PartitionConfig", "TooManyNodes"},
        would_start=(f"3 more nodes of NodeSet {NODESET}",),
    ),
    Situation(
        "its QOS is not allowed",
        of(job("QOSNotAllowed"), {"partitions": (partition(deny_qos=("normal",)),)}),
        {"QOSNotAllowed", "PartitionExcludes"},
        ("denies the QOS normal",),
    ),
    Situation(
        "as many tasks run as the array allows",
        of(job("JobArrayTaskLimit", array_tasks="3-9%2", array_max_running=2)),
        {"JobArrayTaskLimit"},
        ("arraytaskthrottle",),
    ),
    Situation(
        "its account is used up",
        of(job("AssocGrpCpuLimit"), {"limits": ASSOC}),
        {"AssocGrpCpuLimit"},
        ("account physics: GrpTRES=cpu=4, 4 in use",),
    ),
    Situation(
        "an account above is used up",
        of(
            job("AssocGrpMemLimit"),
            {
                "limits": ASSOC.replace("Partition=", "Partition= ParentAccount=science(3)")
                + "ClusterName=c Account=science UserName= Partition= GrpTRES=mem=5000(4500) "
                "Comment=\n"
            },
        ),
        {"AssocGrpMemLimit"},
        ("account science, above physics: GrpTRES=mem=5000, 4500 in use",),
    ),
    Situation(
        "no limit of that name is found",
        of(job("AssocGrpMemLimit"), {"limits": ASSOC}),
        {"AssocGrpMemLimit"},
        ("show no such limit",),
    ),
    Situation(
        "limits were not read", of(job("AssocGrpCpuLimit"), {"limits": None}), {"AssocGrpCpuLimit"}
    ),
    Situation(
        "a reason of a later Slurm",
        of(job("WaitsForTheMoon")),
        {"WaitsForTheMoon"},
        ("does not know",),
    ),
    Situation(
        "its NodeSet has no workers",
        of(job(), {"nodes": ()}, {"nodesets": (nodeset(replicas=0),), "pods": (daemon(),)}),
        {"Resources", "NoNodes", "ScaledToZero"},
        (f"scale nodesets.slinky.slurm.net/{NODESET} --replicas=1",),
    ),
    Situation(
        "Kubernetes has no node for the worker",
        of(
            job(),
            {"nodes": (busy("cpu-0"),)},
            {"pods": (pod("cpu-0"), unscheduled("cpu-1"), daemon())},
        ),
        {"Resources", "Busy", "Unschedulable"},
        ("3 Insufficient cpu",),
    ),
    Situation(
        "the image of the worker can't be pulled",
        of(
            job(),
            {"nodes": (busy("cpu-0"),)},
            {
                "pods": (
                    pod("cpu-0"),
                    starting("cpu-1", "ImagePullBackOff", "no such tag"),
                    daemon(),
                )
            },
        ),
        {"Resources", "Busy", "ImagePullBackOff"},
        ("no such tag",),
    ),
    Situation(
        "a quota refuses the workers",
        of(
            job(),
            {"nodes": (busy("cpu-0"),)},
            {
                "nodesets": (nodeset() | {"status": {"replicas": 1, "partitions": ["cpu"]}},),
                "pods": (pod("cpu-0"), daemon()),
                "events": (QUOTA_EVENT,),
                "quotas": (QUOTA,),
            },
        ),
        {"Resources", "Busy", "ExceededQuota", "QuotaUsedUp"},
    ),
    Situation(
        "an old Event of a quota, and all pods exist",
        of(job(), {"nodes": FULL}, {"events": (QUOTA_EVENT,)}),
        {"Resources", "Busy"},
    ),
    Situation(
        "autoscaling reports",
        of(
            job(),
            {"nodes": FULL},
            {
                "nodesets": (
                    nodeset(
                        conditions=(condition("Autoscaled", "True", "Maximum", "the maximum is 2"),)
                    ),
                )
            },
        ),
        {"Resources", "Busy", "Maximum"},
        ("the maximum is 2",),
    ),
    Situation(
        "autoscaling sets the size of its NodeSet",
        of(job(), {"nodes": FULL}, {"nodesets": (SCALED,)}),
        {"Resources", "Busy"},
        would_start=("autoscaling sets its size, at most 8",),
    ),
    Situation(
        "autoscaling has scaled its NodeSet to zero and is about to add a worker",
        of(
            job(),
            {"nodes": ()},
            {
                "nodesets": (SCALED | {"spec": {"replicas": 0, "autoscaling": {}}},),
                "pods": (daemon(),),
            },
        ),
        {"Resources", "NoNodes"},
    ),
    Situation(
        "autoscaling can't count it",
        of(job(constraints="zone=a"), {"nodes": FULL}, {"nodesets": (SCALED,)}),
        {"Resources", "NotModelled"},
        ("Where it would start is not computed: --extra. Autoscaling adds no node for it.",),
    ),
    Situation(
        "autoscaling has seen that Slurm doesn't start it",
        of(
            job(),
            {},
            {
                "controllers": (
                    controller(
                        condition("JobsCounted", "False", "NotCounted", "NotStarted: Resources")
                    ),
                )
            },
        ),
        {"Resources", "FitsNow", "NotStarted"},
        ("Autoscaling adds no node for it.",),
    ),
    Situation(
        "autoscaling has seen that Slurm doesn't start another job",
        of(
            job(),
            {},
            {
                "controllers": (
                    controller(
                        condition("JobsCounted", "False", "NotCounted", "NotStarted: Prolog")
                    ),
                )
            },
        ),
        {"Resources", "FitsNow"},
    ),
    Situation("it is being started", of(started("RUNNING", "CONFIGURING")), {"Configuring"}),
    Situation(
        "it waits for a node that doesn't respond",
        of(
            started("RUNNING", "CONFIGURING"),
            {"nodes": (node("cpu-0", "ALLOCATED", "NOT_RESPONDING"), node("cpu-1"))},
        ),
        {"Configuring", "NotResponding"},
    ),
    Situation("it runs", of(started("RUNNING")), {"Running"}, ("runs on cpu-0",)),
    Situation("its node cleans up", of(started("COMPLETED", "COMPLETING")), {"Completing"}),
    Situation(
        "it is a guard that runs",
        of(started("RUNNING", guard=True, comment=OF_PHYSICS)),
        {"Running", "Guard"},
        (
            "what pods of the Slurm Bridge use",
            "kubectl get pods -n physics -l scheduler.slinky.slurm.net/slurm-jobid=12",
        ),
    ),
    Situation(
        "it is a guard whose node waits for its pods",
        of(started("CANCELLED", "COMPLETING", guard=True, comment="its user's own")),
        {"GuardCompleting"},
        ("its nodes wait for its pods: cpu-0", "kubectl get pods -A -l", "its pods are gone"),
    ),
    Situation("it is a guard that has ended", of(started("CANCELLED", guard=True)), {"CANCELLED"}),
    Situation(
        "it ran out of memory",
        of(started("OUT_OF_MEMORY", reason="OutOfMemory", exit_code=137)),
        {"OUT_OF_MEMORY"},
        ("Exit code 137",),
    ),
    Situation("it has completed", of(started("COMPLETED")), {"COMPLETED"}),
    Situation("Slurm has no such job", seen(), {"NotFound"}, ("sacct -j 12",)),
    Situation(
        "slurmctld crashes",
        seen(
            {"jobs": None, "nodes": None, "partitions": None},
            {
                "controllers": (
                    controller(condition("Ready", "False", "PodsNotReady", "slurmctld fails")),
                ),
                "pods": (
                    daemon(
                        conditions=[condition("PodScheduled", "True"), condition("Ready", "False")],
                        containerStatuses=[
                            {
                                "name": "slurmctld",
                                "ready": False,
                                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                                "lastState": {"terminated": {"exitCode": 1, "finishedAt": at(-10)}},
                            }
                        ],
                    ),
                ),
            },
        ),
        {"PodsNotReady", "CrashLoopBackOff"},
        ("exit code 1",),
    ),
    Situation(
        "nothing of Slurm may be read, and all pods are ready",
        seen(
            {"jobs": None, "nodes": None},
            missing=(Missing("everything that Slurm knows", "you lack the right"),),
        ),
        set(),
    ),
    Situation(
        "no slurmctld pod exists", seen({"jobs": None}, {"pods": (pod("cpu-0"),)}), {"NoSlurmctld"}
    ),
]


def everything(answer: Answer) -> str:
    parts = [answer.state, *answer.would_start]
    for it in answer.findings:
        parts += [it.cause, it.remedy, it.event, *it.commands]
    return "\n".join(parts)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda it: it.name)
def test_the_findings_are_those_of_the_situation(situation: Situation) -> None:
    answer = subject.explain(situation.seen, "12")
    assert {it.code for it in answer.findings} == situation.codes
    for word in situation.words:
        assert word in everything(answer)
    for start in situation.would_start:
        assert any(start in it for it in answer.would_start), answer.would_start


def test_enough_situations_are_seeded() -> None:
    assert len(SITUATIONS) >= 40


def test_what_blocks_is_listed_first_and_a_drain_that_matters_keeps_its_level() -> None:
    drained = node("cpu-1", "IDLE", "DRAIN", reason="bad disk", reason_set_by_user="root")
    answer = subject.explain(of(job(), {"nodes": (busy("cpu-0"), drained)}), "12")
    assert answer.findings[0].code == "Drained"
    assert answer.findings[0].level is Level.BLOCKS
    assert answer.findings[0].commands == ("scontrol update nodename=cpu-1 state=resume",)


def test_a_drain_that_would_not_start_the_job_is_a_fact_only() -> None:
    drained = node("cpu-1", "IDLE", "DRAIN", reason="bad disk", cpus=1, cores=1, real_memory=100)
    answer = subject.explain(of(job(), {"nodes": (busy("cpu-0"), drained)}), "12")
    assert {it.code: it.level for it in answer.findings}["Drained"] is Level.SHOWS


def test_the_next_event_is_the_first_in_time() -> None:
    found = of(
        job(start_time=int(NOW) + 900),
        {"nodes": FULL, "running": (Ending("8", NOW + 60, "bob", "cpu-0"),)},
    )
    event_ = subject.explain(found, "12").next_event
    assert event_ is not None
    assert (event_.code, event_.at) == ("FirstToEnd", NOW + 60)


def test_the_begin_time_is_the_next_event_until_it_has_come() -> None:
    later = subject.explain(of(job("BeginTime", eligible_time=int(NOW) + 3600)), "12").next_event
    past = subject.explain(of(job("BeginTime", eligible_time=int(NOW) - 1)), "12").next_event
    assert later is not None
    assert later.at == NOW + 3600
    assert past is not None
    assert past.at is None
    assert "next cycle" in past.event


def test_the_timeline_has_both_sides_in_order() -> None:
    created = pod("cpu-1")
    created["metadata"]["creationTimestamp"] = at(-300)
    found = of(
        job(
            start_time=int(NOW) + 60,
            eligible_time=int(NOW) - 500,
            last_evaluated=int(NOW) - 10,
            scheduled_nodes="cpu-1",
        ),
        {"nodes": FULL},
        {
            "pods": (pod("cpu-0"), created),
            "events": (
                event("Pod", "slurm-worker-cpu-1", "Pulled", "image present", -210),
                event("Pod", "slurm-worker-cpu-1", "FailedMount", "timed out", -200),
                event("NodeSet", NODESET, "ScalingUp", "1 pod", -400),
            ),
        },
    )
    timeline = subject.explain(found, "12").timeline
    assert [(it.at - NOW, it.what) for it in timeline] == [
        (-600, "submitted"),
        (-500, "may start from here on"),
        (-400, "ScalingUp: 1 pod"),
        (-300, "pod created"),
        (-200, "FailedMount: timed out"),
        (-10, "the scheduler looked at it"),
        (60, "expected start on cpu-1"),
    ]


def test_the_pending_record_of_an_array_is_explained() -> None:
    running = started("RUNNING", array_job_id=12)
    answer = subject.explain(
        seen({"jobs": (running, job("JobArrayTaskLimit", array_tasks="3-9", array_max_running=1))}),
        "12",
    )
    assert "PENDING (JobArrayTaskLimit)" in answer.state
    assert {"Components", "JobArrayTaskLimit"} == {it.code for it in answer.findings}


def test_a_cordoned_kubernetes_node_is_named_with_its_command() -> None:
    reason = (
        "slurm-operator: Node (kube-1) was cordoned, Pod (slurm/slurm-worker-cpu-1) must be "
        "cordoned"
    )
    found = of(
        job(),
        {"nodes": (busy("cpu-0"), node("cpu-1", "IDLE", "DRAIN", reason=reason))},
        {"kube_nodes": (kube_node("kube-1", cordoned=True),)},
    )
    drained = next(it for it in subject.explain(found, "12").findings if it.code == "Drained")
    assert drained.commands == ("kubectl uncordon kube-1",)
