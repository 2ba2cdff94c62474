"""Why a pod of the Slurm Bridge waits: in each situation, what it waits for and what happens next.

The texts of the conditions are those of the bridge's own decisions.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from sidecars.bridge.core.decide import decide
from sidecars.bridge.core.manifests import Pod as ManifestPod
from sidecars.bridge.core.pods import shape_or_problem
from sidecars.bridge.core.records import Cancel, GroupKey, Job, Phase, Report, View
from sidecars.bridge.core.records import Pod as SeenPod
from sidecars.bridge.core.shape import Shape
from sidecars.bridge.rights import Installation, Rights
from sidecars.contract import bridge
from sidecars.contract.bridge import Comment
from sidecars.explain.core import bridge_pod
from sidecars.explain.core import pod as subject
from sidecars.explain.core.records import Answer, Finding, Level, Object
from sidecars.kube import EventRecorder, Forbidden
from sidecars.objects import ObjectMeta
from sidecars.policy.reasons.bridge import PodQueued
from tests.unit.explain.core.building import (
    NOW,
    at,
    condition,
    event,
    job,
    partition,
    seen,
    started,
)

GATE = {"name": bridge.GATE}
KEY = GroupKey("physics", "uid-of-train-0")
SHAPE = Shape(user="ada", name="train-0", partition="slurm-bridge", cpus=1)
RUNNING = Job(
    7,
    Phase.RUNNING,
    "ada",
    Comment("physics", KEY.group, SHAPE.digest),
    slots=(("gpu-1", 1),),
    confirmed=True,
)


def waiting(
    why: str = "", message: str = "", *, number: str = "7", age: float = 600, **spec: Any
) -> Object:
    """A pod with the gate, and with the condition if a reason is given."""
    return {
        "kind": "Pod",
        "metadata": {
            "name": "train-0",
            "namespace": "physics",
            "uid": "uid-of-train-0",
            "creationTimestamp": at(-age),
            "labels": {bridge.JOB_LABEL: number} if number else {},
        },
        "spec": {"schedulingGates": [GATE]} | spec,
        "status": {
            "phase": "Pending",
            "conditions": [
                condition("PodScheduled", "False", "SchedulingGated", "Scheduling is blocked"),
                *([condition(bridge.CONDITION, "True", why, message)] if why else []),
            ],
        },
    }


def placed(**more: Any) -> Object:
    """A pod that runs on a Kubernetes node."""
    found = waiting(PodQueued.RELEASED, "Slurm job 7 runs", schedulingGates=[], nodeName="gpu-1")
    found["status"] |= {
        "phase": "Running",
        "conditions": [condition("Ready", "True")],
        "startTime": at(-60),
    }
    found["spec"] |= more
    return found


def answered(
    found: Object, *others: Object, slurm: dict[str, Any] | None = None, **more: Any
) -> Answer:
    read = replace(
        seen(
            {"jobs": None} | (slurm or {}),
            {"pods": (found, *others), "nodesets": (), "controllers": None},
            **more,
        ),
        namespace="physics",
    )
    return subject.explain(read, "train-0")


def the_only(found: Object, *others: Object, **more: Any) -> Finding:
    [finding] = answered(found, *others, **more).findings
    return finding


def reported(pod: SeenPod, jobs: tuple[Job, ...] = (), **view: Any) -> tuple[str, str]:
    """The condition that the bridge writes."""
    known = {"users": {"physics": "ada"}, "nodes": {"gpu-1": ""}} | view
    pods = (pod, *known.pop("others", ()))
    actions = decide(View(pods, {it.job_id: it for it in jobs}, known=True, **known))
    [found] = [it for it in actions if isinstance(it, Report) and it.pod is pod]
    return found.why.value, found.message


def gated(**more: Any) -> SeenPod:
    known: dict[str, Any] = {"key": KEY, "gated": True, "shape": SHAPE, "job": 7}
    return SeenPod("uid-of-train-0", "physics", "train-0", **(known | more))


def test_slurms_reason_is_in_words_without_any_right_in_slurms_namespace() -> None:
    pending = replace(RUNNING, phase=Phase.PENDING, slots=(), reason="Resources")
    found = answered(waiting(*reported(gated(), (pending,))))
    assert found.state == "Pending, not scheduled, Slurm job 7"
    [finding] = found.findings
    assert (finding.code, finding.level) == ("Resources", Level.WAITS)
    assert finding.cause.startswith(
        "Slurm job 7 waits: Resources. It is the first in its partition"
    )
    assert found.next_event == finding


def test_a_reason_that_does_not_end_by_itself_needs_a_remedy_for_this_job() -> None:
    pending = replace(RUNNING, phase=Phase.PENDING, slots=(), reason="PartitionTimeLimit")
    finding = the_only(waiting(*reported(gated(), (pending,))))
    assert (finding.code, finding.level) == ("PartitionTimeLimit", Level.BLOCKS)
    assert "jobid=7" in finding.remedy


def test_a_job_that_starts_or_is_suspended_is_named_as_such() -> None:
    for phase, words in ((Phase.STARTING, "is starting"), (Phase.STOPPED, "is suspended")):
        finding = the_only(waiting(*reported(gated(), (replace(RUNNING, phase=phase),))))
        assert (finding.code, finding.cause) == ("Waiting", f"Slurm job 7 {words}.")


def test_with_slurms_answer_the_expected_start_is_what_happens_next() -> None:
    asked = job("Priority", partition="cpu", start_time=int(NOW) + 300)
    found = answered(
        waiting("Waiting", "Slurm job 12 waits: Priority", number="12"),
        slurm={"jobs": (asked,), "partitions": (partition(),)},
    )
    assert found.state == "Pending, not scheduled, Slurm job 12 (PENDING)"
    assert found.findings[0].code == "Priority"
    assert found.next_event is not None
    assert found.next_event.at == NOW + 300
    assert "expected start" in " ".join(it.what for it in found.timeline)
    assert "NotModelled" not in {it.code for it in found.findings}


def test_a_job_that_the_bridge_has_not_started_is_not_to_be_released_by_hand() -> None:
    asked = job("JobHeldUser", priority=0)
    finding = the_only(
        waiting("Waiting", "Slurm job 12 waits: JobHeldUser", number="12"), slurm={"jobs": (asked,)}
    )
    assert (finding.code, finding.level, finding.commands) == ("NotStarted", Level.WAITS, ())


def test_a_missing_tenant_names_the_config_map_and_who_adds_it() -> None:
    manifest = ManifestPod(ObjectMeta("train-0", "physics", "uid-of-train-0"))
    shape, problem = shape_or_problem(manifest, {}, {}, {})
    shown = reported(gated(job=None, shape=shape, problem=problem))
    finding = the_only(
        waiting(*shown, number=""), slurm_namespace="slurm", tenants=("slurm", "queue-tenants")
    )
    assert (finding.code, finding.level) == ("NoTenant", Level.BLOCKS)
    # An edited ConfigMap would be that of the values again after the next upgrade of the chart.
    assert (
        finding.remedy
        == "An administrator adds physics to `tenants` in the values of the chart slurm-bridge."
    )
    assert finding.commands == ("kubectl -n slurm get configmap queue-tenants -o yaml",)
    assert the_only(waiting(*shown, number=""), slurm_namespace="slurm").commands == ()
    assert answered(waiting(*shown, number="")).state == "Pending, not scheduled, no Slurm job yet"


def deployment(*args: str, namespace: str = "slurm") -> Object:
    containers = [{"name": "bridge", "args": ["bridge", *args]}]
    return {
        "metadata": {"namespace": namespace},
        "spec": {"template": {"spec": {"containers": containers}}},
    }


def test_the_config_map_of_the_tenants_is_the_one_that_the_only_bridge_reads() -> None:
    one = deployment("--namespace=slurm", "--tenants=mine")
    assert bridge_pod.tenants_of([one]) == ("slurm", "mine")
    assert bridge_pod.tenants_of([]) is None
    assert bridge_pod.tenants_of([deployment("--namespace=slurm")]) is None
    assert bridge_pod.tenants_of([one, deployment("--tenants=others", namespace="b")]) is None
    assert (
        bridge_pod.tenants_of(
            [{"spec": {"template": {"spec": {"containers": [{"args": [7, None]}]}}}}]
        )
        is None
    )


def test_a_pod_that_can_have_no_job_quotes_the_bridge() -> None:
    shown = reported(
        gated(
            job=None, shape=None, problem="annotation slurmjob.slinky.slurm.net/priority is refused"
        )
    )
    finding = the_only(waiting(*shown, number=""))
    assert (finding.code, finding.level, finding.event) == ("Refused", Level.BLOCKS, "")
    assert "slurmjob.slinky.slurm.net/priority" in finding.cause
    assert "Create the pod again" in finding.remedy


def test_a_job_that_slurm_refuses_is_submitted_again() -> None:
    finding = the_only(
        waiting("Refused", "Slurm refuses the job: HTTP 500: Invalid account (2045)", number="")
    )
    assert finding.event == "the Slurm Bridge submits the job again, at most 2 minutes later"


def test_an_incomplete_group_has_its_number_of_pods() -> None:
    shown = reported(
        gated(job=None, size=4, group="group train", key=GroupKey("physics", "group/train"))
    )
    finding = the_only(waiting(*shown, number=""))
    assert (finding.code, finding.cause) == ("GroupIncomplete", "1 of 4 pods of group train exist.")
    assert "bridge-pods.md#groups" in finding.remedy


AGAIN = "after 60 s, the pod is queued again for another node"


def blocking() -> tuple[str, str]:
    key = GroupKey("physics", "uid-of-old-0")
    old = SeenPod(
        "uid-of-old-0", "physics", "old-0", key, job=6, node="gpu-1", bound=True, deleting=True
    )
    ended = Job(6, Phase.ENDED, "ada", Comment("physics", key.group), slots=(("gpu-1", 1),))
    return reported(gated(), (RUNNING, ended), others=(old,))


def old_pod(seconds: float) -> Object:
    metadata = {
        "name": "old-0",
        "namespace": "physics",
        "uid": "uid-of-old-0",
        "deletionTimestamp": at(seconds),
    }
    return {"kind": "Pod", "metadata": metadata}


def test_a_pod_of_an_ended_job_on_the_node_is_named_with_the_end_of_its_grace_period() -> None:
    asked = waiting(*blocking())
    assert bridge_pod.blocker(asked) == ("physics", "old-0")
    finding = the_only(asked, old_pod(25))
    assert (finding.code, finding.level, finding.at) == ("NodeNotFree", Level.WAITS, NOW + 25)
    assert finding.event == "pod physics/old-0 ends at the latest"


def test_a_pod_that_should_have_ended_is_to_be_looked_at() -> None:
    finding = the_only(waiting(*blocking()), old_pod(-25))
    assert (finding.event, finding.at) == (f"pod physics/old-0 is gone, or, {AGAIN}", None)
    assert "kubectl -n physics describe pod old-0" in finding.remedy


def test_a_cordoned_node_is_what_a_running_job_waits_for() -> None:
    shown = reported(gated(), (RUNNING,), nodes={"gpu-1": "Kubernetes node gpu-1 is cordoned"})
    finding = the_only(waiting(*shown))
    assert "Kubernetes node gpu-1 is cordoned" in finding.cause
    assert finding.event == f"the node is ready and uncordoned, or, {AGAIN}"
    assert bridge_pod.blocker(waiting(*shown)) is None


@pytest.mark.parametrize(
    ("phase", "node", "words"),
    [
        (Phase.STOPPED, "gpu-1", "pod physics/old-0 of a suspended job is on node gpu-1"),
        (
            Phase.RUNNING,
            "gpu-2",
            "pod physics/old-0, whose job has no place there, is on node gpu-1",
        ),
    ],
)
def test_a_pod_without_the_cores_that_it_uses_is_what_a_running_job_waits_for(
    phase: Phase, node: str, words: str
) -> None:
    key = GroupKey("physics", "uid-of-old-0")
    old = SeenPod("uid-of-old-0", "physics", "old-0", key, job=6, node="gpu-1", bound=True)
    other = Job(6, phase, "ada", Comment("physics", key.group), slots=((node, 1),))
    asked = waiting(*reported(gated(), (RUNNING, other), others=(old,)))
    assert bridge_pod.blocker(asked) == ("physics", "old-0")
    finding = the_only(asked)
    assert words in finding.cause
    assert finding.event == f"pod physics/old-0 is gone, or, {AGAIN}"


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ("Slurm job 7 has places for 1 of 2 pods: request more tasks in it", ""),
        ("Slurm job 7 has no place left for this pod", ""),
        (
            (
                "Slurm job 7 has its nodes, but ResourceClaim c has other devices than Slurm job "
                "7: delete the pod"
            ),
            "",
        ),
        (
            (
                "Slurm job 7 has its nodes, but device gpu-0 of node k1 is still allocated to "
                "another ResourceClaim"
            ),
            "the other ResourceClaim has given the device back",
        ),
        (
            "Slurm job 7 has its nodes, but Slurm's record of Kubernetes node k1 is not known yet",
            "Slurm answers with the record of the node",
        ),
    ],
)
def test_a_node_in_service_is_not_what_a_pod_without_a_place_or_a_device_waits_for(
    message: str, event: str
) -> None:
    finding = the_only(waiting("NodeNotFree", message))
    assert (finding.code, finding.event) == ("NodeNotFree", event)
    assert finding.level is (Level.WAITS if event else Level.BLOCKS)
    assert (finding.remedy == "Wait.") == bool(event)


def test_a_job_that_slurm_does_not_list_leaves_the_pod_to_its_user() -> None:
    finding = the_only(waiting(*reported(gated())))
    assert (finding.code, finding.level) == ("JobUnknown", Level.BLOCKS)
    assert finding.commands == ("kubectl -n physics delete pod train-0",)
    bound = placed()
    bound["status"]["conditions"].append(condition(bridge.CONDITION, "True", *reported(gated())))
    assert the_only(bound).code == "JobUnknown"


def test_a_pod_whose_job_its_user_submits_shows_the_comment_of_such_a_job() -> None:
    finding = the_only(
        waiting("NoJob", "user ada has no external job with the comment slurm-bridge:physics/g")
    )
    assert (finding.code, finding.level) == ("NoJob", Level.BLOCKS)
    assert "slurm-bridge:physics/g" in finding.cause
    assert "bridge-pods.md#a-slurm-job-that-brings-pods-along" in finding.remedy


@pytest.mark.parametrize(
    ("age", "number", "code", "level"),
    [
        (5, "", "New", Level.WAITS),
        (5, "7", "New", Level.WAITS),
        (600, "", "NotReported", Level.BLOCKS),
        (600, "7", "NotReported", Level.WARNS),
    ],
)
def test_a_pod_without_a_condition_is_new_or_the_bridge_does_not_run(
    age: float, number: str, code: str, level: Level
) -> None:
    finding = the_only(waiting(number=number, age=age), slurm_namespace="slurm")
    assert (finding.code, finding.level) == (code, level)
    assert finding.commands == (
        (f"kubectl -n slurm logs -l {bridge_pod.BRIDGES} --tail=50",)
        if code == "NotReported"
        else ()
    )


def lacking(namespace: str, ago: float) -> Object:
    """An Event of the bridge, in its own words."""
    events: list[Object] = []
    recorder = SimpleNamespace(
        emit=lambda *them: events.append({"message": them[-1], "lastTimestamp": at(-ago)})
    )
    names = Installation("slurm", "tenants", "slurm-bridge-tenant", "slurm-bridge")
    rights = Rights(Mock(), cast("EventRecorder", recorder), names, lambda: 0.0, lambda: None)
    rights.explained(namespace, Forbidden(403, "Forbidden", 'cannot patch resource "pods"'))
    return events[0]


@pytest.mark.parametrize("age", [5, 600])
def test_a_pod_of_a_namespace_without_a_rolebinding_shows_the_command_that_creates_it(
    age: float,
) -> None:
    finding = the_only(
        waiting(number="", age=age), bridge_events=(lacking("chemistry", 9), lacking("physics", 60))
    )
    assert (finding.code, finding.level) == ("NoRoleBinding", Level.BLOCKS)
    assert "may not change the pods of namespace physics" in finding.cause
    [command] = finding.commands
    assert command.startswith("kubectl create rolebinding slurm-bridge-tenant --namespace physics ")


def test_a_rolebinding_that_lacked_long_ago_or_elsewhere_is_not_shown() -> None:
    for it in (
        lacking("physics", bridge_pod.NO_ROLE_BINDING_SECONDS),
        lacking("chemistry", 9),
        {"message": "x"},
    ):
        assert the_only(waiting(number=""), bridge_events=(it,)).code == "NotReported"


def test_slurms_report_of_the_job_is_shown_for_a_pod_without_a_condition() -> None:
    """Beside other changes, the bridge writes few conditions: the last ones of thousands of pods
    wait for minutes.
    """
    asked = job("Priority", partition="cpu", start_time=int(NOW) + 300)
    found = answered(waiting(number="12"), slurm={"jobs": (asked,), "partitions": (partition(),)})
    codes = {it.code: it for it in found.findings}
    assert codes["NotReported"].level is Level.SHOWS
    assert codes["Priority"].level is Level.WAITS
    assert found.next_event is not None
    assert found.next_event.at == NOW + 300
    blocked = the_codes(waiting(number="12"), job("JobHeldUser", priority=0))
    assert blocked == {"NotReported", "NotStarted"}
    assert the_codes(waiting(number="12"), started("RUNNING")) == {"NotReported", "Running"}
    assert the_codes(waiting(number="12")) == {"NotReported", "NotFound"}


def the_codes(found: Object, *jobs: Any) -> set[str]:
    return {it.code for it in answered(found, slurm={"jobs": jobs}).findings}


def test_a_pod_with_an_unreadable_job_does_not_suggest_that_the_bridge_is_not_running() -> None:
    finding = the_only(waiting(number="7"))
    assert "has Slurm job 7" in finding.cause
    assert "thousands of pods wait" in finding.cause


def test_the_gate_of_another_program_is_named() -> None:
    asked = waiting(
        "GroupIncomplete",
        "another scheduling gate is on the pod",
        schedulingGates=[GATE, {"name": "x/y"}],
    )
    codes = {it.code: it for it in answered(asked).findings}
    assert "x/y" in codes["OtherGate"].cause
    assert set(codes) == {"OtherGate", "GroupIncomplete"}


def test_a_released_pod_that_is_not_bound_quotes_the_scheduler() -> None:
    asked = waiting("Waiting", "x", schedulingGates=[])
    asked["metadata"]["annotations"] = {bridge.NODE_ANNOTATION: "gpu-1"}
    asked["status"]["conditions"] = [
        condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available.")
    ]
    finding = the_only(asked)
    assert (finding.code, finding.level) == ("NotBound", Level.BLOCKS)
    assert "on Kubernetes node gpu-1" in finding.cause
    assert "0/3 nodes are available." in finding.cause
    late = gated(gated=False, node="gpu-1", unbound_seconds=15.0, unbound_reason="taint")
    view = View((late,), {7: RUNNING}, known=True, users={"physics": "ada"}, nodes={"gpu-1": ""})
    assert any(isinstance(it, Cancel) for it in decide(view)), "which the answer announces"
    asked["status"]["conditions"] = []
    assert the_only(asked).code == "Released"


def test_a_pod_that_runs_has_the_end_of_its_job() -> None:
    finding = the_only(placed(activeDeadlineSeconds=3600))
    assert (finding.code, finding.level, finding.at) == ("Running", Level.SHOWS, NOW - 60 + 3600)
    assert the_only(placed()).event == ""


def test_the_troubles_of_a_placed_pod_are_shown_beside_its_job() -> None:
    asked = placed()
    asked["status"] |= {
        "phase": "Pending",
        "conditions": [condition("Ready", "False")],
        "containerStatuses": [
            {"name": "c", "image": "x", "state": {"waiting": {"reason": "ErrImagePull"}}}
        ],
    }
    assert [it.code for it in answered(asked).findings] == ["ErrImagePull", "Running"]


def test_a_terminating_pod_shows_that_it_has_its_resources_until_it_is_gone_and_how_long() -> None:
    asked = placed()
    asked["metadata"]["deletionTimestamp"] = at(20)
    ended = event("Pod", "train-0", "JobEnded", "Slurm job 7 has ended (TIMEOUT)")
    read = seen({"jobs": None}, {"pods": (asked,), "events": (ended,)})
    found = subject.explain(replace(read, namespace="physics"), "train-0")
    assert [it.code for it in found.findings] == ["Terminating", "NodeRetained"]
    assert "nobody else gets what it uses on Kubernetes node gpu-1" in found.findings[1].cause
    assert "terminationGracePeriodSeconds" in found.findings[1].remedy
    assert found.next_event is not None
    assert found.next_event.at == NOW + 20
    assert [it.what for it in found.timeline] == ["JobEnded: Slurm job 7 has ended (TIMEOUT)"]


def test_of_a_terminating_pod_it_is_shown_that_the_node_of_its_guard_waits_for_it() -> None:
    asked = placed()
    asked["metadata"]["deletionTimestamp"] = at(20)
    guard = replace(job(), states=frozenset({"CANCELLED", "COMPLETING"}), pending=None, guard=True)
    read = replace(seen({"jobs": (guard,)}, {"pods": (asked,)}), namespace="physics")
    found = subject.explain(read, "train-0")
    assert {it.code for it in found.findings} == {"Terminating", "GuardCompleting"}
    assert (
        "Until the pod is gone, its node is COMPLETING"
        in found.findings[-1].cause + found.findings[0].cause
    )


def test_a_terminating_pod_that_was_never_released_has_no_resources() -> None:
    asked = waiting("Waiting", "x")
    asked["metadata"]["deletionTimestamp"] = at(20)
    assert the_only(asked).code == "Terminating"


def test_any_other_gated_pod_is_explained_as_before() -> None:
    asked = waiting(number="", schedulingGates=[{"name": "x/y"}])
    assert the_only(asked).code == "SchedulingGated"
