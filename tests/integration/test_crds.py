"""The custom resource definitions on a real API server: what it takes, refuses, fills in and shows."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from schemas import chart_package, definitions, sources
from sidecars.kube import ApiError, Client, Invalid, Resource, load_credentials
from tests.cluster.commands import run
from tests.cluster.control_plane import ControlPlane
from tests.cluster.tools import tool

pytestmark = pytest.mark.timeout(30, func_only=True)

Spec = dict[str, Any]

KEY = {"name": "slurm-auth-slurm", "key": "slurm.key"}
JWT = {"name": "slurm-auth-jwt", "key": "jwt.key"}
OTHER = {"name": "other", "key": "jwt.key"}
EXTERNAL = {"external": True, "externalConfig": {"host": "slurm.example.com", "port": 6817}}
CLAIM = {"enabled": True, "existingClaim": "statesave"}
SMALLEST: dict[str, Spec] = {
    "Controller": {"slurmKeyRef": KEY, "jwtKeyRef": JWT},
    "Accounting": {
        "slurmKeyRef": KEY,
        "jwtKeyRef": JWT,
        "storageConfig": {"host": "mariadb", "passwordKeyRef": {"name": "mariadb-password", "key": "password"}},
    },
    "RestApi": {"controllerRef": {"name": "slurm"}},
    "LoginSet": {"controllerRef": {"name": "slurm"}, "sssdConfRef": {"name": "sssd", "key": "sssd.conf"}},
    "NodeSet": {"controllerRef": {"name": "slurm"}},
    "Token": {"jwtKeyRef": JWT, "username": "slurm"},
}
RESOURCES = {
    kind: Resource(definitions.GROUP, definitions.VERSION, kind, definitions.load(kind)["plural"])
    for kind in definitions.KINDS
}
NUMBERS = itertools.count()


def claim(size: str = "1Gi", name: str = "data", **labels: str) -> Spec:
    metadata: Spec = {"name": name} | ({"labels": labels} if labels else {})
    return {
        "metadata": metadata,
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    }


def scheduled(**scheduled_update: Any) -> Spec:
    return {"updateStrategy": {"type": "ScheduledUpdate", "scheduledUpdate": scheduled_update}}


def unavailable(value: int | str) -> Spec:
    return {"updateStrategy": {"rollingUpdate": {"maxUnavailable": value}}}


def hostname(prefix: str) -> Spec:
    return {"template": {"spec": {"hostname": prefix, "nodeSelector": {"disk": "ssd"}}}}


def resource(kind: str, changes: Spec, name: str | None = None) -> Spec:
    """A resource with the smallest spec, changed: None takes a field away."""
    spec = {key: value for key, value in sources.merged(SMALLEST[kind], changes).items() if value is not None}
    return {
        "apiVersion": f"{definitions.GROUP}/{definitions.VERSION}",
        "kind": kind,
        "metadata": {"name": name or f"test-{next(NUMBERS)}", "namespace": "default"},
        "spec": spec,
    }


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    plane = ControlPlane.temporary(tmp_path_factory.mktemp("control-plane"))
    kubectl: list[str | Path] = [tool("kubectl"), f"--kubeconfig={plane.kubeconfig}"]
    manifests = definitions.custom_resource_definitions()
    run([*kubectl, "create", "--filename=-"], stdin=yaml.safe_dump_all(manifests), seconds=90)
    names = [f"crd/{manifest['metadata']['name']}" for manifest in manifests]
    run([*kubectl, "wait", "--for=condition=Established", "--timeout=60s", *names], seconds=90)
    yield plane.kubeconfig
    plane.stop()


@pytest_asyncio.fixture
async def client(kubeconfig: Path) -> AsyncIterator[Client]:
    async with Client.connect(load_credentials(kubeconfig)) as client:
        yield client


TAKEN: list[tuple[str, Spec]] = [
    *((kind, {}) for kind in definitions.KINDS),
    ("Controller", {"jwtKeyRef": None, "jwtHs256KeyRef": JWT}),
    ("Controller", {"slurmKeyRef": None, "jwtKeyRef": None, **EXTERNAL}),
    ("Controller", {"ha": {"enabled": True, "backups": 2}, "persistence": CLAIM}),
    ("Controller", {"ha": {"enabled": False}}),
    ("Controller", {"clusterName": "c" * 40}),
    ("Controller", {"clusterName": "Lab_1.a-b"}),
    ("Controller", {**EXTERNAL, "externalConfig": {"host": "fd00::1", "port": 6817}}),
    ("RestApi", {"controllerRef": {"name": "slurm", "namespace": ""}}),
    ("Controller", {"configFileRefs": None, "prologScriptRefs": [{"name": "prolog"}]}),
    ("Controller", {"persistence": {"enabled": True, "resources": {"requests": {"storage": "4Gi"}}}}),
    ("Controller", {"metrics": {"enabled": True, "serviceMonitor": {"enabled": True, "interval": "1m30s"}}}),
    ("Controller", {"configUpdate": "Recreate", "inplaceReconfigure": True}),
    ("Accounting", {"slurmKeyRef": None, "jwtKeyRef": None, "storageConfig": None, **EXTERNAL}),
    ("RestApi", {"replicas": 0, "service": {"port": 0, "spec": {"type": "NodePort"}}}),
    ("LoginSet", {"strategy": {"type": "Recreate"}, "login": {"env": [{"name": "A", "value": "1"}]}}),
    ("NodeSet", hostname("gpu-")),
    ("NodeSet", hostname("a--")),
    ("NodeSet", hostname("")),
    ("NodeSet", {**hostname("x" * 60), "replicas": 999}),
    ("NodeSet", {**hostname("x" * 63), "scalingMode": "DaemonSet"}),
    ("NodeSet", {"extraConf": ""}),
    ("NodeSet", {"extraConf": " Features=a,b  Weight=10\nTopology='x=1 y=2' Reason=\"a b\"\n"}),
    ("NodeSet", unavailable(1)),
    ("NodeSet", unavailable("1%")),
    ("NodeSet", unavailable("100%")),
    ("NodeSet", scheduled(startTime="2030-01-01T00:00:00Z")),
    ("NodeSet", scheduled(startTime="2030-01-01T00:00:00Z", duration="0s")),
    ("NodeSet", scheduled(startTime="2030-01-01T00:00:00Z", duration="1m", flags=["DAILY"])),
    ("NodeSet", {"ssh": {"enabled": True, "sssdConfRef": {"name": "sssd", "key": "sssd.conf"}}}),
    ("NodeSet", {"ssh": {"enabled": False}}),
    ("NodeSet", {"partition": {"enabled": True, "config": "State=UP MaxTime=UNLIMITED"}}),
    ("NodeSet", {"volumeClaimTemplates": [claim(), claim(name="more")]}),
    ("NodeSet", {"nodeRecords": "Keep", "pruneSlurmNodeRecords": "NodeNotFound", "deletionTimeout": "1h30m"}),
    ("Token", {"jwtKeyRef": None, "jwtHs256KeyRef": JWT}),
    ("Token", {"username": "Jane_Doe", "secretRef": {"name": "jane", "key": "token"}, "lifetime": "1.5h"}),
]

REFUSED: list[tuple[str, Spec, str]] = [
    ("Controller", {"slurmKeyRef": None}, "slurmKeyRef is required"),
    ("Controller", {"jwtKeyRef": None}, "jwtKeyRef is required"),
    ("Controller", {**EXTERNAL, "externalConfig": None}, "externalConfig is required"),
    ("Controller", {**EXTERNAL, "externalConfig": {"host": "h"}}, "spec.externalConfig.port: Required"),
    ("Controller", {"ha": {"enabled": True}}, "ha.enabled needs persistence.enabled"),
    ("Controller", {"ha": {"enabled": True}, "persistence": {"enabled": True}}, "persistence.existingClaim"),
    ("Controller", {"ha": {"enabled": True, "backups": 0}, "persistence": CLAIM}, "spec.ha.backups"),
    ("Controller", {"clusterName": "c" * 41}, "spec.clusterName: Too long"),
    ("Controller", {"clusterName": "a\nSlurmUser=root"}, "spec.clusterName"),
    ("Controller", {"configUpdate": "Sometimes"}, "spec.configUpdate: Unsupported value"),
    ("Controller", {"prologScriptRefs": [{"name": ""}]}, "spec.prologScriptRefs[0].name"),
    ("Controller", {"metrics": {"enabled": True, "serviceMonitor": {"enabled": True, "interval": "soon"}}}, "interval"),
    ("Controller", {"clusterName": "../../etc"}, "spec.clusterName"),
    ("Controller", {"clusterName": "a,b"}, "spec.clusterName"),
    *(
        ("Controller", {**EXTERNAL, "externalConfig": {"host": host, "port": 6817}}, "spec.externalConfig.host")
        for host in ("h\nSlurmUser=root", "h SlurmUser=root", "h#", "h\\", "$(id)", "h\v", "h'")
    ),
    ("Accounting", {**EXTERNAL, "externalConfig": {"host": "h\nStorageUser=root", "port": 1}}, "externalConfig.host"),
    ("Accounting", {"slurmKeyRef": None}, "slurmKeyRef is required"),
    ("Accounting", {"jwtKeyRef": None}, "jwtKeyRef is required"),
    ("Accounting", {**EXTERNAL, "externalConfig": None}, "externalConfig is required"),
    ("Accounting", {"storageConfig": None}, "storageConfig is required"),
    ("Accounting", {"storageConfig": {"host": "db\nStorageUser=root"}}, "spec.storageConfig.host"),
    *(
        (
            "Accounting",
            {"storageConfig": SMALLEST["Accounting"]["storageConfig"] | {field: "x\nStorageHost=evil"}},
            f"spec.storageConfig.{field}",
        )
        for field in ("username", "database")
    ),
    ("RestApi", {"controllerRef": {"name": ""}}, "spec.controllerRef.name"),
    ("RestApi", {"controllerRef": None}, "spec.controllerRef: Required"),
    ("LoginSet", {"controllerRef": {"name": ""}}, "spec.controllerRef.name"),
    ("LoginSet", {"sssdConfRef": {"name": ""}}, "sssdConfRef.name is required"),
    ("NodeSet", {"controllerRef": {"name": ""}}, "spec.controllerRef.name"),
    ("NodeSet", hostname("gpu_"), "spec.template.spec.hostname"),
    ("NodeSet", hostname("-gpu"), "spec.template.spec.hostname"),
    ("NodeSet", hostname("gpu\nx"), "spec.template.spec.hostname"),
    ("NodeSet", hostname("gpu-\n"), "spec.template.spec.hostname"),
    ("NodeSet", hostname("x" * 64), "spec.template.spec.hostname: Too long"),
    ("NodeSet", {**hostname("x" * 60), "replicas": 1000}, "at most 63 characters"),
    ("NodeSet", {**hostname("x" * 60), "ordinalPadding": 4}, "at most 63 characters"),
    ("NodeSet", {"extraConf": "Features=a gpu"}, "extraConf must be Key=Value items"),
    ("NodeSet", {"extraConf": "=a"}, "extraConf must be Key=Value items"),
    ("NodeSet", {"autoscaling": {"min": 1}}, "spec.autoscaling.max: Required value"),
    ("NodeSet", {"autoscaling": {"min": 2, "max": 1}}, "autoscaling.min can't be higher than autoscaling.max"),
    ("NodeSet", {"autoscaling": {"max": 1, "node": "CPUs"}}, "spec.autoscaling.node"),
    ("NodeSet", {"autoscaling": {"max": 1}, "scalingMode": "DaemonSet"}, "autoscaling needs scalingMode StatefulSet"),
    ("NodeSet", unavailable(0), "maxUnavailable must be"),
    ("NodeSet", unavailable(-1), "maxUnavailable must be"),
    ("NodeSet", unavailable("0%"), "maxUnavailable must be"),
    ("NodeSet", unavailable("5"), "maxUnavailable must be"),
    ("NodeSet", scheduled(), "scheduledUpdate.startTime and scheduledUpdate.duration are required"),
    ("NodeSet", scheduled(startTime="tomorrow"), "spec.updateStrategy.scheduledUpdate.startTime"),
    ("NodeSet", scheduled(startTime="2030-01-01T00:00:00Z", duration="59s"), "duration must be at least 1m"),
    ("NodeSet", scheduled(startTime="2030-01-01T00:00:00Z", duration="3 days"), "scheduledUpdate.duration"),
    ("NodeSet", {"updateStrategy": {"type": "ScheduledUpdate"}}, "scheduledUpdate.startTime"),
    ("NodeSet", {"ssh": {"enabled": True}}, "ssh.sssdConfRef.name is required"),
    ("NodeSet", {"ssh": {"enabled": True, "sssdConfRef": {"key": "sssd.conf"}}}, "ssh.sssdConfRef.name is required"),
    ("NodeSet", {"partition": {"enabled": True, "config": "State=UP\nSlurmUser=root"}}, "spec.partition.config"),
    ("NodeSet", {"scalingMode": "ReplicaSet"}, "spec.scalingMode: Unsupported value"),
    ("NodeSet", {"replicas": -1}, "spec.replicas"),
    ("NodeSet", {"replicas": 65537}, "should be less than or equal to 65536"),
    ("NodeSet", {"deletionTimeout": "a minute"}, "spec.deletionTimeout"),
    ("Token", {"jwtKeyRef": None}, "jwtKeyRef is required"),
    ("Token", {"jwtKeyRef": None, "jwtHs256KeyRef": {"name": "jwt"}}, "spec.jwtHs256KeyRef.key: Required"),
    ("NodeSet", {"gpu": {"enabled": True, "type": "a\nName=x"}}, "spec.gpu.type"),
    ("NodeSet", {"gpu": {"enabled": True, "type": "a", "devices": ["/dev/a\nName=x"]}}, "spec.gpu.devices[0]"),
    ("NodeSet", {"gpu": {"enabled": True, "resourceName": "a/b\nc"}}, "spec.gpu.resourceName"),
    ("NodeSet", {"health": {"disks": ["/a\nb"]}}, "spec.health.disks[0]"),
    ("NodeSet", {"health": {"paths": ["/a\nb"]}}, "spec.health.paths[0]"),
    ("NodeSet", {"health": {"skip": ["a\nb"]}}, "spec.health.skip[0]"),
    ("NodeSet", {"health": {"checks": {"a\nb": "#!/bin/sh"}}}, "names of checks"),
    *(
        (kind, {field: value | {"namespace": "other"}}, "a reference can't leave its namespace")
        for kind, field, value in (
            ("Controller", "slurmKeyRef", KEY),
            ("Controller", "nextSlurmKeyRef", KEY),
            ("Controller", "jwtKeyRef", JWT),
            ("Controller", "jwksKeyRef", JWT),
            ("Controller", "accountingRef", {"name": "slurm"}),
            ("Accounting", "slurmKeyRef", KEY),
            ("RestApi", "controllerRef", {"name": "slurm"}),
            ("LoginSet", "controllerRef", {"name": "slurm"}),
            ("LoginSet", "sssdConfRef", KEY),
            ("NodeSet", "controllerRef", {"name": "slurm"}),
            ("Token", "jwtKeyRef", JWT),
            ("Token", "secretRef", JWT),
        )
    ),
    *(
        ("Controller", {field: [{"name": "files", "namespace": "other"}]}, "a reference can't leave its namespace")
        for field in ("configFileRefs", "prologScriptRefs", "epilogSlurmctldScriptRefs")
    ),
    ("Token", {"username": None}, "spec.username: Required"),
    ("Token", {"username": "a\nb"}, "spec.username"),
    ("Token", {"username": "@slurm-operator", "secretRef": {"name": "s", "key": "k"}}, "spec.username"),
    ("Token", {"username": "Jane_Doe"}, "secretRef.name is required"),
]

NAMES: list[tuple[str, str, str]] = [
    ("Controller", "c" * 41, "c" * 42),
    ("Controller", "a-1", "a.1"),
    ("Accounting", "a" * 41, "1a"),
    ("RestApi", "r" * 55, "r" * 56),
    ("LoginSet", "l" * 63, "l" * 64),
    ("NodeSet", "n" * 61, "n" * 62),
    ("NodeSet", "1.n", "n.n-" * 16),
]

CHANGES_TAKEN: list[tuple[str, Spec, Spec]] = [
    ("Controller", {"jwtKeyRef": None, "jwtHs256KeyRef": JWT}, {"jwtKeyRef": JWT}),
    ("Controller", {"jwtKeyRef": None, "jwtHs256KeyRef": JWT}, {"jwtKeyRef": JWT, "jwtHs256KeyRef": OTHER}),
    ("Controller", {}, {"clusterName": ""}),
    ("Controller", EXTERNAL, {"clusterName": "outside"}),
    ("Controller", {}, {"persistence": {"enabled": True}}),
    ("Controller", {}, {"slurmKeyRef": {"name": "slurm-auth-slurm", "key": "other"}}),
    ("Controller", {"persistence": {"enabled": False}}, {"persistence": {"enabled": False, "existingClaim": "c"}}),
    ("Controller", {}, {"extraConf": "SchedulerParameters=defer\n"}),
    ("Accounting", {"jwtKeyRef": None, "jwtHs256KeyRef": JWT}, {"jwtKeyRef": JWT}),
    ("Token", {"jwtKeyRef": None, "jwtHs256KeyRef": JWT}, {"jwtKeyRef": JWT}),
    ("NodeSet", {"volumeClaimTemplates": [claim(tier="a")]}, {"replicas": 3}),
    ("NodeSet", {"volumeClaimTemplates": []}, {"volumeClaimTemplates": None}),
    ("NodeSet", {}, {"scalingMode": "DaemonSet"}),
]

CHANGES_REFUSED: list[tuple[str, Spec, Spec, str]] = [
    ("Controller", {}, {"clusterName": "other"}, "cannot change ClusterName after deployment"),
    ("Controller", {"clusterName": "one"}, {"clusterName": None}, "cannot change ClusterName after deployment"),
    ("Controller", {}, {"slurmKeyRef": {"name": "other"}}, "cannot change SlurmKeyRef after deployment"),
    ("Controller", {}, {"jwtKeyRef": OTHER}, "the value of JwtKeyRef or JwtHs256KeyRef cannot be modified"),
    ("Controller", {}, {"jwtKeyRef": None, "jwtHs256KeyRef": OTHER}, "the value of JwtKeyRef or JwtHs256KeyRef cannot"),
    ("Controller", {}, {"persistence": {"enabled": False}}, "cannot change persistence.enabled after deployment"),
    ("Controller", {"persistence": {"enabled": False}}, {"persistence": None}, "cannot change persistence.enabled"),
    ("Controller", {"persistence": CLAIM}, {"persistence": {"existingClaim": "b"}}, "persistence.existingClaim after"),
    ("Controller", {"persistence": CLAIM}, {"persistence": None}, "cannot change persistence.existingClaim"),
    ("Controller", {}, {"persistence": CLAIM}, "cannot change persistence.existingClaim after deployment"),
    ("Accounting", {}, {"jwtKeyRef": OTHER}, "the value of JwtKeyRef or JwtHs256KeyRef cannot be modified"),
    ("Token", {}, {"jwtKeyRef": OTHER}, "the value of JwtKeyRef or JwtHs256KeyRef cannot be modified"),
    ("RestApi", {}, {"controllerRef": {"name": "other"}}, "cannot change controllerRef after deployment"),
    ("LoginSet", {}, {"controllerRef": {"name": "other"}}, "cannot change controllerRef after deployment"),
    ("NodeSet", {}, {"controllerRef": {"name": "other"}}, "cannot change controllerRef after deployment"),
    ("NodeSet", {}, {"volumeClaimTemplates": [claim()]}, "cannot change volumeClaimTemplates after deployment"),
    ("NodeSet", {"volumeClaimTemplates": [claim()]}, {"volumeClaimTemplates": [claim("2Gi")]}, "volumeClaimTemplates"),
    ("NodeSet", {"volumeClaimTemplates": [claim(a="1")]}, {"volumeClaimTemplates": [claim(a="2")]}, "ClaimTemplates"),
    ("NodeSet", {"volumeClaimTemplates": [claim()]}, {"volumeClaimTemplates": None}, "volumeClaimTemplates"),
]


@pytest.mark.parametrize(("kind", "changes"), TAKEN)
async def test_a_valid_resource_is_accepted(client: Client, kind: str, changes: Spec) -> None:
    wanted = resource(kind, changes)
    stored = await client.create(RESOURCES[kind], wanted)
    assert sources.merged(stored["spec"], wanted["spec"]) == stored["spec"], "fields were changed or lost"


@pytest.mark.parametrize(("kind", "changes", "message"), REFUSED)
async def test_an_invalid_resource_is_refused_with_the_place_and_the_reason(
    client: Client, kind: str, changes: Spec, message: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        await client.create(RESOURCES[kind], resource(kind, changes))
    assert message in str(refusal.value)


async def test_the_examples_that_artifact_hub_shows_are_accepted(client: Client) -> None:
    for example in chart_package.examples():
        metadata = {**example["metadata"], "namespace": "default"}
        await client.create(RESOURCES[example["kind"]], {**example, "metadata": metadata})


@pytest.mark.parametrize(("kind", "good", "bad"), NAMES)
async def test_a_name_that_is_too_long_for_pods_or_services_is_refused(
    client: Client, kind: str, good: str, bad: str
) -> None:
    await client.create(RESOURCES[kind], resource(kind, {}, good))
    with pytest.raises(Invalid, match=r"at most \d+ characters"):
        await client.create(RESOURCES[kind], resource(kind, {}, bad))


@pytest.mark.parametrize(("kind", "before", "after"), CHANGES_TAKEN)
async def test_a_mutable_field_can_be_changed(client: Client, kind: str, before: Spec, after: Spec) -> None:
    stored = await client.create(RESOURCES[kind], resource(kind, before))
    await client.merge_patch(RESOURCES[kind], "default", stored["metadata"]["name"], {"spec": after})


@pytest.mark.parametrize(("kind", "before", "after", "message"), CHANGES_REFUSED)
async def test_an_immutable_field_can_not_be_changed(
    client: Client, kind: str, before: Spec, after: Spec, message: str
) -> None:
    stored = await client.create(RESOURCES[kind], resource(kind, before))
    with pytest.raises(ApiError, match=message):
        await client.merge_patch(RESOURCES[kind], "default", stored["metadata"]["name"], {"spec": after})


async def test_defaults_are_filled_in(client: Client) -> None:
    changes = {"updateStrategy": {"rollingUpdate": {}, "scheduledUpdate": {}}, "ssh": {"enabled": False}}
    stored = await client.create(RESOURCES["NodeSet"], resource("NodeSet", changes))
    assert stored["spec"] == {
        "controllerRef": {"name": "slurm"},
        "replicas": 1,
        "scalingMode": "StatefulSet",
        "ssh": {"enabled": False},
        "updateStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "25%"},
            "scheduledUpdate": {"duration": "30m"},
        },
        "revisionHistoryLimit": 0,
        "ordinalPadding": 0,
        "pinToNode": False,
        "workloadDisruptionProtection": True,
        "nodeRecords": "Delete",
        "pruneSlurmNodeRecords": "Never",
        "oversubscribeNode": False,
        "forceRemoval": False,
    }
    stored = await client.create(RESOURCES["Controller"], resource("Controller", {}))
    want_defaults = {
        "external": False,
        "configUpdate": "Reconfigure",
        "inplaceReconfigure": False,
        "constrainJobs": True,
    }
    assert stored["spec"] == SMALLEST["Controller"] | want_defaults
    stored = await client.create(RESOURCES["Accounting"], resource("Accounting", {}))
    assert stored["spec"]["storageConfig"].items() >= {"port": 3306, "database": "slurm_acct_db"}.items()
    stored = await client.create(RESOURCES["Token"], resource("Token", {}))
    assert stored["spec"].items() >= {"lifetime": "15m", "refresh": True}.items()


@pytest.mark.parametrize(("kind", "changes"), [("NodeSet", {"replicas": 1}), ("LoginSet", {"replicas": 1})])
async def test_workers_and_login_nodes_scale_through_the_scale_subresource(
    client: Client, kind: str, changes: Spec
) -> None:
    stored = await client.create(RESOURCES[kind], resource(kind, changes))
    name = stored["metadata"]["name"]
    await client.merge_patch(RESOURCES[kind], "default", name, {"spec": {"replicas": 4}}, subresource="scale")
    status = {"replicas": 2, "selector": "app.kubernetes.io/instance=x"}
    await client.merge_patch(RESOURCES[kind], "default", name, {"status": status}, subresource="status")
    scale = await client.merge_patch(RESOURCES[kind], "default", name, {}, subresource="scale")
    assert scale["spec"] == {"replicas": 4}
    assert scale["status"] == status


@pytest.mark.parametrize("kind", definitions.KINDS)
async def test_a_status_keeps_conditions_by_type(client: Client, kind: str) -> None:
    stored = await client.create(RESOURCES[kind], resource(kind, {}))
    name = stored["metadata"]["name"]
    ready = {
        "type": "Ready",
        "status": "False",
        "observedGeneration": 1,
        "lastTransitionTime": "2030-01-01T00:00:00Z",
        "reason": "ControllerMissing",
        "message": "there is no Controller slurm in namespace default: make it, or change controllerRef",
    }
    status = {"observedGeneration": 1, "conditions": [ready]}
    patched = await client.merge_patch(RESOURCES[kind], "default", name, {"status": status}, subresource="status")
    assert patched["status"] == status
    twice = {"status": {"conditions": [ready, ready]}}
    with pytest.raises(Invalid, match="Duplicate value"):
        await client.merge_patch(RESOURCES[kind], "default", name, twice, subresource="status")


@pytest.mark.parametrize(
    ("kind", "want_columns", "want_wide"),
    [
        ("Controller", "NAME AGE STATUS", "NAME AGE STATUS MESSAGE"),
        ("Accounting", "NAME AGE STATUS", "NAME AGE STATUS MESSAGE"),
        ("RestApi", "NAME REPLICAS READY AGE STATUS", "NAME REPLICAS READY AGE STATUS MESSAGE"),
        ("LoginSet", "NAME REPLICAS READY AGE STATUS", "NAME REPLICAS READY AGE STATUS MESSAGE"),
        (
            "NodeSet",
            "NAME DESIRED REPLICAS UPDATED READY AGE STATUS",
            "NAME DESIRED REPLICAS UPDATED READY IDLE ALLOCATED DOWN DRAIN AGE STATUS MESSAGE",
        ),
        ("Token", "NAME USER IAT EXPIRES AGE STATUS", "NAME USER IAT EXPIRES AGE STATUS MESSAGE"),
    ],
)
def test_kubectl_shows_the_columns(kubeconfig: Path, kind: str, want_columns: str, want_wide: str) -> None:
    kubectl: list[str | Path] = [tool("kubectl"), f"--kubeconfig={kubeconfig}"]
    run([*kubectl, "create", "--filename=-"], stdin=yaml.safe_dump(resource(kind, {})), seconds=60)
    assert run([*kubectl, "get", kind], seconds=60).splitlines()[0].split() == want_columns.split()
    assert run([*kubectl, "get", kind, "--output=wide"], seconds=60).splitlines()[0].split() == want_wide.split()


def test_kubectl_finds_the_kinds_by_their_short_names_and_category(kubeconfig: Path) -> None:
    kubectl: list[str | Path] = [tool("kubectl"), f"--kubeconfig={kubeconfig}"]
    # For a kind that is new to it kubectl asks again what is served; for a short name it doesn't.
    run([*kubectl, "create", "--filename=-"], stdin=yaml.safe_dump(resource("Token", {}, "mine")), seconds=60)
    for kind in definitions.KINDS:
        for name in definitions.load(kind)["shortNames"]:
            run([*kubectl, "get", name], seconds=60)
    assert "token.slinky.slurm.net/mine" in run([*kubectl, "get", "slurm", "--output=name"], seconds=60)
