"""The world of each test of the bridge."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from sidecars.bridge import metrics, passes
from sidecars.bridge.settings import Settings
from sidecars.kube import CONFIG_MAPS, NODES
from sidecars.simulate import serve
from tests.support.bridge import KEY, node, slurm, tenants
from tests.support.kube_double import KubeDouble
from tests.unit.bridge.world import World


@pytest.fixture(autouse=True)
def no_source() -> Iterator[None]:
    """Metrics are of the process, and a bridge ends with its test."""
    yield
    metrics.REPORTED.source = None
    metrics.REPORTED.certificate = None


@pytest_asyncio.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(passes, "INTERVAL", 0.2)
    monkeypatch.setattr(passes, "CALM_SECONDS", 1.0)
    monkeypatch.setattr(passes, "OTHERS_SECONDS", 0.5)
    (tmp_path / "jwt.key").write_bytes(KEY)
    model = slurm()
    async with KubeDouble() as kube, serve(model) as url:
        kube.put(NODES, node("k1"))
        kube.put(CONFIG_MAPS, tenants("slurm", team='{"user": "ada"}', rooted='{"user": "toor"}'))
        yield World(kube, model, Settings(url, "slurm", key_file=tmp_path / "jwt.key", health_port=0))
