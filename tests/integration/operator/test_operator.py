"""What the operator does to a Kubernetes cluster, as shown by what an administrator would see
there.
"""

from pathlib import Path

import pytest

from sidecars.contract.extra import PodFacts, encode
from sidecars.custom_resources import CONTROLLERS, NODESETS, RESTAPIS
from sidecars.kube import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SERVICES,
    STATEFUL_SETS,
    Client,
    load_credentials,
)
from sidecars.simulate import Fault, SlurmModel, serve
from sidecars.uninstall.main import release
from tests.integration.operator.fences import woken
from tests.integration.operator.test_references import until_quiet
from tests.support.apiserver import KEYS, WatchedNamespace, custom, namespace, until

pytestmark = pytest.mark.timeout(120, func_only=True)


async def test_a_controller_gets_its_daemons_services_and_configuration(
    world: WatchedNamespace,
) -> None:
    stateful_set = await until("slurmctld", lambda: world.get(STATEFUL_SETS, "slurm-controller"))
    assert stateful_set["spec"]["serviceName"] == "slurm-controller-internal"
    assert await until("slurmrestd", lambda: world.get(DEPLOYMENTS, "slurm-restapi"))
    internal = await until(
        "the internal Service", lambda: world.get(SERVICES, "slurm-controller-internal")
    )
    assert (internal["spec"]["clusterIP"], internal["spec"]["publishNotReadyAddresses"]) == (
        "None",
        True,
    )
    config = await until("slurm.conf", lambda: world.get(CONFIG_MAPS, "slurm-config"))
    assert f"ClusterName={world.namespace}_slurm\n" in config["data"]["slurm.conf"]


async def test_a_resource_reports_what_its_pods_lack(world: WatchedNamespace) -> None:
    async def message() -> bool:
        return (await world.condition(CONTROLLERS, "slurm")).get("reason") in {
            "PodsNotReady",
            "Updating",
        }

    await until("the Controller to report", message)
    await world.client.merge_patch(
        STATEFUL_SETS,
        world.namespace,
        "slurm-controller",
        {
            "status": {
                "replicas": 1,
                "readyReplicas": 1,
                "updatedReplicas": 1,
                "observedGeneration": 99,
            }
        },
        subresource="status",
    )

    async def ready() -> bool:
        return (await world.condition(CONTROLLERS, "slurm")).get("status") == "True"

    await until("the Controller to be Ready", ready)


async def test_a_nodeset_gets_pods_by_ordinal_with_the_documented_labels(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=3)
    await world.until_pods("slinky-0", "slinky-1", "slinky-2")
    labels = (await world.pods())["slinky-2"]["metadata"]["labels"]
    assert labels["nodeset.slinky.slurm.net/pod-index"] == "2"
    assert labels["nodeset.slinky.slurm.net/pod-hostname"] == "slinky-2"
    assert labels["slinky.slurm.net/cluster"] == "slurm"
    budget = await until(
        "the budget", lambda: world.get(POD_DISRUPTION_BUDGETS, "slurm-workers-pdb-slurm")
    )
    assert budget["spec"]["maxUnavailable"] == 0


async def test_scale_in_waits_for_the_job_and_then_deletes_the_pod_and_its_record(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=2)
    await world.until_ready(2)
    busy = [world.slurm.job_start("slinky-0"), world.slurm.job_start("slinky-1")]
    await world.scale(1)

    async def draining() -> bool:
        return "DRAIN" in world.slurm.states("slinky-1")

    await until("slinky-1 to drain", draining)
    assert world.slurm.nodes["slinky-1"].reason == (
        f"slurm-operator: Pod ({world.namespace}/slinky-1) is pending termination for scale-in"
    )

    async def explained() -> bool:
        message = await world.condition(NODESETS, "slinky")
        return message.get("reason") == "Draining" and "slinky-1" in message["message"]

    await until("the NodeSet to say what it waits for", explained)
    assert set(await world.pods()) == {"slinky-0", "slinky-1"}
    world.slurm.job_end(busy[1])
    await world.until_pods("slinky-0")

    async def pruned() -> bool:
        return "slinky-1" not in world.slurm.nodes

    await until("the record to be pruned", pruned)
    assert "DRAIN" not in world.slurm.states("slinky-0")


async def test_scaling_out_again_lifts_the_drain_of_the_same_pod(world: WatchedNamespace) -> None:
    await world.nodeset(replicas=1)
    await world.until_ready(1)
    world.slurm.job_start("slinky-0")
    uid = (await world.pods())["slinky-0"]["metadata"]["uid"]
    for replicas, drained in ((0, True), (1, False)):
        await world.scale(replicas)

        async def there(drained: bool = drained) -> bool:
            return ("DRAIN" in world.slurm.states("slinky-0")) is drained

        await until(f"drain to be {drained}", there)
    assert (await world.pods())["slinky-0"]["metadata"]["uid"] == uid


async def test_while_slurm_does_not_answer_pods_are_created_and_none_is_deleted(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=2)
    await world.until_ready(2)
    world.slurm.fail(Fault.SERVER_ERROR)
    await world.scale(1)

    async def noticed() -> bool:
        return (await world.condition(NODESETS, "slinky", "SlurmReachable")).get(
            "status"
        ) == "False"

    await until("the NodeSet to say that Slurm can't be asked", noticed)
    await world.nodeset("other", replicas=1)
    await world.until_pods("slinky-0", "slinky-1", "other-0")
    world.slurm.heal()
    await world.until_pods("slinky-0", "other-0")


async def test_an_empty_answer_of_slurmrestd_deletes_nothing(world: WatchedNamespace) -> None:
    await world.nodeset(replicas=4)
    await world.until_ready(4)
    job = world.slurm.job_start("slinky-[0-3]")
    world.slurm.fail(Fault.EMPTY)
    await world.scale(0)

    async def noticed() -> bool:
        return (await world.condition(NODESETS, "slinky", "SlurmReachable")).get(
            "status"
        ) == "False"

    await until("the NodeSet to distrust the answer", noticed)
    assert len(await world.pods()) == 4
    world.slurm.heal()
    world.slurm.job_end(job)
    await until("the pods to go", lambda: _none(world))


async def _none(world: WatchedNamespace) -> bool:
    return not await world.pods()


async def test_a_cordoned_kubernetes_node_drains_its_slurm_node_and_an_uncordoned_one_does_not(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=1)
    await world.until_ready(1)

    async def marked() -> bool:
        pod = (await world.pods())["slinky-0"]
        return bool(
            pod["metadata"]["annotations"].get("nodeset.slinky.slurm.net/pod-cordon") == "true"
        )

    try:
        await world.client.merge_patch(
            NODES, None, "default-node", {"spec": {"unschedulable": True}}
        )

        async def drained() -> bool:
            return world.slurm.nodes["slinky-0"].reason == (
                "slurm-operator: Node (default-node) was cordoned, Pod "
                f"({world.namespace}/slinky-0) must be cordoned"
            )

        await until("the drain", drained)
        await until("the mark", marked)
    finally:
        await world.client.merge_patch(
            NODES, None, "default-node", {"spec": {"unschedulable": False}}
        )

    async def back() -> bool:
        return "DRAIN" not in world.slurm.states("slinky-0") and not await marked()

    await until("the drain and the mark to be lifted", back)


async def test_node_records_of_lost_pods_are_deleted_without_a_foreign_reason_or_a_reservation(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=1)
    await world.until_ready(1)
    nodeset = await world.get(NODESETS, "slinky")
    assert nodeset is not None
    extra = encode(PodFacts("long-gone", "slinky-8", world.namespace, nodeset["metadata"]["uid"]))
    world.slurm.node_register("slinky-8", extra=extra)
    world.slurm.node_register("slinky-9", extra=extra)
    world.slurm.node_register("bare-metal", extra="")
    world.slurm.handle(
        "POST", "/slurm/v0.0.45/node/slinky-9", b'{"state":["DRAIN"],"reason":"bad disk"}'
    )

    async def pruned() -> bool:
        return "slinky-8" not in world.slurm.nodes

    await until("the ghost to go", pruned)

    async def down() -> bool:
        return "DOWN" in world.slurm.states("slinky-9")

    await until("the one with a reason to be DOWN", down)
    assert world.slurm.nodes["slinky-9"].reason == "bad disk"
    assert set(world.slurm.nodes) == {"slinky-0", "slinky-9", "bare-metal"}


async def test_a_changed_template_replaces_one_drained_pod_at_a_time(
    world: WatchedNamespace,
) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    await world.nodeset(replicas=2, updateStrategy=strategy)
    await world.until_ready(2)
    before = {name: pod["metadata"]["uid"] for name, pod in (await world.pods()).items()}
    job = world.slurm.job_start("slinky-0")
    patch = {"spec": {"slurmd": {"image": "slurmd:next"}}}
    await world.client.merge_patch(NODESETS, world.namespace, "slinky", patch)

    async def first_replaced() -> bool:
        pods = await world.pods()
        assert pods["slinky-0"]["metadata"]["uid"] == before["slinky-0"], "it has a job"
        return "slinky-1" in pods and pods["slinky-1"]["metadata"]["uid"] != before["slinky-1"]

    await until("slinky-1 to be replaced", first_replaced)
    world.slurm.job_end(job)

    async def both_replaced() -> bool:
        pods = await world.pods()
        return len(pods) == 2 and all(
            pod["metadata"]["uid"] != before[name] for name, pod in pods.items()
        )

    await until("slinky-0 to be replaced", both_replaced)


async def test_deletion_of_everything_at_once_drains_first_and_completes(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=2)
    await world.until_ready(2)
    job = world.slurm.job_start("slinky-1")
    for resource, name in ((CONTROLLERS, "slurm"), (RESTAPIS, "slurm"), (NODESETS, "slinky")):
        await world.client.delete(resource, world.namespace, name)

    async def blocked() -> bool:
        return (await world.condition(CONTROLLERS, "slurm")).get("reason") == "InUse"

    await until("the Controller to report who uses it", blocked)
    await world.until_pods("slinky-1")
    world.slurm.job_end(job)

    async def gone() -> bool:
        return all(
            [
                await world.get(NODESETS, "slinky") is None,
                await world.get(RESTAPIS, "slurm") is None,
                await world.get(CONTROLLERS, "slurm") is None,
            ]
        )

    await until("all three to be gone", gone)


async def test_removal_does_not_wait_for_a_job_longer_than_the_deletion_timeout(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=1, deletionTimeout="2s")
    await world.until_ready(1)
    world.slurm.job_start("slinky-0")
    for resource, name in ((CONTROLLERS, "slurm"), (RESTAPIS, "slurm"), (NODESETS, "slinky")):
        await world.client.delete(resource, world.namespace, name)

    async def gone() -> bool:
        return (
            await world.get(NODESETS, "slinky") is None
            and await world.get(CONTROLLERS, "slurm") is None
        )

    await until("the rest to be ended", gone)


async def test_a_settled_cluster_gets_no_writes(world: WatchedNamespace) -> None:
    await world.nodeset(replicas=2)
    await world.until_ready(2)
    await until_quiet()
    previous = await world.versions()
    # Each looks at everything again, and must change nothing.
    for kind in ("Controller", "NodeSet"):
        await woken(world, kind)
    await until_quiet()
    assert await world.versions() == previous


async def test_a_nodeset_without_a_controller_reports_that_and_starts_when_the_controller_exists(
    world: WatchedNamespace,
) -> None:
    gpu_nodeset = {
        "controllerRef": {"name": "late"},
        "replicas": 1,
        "slurmd": {"image": "slurmd:test"},
    }
    await world.create(custom("NodeSet", "early", gpu_nodeset))

    async def message() -> bool:
        return (await world.condition(NODESETS, "early")).get("reason") == "ControllerMissing"

    await until("the condition", message)
    await world.create(custom("Controller", "late", KEYS))
    await world.until_pods("early-0")


async def test_a_pod_that_the_api_server_refuses_is_reported_and_delays_no_other_nodeset(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(
        "poison", replicas=1, template={"spec": {"containers": [{"name": "Not A Name"}]}}
    )
    await world.nodeset("sound", replicas=1)
    await world.until_pods("sound-0")

    async def message() -> bool:
        return (await world.condition(NODESETS, "poison")).get("reason") == "Refused"

    await until("the condition", message)


async def test_a_pod_deleted_by_hand_is_replaced_under_its_own_name(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(replicas=2)
    await world.until_ready(2)
    uid = (await world.pods())["slinky-0"]["metadata"]["uid"]
    await world.client.delete(PODS, world.namespace, "slinky-0")

    async def replaced() -> bool:
        pods = await world.pods()
        return set(pods) == {"slinky-0", "slinky-1"} and pods["slinky-0"]["metadata"]["uid"] != uid

    await until("a successor", replaced)


async def test_release_stops_the_operator_so_that_everything_can_be_deleted_without_it(
    kubeconfig: Path,
) -> None:
    slurm = SlurmModel()
    async with (
        Client.connect(load_credentials(kubeconfig)) as client,
        namespace(client, "released") as name,
        serve(slurm) as url,
    ):
        world = WatchedNamespace(client, name, slurm, url)
        await world.cluster()
        async with world.operator():
            await world.nodeset(replicas=1)
            await world.until_ready(1)
        await release(client, name, "no-such-operator", [name])
        for resource, what in ((NODESETS, "slinky"), (RESTAPIS, "slurm"), (CONTROLLERS, "slurm")):
            await client.delete(resource, name, what)
            assert await world.get(resource, what) is None
