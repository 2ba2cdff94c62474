"""The pod structure of workers."""

from dataclasses import replace
from typing import Any

import pytest

from sidecars.contract.environment import LIMITED, given_limits
from sidecars.workloads.resources import Manifest, ResourceError
from tests.support import builders
from tests.support.builders import controller, env, mounts, nodeset, part, pod_spec, restapi, volume
from tests.unit.workloads.nodeset.making import SLINKY, SSH, pod


def test_a_pod_is_placed_and_named_in_dns_as_the_reference_does() -> None:
    spec = pod_spec(pod())
    expected = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostname": "slinky-0",
        "subdomain": "slurm-workers-slurm",
        "dnsConfig": {"searches": ["slurm-workers-slurm.slurm.svc.cluster.local"]},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [
            {"key": "nodeset.slinky.slurm.net/worker", "operator": "Equal", "effect": "NoExecute"},
        ],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {
                            "matchExpressions": [
                                {
                                    "key": "app.kubernetes.io/name",
                                    "operator": "In",
                                    "values": ["slurmd"],
                                }
                            ]
                        },
                    }
                ]
            }
        },
        "terminationGracePeriodSeconds": 3600,
    }
    assert {key: spec.get(key) for key in expected} == expected
    assert "nodeName" not in spec


def test_the_cluster_domain_is_the_sites() -> None:
    site = replace(builders.facts().site, cluster_domain="k8s.example")
    assert pod_spec(pod(site=site))["dnsConfig"] == {
        "searches": ["slurm-workers-slurm.slurm.svc.k8s.example"]
    }


def test_a_node_can_be_shared_when_asked_for() -> None:
    assert "affinity" not in pod_spec(pod(nodeset(oversubscribeNode=True)))


def test_terms_and_tolerations_of_the_user_are_added_to_ours() -> None:
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    term = {"topologyKey": "zone", "labelSelector": {}}
    user = {
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"podAntiAffinity": {field: [term]}},
    }
    spec = pod_spec(pod(nodeset(template={"spec": user})))
    assert [item["topologyKey"] for item in spec["affinity"]["podAntiAffinity"][field]] == [
        "kubernetes.io/hostname",
        "zone",
    ]
    assert [item.get("key") for item in spec["tolerations"]] == [
        "nodeset.slinky.slurm.net/worker",
        None,
    ]


def test_slurmd_starts_with_what_register_found_out() -> None:
    assert part(pod(), "slurmd")["args"] == [
        "-Z",
        "--conf-server",
        "slurm-controller.slurm:6817",
        "--conf",
        '"$(cat /run/slurm-node/conf)"',
        "--extra",
        '"$(cat /run/slurm-node/extra)"',
        "--instance-id",
        '"$(cat /run/slurm-node/instance-id)"',
    ]


def test_slurmd_reports_its_own_boot_where_slurm_powers_nodes_up() -> None:
    usual = part(pod(), "slurmd")["args"]
    assert "-b" not in usual
    assert part(pod(nodeset(powerSaving={"enabled": True})), "slurmd")["args"] == [*usual, "-b"]
    verbose = nodeset(powerSaving={"enabled": True}, slurmd={"args": ["-v"]})
    assert part(pod(verbose), "slurmd")["args"] == [*usual, "-v", "-b"]


def test_power_saving_needs_the_names_of_the_nodes() -> None:
    with pytest.raises(ResourceError, match=r"^spec\.powerSaving: .* remove hostNetwork"):
        pod(nodeset(powerSaving={"enabled": True}, template={"spec": {"hostNetwork": True}}))


def test_slurmd_of_an_external_cluster_asks_the_external_slurmctld() -> None:
    cluster = controller(external=True, externalConfig={"host": "my-controller", "port": 6817})
    assert part(pod(cluster=cluster), "slurmd")["args"][1:3] == [
        "--conf-server",
        "my-controller:6817",
    ]


def test_the_entrypoint_of_the_image_has_nothing_to_add() -> None:
    found = env(pod(), "slurmd")
    assert (found["POD_CPUS"], found["POD_MEMORY"]) == ("0", "0")
    path = "metadata.annotations['topology.slinky.slurm.net/spec']"
    assert found["SLINKY_TOPOLOGY"] == {"fieldRef": {"fieldPath": path}}


def test_the_kernel_is_asked_to_spare_slurmd_when_memory_runs_out() -> None:
    assert env(pod(), "slurmd")["SLURMD_OOM_ADJ"] == "-999"


def test_slurmd_is_asked_itself_whether_it_lives() -> None:
    slurmd = part(pod(), "slurmd")
    for probe in ("startupProbe", "livenessProbe"):
        assert slurmd[probe]["httpGet"] == {"path": "/livez", "port": "slurmd"}
    assert slurmd["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "slurmd"}
    assert slurmd["startupProbe"]["periodSeconds"] == 1
    assert slurmd["ports"] == [{"name": "slurmd", "containerPort": 6818, "protocol": "TCP"}]


def test_a_slurmd_that_does_not_answer_for_minutes_stays_in_its_container() -> None:
    # The entrypoint of the image restarts slurmd within 2 minutes, and slurmctld waits 5
    # (SlurmdTimeout).
    probe = part(pod(), "slurmd")["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 600
    assert probe["timeoutSeconds"] == 10


def test_slurmd_is_privileged_unless_the_site_sets_another_value() -> None:
    capabilities = {"add": ["BPF", "NET_ADMIN", "SYS_ADMIN", "SYS_NICE"]}
    assert part(pod(), "slurmd")["securityContext"] == {
        "privileged": True,
        "capabilities": capabilities,
    }
    plain = pod(nodeset(slurmd={"securityContext": {"privileged": False}}))
    assert part(plain, "slurmd")["securityContext"] == {
        "privileged": False,
        "capabilities": capabilities,
    }


def test_slurmd_has_the_key_the_log_and_the_files_of_its_sidecars() -> None:
    workload = pod()
    assert mounts(workload, "slurmd") == {
        "/etc/slurm": "slurm-etc",
        "/var/log/slurm": "slurm-logfile",
        "/run/slurm-node": "slurm-node",
        "/run/slurm-node/hook": "slurm-node",
        "/etc/slurm-health": "slurm-health",
    }
    assert volume(workload, "slurm-etc")["projected"] == {
        "defaultMode": 0o600,
        "sources": [
            {
                "secret": {
                    "name": "slurm-auth-slurm",
                    "items": [{"key": "slurm.key", "path": "slurm.key"}],
                }
            },
            builders.SLURM_JWKS_SOURCE,
        ],
    }


def test_slurmd_shares_with_its_sidecars_only_what_jobs_can_not_write() -> None:
    workload = pod(nodeset(**SSH))
    spec = pod_spec(workload)
    shared = {
        it["name"] for container in spec["initContainers"] for it in container["volumeMounts"]
    }
    found = {
        it["mountPath"]: it.get("subPath")
        for it in part(workload, "slurmd")["volumeMounts"]
        if it["name"] in shared and not it.get("readOnly")
    }
    # Folders that register creates for root and itself, see tests/unit/register.
    assert found == {"/run/slurm-node/hook": "hook", "/var/log/slurm": "slurmd"}
    assert mounts(workload, "register") == {
        "/run/slurm-node": "slurm-node",
        "/run/slurm-node/log": "slurm-logfile",
        "/etc/podinfo": "podinfo",
    }
    assert not {"hostPID", "hostIPC", "shareProcessNamespace"} & set(spec)


def test_overrides_of_slurmd_are_laid_on() -> None:
    slurmd = part(
        pod(
            nodeset(
                slurmd={
                    "image": "mine",
                    "args": ["-vv"],
                    "volumeMounts": [{"name": "x", "mountPath": "/x"}],
                }
            )
        ),
        "slurmd",
    )
    assert (slurmd["image"], slurmd["args"][-1]) == ("mine", "-vv")
    assert {"name": "x", "mountPath": "/x"} in slurmd["volumeMounts"]


def test_two_sidecars_run_beside_slurmd_and_register_before_it() -> None:
    sidecars = [
        (item["name"], item.get("restartPolicy")) for item in pod_spec(pod())["initContainers"]
    ]
    assert sidecars == [("logfile", "Always"), ("node", "Always"), ("register", None)]


def test_init_containers_of_the_user_come_after_ours() -> None:
    of = nodeset(template={"spec": {"initContainers": [{"name": "own", "image": "i"}]}})
    assert [item["name"] for item in pod_spec(pod(of))["initContainers"]] == [
        "logfile",
        "node",
        "register",
        "own",
    ]


def test_sidecars_have_the_least_they_need() -> None:
    for name in ("logfile", "node", "register"):
        container = part(pod(), name)
        assert container["image"] == "registry.invalid/slurm-charts/sidecars:0.1.0"
        assert container["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert "startupProbe" not in container


def test_the_signing_key_is_in_nodes_container_only() -> None:
    workload = pod()
    containers = [*pod_spec(workload)["initContainers"], *pod_spec(workload)["containers"]]
    holders = [
        item["name"]
        for item in containers
        if "slurm-jwt" in mounts(workload, item["name"]).values()
    ]
    assert holders == ["node"]
    assert mounts(workload, "node")["/etc/slurm-jwt"] == "slurm-jwt"
    [source] = volume(workload, "slurm-jwt")["projected"]["sources"]
    assert source["secret"] == {
        "name": "slurm-auth-jwt",
        "items": [{"key": "jwt.key", "path": "jwt.key"}],
    }


def field(path: str) -> dict[str, Any]:
    """Where the downward API takes a value from."""
    return {"fieldRef": {"fieldPath": path}}


def test_node_knows_its_slurm_node_its_pod_and_slurmrestd() -> None:
    of = nodeset(template={"spec": {"terminationGracePeriodSeconds": 120}})
    assert env(pod(of, restapi=restapi(service={"port": 80})), "node") == {
        "SLURM_NODE_NAME": field("metadata.labels['nodeset.slinky.slurm.net/pod-hostname']"),
        "POD_NAME": field("metadata.name"),
        "POD_NAMESPACE": field("metadata.namespace"),
        "POD_UID": field("metadata.uid"),
        "NODESET_UID": "uid-of-slurm-worker-slinky",
        "SLURMRESTD_URL": "http://slurm-restapi.slurm:80",
        "TERMINATION_GRACE_SECONDS": "120",
    }


def test_on_the_hosts_network_the_slurm_node_is_the_kubernetes_node() -> None:
    workload = pod(nodeset(template={"spec": {"hostNetwork": True}}))
    assert env(workload, "node")["SLURM_NODE_NAME"] == field("spec.nodeName")


def test_register_knows_what_the_nodeset_decides() -> None:
    of = nodeset(
        slurmd={"resources": {"limits": {"cpu": "1500m", "memory": "2Gi"}}},
        extraConf="weight=10",
        **SLINKY,
    )
    found = env(pod(of), "register")
    given = {name for container in LIMITED for name in given_limits(container)}
    assert {name: value for name, value in found.items() if name not in given} == {
        "NODESET_UID": "uid-of-slurm-worker-slinky",
        "NODESET_CONF": "Features=slinky Weight=10",
        "REGISTER_CPUS": "2",
        "REGISTER_MEMORY_MIB": "2048",
        "REGISTER_POD_MEMORY_MIB": "0",
        "REGISTER_EXCLUSIVE_CPUS": "true",
        "SLINKY_TOPOLOGY": field("metadata.annotations['topology.slinky.slurm.net/spec']"),
        "POD_NAME": field("metadata.name"),
        "POD_NAMESPACE": field("metadata.namespace"),
        "POD_UID": field("metadata.uid"),
        "POD_IP": field("status.podIP"),
        "KUBE_NODE_NAME": field("spec.nodeName"),
    }


def hook(workload: Manifest) -> str:
    """The script of slurmd's preStop hook."""
    command = part(workload, "slurmd")["lifecycle"]["preStop"]["exec"]["command"]
    assert command[:2] == ["sh", "-c"]
    return str(command[2])


@pytest.mark.parametrize(("grace", "bound"), [(None, 3580), (600, 580), (21, 1), (5, 1), (0, 1)])
def test_the_hook_ends_before_the_grace_period_does(grace: int | None, bound: int) -> None:
    workload = pod(nodeset(template={"spec": {"terminationGracePeriodSeconds": grace}}))
    assert f"+ {bound}))" in hook(workload)
    assert pod_spec(workload)["terminationGracePeriodSeconds"] == (3600 if grace is None else grace)


@pytest.mark.parametrize("grace", ["30", -1, True])
def test_a_grace_that_is_no_number_of_seconds_is_refused(grace: Any) -> None:
    with pytest.raises(ResourceError, match="terminationGracePeriodSeconds"):
        pod(nodeset(template={"spec": {"terminationGracePeriodSeconds": grace}}))
