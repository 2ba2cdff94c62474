"""Modes, revisions, update strategies and claims of NodeSets, as shown by what an administrator
would see.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sidecars.custom_resources import NODESETS
from sidecars.kube import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    Manifest,
    NotFound,
)
from sidecars.policy import conditions
from tests.support.apiserver import WatchedNamespace, secret, until

pytestmark = pytest.mark.timeout(120, func_only=True)

HASH = "controller-revision-hash"


async def change(world: WatchedNamespace, name: str = "slinky", **spec: Any) -> None:
    """Patch a NodeSet's spec."""
    await world.client.merge_patch(NODESETS, world.namespace, name, {"spec": spec})


async def revisions(world: WatchedNamespace) -> dict[str, Manifest]:
    """ControllerRevisions by hash."""
    items, _ = await world.client.list(CONTROLLER_REVISIONS, world.namespace)
    return {item["metadata"]["labels"][HASH]: item for item in items}


async def until_rolled(world: WatchedNamespace, image: str, count: int) -> str:
    """Wait until all pods have the image and a successor's uid is ready; the hash of their
    revision.
    """

    async def rolled() -> str | None:
        pods = list((await world.pods()).values())
        images = {pod["spec"]["containers"][0]["image"] for pod in pods}
        hashes = {pod["metadata"]["labels"][HASH] for pod in pods}
        alive = not any(pod["metadata"].get("deletionTimestamp") for pod in pods)
        return hashes.pop() if len(pods) == count and images == {image} and alive else None

    found = await until(f"all pods to have {image}", rolled)
    await world.until_ready(count)
    return found


async def test_revisions_are_stored_rolled_back_to_and_pruned(world: WatchedNamespace) -> None:
    await world.nodeset(replicas=1, revisionHistoryLimit=1, slurmd={"image": "slurmd:1"})
    first = await until_rolled(world, "slurmd:1", 1)
    await change(world, slurmd={"image": "slurmd:2"})
    second = await until_rolled(world, "slurmd:2", 1)
    stored = await revisions(world)
    assert {name: item["revision"] for name, item in stored.items()} == {first: 1, second: 2}
    await change(world, slurmd={"image": "slurmd:1"})
    assert await until_rolled(world, "slurmd:1", 1) == first
    assert {name: item["revision"] for name, item in (await revisions(world)).items()} == {
        first: 3,
        second: 2,
    }
    await change(world, slurmd={"image": "slurmd:3"})
    third = await until_rolled(world, "slurmd:3", 1)

    async def pruned() -> bool:
        return set(await revisions(world)) == {first, third}

    await until("the oldest revision to be pruned", pruned)


async def test_a_revision_whose_name_is_taken_counts_as_a_collision_and_gets_another_name(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=0, slurmd={"image": "slurmd:1"})
    [taken] = await until("the revision", lambda: revisions(world))
    foreign = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": f"other-{taken}", "namespace": world.namespace},
        "revision": 1,
        "data": {},
    }
    await world.client.create(CONTROLLER_REVISIONS, foreign)
    await world.nodeset("other", replicas=1, slurmd={"image": "slurmd:1"})

    async def collided() -> bool:
        status = ((await world.get(NODESETS, "other")) or {}).get("status") or {}
        return status.get("collisionCount") == 1 and status["nodeSetHash"] != taken

    await until("the collision to be counted", collided)
    await world.until_ready(1, "other")


# DaemonSet mode


@contextlib.asynccontextmanager
async def kube_nodes(
    world: WatchedNamespace, *hosts: str, n2: Manifest | None = None
) -> AsyncIterator[dict[str, Any]]:
    """Kubernetes nodes `HOST.NAMESPACE` with a label of their own; what a NodeSet needs to run on
    just these.

    `n2`: annotations and spec that this one has from the beginning: a NodeSet may be seen before a
    change of a node.
    """
    label = {"pool": world.namespace}
    for host in hosts:
        own: Manifest = (n2 if host == "n2" else None) or {}
        metadata = {
            "name": f"{host}.{world.namespace}",
            "labels": label,
            "annotations": own.get("annotations", {}),
        }
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "spec": own.get("spec", {}),
        }
        await world.client.create(NODES, node)
        # Admission has a new node not-ready, and no kubelet reports otherwise.
        await kube_node(world, host, {"spec": {"taints": None}})
    try:
        yield {"scalingMode": "DaemonSet", "template": {"spec": {"nodeSelector": label}}}
    finally:
        for host in hosts:
            with contextlib.suppress(NotFound):
                await world.client.delete(NODES, None, f"{host}.{world.namespace}")


async def kube_node(world: WatchedNamespace, host: str, patch: dict[str, Any]) -> None:
    """Patch a Kubernetes node."""
    await world.client.merge_patch(NODES, None, f"{host}.{world.namespace}", patch)


async def hosts(world: WatchedNamespace) -> dict[str, Manifest]:
    """Worker pods by hostname, without those that are on their way out."""
    pods = (await world.pods()).values()
    return {
        pod["spec"]["hostname"]: pod for pod in pods if not pod["metadata"].get("deletionTimestamp")
    }


async def until_hosts(
    world: WatchedNamespace, *names: str, seconds: float = 30
) -> dict[str, Manifest]:
    """Wait until exactly these have a worker pod."""

    async def look() -> dict[str, Manifest] | None:
        found = await hosts(world)
        return found if set(found) == set(names) else None

    return await until(f"pods on {names}", look, seconds)


async def test_in_daemonset_mode_each_matching_kubernetes_node_has_a_pod(
    world: WatchedNamespace,
) -> None:
    async with kube_nodes(world, "n1", "n2", "n3") as daemon_set:
        await kube_node(world, "n3", {"metadata": {"labels": {"pool": "another"}}})
        await world.nodeset(replicas=7, **daemon_set)
        pods = await until_hosts(world, "n1", "n2")
        await world.until_ready(2)
        metadata, spec = pods["n1"]["metadata"], pods["n1"]["spec"]
        assert metadata["generateName"] == "slinky-"
        assert metadata["labels"]["nodeset.slinky.slurm.net/scaling-mode"] == "DaemonSet"
        terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        here = {"key": "metadata.name", "operator": "In", "values": [f"n1.{world.namespace}"]}
        assert terms == [{"matchFields": [here]}]
        # https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#taints-and-tolerations
        of_kubernetes = {
            (
                it["key"].removeprefix("node.kubernetes.io/"),
                it["operator"],
                it["effect"],
                it.get("tolerationSeconds"),
            )
            for it in spec["tolerations"]
            if it["key"].startswith("node.kubernetes.io/")
        }
        assert of_kubernetes == {
            ("not-ready", "Exists", "NoExecute", None),
            ("unreachable", "Exists", "NoExecute", None),
            ("disk-pressure", "Exists", "NoSchedule", None),
            ("memory-pressure", "Exists", "NoSchedule", None),
            ("pid-pressure", "Exists", "NoSchedule", None),
        }
        nodeset = await world.get(NODESETS, "slinky")
        assert nodeset is not None
        assert nodeset["status"]["desired"] == 2

        await kube_node(world, "n3", {"metadata": {"labels": {"pool": world.namespace}}})
        await until_hosts(world, "n1", "n2", "n3")
        await world.until_ready(3)

        # A node that matches no more keeps its pod until the jobs have ended.
        job = world.slurm.job_start("n2")
        await kube_node(world, "n2", {"metadata": {"labels": {"pool": None}}})

        async def draining() -> bool:
            return "DRAIN" in world.slurm.states("n2")

        await until("n2 to drain", draining)
        assert "n2" in await hosts(world)
        world.slurm.job_end(job)
        await until_hosts(world, "n1", "n3")


async def test_a_cordoned_kubernetes_node_in_daemonset_mode_keeps_its_drained_pod_and_gets_no_other(
    world: WatchedNamespace,
) -> None:
    async with kube_nodes(world, "n1", "n2", n2={"spec": {"unschedulable": True}}) as daemon_set:
        await world.nodeset(**daemon_set)
        await until_hosts(world, "n1")
        await world.until_ready(1)
        await kube_node(world, "n1", {"spec": {"unschedulable": True}})

        async def drained() -> bool:
            return "DRAIN" in world.slurm.states("n1")

        await until("n1 to drain", drained)
        await kube_node(world, "n2", {"spec": {"unschedulable": False}})
        await until_hosts(world, "n1", "n2")
        await kube_node(world, "n1", {"spec": {"unschedulable": False}})

        async def back() -> bool:
            return "DRAIN" not in world.slurm.states("n1")

        await until("n1 to be back", back)


async def test_the_hostname_of_a_daemonset_mode_worker_can_be_overridden_and_events_report_it(
    world: WatchedNamespace,
) -> None:
    async with kube_nodes(world, "n1") as daemon_set:
        override = "nodeset.slinky.slurm.net/hostname-override"
        await kube_node(world, "n1", {"metadata": {"annotations": {override: "rack1-n1"}}})
        await world.nodeset(**daemon_set)
        await until_hosts(world, "rack1-n1")
        await world.until_ready(1)
        await kube_node(world, "n1", {"metadata": {"annotations": {override: "rack2-n1"}}})
        pods = await until_hosts(world, "rack2-n1")
        await world.until_event("HostnameMismatch")
        await world.until_ready(1)
        failed = {"status": {"phase": "Failed"}}
        name, uid = (pods["rack2-n1"]["metadata"][field] for field in ("name", "uid"))
        await world.client.merge_patch(PODS, world.namespace, name, failed, subresource="status")
        await world.until_event("FailedDaemonPod")

        async def again() -> bool:
            pod = (await hosts(world)).get("rack2-n1")
            return pod is not None and pod["metadata"]["uid"] != uid

        await until("another pod", again)


async def test_two_kubernetes_nodes_with_one_slurm_name_are_reported_and_one_of_them_gets_a_worker(
    world: WatchedNamespace,
) -> None:
    override = {"nodeset.slinky.slurm.net/hostname-override": "n1"}
    async with kube_nodes(world, "n1", "n2", n2={"annotations": override}) as daemon_set:
        await world.nodeset(**daemon_set)
        await until_hosts(world, "n1")

        async def message() -> bool:
            condition = await world.condition(NODESETS, "slinky")
            return (
                condition.get("reason") == "NameConflict"
                and f"n2.{world.namespace}" in condition["message"]
            )

        await until("the conflict to be named", message)


async def test_a_pod_of_a_deleted_kubernetes_node_is_deleted_with_its_node_record(
    world: WatchedNamespace,
) -> None:
    async with kube_nodes(world, "n1", "n2") as daemon_set:
        await world.nodeset(**daemon_set)
        await until_hosts(world, "n1", "n2")
        await world.until_ready(2)
        await world.client.delete(NODES, None, f"n2.{world.namespace}")
        await until_hosts(world, "n1")

        async def pruned() -> bool:
            return set(world.slurm.nodes) == {"n1"}

        await until("the record to be pruned", pruned)


async def test_a_changed_scaling_mode_drains_the_old_pods_while_new_ones_are_created(
    world: WatchedNamespace,
) -> None:
    async with kube_nodes(world, "n1") as daemon_set:
        await world.nodeset(replicas=2)
        await world.until_ready(2)
        job = world.slurm.job_start("slinky-0")
        await change(world, **daemon_set)
        await until_hosts(world, "n1", "slinky-0")
        assert "DRAIN" in world.slurm.states("slinky-0")
        world.slurm.job_end(job)
        await until_hosts(world, "n1")
        await change(world, scalingMode="StatefulSet")
        await until_hosts(world, "slinky-0", "slinky-1")
        await world.until_ready(2)


# Names and pinning


async def test_of_two_nodesets_with_one_slurm_name_the_later_reports_which_one_has_it(
    world: WatchedNamespace,
) -> None:
    prefix = {"spec": {"hostname": "gpu-"}}
    await world.nodeset("first", replicas=1, template=prefix)
    await world.until_pods("first-0")

    async def a_second_later() -> bool:
        nodeset = await world.get(NODESETS, "first")
        assert nodeset is not None
        return bool(conditions.timestamp(time.time()) > nodeset["metadata"]["creationTimestamp"])

    await until("the next second", a_second_later)
    await world.nodeset("second", replicas=1, template=prefix)

    async def message() -> bool:
        condition = await world.condition(NODESETS, "second")
        return condition.get("reason") == "NameConflict" and "NodeSet first" in condition["message"]

    await until("the condition", message)
    assert set(await world.pods()) == {"first-0"}


async def test_names_consist_of_the_prefix_and_the_padded_ordinal(world: WatchedNamespace) -> None:
    await world.nodeset(
        replicas=1,
        ordinalPadding=3,
        template={"spec": {"hostname": "gpu-"}},
        oversubscribeNode=True,
    )
    await world.until_pods("slinky-000")
    spec = (await world.pods())["slinky-000"]["spec"]
    assert spec["hostname"] == "gpu-000"
    assert "affinity" not in spec


async def test_a_pinned_pod_is_created_again_on_its_kubernetes_node(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=1, pinToNode=True)
    await world.until_ready(1)

    async def pinned() -> bool:
        nodeset = await world.get(NODESETS, "slinky")
        return ((nodeset or {}).get("status") or {}).get("ordinalToNode") == {"0": "default-node"}

    await until("the pin", pinned)
    uid = (await world.pods())["slinky-0"]["metadata"]["uid"]
    world.kubelet_works = False
    await world.client.delete(PODS, world.namespace, "slinky-0", grace_period_seconds=0)

    async def again() -> Manifest | None:
        pod = (await world.pods()).get("slinky-0")
        return pod if pod is not None and pod["metadata"]["uid"] != uid else None

    spec = (await until("its successor", again))["spec"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert terms == [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["default-node"]}]}
    ]

    async def pending() -> Manifest | None:
        found = ((await world.get(NODESETS, "slinky")) or {})["status"]
        return found if (found["replicas"], found["readyReplicas"]) == (1, 0) else None

    seen = await until("the operator to see it pending", pending)
    assert seen["ordinalToNode"] == {"0": "default-node"}
    world.kubelet_works = True
    await change(world, pinToNode=False)

    async def unpinned() -> bool:
        nodeset = await world.get(NODESETS, "slinky")
        return not ((nodeset or {}).get("status") or {}).get("ordinalToNode")

    await until("the pin to be dropped", unpinned)


# Claims


CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


async def owners(world: WatchedNamespace, name: str = "slinky") -> dict[str, list[str]]:
    """The kind and name of each owner of a NodeSet's claims."""
    items, _ = await world.client.list(
        PERSISTENT_VOLUME_CLAIMS,
        world.namespace,
        label_selector=f"app.kubernetes.io/instance={name}",
    )
    return {
        item["metadata"]["name"].removeprefix(f"data-{name}-"): [
            f"{owner['kind']} {owner['name']}"
            for owner in item["metadata"].get("ownerReferences", [])
            if owner["controller"]
        ]
        for item in items
    }


async def until_owned(
    world: WatchedNamespace, want: dict[str, list[str]], name: str = "slinky"
) -> None:
    """Wait until just these owners have the claims, by what follows `data-NAME-` in their names."""

    async def look() -> bool:
        return await owners(world, name) == want

    await until(f"the owners of the claims of {name} to be {want}", look)


async def test_claims_are_deleted_with_their_nodeset_or_their_worker_as_the_retention_policy_asks(
    world: WatchedNamespace,
) -> None:
    async with asyncio.TaskGroup() as together:
        for when_deleted in ("Retain", "Delete"):
            for when_scaled in ("Retain", "Delete"):
                together.create_task(life_of_claims(world, when_deleted, when_scaled))


async def life_of_claims(world: WatchedNamespace, when_deleted: str, when_scaled: str) -> None:
    """Of a NodeSet of its own with that policy: created, scaled in and out, updated, removed."""
    name = f"{when_deleted}-{when_scaled}".lower()
    first, last = f"{name}-0", f"{name}-1"
    of_all = [f"NodeSet {name}"] if when_deleted == "Delete" else []
    of_pod = [f"Pod {last}"] if when_scaled == "Delete" else of_all
    retention = {"whenDeleted": when_deleted, "whenScaled": when_scaled}
    await world.nodeset(
        name, 2, volumeClaimTemplates=[CLAIM], persistentVolumeClaimRetentionPolicy=retention
    )
    await world.until_ready(2, name)
    await until_owned(world, {"0": of_all, "1": of_all}, name)

    # A worker that is to go and waits for its job takes its claim along, whoever deletes it, until
    # it is rescued. Both have a job, and the first one's began earlier: whatever the operator has
    # seen of them, the last one is to go.
    other, job = world.slurm.job_start(first), world.slurm.job_start(last)
    for replicas, cordoned, want in ((1, "true", of_pod), (2, None, of_all), (1, "true", of_pod)):
        await world.scale(replicas, name)

        async def as_asked(cordoned: str | None = cordoned) -> bool:
            annotations = (await world.pods())[last]["metadata"].get("annotations") or {}
            return annotations.get("nodeset.slinky.slurm.net/pod-cordon") == cordoned

        await until(f"{last} to be cordoned: {cordoned}", as_asked)
        await until_owned(world, {"0": of_all, "1": want}, name)
    world.slurm.job_end(job)

    async def is_gone() -> bool:
        return last not in await world.pods()

    await until(f"{last} to be gone", is_gone)
    assert await owners(world, name) == {"0": of_all, "1": of_pod}

    # An update takes no data along.
    world.slurm.job_end(other)
    await change(world, name, slurmd={"image": "slurmd:2"})

    async def updated() -> bool:
        pod = (await world.pods()).get(first)
        return pod is not None and pod["spec"]["containers"][0]["image"] == "slurmd:2"

    await until(f"{first} to be updated", updated)
    assert await owners(world, name) == {"0": of_all, "1": of_pod}

    # Nor does the removal, but by the NodeSet's reference.
    await world.client.delete(NODESETS, world.namespace, name)

    async def removed() -> bool:
        return await world.get(NODESETS, name) is None

    await until(f"NodeSet {name} to be gone", removed)
    assert await owners(world, name) == {"0": of_all, "1": of_pod}


async def test_a_worker_waits_until_its_predecessors_claim_is_deleted_and_a_changed_policy_applies(
    world: WatchedNamespace,
) -> None:
    policy = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    await world.nodeset(
        replicas=2, volumeClaimTemplates=[CLAIM], persistentVolumeClaimRetentionPolicy=policy
    )
    await world.until_ready(2)
    await world.scale(1)
    await world.until_pods("slinky-0")

    # Nothing collects garbage here: the next pod must wait for the claim to go.
    await world.scale(2)

    async def waits() -> bool:
        return (await world.condition(NODESETS, "slinky")).get("reason") == "ClaimTerminating"

    await until("the next pod to wait", waits)
    assert set(await world.pods()) == {"slinky-0"}
    await change(
        world,
        persistentVolumeClaimRetentionPolicy={"whenDeleted": "Retain", "whenScaled": "Retain"},
    )
    await until_owned(world, {"0": [], "1": ["Pod slinky-1"]})


async def test_a_claim_is_deleted_with_its_worker_when_the_kubernetes_node_stops_matching(
    world: WatchedNamespace,
) -> None:
    async with kube_nodes(world, "n1", "n2") as daemon_set:
        policy = {"whenScaled": "Delete"}
        await world.nodeset(
            volumeClaimTemplates=[CLAIM], persistentVolumeClaimRetentionPolicy=policy, **daemon_set
        )
        pods = await until_hosts(world, "n1", "n2")
        await world.until_ready(2)
        await until_owned(world, {"n1": [], "n2": []})
        await kube_node(world, "n2", {"metadata": {"labels": {"pool": None}}})
        await until_hosts(world, "n1")
        await until_owned(world, {"n1": [], "n2": [f"Pod {pods['n2']['metadata']['name']}"]})


async def test_a_claim_that_another_object_controls_is_not_changed(world: WatchedNamespace) -> None:
    await world.nodeset(replicas=1, volumeClaimTemplates=[CLAIM])
    await world.until_ready(1)
    await until_owned(world, {"0": []})
    foreign = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "other",
        "uid": "another",
        "controller": True,
    }
    patch = {"metadata": {"ownerReferences": [foreign]}}
    await world.client.merge_patch(
        PERSISTENT_VOLUME_CLAIMS, world.namespace, "data-slinky-0", patch
    )
    policy = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    await change(world, persistentVolumeClaimRetentionPolicy=policy, replicas=0)
    await world.until_pods()
    assert await owners(world) == {"0": ["ConfigMap other"]}


async def test_config_maps_that_workers_read_follow_the_nodeset_without_a_new_pod(
    world: WatchedNamespace,
) -> None:
    sssd = secret("sssd", "sssd.conf", b"[sssd]")
    await world.create(sssd)
    reference = {"name": "sssd", "key": "sssd.conf"}
    await world.nodeset(
        replicas=1, ssh={"enabled": True, "sssdConfRef": reference}, health={"enabled": True}
    )
    await world.until_ready(1)
    before = {name: pod["metadata"]["uid"] for name, pod in (await world.pods()).items()}
    sshd = await world.get(CONFIG_MAPS, "slinky-ssh-config")
    assert sshd is not None
    assert "UsePAM yes" in sshd["data"]["sshd_config"]

    async def settings(word: str) -> bool:
        found = await world.get(CONFIG_MAPS, "slinky-health")
        return found is not None and word in found["data"]["settings"]

    assert await settings("CHECKS='disk memory mounts'")
    await change(world, health={"skip": ["disk"]})
    await until("the checks to follow", lambda: settings("CHECKS='memory mounts'"))
    await world.client.delete(CONFIG_MAPS, world.namespace, "slinky-health")
    await until("the checks to be there again", lambda: settings("CHECKS='memory mounts'"))
    await change(world, health={"skip": ["dsk"]})

    async def refused() -> bool:
        return "'dsk' is none of the checks" in (await world.condition(NODESETS, "slinky")).get(
            "message", ""
        )

    await until("the typo to be named", refused)
    assert {name: pod["metadata"]["uid"] for name, pod in (await world.pods()).items()} == before
