"""A client on the real API server, and a namespace for each test."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest_asyncio

from sidecars.kube import NAMESPACES, Client, load_credentials

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.control_plane import ControlPlane

NUMBERS = itertools.count()


@pytest_asyncio.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client.connect(load_credentials(control_plane.kubeconfig)) as client:
        yield client


@pytest_asyncio.fixture
async def namespace(client: Client) -> str:
    name = f"kube-{next(NUMBERS)}"
    await client.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    )
    return name
