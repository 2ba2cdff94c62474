"""Whether a namespace exists: a Role is deleted with its namespace, and requests are then refused, not empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecars.kube.errors import KubeError, NotFound
from sidecars.kube.resources import NAMESPACES

if TYPE_CHECKING:
    from sidecars.kube.client import Client


async def is_missing(client: Client, namespace: str) -> bool:
    """Whether the API server reports that this namespace does not exist. False while that is unknown."""
    try:
        await client.get(NAMESPACES, None, namespace)
    except NotFound:
        return True
    except KubeError:
        return False
    return False
