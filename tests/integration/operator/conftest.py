"""A real kube-apiserver with our CRDs, and a world of its own for each test."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from sidecars.kube import Client, load_credentials
from sidecars.simulate import SlurmModel, serve
from tests.integration.operator.world import World, control_plane, namespace

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """etcd and kube-apiserver with the six kinds."""
    with control_plane(tmp_path_factory.mktemp("operator")) as plane:
        yield plane.kubeconfig


@pytest_asyncio.fixture
async def world(kubeconfig: Path) -> AsyncIterator[World]:
    """A namespace with keys, Controller and RestApi, watched by an operator."""
    slurm = SlurmModel()
    async with (
        Client.connect(load_credentials(kubeconfig)) as client,
        namespace(client, f"test-{next(NUMBERS)}") as name,
        serve(slurm) as url,
    ):
        world = World(client, name, slurm, url)
        await world.cluster()
        async with world.operator():
            yield world
