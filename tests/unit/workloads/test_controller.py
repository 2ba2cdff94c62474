"""slurmctld's objects."""

import re
from typing import Any

import pytest

from sidecars.workloads import controller as render
from sidecars.workloads.assembly import find
from sidecars.workloads.facts import MissingReferenceError, digest
from sidecars.workloads.resources import Controller, Manifest, NodeSet, ResourceError
from tests.support import builders
from tests.support.builders import controller, env, mounts, nodeset, part, pod_spec, volume

SELECTOR = {"app.kubernetes.io/name": "slurmctld", "app.kubernetes.io/instance": "slurm"}
ACTIVE = {"controller.slinky.slurm.net/active": "true"}


def objects(of: Controller, nodesets: tuple[NodeSet, ...] = (), **facts: Any) -> list[Manifest]:
    """What is rendered."""
    return render.objects(of, nodesets, builders.facts(**facts))


def stateful_set(of: Controller, nodesets: tuple[NodeSet, ...] = (), **facts: Any) -> Manifest:
    """The StatefulSet among it."""
    return find(objects(of, nodesets, **facts), "StatefulSet")


def template_metadata(
    of: Controller, nodesets: tuple[NodeSet, ...] = (), **facts: Any
) -> dict[str, Any]:
    """Labels and annotations of its pods."""
    found: dict[str, Any] = stateful_set(of, nodesets, **facts)["spec"]["template"]["metadata"]
    return found


def recreated(**spec: Any) -> Controller:
    """A Controller whose configuration changes with its pods."""
    return controller(configUpdate="Recreate", **spec)


def config_hash(of: Controller, nodesets: tuple[NodeSet, ...] = (), **facts: Any) -> str:
    """The annotation that names which configuration the pods read."""
    return str(
        template_metadata(of, nodesets, **facts)["annotations"][
            "slinky.slurm.net/slurm-config-hash"
        ]
    )


def test_configuration_comes_before_what_reads_it() -> None:
    assert [(item["kind"], item["metadata"]["name"]) for item in objects(controller())] == [
        ("ConfigMap", "slurm-config"),
        ("Service", "slurm-controller-internal"),
        ("Service", "slurm-controller"),
        ("StatefulSet", "slurm-controller"),
    ]


def test_everything_belongs_to_the_controller() -> None:
    for item in objects(controller()):
        assert item["metadata"]["namespace"] == "slurm"
        assert item["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "slinky.slurm.net/v1beta1",
                "kind": "Controller",
                "name": "slurm",
                "uid": "uid-of-slurm",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        assert (
            item["metadata"]["labels"].items()
            >= (SELECTOR | {"app.kubernetes.io/component": "controller"}).items()
        )


def test_the_config_map_contains_slurm_conf_and_cgroup_conf() -> None:
    data = find(objects(controller()), "ConfigMap")["data"]
    assert "\n### GENERAL ###\nClusterName=slurm_slurm\n" in data["slurm.conf"]
    assert data["cgroup.conf"].startswith(
        "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\nConstrainCores=yes\n"
    )


def test_a_cgroup_conf_of_the_user_takes_the_place_of_ours() -> None:
    of = controller(configFileRefs=[{"name": "own"}])
    data = find(objects(of, config_maps={"own": {"cgroup.conf": "mine"}}), "ConfigMap")["data"]
    assert data["cgroup.conf"] == "mine"


def test_the_services_are_the_clients_and_the_pods() -> None:
    rendered = objects(controller())
    client = find(rendered, "Service", "slurm-controller")["spec"]
    internal = find(rendered, "Service", "slurm-controller-internal")["spec"]
    assert client["selector"] == SELECTOR
    assert client["ports"] == [
        {"name": "slurmctld", "port": 6817, "protocol": "TCP", "targetPort": "slurmctld"}
    ]
    assert internal["selector"] == SELECTOR
    assert (internal["clusterIP"], internal["publishNotReadyAddresses"]) == ("None", True)


def test_the_stateful_set_runs_one_slurmctld() -> None:
    spec = stateful_set(controller())["spec"]
    assert spec["replicas"] == 1
    assert spec["revisionHistoryLimit"] == 0
    assert spec["serviceName"] == "slurm-controller-internal"
    assert spec["selector"] == {"matchLabels": SELECTOR}
    assert spec["template"]["metadata"]["labels"].items() >= (SELECTOR | ACTIVE).items()
    assert (
        spec["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"]
        == "slurmctld"
    )


def test_the_pod_has_the_least_it_needs() -> None:
    workload = stateful_set(controller())
    spec = pod_spec(workload)
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 401,
        "runAsGroup": 401,
        "fsGroup": 401,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for name in ("slurmctld", "logfile"):
        context = part(workload, name)["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
    assert part(workload, "logfile")["securityContext"]["readOnlyRootFilesystem"] is True


def test_two_slurmctld_never_share_a_kubernetes_node() -> None:
    affinity = pod_spec(stateful_set(controller()))["affinity"]
    assert affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] == [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": SELECTOR}}
    ]


def test_slurmctld_finds_its_files() -> None:
    workload = stateful_set(controller())
    assert mounts(workload, "slurmctld") == {
        "/etc/slurm": "slurm-etc",
        "/run": "run",
        "/var/spool/slurmctld/slurm_slurm": "statesave",
        "/run/slurmctld": "slurm-authsocket",
        "/var/log/slurm": "slurm-logfile",
    }
    assert volume(workload, "slurm-etc")["emptyDir"] == {"medium": "Memory"}


def test_only_reconfigure_sees_the_candidate_and_fills_what_slurmctld_reads() -> None:
    workload = stateful_set(controller())
    assert mounts(workload, "reconfigure") == {
        "/etc/slurm-candidate": "candidate",
        "/etc/slurm-keys": "slurm-keys",
        "/etc/slurm": "slurm-etc",
        "/run/check": "check",
        "/var/spool/slurmctld/slurm_slurm": "statesave",
    }
    assert volume(workload, "candidate")["projected"]["sources"] == [
        {"configMap": {"name": "slurm-config", "optional": True}},
        *(
            {"configMap": {"name": f"slurm-config-{index}", "optional": True}}
            for index in range(1, 8)
        ),
    ]
    assert volume(workload, "slurm-keys")["projected"]["sources"] == [
        {
            "secret": {
                "name": "slurm-auth-slurm",
                "items": [{"key": "slurm.key", "path": "slurm.key"}],
            }
        },
        builders.SLURM_JWKS_SOURCE,
        {"secret": {"name": "slurm-auth-jwt", "items": [{"key": "jwt.key", "path": "jwt.key"}]}},
    ]


def test_the_dry_run_has_slurmctlds_image_and_a_run_folder_of_its_own() -> None:
    workload = stateful_set(
        controller(slurmctld={"image": "slurmctld:1", "imagePullPolicy": "Always"})
    )
    check = part(workload, "check")
    assert (check["image"], check["imagePullPolicy"], check["restartPolicy"]) == (
        "slurmctld:1",
        "Always",
        "Always",
    )
    assert mounts(workload, "check") == {
        "/etc/slurm": "check",
        "/run": "check-run",
        "/run/slurm": "slurm-authsocket",
    }


def test_slurmctld_starts_once_reconfigure_has_filled_its_folder() -> None:
    containers = [item["name"] for item in pod_spec(stateful_set(controller()))["initContainers"]]
    assert containers == ["check", "reconfigure", "logfile"]
    assert (
        part(stateful_set(controller()), "reconfigure")["startupProbe"]["httpGet"]["path"]
        == "/started"
    )


def test_an_image_for_reconfigure_from_slinkys_values_is_left_out() -> None:
    of = controller(
        reconfigure={"image": "slinky/slurmctld", "resources": {"limits": {"cpu": "1"}}}
    )
    reconfigure = part(stateful_set(of), "reconfigure")
    assert reconfigure["image"] == "registry.invalid/slurm-charts/sidecars:0.1.0"
    assert reconfigure["resources"] == {"limits": {"cpu": "1"}, "requests": {"memory": "64Mi"}}


def test_a_changed_configuration_or_key_changes_no_pod_template() -> None:
    def template(**facts: Any) -> Manifest:
        of = controller(extraConf=facts.pop("extra", ""))
        return dict(stateful_set(of, **facts)["spec"]["template"])

    keys = {"slurm-auth-slurm": {"slurm.key": "other"}, "slurm-auth-jwt": {"jwt.key": "other"}}
    assert template() == template(extra="SlurmctldTimeout=60") == template(secrets=keys)
    annotations = template()["metadata"]["annotations"]
    assert set(annotations) == {"kubectl.kubernetes.io/default-container"}


def test_jwks_come_with_the_keys() -> None:
    of = controller(jwksKeyRef={"name": "jwks", "key": "k"})
    sources = volume(stateful_set(of, config_maps={"jwks": {"k": "{}"}}), "slurm-keys")[
        "projected"
    ]["sources"]
    assert sources[3:] == [
        {"configMap": {"name": "jwks", "items": [{"key": "k", "path": "jwks.json"}]}}
    ]


def test_the_probes_ask_slurmctld_itself() -> None:
    slurmctld = part(stateful_set(controller()), "slurmctld")
    for probe in ("startupProbe", "livenessProbe"):
        assert slurmctld[probe]["httpGet"] == {"path": "/livez", "port": "slurmctld"}
    assert slurmctld["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "slurmctld"}
    assert slurmctld["ports"] == [{"name": "slurmctld", "containerPort": 6817, "protocol": "TCP"}]


def test_a_service_monitor_is_made_for_metrics_of_a_slurmctld_of_ours_only() -> None:
    monitored: dict[str, Any] = {"enabled": True, "serviceMonitor": {"enabled": True}}
    found = render.service_monitor(controller(metrics=monitored))
    assert found is not None
    assert found["metadata"]["name"] == "slurm-controller"
    assert [it["path"] for it in found["spec"]["endpoints"]] == list(render.METRICS_PATHS)
    assert render.service_monitor(controller()) is None
    assert render.service_monitor(controller(metrics={"enabled": True})) is None
    assert render.service_monitor(controller(metrics={**monitored, "enabled": False})) is None
    external: dict[str, Any] = {"external": True, "externalConfig": {"host": "h", "port": 6817}}
    assert render.service_monitor(controller(metrics=monitored, **external)) is None


def test_a_service_monitor_selects_one_service() -> None:
    monitored: dict[str, Any] = {"enabled": True, "serviceMonitor": {"enabled": True}}
    found = render.service_monitor(controller(metrics=monitored))
    assert found is not None
    selector = found["spec"]["selector"]

    def selected(labels: dict[str, str]) -> bool:
        assert all(it["operator"] == "DoesNotExist" for it in selector["matchExpressions"])
        absent = not [it for it in selector["matchExpressions"] if it["key"] in labels]
        return absent and selector["matchLabels"].items() <= labels.items()

    services = [it for it in objects(controller()) if it["kind"] == "Service"]
    assert [it["metadata"]["name"] for it in services if selected(it["metadata"]["labels"])] == [
        "slurm-controller"
    ]


def test_the_log_goes_through_a_sidecar() -> None:
    workload = stateful_set(controller())
    assert part(workload, "logfile")["restartPolicy"] == "Always"
    assert env(workload, "logfile") == {"SOCKET": "/var/log/slurm/slurmctld.log"}
    assert part(workload, "logfile")["image"] == "registry.invalid/slurm-charts/sidecars:0.1.0"
    assert (
        part(stateful_set(controller(logfile={"image": "alpine"})), "logfile")["image"] == "alpine"
    )


CLAIM = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "4Gi"}},
    "storageClassName": "",
}


def test_the_state_is_on_a_claim_of_its_own_by_default() -> None:
    workload = stateful_set(controller(persistence={"enabled": True, **CLAIM}))
    [claim] = workload["spec"]["volumeClaimTemplates"]
    assert (claim["metadata"]["name"], claim["spec"]) == ("statesave", CLAIM)
    assert not [item for item in pod_spec(workload)["volumes"] if item["name"] == "statesave"]


def test_a_claim_that_sets_no_size_has_the_charts() -> None:
    [claim] = stateful_set(controller())["spec"]["volumeClaimTemplates"]
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "4Gi"}},
    }


def test_the_state_can_be_on_a_claim_that_exists() -> None:
    workload = stateful_set(
        controller(persistence={"enabled": True, "existingClaim": "mine", **CLAIM})
    )
    assert "volumeClaimTemplates" not in workload["spec"]
    assert volume(workload, "statesave")["persistentVolumeClaim"] == {"claimName": "mine"}


def test_the_state_goes_with_the_pod_without_persistence() -> None:
    workload = stateful_set(controller(persistence={"enabled": False}))
    assert "volumeClaimTemplates" not in workload["spec"]
    assert volume(workload, "statesave")["emptyDir"] == {}


HA: dict[str, Any] = {
    "ha": {"enabled": True, "backups": 1},
    "persistence": {"enabled": True, "existingClaim": "shared"},
}


def test_standbys_are_ready_without_being_the_primary() -> None:
    workload = stateful_set(controller(**HA))
    assert workload["spec"]["replicas"] == 2
    assert "volumeClaimTemplates" not in workload["spec"]
    assert volume(workload, "statesave")["persistentVolumeClaim"] == {"claimName": "shared"}
    assert part(workload, "slurmctld")["readinessProbe"]["httpGet"] == {
        "path": "/livez",
        "port": "slurmctld",
    }
    assert ACTIVE.keys().isdisjoint(workload["spec"]["template"]["metadata"]["labels"])
    client = find(objects(controller(**HA)), "Service", "slurm-controller")["spec"]
    assert client["selector"] == SELECTOR | ACTIVE


def test_standbys_without_a_shared_claim_are_refused() -> None:
    with pytest.raises(ResourceError, match=r"^spec\.ha: .*ReadWriteMany"):
        objects(controller(ha={"enabled": True}))


def test_slurmctld_with_standbys_asks_the_start_gate_of_its_pod() -> None:
    workload = stateful_set(controller(**HA))
    assert mounts(workload, "slurmctld")["/run/start-gate"] == "start-gate"
    assert (
        mounts(workload, "reconfigure")[env(workload, "reconfigure")["START_GATE"]] == "start-gate"
    )
    assert volume(workload, "start-gate")["emptyDir"] == {"medium": "Memory"}
    # The gate has to give up alone, so that the container's end shows why.
    [seconds] = re.findall(
        r"timeout (\d+) .*/run/start-gate/ask", part(workload, "slurmctld")["command"][2]
    )
    probe = part(workload, "slurmctld")["startupProbe"]
    assert int(seconds) < probe["periodSeconds"] * probe["failureThreshold"]


def test_a_slurmctld_that_stands_alone_has_no_start_gate() -> None:
    workload = stateful_set(controller())
    assert "command" not in part(workload, "slurmctld")
    assert "START_GATE" not in env(workload, "reconfigure")
    assert "start-gate" not in {item["name"] for item in pod_spec(workload)["volumes"]}


def test_a_command_of_the_custom_resource_runs_behind_the_start_gate() -> None:
    own = {"command": ["/site/start", "slurmctld"], "args": ["-v"]}
    gate = part(stateful_set(controller(**HA)), "slurmctld")["command"]
    slurmctld = part(stateful_set(controller(**HA, slurmctld=own)), "slurmctld")
    assert (slurmctld["command"], slurmctld["args"]) == (gate, ["/site/start", "slurmctld", "-v"])
    alone = part(stateful_set(controller(slurmctld=own)), "slurmctld")
    assert (alone["command"], alone["args"]) == (own["command"], own["args"])
    with pytest.raises(ResourceError, match=r"^spec\.slurmctld\.command: "):
        objects(controller(**HA, slurmctld={"command": "slurmctld"}))


def test_with_recreate_the_pods_follow_what_they_read() -> None:
    annotations = template_metadata(recreated())["annotations"]
    assert annotations["slinky.slurm.net/slurm-key-hash"] == digest("keys")
    assert annotations["slinky.slurm.net/jwt-key-hash"] == digest("jwt")
    maps = {"own": {"gres.conf": "1"}}
    of = recreated(configFileRefs=[{"name": "own"}])
    hashes = {
        config_hash(recreated()),
        config_hash(recreated(extraConf="SlurmctldTimeout=30")),
        config_hash(recreated(), (nodeset(),)),
        config_hash(of, config_maps=maps),
        config_hash(of, config_maps={"own": {"gres.conf": "2"}}),
    }
    assert len(hashes) == 5
    assert config_hash(of, config_maps=maps) == config_hash(of, config_maps=maps)


def test_a_chart_upgrade_or_an_apply_does_not_change_the_pods() -> None:
    def labelled(version: str) -> Controller:
        return controller(
            meta={
                "labels": {
                    "helm.sh/chart": f"slurm-{version}",
                    "app.kubernetes.io/version": version,
                    "app.kubernetes.io/managed-by": "Helm",
                    "app.kubernetes.io/part-of": "slurm",
                },
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": version,
                    "meta.helm.sh/release-name": version,
                    "site": "x",
                },
            }
        )

    assert stateful_set(labelled("1")) == stateful_set(labelled("2"))
    metadata = template_metadata(labelled("1"))
    assert metadata["labels"]["app.kubernetes.io/part-of"] == "slurm"
    assert metadata["annotations"]["site"] == "x"


def test_labels_of_the_template_reach_the_pods_but_never_replace_ours() -> None:
    user = {
        "metadata": {
            "labels": {"team": "a", "app.kubernetes.io/name": "mine"},
            "annotations": {"note": "b"},
        }
    }
    metadata = template_metadata(controller(template=user))
    assert (metadata["labels"]["team"], metadata["annotations"]["note"]) == ("a", "b")
    assert metadata["labels"]["app.kubernetes.io/name"] == "slurmctld"


def test_overrides_are_laid_on() -> None:
    workload = stateful_set(
        controller(
            slurmctld={"image": "mine", "args": ["-v"], "resources": {"limits": {"cpu": "1"}}},
            template={
                "spec": {"nodeSelector": {"kubernetes.io/os": "linux"}, "priorityClassName": "high"}
            },
        )
    )
    slurmctld = part(workload, "slurmctld")
    assert (slurmctld["image"], slurmctld["args"]) == ("mine", ["-v"])
    assert slurmctld["resources"] == {"limits": {"cpu": "1"}, "requests": {"memory": "256Mi"}}
    assert pod_spec(workload)["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert pod_spec(workload)["priorityClassName"] == "high"


def test_the_client_service_can_be_changed() -> None:
    of = controller(
        service={
            "metadata": {"annotations": {"lb": "internal"}},
            "spec": {
                "type": "LoadBalancer",
                "externalIPs": ["192.0.2.1"],
                "selector": {"extra": "x"},
                "ports": [{"name": "more", "port": 1}],
            },
            "port": 7000,
            "nodePort": 30000,
        }
    )
    service = find(objects(of), "Service", "slurm-controller")
    assert service["metadata"]["annotations"] == {"lb": "internal"}
    assert service["spec"]["type"] == "LoadBalancer"
    assert "externalIPs" not in service["spec"]
    assert service["spec"]["selector"] == SELECTOR | {"extra": "x"}
    assert service["spec"]["ports"] == [
        {"name": "more", "port": 1},
        {
            "name": "slurmctld",
            "port": 7000,
            "protocol": "TCP",
            "targetPort": "slurmctld",
            "nodePort": 30000,
        },
    ]


@pytest.mark.parametrize("port", [{"name": "slurmctld", "port": 1}, {"name": "mine", "port": 6817}])
def test_a_service_port_that_is_there_already_is_refused(port: dict[str, Any]) -> None:
    with pytest.raises(ResourceError, match=r"^spec\.service\.spec\.ports: "):
        objects(controller(service={"spec": {"ports": [port]}}))


def test_an_external_controller_is_its_configuration_alone() -> None:
    external = controller(external=True, externalConfig={"host": "ctl.example.com", "port": 7000})
    [config_map] = objects(external)
    assert (config_map["metadata"]["name"], set(config_map["data"])) == (
        "slurm-config",
        {"slurm.conf"},
    )
    assert render.conf_server(external) == "ctl.example.com:7000"
    assert render.conf_server(controller()) == "slurm-controller.slurm:6817"


@pytest.mark.parametrize("name", ["slurm.conf", "slurmdbd.conf"])
def test_files_that_we_compose_are_not_taken_from_the_user(name: str) -> None:
    with pytest.raises(
        ResourceError,
        match=rf"^ConfigMap own key {name}: spec\.configFileRefs may not bring {name}, ",
    ):
        objects(controller(configFileRefs=[{"name": "own"}]), config_maps={"own": {name: ""}})


@pytest.mark.parametrize(
    ("of", "facts", "kind", "name", "key"),
    [
        (controller(), {"secrets": {}}, "Secret", "slurm-auth-slurm", None),
        (
            controller(),
            {"secrets": {"slurm-auth-slurm": {}}},
            "Secret",
            "slurm-auth-slurm",
            "slurm.key",
        ),
        (controller(configFileRefs=[{"name": "own"}]), {}, "ConfigMap", "own", None),
        (controller(jwksKeyRef={"name": "jwks", "key": "k"}), {}, "ConfigMap", "jwks", None),
    ],
)
def test_what_is_missing_is_named(
    of: Controller, facts: dict[str, Any], kind: str, name: str, key: str | None
) -> None:
    with pytest.raises(MissingReferenceError) as caught:
        objects(of, **facts)
    assert (caught.value.kind, caught.value.name, caught.value.key) == (kind, name, key)


def test_the_older_field_of_the_jwt_key_is_as_good() -> None:
    spec = {
        "slurmKeyRef": builders.SLURM_KEY,
        "jwtHs256KeyRef": builders.JWT_KEY,
        "jwtKeyRef": None,
    }
    assert objects(controller(**spec)) == objects(controller())


def test_a_controller_without_keys_is_refused() -> None:
    with pytest.raises(ResourceError, match=r"^spec\.jwtKeyRef: "):
        objects(controller(jwtKeyRef=None))
    with pytest.raises(ResourceError, match=r"^spec\.slurmKeyRef: "):
        objects(controller(slurmKeyRef=None))


def test_how_long_keys_settle_is_for_the_operator_and_changes_no_pod() -> None:
    annotated = controller(
        {"annotations": {"slinky.slurm.net/keys-settle-seconds": "5", "example.com/a": "b"}}
    )
    annotations = template_metadata(annotated)["annotations"]
    assert annotations["example.com/a"] == "b"
    assert "slinky.slurm.net/keys-settle-seconds" not in annotations


def test_a_service_that_leads_to_another_host_is_refused() -> None:
    of = controller(service={"spec": {"type": "ExternalName", "externalName": "evil.example.org"}})
    with pytest.raises(
        ResourceError, match=r"spec\.service\.spec\.type: ExternalName is refused: use ClusterIP"
    ):
        objects(of)
