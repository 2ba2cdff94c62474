"""`make up` on a cluster that it didn't start, with a registry that has a password and an authority of its own.

The cluster's names, StorageClass and Pod Security aren't those of the local cluster, and its nodes have no image.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster import local
from tests.cluster.certificates import Authority
from tests.cluster.install import FIRST_JOB
from tests.cluster.tools import tool
from tests.support.real import registry
from tests.support.real.harness import CHARTS, REPOSITORY, Kubernetes

pytestmark = pytest.mark.timeout(450)
"""A run of `make up` may wait for images as long as `Site.up` does."""

NAME = "elsewhere"
EMPTY = {"default", "kube-node-lease", "kube-public", "kube-system"}
OFFSET = 9
"""That of the registry's port among those of the cluster."""


@dataclass(frozen=True)
class Site:
    """What a user has: a cluster, a registry, and the certificate of its authority."""

    kubernetes: Kubernetes
    cluster: local.Cluster
    kubeconfig: Path
    host: str
    certificate: Path
    home: Path

    def up(self, *, login: str = f"{registry.USER}:{registry.PASSWORD}", **environment: str) -> tuple[int, str]:
        """Exit code and output of `make up`."""
        docker = self.home / "docker"
        docker.mkdir(exist_ok=True)
        auths = {self.host: {"auth": b64encode(login.encode()).decode()}} if login else {}
        (docker / "config.json").write_text(json.dumps({"auths": auths}))
        given = {
            "KUBECONFIG": str(self.kubeconfig),
            "REGISTRY": f"{self.host}/team",
            "REGISTRY_CA": str(self.certificate),
            "DOCKER_CONFIG": str(docker),
            "VALUES": f"{FIRST_JOB}:{CHARTS / 'slurm' / 'examples' / 'without-cgroup-v2.yaml'}",
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.cluster", "up"],
            cwd=REPOSITORY,
            env=os.environ | given | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=400,
            check=False,
        )
        return done.returncode, done.stdout

    def namespaces(self) -> set[str]:
        """The namespaces of the cluster."""
        return {each["metadata"]["name"] for each in self.kubernetes.items("namespaces")}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The cluster and the registry, which end with the tests."""
    home = tmp_path_factory.mktemp("elsewhere")
    local.cluster_down(NAME)
    shutil.rmtree(local.clusters() / NAME / "images", ignore_errors=True)
    try:
        cluster = local.cluster_up(NAME, images=None, pod_security="baseline")
        kubeconfig = Path(shutil.copy(cluster.kubeconfig, home / "kubeconfig"))
        address, port = str(cluster.plan.host_address), cluster.plan.port(OFFSET)
        authority = Authority(home / "pki")
        serving = authority.issue("registry", "registry", hosts=[address])
        kubernetes = Kubernetes(kubeconfig, tool("kubectl"), tool("helm"))
        _rename_storage_class(kubernetes)
        with registry.with_certificate(home / "registry", address, port, serving):
            yield Site(kubernetes, cluster, kubeconfig, f"{address}:{port}", authority.certificate, home)
        kubernetes.close()
    finally:
        local.cluster_down(NAME)
        shutil.rmtree(local.clusters() / NAME / "images", ignore_errors=True)


def _rename_storage_class(kubernetes: Kubernetes) -> None:
    """Leave one StorageClass, with a name that no other cluster here has. It is not the default one."""
    (found,) = kubernetes.items("storageclasses")
    kubernetes.kubectl("delete", "storageclass", found["metadata"]["name"])
    kept = {key: found[key] for key in ("apiVersion", "kind", "provisioner", "volumeBindingMode", "reclaimPolicy")}
    kubernetes.kubectl("create", "-f", "-", stdin=json.dumps(kept | {"metadata": {"name": "fast"}}))


def test_without_a_default_storage_class_nothing_is_changed_and_the_existing_class_is_offered(site: Site) -> None:
    code, output = site.up()
    assert code == 1
    assert "no StorageClass is the default one" in output
    assert "kubectl patch storageclass fast" in output
    assert site.namespaces() == EMPTY


@pytest.fixture(scope="module")
def ready(site: Site) -> Site:
    """The cluster with a default StorageClass."""
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    patch = json.dumps({"metadata": {"annotations": annotations}})
    site.kubernetes.kubectl("patch", "storageclass", "fast", "-p", patch)
    return site


@pytest.mark.parametrize(
    ("login", "environment", "words"),
    [
        ("alice:wrong", {}, ["docker login", "UNAUTHORIZED"]),
        ("", {"REGISTRY_CA": ""}, ["REGISTRY_CA=", "unknown authority"]),
        ("", {"REGISTRY_CA": "", "REGISTRY": ""}, ["/sidecars:", "REGISTRY=registry.example.com/team"]),
    ],
    ids=["a wrong password", "an unknown authority", "no registry"],
)
def test_what_is_wrong_with_the_registry_is_reported_with_its_remedy_and_nothing_is_changed(
    ready: Site, login: str, environment: dict[str, str], words: list[str]
) -> None:
    code, output = ready.up(login=login, **environment)
    assert code == 1
    assert [word for word in words if word not in output] == [], output
    assert ready.namespaces() == EMPTY


def test_a_namespace_that_refuses_workers_is_reported_with_its_remedy_and_nothing_is_installed(ready: Site) -> None:
    kubectl = ready.kubernetes.kubectl
    kubectl("create", "namespace", "slurm")
    code, output = ready.up()
    assert code == 1
    assert "kubectl label namespace slurm pod-security.kubernetes.io/enforce=privileged" in output
    assert 'violates PodSecurity "baseline:latest"' in output
    assert ready.namespaces() == EMPTY | {"slurm"}
    assert not ready.kubernetes.items("-n", "slurm", "secrets")
    kubectl("delete", "namespace", "slurm", timeout=100)


def test_nodes_that_do_not_trust_the_registry_end_the_run_at_once_with_the_remedy(ready: Site) -> None:
    code, output = ready.up()
    assert code == 1
    assert "x509: certificate signed by unknown authority" in output
    assert "/etc/containerd/certs.d/HOST/hosts.toml" in output


def test_the_next_run_pulls_the_pushed_images_with_the_password_and_runs_a_job(ready: Site) -> None:
    for node in ready.cluster.nodes:
        folder = node.registries / ready.host
        folder.mkdir(parents=True)
        text = f'[host."https://{ready.host}"]\ncapabilities = ["pull", "resolve"]\nca = "{ready.certificate}"\n'
        (folder / "hosts.toml").write_text(text)
    code, output = ready.up()
    assert code == 0, output
    assert sorted(re.findall(r"^cpu-\d+$", output, re.MULTILINE)) == ["cpu-0", "cpu-1"]
    pods = [pod for name in ("slinky", "slurm") for pod in ready.kubernetes.items("-n", name, "pods")]
    containers = [each for pod in pods for each in [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]]
    assert containers
    assert {re.sub(r"/[a-z]+:[\d.]+@sha256:[0-9a-f]{64}$", "", each["image"]) for each in containers} == {
        f"{ready.host}/team"
    }


def test_a_run_without_changes_pushes_and_changes_nothing(ready: Site) -> None:
    code, output = ready.up()
    assert code == 0
    assert "nothing was done" in output
