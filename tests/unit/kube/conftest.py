"""A double of the API server and a client on it, in virtual time where the test asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecars.kube import Client
from tests.support.kube_double import KubeDouble

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> AsyncIterator[KubeDouble]:
    async with KubeDouble() as server:
        yield server


@pytest.fixture
async def client(server: KubeDouble) -> AsyncIterator[Client]:
    async with Client.connect(server.credentials) as client:
        yield client
