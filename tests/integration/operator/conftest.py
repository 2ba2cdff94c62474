"""A real kube-apiserver with our CRDs, and a world of its own for each test."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from schemas import definitions
from sidecars.kube import Client, load_credentials
from sidecars.simulate import SlurmModel, serve
from tests.cluster.commands import run
from tests.cluster.control_plane import ControlPlane
from tests.cluster.tools import tool
from tests.integration.operator.world import World, namespace

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """etcd and kube-apiserver with the six kinds."""
    plane = ControlPlane.temporary(tmp_path_factory.mktemp("operator"))
    try:
        kubectl: list[str | Path] = [tool("kubectl"), f"--kubeconfig={plane.kubeconfig}"]
        manifests = definitions.custom_resource_definitions()
        run([*kubectl, "create", "--filename=-"], stdin=yaml.safe_dump_all(manifests), seconds=30)
        names = [f"crd/{manifest['metadata']['name']}" for manifest in manifests]
        run([*kubectl, "wait", "--for=condition=Established", "--timeout=20s", *names], seconds=30)
        yield plane.kubeconfig
    finally:
        plane.stop()


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
