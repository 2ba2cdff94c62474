"""What `doctor gres` finds: one thing is wrong at a time, and the fix names it."""

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from sidecars import objects
from sidecars.contract.project import remedy
from sidecars.explain.core.records import Finding, Level
from sidecars.explain.gres.core import (
    Observed,
    Worker,
    examine,
    pod_limits,
    pod_trouble,
    summary,
)
from sidecars.slurm.records import Node
from tests.support import builders

GPU = "nvidia.com/gpu"
H100 = "gpu:nvidia_h100_80gb_hbm3:8"
NODESET: dict[str, Any] = {"gpu": {"enabled": True}, "template": {"spec": {"hostname": "gpu-"}}}
NAME = "slurm-worker-gpu"
POD = f"{NAME}-0"


def kube_node(
    name: str = "kube-0", has: str = "8", offers: str | None = None, resource: str = GPU
) -> objects.Node:
    node = builders.kube_node(name, {"labels": {"pool": name}}, {resource: has})
    allocatable = {resource: has if offers is None else offers}
    return replace(node, status=replace(node.status, allocatable=allocatable))


def slurm_node(gres: str = H100, *states: str, reason: str = "") -> Node:
    return Node("gpu-0", frozenset(states or {"IDLE", "DYNAMIC_NORM"}), gres=gres, reason=reason)


WELL = Observed(
    nodesets=[builders.nodeset(NAME, **NODESET)],
    kube_nodes=[kube_node("cpu-0", "4", resource="cpu"), kube_node()],
    workers={NAME: [Worker(POD, "gpu-0", "kube-0", {GPU: "8"})]},
    slurm_conf="GresTypes=gpu\n",
    gres_conf="AutoDetect=nvidia\n",
    nodes=[slurm_node()],
)


def seen(**changes: Any) -> list[Finding]:
    return examine(dataclasses.replace(WELL, **changes))


def gpu_nodeset(**spec: Any) -> dict[str, Any]:
    return {"nodesets": [builders.nodeset(NAME, **(NODESET | spec))]}


def only(**changes: Any) -> Finding:
    [finding] = seen(**changes)
    return finding


def test_all_is_well_when_all_agree() -> None:
    assert seen() == []
    assert summary(WELL) == [
        f"NodeSet {NAME}: 8 x {GPU} per worker, 8 expected",
        f"  gpu-0 on kube-0: asks for 8; Gres={H100} DYNAMIC_NORM+IDLE",
    ]


def test_a_cluster_without_gpus_has_nothing_wrong() -> None:
    assert (
        seen(nodesets=[builders.nodeset("cpu")], gres_conf=None, slurm_conf=None, nodes=None) == []
    )


def test_devices_that_slurm_does_not_get() -> None:
    limits = {"resources": {"limits": {GPU: 8}}}
    found = only(nodesets=[builders.nodeset(NAME, slurmd=limits, template=NODESET["template"])])
    assert found.about == f"NodeSet {NAME}"
    assert "Gres=(null)" in found.cause
    assert found.remedy.startswith("set nodesets.gpu.gpu.enabled: true")


def test_devices_that_the_users_own_gres_declares_are_the_users_business() -> None:
    limits = {"resources": {"limits": {GPU: 8}}}
    assert seen(nodesets=[builders.nodeset(NAME, slurmd=limits, extraConf="Gres=gpu:h100:8")]) == []


def test_gres_of_the_users_own_beside_the_block() -> None:
    assert "remove Gres=" in only(**gpu_nodeset(extraConf="Gres=gpu:8")).remedy


@pytest.mark.parametrize("types", ["", "GresTypes=craynetwork\n"])
def test_slurm_conf_that_does_not_know_gpus(types: str) -> None:
    found = only(slurm_conf=types)
    assert (found.about, "lacks gpu" in found.cause) == ("slurm.conf", True)


def test_files_that_are_not_there_yet_send_to_the_controller() -> None:
    assert {finding.about for finding in seen(slurm_conf=None, gres_conf=None)} == {
        "slurm.conf",
        "gres.conf",
    }


@pytest.mark.parametrize("text", ["AutoDetect=off\n", "# nothing\n", "Name=shard Count=8\n"])
def test_a_gres_conf_of_the_users_own_that_has_no_gpus(text: str) -> None:
    found = only(gres_conf=text, own_gres_conf=True)
    assert found.cause == "neither detects GPUs nor declares any"
    assert found.remedy.startswith("remove gres.conf from configFiles")


def test_a_gres_conf_line_without_a_file() -> None:
    found = only(gres_conf="Name=gpu Type=h100 Count=8\n", own_gres_conf=True)
    assert "line 1 declares GPUs without File=" in found.cause


def test_a_gres_conf_of_the_users_own_that_hides_what_the_nodeset_declares() -> None:
    found = only(own_gres_conf=True, **gpu_nodeset(gpu={"enabled": True, "autoDetect": "nvml"}))
    assert "replaces gpu.devices and gpu.autoDetect" in found.cause


def test_a_gres_conf_that_slurm_cannot_read() -> None:
    assert only(gres_conf="Name\n", own_gres_conf=True).about == "gres.conf (configFiles)"


def test_no_device_plugin() -> None:
    found = only(kube_nodes=[kube_node("kube-0", "4", resource="cpu")])
    assert "no device plugin" in found.cause


def test_a_resource_of_another_name() -> None:
    found = only(kube_nodes=[kube_node(resource="nvidia.com/mig-1g.5gb")])
    assert found.remedy == "set gpu.resourceName to nvidia.com/mig-1g.5gb"


def test_devices_that_are_unhealthy() -> None:
    unhealthy, too_many = seen(kube_nodes=[kube_node(offers="7")])
    assert (unhealthy.about, unhealthy.cause) == (
        "Kubernetes node kube-0",
        f"1 of its 8 {GPU} are reported as unhealthy by the device plugin",
    )
    assert too_many.remedy == "set nodesets.gpu.gpu.count to 7"


def test_workers_that_ask_for_more_than_any_node_has() -> None:
    found = only(kube_nodes=[kube_node(has="4"), kube_node("kube-1", has="2")])
    assert "offers more than 4" in found.cause
    assert found.remedy == "set nodesets.gpu.gpu.count to 4"


def test_no_node_that_the_pods_may_run_on() -> None:
    found = only(
        **gpu_nodeset(template={"spec": {"hostname": "gpu-", "nodeSelector": {"pool": "other"}}})
    )
    assert "fits its nodeSelector" in found.cause


def test_only_nodes_that_the_pods_may_run_on_count() -> None:
    selector = {"spec": {"hostname": "gpu-", "nodeSelector": {"pool": "kube-1"}}}
    found = only(
        kube_nodes=[kube_node(), kube_node("kube-1", has="4")], **gpu_nodeset(template=selector)
    )
    assert found.remedy == "set nodesets.gpu.gpu.count to 4"


def test_a_limit_that_is_no_number() -> None:
    found = only(**gpu_nodeset(slurmd={"resources": {"limits": {GPU: "some"}}}))
    assert found.cause == f"its limit of {GPU} is no number of devices"


def test_what_the_operator_refuses() -> None:
    assert only(refusals={NAME: "set gpu.count to 8"}).remedy == "set gpu.count to 8"


def test_a_pod_that_does_not_run() -> None:
    found = only(
        workers={NAME: [Worker(POD, "gpu-0", "", {GPU: "8"}, "isn't scheduled: 0/3 nodes")]}
    )
    assert found == Finding(
        "",
        Level.BLOCKS,
        f"pod {POD}",
        "isn't scheduled: 0/3 nodes",
        f"kubectl describe pod {POD}; kubectl logs {POD} -c register",
    )


def test_a_pod_from_before_a_change() -> None:
    found = only(workers={NAME: [Worker(POD, "gpu-0", "kube-0", {GPU: "4"})]})
    assert found.cause == f"was created with 4 {GPU}, the NodeSet asks for 8"


def test_a_worker_that_slurm_does_not_know() -> None:
    assert only(nodes=[]).about == "Slurm node gpu-0"


@pytest.mark.parametrize("gres", ["", "(null)"])
def test_a_record_without_gpus(gres: str) -> None:
    found = only(nodes=[slurm_node(gres)])
    assert found.cause == "has Gres=(null)"
    assert f"kubectl delete pod {POD}" in found.remedy


def test_a_record_with_fewer_gpus_shows_what_the_worker_reported() -> None:
    reason = "slurm-node: 7 of 8 expected GPUs found by nvidia-smi"
    found = only(nodes=[slurm_node("gpu:h:7", "IDLE", "DRAIN", reason=reason)])
    assert found.cause == f"has 7 GPUs (Gres=gpu:h:7), 8 are expected: {reason}"
    assert found.remedy.endswith("or set gpu.expected to 7")


def test_a_record_that_outlives_its_pod_for_a_foreign_drain_has_to_be_undrained_first() -> None:
    found = only(nodes=[slurm_node("gpu:h:7", "IDLE", "DRAIN", reason="RMA 7")])
    assert "scontrol update NodeName=gpu-0 State=UNDRAIN (RMA 7)" in found.remedy
    assert found.remedy.index("UNDRAIN") < found.remedy.index(f"kubectl delete pod {POD}")


def test_a_record_that_slurmctld_itself_set_a_reason_on_goes_with_its_pod() -> None:
    found = only(nodes=[slurm_node("gpu:h:7", "DOWN", "DRAIN", reason="Not responding")])
    assert "UNDRAIN" not in found.remedy


def test_a_node_that_its_health_checks_drained() -> None:
    reason = "slurm-node: health: gpu-ecc: uncorrected memory errors on GPU 3"
    assert (
        only(nodes=[slurm_node(H100, "IDLE", "DRAIN", reason=reason)]).cause
        == f"is drained: {reason}"
    )


def test_an_administrators_drain_is_nothing_wrong_with_gpus() -> None:
    assert seen(nodes=[slurm_node(H100, "IDLE", "DRAIN", reason="maintenance")]) == []


def test_a_registration_that_slurm_refused() -> None:
    reason = "gres/gpu count reported lower than configured (7 < 8)"
    found = only(nodes=[slurm_node(H100, "IDLE", "DRAIN", "INVALID_REG", reason=reason)])
    assert reason in found.cause
    assert "slurmd -G" in found.remedy


def test_several_products_in_a_node_add_up() -> None:
    assert seen(nodes=[slurm_node("gpu:a:4(S:0),gpu:b:4(S:1)")]) == []


def test_another_type_than_declared() -> None:
    found = only(**gpu_nodeset(gpu={"enabled": True, "type": "h100"}))
    assert found.cause == "has type nvidia_h100_80gb_hbm3, the NodeSet has gpu.type h100"


def test_gpus_without_a_type() -> None:
    assert "has no type" in only(nodes=[slurm_node("gpu:8")]).cause


def test_a_gres_that_is_none() -> None:
    assert "can't be read" in only(nodes=[slurm_node("gpu:a:b:c:d")]).cause


def test_a_silent_slurm_is_reported_beside_what_kubernetes_shows() -> None:
    findings = seen(nodes=None, silence="connection refused", gres_conf="AutoDetect=off\n")
    assert [finding.about for finding in findings] == ["gres.conf (the operator's)", "Slurm"]
    assert "connection refused" in findings[1].cause
    assert summary(dataclasses.replace(WELL, nodes=None))[1].endswith("Slurm not asked")


def pod(**status: Any) -> dict[str, Any]:
    limits = {"limits": {GPU: 8}}
    return {
        "spec": {"containers": [{"name": "x"}, {"name": "slurmd", "resources": limits}]},
        "status": status,
    }


def test_limits_are_those_of_slurmd() -> None:
    assert pod_limits(pod()) == {GPU: "8"}
    assert pod_limits({"spec": {"containers": [{"name": "slurmd"}]}}) == {}
    assert pod_limits({}) == {}


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({}, ""),
        (
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "message": "0/3 nodes: Insufficient gpu",
                    }
                ]
            },
            "isn't scheduled: 0/3 nodes: Insufficient gpu",
        ),
        (
            {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no devices"},
            "UnexpectedAdmissionError: no devices",
        ),
        (
            {
                "initContainerStatuses": [
                    {
                        "name": "register",
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {
                            "terminated": {
                                "exitCode": 1,
                                "message": "register: 7 of 8 expected GPUs\n",
                            }
                        },
                    }
                ]
            },
            "register failed: register: 7 of 8 expected GPUs",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "slurmd",
                        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "x"}},
                    }
                ]
            },
            "slurmd: ImagePullBackOff: x",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "slurmd",
                        "image": "registry.invalid/a/slurmd:1",
                        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "x"}},
                    }
                ]
            },
            f"slurmd: ImagePullBackOff: x. {remedy(['registry.invalid/a/slurmd:1'])}",
        ),
        ({"containerStatuses": [{"name": "slurmd", "state": {"running": {}}}]}, ""),
    ],
)
def test_why_a_pod_does_not_run_is_reported_in_kubernetes_words(
    status: dict[str, Any], message: str
) -> None:
    assert pod_trouble(pod(**status)) == message
