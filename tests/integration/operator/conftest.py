"""A real kube-apiserver with our CRDs, and a world of its own for each test."""

import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sidecars.kube import Client, load_credentials
from sidecars.simulate import SlurmModel, serve
from tests.cluster.control_plane import ControlPlane
from tests.support.apiserver import WatchedNamespace, control_plane, namespace

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver with the six kinds."""
    with control_plane(tmp_path_factory.mktemp("operator")) as found:
        yield found


@pytest.fixture(scope="session")
def kubeconfig(plane: ControlPlane) -> Path:
    """Of its administrator."""
    return plane.kubeconfig


@contextlib.asynccontextmanager
async def a_world(kubeconfig: Path, **settings: Any) -> AsyncIterator[WatchedNamespace]:
    """A namespace with keys, Controller and RestApi, watched by an operator with these settings."""
    slurm = SlurmModel()
    async with (
        Client.connect(load_credentials(kubeconfig)) as client,
        namespace(client, f"test-{next(NUMBERS)}") as name,
        serve(slurm) as url,
    ):
        world = WatchedNamespace(client, name, slurm, url)
        await world.cluster()
        async with world.operator(**settings):
            yield world


@pytest_asyncio.fixture
async def world(kubeconfig: Path) -> AsyncIterator[WatchedNamespace]:
    """As `a_world`."""
    async with a_world(kubeconfig) as made:
        yield made


@pytest_asyncio.fixture
async def propagating(kubeconfig: Path) -> AsyncIterator[WatchedNamespace]:
    """One whose operator explains cordons by the conditions Gpu and Disk of Kubernetes nodes."""
    async with a_world(kubeconfig, propagated_node_conditions=("Gpu", "Disk")) as made:
        yield made
