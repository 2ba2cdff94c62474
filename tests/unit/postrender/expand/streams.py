"""The objects of a stream as the chart renders them, and what a test changes."""

import base64
from typing import Any

from postrender.expand.cluster import Cluster, clusters
from sidecars.workloads import names
from sidecars.workloads.facts import Site
from sidecars.workloads.resources import Manifest
from tests.support import builders

SITE = Site(workloads=builders.workloads(), sidecars_image="sidecars:1")


def custom(kind: str, name: str, **spec: Any) -> Manifest:
    """A custom resource of namespace `slurm`."""
    metadata = {"name": name, "namespace": "slurm"}
    return {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def secret(name: str, **data: str) -> Manifest:
    """A Secret with data."""
    encoded = {
        key.replace("_", "."): base64.b64encode(value.encode()).decode()
        for key, value in data.items()
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "slurm"},
        "data": encoded,
    }


def generated(name: str, key: str) -> Manifest:
    """A Secret without data that asks for a key, as the chart renders it."""
    metadata = {"name": name, "namespace": "slurm", "annotations": {names.GENERATE: key}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}


def controller(**spec: Any) -> Manifest:
    """Controller `slurm`."""
    return custom(
        "Controller",
        "slurm",
        **{**builders.KEYS, "slurmctld": {"image": "slurmctld:26.05"}, **spec},
    )


def nodeset(
    name: str = "slurm-worker-slinky", hostname: str | None = "slinky-", **spec: Any
) -> Manifest:
    """NodeSet of Controller `slurm`."""
    template = {"spec": {"hostname": hostname}} if hostname is not None else {}
    base: dict[str, Any] = {
        "controllerRef": {"name": "slurm"},
        "replicas": 2,
        "slurmd": {"image": "slurmd:26.05"},
    }
    return custom("NodeSet", name, **{**base, "template": template, **spec})


def loginset(**spec: Any) -> Manifest:
    """LoginSet `slurm-login-slinky`."""
    return custom(
        "LoginSet",
        "slurm-login-slinky",
        **{"controllerRef": {"name": "slurm"}, "sssdConfRef": builders.SSSD, **spec},
    )


def restapi(**spec: Any) -> Manifest:
    """RestApi `slurm`."""
    return custom("RestApi", "slurm", **{"controllerRef": {"name": "slurm"}, **spec})


def accounting(**spec: Any) -> Manifest:
    """Accounting `slurm`."""
    storage = {
        "host": "mariadb",
        "username": "slurm",
        "passwordKeyRef": {"name": "mariadb", "key": "password"},
    }
    return custom("Accounting", "slurm", **{**builders.KEYS, "storageConfig": storage, **spec})


def keys() -> list[Manifest]:
    """The two keys, to be generated."""
    return [generated("slurm-auth-slurm", "slurm.key"), generated("slurm-auth-jwt", "jwt.key")]


def known_keys() -> list[Manifest]:
    """The two keys with their contents."""
    return [
        secret("slurm-auth-slurm", slurm_key="s" * 32),
        secret("slurm-auth-jwt", jwt_key="j" * 32),
    ]


def sssd() -> Manifest:
    """The Secret with the sssd.conf of the login nodes."""
    return secret("slurm-sssd-conf", sssd_conf="[sssd]\n")


def stream(*more: Manifest) -> list[Manifest]:
    """A whole cluster with generated keys."""
    return [*keys(), sssd(), controller(), restapi(), loginset(), nodeset(), *more]


def cluster(*documents: Manifest, secrets: tuple[str, ...] = ()) -> Cluster:
    """What the documents contain of namespace `slurm`."""
    return clusters(documents, secrets=secrets)["slurm"]
