"""Custom resources and facts for the tests: the chart's defaults, and what a test changes."""

from dataclasses import replace
from functools import cache
from typing import Any

import msgspec

from sidecars.objects import Node
from sidecars.workloads import structure
from sidecars.workloads.facts import Facts, Site, digest
from sidecars.workloads.resources import (
    Accounting,
    Controller,
    LoginSet,
    Manifest,
    NodeSet,
    RestApi,
    read,
)

NAMESPACE = "slurm"
SLURM_KEY = {"name": "slurm-auth-slurm", "key": "slurm.key"}
JWT_KEY = {"name": "slurm-auth-jwt", "key": "jwt.key"}
SSSD = {"name": "slurm-sssd-conf", "key": "sssd.conf"}
SLURM_JWKS_SOURCE = {
    "secret": {
        "name": "slurm-auth-slurm-jwks",
        "optional": True,
        "items": [{"key": "slurm.jwks", "path": "slurm.jwks"}],
    }
}
KEYS = {"slurmKeyRef": SLURM_KEY, "jwtKeyRef": JWT_KEY}


def metadata(name: str, **more: Any) -> dict[str, Any]:
    """Metadata of an object in the tests' namespace."""
    return {"name": name, "namespace": NAMESPACE, "uid": f"uid-of-{name}"} | more


def kube_node(
    name: str,
    meta: dict[str, Any] | None = None,
    resources: dict[str, str] | None = None,
    **spec: Any,
) -> Node:
    """A Kubernetes node of which pods may use all resources."""
    status = {"capacity": resources or {}, "allocatable": resources or {}}
    node = {"metadata": {"name": name} | (meta or {}), "spec": spec, "status": status}
    return msgspec.convert(node, Node)


def controller(meta: dict[str, Any] | None = None, **spec: Any) -> Controller:
    """Controller `slurm`."""
    return read(Controller, {"metadata": metadata("slurm") | (meta or {}), "spec": KEYS | spec})


def nodeset(
    name: str = "slurm-worker-slinky", meta: dict[str, Any] | None = None, **spec: Any
) -> NodeSet:
    """NodeSet `slurm-worker-slinky` of Controller `slurm`."""
    return read(
        NodeSet,
        {
            "metadata": metadata(name) | (meta or {}),
            "spec": {"controllerRef": {"name": "slurm"}} | spec,
        },
    )


def restapi(meta: dict[str, Any] | None = None, **spec: Any) -> RestApi:
    """RestApi `slurm`."""
    return read(
        RestApi,
        {
            "metadata": metadata("slurm") | (meta or {}),
            "spec": {"controllerRef": {"name": "slurm"}} | spec,
        },
    )


def loginset(meta: dict[str, Any] | None = None, **spec: Any) -> LoginSet:
    """LoginSet `slurm-login-slinky`."""
    base = {"controllerRef": {"name": "slurm"}, "sssdConfRef": SSSD}
    return read(
        LoginSet, {"metadata": metadata("slurm-login-slinky") | (meta or {}), "spec": base | spec}
    )


def accounting(**spec: Any) -> Accounting:
    """Accounting `slurm`."""
    return read(Accounting, {"metadata": metadata("slurm"), "spec": KEYS | spec})


@cache
def workloads() -> structure.Workloads:
    """The workloads of the source tree."""
    return structure.load(structure.folder(None))


def facts(**changes: Any) -> Facts:
    """Facts in which everything that the builders refer to exists."""
    known: dict[str, Any] = {
        "site": Site(
            workloads=workloads(), sidecars_image="registry.invalid/slurm-charts/sidecars:0.1.0"
        ),
        "secrets": {
            "slurm-auth-slurm": {"slurm.key": digest("key")},
            "slurm-auth-slurm-jwks": {"slurm.jwks": digest("keys")},
            "slurm-auth-jwt": {"jwt.key": digest("jwt")},
            "slurm-sssd-conf": {"sssd.conf": digest("sssd")},
            "slurm-login-slinky-ssh-host-keys": {"ssh_host_rsa_key": digest("key")},
        },
    }
    return Facts(**(known | changes))


def with_ipv6() -> Facts:
    """The facts where pods communicate by IPv6."""
    return replace(facts(), site=replace(facts().site, ipv6=True))


def pod_spec(workload: Manifest) -> dict[str, Any]:
    """The PodSpec of a Deployment, StatefulSet, pod template or pod."""
    spec: dict[str, Any] = workload["spec"]
    return spec["template"]["spec"] if "template" in spec else spec


def part(workload: Manifest, name: str) -> dict[str, Any]:
    """The container or init container of this name."""
    spec = pod_spec(workload)
    [found] = [
        item
        for item in [*spec.get("initContainers", ()), *spec["containers"]]
        if item["name"] == name
    ]
    assert isinstance(found, dict)
    return found


def volume(workload: Manifest, name: str) -> dict[str, Any]:
    """The volume of this name."""
    [found] = [item for item in pod_spec(workload)["volumes"] if item["name"] == name]
    assert isinstance(found, dict)
    return found


def mounts(workload: Manifest, container: str) -> dict[str, str]:
    """A container's volumes by the path they are mounted at."""
    return {
        mount["mountPath"]: mount["name"]
        for mount in part(workload, container).get("volumeMounts", ())
    }


def env(workload: Manifest, container: str) -> dict[str, Any]:
    """A container's environment: values, or where they come from."""
    return {
        item["name"]: item.get("value", item.get("valueFrom"))
        for item in part(workload, container)["env"]
    }
