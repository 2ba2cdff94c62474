"""Real daemons of Slurm and a real kube-apiserver as plain processes of this host: what needs no kubelet.

Any file may run beside any other, in another process of pytest-xdist. So each has ports of its own, which
tests/support/real/ports.py lists, and changes nothing of the host.
"""

from collections.abc import Iterator

import pytest

from tests.cluster import cache
from tests.cluster.control_plane import ControlPlane
from tests.cluster.images import build_images
from tests.cluster.tools import tool
from tests.support.bridge_world import control_plane
from tests.support.group_controllers import controllers

PROGRAMS = ("kube", "kubectl", "helm", "jobset", "lws")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Build programs and images first, once for all processes: it takes longer than a test may take."""
    if session.config.option.collectonly or hasattr(session.config, "workerinput"):
        return
    for name in PROGRAMS:
        tool(name)
    build_images(cache.root(), lambda _: None)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Kubernetes with the chart slurm-bridge, and with the controllers of all that the tests of the bridge create.

    Started once. Each test works in namespaces of its own. Kubernetes nodes, entries of tenants, and what it creates in
    the namespace `slurm`, it deletes, because the next bridge would see them.
    """
    with control_plane(tmp_path_factory.mktemp("kubernetes")) as found, controllers(found):
        yield found
