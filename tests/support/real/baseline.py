"""What the shared Slurm cluster is when it is installed, and must be again when a file of tests
ends.

A file after which it is not fails, and the next one begins with a cluster that was installed again.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.support.real.harness import (
    WILL_COME,
    CommandError,
    Kubernetes,
    Slurm,
    condition,
    until,
    until_equal,
)

IDLE = {"slinky-0": "idle", "slinky-1": "idle"}
_OPERATOR = ("-n", "slinky", "deployment", "slurm-operator")


@dataclass(frozen=True)
class BaseLine:
    """The cluster as it was when it was new."""

    slurm: Slurm
    install: Callable[[], object]
    """Install the operator and Slurm, and wait for both."""
    resources: Mapping[str, Any]
    """The specs of all custom resources, by kind, namespace and name."""
    nodes: Mapping[str, Any]
    """What keeps pods off Kubernetes nodes, by name."""
    namespaces: frozenset[str]

    def restore(self, seconds: float = WILL_COME) -> str:
        """Wait until the cluster is as it was, or install it again when the time is over. What
        differed then, or "".
        """
        try:
            until_equal("what differs from the base line", self.differences, [], seconds)
        except AssertionError as error:
            self._begin_again()
            return str(error)
        return ""

    def differences(self) -> list[str]:
        """What isn't as it was, one line each. What is being deleted, also with its namespace,
        counts as gone.
        """
        return [
            *self._of_kubernetes(),
            *self._of_operator(),
            *self._of_resources(),
            *self._of_slurm(),
        ]

    def _of_kubernetes(self) -> Iterator[str]:
        kubernetes = self.slurm.kubernetes
        for name, found in _nodes(kubernetes).items():
            if found != self.nodes.get(name):
                yield f"Kubernetes node {name} has {found}"
        for item in kubernetes.items("namespaces"):
            if _stays(item) and item["metadata"]["name"] not in self.namespaces:
                yield f"namespace {item['metadata']['name']} exists"

    def _of_operator(self) -> Iterator[str]:
        kubernetes = self.slurm.kubernetes
        found = kubernetes.get(*_OPERATOR)
        replicas = (
            found["spec"]["replicas"],
            found["status"].get("replicas"),
            found["status"].get("readyReplicas"),
        )
        if replicas != (1, 1, 1):
            yield f"the operator's desired, existing and ready replicas are {replicas}"
        pods = kubernetes.items(
            "-n", "slinky", "pods", "-l", "app.kubernetes.io/name=slurm-operator"
        )
        leaders = [
            it["spec"].get("holderIdentity") or ""
            for it in kubernetes.items("-n", "slinky", "leases")
        ]
        if not any(
            leader.startswith(f"{pod['metadata']['name']}_") for leader in leaders for pod in pods
        ):
            yield f"no operator leads: {leaders}"

    def _of_resources(self) -> Iterator[str]:
        kubernetes = self.slurm.kubernetes
        found = _resources(kubernetes)
        staying = {
            item["metadata"]["name"] for item in kubernetes.items("namespaces") if _stays(item)
        }
        for name in sorted(self.resources.keys() | found.keys()):
            if name not in found:
                yield f"{name} is missing"
            elif name not in self.resources:
                if _stays(found[name]) and found[name]["metadata"]["namespace"] in staying:
                    yield f"{name} exists"
            elif changes := _changes(self.resources[name], found[name]["spec"]):
                yield f"{name} has another {', '.join(changes)}"
            elif condition(found[name], "Ready").get("status") != "True":
                yield f"{name} isn't Ready: {condition(found[name], 'Ready').get('message')}"

    def _of_slurm(self) -> Iterator[str]:
        states = self.slurm.nodes()
        if states != IDLE:
            yield f"Slurm's nodes are {states}"
        if jobs := self.slurm.login("squeue", "-h", "-o", "%i %j %T").splitlines():
            yield f"Slurm has jobs: {jobs}"

    def _begin_again(self) -> None:
        """Delete what isn't of the base line, and all of Slurm with its state; then install it."""
        kubernetes = self.slurm.kubernetes
        here = ("-n", self.slurm.namespace)
        with suppress(CommandError):
            # A worker waits for its jobs.
            self.slurm.login("scancel", "--user=root")
        for name, spec in self.nodes.items():
            kubernetes.kubectl(
                "patch", "node", name, "--type=merge", "-p", json.dumps({"spec": spec})
            )
        for item in kubernetes.items("namespaces"):
            if item["metadata"]["name"] not in self.namespaces:
                kubernetes.kubectl("delete", "namespace", item["metadata"]["name"], "--wait=false")
        kubernetes.kubectl("-n", "slinky", "scale", "deployment", "slurm-operator", "--replicas=1")
        kubernetes.helm("uninstall", "slurm", *here, "--ignore-not-found")
        kubernetes.kubectl(*here, "delete", "slurm", "--all", "--wait=false")
        of_slurm = f"{self.slurm.namespace}/"
        until(
            "all of Slurm to be gone",
            lambda: (
                not [
                    it for it in _resources(kubernetes) if it.partition(" ")[2].startswith(of_slurm)
                ]
            ),
        )
        kubernetes.kubectl(*here, "delete", "persistentvolumeclaims", "--all")
        self.install()
        until_equal("what differs from the base line of the new cluster", self.differences, [])


def recorded(slurm: Slurm, install: Callable[[], object]) -> BaseLine:
    """The base line of a cluster that is new and ready."""
    kubernetes = slurm.kubernetes
    specs = {name: item["spec"] for name, item in _resources(kubernetes).items()}
    names = frozenset(item["metadata"]["name"] for item in kubernetes.items("namespaces"))
    return BaseLine(slurm, install, specs, _nodes(kubernetes), names)


def _stays(item: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" not in item["metadata"]


def _resources(kubernetes: Kubernetes) -> dict[str, Any]:
    found = json.loads(kubernetes.kubectl("get", "slurm", "--all-namespaces", "-o", "json"))[
        "items"
    ]
    return {
        f"{it['kind']} {it['metadata']['namespace']}/{it['metadata']['name']}": it for it in found
    }


def _nodes(kubernetes: Kubernetes) -> dict[str, Any]:
    keys = ("unschedulable", "taints")
    return {
        it["metadata"]["name"]: {key: it["spec"].get(key) for key in keys}
        for it in kubernetes.items("nodes")
    }


def _changes(before: Any, after: Any, path: str = "spec") -> list[str]:
    """The fields that differ. One that is empty is none."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted(before.keys() | after.keys())
        return [
            name
            for key in keys
            for name in _changes(before.get(key), after.get(key), f"{path}.{key}")
        ]
    return [] if before == after or not (before or after) else [path]
