"""What someone tries who has all rights in one namespace, and none elsewhere: to use what Slurm has
given to others.
"""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from sidecars.bridge.core import pods
from sidecars.bridge.core.manifests import Pod
from sidecars.contract import bridge
from sidecars.kube import NAMESPACES, NODES, PODS, ApiError, Client, Resource, load_credentials
from tests.cluster.commands import run
from tests.cluster.control_plane import ControlPlane
from tests.cluster.errors import ClusterError
from tests.cluster.tools import tool
from tests.support.bridge_world import World, all_rights, another_namespace, without_gate
from tests.support.kube_double import MOST_ANNOTATIONS

ATTACKER = ("attacker", "system:authenticated")
KUBELET = ("system:nodes", "system:authenticated")
COLLECTOR = "system:serviceaccount:kube-system:pod-garbage-collector"
FORCE = "its containers may still run"


@pytest_asyncio.fixture
async def attacker(world: World, tenant: Client, plane: ControlPlane) -> AsyncIterator[Client]:
    """With a pod `p` that the bridge has released, and that runs."""
    await all_rights(world.admin, world.namespace, "attacker")
    await run_a_pod(world)
    async with Client.connect(load_credentials(plane.client("attacker", *ATTACKER))) as client:

        async def enforced() -> bool:
            try:
                await client.get(PODS, world.namespace, "p")
            except ApiError:
                return False
            return True

        await world.until("the attacker's rights", enforced)
        yield client


async def run_a_pod(world: World, name: str = "p", *, bound: bool = True, **spec: Any) -> None:
    """Create a pod, release it, and have the scheduler bind it and a kubelet run it."""
    if not bound:
        # A node that another pod has already. The scheduler waits for it.
        spec["nodeSelector"] = {"never": "there"}
    await world.admin.create(PODS, without_gate(world.namespace, name, **spec))
    steps: tuple[Callable[[Pod], pods.Patch], ...] = (
        lambda it: pods.label_patch(it, 7, it.metadata.uid),
        lambda it: pods.release_patch(it, world.nodes[0], 0, 0.0),
    )
    for patch in steps:
        found = msgspec.convert(await world.admin.get(PODS, world.namespace, name), Pod)
        await world.account.json_patch(PODS, world.namespace, name, patch(found), msgspec.Raw)
    if bound:
        await world.until("the scheduler to bind the pod", lambda: world.place(name))
        running = {"status": {"phase": "Running"}}
        await world.admin.merge_patch(PODS, world.namespace, name, running, subresource="status")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_nobody_of_one_namespace_can_claim_that_a_pod_has_ended(
    world: World, attacker: Client, plane: ControlPlane, phase: str
) -> None:
    """The bridge would cancel its job, and Slurm give its cores to others, while its containers
    run.
    """
    ended = {"status": {"phase": phase}}
    with pytest.raises(ApiError, match="only a kubelet reports that a pod has ended"):
        await attacker.merge_patch(PODS, world.namespace, "p", ended, subresource="status")
    # What isn't an end stays free.
    await attacker.merge_patch(
        PODS, world.namespace, "p", {"status": {"message": "mine"}}, subresource="status"
    )
    name = world.nodes[0]
    kubelet = plane.client(f"kubelet-{name}", f"system:node:{name}", *KUBELET)
    async with Client.connect(load_credentials(kubelet)) as client:
        await client.merge_patch(PODS, world.namespace, "p", ended, subresource="status")
    # Kept by a finalizer, it would keep all others from its node: its job has ended.
    with pytest.raises(ApiError, match="only a kubelet reports that a pod has ended"):
        await attacker.merge_patch(
            PODS, world.namespace, "p", {"status": {"phase": "Running"}}, subresource="status"
        )
    await attacker.delete(PODS, world.namespace, "p", grace_period_seconds=0)


async def test_nobody_of_one_namespace_can_reserve_a_node_by_nominating_it(
    world: World, attacker: Client, plane: ControlPlane
) -> None:
    """The scheduler would keep what a gated pod requests free on that node, and bind none of the
    released pods.
    """
    nominated = {"status": {"nominatedNodeName": world.nodes[0]}}
    await world.admin.create(PODS, without_gate(world.namespace, "hog"))
    with pytest.raises(ApiError, match="only the scheduler of Kubernetes nominates a node"):
        await attacker.merge_patch(PODS, world.namespace, "hog", nominated, subresource="status")
    async with Client.connect(
        load_credentials(plane.client("scheduler", "system:kube-scheduler"))
    ) as client:
        await client.merge_patch(PODS, world.namespace, "hog", nominated, subresource="status")
    with pytest.raises(ApiError, match="only the scheduler of Kubernetes nominates a node"):
        await attacker.merge_patch(
            PODS,
            world.namespace,
            "hog",
            {"status": {"nominatedNodeName": None}},
            subresource="status",
        )
    await attacker.merge_patch(
        PODS, world.namespace, "hog", {"status": {"message": "mine"}}, subresource="status"
    )


async def test_the_garbage_collector_removes_the_pod_of_a_node_that_is_out_of_service(
    world: World, attacker: Client, plane: ControlPlane
) -> None:
    """As for any pod that ends on a node that isn't ready and has the taint `out-of-service`."""
    await attacker.delete(PODS, world.namespace, "p")
    async with Client.connect(load_credentials(plane.client("collector", COLLECTOR))) as client:
        ended = {"status": {"phase": "Failed"}}
        await client.merge_patch(PODS, world.namespace, "p", ended, subresource="status")
        await client.delete(PODS, world.namespace, "p", grace_period_seconds=0)
    assert await world.pod() is None


async def test_nobody_of_one_namespace_can_delete_a_pod_before_its_containers_have_ended(
    world: World, attacker: Client, plane: ControlPlane
) -> None:
    with pytest.raises(ApiError, match=FORCE):
        await attacker.delete(PODS, world.namespace, "p", grace_period_seconds=0)
    words = ["delete", "--raw", f"/api/v1/namespaces/{world.namespace}/pods?gracePeriodSeconds=0"]
    config = plane.client("attacker", *ATTACKER)
    with pytest.raises(ClusterError, match=FORCE):
        run([tool("kubectl"), f"--kubeconfig={config}", *words], seconds=60)
    # Also of a pod that ends already.
    await attacker.delete(PODS, world.namespace, "p", grace_period_seconds=1)
    with pytest.raises(ApiError, match=FORCE):
        await attacker.delete(PODS, world.namespace, "p", grace_period_seconds=0)
    assert await world.pod() is not None
    name = world.nodes[0]
    kubelet = plane.client(f"kubelet-{name}", f"system:node:{name}", *KUBELET)
    async with Client.connect(load_credentials(kubelet)) as client:
        await client.delete(PODS, world.namespace, "p", grace_period_seconds=0)
    assert await world.pod() is None


async def test_an_administrator_can_delete_the_pod_of_a_lost_node(
    world: World, attacker: Client
) -> None:
    await world.admin.delete(PODS, world.namespace, "p", grace_period_seconds=0)
    assert await world.pod() is None


async def test_a_pod_that_waits_can_be_deleted_at_once(world: World, attacker: Client) -> None:
    await attacker.create(PODS, without_gate(world.namespace, "q"))
    await attacker.delete(PODS, world.namespace, "q", grace_period_seconds=0)
    assert await world.pod("q") is None


async def test_an_eviction_has_the_same_limit(world: World, attacker: Client) -> None:
    def eviction(**options: int) -> dict[str, Any]:
        metadata = {"name": "p", "namespace": world.namespace}
        return {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": metadata,
            "deleteOptions": options,
        }

    resource = Resource("", "v1", "Eviction", "pods/p/eviction")
    with pytest.raises(ApiError, match=FORCE):
        await attacker.create(resource, eviction(gracePeriodSeconds=0))
    await attacker.create(resource, eviction())
    found = await world.pod()
    assert found is not None
    assert found["metadata"]["deletionGracePeriodSeconds"] == 30


async def test_a_pod_that_would_keep_its_node_for_a_year_is_refused(
    world: World, attacker: Client
) -> None:
    """Others wait until it is gone, and nothing of that is charged."""
    with pytest.raises(ApiError, match="is too long: set 3600 or less"):
        await attacker.create(
            PODS, without_gate(world.namespace, "q", terminationGracePeriodSeconds=3601)
        )
    await attacker.create(
        PODS, without_gate(world.namespace, "q", terminationGracePeriodSeconds=3600)
    )


async def test_a_deletion_has_the_same_limit_but_for_administrators(
    world: World, attacker: Client
) -> None:
    with pytest.raises(ApiError, match="delete the pod with a grace period of 3600 or less"):
        await attacker.delete(PODS, world.namespace, "p", grace_period_seconds=3601)
    await attacker.delete(PODS, world.namespace, "p", grace_period_seconds=3600)
    found = await world.pod()
    assert found is not None
    assert found["metadata"]["deletionGracePeriodSeconds"] == 3600


async def test_a_pod_without_any_grace_is_refused(world: World, attacker: Client) -> None:
    """It would be gone from the API server before its containers have ended."""
    with pytest.raises(ApiError, match="terminationGracePeriodSeconds is 0: set 1 or more"):
        await attacker.create(
            PODS, without_gate(world.namespace, "q", terminationGracePeriodSeconds=0)
        )


@pytest.mark.parametrize("plural", ["pods/q/binding", "bindings"])
@pytest.mark.parametrize(
    "forged",
    [{"labels": {bridge.JOB_LABEL: "8"}}, {"annotations": {bridge.NODE_ANNOTATION: "elsewhere"}}],
    ids=["label", "annotation"],
)
async def test_a_binding_writes_nothing_that_the_bridge_decides(
    world: World, attacker: Client, forged: dict[str, Any], plural: str
) -> None:
    """The API server copies labels and annotations of a Binding to the pod."""
    await run_a_pod(world, "q", bound=False)
    binding = {
        "metadata": {"name": "q", "namespace": world.namespace, **forged},
        "target": {"kind": "Node", "name": world.nodes[1]},
    }
    with pytest.raises(ApiError, match="only the Slurm Bridge writes the"):
        await attacker.create(Resource("", "v1", "Binding", plural), binding)


NAMESPACE_LABEL = "only who may change all namespaces changes the label slurm-bridge"


@pytest.mark.parametrize("subresource", [None, "status"])
@pytest.mark.parametrize("value", [None, "ignored"])
async def test_nobody_of_one_namespace_can_take_it_out_of_slurms_hands(
    world: World, attacker: Client, subresource: str | None, value: str | None
) -> None:
    patch = {"metadata": {"labels": {"slurm-bridge": value}}}
    with pytest.raises(ApiError, match=NAMESPACE_LABEL):
        await attacker.merge_patch(
            NAMESPACES, None, world.namespace, patch, subresource=subresource
        )
    await attacker.merge_patch(
        NAMESPACES, None, world.namespace, {"metadata": {"labels": {"team": "a"}}}
    )


async def test_finalizing_a_namespace_does_not_take_it_out_of_slurms_hands(
    world: World, attacker: Client, plane: ControlPlane
) -> None:
    item = await attacker.get(NAMESPACES, None, world.namespace)
    del item["metadata"]["labels"]["slurm-bridge"]
    path = f"/api/v1/namespaces/{world.namespace}/finalize"
    config = plane.client("attacker", *ATTACKER)
    words: Any = [tool("kubectl"), f"--kubeconfig={config}", "replace", "--raw", path, "-f-"]
    with pytest.raises(ClusterError, match=NAMESPACE_LABEL):
        run(words, stdin=json.dumps(item), seconds=60)


async def test_an_administrator_can(world: World, attacker: Client) -> None:
    patch: dict[str, Any] = {"metadata": {"labels": {"slurm-bridge": None}}}
    await world.admin.merge_patch(NAMESPACES, None, world.namespace, patch)


async def test_no_pod_elsewhere_pretends_to_be_one_of_slurm(world: World, attacker: Client) -> None:
    """What it uses would not count, and no pod would be released to its node."""
    name = f"{world.namespace}-free"
    await another_namespace(world.admin, name, "attacker")

    async def may() -> bool:
        try:
            await attacker.create(PODS, without_gate(name, "plain"))
        except ApiError:
            return False
        return True

    await world.until("the attacker's rights", may)
    forged = without_gate(name, "forged", nodeName=world.nodes[1])
    forged["metadata"]["labels"] = {bridge.JOB_LABEL: "7"}
    with pytest.raises(ApiError, match="only the Slurm Bridge writes the label"):
        await attacker.create(PODS, forged)
    with pytest.raises(ApiError, match="only the Slurm Bridge writes the label"):
        # A controller would create it for the attacker.
        await world.admin.create(PODS, forged)
    label = {"metadata": {"labels": {bridge.JOB_LABEL: "7"}}}
    for subresource in (None, "status"):
        with pytest.raises(ApiError, match="only the Slurm Bridge writes the label"):
            await attacker.merge_patch(PODS, name, "plain", label, subresource=subresource)
    # Another bridge, with another ServiceAccount and namespaces of its own.
    await world.admin.merge_patch(PODS, name, "plain", label)


async def test_an_ephemeral_container_changes_nothing_that_slurm_decides(
    world: World, attacker: Client
) -> None:
    container = {"name": "debug", "image": "x"}
    larger = {**container, "resources": {"requests": {"cpu": "4"}}}
    with pytest.raises(ApiError, match="resources"):
        await attacker.merge_patch(
            *(PODS, world.namespace, "p"),
            {"spec": {"ephemeralContainers": [larger]}},
            subresource="ephemeralcontainers",
        )
    await attacker.merge_patch(
        *(PODS, world.namespace, "p"),
        {"spec": {"ephemeralContainers": [container]}},
        subresource="ephemeralcontainers",
    )


async def test_a_mirror_pod_of_a_tenant_is_refused(world: World, attacker: Client) -> None:
    kube_node = await world.admin.get(NODES, None, world.nodes[0])
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": world.nodes[0],
        "uid": kube_node["metadata"]["uid"],
    }
    item = without_gate(world.namespace, "q", nodeName=world.nodes[0])
    item["metadata"] |= {
        "annotations": {"kubernetes.io/config.mirror": "a"},
        "ownerReferences": [owner],
    }
    with pytest.raises(ApiError, match=r"spec\.nodeName would bypass Slurm"):
        await attacker.create(PODS, item)
    item["spec"].pop("nodeName")
    with pytest.raises(ApiError, match="mirror"):
        await attacker.create(PODS, item)
    mirror = {"metadata": {"annotations": {"kubernetes.io/config.mirror": "a"}}}
    with pytest.raises(ApiError, match="mirror"):
        await attacker.merge_patch(PODS, world.namespace, "p", mirror)


async def test_the_time_limit_of_the_job_is_not_raised(world: World, attacker: Client) -> None:
    for seconds in (None, 10**6):
        await world.account.merge_patch(
            PODS, world.namespace, "p", {"spec": {"activeDeadlineSeconds": 60}}
        )
        with pytest.raises(ApiError, match="activeDeadlineSeconds"):
            await attacker.merge_patch(
                PODS, world.namespace, "p", {"spec": {"activeDeadlineSeconds": seconds}}
            )


@pytest.mark.parametrize(
    "labels",
    [
        {bridge.GROUP_LABEL: "other", bridge.GROUP_SIZE_LABEL: "2"},
        {"scheduling.x-k8s.io/pod-group": "other"},
    ],
    ids=["group", "pod group"],
)
async def test_a_pod_that_changes_its_group_is_deleted_at_the_end_of_its_job_all_the_same(
    world: World, tenant: Client, labels: dict[str, str]
) -> None:
    async with world.bridge():
        await world.records()
        await world.create()
        job = await world.job()
        world.slurm.job_run(job.job_id, {world.nodes[0]: 1})
        await world.until("the pod to be bound", world.place)
        await tenant.merge_patch(PODS, world.namespace, "p", {"metadata": {"labels": labels}})
        world.slurm.job_end(job.job_id)
        await world.gone()


async def test_a_pod_that_leaves_its_group_is_deleted_at_the_end_of_its_job_all_the_same(
    world: World, tenant: Client
) -> None:
    async with world.bridge():
        await world.records()
        await world.create(group=("g", 1))
        job = await world.job()
        world.slurm.job_run(job.job_id, {world.nodes[0]: 1})
        await world.until("the pod to be bound", world.place)
        alone = {"metadata": {"labels": {bridge.GROUP_LABEL: None, bridge.GROUP_SIZE_LABEL: None}}}
        await tenant.merge_patch(PODS, world.namespace, "p", alone)
        world.slurm.job_end(job.job_id)
        await world.gone()


async def test_nobody_else_writes_the_group_of_a_pods_job(world: World, attacker: Client) -> None:
    other = {"metadata": {"annotations": {bridge.GROUP_ANNOTATION: "group/other"}}}
    for subresource in (None, "status"):
        with pytest.raises(ApiError, match="only the Slurm Bridge writes the annotation"):
            await attacker.merge_patch(PODS, world.namespace, "p", other, subresource=subresource)
    item = without_gate(world.namespace, "q")
    item["metadata"]["annotations"] = other["metadata"]["annotations"]
    with pytest.raises(ApiError, match="only the Slurm Bridge writes the annotation"):
        await attacker.create(PODS, item)


@pytest.mark.parametrize(("room", "labelled"), [(0, False), (70, True)], ids=["label", "release"])
async def test_a_pod_without_room_for_the_bridges_annotations_shows_why_it_waits(
    world: World, tenant: Client, room: int, labelled: bool
) -> None:
    """An API server takes 256 KiB of annotations with their keys. That of the group has 64
    bytes.
    """
    full = without_gate(world.namespace, "p")
    full["metadata"]["annotations"] = {"a": "x" * (MOST_ANNOTATIONS - 1 - room)}
    async with world.bridge():
        await world.records()
        await tenant.create(PODS, full)
        if labelled:
            world.slurm.job_run((await world.job()).job_id, {world.nodes[0]: 1})

        async def refused() -> bool:
            return "annotations: Too long" in (await world.condition()).get("message", "")

        await world.until("the reason", refused)
        assert (await world.condition())["reason"] == "Refused"
    found = await world.pod()
    assert found is not None
    assert found["spec"]["schedulingGates"]
    assert (bridge.JOB_LABEL in found["metadata"].get("labels", {})) is labelled
