"""Worker pods are created: `sidecars.operator.nodeset.creation`."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from sidecars.contract.annotations import TOPOLOGY
from sidecars.kube import PODS, AlreadyExists, Forbidden, KubeError, Manifest, Resource, ServerError
from sidecars.operator.nodeset.creation import Order, conflict, create, orders
from sidecars.operator.nodeset.deferral import DEFER_SECONDS
from sidecars.operator.nodeset.passes import Pass, PodSource
from sidecars.operator.runtime import bulk
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.policy.nodeset.actions import CreatePods
from sidecars.policy.nodeset.records import Desired, DesiredPods
from sidecars.policy.placement import Place
from tests.support import builders
from tests.support.operator_parts import NAMESPACE, Parts
from tests.unit.operator.nodeset.builders import KEY, begin

pytestmark = pytest.mark.looptime
TAKEN = AlreadyExists(409, "AlreadyExists", "taken")


def order(name: str, *claims: str) -> Order:
    def manifest(kind: str, named: str) -> Manifest:
        return {"kind": kind, "metadata": {"namespace": NAMESPACE, "name": named}}

    return Order(
        name,
        name,
        lambda: [manifest("PersistentVolumeClaim", it) for it in claims],
        partial(manifest, "Pod", name),
    )


def many(count: int) -> list[Order]:
    return [order(f"slinky-{number}") for number in range(count)]


def created(parts: Parts) -> list[str]:
    """The pods that were asked for."""
    return [name for verb, kind, name in parts.requests.made if (verb, kind) == ("create", "Pod")]


def refuse(parts: Parts, monkeypatch: pytest.MonkeyPatch, pod: str, error: KubeError) -> None:
    """Have the API server refuse this one pod."""
    answer = parts.requests.create

    async def refusing(resource: Any, manifest: Manifest, type: Any = dict) -> Manifest:
        found = await answer(resource, manifest, type)
        if manifest["metadata"]["name"] == pod:
            raise error
        return found

    monkeypatch.setattr(parts.requests, "create", refusing)


async def test_all_pods_are_created_and_expected_until_the_watch_shows_them() -> None:
    parts = Parts()
    this = begin(parts)
    await create(this, this.manifest, many(100))
    assert created(parts) == [f"slinky-{number}" for number in range(100)]
    for shown in range(100):
        assert not parts.runtime.expectations.satisfied(KEY), f"{shown} are shown"
        parts.runtime.expectations.creation_observed(KEY)
    assert parts.runtime.expectations.satisfied(KEY)
    assert not this.memory.deferral.creating
    assert this.memory.deferral.seconds_left(parts.now) == DEFER_SECONDS


async def test_a_first_pod_that_is_refused_is_the_only_one_that_is_tried() -> None:
    parts = Parts()
    parts.requests.refusals["create Pod"] = Forbidden(403, "Forbidden", "exceeded quota")
    this = begin(parts)
    with pytest.raises(Forbidden, match="exceeded quota"):
        await create(this, this.manifest, many(100))
    assert created(parts) == ["slinky-0"]
    assert parts.runtime.expectations.satisfied(KEY)


async def test_a_later_pod_that_fails_ends_the_creation_of_those_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Parts()
    refuse(parts, monkeypatch, "slinky-40", ServerError(500, "InternalError", "etcd"))
    this = begin(parts)
    with pytest.raises(ServerError):
        await create(this, this.manifest, many(1000))
    assert 40 < len(created(parts)) <= 40 + 2 * bulk.AT_ONCE


async def test_a_taken_name_stops_no_other_pod_and_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Parts()
    refuse(parts, monkeypatch, "slinky-0", TAKEN)
    this = begin(parts)
    with pytest.raises(AlreadyExists):
        await create(this, this.manifest, many(3))
    assert created(parts) == ["slinky-0", "slinky-1", "slinky-2"]
    parts.runtime.expectations.creation_observed(KEY)
    parts.runtime.expectations.creation_observed(KEY)
    assert parts.runtime.expectations.satisfied(KEY)


@pytest.mark.parametrize(
    ("urgent", "seconds"), [(False, bulk.SLICE_SECONDS), (True, bulk.URGENT_SECONDS)]
)
async def test_creation_ends_after_a_slice_of_time_and_the_next_pass_continues(
    urgent: bool, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts()
    this = begin(parts)
    this.memory.urgent = urgent
    answer = parts.requests.create

    async def slow(resource: Resource, *arguments: Any) -> Manifest:
        parts.now += 0.25 if resource is PODS else 0.0
        return await answer(resource, *arguments)

    monkeypatch.setattr(parts.requests, "create", slow)
    await create(this, this.manifest, many(1000))
    assert seconds * 4 <= len(created(parts)) <= seconds * 4 + bulk.AT_ONCE
    assert this.memory.deferral.creating
    assert this.memory.deferral.seconds_left(parts.now) is None


async def test_a_slurm_node_of_another_nodesets_pod_is_not_created_twice() -> None:
    parts = Parts()
    parts.pod("slinky-1", nodeset="other")
    parts.pod("slinky-2", nodeset="slinky")
    this = begin(parts)
    with pytest.raises(
        NotUsableError, match="Slurm node slinky-1 is pod slinky-1 of NodeSet other"
    ) as caught:
        await create(this, this.manifest, many(3))
    assert caught.value.reason == "NameConflict"
    assert created(parts) == ["slinky-0", "slinky-2"]


@pytest.mark.parametrize(
    "claim",
    [
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"ownerReferences": [{"kind": "Pod", "name": "slinky-0", "uid": "former"}]},
        None,
    ],
    ids=["terminating", "of a pod that was scaled in", "gone in between"],
)
async def test_a_pod_waits_for_the_deletion_of_a_claim_of_its_name(
    claim: dict[str, Any] | None,
) -> None:
    parts = Parts()
    parts.requests.refusals["create PersistentVolumeClaim"] = TAKEN
    if claim is not None:
        parts.requests.stored["PersistentVolumeClaim", "data-0"] = {
            "metadata": {"name": "data-0", **claim}
        }
    this = begin(parts)
    with pytest.raises(NotUsableError, match="data-0") as caught:
        await create(this, this.manifest, [order("slinky-0", "data-0")])
    assert caught.value.reason == "ClaimTerminating"
    assert created(parts) == []


async def test_a_claim_that_exists_is_used_and_a_missing_one_is_created_before_its_pod() -> None:
    parts = Parts()
    this = begin(parts)
    await create(this, this.manifest, [order("slinky-0", "data-0")])
    assert [name for _, kind, name in parts.requests.made if kind != "Event"] == [
        "data-0",
        "slinky-0",
    ]
    parts.requests.refusals["create PersistentVolumeClaim"] = TAKEN
    owners = [{"kind": "NodeSet", "name": "slinky", "uid": "u"}]
    parts.requests.stored["PersistentVolumeClaim", "data-1"] = {
        "metadata": {"ownerReferences": owners}
    }
    await create(this, this.manifest, [order("slinky-1", "data-1")])
    assert created(parts) == ["slinky-0", "slinky-1"]


async def test_a_pod_gets_an_empty_topology_unless_a_kubernetes_node_has_one() -> None:
    parts = Parts()
    this = begin(parts)
    await create(this, this.manifest, [order("slinky-0")])
    parts.kube_node("kube-1", annotations={TOPOLOGY: "tree:rack1"})
    await create(this, this.manifest, [order("slinky-1")])
    first, second = parts.requests.of("create", "Pod")
    assert first["metadata"]["annotations"] == {TOPOLOGY: ""}
    assert "annotations" not in second["metadata"]


async def test_a_pod_whose_place_is_in_labels_is_created_without_a_topology() -> None:
    parts = Parts()
    this = begin(parts)
    parts.custom("NodeSet", KEY[1], {"controllerRef": {"name": "slurm"}})
    parts.controller(topologies=[{"name": "fabric", "tree": {"labels": ["rack"]}}])
    await create(this, this.manifest, [order("slinky-0")])
    [pod] = parts.requests.of("create", "Pod")
    assert "annotations" not in pod["metadata"]


TEMPLATE: Manifest = {"metadata": {"labels": {}}, "spec": {"containers": []}}


def wanted(
    this: Pass, template: Manifest | None, action: CreatePods, **pods: Any
) -> Sequence[Order]:
    desired = Desired(this.nodeset, DesiredPods(NAMESPACE, 3, "new", **pods))
    return orders(desired, PodSource("new", None, template), action)


async def test_pods_are_ordered_by_ordinal_with_their_claims_and_the_node_of_each() -> None:
    claims = [{"metadata": {"name": "data"}, "spec": {}}]
    this = begin(Parts(), volumeClaimTemplates=claims, template={"spec": {"hostname": "gpu-"}})
    first, second = wanted(this, TEMPLATE, CreatePods(ordinals=(0, 7)), pins={"7": "kube-9"})
    assert (first.name, first.slurm_node) == ("slinky-0", "gpu-0")
    assert (second.name, second.slurm_node) == ("slinky-7", "gpu-7")
    assert [it["metadata"]["name"] for it in second.claims()] == ["data-slinky-7"]
    assert "kube-9" in str(second.pod()["spec"]["affinity"])
    assert "affinity" not in first.pod()["spec"]


async def test_on_the_hosts_network_the_slurm_node_is_not_known_before_the_pod_is_bound() -> None:
    this = begin(Parts())
    spec = TEMPLATE["spec"] | {"hostNetwork": True}
    [only] = wanted(this, TEMPLATE | {"spec": spec}, CreatePods(ordinals=(0,)))
    assert only.slurm_node == ""


async def test_in_daemonset_mode_each_pod_is_for_one_kubernetes_node() -> None:
    this = begin(Parts(), scalingMode="DaemonSet")
    places = {"kube-1": Place("kube-1", "host-1", should_run=True, may_stay=True)}
    [only] = wanted(this, TEMPLATE, CreatePods(kube_nodes=("kube-1",)), places=places)
    assert only.slurm_node == "host-1"
    pod = only.pod()
    assert pod["metadata"]["name"] == only.name
    assert "kube-1" in str(pod["spec"]["affinity"])


async def test_without_a_template_nothing_is_created() -> None:
    assert wanted(begin(Parts()), None, CreatePods(ordinals=(0,))) == []


def test_of_two_nodesets_with_the_same_names_the_older_one_has_them() -> None:
    older = builders.nodeset(
        "a", {"creationTimestamp": "2026-01-01T00:00:00Z"}, template={"spec": {"hostname": "n-"}}
    )
    newer = builders.nodeset(
        "b", {"creationTimestamp": "2026-01-02T00:00:00Z"}, template={"spec": {"hostname": "n-"}}
    )
    apart = builders.nodeset(
        "c", {"creationTimestamp": "2026-01-03T00:00:00Z"}, template={"spec": {"hostname": "m-"}}
    )
    every = [newer, apart, older]
    assert conflict(older, every) is None
    assert "NodeSet a" in (conflict(newer, every) or "")
    assert conflict(apart, every) is None
