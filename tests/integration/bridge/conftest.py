"""A control plane on which the chart is installed, and a tenant's namespace."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from sidecars.bridge.settings import Settings
from sidecars.contract import bridge
from sidecars.kube import PODS, ApiError, Client, load_credentials
from sidecars.simulate import serve
from tests.cluster.control_plane import ControlPlane
from tests.support.apiserver import until
from tests.support.bridge import KEY, pod, slurm
from tests.support.bridge_world import (
    TENANT,
    World,
    a_world,
    all_rights,
    control_plane,
    without_gate,
)


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
    async with serve(model) as url, a_world(plane, Settings(url, "slurm", key), model) as found:
        yield found


@pytest_asyncio.fixture
async def tenant(world: World, plane: ControlPlane) -> AsyncIterator[Client]:
    """Someone who has all rights in the namespace, from the moment when the API server enforces
    rights and policies.
    """
    async with Client.connect(load_credentials(plane.client("tenant", *TENANT))) as client:
        await all_rights(world.admin, world.namespace)
        forged = pod(world.namespace, "forged")
        forged["metadata"]["labels"] = {bridge.JOB_LABEL: "1"}

        async def enforced() -> bool:
            try:
                made = await client.create(PODS, without_gate(world.namespace, "tried"))
                await client.delete(PODS, world.namespace, "tried", grace_period_seconds=0)
            except ApiError:
                return False
            try:
                await client.create(PODS, forged)
            except ApiError:
                return bool(made["spec"].get("schedulingGates"))
            await client.delete(PODS, world.namespace, "forged", grace_period_seconds=0)
            return False

        await until("the rights and the policies to be enforced", enforced)
        yield client
