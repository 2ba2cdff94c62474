"""What a user of `make up` has: a cluster that others started, and a registry with a password and
its own authority.

The cluster's names, StorageClass and Pod Security aren't those of the local cluster, and its nodes
have no image.
"""

import json
import shutil
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import local
from tests.cluster.certificates import Authority
from tests.cluster.install import FIRST_JOB
from tests.cluster.tools import tool
from tests.support.real import registry
from tests.support.real.harness import CHARTS, Kubernetes

LOGIN = f"{registry.USER}:{registry.PASSWORD}"
STORAGE_CLASS = "fast"
"""The only one. It is not the default one until `Site.choose_storage_class`."""
OFFSET = 9
"""That of the registry's port among those of the cluster."""


@dataclass(frozen=True)
class Site:
    """A cluster, a registry, the certificate of its authority, and a folder for the credentials."""

    kubernetes: Kubernetes
    cluster: local.Cluster
    kubeconfig: Path
    host: str
    certificate: Path
    home: Path

    def environment(self, login: str = LOGIN) -> dict[str, str]:
        """The variables of `make up`, after `docker login` with `login`. Empty: nobody has logged
        in.
        """
        docker = self.home / "docker"
        docker.mkdir(exist_ok=True)
        auths = {self.host: {"auth": b64encode(login.encode()).decode()}} if login else {}
        (docker / "config.json").write_text(json.dumps({"auths": auths}))
        values = (FIRST_JOB, CHARTS / "slurm" / "examples" / "without-cgroup-v2.yaml")
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "REGISTRY": f"{self.host}/team",
            "REGISTRY_CA": str(self.certificate),
            "DOCKER_CONFIG": str(docker),
            "VALUES": ":".join(map(str, values)),
        }

    def choose_storage_class(self) -> None:
        """Make its StorageClass the default one."""
        annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
        patch = json.dumps({"metadata": {"annotations": annotations}})
        self.kubernetes.kubectl("patch", "storageclass", STORAGE_CLASS, "-p", patch)

    def trust_registry(self) -> None:
        """Have the nodes trust the authority of the registry."""
        for node in self.cluster.nodes:
            folder = node.registries / self.host
            folder.mkdir(parents=True)
            capabilities = 'capabilities = ["pull", "resolve"]'
            text = f'[host."https://{self.host}"]\n{capabilities}\nca = "{self.certificate}"\n'
            (folder / "hosts.toml").write_text(text)


@contextmanager
def site(name: str, home: Path) -> Iterator[Site]:
    """A cluster of that name and its registry, which end with the block. `home` exists."""
    local.cluster_down(name)
    _delete_images(name)
    try:
        cluster = local.cluster_up(name, images=None, pod_security="baseline")
        kubeconfig = Path(shutil.copy(cluster.kubeconfig, home / "kubeconfig"))
        address, port = str(cluster.plan.host_address), cluster.plan.port(OFFSET)
        authority = Authority(home / "pki")
        serving = authority.issue("registry", "registry", hosts=[address])
        with (
            closing(Kubernetes(kubeconfig, tool("kubectl"), tool("helm"))) as kubernetes,
            registry.with_certificate(home / "registry", address, port, serving),
        ):
            _rename_storage_class(kubernetes)
            host = f"{address}:{port}"
            yield Site(kubernetes, cluster, kubeconfig, host, authority.certificate, home)
    finally:
        local.cluster_down(name)
        _delete_images(name)


def _delete_images(name: str) -> None:
    """Those that the nodes of a former cluster of that name have pulled."""
    shutil.rmtree(local.clusters() / name / "images", ignore_errors=True)


def _rename_storage_class(kubernetes: Kubernetes) -> None:
    """Leave one StorageClass, with a name that no other cluster here has. It is not the default
    one.
    """
    (found,) = kubernetes.items("storageclasses")
    kubernetes.kubectl("delete", "storageclass", found["metadata"]["name"])
    keys = ("apiVersion", "kind", "provisioner", "volumeBindingMode", "reclaimPolicy")
    kept = {key: found[key] for key in keys} | {"metadata": {"name": STORAGE_CLASS}}
    kubernetes.kubectl("create", "-f", "-", stdin=json.dumps(kept))
