"""Custom resources that the API server accepts, and some that it refuses, each with a part of its
message.
"""

import itertools
from typing import Any

from schemas import definitions, sources

Spec = dict[str, Any]

KEY = {"name": "slurm-auth-slurm", "key": "slurm.key"}
JWT = {"name": "slurm-auth-jwt", "key": "jwt.key"}
OTHER = {"name": "other", "key": "jwt.key"}
EXTERNAL = {"external": True, "externalConfig": {"host": "slurm.example.com", "port": 6817}}
TREE = {"labels": ["example.com/rack"]}
CLAIM = {"enabled": True, "existingClaim": "statesave"}
SMALLEST: dict[str, Spec] = {
    "Controller": {"slurmKeyRef": KEY, "jwtKeyRef": JWT},
    "Accounting": {
        "slurmKeyRef": KEY,
        "jwtKeyRef": JWT,
        "storageConfig": {
            "host": "mariadb",
            "passwordKeyRef": {"name": "mariadb-password", "key": "password"},
        },
    },
    "RestApi": {"controllerRef": {"name": "slurm"}},
    "LoginSet": {
        "controllerRef": {"name": "slurm"},
        "sssdConfRef": {"name": "sssd", "key": "sssd.conf"},
    },
    "NodeSet": {"controllerRef": {"name": "slurm"}},
    "Token": {"jwtKeyRef": JWT, "username": "slurm"},
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
    spec = {
        key: value
        for key, value in sources.merged(SMALLEST[kind], changes).items()
        if value is not None
    }
    return {
        "apiVersion": f"{definitions.GROUP}/{definitions.VERSION}",
        "kind": kind,
        "metadata": {"name": name or f"test-{next(NUMBERS)}", "namespace": "default"},
        "spec": spec,
    }


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
    (
        "Controller",
        {"persistence": {"enabled": True, "resources": {"requests": {"storage": "4Gi"}}}},
    ),
    (
        "Controller",
        {"metrics": {"enabled": True, "serviceMonitor": {"enabled": True, "interval": "1m30s"}}},
    ),
    ("Controller", {"configUpdate": "Recreate", "inplaceReconfigure": True}),
    ("Accounting", {"slurmKeyRef": None, "jwtKeyRef": None, "storageConfig": None, **EXTERNAL}),
    ("RestApi", {"replicas": 0, "service": {"port": 0, "spec": {"type": "NodePort"}}}),
    (
        "LoginSet",
        {"strategy": {"type": "Recreate"}, "login": {"env": [{"name": "A", "value": "1"}]}},
    ),
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
    (
        "NodeSet",
        {
            "nodeRecords": "Keep",
            "pruneSlurmNodeRecords": "NodeNotFound",
            "deletionTimeout": "1h30m",
        },
    ),
    ("Token", {"jwtKeyRef": None, "jwtHs256KeyRef": JWT}),
    (
        "Token",
        {"username": "Jane_Doe", "secretRef": {"name": "jane", "key": "token"}, "lifetime": "1.5h"},
    ),
]

REFUSED: list[tuple[str, Spec, str]] = [
    ("Controller", {"slurmKeyRef": None}, "slurmKeyRef is required"),
    ("Controller", {"jwtKeyRef": None}, "jwtKeyRef is required"),
    ("Controller", {**EXTERNAL, "externalConfig": None}, "externalConfig is required"),
    (
        "Controller",
        {**EXTERNAL, "externalConfig": {"host": "h"}},
        "spec.externalConfig.port: Required",
    ),
    ("Controller", {"ha": {"enabled": True}}, "ha.enabled needs persistence.enabled"),
    (
        "Controller",
        {"ha": {"enabled": True}, "persistence": {"enabled": True}},
        "persistence.existingClaim",
    ),
    ("Controller", {"topologies": [{"name": "a"}]}, "a topology has either tree or block"),
    (
        "Controller",
        {"topologies": [{"name": name, "tree": TREE, "clusterDefault": True} for name in "ab"]},
        "only one topology can have clusterDefault",
    ),
    (
        "Controller",
        {"ha": {"enabled": True, "backups": 0}, "persistence": CLAIM},
        "spec.ha.backups",
    ),
    ("Controller", {"clusterName": "c" * 41}, "spec.clusterName: Too long"),
    ("Controller", {"clusterName": "a\nSlurmUser=root"}, "spec.clusterName"),
    ("Controller", {"configUpdate": "Sometimes"}, "spec.configUpdate: Unsupported value"),
    ("Controller", {"prologScriptRefs": [{"name": ""}]}, "spec.prologScriptRefs[0].name"),
    (
        "Controller",
        {"metrics": {"enabled": True, "serviceMonitor": {"enabled": True, "interval": "soon"}}},
        "interval",
    ),
    ("Controller", {"clusterName": "../../etc"}, "spec.clusterName"),
    ("Controller", {"clusterName": "a,b"}, "spec.clusterName"),
    *(
        (
            "Controller",
            {**EXTERNAL, "externalConfig": {"host": host, "port": 6817}},
            "spec.externalConfig.host",
        )
        for host in ("h\nSlurmUser=root", "h SlurmUser=root", "h#", "h\\", "$(id)", "h\v", "h'")
    ),
    (
        "Accounting",
        {**EXTERNAL, "externalConfig": {"host": "h\nStorageUser=root", "port": 1}},
        "externalConfig.host",
    ),
    ("Accounting", {"slurmKeyRef": None}, "slurmKeyRef is required"),
    ("Accounting", {"jwtKeyRef": None}, "jwtKeyRef is required"),
    ("Accounting", {**EXTERNAL, "externalConfig": None}, "externalConfig is required"),
    ("Accounting", {"storageConfig": None}, "storageConfig is required"),
    ("Accounting", {"storageConfig": {"host": "db\nStorageUser=root"}}, "spec.storageConfig.host"),
    *(
        (
            "Accounting",
            {
                "storageConfig": SMALLEST["Accounting"]["storageConfig"]
                | {field: "x\nStorageHost=evil"}
            },
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
    (
        "NodeSet",
        {"autoscaling": {"min": 2, "max": 1}},
        "autoscaling.min can't be higher than autoscaling.max",
    ),
    ("NodeSet", {"autoscaling": {"max": 1, "node": "CPUs"}}, "spec.autoscaling.node"),
    (
        "NodeSet",
        {"autoscaling": {"max": 1}, "scalingMode": "DaemonSet"},
        "autoscaling needs scalingMode StatefulSet",
    ),
    (
        "NodeSet",
        {"powerSaving": {"enabled": True}, "scalingMode": "DaemonSet"},
        "powerSaving needs scalingMode",
    ),
    (
        "NodeSet",
        {"powerSaving": {"enabled": True}, "autoscaling": {"max": 1}},
        "powerSaving and autoscaling exclude",
    ),
    (
        "NodeSet",
        {"powerSaving": {"enabled": True, "capacityWaitSeconds": 600}},
        "powerSaving.capacityWaitSeconds must be lower than powerSaving.startSeconds",
    ),
    (
        "NodeSet",
        {"gpu": {"enabled": True, "devices": ["/dev/nvidia0"]}},
        "gpu.devices needs gpu.type",
    ),
    ("NodeSet", unavailable(0), "maxUnavailable must be"),
    ("NodeSet", unavailable(-1), "maxUnavailable must be"),
    ("NodeSet", unavailable("0%"), "maxUnavailable must be"),
    ("NodeSet", unavailable("5"), "maxUnavailable must be"),
    ("NodeSet", scheduled(), "scheduledUpdate.startTime and scheduledUpdate.duration are required"),
    ("NodeSet", scheduled(startTime="tomorrow"), "spec.updateStrategy.scheduledUpdate.startTime"),
    (
        "NodeSet",
        scheduled(startTime="2030-01-01T00:00:00Z", duration="59s"),
        "duration must be at least 1m",
    ),
    (
        "NodeSet",
        scheduled(startTime="2030-01-01T00:00:00Z", duration="3 days"),
        "spec.updateStrategy.scheduledUpdate.duration",
    ),
    ("NodeSet", {"updateStrategy": {"type": "ScheduledUpdate"}}, "scheduledUpdate.startTime"),
    ("NodeSet", {"ssh": {"enabled": True}}, "ssh.sssdConfRef.name is required"),
    (
        "NodeSet",
        {"ssh": {"enabled": True, "sssdConfRef": {"key": "sssd.conf"}}},
        "ssh.sssdConfRef.name is required",
    ),
    (
        "NodeSet",
        {"partition": {"enabled": True, "config": "State=UP\nSlurmUser=root"}},
        "spec.partition.config",
    ),
    ("NodeSet", {"scalingMode": "ReplicaSet"}, "spec.scalingMode: Unsupported value"),
    ("NodeSet", {"replicas": -1}, "spec.replicas"),
    ("NodeSet", {"replicas": 65537}, "should be less than or equal to 65536"),
    ("NodeSet", {"deletionTimeout": "a minute"}, "spec.deletionTimeout"),
    ("Token", {"jwtKeyRef": None}, "jwtKeyRef is required"),
    ("Token", {"lifetime": "29s"}, "lifetime must be at least 30s"),
    (
        "Token",
        {"jwtKeyRef": None, "jwtHs256KeyRef": {"name": "jwt"}},
        "spec.jwtHs256KeyRef.key: Required",
    ),
    ("NodeSet", {"gpu": {"enabled": True, "type": "a\nName=x"}}, "spec.gpu.type"),
    (
        "NodeSet",
        {"gpu": {"enabled": True, "type": "a", "devices": ["/dev/a\nName=x"]}},
        "spec.gpu.devices[0]",
    ),
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
        (
            "Controller",
            {field: [{"name": "files", "namespace": "other"}]},
            "a reference can't leave its namespace",
        )
        for field in ("configFileRefs", "prologScriptRefs", "epilogSlurmctldScriptRefs")
    ),
    ("Token", {"username": None}, "spec.username: Required"),
    ("Token", {"username": "a\nb"}, "spec.username"),
    (
        "Token",
        {"username": "@slurm-operator", "secretRef": {"name": "s", "key": "k"}},
        "spec.username",
    ),
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
    (
        "Controller",
        {"jwtKeyRef": None, "jwtHs256KeyRef": JWT},
        {"jwtKeyRef": JWT, "jwtHs256KeyRef": OTHER},
    ),
    ("Controller", {}, {"clusterName": ""}),
    ("Controller", EXTERNAL, {"clusterName": "outside"}),
    ("Controller", {}, {"persistence": {"enabled": True}}),
    ("Controller", {}, {"slurmKeyRef": {"name": "slurm-auth-slurm", "key": "other"}}),
    (
        "Controller",
        {"persistence": {"enabled": False}},
        {"persistence": {"enabled": False, "existingClaim": "c"}},
    ),
    ("Controller", {}, {"extraConf": "SchedulerParameters=defer\n"}),
    ("Accounting", {"jwtKeyRef": None, "jwtHs256KeyRef": JWT}, {"jwtKeyRef": JWT}),
    ("Token", {"jwtKeyRef": None, "jwtHs256KeyRef": JWT}, {"jwtKeyRef": JWT}),
    ("NodeSet", {"volumeClaimTemplates": [claim(tier="a")]}, {"replicas": 3}),
    ("NodeSet", {"volumeClaimTemplates": []}, {"volumeClaimTemplates": None}),
    ("NodeSet", {}, {"scalingMode": "DaemonSet"}),
]
"""Each kind with fields of its spec before, and those that a merge patch changes."""

CHANGES_REFUSED: list[tuple[str, Spec, Spec, str]] = [
    ("Controller", {}, {"clusterName": "other"}, "cannot change ClusterName after deployment"),
    (
        "Controller",
        {"clusterName": "one"},
        {"clusterName": None},
        "cannot change ClusterName after deployment",
    ),
    (
        "Controller",
        {},
        {"slurmKeyRef": {"name": "other"}},
        "cannot change SlurmKeyRef after deployment",
    ),
    (
        "Controller",
        {},
        {"jwtKeyRef": OTHER},
        "the value of JwtKeyRef or JwtHs256KeyRef cannot be modified",
    ),
    (
        "Controller",
        {},
        {"jwtKeyRef": None, "jwtHs256KeyRef": OTHER},
        "the value of JwtKeyRef or JwtHs256KeyRef cannot",
    ),
    (
        "Controller",
        {},
        {"persistence": {"enabled": False}},
        "cannot change persistence.enabled after deployment",
    ),
    (
        "Controller",
        {"persistence": {"enabled": False}},
        {"persistence": None},
        "cannot change persistence.enabled",
    ),
    (
        "Controller",
        {"persistence": CLAIM},
        {"persistence": {"existingClaim": "b"}},
        "persistence.existingClaim after",
    ),
    (
        "Controller",
        {"persistence": CLAIM},
        {"persistence": None},
        "cannot change persistence.existingClaim",
    ),
    (
        "Controller",
        {},
        {"persistence": CLAIM},
        "cannot change persistence.existingClaim after deployment",
    ),
    (
        "Accounting",
        {},
        {"jwtKeyRef": OTHER},
        "the value of JwtKeyRef or JwtHs256KeyRef cannot be modified",
    ),
    (
        "Token",
        {},
        {"jwtKeyRef": OTHER},
        "the value of JwtKeyRef or JwtHs256KeyRef cannot be modified",
    ),
    (
        "RestApi",
        {},
        {"controllerRef": {"name": "other"}},
        "cannot change controllerRef after deployment",
    ),
    (
        "LoginSet",
        {},
        {"controllerRef": {"name": "other"}},
        "cannot change controllerRef after deployment",
    ),
    (
        "NodeSet",
        {},
        {"controllerRef": {"name": "other"}},
        "cannot change controllerRef after deployment",
    ),
    (
        "NodeSet",
        {},
        {"volumeClaimTemplates": [claim()]},
        "cannot change volumeClaimTemplates after deployment",
    ),
    (
        "NodeSet",
        {"volumeClaimTemplates": [claim()]},
        {"volumeClaimTemplates": [claim("2Gi")]},
        "volumeClaimTemplates",
    ),
    (
        "NodeSet",
        {"volumeClaimTemplates": [claim(a="1")]},
        {"volumeClaimTemplates": [claim(a="2")]},
        "ClaimTemplates",
    ),
    (
        "NodeSet",
        {"volumeClaimTemplates": [claim()]},
        {"volumeClaimTemplates": None},
        "volumeClaimTemplates",
    ),
]
"""The same, and a part of the message."""
