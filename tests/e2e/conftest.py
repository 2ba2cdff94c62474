"""One local cluster for all end-to-end tests, apart from the one of `make up`, and Slurm installed on it by Helm."""

from collections.abc import Generator, Iterator

import pytest

from tests.cluster.local import cluster_down, cluster_up
from tests.cluster.tools import tool
from tests.e2e.harness import CHARTS, VALUES, Kubernetes, Slurm, condition, until

RUNNING: list[Kubernetes] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test's report shows the cluster as the test left it."""
    report = yield
    if report.failed:
        report.sections += [("the cluster", kubernetes.describe()) for kubernetes in RUNNING]
    return report


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Kubernetes]:
    """A real Kubernetes cluster with nothing of ours on it."""
    try:
        cluster = cluster_up("e2e")
        found = Kubernetes(cluster.kubeconfig, tool("kubectl"), tool("helm"))
        RUNNING.append(found)
        yield found
    finally:
        RUNNING.clear()
        cluster_down("e2e")


def install_operator(kubernetes: Kubernetes) -> None:
    """CRDs and operator, as the README says."""
    for release in ("slurm-operator-crds", "slurm-operator"):
        kubernetes.helm(
            *("upgrade", "--install", release, str(CHARTS / release), "-n", "slinky", "--create-namespace"),
            *("--wait", "--timeout", "3m"),
        )


def install_slurm(kubernetes: Kubernetes) -> Slurm:
    """A Slurm cluster with two workers, ready for jobs."""
    kubernetes.helm(
        *("upgrade", "--install", "slurm", str(CHARTS / "slurm"), "-n", "slurm", "--create-namespace"),
        *("-f", str(VALUES), "--set", "nodesets.slinky.oversubscribeNode=true"),
    )
    for kind, name in (
        ("controllers.slinky.slurm.net", "slurm"),
        ("restapis.slinky.slurm.net", "slurm"),
        ("loginsets.slinky.slurm.net", "slurm-login-slinky"),
        ("nodesets.slinky.slurm.net", "slurm-worker-slinky"),
    ):

        def ready(kind: str = kind, name: str = name) -> bool | None:
            return condition(kubernetes.get("-n", "slurm", kind, name), "Ready").get("status") == "True" or None

        until(f"{kind} {name} to be Ready", ready, 180)
    slurm = Slurm(kubernetes)
    slurm.until_idle(2)
    return slurm


@pytest.fixture(scope="session")
def slurm(kubernetes: Kubernetes) -> Slurm:
    """Slurm on that cluster: two idle workers, one login pod."""
    install_operator(kubernetes)
    return install_slurm(kubernetes)
