"""Taking everything away again, in both orders. Named to run last: it removes what the other tests use."""

import pytest

from tests.charts import chart_testing
from tests.support.real.harness import Kubernetes, Slurm, until
from tests.support.real.installed import install_operator, install_slurm

pytestmark = pytest.mark.timeout(600)

KINDS = ("controllers", "restapis", "accountings", "loginsets", "nodesets", "tokens")
DEFINITIONS = frozenset(f"customresourcedefinitions {kind}.slinky.slurm.net" for kind in KINDS)


def leftovers(kubernetes: Kubernetes) -> list[str]:
    """What is in the two namespaces beside what the README says is kept, and our cluster-wide objects."""
    found = []
    for kind in ("pods", "services", "statefulsets", "deployments", "secrets", "configmaps", "poddisruptionbudgets"):
        for namespace in ("slurm", "slinky"):
            for item in kubernetes.items("-n", namespace, kind):
                name = item["metadata"]["name"]
                if (kind, name) != ("configmaps", "kube-root-ca.crt"):
                    found.append(f"{kind} {namespace}/{name}")
    for kind in ("roles", "rolebindings", "serviceaccounts", "leases", "networkpolicies"):
        for namespace in ("slurm", "slinky"):
            for item in kubernetes.items("-n", namespace, kind):
                name = item["metadata"]["name"]
                if (kind, name) != ("serviceaccounts", "default"):
                    found.append(f"{kind} {namespace}/{name}")
    for kind in ("customresourcedefinitions", "clusterroles", "clusterrolebindings", "priorityclasses"):
        for item in kubernetes.items(kind):
            name = item["metadata"]["name"]
            if "slinky" in name or "slurm" in name:
                found.append(f"{kind} {name}")
    return found


def until_nothing_is_left(kubernetes: Kubernetes, but: frozenset[str] = frozenset()) -> None:
    remaining: list[str] = ["not looked yet"]

    def look() -> bool | None:
        remaining[:] = set(leftovers(kubernetes)) - but
        return not remaining or None

    try:
        until("nothing of ours to be left", look, 240, pause=1.0)
    except AssertionError as error:
        raise AssertionError(f"{error}: {', '.join(remaining)}") from None


def kept(kubernetes: Kubernetes) -> set[str]:
    return {item["metadata"]["name"] for item in kubernetes.items("-n", "slurm", "persistentvolumeclaims")}


def test_uninstalling_slurm_then_the_operator_leaves_only_the_state_volume_and_the_definitions(
    slurm: Slurm, kubernetes: Kubernetes
) -> None:
    # The NodeSet waits for the jobs of other tests, too.
    slurm.login("sh", "-c", "squeue --noheader --format=%A | xargs --no-run-if-empty scancel")
    kubernetes.helm("uninstall", "slurm", "-n", "slurm")
    until(
        "all custom resources to be gone",
        lambda: not any(kubernetes.items("-n", "slurm", f"{kind}.slinky.slurm.net") for kind in KINDS),
        240,
    )
    kubernetes.helm("uninstall", "slurm-operator", "-n", "slinky")
    kubernetes.helm("uninstall", "slurm-operator-crds", "-n", "slinky")
    until_nothing_is_left(kubernetes, DEFINITIONS)
    assert set(leftovers(kubernetes)) == DEFINITIONS
    assert kept(kubernetes) == {"statesave-slurm-controller-0"}


def test_uninstalling_the_operator_first_leaves_only_the_state_volume_as_well(kubernetes: Kubernetes) -> None:
    # The other tests name the namespaces, and keep the definitions.
    install_operator(kubernetes, "allNamespaces=true", "keep=false")
    install_slurm(kubernetes)
    kubernetes.helm("uninstall", "slurm-operator", "-n", "slinky")
    kubernetes.helm("uninstall", "slurm", "-n", "slurm")
    kubernetes.helm("uninstall", "slurm-operator-crds", "-n", "slinky")
    until_nothing_is_left(kubernetes)
    assert kept(kubernetes) == {"statesave-slurm-controller-0"}


def test_chart_testing_installs_the_charts_of_the_operator_and_nothing_is_left(kubernetes: Kubernetes) -> None:
    charts = ["slurm-operator-crds", "slurm-operator"]
    chart_testing.run("install", charts, "--namespace=slinky", kubeconfig=kubernetes.kubeconfig, seconds=180)
    until_nothing_is_left(kubernetes)
