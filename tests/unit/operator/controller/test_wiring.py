"""Which change wakes which Controller."""

import msgspec
import pytest

from sidecars import objects
from sidecars.custom_resources import CONTROLLERS
from sidecars.kube import STATEFUL_SETS
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import Ready
from tests.support.operator_parts import CONTROLLER, NAMESPACE, Parts

pytestmark = pytest.mark.looptime


async def settled() -> Parts:
    """A Controller, its RestApi and a NodeSet, all looked at."""
    parts = Parts()
    parts.keys()
    parts.controller()
    parts.restapi()
    parts.custom("NodeSet", "slinky", {"controllerRef": {"name": "slurm"}})
    await parts.woken()
    return parts


async def test_a_changed_spec_wakes_a_controller_and_the_operators_own_status_does_not() -> None:
    parts = await settled()
    manifest = parts.controller()
    await parts.runtime.status.report(
        CONTROLLERS, manifest, [Condition("Ready", "True", Ready.READY, "")]
    )
    [patch] = parts.requests.of("patch status", "Controller")
    parts.custom("Controller", "slurm", manifest["spec"], patch["status"])
    assert await parts.woken() == {}
    other = {"conditions": [], "writer": "another"}
    later = "2000"  # than the answer to that write
    parts.custom("Controller", "slurm", manifest["spec"], other, resourceVersion=later)
    assert (await parts.woken())["controllers"] == {CONTROLLER}
    parts.custom(
        "Controller",
        "slurm",
        manifest["spec"],
        patch["status"],
        generation=2,
        resourceVersion="2001",
    )
    assert (await parts.woken())["controllers"] == {CONTROLLER}


async def test_a_controller_is_looked_at_when_the_claim_of_its_state_changes() -> None:
    parts = await settled()
    for name, daemon in (("statesave-slurm-controller-0", "slurmctld"), ("data", "mariadb")):
        labels = {"app.kubernetes.io/name": daemon, "app.kubernetes.io/instance": "slurm"}
        metadata = {
            "namespace": NAMESPACE,
            "name": name,
            "uid": name,
            "resourceVersion": "1",
            "labels": labels,
        }
        claim = msgspec.convert({"metadata": metadata}, objects.PersistentVolumeClaim)
        parts.runtime.caches.other_claims.store.put(claim)
        woken = await parts.woken()
        assert woken == ({"controllers": {CONTROLLER}} if daemon == "slurmctld" else {})


async def test_changes_around_a_controller_are_looked_at_together_after_a_moment() -> None:
    parts = await settled()
    parts.custom("NodeSet", "slinky", {"controllerRef": {"name": "slurm"}}, generation=2)
    parts.custom("RestApi", "slurm", {"controllerRef": {"name": "slurm"}}, generation=2)
    assert "controllers" not in await parts.woken(0.2)
    assert (await parts.woken(0.2))["controllers"] == {CONTROLLER}


async def test_the_partitions_of_a_nodesets_status_wake_its_controller_and_no_other_part() -> None:
    parts = await settled()
    spec = {"controllerRef": {"name": "slurm"}}
    parts.custom("NodeSet", "slinky", spec, {"partitions": ["slinky"]})
    assert (await parts.woken())["controllers"] == {CONTROLLER}


async def test_a_restapi_that_moves_wakes_the_controller_that_it_left() -> None:
    parts = await settled()
    parts.custom("RestApi", "slurm", {"controllerRef": {"name": "other"}}, generation=2)
    assert (await parts.woken())["controllers"] == {CONTROLLER, (NAMESPACE, "other")}


@pytest.mark.parametrize(("name", "woken"), [("site", True), ("unrelated", False)])
async def test_only_a_config_map_that_it_refers_to_wakes_a_controller(
    name: str, woken: bool
) -> None:
    parts = await settled()
    parts.controller(configFileRefs=[{"name": "site"}])
    await parts.woken()
    parts.config_map(name, {"site.conf": "a"})
    assert ("controllers" in await parts.woken()) == woken


async def test_a_changed_key_wakes_all_of_the_cluster_and_an_unrelated_secret_nothing() -> None:
    parts = await settled()
    parts.secret("leader", {"a": b"b"})
    assert await parts.woken() == {}
    parts.secret("slurm-auth-jwt", {"jwt.key": b"other"})
    assert set(await parts.woken()) == {"controllers", "restapis", "nodesets"}


async def test_an_applied_object_that_changes_or_is_deleted_wakes_its_owner() -> None:
    parts = await settled()
    owner = [{"kind": "Controller", "name": "slurm", "uid": "uid-of-slurm"}]
    manifest = parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", "slurmctld:26.05")
    assert await parts.woken() == {}
    parts.runtime.caches.stateful_sets.store.put(
        {
            **manifest,
            "metadata": manifest["metadata"] | {"ownerReferences": owner, "resourceVersion": "900"},
        }
    )
    assert (await parts.woken())["controllers"] == {CONTROLLER}
    parts.runtime.caches.stateful_sets.store.put(
        {**manifest, "metadata": manifest["metadata"] | {"resourceVersion": "901"}}
    )
    assert (await parts.woken())["controllers"] == {CONTROLLER}


async def test_service_monitors_that_become_known_wake_every_controller() -> None:
    parts = await settled()
    for subscriber in parts.runtime.caches.service_monitors_served:
        subscriber()
    assert await parts.woken() == {"controllers": {CONTROLLER}}


async def test_a_label_that_names_a_block_wakes_the_controller_and_other_labels_do_not() -> None:
    parts = await settled()
    parts.controller(topologies=[{"name": "nvlink", "block": {"label": "domain", "sizes": [1]}}])
    await parts.woken()
    parts.kube_node("kube-1", labels={"rack": "r1"})
    assert "controllers" not in await parts.woken()
    parts.kube_node("kube-1", labels={"rack": "r1", "domain": "d1"})
    assert (await parts.woken())["controllers"] == {CONTROLLER}
