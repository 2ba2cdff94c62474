"""slurmrestd's objects."""

import pytest

from sidecars.workloads import restapi as render
from sidecars.workloads.assembly import find
from sidecars.workloads.config_maps import CONFIG_MAPS
from sidecars.workloads.facts import digest
from sidecars.workloads.resources import Controller, Manifest, RestApi
from tests.support import builders
from tests.support.builders import SLURM_JWKS_SOURCE, controller, env, mounts, part, pod_spec, restapi, volume


def objects(of: RestApi | None = None, cluster: Controller | None = None) -> list[Manifest]:
    """What is rendered."""
    return render.objects(of or restapi(), cluster or controller(), builders.facts())


def deployment(of: RestApi | None = None, cluster: Controller | None = None) -> Manifest:
    """The Deployment among it."""
    return find(objects(of, cluster), "Deployment")


def test_there_is_a_service_and_a_deployment() -> None:
    rendered = objects(restapi(replicas=2))
    assert [(item["kind"], item["metadata"]["name"]) for item in rendered] == [
        ("Service", "slurm-restapi"),
        ("Deployment", "slurm-restapi"),
    ]
    assert rendered[0]["spec"]["ports"] == [
        {"name": "slurmrestd", "port": 6820, "protocol": "TCP", "targetPort": "slurmrestd"}
    ]
    assert rendered[1]["spec"]["replicas"] == 2
    assert rendered[1]["spec"]["selector"]["matchLabels"] == rendered[0]["spec"]["selector"]


def test_it_can_be_scaled_to_zero() -> None:
    assert deployment(restapi(replicas=0))["spec"]["replicas"] == 0


def test_slurmrestd_runs_as_nobody_and_without_the_part_for_slurmdbd() -> None:
    workload = deployment()
    assert part(workload, "slurmrestd")["args"] == ["-s", "openapi/slurmctld", "0.0.0.0:6820"]
    assert env(workload, "slurmrestd") == {
        "SLURM_JWT": "daemon",
        "SLURMRESTD_JSON": "compact",
        "SLURMRESTD_SECURITY": "disable_unshare_files,disable_unshare_sysv",
    }
    context = pod_spec(workload)["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"], context["fsGroup"]) == (True, 65534, 65534)
    assert pod_spec(workload)["automountServiceAccountToken"] is False


def test_with_accounting_slurmrestd_offers_all_it_has() -> None:
    cluster = controller(accountingRef={"name": "slurm"})
    assert part(deployment(cluster=cluster), "slurmrestd")["args"] == ["0.0.0.0:6820"]


def test_arguments_of_the_user_stand_before_the_address() -> None:
    workload = deployment(restapi(slurmrestd={"args": ["-vv"], "image": "mine"}))
    assert part(workload, "slurmrestd")["args"] == ["-s", "openapi/slurmctld", "-vv", "0.0.0.0:6820"]
    assert part(workload, "slurmrestd")["image"] == "mine"


def test_slurmrestd_reads_the_configuration_and_one_key() -> None:
    workload = deployment()
    assert mounts(workload, "slurmrestd") == {"/etc/slurm": "slurm-etc"}
    assert volume(workload, "slurm-etc")["projected"] == {
        "defaultMode": 0o600,
        "sources": [
            {"configMap": {"name": "slurm-config"}},
            *({"configMap": {"name": f"slurm-config-{index}", "optional": True}} for index in range(1, CONFIG_MAPS)),
            {"secret": {"name": "slurm-auth-slurm", "items": [{"key": "slurm.key", "path": "slurm.key"}]}},
            SLURM_JWKS_SOURCE,
        ],
    }


def annotations(extra_conf: str = "") -> dict[str, str]:
    """Of the pods, with these lines in slurm.conf."""
    template = deployment(cluster=controller(extraConf=extra_conf))["spec"]["template"]
    return dict(template["metadata"]["annotations"])


@pytest.mark.parametrize(
    "line", ["MessageTimeout=20", "  authinfo = ttl=60", "TLSType=tls/s2n", "SelectType=\\\nselect/linear"]
)
def test_a_setting_of_how_to_reach_slurm_restarts_slurmrestd(line: str) -> None:
    assert annotations()["slinky.slurm.net/slurm-key-hash"] == digest("keys")
    assert annotations(line) != annotations()
    assert annotations(f"{line}0") != annotations(line)


@pytest.mark.parametrize(
    "lines",
    ["SlurmctldTimeout=10", "PartitionName=p Nodes=ALL", "#MessageTimeout=20", "NodeName=n Weight=2", "KillWait=9"],
)
def test_what_slurmctld_tells_slurmrestd_restarts_nothing(lines: str) -> None:
    assert annotations(lines) == annotations()


def test_another_slurmrestd_answers_before_one_goes() -> None:
    assert deployment()["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_a_changed_file_restarts_slurmrestd_if_slurm_conf_includes_it() -> None:
    def config_hash(text: str, extra: str) -> str:
        cluster = controller(configFileRefs=[{"name": "more"}], extraConf=extra)
        known = builders.facts(config_maps={"more": {"more.conf": text}})
        found = find(render.objects(restapi(), cluster, known), "Deployment")
        return str(found["spec"]["template"]["metadata"]["annotations"]["slinky.slurm.net/slurm-config-hash"])

    assert config_hash("MessageTimeout=10", "Include more.conf") != config_hash(
        "MessageTimeout=11", "Include more.conf"
    )
    assert config_hash("MessageTimeout=10", "") == config_hash("MessageTimeout=11", "")


def test_the_address_follows_the_service() -> None:
    assert render.url(restapi()) == "http://slurm-restapi.slurm:6820"
    assert render.url(restapi(service={"port": 80})) == "http://slurm-restapi.slurm:80"
    assert render.url_for(controller(), None) == "http://slurm-restapi.slurm:6820"


def test_an_external_controller_is_asked_by_a_slurmrestd_here() -> None:
    cluster = controller(external=True, externalConfig={"host": "ctl", "port": 1})
    assert deployment(cluster=cluster)["metadata"]["name"] == "slurm-restapi"
