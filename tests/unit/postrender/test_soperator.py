"""That a SlurmCluster of Soperator and its NodeSets become values, and that nothing of them is lost
without a word: the fields are those of Soperator's CRDs.
"""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from postrender import soperator
from postrender.cli import main
from postrender.errors import PostrenderError
from postrender.soperator import Conversion

FIXTURES = Path(__file__).parents[2] / "fixtures" / "soperator"
CLUSTER = FIXTURES / "cluster.yaml"
FIELDS = [
    (kind, path.split("."), type)
    for line in (FIXTURES / "fields.txt").read_text(encoding="utf-8").splitlines()[1:]
    for kind, _, rest in [line.partition(".")]
    for path, _, type in [rest.partition(" ")]
]
RESOURCES = [*yaml.safe_load_all(CLUSTER.read_text(encoding="utf-8"))]
SAMPLES = {"string": "a", "integer": 7, "boolean": True, "array": ["a"], "object": {"a": "b"}}


def resources() -> list[Any]:
    """The SlurmCluster and the NodeSet of the fixture."""
    return copy.deepcopy(RESOURCES)


def changed(kind: str, path: str, value: Any) -> list[Any]:
    """The resources with another value of a field; None removes it."""
    found = resources()
    (inner,) = (it["spec"] for it in found if it["kind"] == kind)
    *parents, last = path.split(".")
    for key in parents:
        inner = inner.setdefault(key, {})
    inner[last] = value
    return found


def of(kind: str, path: str, value: Any) -> Conversion:
    return soperator.convert(changed(kind, path, value))


def fault(kind: str, path: str, value: Any) -> str:
    with pytest.raises(PostrenderError) as caught:
        of(kind, path, value)
    return caught.value.message


def is_set(kind: str, path: list[str]) -> bool:
    (value,) = (it["spec"] for it in resources() if it["kind"] == kind)
    for key in path:
        value = value.get(key, {})
    return bool(value != {})


@pytest.mark.parametrize(
    ("kind", "path", "type"), FIELDS, ids=lambda it: ".".join(it) if isinstance(it, list) else it
)
def test_each_field_of_soperator_changes_the_values_or_is_listed_with_a_reason(
    kind: str, path: list[str], type: str
) -> None:
    name = ".".join(path)
    whole = soperator.convert(resources())
    try:
        found = of(kind, name, None if is_set(kind, path) else SAMPLES.get(type, "1Gi"))
    except PostrenderError as error:
        # What others refer to, and what only certain values are right for.
        refused = name in {"k8sNodeFilters", "volumeSources", "slurmd.resources"}
        if refused or f"spec.{name}" in error.message:
            return
        raise
    parts = {".".join(path[:length]) for length in range(1, len(path) + 1)}
    new = [it for it in found.left if it not in whole.left]
    places = {it.place.partition("spec.")[2] for it in new}
    assert name == "clusterName" or found.values != whole.values or places & parts
    assert [it for it in new if "doesn't know" in it.reason] == []


def test_a_cluster_becomes_values() -> None:
    values = soperator.convert(resources()).values
    assert values["clusterName"] == "physics"
    controller = values["controller"]
    assert controller["podSpec"] == {
        "nodeSelector": {"example.com/kind": "system"},
        "tolerations": [{"key": "example.com/system", "operator": "Exists"}],
        "priorityClassName": "high",
        "initContainers": [{"name": "wait", "image": "busybox"}],
    }
    assert controller["slurmctld"]["resources"] == {
        "requests": {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "1Gi"},
        "limits": {"memory": "4Gi", "ephemeral-storage": "1Gi"},
    }
    assert controller["persistence"]["resources"] == {"requests": {"storage": "30Gi"}}
    assert controller["extraConfMap"]["DefCpuPerGPU"] == 8
    assert controller["extraConfMap"]["AccountingStorageTRES"] == "gres/gpu"
    assert controller["extraConf"] == "SchedulerParameters=bf_continue\n"
    assert values["accounting"]["storageConfig"] == {
        "host": "db.example.com",
        "port": 3307,
        "username": "slurm",
        "passwordKeyRef": {"name": "db", "key": "password"},
    }
    assert values["accounting"]["extraConfMap"] == {
        "ArchiveJobs": "yes",
        "TCPTimeout": 5,
        "PurgeTXNAfter": "12month",
        "PrivateData": "jobs",
        "StorageParameters": "SSL_CA=/etc/ca.crt",
    }
    assert values["partitions"]["gpu"] == {
        "enabled": True,
        "nodesets": ["worker-gpu"],
        "config": "MaxTime=8:00:00",
    }


def test_a_login_node_keeps_its_service_its_keys_and_its_mounts() -> None:
    login = soperator.convert(resources()).values["loginsets"]["login"]
    assert login["replicas"] == 2
    assert login["rootSshAuthorizedKeys"] == "ssh-ed25519 AAAA root\n"
    assert login["service"]["spec"]["type"] == "LoadBalancer"
    assert login["service"]["nodePort"] == 30022
    assert login["login"]["volumeMounts"] == [
        {"name": "home", "mountPath": "/home"},
        {"name": "scratch", "mountPath": "/scratch", "subPath": "a", "readOnly": True},
    ]
    assert login["podSpec"]["volumes"] == [
        {"name": "home", "persistentVolumeClaim": {"claimName": "home-pvc"}},
        {"name": "scratch", "hostPath": {"path": "/mnt/scratch"}},
    ]


def test_a_nodeset_keeps_the_names_of_its_nodes_its_gpus_and_its_volumes() -> None:
    found = soperator.convert(resources()).values["nodesets"]
    assert list(found) == ["worker-gpu"]
    workers = found["worker-gpu"]
    assert workers["replicas"] == 4
    assert workers["gpu"] == {"enabled": True, "count": 8}
    assert workers["slurmd"]["resources"]["limits"] == {"cpu": "96", "memory": "900Gi"}
    assert workers["updateStrategy"] == {"rollingUpdate": {"maxUnavailable": "25%"}}
    assert workers["extraConfMap"] == {"Features": ["h100", "fast"]}
    assert [it["metadata"]["name"] for it in workers["volumeClaimTemplates"]] == ["local"]
    assert workers["podSpec"]["volumes"][-1] == {
        "name": "shared-memory",
        "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"},
    }


def test_partitions_are_those_of_soperators_default_of_lines_or_of_nodesets() -> None:
    path = "partitionConfiguration"
    default = of("SlurmCluster", path, {}).values["partitions"]
    assert {name: it["nodesets"] for name, it in default.items()} == {
        "main": ["ALL"],
        "hidden": ["ALL"],
    }
    line = "PartitionName=low Nodes=worker-gpu Default=YES PriorityTier=1"
    lines = of("SlurmCluster", path, {"configType": "custom", "rawConfig": [line]})
    assert lines.values["partitions"] == {
        "low": {
            "enabled": True,
            "nodesets": ["worker-gpu"],
            "config": "Default=YES PriorityTier=1",
        }
    }


def test_a_claim_that_is_mounted_must_be_created_again() -> None:
    reasons = [it.reason for it in soperator.convert(resources()).left]
    assert len([it for it in reasons if it.startswith("home-pvc: create this claim")]) == 2


def test_a_list_of_kubectl_is_read_and_other_kinds_are_ignored() -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [other, *resources()]}
    assert soperator.convert([None, listed]) == soperator.convert(resources())


@pytest.mark.parametrize(
    ("kind", "path", "value", "message"),
    [
        ("NodeSet", "replicas", "4", "NodeSet worker-gpu: spec.replicas: '4' is not a number"),
        ("NodeSet", "replicas", True, "spec.replicas: True is not a number"),
        ("NodeSet", "gpu.enabled", "yes", "spec.gpu.enabled: 'yes' is not true or false"),
        ("NodeSet", "clusterName", "other", "is 'other', and the SlurmCluster is 'physics'"),
        ("NodeSet", "slurmd.resources", {"cpu": 1}, "gpu.enabled is set, and nvidia.com/gpu is"),
        (
            "NodeSet",
            "slurmd.volumes.jailSubMounts",
            [{"name": "a", "mountPath": "/a"}],
            "'a' names no volume",
        ),
        ("SlurmCluster", "slurmNodes.login.k8sNodeFilterName", "gpu", "no filter 'gpu'"),
        ("SlurmCluster", "k8sNodeFilters", [{}], "spec.k8sNodeFilters: {} has no name"),
        ("SlurmCluster", "volumeSources", [{}], "spec.volumeSources: {} has no name"),
        ("SlurmCluster", "volumeSources", "home", "spec.volumeSources: 'home' is not a list"),
        ("SlurmCluster", "customSlurmConfig", [], "spec.customSlurmConfig: [] is not a text"),
        ("SlurmCluster", "slurmNodes.login.sshd.resources", 1, "resources: 1 is not an object"),
        (
            "SlurmCluster",
            "slurmNodes.login.volumes.customMounts",
            [{"name": "a", "mountPath": "/a", "volumeSourceName": "b"}],
            "customMounts: 'a' names no volume of spec.volumeSources",
        ),
        ("SlurmCluster", "partitionConfiguration.configType", "raw", "'raw' is not default"),
        (
            "SlurmCluster",
            "partitionConfiguration.partitions",
            [{"name": "a", "nodeSetRefs": ["cpu"]}],
            "partition a has the NodeSet 'cpu', which none of the files has",
        ),
        ("SlurmCluster", "partitionConfiguration.partitions", [{}], "{} has no name"),
        (
            "SlurmCluster",
            "partitionConfiguration",
            {"configType": "custom", "rawConfig": ["Nodes=ALL"]},
            "'Nodes=ALL' has no PartitionName",
        ),
    ],
)
def test_what_soperator_would_not_take_is_named_with_place_and_value(
    kind: str, path: str, value: Any, message: str
) -> None:
    assert message in fault(kind, path, value)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([], "0 SlurmClusters (none)"),
        ([*resources(), *resources()], "2 SlurmClusters (physics, physics)"),
        ([{**resources()[0], "metadata": {}}], "SlurmCluster: metadata.name is None"),
        ([{**resources()[0], "metadata": {"name": "a: b"}}], "metadata.name is 'a: b'"),
        ([{**resources()[0], "spec": None}], "SlurmCluster physics: spec is missing"),
    ],
)
def test_files_without_one_whole_cluster_are_refused(documents: list[Any], message: str) -> None:
    with pytest.raises(PostrenderError) as caught:
        soperator.convert(documents)
    assert message in caught.value.message


def test_a_field_that_soperator_does_not_have_is_listed() -> None:
    found = of("NodeSet", "slurmd.imag", "a")
    (new,) = (it for it in found.left if "imag" in it.place)
    assert (new.place, new.reason) == (
        "NodeSet worker-gpu: spec.slurmd.imag",
        "this command doesn't know the field",
    )


def test_a_label_without_a_value_still_selects() -> None:
    found = of("NodeSet", "nodeSelector", {"example.com/gpu": ""})
    selector = found.values["nodesets"]["worker-gpu"]["podSpec"]["nodeSelector"]
    assert selector == {"example.com/gpu": ""}


def test_the_resources_are_not_changed() -> None:
    given = resources()
    before = copy.deepcopy(given)
    soperator.convert(given)
    assert given == before


def test_the_command_prints_values_and_first_what_they_lack(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["from-soperator", str(CLUSTER)]) == 0
    printed = capsys.readouterr().out
    assert yaml.safe_load(printed) == soperator.convert(resources()).values
    assert (
        "# Not converted:\n# - SlurmCluster physics: spec.slurmNodes.login.volumes.jailSubMounts: "
        "home-pvc: create this claim" in printed
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "can't be read: No such file"),
        (b"\xff", "no UTF-8 text"),
        (b"kind: [", "line 1"),
        (b"kind: SlurmCluster\n", "0 SlurmClusters (none): give the files of one"),
    ],
)
def test_a_file_that_is_no_manifest_ends_the_command_with_its_name(
    content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.yaml"
    if content is not None:
        file.write_bytes(content)
    assert main(["from-soperator", str(file)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert "SlurmClusters" in message or str(file) in printed.err
