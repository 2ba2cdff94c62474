"""Pods as decisions see them, and the patches of pods."""

import dataclasses
from typing import Any

import msgspec
import pytest

from sidecars.bridge.core import pods
from sidecars.bridge.core.groups import Group
from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.records import Disruption, GroupKey, Why
from sidecars.bridge.core.shape import Shape
from sidecars.bridge.core.tenants import Tenant
from sidecars.contract import bridge
from tests.support.world.api import json_patched

GROUP = Group(GroupKey("team", "u"))
UNSHAPED = pods.Shaped(GROUP, None, "")

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
FIELDS = [{"key": "metadata.name", "operator": "In", "values": ["k1"]}]


def manifest(
    *, gates: tuple[str, ...] = (bridge.GATE,), metadata: Any = None, **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "p",
            "namespace": "team",
            "uid": "u",
            "resourceVersion": "5",
            **(metadata or {}),
        },
        "spec": {"containers": [{}], "schedulingGates": [{"name": name} for name in gates], **spec},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "message": "why"}],
        },
    }


def pod(**values: Any) -> Pod:
    return msgspec.convert(manifest(**values), Pod)


def released(now: float = 0.0, end_time: int = 0, **values: Any) -> Any:
    """The pod after its release to k1."""
    return json_patched(manifest(**values), pods.release_patch(pod(**values), "k1", end_time, now))


def seen(**values: Any) -> Any:
    sent = values.pop("sent", "")
    return pods.pod_of(pod(**values), UNSHAPED, sent=sent)


def test_a_waiting_pod() -> None:
    found = pods.pod_of(pod(), pods.Shaped(GROUP, Shape("ada", "p"), ""))
    assert (found.uid, found.key, found.gated, found.blocked) == (
        "u",
        GroupKey("team", "u"),
        True,
        False,
    )
    assert (found.job, found.node, found.bound, found.live) == (None, "", False, True)
    assert seen(gates=(bridge.GATE, "other")).blocked


@pytest.mark.parametrize(
    ("phase", "codes", "want"),
    [
        ("Succeeded", [0, 0], 0),
        ("Failed", [0, 137], 137),
        ("Failed", [0, None], None),
        ("Failed", [0, 0], None),
        ("Failed", [], None),
        ("Running", [0], None),
    ],
)
def test_the_exit_code_of_a_pod_is_known_when_each_of_its_containers_has_one(
    phase: str, codes: list[int | None], want: int | None
) -> None:
    item = manifest()
    states = [{} if it is None else {"terminated": {"exitCode": it}} for it in codes]
    item["status"] = {"phase": phase, "containerStatuses": [{"state": it} for it in states]}
    assert pods.pod_of(msgspec.convert(item, Pod), UNSHAPED).exit_code == want


def test_the_scheduling_gate_is_no_reason_of_the_scheduler() -> None:
    gated = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "has gates",
    }
    item = manifest(gates=())
    assert pods.pod_of(msgspec.convert(item, Pod), UNSHAPED).unbound_reason == "why"
    item["status"]["conditions"] = [gated]
    assert not pods.pod_of(msgspec.convert(item, Pod), UNSHAPED).unbound_reason
    # One that gives no words has tried all the same.
    item["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    ]
    assert pods.pod_of(msgspec.convert(item, Pod), UNSHAPED).unbound_reason == "Unschedulable"


def test_the_scheduler_has_done_something_when_a_pod_gets_a_node_or_new_words() -> None:
    def tried(**values: str) -> Pod:
        item = manifest(gates=())
        item["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", **values}]
        return msgspec.convert(item, Pod)

    gated, full = tried(reason="SchedulingGated"), tried(reason="Unschedulable", message="full")
    bound, other = pod(gates=(), nodeName="k1"), pod(gates=(), nodeName="k1", overhead={"cpu": "1"})
    pairs = [(gated, gated), (gated, full), (full, full), (full, bound), (bound, other)]
    assert [pods.was_scheduled(*it) for it in pairs] == [False, True, False, True, False]


def test_the_node_of_a_pod_that_waits_is_not_taken_from_its_annotation() -> None:
    metadata = {"annotations": {bridge.NODE_ANNOTATION: "k9"}}
    assert seen(metadata=metadata).node == ""
    assert seen(metadata=metadata, sent="k1").node == "k1"
    assert seen(metadata=metadata, gates=()).node == "k9"
    assert seen(metadata=metadata, gates=(), nodeName="k2").node == "k2"


@pytest.mark.parametrize(
    ("text", "job"),
    [("17", 17), ("x", 0), ("-1", 0), (str(2**32 - 1), 2**32 - 1), (str(2**32), 0), ("¹", 0)],
)
def test_a_label_that_is_no_id_is_that_of_no_job(text: str, job: int) -> None:
    assert pods.job_id_of(pod(metadata={"labels": {bridge.JOB_LABEL: text}})) == job


def test_only_pods_with_the_gate_or_the_label_concern_the_bridge() -> None:
    assert pods.concerned(pod())
    assert pods.concerned(pod(gates=(), metadata={"labels": {bridge.JOB_LABEL: "1"}}))
    assert not pods.concerned(pod(gates=("other",)))


def test_a_namespace_without_a_tenant_or_with_a_wrong_one_is_named() -> None:
    assert "namespace team has no Slurm user" in pods.shape_or_problem(pod(), {}, {}, {})[1]
    assert pods.shape_or_problem(pod(), {}, {"team": "wrong"}, {})[1] == "wrong"
    tenants = {"team": Tenant("ada", ("p",))}
    assert pods.shape_or_problem(pod(), tenants, {}, {"ada": "uid 0"}) == (None, "uid 0")
    shape, problem = pods.shape_or_problem(pod(), tenants, {}, {})
    assert shape is not None
    assert shape.user == "ada"
    assert problem == ""


def test_the_group_of_a_pod_with_a_job_is_that_of_its_job_whatever_its_labels_are_now() -> None:
    group = {bridge.GROUP_ANNOTATION: "group/g"}
    labelled = {"labels": {bridge.JOB_LABEL: "7"}}
    assert seen(metadata={**labelled, "annotations": group}).key == GroupKey("team", "group/g")
    # Without a job, the annotation can't be the bridge's. A pod of an earlier version of the bridge
    # has none.
    assert seen(metadata={"annotations": group}).key == GROUP.key
    assert seen(metadata=labelled).key == GROUP.key


def test_the_label_is_written_on_the_version_that_had_none() -> None:
    patch = pods.label_patch(pod(), 7, "group/g")
    assert {"op": "test", "path": "/metadata/resourceVersion", "value": "5"} in patch
    written = json_patched(manifest(), patch)["metadata"]
    assert written["labels"] == {bridge.JOB_LABEL: "7"}
    assert written["annotations"] == {bridge.GROUP_ANNOTATION: "group/g"}
    labels = {"labels": {"app": "x"}}
    found = json_patched(
        manifest(metadata=labels), pods.label_patch(pod(metadata=labels), 7, "group/g")
    )
    assert found["metadata"]["labels"] == {"app": "x", bridge.JOB_LABEL: "7"}


def test_a_release_removes_our_gate_alone_and_names_the_node() -> None:
    found = released(gates=("other", bridge.GATE))
    assert found["spec"]["schedulingGates"] == [{"name": "other"}]
    assert found["metadata"]["annotations"] == {bridge.NODE_ANNOTATION: "k1"}
    assert found["spec"]["tolerations"] == [{"key": bridge.TAINT, "operator": "Exists"}]
    assert "activeDeadlineSeconds" not in found["spec"]


@pytest.mark.parametrize("affinity", [None, {}, {"podAffinity": {}}, {"nodeAffinity": {}}])
def test_a_pod_without_a_required_node_affinity_gets_one(affinity: dict[str, Any] | None) -> None:
    values: dict[str, Any] = {} if affinity is None else {"affinity": affinity}
    found = released(**values)
    terms = found["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert terms == [{"matchFields": FIELDS}]
    assert set(affinity or {}) <= set(found["spec"]["affinity"])


def test_each_term_of_a_required_node_affinity_gets_the_node() -> None:
    terms = [{"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in ("a", "b")]
    found = released(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})
    after = found["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert after == [{**term, "matchFields": FIELDS} for term in terms]


def test_a_toleration_that_is_there_is_not_added_again() -> None:
    tolerations = [{"key": bridge.TAINT, "operator": "Exists"}]
    assert released(tolerations=tolerations)["spec"]["tolerations"] == tolerations
    other = [{"key": "x"}]
    assert len(released(tolerations=other)["spec"]["tolerations"]) == 2


def test_the_deadline_is_before_the_end_of_the_job_and_never_later_than_the_pods_own() -> None:
    assert released(100.0, 160)["spec"]["activeDeadlineSeconds"] == 60 - pods.DEADLINE_MARGIN
    assert released(100.0, 160, activeDeadlineSeconds=20)["spec"]["activeDeadlineSeconds"] == 20
    assert released(100.0, 101)["spec"]["activeDeadlineSeconds"] == 1


def test_the_condition_is_written_once() -> None:
    item = json_patched(
        manifest(), pods.condition_patch(pod(), Why.WAITING, "Slurm job 7 waits: Priority", 0)
    )
    condition = item["status"]["conditions"][-1]
    assert condition == {
        "type": bridge.CONDITION,
        "status": "True",
        "reason": "Waiting",
        "message": "Slurm job 7 waits: Priority",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    }
    again = msgspec.convert(item, Pod)
    assert pods.condition_patch(again, Why.WAITING, "Slurm job 7 waits: Priority", 9) == []
    item = json_patched(
        item, pods.condition_patch(again, Why.WAITING, "Slurm job 7 waits: Resources", 9)
    )
    assert item["status"]["conditions"][-1] == {
        **condition,
        "message": "Slurm job 7 waits: Resources",
    }
    item = json_patched(
        item, pods.condition_patch(msgspec.convert(item, Pod), Why.RELEASED, "it runs", 9)
    )
    assert item["status"]["conditions"][-1]["status"] == "False"
    assert item["status"]["conditions"][-1]["lastTransitionTime"] == "1970-01-01T00:00:09Z"


def test_a_pod_without_conditions_gets_the_list() -> None:
    bare = {**manifest(), "status": {}}
    item = json_patched(
        bare, pods.condition_patch(msgspec.convert(bare, Pod), Why.REFUSED, "no", 0)
    )
    assert [it["reason"] for it in item["status"]["conditions"]] == ["Refused"]


def test_what_is_shown_can_be_compared_with_what_is_reported() -> None:
    item = json_patched(manifest(), pods.condition_patch(pod(), Why.REFUSED, "no", 0))
    assert pods.pod_of(msgspec.convert(item, Pod), UNSHAPED).reported == ("Refused", "no")
    assert dataclasses.replace(seen(), reported=("", "")) == seen()


def test_a_pod_that_is_disrupted_shows_it_once_and_keeps_the_first_cause() -> None:
    item = json_patched(manifest(), pods.disruption_patch(pod(), Disruption.PREEMPTED, "why", 9))
    assert item["status"]["conditions"][-1] == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptedBySlurm",
        "message": "why",
        "lastTransitionTime": "1970-01-01T00:00:09Z",
    }
    again = msgspec.convert(item, Pod)
    assert pods.disruption_patch(again, Disruption.NODE_FAIL, "another", 10) == []


def test_a_disruption_of_kubernetes_that_did_not_happen_is_overwritten() -> None:
    stale = manifest()
    stale["status"]["conditions"].insert(0, {"type": "DisruptionTarget", "status": "False"})
    item = json_patched(
        stale,
        pods.disruption_patch(msgspec.convert(stale, Pod), Disruption.GIVEN_UP, "why", 9),
    )
    assert [it["type"] for it in item["status"]["conditions"]] == [
        "DisruptionTarget",
        "PodScheduled",
    ]
    assert item["status"]["conditions"][0]["reason"] == "JobGivenUp"
    assert item["status"]["conditions"][0]["lastTransitionTime"] == "1970-01-01T00:00:09Z"


def test_only_a_pod_that_waits_with_this_job_loses_its_id() -> None:
    labels = {bridge.JOB_LABEL: "7", "app": "a"}
    annotations = {bridge.GROUP_ANNOTATION: "group/g"}
    metadata = {
        "name": "p",
        "uid": "u",
        "resourceVersion": "3",
        "labels": labels,
        "annotations": annotations,
    }
    gates = [{"name": "other"}, {"name": bridge.GATE}]
    waits = msgspec.convert({"metadata": metadata, "spec": {"schedulingGates": gates}}, Pod)
    *tests, label, annotation = pods.requeue_patch(waits, 7)
    assert {(it["op"], it["path"], it["value"]) for it in tests} == {
        ("test", "/metadata/uid", "u"),
        ("test", "/metadata/resourceVersion", "3"),
        ("test", "/spec/schedulingGates/1/name", bridge.GATE),
        ("test", "/metadata/labels/scheduler.slinky.slurm.net~1slurm-jobid", "7"),
    }
    assert label == {
        "op": "remove",
        "path": "/metadata/labels/scheduler.slinky.slurm.net~1slurm-jobid",
    }
    assert annotation == {
        "op": "remove",
        "path": "/metadata/annotations/slinky.slurm.net~1slurm-group",
    }
