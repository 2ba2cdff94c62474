"""The world of each test of the bridge."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from sidecars.bridge import metrics, passes
from tests.cluster.control_plane import free_ports
from tests.unit.bridge.world import World, a_world


@pytest.fixture(autouse=True)
def no_source() -> Iterator[None]:
    """Metrics are of the process, and a bridge ends with its test."""
    yield
    metrics.REPORTED.source = None
    metrics.REPORTED.certificate = None


@pytest.fixture
def port() -> int:
    """A free port."""
    [found] = free_ports(1)
    return found


@pytest_asyncio.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(passes, "INTERVAL", 0.2)
    monkeypatch.setattr(passes, "CALM_SECONDS", 1.0)
    monkeypatch.setattr(passes, "OTHERS_SECONDS", 0.5)
    async with a_world(tmp_path) as found:
        yield found
