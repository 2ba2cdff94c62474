"""Node health in custom resources: slurm.conf, the pods and the ConfigMap with the checks."""

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sidecars.contract import paths
from sidecars.slurm import conf
from sidecars.workloads import health, nodeset, structure
from sidecars.workloads.config import compose
from sidecars.workloads.resources import Manifest, ResourceError
from tests.support import builders

OURS = ["disk", "gpu-answers", "gpu-count", "gpu-ecc", "gpu-xid", "memory", "mounts"]


def config_map(**spec: Any) -> Manifest:
    of = builders.nodeset(**spec)
    [found] = nodeset.objects(of, builders.controller(), builders.facts())
    return found


def settings(**spec: Any) -> dict[str, str]:
    """The settings as a shell reads them."""
    text = config_map(**spec)["data"]["settings"]
    words = [shlex.split(line) for line in text.splitlines()]
    assert all(len(line) == 1 for line in words)
    return dict(line[0].split("=", 1) for line in words)


def slurm_conf(extra: str = "", *specs: dict[str, Any]) -> str:
    nodesets = [builders.nodeset(f"n{index}", **spec) for index, spec in enumerate(specs)]
    return compose(builders.controller(extraConf=extra), nodesets, builders.facts()).files[
        "slurm.conf"
    ]


def test_every_worker_has_the_program_for_slurm_runs_it_on_all() -> None:
    template = nodeset.pod_template(builders.nodeset(), builders.controller(), builders.facts())
    [mount] = [
        it
        for it in builders.part(template, "slurmd")["volumeMounts"]
        if it["name"] == "slurm-health"
    ]
    [volume] = [it for it in template["spec"]["volumes"] if it["name"] == "slurm-health"]
    assert mount["mountPath"] == paths.HEALTH
    assert volume["configMap"] == {
        "name": "slurm-worker-slinky-health",
        "defaultMode": 0o555,
        "optional": True,
    }
    assert health.PROGRAM.startswith(f"{paths.HEALTH}/")
    assert config_map()["metadata"]["name"] == "slurm-worker-slinky-health"


@pytest.mark.parametrize(
    ("spec", "on"),
    [
        ({}, False),
        ({"gpu": {"enabled": True}}, True),
        ({"gpu": {"enabled": True}, "health": {"enabled": False}}, False),
        ({"health": {"enabled": True}}, True),
        ({"health": {"diskFreePercent": 5}}, False),
    ],
)
def test_workers_are_checked_where_they_have_gpus_or_as_the_nodeset_sets(
    spec: dict[str, Any], on: bool
) -> None:
    assert bool(settings(**spec)["CHECKS"]) == on
    assert ("HealthCheckProgram" in slurm_conf("", {}, spec)) == on
    assert "run" in config_map(**spec)["data"]


def test_slurm_runs_the_program_where_the_pods_have_it() -> None:
    found = conf.parse(slurm_conf("", {"health": {"enabled": True}}))
    assert found.get("HealthCheckProgram") == "/etc/slurm-health/run"
    assert "run" in config_map(health={"enabled": True})["data"]


def test_slurm_starts_the_program_again_only_after_the_time_that_it_grants_a_run() -> None:
    found = conf.parse(slurm_conf("", {"health": {"enabled": True}}))
    # Slurm's own, which Slurm 25.11 does not let one set (HealthCheckTimeout).
    assert int(found.get("HealthCheckInterval") or 0) > 60
    assert found.get("HealthCheckTimeout") is None


def test_a_program_of_the_users_own_takes_the_place_of_ours() -> None:
    on = {"health": {"enabled": True}}
    found = slurm_conf("healthcheckprogram = /usr/sbin/nhc", on)
    assert health.PROGRAM not in found
    assert "HealthCheckInterval" not in found
    assert health.PROGRAM in slurm_conf("# HealthCheckProgram=/usr/sbin/nhc", on)


def test_an_interval_of_the_users_own_wins() -> None:
    found = conf.parse(slurm_conf("HealthCheckInterval=300", {"health": {"enabled": True}}))
    assert [line.get("HealthCheckInterval") for line in found.all("HealthCheckInterval")] == ["300"]
    assert found.get("HealthCheckProgram") == health.PROGRAM


def test_a_nodeset_without_gpus_runs_no_checks_of_gpus() -> None:
    found = settings(health={"enabled": True})
    assert found["CHECKS"] == "disk memory mounts"
    assert "GPUS" not in found


def test_a_gpu_nodeset_runs_all_checks_with_the_number_it_expects() -> None:
    found = settings(gpu={"enabled": True})
    assert found["CHECKS"].split() == OURS
    assert (found["GPUS"], found["MIG"]) == ("8", "0")
    assert settings(gpu={"enabled": True, "expected": 7})["GPUS"] == "7"
    limits = {"resources": {"limits": {"nvidia.com/gpu": 4}}}
    assert settings(gpu={"enabled": True}, slurmd=limits)["GPUS"] == "4"
    assert settings(gpu={"enabled": True, "resourceName": "nvidia.com/mig-1g.5gb"})["MIG"] == "1"


def test_checks_can_be_left_out_and_added() -> None:
    own = {"fabric": "#!/bin/sh\nexit 0\n", "gpu-link": "#!/bin/sh\nexit 0\n"}
    spec = {"enabled": True, "skip": ["disk"], "checks": own}
    assert settings(health=spec)["CHECKS"] == "fabric gpu-link memory mounts"
    assert config_map(health=spec)["data"]["check-fabric"] == own["fabric"]


def test_a_check_to_skip_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(
        ResourceError,
        match=r"spec\.health\.skip: 'gpu-ec' is none of the checks: disk, gpu-answers, ",
    ):
        config_map(health={"enabled": True, "skip": ["gpu-ec"]})


def test_a_check_of_the_operators_name_is_refused() -> None:
    with pytest.raises(
        ResourceError, match=r"spec\.health\.checks: disk is a check of the operator's"
    ):
        config_map(health={"enabled": True, "checks": {"disk": "#!/bin/sh\n"}})


def test_a_quote_that_would_end_a_setting_is_refused() -> None:
    with pytest.raises(ResourceError, match="may contain no quote"):
        config_map(health={"enabled": True, "paths": ["/a'; reboot; '"]})


def test_limits_are_the_programs_settings() -> None:
    spec = {
        "checkSeconds": 5,
        "disks": ["/a", "/b"],
        "diskFreePercent": 10,
        "memoryFreePercent": 2,
        "paths": ["/home"],
    }
    found = settings(health={"enabled": True, "xids": [79, 48]} | spec)
    assert found == {
        "CHECKS": "disk memory mounts",
        "CHECK_SECONDS": "5",
        "DISKS": "/a /b",
        "DISK_FREE_PERCENT": "10",
        "MEMORY_FREE_PERCENT": "2",
        "PATHS": "/home",
        "XIDS": "79 48",
    }


def test_no_change_of_health_is_a_new_revision() -> None:
    hashes = {
        nodeset.revision(builders.nodeset(**spec), builders.controller(), builders.facts()).hash
        for spec in (
            {},
            {"health": {"enabled": True, "diskFreePercent": 9}},
            {"health": {"enabled": False}},
        )
    }
    assert len(hashes) == 1


def scripts() -> list[Path]:
    return sorted(structure.folder(None).glob("*.sh"))


@pytest.mark.parametrize("script", scripts(), ids=lambda script: script.stem)
def test_every_script_is_plain_sh_and_states_what_it_is_for(script: Path) -> None:
    text = script.read_text()
    first, second = text.splitlines()[:2]
    assert first == "#!/bin/sh"
    assert second.startswith("# ")
    for shell in ("dash", "bash"):
        done = subprocess.run(
            [shell, "-n", script], capture_output=True, text=True, check=False, env=dict(os.environ)
        )
        assert (done.returncode, done.stderr) == (0, "")
    for bashism in ("[[ ", "function ", "local ", "<<<", "$'", "&>", "source "):
        assert bashism not in text


def test_every_check_is_in_the_docs() -> None:
    page = (Path(__file__).parents[3] / "docs/health.md").read_text()
    for script in scripts():
        if script.stem.startswith("health-check-"):
            assert f"| `{script.stem.removeprefix('health-check-')}` |" in page
