"""The YAML and shell scripts of charts/slurm-operator/workloads agree with `sidecars.contract`."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecars.contract import annotations, environment, manifest, paths, podfiles, ports

WORKLOADS = Path(__file__).parents[3] / "charts/slurm-operator/workloads"
FILES = sorted(path.name for path in WORKLOADS.glob("*.yaml"))
NOT_OURS = {"NVIDIA_DRIVER_CAPABILITIES"}
"""Variables that the container runtime reads."""


def pod_specs(name: str) -> Iterator[dict[str, Any]]:
    """The spec of each pod of a file. One that belongs to no pod is empty."""
    for document in yaml.safe_load_all((WORKLOADS / name).read_text()):
        spec = (document or {}).get("spec") or {}
        if document.get("kind") == "Pod":
            yield spec
        else:
            yield ((spec.get("jobTemplate") or spec).get("template") or {}).get("spec") or {}


def containers_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """All containers of a pod, those of init too."""
    fields = ("initContainers", "containers")
    return [it for field in fields for it in pod.get(field) or () if "name" in it]


def containers(name: str) -> Iterator[dict[str, Any]]:
    """All containers of a file, those of init too."""
    for pod in pod_specs(name):
        yield from containers_of(pod)


def rights_of_root() -> dict[str, set[str]]:
    """The capabilities of each container that may run as root, by its name; `ALL` of one that drops
    none. An overlay changes what its base sets.
    """
    found: dict[str, set[str]] = {}
    for name in FILES:
        words = name.removesuffix(".yaml").split("-")
        bases = ("-".join(words[: number + 1]) + ".yaml" for number in range(len(words)))
        of_pod: dict[str, Any] = {}
        of_containers: dict[str, dict[str, Any]] = {}
        for pod in (pod for base in bases if base in FILES for pod in pod_specs(base)):
            of_pod |= pod.get("securityContext") or {}
            for it in containers_of(pod):
                own = of_containers.setdefault(it["name"], {})
                own |= it.get("securityContext") or {}
        for container, own in of_containers.items():
            context = of_pod | own
            if not (context.get("runAsNonRoot") and context.get("runAsUser")):
                capabilities = context.get("capabilities") or {}
                bounded = capabilities.get("drop") == ["ALL"] and not context.get("privileged")
                found[container] = set(capabilities.get("add") or ()) if bounded else {"ALL"}
    return found


def test_the_containers_with_rights_of_root_are_those_that_the_documentation_lists() -> None:
    page = (WORKLOADS.parents[2] / "docs/security.md").read_text()
    [_, table] = page.split("## Containers with rights of root")
    rows = [row.split(" | ") for row in table.splitlines() if row.startswith("| `")]
    listed = {
        container.strip("|` "): set(re.findall(r"`([A-Z_]+)`", text)) or {"ALL"}
        for container, _, text in rows
    }
    assert rights_of_root() == listed


@pytest.mark.parametrize("name", FILES)
def test_a_container_sets_a_variable_once(name: str) -> None:
    for container in containers(name):
        found = Counter(it["name"] for it in container.get("env") or ())
        assert [name for name, times in found.items() if times > 1] == [], container["name"]


def sidecars(role: str) -> list[dict[str, Any]]:
    """The containers of this role: in the base, and in the overlays, which name the container
    only.
    """
    found = [it for name in FILES for it in containers(name)]
    assert [it for it in found if it.get("args") == [role]], role
    return [it for it in found if it["name"] == role]


@pytest.mark.parametrize("role", sorted(environment.BY_ROLE))
def test_the_pods_set_just_the_variables_that_a_role_reads(role: str) -> None:
    found = {it["name"] for container in sidecars(role) for it in container.get("env") or ()}
    assert found - NOT_OURS == environment.BY_ROLE[role]


@pytest.mark.parametrize(
    ("role", "folders"),
    [
        ("node", {podfiles.FOLDER, str(Path(paths.JWT_KEY).parent)}),
        (
            "register",
            {
                podfiles.FOLDER,
                str(Path(podfiles.FOLDER) / "log"),
                str(Path(paths.ANNOTATIONS).parent),
            },
        ),
        ("reconfigure", {paths.SLURM_CONF_FOLDER, paths.CANDIDATE, paths.KEYS, paths.CHECK}),
        ("slurmd", {podfiles.FOLDER, paths.SLURM_CONF_FOLDER, paths.HEALTH}),
    ],
)
def test_the_pods_mount_the_folders_that_a_container_uses(role: str, folders: set[str]) -> None:
    found = {
        it["mountPath"]
        for name in FILES
        for c in containers(name)
        if c["name"] == role
        for it in mounts(c)
    }
    assert folders <= found


def mounts(container: dict[str, Any]) -> list[dict[str, Any]]:
    """Its volume mounts."""
    return container.get("volumeMounts") or []


@pytest.mark.parametrize(
    ("daemon", "port"),
    [
        ("slurmctld", ports.SLURMCTLD),
        ("slurmd", ports.SLURMD),
        ("slurmdbd", ports.SLURMDBD),
        ("slurmrestd", ports.SLURMRESTD),
    ],
)
def test_each_daemon_has_its_port(daemon: str, port: int) -> None:
    found = [
        it
        for name in FILES
        for c in containers(name)
        if c["name"] == daemon
        for it in c.get("ports") or ()
    ]
    assert {it["containerPort"] for it in found if it["name"] == daemon} == {port}


def test_the_hooks_of_slurmd_use_the_shared_files() -> None:
    [slurmd] = [it for it in containers("slurmd.yaml") if it["name"] == "slurmd"]
    start, stop = (
        slurmd["lifecycle"][hook]["exec"]["command"][-1] for hook in ("postStart", "preStop")
    )
    folder = podfiles.FOLDER
    assert start == f"rm -rf {folder}/{podfiles.STOP}"
    assert f"read -r released < {folder}/{podfiles.RELEASED};" in stop
    assert f"mv {folder}/{podfiles.HOOK}/.stop {folder}/{podfiles.STOP}\n" in stop
    names = (podfiles.CONF, podfiles.EXTRA, podfiles.INSTANCE_ID)
    assert [it for it in slurmd["args"] if "cat" in it] == [
        f'"$(cat {folder}/{name})"' for name in names
    ]


def test_slurmd_mounts_the_folders_that_register_creates_for_it() -> None:
    [slurmd] = [it for it in containers("slurmd.yaml") if it["name"] == "slurmd"]
    found = {it["mountPath"]: it["subPath"] for it in mounts(slurmd) if "subPath" in it}
    hook = str(Path(podfiles.FOLDER) / podfiles.HOOK)
    assert found == {hook: podfiles.HOOK, "/var/log/slurm": Path(podfiles.LOG).name}
    [log] = [
        it["value"]
        for c in containers("slurmd.yaml")
        for it in c.get("env") or ()
        if it["name"] == "SOCKET"
    ]
    assert Path(log).parent.name == Path(podfiles.LOG).name


def test_the_health_program_looks_for_the_stop_file_in_the_shared_folder() -> None:
    lines = (WORKLOADS / "health-run.sh").read_text().splitlines()
    assert f"pod=${{{environment.SLURM_NODE_DIR}:-{podfiles.FOLDER}}}" in lines
    assert f'is_leaving() {{ test -e "$pod/{podfiles.STOP}"; }}' in lines


def test_the_pod_reads_the_annotation_and_the_label_that_the_operator_writes() -> None:
    fields = {
        it["name"]: it["valueFrom"]["fieldRef"]["fieldPath"]
        for container in containers("slurmd.yaml")
        for it in container.get("env") or ()
        if "fieldRef" in it.get("valueFrom", ())
    }
    assert fields[environment.SLURM_NODE_NAME] == f"metadata.labels['{annotations.POD_HOSTNAME}']"
    assert fields[environment.SLINKY_TOPOLOGY] == f"metadata.annotations['{annotations.TOPOLOGY}']"
    [pod] = yaml.safe_load_all((WORKLOADS / "slurmd.yaml").read_text())
    [volume] = [it for it in pod["spec"]["volumes"] if it["name"] == "podinfo"]
    [item] = volume["downwardAPI"]["items"]
    assert item == {
        "path": Path(paths.ANNOTATIONS).name,
        "fieldRef": {"fieldPath": "metadata.annotations"},
    }


def test_register_knows_the_limits_of_all_containers_that_run_as_long_as_the_pod() -> None:
    [pod] = yaml.safe_load_all((WORKLOADS / "slurmd.yaml").read_text())
    lasting = [
        it["name"] for it in pod["spec"]["initContainers"] if it.get("restartPolicy") == "Always"
    ]
    assert {*lasting, "slurmd"} == {*environment.LIMITED}
    [register] = [it for it in containers("slurmd.yaml") if it["name"] == "register"]
    found = {
        it["name"]: it["valueFrom"].get("resourceFieldRef")
        for it in register["env"]
        if "valueFrom" in it
    }
    for container in environment.LIMITED:
        cpus, memory = environment.given_limits(container)
        assert found[cpus] == {
            "containerName": container,
            "resource": "limits.cpu",
            "divisor": "1m",
        }
        assert found[memory] == {
            "containerName": container,
            "resource": "limits.memory",
            "divisor": "1Mi",
        }


def test_the_keys_are_mounted_by_their_names() -> None:
    [stateful_set] = [
        it
        for it in yaml.safe_load_all((WORKLOADS / "slurmctld.yaml").read_text())
        if it["kind"] == "StatefulSet"
    ]
    [volume] = [
        it
        for it in stateful_set["spec"]["template"]["spec"]["volumes"]
        if it["name"] == "slurm-keys"
    ]
    sources = [it["secret"]["items"] for it in volume["projected"]["sources"] if "secret" in it]
    paths_of = [item["path"] for items in sources for item in items]
    assert paths_of == [manifest.SLURM_KEY, manifest.SLURM_JWKS, manifest.JWT_KEY]


@pytest.mark.parametrize("name", ["login", "slurmctld", "slurmd", "slurmdbd", "slurmrestd"])
def test_no_pod_of_slurm_has_credentials_of_kubernetes(name: str) -> None:
    documents = yaml.safe_load_all((WORKLOADS / f"{name}.yaml").read_text())
    [workload] = [it for it in documents if it["kind"] in {"Pod", "StatefulSet", "Deployment"}]
    pod = workload["spec"] if workload["kind"] == "Pod" else workload["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert "serviceAccountToken" not in str(pod["volumes"])
