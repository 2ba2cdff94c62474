"""slurmrestd's objects."""

import pytest

from sidecars.workloads import restapi as render
from sidecars.workloads.assembly import find
from sidecars.workloads.config_maps import CONFIG_MAPS
from sidecars.workloads.facts import digest
from sidecars.workloads.resources import Controller, Manifest, RestApi
from tests.support import builders
from tests.support.builders import (
    SLURM_JWKS_SOURCE,
    controller,
    env,
    mounts,
    part,
    pod_spec,
    restapi,
    volume,
)


def objects(
    of: RestApi | None = None,
    cluster: Controller | None = None,
    files: dict[str, str | bytes] | None = None,
) -> list[Manifest]:
    """What is rendered."""
    return render.objects(
        of or restapi(), cluster or controller(), builders.facts(), files or {"slurm.conf": ""}
    )


def deployment(of: RestApi | None = None, cluster: Controller | None = None) -> Manifest:
    """The Deployment among it."""
    return find(objects(of, cluster), "Deployment")


def test_slurmrestd_of_an_external_controller_reads_what_is_published() -> None:
    cluster = controller(external=True, externalConfig={"host": "ctl", "port": 1})
    sources = volume(deployment(cluster=cluster), "slurm-etc")["projected"]["sources"]
    assert [it["configMap"]["name"] for it in sources[:2]] == ["slurm-config", "slurm-config-1"]


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
    assert (context["runAsNonRoot"], context["runAsUser"], context["fsGroup"]) == (
        True,
        65534,
        65534,
    )
    assert pod_spec(workload)["automountServiceAccountToken"] is False


def test_slurmrestd_offers_the_part_for_slurmdbd_when_slurmctld_has_accepted_accounting() -> None:
    cluster = controller(accountingRef={"name": "slurm"})
    assert part(deployment(cluster=cluster), "slurmrestd")["args"] == [
        "-s",
        "openapi/slurmctld",
        "0.0.0.0:6820",
    ]
    workload = find(
        objects(files={"slurm.conf": "AccountingStorageType=accounting_storage/slurmdbd\n"}),
        "Deployment",
    )
    assert part(workload, "slurmrestd")["args"] == ["0.0.0.0:6820"]


def test_slurmrestd_listens_on_all_addresses_of_the_family_of_the_pods() -> None:
    rendered = render.objects(restapi(), controller(), builders.with_ipv6(), {})
    args = part(find(rendered, "Deployment"), "slurmrestd")["args"]
    assert args[-1] == "[::]:6820"


def test_arguments_of_the_user_stand_before_the_address() -> None:
    workload = deployment(restapi(slurmrestd={"args": ["-vv"], "image": "mine"}))
    assert part(workload, "slurmrestd")["args"] == [
        "-s",
        "openapi/slurmctld",
        "-vv",
        "0.0.0.0:6820",
    ]
    assert part(workload, "slurmrestd")["image"] == "mine"


def test_slurmrestd_reads_the_accepted_configuration_and_one_key() -> None:
    workload = deployment()
    assert mounts(workload, "slurmrestd") == {"/etc/slurm": "slurm-etc"}
    assert volume(workload, "slurm-etc")["projected"] == {
        "defaultMode": 0o600,
        "sources": [
            {"configMap": {"name": "slurm-config-accepted"}},
            *(
                {"configMap": {"name": f"slurm-config-accepted-{index}", "optional": True}}
                for index in range(1, CONFIG_MAPS)
            ),
            {
                "secret": {
                    "name": "slurm-auth-slurm",
                    "items": [{"key": "slurm.key", "path": "slurm.key"}],
                }
            },
            SLURM_JWKS_SOURCE,
        ],
    }


def annotations(lines: str = "", **files: str) -> dict[str, str]:
    """Of the pods, with these lines in the accepted slurm.conf, and other files."""
    accepted = {
        "slurm.conf": f"ClusterName=lab\n{lines}\n",
        **{f"{name}.conf": text for name, text in files.items()},
    }
    template = find(objects(files=dict(accepted)), "Deployment")["spec"]["template"]
    return dict(template["metadata"]["annotations"])


@pytest.mark.parametrize(
    "line",
    ["MessageTimeout=20", "  authinfo = ttl=60", "TLSType=tls/s2n", "SelectType=\\\nselect/linear"],
)
def test_a_setting_of_how_to_reach_slurm_restarts_slurmrestd(line: str) -> None:
    assert annotations()["slinky.slurm.net/slurm-key-hash"] == digest("keys")
    assert annotations(line) != annotations()
    assert annotations(f"{line}0") != annotations(line)


@pytest.mark.parametrize(
    "lines",
    [
        "SlurmctldTimeout=10",
        "PartitionName=p Nodes=ALL",
        "#MessageTimeout=20",
        "NodeName=n Weight=2",
        "KillWait=9",
    ],
)
def test_what_slurmctld_sends_to_slurmrestd_restarts_nothing(lines: str) -> None:
    assert annotations(lines) == annotations()


def test_another_slurmrestd_answers_before_one_goes() -> None:
    assert deployment()["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_a_changed_file_restarts_slurmrestd_if_slurm_conf_includes_it() -> None:
    included = annotations("Include more.conf", more="MessageTimeout=10")
    assert included != annotations("Include more.conf", more="MessageTimeout=11")
    assert annotations(more="MessageTimeout=10") == annotations(more="MessageTimeout=11")


def test_the_address_follows_the_service() -> None:
    assert render.url(restapi()) == "http://slurm-restapi.slurm:6820"
    assert render.url(restapi(service={"port": 80})) == "http://slurm-restapi.slurm:80"
    assert render.url_for(controller(), None) == "http://slurm-restapi.slurm:6820"


def test_an_external_controller_is_asked_by_a_slurmrestd_here() -> None:
    cluster = controller(external=True, externalConfig={"host": "ctl", "port": 1})
    assert deployment(cluster=cluster)["metadata"]["name"] == "slurm-restapi"
