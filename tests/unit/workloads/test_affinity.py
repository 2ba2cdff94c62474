"""Where the pods of Slurm's other daemons run: away from workers where others exist."""

from typing import Any

import pytest

from sidecars.workloads import structure


def spec_of(base: str) -> dict[str, Any]:
    """The PodSpec of a daemon, as its file has it."""
    for document in structure.load(structure.folder(None)).files[base]:
        if document["kind"] in ("Deployment", "StatefulSet"):
            return dict(document["spec"]["template"]["spec"])
    raise LookupError(base)


@pytest.mark.parametrize("base", ["slurmctld", "slurmdbd", "slurmrestd", "login"])
def test_pods_beside_workers_prefer_kubernetes_nodes_without_workers_and_without_gpus(
    base: str,
) -> None:
    affinity = spec_of(base)["affinity"]
    [pods] = affinity["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    term = pods["podAffinityTerm"]
    assert term["labelSelector"]["matchLabels"] == {"app.kubernetes.io/name": "slurmd"}
    assert (term["topologyKey"], term["namespaceSelector"]) == ("kubernetes.io/hostname", {})
    [nodes] = affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    absent = nodes["preference"]["matchExpressions"]
    assert {it["operator"] for it in absent} == {"DoesNotExist"}
    assert "nvidia.com/gpu.present" in {it["key"] for it in absent}
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in affinity["nodeAffinity"]


def test_workers_have_no_such_preference() -> None:
    [pod] = structure.load(structure.folder(None)).files["slurmd"]
    assert "affinity" not in pod["spec"]
