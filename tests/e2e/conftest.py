"""A local cluster for the end-to-end tests, apart from the one of `make up`, and Slurm installed on
it by Helm.

Each lane of `tests.e2e.order` is a process of pytest with a cluster of its own, which --cluster
names. Without that option each process has one, also those of pytest-xdist.
"""

from collections.abc import Generator, Iterator

import pytest

from tests.e2e import order
from tests.run.usage import METER
from tests.support.real.baseline import BaseLine, recorded
from tests.support.real.harness import Kubernetes, Slurm
from tests.support.real.installed import cluster, install_operator, install_slurm

RUNNING: list[Kubernetes] = []
WATCHED = (
    "slurm",
    "accounted",
    "charts",
    "confined",
    "contained",
    "deleted",
    "doubled",
    "former",
    "guided",
    "hybrid",
    "jailed",
    "operated",
    "peopled",
    "restored",
    "upgraded",
)
"""The namespaces in which tests create Slurm clusters."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cluster",
        help="name of the local cluster that is created for the tests and deleted at the end",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: order.position(item.path.stem))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test's report shows the cluster as the test left it."""
    report = yield
    if report.failed:
        report.sections += [("the cluster", kubernetes.describe()) for kubernetes in RUNNING]
    return report


@pytest.fixture(scope="session")
def cluster_name(worker_id: str, pytestconfig: pytest.Config) -> str:
    """The name of the cluster of this process."""
    given: str | None = pytestconfig.getoption("--cluster")
    return given or ("e2e" if worker_id == "master" else f"e2e-{worker_id}")


@pytest.fixture(scope="session")
def kubernetes(cluster_name: str) -> Iterator[Kubernetes]:
    """A real Kubernetes cluster with nothing of ours on it."""
    METER.follow(cluster_name)
    with cluster(cluster_name) as found:
        RUNNING.append(found)
        yield found
        RUNNING.clear()


def install(kubernetes: Kubernetes) -> Slurm:
    """The operator, and Slurm with two idle workers and one login pod."""
    install_operator(kubernetes, f"namespaces={{{','.join(WATCHED)}}}")
    return install_slurm(kubernetes)


@pytest.fixture(scope="session")
def slurm(kubernetes: Kubernetes) -> Slurm:
    """Slurm on that cluster: two idle workers, one login pod."""
    return install(kubernetes)


@pytest.fixture(scope="session")
def base_line(slurm: Slurm) -> BaseLine:
    """What `slurm` was when it was new."""
    return recorded(slurm, lambda: install(slurm.kubernetes))


@pytest.fixture(scope="module", autouse=True)
def from_base_line_to_base_line(request: pytest.FixtureRequest) -> Iterator[None]:
    """A file that uses `slurm` begins with its base line, and fails if it ends with something
    else.
    """
    items = [
        it
        for it in request.session.items
        if isinstance(it, pytest.Function) and it.path == request.path
    ]
    if not any({"kubernetes", "slurm"} <= set(item.fixturenames) for item in items):
        yield
        return
    base: BaseLine = request.getfixturevalue("base_line")
    base.restore()
    yield
    if request.path.stem != order.LAST:
        left = base.restore()
        assert not left, f"{request.path.name} left the shared Slurm changed: {left}"
