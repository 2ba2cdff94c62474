"""A control plane on which the chart is installed, and a tenant's namespace."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from sidecars.simulate import serve
from tests.cluster.control_plane import ControlPlane
from tests.support.bridge import KEY, slurm
from tests.support.bridge_world import World, a_world, control_plane


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """With a scheduler."""
    with control_plane(tmp_path_factory.mktemp("bridge")) as found:
        yield found


@pytest_asyncio.fixture
async def world(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[World]:
    """A namespace, two nodes and a simulated Slurm."""
    key, model = tmp_path / "jwt.key", slurm()
    key.write_bytes(KEY)
    async with serve(model) as url, a_world(plane, url, key, model) as found:
        yield found
