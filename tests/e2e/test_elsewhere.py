"""`make up` on a cluster that it didn't start, with a registry that has a password and an authority
of its own.

The cluster's names, StorageClass and Pod Security aren't those of the local cluster, and its nodes
have no image.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cluster.preflight import ENFORCE
from tests.support.real import elsewhere
from tests.support.real.elsewhere import LOGIN, STORAGE_CLASS, Site
from tests.support.real.harness import REPOSITORY

pytestmark = pytest.mark.timeout(450)
"""A run of `make up` may wait for images as long as `up` does."""

EMPTY = {"default", "kube-node-lease", "kube-public", "kube-system"}


def up(site: Site, *, login: str = LOGIN, **environment: str) -> tuple[int, str]:
    """Exit code and output of `make up`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster", "up"],
        cwd=REPOSITORY,
        env=os.environ | site.environment(login) | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
        check=False,
    )
    return done.returncode, done.stdout


def namespaces(site: Site) -> set[str]:
    """The namespaces of the cluster."""
    return {each["metadata"]["name"] for each in site.kubernetes.items("namespaces")}


@pytest.fixture(scope="module")
def site(cluster_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The cluster and the registry, which end with the tests."""
    # Of the name of a lane as much as the name of a cluster may have.
    with elsewhere.site(f"{cluster_name[:16]}-far", tmp_path_factory.mktemp("elsewhere")) as found:
        yield found


def test_without_a_default_storage_class_nothing_is_changed_and_the_existing_class_is_offered(
    site: Site,
) -> None:
    code, output = up(site)
    assert code == 1
    assert "no StorageClass is the default one" in output
    assert f"kubectl patch storageclass {STORAGE_CLASS}" in output
    assert namespaces(site) == EMPTY


@pytest.fixture(scope="module")
def ready(site: Site) -> Site:
    """The cluster with a default StorageClass."""
    site.choose_storage_class()
    return site


@pytest.mark.parametrize(
    ("login", "environment", "words"),
    [
        ("alice:wrong", {}, ["docker login", "UNAUTHORIZED"]),
        ("", {"REGISTRY_CA": ""}, ["REGISTRY_CA=", "unknown authority"]),
        (
            "",
            {"REGISTRY_CA": "", "REGISTRY": ""},
            ["/sidecars:", "REGISTRY=registry.example.com/team"],
        ),
    ],
    ids=["a wrong password", "an unknown authority", "no registry"],
)
def test_what_is_wrong_with_the_registry_is_reported_with_its_remedy_and_nothing_is_changed(
    ready: Site, login: str, environment: dict[str, str], words: list[str]
) -> None:
    code, output = up(ready, login=login, **environment)
    assert code == 1
    assert [word for word in words if word not in output] == [], output
    assert namespaces(ready) == EMPTY


def test_a_namespace_that_refuses_workers_is_reported_with_its_remedy_and_nothing_is_installed(
    ready: Site,
) -> None:
    kubectl = ready.kubernetes.kubectl
    kubectl("create", "namespace", "slurm")
    # The cluster's own standard, then that of the namespace.
    for standard in ("baseline", "restricted"):
        if standard == "restricted":
            kubectl("label", "namespace", "slurm", f"{ENFORCE}={standard}")
        code, output = up(ready)
        assert code == 1
        assert f"kubectl label namespace slurm {ENFORCE}=privileged" in output
        assert f'violates PodSecurity "{standard}:latest"' in output
        assert namespaces(ready) == EMPTY | {"slurm"}
        assert not ready.kubernetes.items("-n", "slurm", "secrets")
    kubectl("delete", "namespace", "slurm", timeout=100)


def test_nodes_that_do_not_trust_the_registry_end_the_run_at_once_with_the_remedy(
    ready: Site,
) -> None:
    code, output = up(ready)
    assert code == 1
    assert "x509: certificate signed by unknown authority" in output
    assert "/etc/containerd/certs.d/HOST/hosts.toml" in output


def test_the_next_run_pulls_the_pushed_images_with_the_password_and_runs_a_job(ready: Site) -> None:
    ready.trust_registry()
    code, output = up(ready)
    assert code == 0, output
    assert sorted(re.findall(r"^cpu-\d+$", output, re.MULTILINE)) == ["cpu-0", "cpu-1"]
    pods = [
        pod for name in ("slinky", "slurm") for pod in ready.kubernetes.items("-n", name, "pods")
    ]
    containers = [
        each
        for pod in pods
        for each in [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]
    ]
    assert containers
    assert {
        re.sub(r"/[a-z]+:[\d.]+@sha256:[0-9a-f]{64}$", "", each["image"]) for each in containers
    } == {f"{ready.host}/team"}


def test_a_run_without_changes_pushes_and_changes_nothing(ready: Site) -> None:
    code, output = up(ready)
    assert code == 0
    assert "nothing was done" in output
