"""Real daemons of Slurm and a real kube-apiserver as plain processes of this host: what needs no
kubelet.

Any file may run beside any other, in another process of pytest-xdist. So each has ports of its own,
which tests/support/real/ports.py lists, and changes nothing of the host. A file runs in one
process, and those that share a Kubernetes run in the same one, however pytest is called.
"""

import importlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sidecars.bridge.settings import Settings
from sidecars.slurm.tokens import sign
from tests.cluster import cache
from tests.cluster.control_plane import ControlPlane
from tests.cluster.images import build_images
from tests.cluster.tools import tool
from tests.contract.target import Target
from tests.support.bridge_world import control_plane
from tests.support.group_controllers import controllers
from tests.support.real.daemons import Daemons
from tests.support.real.external_slurm import target

PROGRAMS = ("kube", "kubectl", "helm", "jobset", "lws")
SHARE_KUBERNETES = tuple(
    f"tests/slurm/test_bridge{it}.py" for it in ("", "_devices", "_guard", "_places")
)
"""Files that use the fixture `plane`."""
MOST_SECONDS = 900
"""For a test that hangs: each wait for what will come takes 300 s at most."""


def process_of(nodeid: str) -> str:
    """What runs in one process of pytest-xdist, by the name of a test: a file, or those that share
    a Kubernetes.
    """
    file = nodeid.partition("::")[0]
    return "bridge" if file in SHARE_KUBERNETES else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Instead of the one that `--dist` names."""
    scheduler = importlib.import_module("xdist.scheduler").LoadFileScheduling(config, log)
    scheduler._split_scope = process_of
    return scheduler


def pytest_sessionstart(session: pytest.Session) -> None:
    """Build programs and images first, once for all processes: it takes longer than a test may
    take.
    """
    if session.config.option.collectonly or hasattr(session.config, "workerinput"):
        return
    for name in PROGRAMS:
        tool(name)
    build_images(cache.root(), lambda _: None)


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(MOST_SECONDS, func_only=True))


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Kubernetes with the chart slurm-bridge, and with the controllers of all that the tests of the
    bridge create.

    Started once. Each test works in namespaces of its own. Kubernetes nodes, entries of tenants,
    and what it creates in the namespace `slurm`, it deletes, because the next bridge would see
    them.
    """
    with control_plane(tmp_path_factory.mktemp("kubernetes")) as found, controllers(found):
        yield found


@pytest.fixture
def slurm(daemons: Daemons) -> Target:
    """The Slurm of a file, whose fixture `daemons` starts it."""
    return target(daemons)


@pytest.fixture
def settings(slurm: Target, tmp_path: Path) -> Settings:
    """Those of a bridge of that Slurm. Like that of the chart, it has a token of SlurmUser and no
    jwt.key.
    """
    path = tmp_path / "token"
    path.write_text(sign(slurm.key, "slurm", 2 * MOST_SECONDS, time.time()))
    return Settings(slurm.url, "slurm", key_file=tmp_path / "absent", token_file=path)
