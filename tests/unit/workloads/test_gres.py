"""GPUs of NodeSets in pods and in gres.conf."""

from typing import Any

import pytest

from sidecars.slurm import conf
from sidecars.workloads import config, gres, nodeset
from sidecars.workloads.resources import ResourceError
from tests.support import builders


def env(container: dict[str, Any]) -> dict[str, Any]:
    return {item["name"]: item.get("value") for item in container["env"]}


def pod(**spec: Any) -> dict[str, Any]:
    return nodeset.pod_template(builders.nodeset(**spec), builders.controller(), builders.facts())


def test_slurmd_and_register_ask_for_the_same_devices() -> None:
    template = pod(gpu={"enabled": True})
    for name in ("register", "slurmd"):
        assert builders.part(template, name)["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    received = env(builders.part(template, "register"))
    assert received["REGISTER_GPUS"] == "nvidia"
    assert received["REGISTER_GPUS_EXPECTED"] == "8"
    assert received["REGISTER_GPUS_TYPE"] == ""
    assert received["REGISTER_GPUS_ON_MISMATCH"] == "Drain"


def test_only_containers_with_devices_ask_for_them() -> None:
    template = pod(gpu={"enabled": True})
    asking = [
        item["name"]
        for field in ("initContainers", "containers")
        for item in template["spec"][field]
        if "nvidia.com/gpu" in item.get("resources", {}).get("limits", {})
    ]
    assert asking == ["register", "slurmd"]


def test_a_nodeset_without_gpus_reports_nothing_of_them() -> None:
    for template in (pod(), pod(gpu={"enabled": False, "count": 4})):
        assert "REGISTER_GPUS" not in env(builders.part(template, "register"))
        assert "resources" not in builders.part(template, "register")


def test_slurmds_own_limit_is_what_is_asked_for_and_expected() -> None:
    limits = {"nvidia.com/gpu": 4, "cpu": 8}
    template = pod(gpu={"enabled": True}, slurmd={"resources": {"limits": limits}})
    assert builders.part(template, "register")["resources"]["limits"] == {
        "nvidia.com/gpu": "4",
        "cpu": 8,
    }
    assert builders.part(template, "slurmd")["resources"]["limits"] == {
        "nvidia.com/gpu": 4,
        "cpu": 8,
    }
    assert env(builders.part(template, "register"))["REGISTER_GPUS_EXPECTED"] == "4"


def test_what_is_expected_may_differ_from_what_is_asked_for() -> None:
    gpu = {
        "enabled": True,
        "count": 2,
        "expected": 14,
        "type": "mig",
        "onMismatch": "Refuse",
        "resourceName": "nvidia.com/mig-1g.5gb",
    }
    template = pod(gpu=gpu)
    assert builders.part(template, "register")["resources"]["limits"] == {
        "nvidia.com/mig-1g.5gb": "2"
    }
    received = env(builders.part(template, "register"))
    assert [received[f"REGISTER_GPUS_{key}"] for key in ("EXPECTED", "TYPE", "ON_MISMATCH")] == [
        "14",
        "mig",
        "Refuse",
    ]


@pytest.mark.parametrize("limit", ["0", "2000", "many"])
def test_a_limit_that_is_no_number_of_devices_is_refused(limit: str) -> None:
    with pytest.raises(ResourceError, match=r"limits\.nvidia\.com/gpu"):
        pod(gpu={"enabled": True}, slurmd={"resources": {"limits": {"nvidia.com/gpu": limit}}})


def test_a_change_of_gpus_is_a_new_revision() -> None:
    def revision(**spec: Any) -> str:
        return nodeset.revision(
            builders.nodeset(**spec), builders.controller(), builders.facts()
        ).hash

    hashes = {
        revision(),
        revision(gpu={"enabled": True}),
        revision(gpu={"enabled": True, "count": 4}),
    }
    assert len(hashes) == 3
    assert revision(gpu={"enabled": False}) in hashes


def test_a_usual_nodeset_needs_no_line_of_its_own() -> None:
    plain = builders.nodeset(gpu={"enabled": True})
    assert gres.detects([builders.nodeset(), plain])
    assert gres.gres_conf(plain) == []
    assert not gres.detects([builders.nodeset()])
    assert gres.gres_conf(builders.nodeset()) == []


def test_declared_devices_are_lines_for_the_workers_names() -> None:
    gpu = {"enabled": True, "type": "h100", "devices": ["/dev/nvidia[0-3]", "/dev/nvidia7"]}
    own = builders.nodeset(gpu=gpu, template={"spec": {"hostname": "gpu-"}}, ordinalPadding=3)
    lines = gres.gres_conf(own)
    assert lines == [
        "NodeName=gpu-[000-9999] AutoDetect=off Name=gpu Type=h100 File=/dev/nvidia[0-3]",
        "NodeName=gpu-[000-9999] AutoDetect=off Name=gpu Type=h100 File=/dev/nvidia7",
    ]
    assert conf.parse("\n".join(lines)).all("NodeName")[0].get("type") == "h100"
    assert not gres.detects([own])


def test_mig_nodesets_are_detected_by_nvml() -> None:
    own = builders.nodeset(gpu={"enabled": True, "autoDetect": "nvml"})
    assert gres.gres_conf(own) == ["NodeName=slurm-worker-slinky-[0-9999] AutoDetect=nvml"]


@pytest.mark.parametrize(
    "spec",
    [
        {"scalingMode": "DaemonSet"},
        {"template": {"spec": {"hostNetwork": True}}},
    ],
)
def test_workers_named_as_their_kubernetes_nodes_can_have_no_lines(spec: dict[str, Any]) -> None:
    gpu = {"enabled": True, "type": "h100", "devices": ["/dev/nvidia0"]}
    with pytest.raises(
        ResourceError, match=r"spec\.gpu\.devices: needs workers in mode StatefulSet"
    ):
        gres.gres_conf(builders.nodeset(gpu=gpu, **spec))


def test_devices_without_a_type_are_refused() -> None:
    with pytest.raises(ResourceError, match=r"spec\.gpu\.type"):
        gres.gres_conf(builders.nodeset(gpu={"enabled": True, "devices": ["/dev/nvidia0"]}))


def composed(*nodesets: Any, extra_conf: str = "", **facts: Any) -> config.ConfigSet:
    refs = [{"name": name} for name in facts.get("config_maps", ())]
    controller = builders.controller(extraConf=extra_conf, configFileRefs=refs)
    return config.compose(controller, list(nodesets), builders.facts(**facts))


def test_a_cluster_without_gpus_has_no_gres_conf_but_knows_the_type() -> None:
    files = composed(builders.nodeset()).files
    assert "gres.conf" not in files
    assert conf.parse(files["slurm.conf"]).get("GresTypes") == "gpu"


def test_one_gres_conf_serves_all_nodesets() -> None:
    declared = {"enabled": True, "type": "l4", "devices": ["/dev/nvidia0"]}
    found = composed(
        builders.nodeset("b", gpu=declared),
        builders.nodeset("a", gpu={"enabled": True}),
        builders.nodeset("c", gpu={"enabled": True, "autoDetect": "nvml"}),
        builders.nodeset("d"),
    )
    assert found.files["gres.conf"].splitlines() == [
        "AutoDetect=nvidia",
        "NodeName=b-[0-9999] AutoDetect=off Name=gpu Type=l4 File=/dev/nvidia0",
        "NodeName=c-[0-9999] AutoDetect=nvml",
    ]
    assert found.origin("gres.conf", 1) == "the operator"
    assert found.origin("gres.conf", 3) == "NodeSet slurm/c"
    assert conf.parse(found.files["slurm.conf"]).get("GresTypes") == "gpu"


def test_other_resources_of_the_users_stay_beside_gpus() -> None:
    found = composed(
        builders.nodeset(gpu={"enabled": True}), extra_conf="GresTypes=gpu,Craynetwork"
    )
    assert conf.parse(found.files["slurm.conf"]).get("GresTypes") == "Craynetwork,gpu"


def test_a_gres_conf_of_the_users_own_takes_the_place_of_ours() -> None:
    maps = {"mine": {"gres.conf": "AutoDetect=off\n"}}
    assert (
        composed(builders.nodeset(gpu={"enabled": True}), config_maps=maps).files["gres.conf"]
        == "AutoDetect=off\n"
    )


def test_lines_that_cannot_be_are_a_problem_of_gres_conf() -> None:
    gpu = {"enabled": True, "autoDetect": "nvml"}
    [problem] = composed(builders.nodeset(gpu=gpu, scalingMode="DaemonSet")).problems
    assert (problem.file, problem.origin) == ("gres.conf", "NodeSet slurm/slurm-worker-slinky")
    assert "mode StatefulSet" in problem.message
