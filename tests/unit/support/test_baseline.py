"""The base line of the shared Slurm cluster: what a file of tests may not leave behind."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.real.baseline import BaseLine, recorded
from tests.support.real.harness import Kubernetes, Slurm

READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def item(kind: str, name: str, namespace: str = "slurm", **parts: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {},
        "status": READY,
        **parts,
    }


def new() -> dict[str, Any]:
    """Objects by the kind that is read, and what Slurm answers."""
    nodeset = item("NodeSet", "workers", spec={"replicas": 2, "slurmd": {"env": []}})
    return {
        "nodes": [item("Node", "one", spec={"podCIDR": "10.0.0.0/24"})],
        "namespaces": [item("Namespace", name) for name in ("slurm", "slinky")],
        "deployment": item(
            "Deployment",
            "slurm-operator",
            spec={"replicas": 1},
            status={"replicas": 1, "readyReplicas": 1},
        ),
        "pods": [item("Pod", "operator-a")],
        "leases": [item("Lease", "slurm-operator", spec={"holderIdentity": "operator-a_1"})],
        "slurm": [item("Controller", "slurm"), nodeset],
        "sinfo": "slinky-0 idle\nslinky-1 idle\n",
        "squeue": "",
    }


@dataclass(frozen=True)
class Fake(Kubernetes):
    """Answers from `state`."""

    state: dict[str, Any] = field(default_factory=new)
    commands: list[str] = field(default_factory=list)

    def kubectl(self, *words: str, stdin: str | None = None, timeout: float = 60) -> str:
        if words[:2] == ("get", "slurm"):
            return json.dumps({"items": self.state["slurm"]})
        self.commands.append(" ".join(words))
        if "--all" in words:
            self.state["slurm"] = []
        return ""

    def helm(self, *words: str, stdin: str | None = None, timeout: float = 300) -> str:
        self.commands.append(" ".join(words))
        return ""

    def get(self, *words: str) -> Any:
        kind = next(word for word in words if word in self.state)
        found = copy.deepcopy(self.state[kind])
        return {"items": found} if isinstance(found, list) else found

    def execute(
        self,
        namespace: str,
        target: str,
        container: str,
        *words: str,
        timeout: float = 60,
        stdin: str = "",
        repeatable: bool = False,
    ) -> str:
        return str(self.state.get(words[0], ""))


def cluster() -> tuple[Fake, BaseLine]:
    fake = Fake(Path(), Path(), Path())
    return fake, recorded(Slurm(fake), lambda: fake.state.update(new()))


def test_a_cluster_that_is_as_it_was_stays() -> None:
    fake, base = cluster()
    # The same, as the API server may also write it.
    fake.state["slurm"][1]["spec"] = {"replicas": 2, "slurmd": {}}
    fake.state["namespaces"].append(
        item("Namespace", "going", metadata={"name": "going", "deletionTimestamp": "now"})
    )
    fake.state["slurm"].append(item("Token", "api", "going"))
    assert base.restore(1) == ""
    assert fake.commands == []


def scaled(state: dict[str, Any]) -> None:
    state["slurm"][1]["spec"]["replicas"] = 3


def marked(state: dict[str, Any]) -> None:
    state["slurm"][1]["spec"]["slurmd"]["env"] = [{"name": "MARK"}]


def unready(state: dict[str, Any]) -> None:
    state["slurm"][0]["status"] = {
        "conditions": [{"type": "Ready", "status": "False", "message": "it starts"}]
    }


def another(state: dict[str, Any]) -> None:
    state["slurm"].append(item("NodeSet", "extra"))


def uninstalled(state: dict[str, Any]) -> None:
    del state["slurm"][0]


def cordoned(state: dict[str, Any]) -> None:
    state["nodes"][0]["spec"]["unschedulable"] = True


def tainted(state: dict[str, Any]) -> None:
    state["nodes"][0]["spec"]["taints"] = [{"key": "outage", "effect": "NoSchedule"}]


def foreign(state: dict[str, Any]) -> None:
    state["namespaces"].append(item("Namespace", "mine"))


def stopped(state: dict[str, Any]) -> None:
    state["deployment"]["spec"]["replicas"] = 0


def leaderless(state: dict[str, Any]) -> None:
    state["leases"][0]["spec"]["holderIdentity"] = "operator-b_1"


def drained(state: dict[str, Any]) -> None:
    state["sinfo"] = "slinky-0 idle\nslinky-1 drained\n"


def another_worker(state: dict[str, Any]) -> None:
    state["sinfo"] += "slinky-2 idle\n"


def queued(state: dict[str, Any]) -> None:
    state["squeue"] = "7 mine PENDING\n"


@pytest.mark.parametrize(
    ("leave", "named"),
    [
        (scaled, "NodeSet slurm/workers has another spec.replicas"),
        (marked, "NodeSet slurm/workers has another spec.slurmd.env"),
        (unready, "Controller slurm/slurm isn't Ready: it starts"),
        (another, "NodeSet slurm/extra exists"),
        (uninstalled, "Controller slurm/slurm is missing"),
        (cordoned, "Kubernetes node one has {'unschedulable': True"),
        (tainted, "Kubernetes node one has"),
        (foreign, "namespace mine exists"),
        (stopped, "the operator's desired, existing and ready replicas are (0, 1, 1)"),
        (leaderless, "no operator leads"),
        (drained, "Slurm's nodes are"),
        (another_worker, "Slurm's nodes are"),
        (queued, "Slurm has jobs: ['7 mine PENDING']"),
    ],
)
def test_what_a_file_leaves_is_named_and_slurm_is_installed_again_without_its_state(
    leave: Callable[[dict[str, Any]], None], named: str
) -> None:
    fake, base = cluster()
    leave(fake.state)
    assert named in base.restore(0.01)
    assert "uninstall slurm -n slurm --ignore-not-found" in fake.commands
    assert "-n slurm delete persistentvolumeclaims --all" in fake.commands
    assert base.restore(1) == ""


def test_what_a_file_leaves_on_kubernetes_is_removed() -> None:
    fake, base = cluster()
    cordoned(fake.state)
    foreign(fake.state)
    base.restore(0.01)
    assert (
        'patch node one --type=merge -p {"spec": {"unschedulable": null, "taints": null}}'
        in fake.commands
    )
    assert "delete namespace mine --wait=false" in fake.commands
    assert "-n slinky scale deployment slurm-operator --replicas=1" in fake.commands
