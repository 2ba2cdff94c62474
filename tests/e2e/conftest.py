"""A local cluster for the end-to-end tests, apart from the one of `make up`, and Slurm installed on it by Helm.

Each process of pytest has a cluster, so that `-n 2 --dist loadfile --no-loadscope-reorder` runs files side by side.
"""

from collections.abc import Generator, Iterator
from contextlib import nullcontext

import pytest

from tests.cluster import kernel
from tests.support.real.harness import Kubernetes, Slurm
from tests.support.real.installed import cluster, install_operator, install_slurm

RUNNING: list[Kubernetes] = []
WATCHED = (
    "slurm",
    "accounted",
    "charts",
    "confined",
    "defaults",
    "doubled",
    "former",
    "guided",
    "hybrid",
    "upgraded",
)
"""The namespaces in which tests create Slurm clusters."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test's report shows the cluster as the test left it."""
    report = yield
    if report.failed:
        report.sections += [("the cluster", kubernetes.describe()) for kubernetes in RUNNING]
    return report


@pytest.fixture(scope="session")
def kubernetes(request: pytest.FixtureRequest, worker_id: str) -> Iterator[Kubernetes]:
    """A real Kubernetes cluster with nothing of ours on it.

    Tests wait more than they compute. If one of them needs the kernel, it is built in that time.
    """
    name = "e2e" if worker_id == "master" else f"e2e-{worker_id}"
    needed = any("confined" in getattr(item, "fixturenames", ()) for item in request.session.items)
    with kernel.built_beside() if needed else nullcontext(), cluster(name) as found:
        RUNNING.append(found)
        yield found
        RUNNING.clear()


@pytest.fixture(scope="session")
def slurm(kubernetes: Kubernetes) -> Slurm:
    """Slurm on that cluster: two idle workers, one login pod."""
    install_operator(kubernetes, f"namespaces={{{','.join(WATCHED)}}}")
    return install_slurm(kubernetes)
