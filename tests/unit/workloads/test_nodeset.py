"""Worker pods and what belongs to them."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from sidecars.workloads import nodeset as render
from sidecars.workloads.assembly import find
from sidecars.workloads.facts import NOTHING, Facts, Site, digest
from sidecars.workloads.resources import Controller, Manifest, NodeSet, ResourceError
from sidecars.workloads.structure import Workloads
from tests.support import builders
from tests.support.builders import controller, env, mounts, nodeset, part, pod_spec, restapi, volume

SLINKY: dict[str, Any] = {"template": {"spec": {"hostname": "slinky-", "nodeSelector": {"kubernetes.io/os": "linux"}}}}


def pod(of: NodeSet | None = None, ordinal: int = 0, cluster: Controller | None = None, **facts: Any) -> Manifest:
    """The pod of an ordinal."""
    found = builders.facts(**facts)
    wanted = of or nodeset(**SLINKY)
    template = render.pod_template(wanted, cluster or controller(), found)
    return render.pod(wanted, template, ordinal, "abc")


def hostnamed(prefix: str, **spec: Any) -> NodeSet:
    """A NodeSet with this prefix of hostnames."""
    return nodeset(template={"spec": {"hostname": prefix}}, **spec)


# The pod


def test_a_pod_is_named_labelled_and_owned_by_its_nodeset() -> None:
    metadata = pod(nodeset(meta={"labels": {"team": "a", "helm.sh/chart": "slurm-1"}}, **SLINKY))["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("slurm-worker-slinky-0", "slurm")
    assert metadata["labels"] == {
        "team": "a",
        "app.kubernetes.io/name": "slurmd",
        "app.kubernetes.io/instance": "slurm-worker-slinky",
        "app.kubernetes.io/component": "worker",
        "slinky.slurm.net/cluster": "slurm",
        "nodeset.slinky.slurm.net/pod-name": "slurm-worker-slinky-0",
        "nodeset.slinky.slurm.net/pod-index": "0",
        "nodeset.slinky.slurm.net/pod-hostname": "slinky-0",
        "nodeset.slinky.slurm.net/scaling-mode": "StatefulSet",
        "controller-revision-hash": "abc",
    }
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "slinky.slurm.net/v1beta1",
            "kind": "NodeSet",
            "name": "slurm-worker-slinky",
            "uid": "uid-of-slurm-worker-slinky",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert metadata["annotations"] == {
        "kubectl.kubernetes.io/default-container": "slurmd",
        "slinky.slurm.net/slurm-key-hash": digest("key"),
        "slinky.slurm.net/jwt-key-hash": digest("jwt"),
        "slinky.slurm.net/sshd-conf-hash": NOTHING,
        "slinky.slurm.net/sssd-conf-hash": NOTHING,
    }


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
                                {"key": "app.kubernetes.io/name", "operator": "In", "values": ["slurmd"]}
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
    assert pod_spec(pod(site=site))["dnsConfig"] == {"searches": ["slurm-workers-slurm.slurm.svc.k8s.example"]}


def test_a_node_can_be_shared_when_asked_for() -> None:
    assert "affinity" not in pod_spec(pod(nodeset(oversubscribeNode=True)))


def test_terms_and_tolerations_of_the_user_are_added_to_ours() -> None:
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    term = {"topologyKey": "zone", "labelSelector": {}}
    user = {"tolerations": [{"operator": "Exists"}], "affinity": {"podAntiAffinity": {field: [term]}}}
    spec = pod_spec(pod(nodeset(template={"spec": user})))
    assert [item["topologyKey"] for item in spec["affinity"]["podAntiAffinity"][field]] == [
        "kubernetes.io/hostname",
        "zone",
    ]
    assert [item.get("key") for item in spec["tolerations"]] == ["nodeset.slinky.slurm.net/worker", None]


def test_ordinals_are_padded_in_name_index_and_hostname() -> None:
    metadata = pod(hostnamed("gpu-", ordinalPadding=3), 7)["metadata"]
    assert metadata["name"] == "slurm-worker-slinky-007"
    assert metadata["labels"]["nodeset.slinky.slurm.net/pod-index"] == "007"
    assert metadata["labels"]["nodeset.slinky.slurm.net/pod-hostname"] == "gpu-007"


def test_without_a_prefix_the_pods_name_is_the_hostname() -> None:
    assert pod_spec(pod(nodeset(), 2))["hostname"] == "slurm-worker-slinky-2"


@pytest.mark.parametrize("prefix", ["GPU-", "gpu.a-", "a b-", "-", "a" * 63, "gpu\n"])
def test_a_prefix_that_makes_no_hostnames_is_refused(prefix: str) -> None:
    with pytest.raises(ResourceError, match=r"^spec\.template\.spec\.hostname: "):
        pod(hostnamed(prefix))


def test_the_ordinal_is_read_from_the_name_whatever_its_padding() -> None:
    of = nodeset("a-1")
    found = [render.ordinal_of(of, name) for name in ("a-1-0", "a-1-007", "a-1", "a-1-", "a-1-x", "b-0", "a-1-0-1")]
    assert found == [0, 7, None, None, None, None, None]


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({"hostname": "gpu-0"}, "gpu-0"),
        ({}, "p"),
        ({"hostNetwork": True, "nodeName": "n1", "hostname": "gpu-0"}, "n1"),
        ({"hostNetwork": True, "hostname": "gpu-0"}, ""),
    ],
)
def test_the_slurm_node_is_named_after_the_host(spec: dict[str, Any], name: str) -> None:
    assert render.slurm_node_name({"metadata": {"name": "p"}, "spec": spec}) == name


# slurmd


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


def test_slurmd_of_an_external_cluster_asks_the_external_slurmctld() -> None:
    cluster = controller(external=True, externalConfig={"host": "my-controller", "port": 6817})
    assert part(pod(cluster=cluster), "slurmd")["args"][1:3] == ["--conf-server", "my-controller:6817"]


def test_the_entrypoint_of_the_image_has_nothing_to_add() -> None:
    found = env(pod(), "slurmd")
    assert (found["POD_CPUS"], found["POD_MEMORY"]) == ("0", "0")
    path = "metadata.annotations['topology.slinky.slurm.net/spec']"
    assert found["SLINKY_TOPOLOGY"] == {"fieldRef": {"fieldPath": path}}


def test_slurmd_is_asked_itself_whether_it_lives() -> None:
    slurmd = part(pod(), "slurmd")
    for probe in ("startupProbe", "livenessProbe"):
        assert slurmd[probe]["httpGet"] == {"path": "/livez", "port": "slurmd"}
    assert slurmd["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "slurmd"}
    assert slurmd["startupProbe"]["periodSeconds"] == 1
    assert slurmd["ports"] == [{"name": "slurmd", "containerPort": 6818, "protocol": "TCP"}]


def test_slurmd_is_privileged_unless_the_site_says_otherwise() -> None:
    capabilities = {"add": ["BPF", "NET_ADMIN", "SYS_ADMIN", "SYS_NICE"]}
    assert part(pod(), "slurmd")["securityContext"] == {"privileged": True, "capabilities": capabilities}
    plain = pod(nodeset(slurmd={"securityContext": {"privileged": False}}))
    assert part(plain, "slurmd")["securityContext"] == {"privileged": False, "capabilities": capabilities}


def test_slurmd_has_the_key_the_log_and_the_files_of_its_sidecars() -> None:
    workload = pod()
    assert mounts(workload, "slurmd") == {
        "/etc/slurm": "slurm-etc",
        "/var/log/slurm": "slurm-logfile",
        "/run/slurm-node": "slurm-node",
        "/etc/slurm-health": "slurm-health",
    }
    assert volume(workload, "slurm-etc")["projected"] == {
        "defaultMode": 0o600,
        "sources": [
            {"secret": {"name": "slurm-auth-slurm", "items": [{"key": "slurm.key", "path": "slurm.key"}]}},
            builders.SLURM_JWKS_SOURCE,
        ],
    }


def test_overrides_of_slurmd_are_laid_on() -> None:
    slurmd = part(
        pod(nodeset(slurmd={"image": "mine", "args": ["-vv"], "volumeMounts": [{"name": "x", "mountPath": "/x"}]})),
        "slurmd",
    )
    assert (slurmd["image"], slurmd["args"][-1]) == ("mine", "-vv")
    assert {"name": "x", "mountPath": "/x"} in slurmd["volumeMounts"]


# Its sidecars


def test_two_sidecars_run_beside_slurmd_and_register_before_it() -> None:
    sidecars = [(item["name"], item.get("restartPolicy")) for item in pod_spec(pod())["initContainers"]]
    assert sidecars == [("logfile", "Always"), ("node", "Always"), ("register", None)]


def test_init_containers_of_the_user_come_after_ours() -> None:
    of = nodeset(template={"spec": {"initContainers": [{"name": "own", "image": "i"}]}})
    assert [item["name"] for item in pod_spec(pod(of))["initContainers"]] == ["logfile", "node", "register", "own"]


def test_sidecars_have_the_least_they_need() -> None:
    for name in ("logfile", "node", "register"):
        container = part(pod(), name)
        assert container["image"] == "ghcr.io/slurm-charts/sidecars:0.1.0"
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
    holders = [item["name"] for item in containers if "slurm-jwt" in mounts(workload, item["name"]).values()]
    assert holders == ["node"]
    assert mounts(workload, "node")["/etc/slurm-jwt"] == "slurm-jwt"
    [source] = volume(workload, "slurm-jwt")["projected"]["sources"]
    assert source["secret"] == {"name": "slurm-auth-jwt", "items": [{"key": "jwt.key", "path": "jwt.key"}]}


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
    of = nodeset(slurmd={"resources": {"limits": {"cpu": "1500m", "memory": "2Gi"}}}, extraConf="weight=10", **SLINKY)
    assert env(pod(of), "register") == {
        "NODESET_UID": "uid-of-slurm-worker-slinky",
        "NODESET_CONF": "Features=slinky Weight=10",
        "REGISTER_CPUS": "2",
        "REGISTER_MEMORY_MIB": "2048",
        "SLINKY_TOPOLOGY": field("metadata.annotations['topology.slinky.slurm.net/spec']"),
        "POD_NAME": field("metadata.name"),
        "POD_NAMESPACE": field("metadata.namespace"),
        "POD_UID": field("metadata.uid"),
        "POD_IP": field("status.podIP"),
        "KUBE_NODE_NAME": field("spec.nodeName"),
    }


def test_limits_of_the_container_count_before_those_of_the_pod() -> None:
    of = nodeset(
        slurmd={"resources": {"limits": {"cpu": "1500m"}}},
        template={"spec": {"resources": {"limits": {"cpu": "8", "memory": "4Gi"}}}},
    )
    found = env(pod(of), "register")
    assert (found["REGISTER_CPUS"], found["REGISTER_MEMORY_MIB"]) == ("2", "4096")


def test_without_limits_register_is_told_none() -> None:
    found = env(pod(), "register")
    assert (found["REGISTER_CPUS"], found["REGISTER_MEMORY_MIB"]) == ("0", "0")


@pytest.mark.parametrize(
    ("extra_conf", "conf"),
    [
        ("", "Features=slinky"),
        ("features=bar", "Features=bar,slinky"),
        ("Weight=10 feature=gpu,bar\nTopology=default:s1", "Features=bar,gpu,slinky Topology=default:s1 Weight=10"),
        ("realMemory=100 weight=1 Weight=2", "Features=slinky RealMemory=100 Weight=2"),
        ("Reason=\"bad disk\"  Weight='10' State='DRAIN'", 'Features=slinky Reason="bad disk" State=DRAIN Weight=10'),
    ],
)
def test_items_of_conf_are_sorted_and_features_united(extra_conf: str, conf: str) -> None:
    assert render.node_conf(nodeset(extraConf=extra_conf, **SLINKY)) == conf


@pytest.mark.parametrize("extra_conf", ["gpu", "Weight=", "=3", "Weight = 3", "a=b \x00", 'a="b', 'a="b"c', "a=''"])
def test_an_extra_conf_that_is_no_list_of_items_is_refused(extra_conf: str) -> None:
    with pytest.raises(ResourceError, match=r"^spec\.extraConf: "):
        pod(nodeset(extraConf=extra_conf))


@pytest.mark.parametrize("extra_conf", ["Reason=it's", """Reason='a "b" c'""", r"Reason=a\b"])
def test_a_value_that_slurmd_s_command_line_can_t_hold_is_refused(extra_conf: str) -> None:
    with pytest.raises(ResourceError, match=r"^spec\.extraConf: the value of Reason has a .* write it without$"):
        pod(nodeset(extraConf=extra_conf))


@pytest.mark.parametrize(
    ("extra_conf", "said"),
    [("Wieght=10", "Wieght isn't a key of a node in slurm.conf; is it Weight?"), ("Foo=1", "Foo isn't a key")],
)
def test_a_key_that_slurmd_would_end_over_is_refused(extra_conf: str, said: str) -> None:
    with pytest.raises(ResourceError, match=re.escape(said)):
        pod(nodeset(extraConf=extra_conf, slurmd={"image": "slurmd:26.05-ubuntu24.04"}))


@pytest.mark.parametrize("image", ["slurmd:99.05", "slurmd:next"])
def test_a_release_that_is_not_known_may_have_other_keys(image: str) -> None:
    assert "NewKey=1" in render.node_conf(nodeset(extraConf="NewKey=1", slurmd={"image": image}))


# Leaving


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


# ssh

SSH: dict[str, Any] = {"ssh": {"enabled": True, "extraSshdConfig": "MaxAuthTries 2", "sssdConfRef": builders.SSSD}}


def test_with_ssh_a_worker_has_sshd_and_sssd_configuration() -> None:
    workload = pod(nodeset(**SSH))
    found = mounts(workload, "slurmd")
    assert (found["/etc/ssh/sshd_config"], found["/etc/sssd/sssd.conf"]) == ("ssh-config", "sssd-conf")
    assert found["/run/slurm-node"] == "slurm-node"
    assert {port["name"]: port["containerPort"] for port in part(workload, "slurmd")["ports"]} == {
        "slurmd": 6818,
        "ssh": 22,
    }
    annotations = workload["metadata"]["annotations"]
    assert annotations["slinky.slurm.net/sssd-conf-hash"] == digest("sssd")
    assert annotations["slinky.slurm.net/sshd-conf-hash"] != NOTHING


def test_with_ssh_a_nodeset_owns_a_config_map() -> None:
    [health] = render.objects(nodeset(), controller(), builders.facts())
    assert health["metadata"]["name"] == "slurm-worker-slinky-health"
    [_, config_map] = render.objects(nodeset(**SSH), controller(), builders.facts())
    lines = config_map["data"]["sshd_config"].splitlines()
    assert config_map["metadata"]["name"] == "slurm-worker-slinky-ssh-config"
    assert config_map["metadata"]["ownerReferences"][0]["name"] == "slurm-worker-slinky"
    assert "AuthenticationMethods publickey password" in lines
    assert lines[-1] == "MaxAuthTries 2"


def test_ssh_without_an_sssd_conf_is_refused() -> None:
    with pytest.raises(ResourceError, match=r"^spec\.ssh\.sssdConfRef: "):
        pod(nodeset(ssh={"enabled": True}))


# Claims and pinning

CLAIM: dict[str, Any] = {"metadata": {"name": "data", "labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"]}}


def test_a_pod_has_a_claim_of_its_own_from_each_template() -> None:
    of = nodeset(
        volumeClaimTemplates=[CLAIM],
        template={"spec": {"volumes": [{"name": "data", "emptyDir": {}}]}},
        ordinalPadding=2,
    )
    assert render.claims(of, 3) == [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "data-slurm-worker-slinky-03",
                "namespace": "slurm",
                "labels": {
                    "a": "b",
                    "app.kubernetes.io/name": "slurmd",
                    "app.kubernetes.io/instance": "slurm-worker-slinky",
                },
            },
            "spec": {"accessModes": ["ReadWriteOnce"]},
        }
    ]
    found = volume(pod(of, 3), "data")
    assert found == {"name": "data", "persistentVolumeClaim": {"claimName": "data-slurm-worker-slinky-03"}}


def test_a_claim_template_without_a_name_is_refused() -> None:
    with pytest.raises(ResourceError, match=r"^spec\.volumeClaimTemplates\[1\]\.metadata\.name: "):
        render.claims(nodeset(volumeClaimTemplates=[CLAIM, {"spec": {}}]), 0)


def test_a_pinned_pod_runs_on_its_node_and_where_the_user_allows() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    match = {"key": "metadata.name", "operator": "In", "values": ["node-0"]}
    zone = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    plain, wanting = (
        nodeset(),
        nodeset(template={"spec": {"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": [zone]}}}}}),
    )
    for of, terms in ((plain, [{"matchFields": [match]}]), (wanting, [zone | {"matchFields": [match]}])):
        template = render.pod_template(of, controller(), builders.facts())
        affinity = render.pod(of, template, 0, "abc", kube_node="node-0")["spec"]["affinity"]
        assert affinity["nodeAffinity"][required]["nodeSelectorTerms"] == terms
        assert "podAntiAffinity" in affinity
        assert render.pod(of, template, 1, "abc")["spec"]["affinity"] != affinity


def test_pods_of_one_template_do_not_change_each_other() -> None:
    of = nodeset(volumeClaimTemplates=[CLAIM])
    template = render.pod_template(of, controller(), builders.facts())
    before = json.dumps(template)
    first = render.pod(of, template, 0, "abc", kube_node="node-0")
    text = json.dumps(first)
    render.pod(of, template, 1, "abc", kube_node="node-1")
    assert (json.dumps(first), json.dumps(template)) == (text, before)


# DaemonSet mode


def daemon(of: NodeSet, kube_node: str = "n1.example.com", host: str = "n1") -> Manifest:
    """The pod for a Kubernetes node."""
    return render.daemon_pod(of, render.pod_template(of, controller(), builders.facts()), kube_node, host, "abc")


def test_a_daemon_pod_is_for_one_kubernetes_node_and_always_has_the_same_name() -> None:
    of = nodeset(scalingMode="DaemonSet", volumeClaimTemplates=[CLAIM])
    found = daemon(of)
    metadata = found["metadata"]
    assert metadata["name"] == daemon(of, host="other")["metadata"]["name"]
    assert metadata["name"] != daemon(of, "n2.example.com")["metadata"]["name"]
    assert metadata["generateName"] == "slurm-worker-slinky-"
    assert metadata["annotations"]["nodeset.slinky.slurm.net/kube-node"] == "n1.example.com"
    assert metadata["labels"]["nodeset.slinky.slurm.net/pod-name"] == metadata["name"]
    assert metadata["labels"]["nodeset.slinky.slurm.net/pod-hostname"] == "n1"
    assert "nodeset.slinky.slurm.net/pod-index" not in metadata["labels"]
    assert pod_spec(found)["hostname"] == "n1"
    [claim] = render.daemon_claims(of, "n1.example.com", "n1")
    assert claim["metadata"]["name"].endswith("-slurm-worker-slinky-n1")


def test_the_name_of_a_daemon_pod_fits_a_label_however_long_the_names_are() -> None:
    assert len(render.daemon_pod_name(nodeset("n" * 57), "x" * 253)) == 63


def test_a_daemon_pod_tolerates_what_pods_of_a_daemon_set_do_but_no_cordon() -> None:
    keys = {item["key"] for item in pod_spec(daemon(nodeset(scalingMode="DaemonSet")))["tolerations"]}
    common = {"nodeset.slinky.slurm.net/worker"} | {
        f"node.kubernetes.io/{name}"
        for name in ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure")
    }
    assert keys == common
    on_host = nodeset(
        scalingMode="DaemonSet", template={"spec": {"hostNetwork": True, "tolerations": [{"key": "gpu"}]}}
    )
    found = {item["key"] for item in pod_spec(daemon(on_host))["tolerations"]}
    assert found == common | {"gpu", "node.kubernetes.io/network-unavailable"}
    assert "node.kubernetes.io/not-ready" not in {item["key"] for item in pod_spec(pod())["tolerations"]}


# Revisions


def revision(of: NodeSet, facts: Facts | None = None) -> render.Revision:
    """The revision of a NodeSet."""
    return render.revision(of, controller(), facts or builders.facts())


@pytest.mark.parametrize(
    "change",
    [
        {"template": {"spec": {"hostname": "b-"}}},
        {"slurmd": {"image": "new"}},
        {"extraConf": "Weight=2"},
        {"logfile": {"image": "new"}},
        SSH,
        {"ordinalPadding": 2},
        {"oversubscribeNode": True},
    ],
)
def test_what_the_pods_are_made_of_makes_a_new_revision(change: dict[str, Any]) -> None:
    assert revision(nodeset(**change)).hash != revision(nodeset()).hash


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 7},
        {"partition": {"enabled": True, "config": "State=UP"}},
        {"pinToNode": True},
        {"minReadySeconds": 5},
        {"volumeClaimTemplates": [CLAIM]},
        {"updateStrategy": {"type": "OnDelete"}},
        {"slurmd": {"resources": {}, "env": None}, "template": {"spec": {"affinity": {}}}, "extraConf": ""},
    ],
)
def test_what_the_pods_are_not_made_of_makes_none(change: dict[str, Any]) -> None:
    assert revision(nodeset(**change)).hash == revision(nodeset()).hash


def test_changed_keys_make_no_new_revision_as_they_reach_running_pods() -> None:
    before = builders.facts()
    changed = replace(before, secrets={**before.secrets, "slurm-auth-slurm-jwks": {"slurm.jwks": digest("another")}})
    jwt = replace(before, secrets={**before.secrets, "slurm-auth-jwt": {"jwt.key": digest("another")}})
    assert revision(nodeset(), changed).hash == revision(nodeset(), before).hash
    assert revision(nodeset(), jwt).hash == revision(nodeset(), before).hash


def newer(facts: Facts) -> Facts:
    """The facts of the next release: another image, another base."""
    files = {name: json.loads(json.dumps(file)) for name, file in facts.site.workloads.files.items()}
    files["slurmd"][0]["spec"]["priorityClassName"] = "next"
    return replace(facts, site=Site(workloads=Workloads(files), sidecars_image="sidecars:next"))


def test_a_new_release_makes_no_new_revision_and_its_base_waits_for_one() -> None:
    old, new = builders.facts(), newer(builders.facts())
    assert revision(nodeset(), old).hash == revision(nodeset(), new).hash
    stored = render.revision_of(json.loads(json.dumps(render.revision_object(nodeset(), revision(nodeset(), old), 1))))
    kept = render.pod_template(nodeset(), controller(), new, stored)
    assert kept == render.pod_template(nodeset(), controller(), old)
    assert render.pod_template(nodeset(), controller(), new)["spec"]["priorityClassName"] == "next"


def test_an_older_revision_gives_the_pods_of_its_time() -> None:
    before, now = nodeset(slurmd={"image": "old"}), nodeset(slurmd={"image": "new"}, replicas=5)
    template = render.pod_template(now, controller(), builders.facts(), revision(before))
    assert template == render.pod_template(before, controller(), builders.facts())


def test_a_revision_is_stored_as_a_controller_revision_that_can_be_found() -> None:
    found = revision(nodeset())
    stored = render.revision_object(nodeset(), found, 3)
    assert stored["metadata"]["name"] == f"slurm-worker-slinky-{found.hash}"
    assert stored["metadata"]["labels"].items() >= render.selector(nodeset()).items()
    assert stored["revision"] == 3
    assert render.revision_of(stored) == found


def test_a_foreign_controller_revision_is_refused() -> None:
    with pytest.raises(ValueError, match="'x' holds no revision"):
        render.revision_of(
            {"metadata": {"name": "x", "labels": {"controller-revision-hash": "1"}}, "data": {"raw": ""}}
        )


# Shared objects


def test_worker_service_and_disruption_budget_are_owned_by_all_nodesets() -> None:
    shared = render.shared_objects(controller(), [nodeset("b"), nodeset("a")], builders.facts())
    service, budget = find(shared, "Service"), find(shared, "PodDisruptionBudget")
    assert service["metadata"]["name"] == "slurm-workers-slurm"
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert service["spec"]["selector"] == {"app.kubernetes.io/name": "slurmd", "slinky.slurm.net/cluster": "slurm"}
    assert service["spec"]["ports"][0]["port"] == 6818
    assert budget["metadata"]["name"] == "slurm-workers-pdb-slurm"
    assert budget["spec"] == {
        "maxUnavailable": 0,
        "selector": {
            "matchLabels": {"nodeset.slinky.slurm.net/pod-protect": "true", "slinky.slurm.net/cluster": "slurm"}
        },
    }
    for item in shared:
        assert item["metadata"]["namespace"] == "slurm"
        assert [owner["name"] for owner in item["metadata"]["ownerReferences"]] == ["a", "b"]
        assert all("controller" not in owner for owner in item["metadata"]["ownerReferences"])


def test_nothing_is_shared_by_no_nodesets() -> None:
    assert render.shared_objects(controller(), [], builders.facts()) == []
