"""What a pod's job requests, and which pods are refused."""

import dataclasses
import hashlib
import json
from typing import Any

import msgspec
import pytest

from sidecars.bridge.core import shape
from sidecars.bridge.core.feasible import NOTHING, Needs
from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.shape import ShapeError
from sidecars.bridge.core.tenants import Tenant
from sidecars.contract import bridge

TENANT = Tenant("ada", ("gpu", "cpu"), ("physics",), ("normal", "high"))


def pod(
    spec: dict[str, Any] | None = None, labels: dict[str, str] | None = None, **wishes: str
) -> Pod:
    return wishing(wishes, spec, labels)


def wishing(
    wishes: dict[str, str], spec: dict[str, Any] | None = None, labels: dict[str, str] | None = None
) -> Pod:
    annotations = {
        f"{bridge.WISHES}{key.replace('_', '-')}": value for key, value in wishes.items()
    }
    metadata = {
        "name": "p",
        "namespace": "team",
        "uid": "u",
        "labels": labels or {},
        "annotations": annotations,
    }
    return msgspec.convert({"metadata": metadata, "spec": spec or {}}, Pod)


def container(limits: dict[str, str] | None = None, **requests: str) -> dict[str, Any]:
    return {"resources": {"requests": requests, "limits": limits or {}}}


def test_the_annotations_of_the_object_count_where_the_pod_has_none_with_the_same_limits() -> None:
    given = {
        f"{bridge.WISHES}qos": "high",
        f"{bridge.WISHES}partition": "gpu",
        f"{bridge.WISHES}timelimit": "7",
    }
    found = shape.shape_of(pod(partition="cpu"), TENANT, wishes=given)
    assert (found.partition, found.qos, found.minutes) == ("cpu", "high", 7)
    for key, value, words in (
        ("partition", "secret", "may use"),
        ("user-id", "0", "refused"),
        ("x", "1", "exist"),
    ):
        with pytest.raises(shape.ShapeError, match=words):
            shape.shape_of(pod(), TENANT, wishes={bridge.WISHES + key: value})


def test_a_job_requests_what_the_containers_do_together_rounded_up() -> None:
    found = shape.shape_of(
        pod({"containers": [container(cpu="1500m", memory="1Gi"), container(cpu="1")]}), TENANT
    )
    assert (found.cpus, found.memory) == (3, 1024)


def test_an_init_container_counts_alone_and_a_sidecar_beside_all() -> None:
    sidecar = {**container(cpu="1"), "restartPolicy": "Always"}
    spec = {"containers": [container(cpu="2")], "initContainers": [sidecar, container(cpu="4")]}
    assert shape.shape_of(pod(spec), TENANT).cpus == 5


def test_an_annotation_can_raise_what_a_pod_requests_and_not_reduce_it() -> None:
    spec = {"containers": [container(cpu="4", memory="1Gi")]}
    more = shape.shape_of(pod(spec, cpu_per_task="6", mem_per_node="2Gi"), TENANT)
    assert (more.cpus, more.memory) == (6, 2048)
    less = shape.shape_of(pod(spec, cpu_per_task="1", mem_per_node="1Mi"), TENANT)
    assert (less.cpus, less.memory) == (4, 1024)


def test_pods_with_the_same_raised_requests_are_equal() -> None:
    spec = {"containers": [container(cpu="4", memory="1Gi")]}
    first, second = (
        shape.shape_of(pod(it, cpu_per_task="6", mem_per_node="2Gi"), TENANT, "g")
        for it in (spec, {})
    )
    assert first == second


def test_gpus_are_taken_from_the_limits() -> None:
    spec = {"containers": [container({"nvidia.com/gpu": "2"})]}
    assert shape.shape_of(pod(spec), TENANT).gres == "gres/gpu:2"


@pytest.mark.parametrize(
    ("gres", "requested"),
    [
        ("nic:1", "gres/nic:1,gres/gpu:2"),
        ("gpu:h100:2", "gres/gpu:h100:2"),
        ("gres/gpu:3,nic:1", "gres/gpu:3,gres/nic:1"),
        ("gpu:a100:1,gpu:h100=1", "gres/gpu:a100:1,gres/gpu:h100=1"),
    ],
)
def test_the_annotation_of_gres_adds_to_the_gpus_of_the_limits(gres: str, requested: str) -> None:
    spec = {"containers": [container({"nvidia.com/gpu": "2"})]}
    assert shape.shape_of(pod(spec, gres=gres), TENANT).gres == requested


@pytest.mark.parametrize(
    "gres", ["gpu", "gpu:1", "gpu:h100:1", "gpu:h100", "gpu:2,gpu:1", "gpu:0", "gpu:-2", "gpu:1K"]
)
def test_fewer_gpus_by_annotation_than_in_the_limits_are_refused(gres: str) -> None:
    """The other GPUs would belong to the pod in Kubernetes, and to another job in Slurm."""
    spec = {"containers": [container({"nvidia.com/gpu": "2"})]}
    with pytest.raises(ShapeError, match=r"gres is .* 2 GPUs in its limits"):
        shape.shape_of(pod(spec, gres=gres), TENANT)


def test_a_number_of_gres_may_have_any_number_of_digits() -> None:
    """A pod's annotation and the request of a user's job can have thousands."""
    assert shape.counts_of("gres/gpu:" + "0" * 18 + "2") == {"gpu": 2}
    assert shape.gpus_of("gres/gpu:" + "0" * 5000 + "2") == 1
    assert shape.gpus_of(f"gres/gpu:{2**63 * 10_000}") == 2**63 * 10_000, (
        "of the containers of a pod together"
    )
    assert shape.shape_of(pod(gres="nic:" + "9" * 5000), TENANT).gres.startswith("gres/nic:9")


def test_what_a_pod_requests_is_known_whatever_its_annotations_are() -> None:
    spec = {"containers": [container({"nvidia.com/gpu": "2"}, cpu="3", memory="1Gi")]}
    found = shape.own(pod(spec, colour="red"))
    assert (found.cpus, found.memory, found.gres) == (3, 1024, "gres/gpu:2")
    assert shape.own(pod({"containers": [container(cpu="many")]})).cpus >= 2**31
    shared = {"containers": [container(limits={"nvidia.com/gpu.shared": "2"})]}
    assert (
        shape.own(pod(shared, colour="red"), {"nvidia.com/gpu.shared": "share"}).gres
        == "gres/share:2"
    )


def test_overhead_and_resources_of_the_pod_count() -> None:
    spec = {
        "containers": [container(cpu="1")],
        "resources": {"requests": {"cpu": "6"}},
        "overhead": {"cpu": "500m"},
    }
    assert shape.shape_of(pod(spec), TENANT).cpus == 7


def test_the_first_of_what_the_namespace_may_use_is_the_default() -> None:
    found = shape.shape_of(pod(), TENANT)
    assert (found.user, found.partition, found.account, found.qos) == (
        "ada",
        "gpu",
        "physics",
        "normal",
    )


def test_a_pod_chooses_among_what_its_namespace_may_use() -> None:
    found = shape.shape_of(pod(partition="cpu", qos="high"), TENANT)
    assert (found.partition, found.qos) == ("cpu", "high")


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"partition": "secret"}, "namespace team may use: gpu, cpu"),
        ({"account": "chemistry"}, "namespace team may use: physics"),
        ({"user_id": "0"}, "maps each namespace to its Slurm user"),
        ({"group_id": "0"}, "maps each namespace to its Slurm user"),
        ({"priority": "9"}, "no maxPriority for namespace"),
        ({"timelimit": "soon"}, "write a whole number above 0"),
        ({"timelimit": "9" * 5000}, "write a whole number above 0"),
        ({"gres": "gpu 1"}, "remove spaces"),
        ({"mem_per_node": "lots"}, "isn't a quantity"),
        ({"submit": "no"}, "write true or false"),
        ({"submit": "false"}, "add the labels"),
        ({"colour": "red"}, "doesn't exist; choose from"),
        ({"job_name": "x" * 8193}, "job-name has 8193 characters: at most 8192 are possible"),
        ({"cpu_per_task": "1" * 8000 + "x"}, "has 8001 characters: at most 100 are possible"),
    ],
)
def test_a_wrong_wish_is_refused_with_its_place_and_remedy(
    wishes: dict[str, str], words: str
) -> None:
    with pytest.raises(ShapeError, match=words) as refused:
        shape.shape_of(wishing(wishes), TENANT)
    assert bridge.WISHES + next(iter(wishes)).replace("_", "-") in str(refused.value)


CAPPED = dataclasses.replace(TENANT, max_priority=1000)


def test_a_pod_sets_a_priority_up_to_the_one_of_its_namespace() -> None:
    assert shape.shape_of(pod(priority="1000"), CAPPED).priority == 1000
    without = shape.shape_of(pod(), CAPPED)
    assert without.priority == 0
    # A job that was submitted by a former release is that of its pod.
    assert without.digest == shape.shape_of(pod(), TENANT).digest
    assert without.digest != shape.shape_of(pod(priority="1"), CAPPED).digest


@pytest.mark.parametrize(
    ("priority", "words"),
    [
        ("1001", "namespace team may set at most 1000"),
        ("4294967294", "write a whole number above 0"),
        ("2147483647", "namespace team may set at most 1000"),
        ("0", "write a whole number above 0"),
        ("-1", "write a whole number above 0"),
        ("1e3", "write a whole number above 0"),
        ("", "write a whole number above 0"),
    ],
)
def test_no_priority_beyond_that_of_the_namespace_and_none_that_blocks_a_job_is_set(
    priority: str, words: str
) -> None:
    with pytest.raises(ShapeError, match=words):
        shape.shape_of(pod(priority=priority), CAPPED)
    # The object of a group has no other limit.
    with pytest.raises(ShapeError, match=words):
        shape.shape_of(pod(), CAPPED, wishes={f"{bridge.WISHES}priority": priority})


def test_an_extended_resource_is_the_gres_of_its_rule() -> None:
    extended = {"nvidia.com/mig-1g.5gb": "gpu:1g.5gb"}
    wanted = {"containers": [{"resources": {"limits": {"nvidia.com/mig-1g.5gb": "2"}}}]}
    assert shape.shape_of(pod(wanted), TENANT, extended=extended).gres == "gres/gpu:1g.5gb:2"


@pytest.mark.parametrize(
    "name",
    [
        *("nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared", "amd.com/other", "gpu.intel.com/xe"),
        "deviceclass.resource.kubernetes.io/gpu.example.com",
    ],
)
def test_a_device_of_a_vendor_that_is_no_gres_is_refused(name: str) -> None:
    with pytest.raises(ShapeError, match=f"{name} is no GRES"):
        shape.shape_of(pod({"containers": [{"resources": {"limits": {name: "1"}}}]}), TENANT)


def test_claims_and_limits_are_requested_together() -> None:
    wanted = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    found = shape.shape_of(
        pod(wanted), TENANT, extended={"nvidia.com/gpu": "gpu:h100"}, claimed=[("gpu:h100", 2)]
    )
    assert found.gres == "gres/gpu:h100:3"


def test_an_annotation_can_not_name_the_gres_of_a_claim() -> None:
    with pytest.raises(ShapeError, match="remove gpu from the annotation"):
        shape.shape_of(pod(gres="gpu:h100:4"), TENANT, claimed=[("gpu:h100", 2)])
    assert (
        shape.shape_of(pod(gres="nic:1"), TENANT, claimed=[("gpu:h100", 2)]).gres
        == "gres/nic:1,gres/gpu:h100:2"
    )


def test_the_job_of_a_group_has_the_groups_name() -> None:
    assert shape.shape_of(pod(), TENANT).name == "p"
    assert shape.shape_of(pod(), TENANT, "train").name == "train"
    assert shape.shape_of(pod(job_name="mine"), TENANT, "train").name == "mine"


def affinity(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ""),
        ({"nodeSelector": {"zone": "a"}}, "zone=a"),
        ({"nodeSelector": {"b": "1", "a": ""}}, "a=_&b=1"),
        (affinity([{"key": "z", "operator": "In", "values": ["a", "b"]}]), "z=a|z=b"),
        (affinity([{"key": "z", "operator": "NotIn", "values": ["a", "b"]}]), "z!=a&z!=b"),
        (affinity([{"key": "z", "operator": "Exists"}]), "z!=-"),
        (affinity([{"key": "z", "operator": "DoesNotExist"}]), "z=-"),
        (
            affinity(
                [
                    {"key": "z", "operator": "In", "values": ["a", "b"]},
                    {"key": "y", "operator": "Exists"},
                ],
                [{"key": "x", "operator": "In", "values": ["c"]}],
            ),
            "((z=a|z=b)&y!=-)|x=c",
        ),
        (
            {
                "nodeSelector": {"k": "v"},
                **affinity([{"key": "z", "operator": "In", "values": ["a", "b"]}]),
            },
            "k=v&(z=a|z=b)",
        ),
    ],
)
def test_selectors_become_a_constraint_with_one_operator_on_each_level(
    spec: dict[str, Any], expected: str
) -> None:
    assert shape.constraint(pod(spec)) == expected


def test_an_operator_that_slurm_lacks_is_refused() -> None:
    with pytest.raises(ShapeError, match="use In, NotIn, Exists or DoesNotExist"):
        shape.constraint(pod(affinity([{"key": "z", "operator": "Gt", "values": ["1"]}])))


def test_an_active_deadline_is_the_time_limit_in_whole_minutes() -> None:
    assert shape.shape_of(pod({"activeDeadlineSeconds": 61}), TENANT).minutes == 2


def test_equal_pods_have_equal_digests_and_others_have_not() -> None:
    first, second = shape.shape_of(pod(), TENANT), shape.shape_of(pod(partition="cpu"), TENANT)
    assert first.digest == shape.shape_of(pod(), TENANT).digest
    assert first.digest != second.digest


def test_a_job_has_its_nodes_to_itself_only_if_its_annotation_asks_for_it() -> None:
    assert shape.shape_of(pod(exclusive="true"), TENANT).exclusive
    assert not shape.shape_of(pod(), TENANT).exclusive


@pytest.mark.parametrize(
    ("own", "of_job", "annotation", "minutes"),
    [
        (None, 90, "", 2),
        (60, 90, "", 1),
        (120, 90, "", 2),
        (None, 90, "7", 7),
        (None, None, "", None),
    ],
)
def test_the_time_limit_is_the_first_end_that_kubernetes_knows(
    own: int | None, of_job: int | None, annotation: str, minutes: int | None
) -> None:
    item = pod({} if own is None else {"activeDeadlineSeconds": own})
    wishes = {f"{bridge.WISHES}timelimit": annotation} if annotation else {}
    assert shape.shape_of(item, TENANT, wishes=wishes, deadline=of_job).minutes == minutes


def test_what_slurm_does_not_count_is_a_need_of_the_pod() -> None:
    spec = {
        "containers": [
            container(
                {"nvidia.com/gpu": "1"}, cpu="1", memory="1Gi", **{"ephemeral-storage": "2Gi"}
            ),
            container({"example.com/nic": "1"}),
        ],
        "initContainers": [container({"example.com/nic": "3"})],
        "tolerations": [{"key": "team", "operator": "Exists"}],
    }
    needs = shape.shape_of(pod(spec), TENANT).needs
    assert needs.tolerations == (("team", "Exists", "", ""),)
    assert dict(needs.resources) == {"ephemeral-storage": "2147483648", "example.com/nic": "3"}


def test_pods_without_such_needs_have_the_jobs_of_former_releases() -> None:
    """Otherwise an upgrade would cancel all held jobs. The text is that of release 0.1.0."""
    fields = dataclasses.asdict(shape.Shape("ada", "p"))
    del fields["needs"], fields["priority"], fields["apart"]
    text = json.dumps(fields, sort_keys=True).encode()
    assert shape.Shape("ada", "p").digest == hashlib.sha256(text).hexdigest()[:16]
    needs = Needs(resources=(("ephemeral-storage", "1"),))
    assert shape.Shape("ada", "p", needs=needs).digest != shape.Shape("ada", "p").digest
    assert shape.Shape("ada", "p", apart=True).digest != shape.Shape("ada", "p").digest


@pytest.mark.parametrize(
    ("text", "exclusive"),
    [("true", True), ("True", True), ("1", True), ("false", False), ("False", False), ("0", False)],
)
def test_a_pod_has_whole_nodes_by_each_word_for_it(text: str, *, exclusive: bool) -> None:
    assert shape.shape_of(pod(exclusive=text), TENANT).exclusive == exclusive


@pytest.mark.parametrize("text", ["yes", "ture", "", " true"])
def test_a_typo_shares_no_node(text: str) -> None:
    with pytest.raises(ShapeError, match=r"exclusive is .*: write true or false"):
        shape.shape_of(pod(exclusive=text), TENANT)


def test_a_pod_that_no_scheduler_would_bind_is_refused_with_the_remedy() -> None:
    with pytest.raises(ShapeError, match=r"schedulerName is slurm-bridge-scheduler, .* remove it"):
        shape.shape_of(pod({"schedulerName": "slurm-bridge-scheduler"}), TENANT)
    assert shape.shape_of(pod({"schedulerName": "default-scheduler"}), TENANT).cpus == 1
    assert shape.shape_of(pod({"schedulerName": "their-own"}), TENANT).cpus == 1


def test_a_spread_that_nobody_can_keep_is_refused_with_what_to_write() -> None:
    def spread(when: str) -> dict[str, Any]:
        return {"topologyKey": "zone", "whenUnsatisfiable": when, "maxSkew": 1}

    both = [spread("ScheduleAnyway"), spread("DoNotSchedule")]
    words = r"can't spread the pod over zone .* ScheduleAnyway, .*slurmjob.*/min-nodes"
    with pytest.raises(ShapeError, match=words):
        shape.shape_of(pod({"topologySpreadConstraints": both}), TENANT)
    assert shape.shape_of(pod({"topologySpreadConstraints": both[:1]}), TENANT).cpus == 1


def annotated(**annotations: str) -> Pod:
    found = pod()
    meta = msgspec.structs.replace(
        found.metadata,
        annotations={
            f"{key.replace('_', '.')}.sigs.k8s.io/{value}": "true"
            for key, values in annotations.items()
            for value in values.split()
        },
    )
    return msgspec.structs.replace(found, metadata=meta)


@pytest.mark.parametrize("controller", ["alpha_jobset", "leaderworkerset"])
def test_pods_that_come_after_the_first_one_has_a_node_are_refused_unless_all_come_at_once(
    controller: str,
) -> None:
    with pytest.raises(ShapeError, match=r"exclusive-topology: the other pods .* remove it"):
        shape.shape_of(annotated(**{controller: "exclusive-topology"}), TENANT)
    labelled = annotated(alpha_jobset="exclusive-topology node-selector")
    assert shape.shape_of(labelled, TENANT).cpus == 1


HOST = {"topologyKey": "kubernetes.io/hostname"}
ITSELF = {**HOST, "labelSelector": {"matchLabels": {"app": "a"}}}


def apart(term: dict[str, Any]) -> bool:
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"podAntiAffinity": {name: [{**HOST, "labelSelector": None}, term]}}
    item = pod({"containers": [{}], "affinity": affinity}, labels={"app": "a"})
    return shape.shape_of(item, TENANT).apart


@pytest.mark.parametrize(
    "term",
    [
        ITSELF,
        {**HOST, "labelSelector": {}},
        {**HOST, "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}},
        {**ITSELF, "namespaces": ["other", "team"]},
        {**ITSELF, "namespaceSelector": {}},
        {**ITSELF, "matchLabelKeys": ["app"]},
    ],
)
def test_pods_that_exclude_each_other_from_a_node_are_apart(term: dict[str, Any]) -> None:
    assert apart(term)


@pytest.mark.parametrize(
    "term",
    [
        {**ITSELF, "topologyKey": "topology.kubernetes.io/zone"},
        {**HOST, "labelSelector": {"matchLabels": {"app": "b"}}},
        {
            **HOST,
            "labelSelector": {
                "matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]
            },
        },
        HOST,
        {**ITSELF, "namespaces": ["other"]},
        {**ITSELF, "mismatchLabelKeys": ["app"]},
    ],
)
def test_pods_that_exclude_others_are_not_apart(term: dict[str, Any]) -> None:
    assert not apart(term)


def test_the_ports_of_the_node_that_a_pod_takes_are_a_need_of_it() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 53, "hostPort": 5353, "protocol": "UDP"}]
    spec = {
        "containers": [{"ports": ports}],
        "initContainers": [{"ports": [{"containerPort": 1, "hostPort": 8080}]}],
    }
    assert shape.shape_of(pod(spec), TENANT).needs.ports == ("5353/UDP", "8080/TCP")
    assert shape.shape_of(pod({"containers": [{"ports": ports[:1]}]}), TENANT).needs == NOTHING
