"""The admission policies of the chart, on an API server with MutatingAdmissionPolicy."""

from typing import Any

import msgspec
import pytest
import yaml

from sidecars.bridge.core import pods
from sidecars.bridge.core.manifests import Pod
from sidecars.contract import bridge
from sidecars.kube import NODES, PODS, ApiError, Client, Resource, load_credentials
from tests.charts import objects
from tests.cluster.commands import run
from tests.cluster.control_plane import ControlPlane
from tests.cluster.install import helm_environment
from tests.cluster.tools import tool
from tests.support import streams
from tests.support.apiserver import until
from tests.support.bridge import gate_steps, pod
from tests.support.bridge_world import CHART, World, another_namespace, install, without_gate

GATE = [{"name": bridge.GATE}]
LARGER = {"cpu": "2", "memory": "100Mi"}
MIRROR = "kubernetes.io/config.mirror"
DAEMON_SETS = "system:serviceaccount:kube-system:daemon-set-controller"


async def test_a_pod_gets_the_gate_beside_its_own_gates_and_nothing_else(
    world: World, tenant: Client
) -> None:
    # Without a volume for a token, whose name is generated.
    settings: dict[str, Any] = {"automountServiceAccountToken": False}
    mine = without_gate(
        world.namespace, **settings, schedulingGates=[{"name": "example.com/quota"}]
    )
    gated = await tenant.create(PODS, mine)
    written = pod(world.namespace, "q")
    written["spec"] |= settings
    plain = await tenant.create(PODS, written)
    assert sorted(it["name"] for it in gated["spec"].pop("schedulingGates")) == [
        "example.com/quota",
        bridge.GATE,
    ]
    assert plain["spec"].pop("schedulingGates") == GATE
    assert gated["spec"] == plain["spec"]


@pytest.mark.parametrize("gates", [[], GATE])
async def test_a_pod_written_for_schedmds_bridge_is_bound_by_kubernetes_and_its_nodes_taint_stays(
    world: World, tenant: Client, gates: list[dict[str, str]]
) -> None:
    other = {
        "key": "example.com/gpu",
        "operator": "Equal",
        "value": "a",
        "effect": "NoExecute",
        "tolerationSeconds": 60,
    }
    theirs = [{"key": bridge.TAINT, "operator": "Exists"}, other]
    written = without_gate(
        world.namespace,
        schedulingGates=gates,
        schedulerName="slurm-bridge-scheduler",
        tolerations=theirs,
    )
    made = (await tenant.create(PODS, written))["spec"]
    assert made["schedulerName"] == "default-scheduler"
    assert made["schedulingGates"] == GATE
    assert other in made["tolerations"]
    assert all(it.get("key") != bridge.TAINT for it in made["tolerations"])


async def test_slurm_postrender_adds_the_gate_that_the_policy_adds(
    world: World, tenant: Client
) -> None:
    for number, gates in enumerate(([], [{"name": "example.com/quota"}], GATE)):
        # Without a volume for a token, whose name is generated.
        mine = without_gate(
            world.namespace, f"p{number}", automountServiceAccountToken=False, schedulingGates=gates
        )
        [rendered] = streams.objects(
            streams.applied(streams.stream(mine), *gate_steps(world.namespace))
        )
        rendered["metadata"]["name"] = f"q{number}"
        by_policy, by_postrender = [
            (await tenant.create(PODS, it))["spec"] for it in (mine, rendered)
        ]
        names = [
            sorted(it["name"] for it in spec.pop("schedulingGates"))
            for spec in (by_policy, by_postrender)
        ]
        assert (
            names[0] == names[1] == sorted(it["name"] for it in rendered["spec"]["schedulingGates"])
        )
        assert by_policy == by_postrender


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spec": {"nodeName": "k0a"}}, "spec.nodeName would bypass Slurm: remove it"),
        (
            {"metadata": {"labels": {bridge.JOB_LABEL: "1"}}},
            "only the Slurm Bridge writes the label",
        ),
        (
            {"metadata": {"labels": {bridge.JOB_LABEL: ""}}},
            "only the Slurm Bridge writes the label",
        ),
        (
            {"metadata": {"annotations": {bridge.NODE_ANNOTATION: "k0a"}}},
            "only the Slurm Bridge writes the annotation",
        ),
        (
            {"metadata": {"annotations": {bridge.NODE_ANNOTATION: ""}}},
            "only the Slurm Bridge writes the annotation",
        ),
    ],
)
async def test_a_tenant_creates_no_pod_that_bypasses_slurm(
    world: World, tenant: Client, change: dict[str, dict[str, Any]], words: str
) -> None:
    item = without_gate(world.namespace)
    for part, values in change.items():
        item[part] |= values
    with pytest.raises(ApiError, match=words):
        await tenant.create(PODS, item)


@pytest.mark.parametrize(
    ("subresource", "patch", "words"),
    [
        (
            None,
            {"spec": {"schedulingGates": None}},
            "only the Slurm Bridge removes the scheduling gate",
        ),
        (
            None,
            {"metadata": {"labels": {bridge.JOB_LABEL: "2"}}},
            "only the Slurm Bridge writes the label",
        ),
        (
            None,
            {"metadata": {"labels": {bridge.JOB_LABEL: None}}},
            "only the Slurm Bridge writes the label",
        ),
        (
            "status",
            {"metadata": {"labels": {bridge.JOB_LABEL: "2"}}},
            "only the Slurm Bridge writes the label",
        ),
        (
            "status",
            {"metadata": {"annotations": {bridge.NODE_ANNOTATION: "k0a"}}},
            "only the Slurm Bridge writes the annotation",
        ),
        (
            None,
            {"spec": {"tolerations": [{"key": bridge.TAINT, "operator": "Exists"}]}},
            "only the Slurm Bridge adds a toleration",
        ),
        (
            "resize",
            {
                "spec": {
                    "containers": [{"name": "c", "image": "x", "resources": {"requests": LARGER}}]
                }
            },
            "Slurm has assigned the resources of this pod",
        ),
    ],
)
async def test_a_tenant_changes_nothing_that_the_bridge_decides(
    world: World, tenant: Client, subresource: str | None, patch: dict[str, Any], words: str
) -> None:
    await tenant.create(PODS, without_gate(world.namespace))
    labelled = {"metadata": {"labels": {bridge.JOB_LABEL: "1"}}}
    await world.account.merge_patch(PODS, world.namespace, "p", labelled)
    with pytest.raises(ApiError, match=words):
        await tenant.merge_patch(PODS, world.namespace, "p", patch, subresource=subresource)


async def test_a_tenant_can_bind_no_waiting_pod(world: World, tenant: Client) -> None:
    await tenant.create(PODS, without_gate(world.namespace))
    binding = {
        "metadata": {"name": "p", "namespace": world.namespace},
        "target": {"kind": "Node", "name": world.nodes[0]},
    }
    with pytest.raises(ApiError, match=r"non-empty \.spec\.schedulingGates"):
        await tenant.create(Resource("", "v1", "Binding", "pods/p/binding"), binding)


async def test_what_slurm_does_not_decide_stays_the_tenants(world: World, tenant: Client) -> None:
    item = without_gate(
        world.namespace, tolerations=[{"key": "example.com/gpu", "operator": "Exists"}]
    )
    item["metadata"]["annotations"] = {f"{bridge.WISHES}qos": "high"}
    await tenant.create(PODS, item)
    changes: list[tuple[str | None, dict[str, Any]]] = [
        (
            None,
            {"metadata": {"labels": {"a": "b"}, "annotations": {f"{bridge.WISHES}timelimit": "5"}}},
        ),
        (None, {"spec": {"nodeSelector": {"zone": "a"}}}),
        ("status", {"status": {"message": "mine"}}),
    ]
    for subresource, patch in changes:
        await tenant.merge_patch(PODS, world.namespace, "p", patch, subresource=subresource)
    await tenant.delete(PODS, world.namespace, "p", grace_period_seconds=0)
    assert await world.pod() is None


async def test_the_bridge_may_label_and_release_a_pod_once(world: World, tenant: Client) -> None:
    made = await tenant.create(PODS, without_gate(world.namespace))
    label = pods.label_patch(msgspec.convert(made, Pod), 7, made["metadata"]["uid"])
    await world.account.json_patch(PODS, world.namespace, "p", label, msgspec.Raw)
    labelled = msgspec.convert(await world.admin.get(PODS, world.namespace, "p"), Pod)
    release = pods.release_patch(labelled, world.nodes[0], 0, 0.0)
    await world.account.json_patch(PODS, world.namespace, "p", release, msgspec.Raw)
    await world.until("the scheduler to bind the pod", world.place)
    assert await world.place() == world.nodes[0]
    with pytest.raises(ApiError, match="only the Slurm Bridge writes the annotation"):
        await tenant.merge_patch(
            *(PODS, world.namespace, "p"),
            {"metadata": {"annotations": {bridge.NODE_ANNOTATION: world.nodes[1]}}},
        )


async def test_a_kubelet_may_show_a_static_pod_and_a_tenant_may_not(
    world: World, tenant: Client, plane: ControlPlane
) -> None:
    name = world.nodes[0]
    kube_node = await world.admin.get(NODES, None, name)
    item = without_gate(world.namespace, f"static-{name}", nodeName=name)
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": name,
        "uid": kube_node["metadata"]["uid"],
        "controller": True,
    }
    item["metadata"] |= {"annotations": {MIRROR: "a"}, "ownerReferences": [owner]}
    with pytest.raises(ApiError, match=r"spec\.nodeName would bypass Slurm"):
        await tenant.create(PODS, item)
    account = (f"system:node:{name}", "system:nodes", "system:authenticated")
    async with Client.connect(
        load_credentials(plane.client(f"kubelet-{name}", *account))
    ) as kubelet:
        made = await kubelet.create(PODS, item)
    assert "schedulingGates" not in made["spec"]


async def test_a_pod_of_a_daemon_set_waits_like_any_other(
    world: World, tenant: Client, plane: ControlPlane
) -> None:
    async with Client.connect(
        load_credentials(plane.client("daemon-sets", DAEMON_SETS))
    ) as controller:
        made = await controller.create(PODS, without_gate(world.namespace))
    assert made["spec"]["schedulingGates"] == GATE


async def test_a_namespace_without_the_label_is_not_concerned(world: World, tenant: Client) -> None:
    name = f"{world.namespace}-free"
    await another_namespace(world.admin, name)
    item = without_gate(name, tolerations=[{"key": bridge.TAINT, "operator": "Exists"}])
    made = await world.admin.create(PODS, item)
    assert "schedulingGates" not in made["spec"]


def test_the_policies_fit_the_schemas_of_kubernetes_1_36() -> None:
    words = [
        "template",
        "slurm-bridge",
        str(CHART),
        "--set=admission.mode=policy",
        "--kube-version=1.36.0",
    ]
    rendered = run([tool("helm"), *words], env=helm_environment())
    policies = [it for it in yaml.safe_load_all(rendered) if "AdmissionPolicy" in it["kind"]]
    assert {it["apiVersion"] for it in policies} == {"admissionregistration.k8s.io/v1"}
    assert [it["kind"] for it in policies].count("MutatingAdmissionPolicy") == 1
    assert [problem for it in policies for problem in objects.problems(it, "1.36.0")] == []


async def test_without_the_policy_that_adds_the_gate_a_pod_is_refused_with_what_to_add(
    world: World, tenant: Client, plane: ControlPlane
) -> None:
    name = f"{world.namespace}-written"
    await another_namespace(world.admin, name)
    install(
        plane,
        name,
        f"admission: {{addGate: false, managedNamespaces: [{name}], otherBridges: "
        f"[slurm/slurm-bridge]}}",
    )

    async def refused() -> str:
        try:
            await tenant.create(PODS, without_gate(name))
        except ApiError as error:
            return str(error)
        await tenant.delete(PODS, name, "p", grace_period_seconds=0)
        return ""

    def named(text: str) -> bool:
        return "schedulingGates: [{name: scheduler.slinky.slurm.net/queued}]" in text

    async def right_words() -> bool:
        return named(await refused())

    await until("the policy to refuse a pod without the gate", right_words)
    assert (await tenant.create(PODS, pod(name, "p")))["spec"]["schedulingGates"] == GATE
