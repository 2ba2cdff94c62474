"""The edge of `doctor`: what it reads of Kubernetes and Slurm, what it prints, and its exit
status.
"""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from sidecars.custom_resources import CONTROLLERS, NODESETS, RESTAPIS
from sidecars.explain.core.records import Finding, Level
from sidecars.explain.gres import main as doctor
from sidecars.kube import CONFIG_MAPS, NODES, PODS, SECRETS, Client, Forbidden
from sidecars.simulate import Fault, SlurmModel, serve
from tests.support.kube_double import KubeDouble

GPU = "nvidia.com/gpu"
H100 = "gpu:nvidia_h100_80gb_hbm3:8"


def metadata(name: str, **more: Any) -> dict[str, Any]:
    return {"namespace": "slurm", "name": name} | more


def fill(server: KubeDouble, **gpu: Any) -> None:
    """A Slurm cluster with a NodeSet of one GPU worker."""
    server.put(
        CONTROLLERS,
        {
            "metadata": metadata("slurm"),
            "spec": {
                "slurmKeyRef": {"name": "slurm-key", "key": "slurm.key"},
                "jwtKeyRef": {"name": "jwt", "key": "jwt.key"},
                "configFileRefs": [{"name": "mine"}, {"name": "not-there"}],
            },
        },
    )
    server.put(
        SECRETS,
        {"metadata": metadata("jwt"), "data": {"jwt.key": base64.b64encode(b"k" * 32).decode()}},
    )
    files = {"slurm.conf": "GresTypes=gpu\n", "gres.conf": "AutoDetect=nvidia\n"}
    server.put(CONFIG_MAPS, {"metadata": metadata("slurm-config-accepted"), "data": files})
    server.put(CONFIG_MAPS, {"metadata": metadata("mine"), "data": {"job_submit.lua": ""}})
    server.put(
        RESTAPIS, {"metadata": metadata("slurm"), "spec": {"controllerRef": {"name": "slurm"}}}
    )
    nodeset = server.put(
        NODESETS,
        {
            "metadata": metadata("gpu", uid="uid-of-gpu"),
            "spec": {
                "controllerRef": {"name": "slurm"},
                "gpu": {"enabled": True} | gpu,
                "template": {"spec": {"hostname": "gpu-"}},
            },
        },
    )
    server.put(
        NODES,
        {
            "metadata": {"name": "kube-0"},
            "status": {"capacity": {GPU: "8"}, "allocatable": {GPU: "8"}},
        },
    )
    owner = {
        "kind": "NodeSet",
        "name": "gpu",
        "uid": nodeset["metadata"]["uid"],
        "controller": True,
    }
    container = {"name": "slurmd", "resources": {"limits": {GPU: "8"}}}
    server.put(
        PODS,
        {
            "metadata": metadata(
                "gpu-0", labels={"app.kubernetes.io/name": "slurmd"}, ownerReferences=[owner]
            ),
            "spec": {"hostname": "gpu-0", "nodeName": "kube-0", "containers": [container]},
        },
    )


async def ask(server: KubeDouble, model: SlurmModel, namespace: str | None = "slurm") -> int:
    async with serve(model) as url, Client.connect(server.credentials) as client:
        return await doctor.gres(client, namespace, url)


async def test_all_that_agrees_is_printed_and_well(capsys: pytest.CaptureFixture[str]) -> None:
    model = SlurmModel()
    model.node_register("gpu-0", gres=H100)
    async with KubeDouble() as server:
        fill(server)
        assert await ask(server, model, None) == 0
    message = capsys.readouterr().out.splitlines()
    assert message == [
        "Slurm cluster slurm/slurm",
        f"NodeSet gpu: 8 x {GPU} per worker, 8 expected",
        f"  gpu-0 on kube-0: asks for 8; Gres={H100} DYNAMIC_NORM+IDLE",
        "all is well",
    ]


@pytest.mark.parametrize(
    ("pod_spec", "slurm_node"),
    [({"hostname": "gpu-7"}, "gpu-7"), ({}, "gpu-0"), ({"hostNetwork": True}, "kube-0")],
)
async def test_the_slurm_node_of_a_worker_is_its_hostname_its_pod_or_on_the_hosts_network_its_host(
    pod_spec: dict[str, Any], slurm_node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = SlurmModel()
    model.node_register(slurm_node, gres=H100)
    async with KubeDouble() as server:
        fill(server)
        pod = server.objects(PODS)["slurm", "gpu-0"]
        del pod["spec"]["hostname"]
        server.put(PODS, pod | {"spec": pod["spec"] | pod_spec})
        assert await ask(server, model) == 0
    assert f"asks for 8; Gres={H100} DYNAMIC_NORM+IDLE" in capsys.readouterr().out


async def test_what_differs_is_printed_with_its_fix(capsys: pytest.CaptureFixture[str]) -> None:
    model = SlurmModel()
    model.node_register("gpu-0")
    async with KubeDouble() as server:
        fill(server)
        server.put(
            CONFIG_MAPS, {"metadata": metadata("mine"), "data": {"gres.conf": "AutoDetect=off\n"}}
        )
        files = {"slurm.conf": "GresTypes=gpu\n", "gres.conf": "AutoDetect=off\n"}
        server.put(CONFIG_MAPS, {"metadata": metadata("slurm-config-accepted"), "data": files})
        assert await ask(server, model) == 1
    message = capsys.readouterr().out
    assert (
        "! gres.conf (configFiles): neither detects GPUs nor declares any\n    remove gres.conf"
        in message
    )
    assert "! Slurm node gpu-0: has Gres=(null)\n    kubectl logs gpu-0 -c register" in message


async def test_a_nodeset_that_the_operator_refuses_reports_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with KubeDouble() as server:
        fill(server, count=4)
        ready = {
            "type": "Ready",
            "status": "False",
            "reason": "FewerGpusThanNode",
            "message": "set gpu.count to 8",
        }
        refused = server.objects(NODESETS)["slurm", "gpu"] | {"status": {"conditions": [ready]}}
        server.put(NODESETS, refused)
        server.remove(PODS, "slurm", "gpu-0")
        assert await ask(server, SlurmModel()) == 1
    assert "    set gpu.count to 8\n" in capsys.readouterr().out


async def test_a_slurm_that_does_not_answer_is_a_finding_and_no_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = SlurmModel()
    model.fail(Fault.SERVER_ERROR)
    async with KubeDouble() as server:
        fill(server)
        assert await ask(server, model) == 1
    message = capsys.readouterr().out
    assert "Slurm not asked" in message
    assert "! Slurm: can't be asked what it has: " in message


async def test_a_key_that_is_missing_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    async with KubeDouble() as server:
        fill(server)
        server.put(SECRETS, {"metadata": metadata("jwt"), "data": {}})
        assert await ask(server, SlurmModel()) == 1
    assert "the Secret of jwtKeyRef has no key 'jwt.key'" in capsys.readouterr().out


async def test_a_controller_that_cannot_be_read_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with KubeDouble() as server:
        server.put(CONTROLLERS, {"metadata": metadata("slurm"), "spec": {"extraConf": 3}})
        assert await ask(server, SlurmModel()) == 1
    assert "! Controller: " in capsys.readouterr().out


async def test_no_slurm_cluster_at_all_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    async with KubeDouble() as server:
        assert await ask(server, SlurmModel()) == 1
        assert capsys.readouterr().out == "no Controller in namespace slurm\n"


def test_a_kubeconfig_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor.main(["gres", "--kubeconfig", str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err


def test_what_it_looks_at_has_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        doctor.main(["gpu"])
    assert "choose from" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["gres"], ["gres", "--namespace", "slurm"]])
def test_who_may_not_look_at_all_namespaces_learns_that_one_can_be_named(
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    async def refused(*_: object) -> int:
        raise Forbidden(403, "Forbidden", "controllers is forbidden")

    monkeypatch.setattr(doctor, "gres", refused)
    config = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {}}]
    config.write_text(
        json.dumps(
            {"clusters": [cluster], "contexts": [context], "users": users, "current-context": "c"}
        )
    )
    assert doctor.main([*words, "--kubeconfig", str(config)]) == 2
    assert ("name a namespace with --namespace" in capsys.readouterr().err) == (words == ["gres"])


def test_a_report_is_printable_whatever_it_quotes_of_slurm() -> None:
    finding = Finding(
        "", Level.BLOCKS, "node n1", "is drained: \x1b[2Jbad\ndisk", "repair the cause"
    )
    assert (
        doctor.report("slurm/slurm", [], [finding])[1] == "! node n1: is drained: \ufffd[2Jbad disk"
    )
