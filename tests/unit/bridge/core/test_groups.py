"""Which group a pod is in, and of how many pods. Labels and annotations are those that the
controllers write.
"""

from typing import Any

import msgspec
import pytest

from sidecars.bridge.core import groups
from sidecars.bridge.core.groups import UNREAD, Facts, Group, Source, SourceKind
from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.records import GroupKey
from sidecars.contract import bridge

JOB = {"kind": "Job", "name": "train", "uid": "j", "controller": True}
LWS = {
    "leaderworkerset.sigs.k8s.io/name": "serve",
    "leaderworkerset.sigs.k8s.io/group-index": "2",
    "leaderworkerset.sigs.k8s.io/group-key": "abc",
    "leaderworkerset.sigs.k8s.io/worker-index": "0",
}
JOB_SET = {
    "jobset.sigs.k8s.io/jobset-name": "js",
    "jobset.sigs.k8s.io/jobset-uid": "s",
    "jobset.sigs.k8s.io/replicatedjob-name": "workers",
    "jobset.sigs.k8s.io/replicatedjob-replicas": "2",
}


def pod(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: Any = None,
    **spec: Any,
) -> Pod:
    metadata = {
        "name": "p",
        "namespace": "team",
        "uid": "u",
        "labels": labels or {},
        "annotations": annotations or {},
    }
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def known(item: Pod, spec: dict[str, Any]) -> Group:
    """The group, when the object that the pod names has this specification."""
    source = groups.source_of(item)
    assert source is not None
    return groups.group_of(item, {source: groups.read(source, {"spec": spec})})


JOB_SET_OBJECT: dict[str, Any] = {
    "metadata": {
        "annotations": {
            f"{bridge.WISHES}qos": "high",
            bridge.NO_SUBMISSION: "false",
            "example.com/other": "x",
        }
    },
    "spec": {"replicatedJobs": [{"name": "workers", "template": {"spec": {"parallelism": 2}}}]},
}


def test_the_annotations_of_an_object_about_the_job_are_those_of_its_pods() -> None:
    item = pod(JOB_SET)
    source = groups.source_of(item)
    assert source is not None
    found = groups.group_of(item, {source: groups.read(source, JOB_SET_OBJECT)})
    assert found.wishes == {f"{bridge.WISHES}qos": "high"}
    assert found.size == 2
    without_gang = Source(SourceKind.POD_GROUP, "team", "pg")
    alone = pod(schedulingGroup={"podGroupName": "pg"})
    read = groups.read(without_gang, {"metadata": JOB_SET_OBJECT["metadata"], "spec": {}})
    assert groups.group_of(alone, {without_gang: read}).wishes == found.wishes


@pytest.mark.parametrize(
    "metadata", [None, 5, {"annotations": None}, {"annotations": [1]}, {"annotations": {"a": 1}}]
)
def test_an_object_without_annotations_has_a_size_all_the_same(metadata: Any) -> None:
    source = Source(SourceKind.JOB_SET, "team", "js")
    found = groups.read(source, JOB_SET_OBJECT | {"metadata": metadata})
    assert (found.sizes, found.wishes) == ({"": 2}, {})


def replicated(name: str, replicas: int | None = None, **fields: Any) -> dict[str, Any]:
    job = {key: fields.pop(key) for key in ("parallelism", "completions") if key in fields}
    found = {"name": name, "template": {"spec": job}, **fields}
    return found if replicas is None else {**found, "replicas": replicas}


@pytest.mark.parametrize("owner", [None, JOB])
def test_a_pod_without_labels_is_by_itself_also_one_of_a_batch_job(owner: Any) -> None:
    item = pod({"batch.kubernetes.io/job-name": "train"} if owner else {}, owner=owner)
    assert groups.source_of(item) is None
    assert groups.group_of(item, {}) == Group(GroupKey("team", "u"))


def test_the_pair_of_labels_names_a_group_and_its_size() -> None:
    found = groups.group_of(
        pod({bridge.GROUP_LABEL: "g", bridge.GROUP_SIZE_LABEL: "3"}, owner=JOB), {}
    )
    assert found == Group(GroupKey("team", "group/g"), "g", "group g", 3)


def test_the_size_alone_makes_one_group_of_the_pods_of_a_controller() -> None:
    found = groups.group_of(pod({bridge.GROUP_SIZE_LABEL: "4"}, owner=JOB), {})
    assert found == Group(GroupKey("team", "owner/j"), "train", "Job train", 4)
    found = groups.group_of(pod({bridge.GROUP_SIZE_LABEL: "4"}), {})
    assert found.refused
    assert f"add {bridge.GROUP_LABEL}" in found.problem


@pytest.mark.parametrize("size", ["", "0", "-1", "many", "10001", "²", "99999999999999999999"])
@pytest.mark.parametrize("group", [{bridge.GROUP_LABEL: "g"}, {}])
def test_a_wrong_size_is_refused_with_its_label(size: str, group: dict[str, str]) -> None:
    found = groups.group_of(pod({**group, bridge.GROUP_SIZE_LABEL: size}, owner=JOB), {})
    assert (found.size, found.refused) == (0, True)
    assert f"{bridge.GROUP_SIZE_LABEL} is {size!r}" in found.problem


def test_a_group_of_a_leader_worker_set_has_the_size_of_its_annotation() -> None:
    found = groups.group_of(pod(LWS, {"leaderworkerset.sigs.k8s.io/size": "5"}), {})
    assert found == Group(
        GroupKey("team", "lws/serve/2"), "serve-2", "LeaderWorkerSet serve, group 2", 5
    )
    assert groups.group_of(pod(LWS), {}).refused


def test_all_pods_of_a_job_set_are_one_group() -> None:
    jobs = [replicated("driver"), replicated("workers", 2, parallelism=4, completions=3)]
    found = known(pod(JOB_SET), {"replicatedJobs": jobs})
    assert found == Group(GroupKey("team", "jobset/s"), "js", "JobSet js", 7)


@pytest.mark.parametrize(
    "change",
    [
        {"startupPolicy": {"startupPolicyOrder": "InOrder"}},
        {
            "replicatedJobs": [
                replicated("driver"),
                replicated("workers", 3, dependsOn=[{"name": "driver"}]),
            ]
        },
    ],
)
def test_the_jobs_of_a_job_set_that_start_one_after_the_other_are_groups_of_their_own(
    change: dict[str, Any],
) -> None:
    spec = {"replicatedJobs": [replicated("driver"), replicated("workers", 3)], **change}
    found = known(pod(JOB_SET), spec)
    assert found == Group(
        GroupKey("team", "jobset/s/workers"), "js-workers", "JobSet js, workers", 3
    )


def test_a_pod_group_of_scheduler_plugins_goes_before_the_job_set_of_its_pods() -> None:
    """As Kubeflow Trainer creates them."""
    item = pod({**JOB_SET, "scheduling.x-k8s.io/pod-group": "tj"})
    assert groups.source_of(item) == Source(SourceKind.SCHEDULER_PLUGINS, "team", "tj")
    assert known(item, {"minMember": 6}) == Group(
        GroupKey("team", "podgroup/tj"), "tj", "PodGroup tj", 6
    )


def test_a_pod_group_of_kubernetes_has_the_size_of_its_gang() -> None:
    item = pod(schedulingGroup={"podGroupName": "pg"})
    found = known(item, {"schedulingPolicy": {"gang": {"minCount": 2}}})
    assert found == Group(GroupKey("team", "gang/pg"), "pg", "PodGroup pg", 2)
    assert known(item, {"schedulingPolicy": {"basic": {}}}) == Group(GroupKey("team", "u"))


def test_each_replica_of_a_pod_group_in_a_workload_is_a_group() -> None:
    item = pod(workloadRef={"name": "w", "podGroup": "pg", "podGroupReplicaKey": "1"})
    spec = {
        "podGroups": [
            {"name": "pg", "policy": {"gang": {"minCount": 4}}},
            {"name": "x", "policy": {"basic": {}}},
        ]
    }
    assert known(item, spec) == Group(
        GroupKey("team", "workload/w/pg/1"), "w-pg", "Workload w, pg", 4
    )
    assert known(pod(workloadRef={"name": "w", "podGroup": "x"}), spec) == Group(
        GroupKey("team", "u")
    )
    assert (
        "no size for this pod"
        in known(pod(workloadRef={"name": "w", "podGroup": "z"}), spec).problem
    )


def test_the_bridges_own_labels_go_before_all_others() -> None:
    labels = {
        **JOB_SET,
        "scheduling.x-k8s.io/pod-group": "tj",
        bridge.GROUP_LABEL: "g",
        bridge.GROUP_SIZE_LABEL: "2",
    }
    assert groups.source_of(pod(labels)) is None
    assert groups.group_of(pod(labels), {}).key.group == "group/g"


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [(JOB_SET, {}), (LWS, {"leaderworkerset.sigs.k8s.io/size": "5"})],
    ids=["JobSet", "LeaderWorkerSet"],
)
def test_a_pod_of_a_batch_job_or_stateful_set_is_by_itself_only_if_nothing_else_groups_it(
    labels: dict[str, str], annotations: dict[str, str]
) -> None:
    """The pods of a JobSet are those of Jobs."""
    item = pod({**labels, "batch.kubernetes.io/job-name": "train"}, annotations, owner=JOB)
    found = groups.group_of(item, {})
    assert found.key != GroupKey("team", "u")
    assert found.words.startswith(("JobSet js", "LeaderWorkerSet serve"))


def test_an_object_that_was_not_read_yet_is_no_problem_and_gives_no_size() -> None:
    item = pod(JOB_SET)
    assert groups.group_of(item, {}) == Group(GroupKey("team", "jobset/s"), "js", "JobSet js", 0)


@pytest.mark.parametrize(
    ("facts", "words", "refused"),
    [
        (groups.missing, "JobSet js (jobsets.jobset.x-k8s.io) doesn't exist", False),
        (groups.forbidden, "adds `get` on jobsets.jobset.x-k8s.io to its ClusterRole", True),
        (lambda source: groups.failed(source, "500"), "JobSet js can't be read: 500", False),
        (
            lambda source: groups.read(source, {"spec": {"replicatedJobs": 1}}),
            "no size that can be read",
            True,
        ),
        (lambda source: groups.read(source, {}), "no size that can be read", True),
        (lambda source: groups.read(source, {"spec": None}), "no size that can be read", True),
        (
            lambda source: groups.read(source, {"spec": {"replicatedJobs": []}}),
            "has no size for this pod",
            True,
        ),
    ],
)
def test_an_object_without_a_size_reports_why(facts: Any, words: str, refused: bool) -> None:
    item = pod(JOB_SET)
    source = groups.source_of(item)
    assert source is not None
    found = groups.group_of(item, {source: facts(source)})
    assert (found.size, found.refused) == (0, refused)
    assert words in found.problem


def test_facts_can_be_compared_and_hashed() -> None:
    assert hash(Facts({"": 1})) == hash(Facts({"": 1}))
    assert Facts({"": 1}) != UNREAD


BATCH = {**JOB, "apiVersion": "batch/v1"}


def of_job(item: Pod, spec: dict[str, Any], status: dict[str, Any] | None = None) -> Group:
    """The group, when the Job that the pod is of has these."""
    source = groups.object_of(item)
    assert source == Source(SourceKind.JOB, "team", "train")
    manifest = {**JOB_SET_OBJECT, "spec": spec, "status": status or {}}
    return groups.group_of(item, {source: groups.read(source, manifest)})


def test_a_pod_of_a_job_waits_for_its_annotations_and_has_its_time_limit() -> None:
    item = pod(owner=BATCH)
    assert groups.group_of(item, {}) == Group(GroupKey("team", "u"), size=0)
    found = of_job(item, {"activeDeadlineSeconds": 90})
    assert (found.key, found.size, found.deadline) == (GroupKey("team", "u"), 1, 90)
    assert found.wishes == {f"{bridge.WISHES}qos": "high"}


@pytest.mark.parametrize("label", ["", bridge.JOB_LABEL])
def test_a_pod_with_a_job_keeps_its_size_while_its_controller_is_not_read(label: str) -> None:
    labels = {bridge.GROUP_SIZE_LABEL: "4"} | ({label: "7"} if label else {})
    assert groups.group_of(pod(labels, owner=BATCH), {}).size == (4 if label else 0)


@pytest.mark.parametrize(
    ("spec", "status", "size"),
    [
        ({"completions": 6}, {}, 4),
        ({"completions": 6}, {"succeeded": 4}, 2),
        (
            {"completions": 6},
            {"succeeded": 2, "uncountedTerminatedPods": {"succeeded": ["a", "b"]}},
            2,
        ),
        ({"completions": 6}, {"succeeded": 6}, 1),
        ({}, {"succeeded": 6}, 4),
    ],
)
def test_the_last_pods_of_a_job_are_a_smaller_group(
    spec: dict[str, Any], status: dict[str, Any], size: int
) -> None:
    item = pod({bridge.GROUP_SIZE_LABEL: "4"}, owner=BATCH)
    assert of_job(item, spec, status).size == size
    # Other controllers may have pods with the label of the group.
    named = pod({bridge.GROUP_LABEL: "g", bridge.GROUP_SIZE_LABEL: "4"}, owner=BATCH)
    assert of_job(named, spec, status).size == 4


def test_a_wrong_size_is_refused_before_the_controller_is_read() -> None:
    assert groups.group_of(pod({bridge.GROUP_SIZE_LABEL: "0"}, owner=BATCH), {}).refused


@pytest.mark.parametrize(
    ("labels", "version", "kind", "source"),
    [
        ({}, "apps/v1", "ReplicaSet", (SourceKind.REPLICA_SET, "team", "train")),
        ({}, "apps/v1", "StatefulSet", (SourceKind.STATEFUL_SET, "team", "train")),
        (LWS, "apps/v1", "StatefulSet", (SourceKind.LEADER_WORKER_SET, "team", "serve")),
        ({}, "example.com/v1", "Job", None),
        ({}, "apps/v1", "DaemonSet", None),
    ],
)
def test_the_annotations_of_the_controllers_of_kubernetes_count(
    labels: dict[str, str], version: str, kind: str, source: tuple[SourceKind, str, str] | None
) -> None:
    owner = {"apiVersion": version, "kind": kind, "name": "train", "uid": "j", "controller": True}
    item = pod(labels, {"leaderworkerset.sigs.k8s.io/size": "5"}, owner=owner)
    found = groups.object_of(item)
    assert found == source
    if found is not None:
        group = groups.group_of(item, {found: groups.read(found, JOB_SET_OBJECT)})
        assert (group.size, group.wishes) == (5 if labels else 1, {f"{bridge.WISHES}qos": "high"})


def test_a_controller_that_may_not_be_read_shows_the_missing_right_alone() -> None:
    item = pod(owner=BATCH)
    source = groups.object_of(item)
    assert source is not None
    found = groups.group_of(item, {source: groups.forbidden(source)})
    assert (found.size, found.refused) == (0, True)
    assert found.problem.endswith("adds `get` on jobs.batch to its ClusterRole")


@pytest.mark.parametrize("order", ["", "InOrder"])
def test_the_pods_of_a_job_that_come_in_waves_are_alone_and_in_no_other_group(order: str) -> None:
    spec = {
        "replicatedJobs": [
            replicated("driver"),
            replicated("workers", 2, parallelism=4, completions=6),
        ],
        "startupPolicy": {"startupPolicyOrder": order},
    }
    assert known(pod(JOB_SET), spec) == Group(GroupKey("team", "u"))
    driver = pod({**JOB_SET, "jobset.sigs.k8s.io/replicatedjob-name": "driver"})
    assert known(driver, spec).size == 1
    assert known(driver, spec).key.group.startswith("jobset/s")
