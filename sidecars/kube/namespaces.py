"""Whether a namespace exists: its Role is deleted with it, and requests are then refused, not empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecars.kube.errors import KubeError, NotFound
from sidecars.kube.resources import NAMESPACES

if TYPE_CHECKING:
    from sidecars.kube.client import Client


async def is_leaving(client: Client, namespace: str) -> bool:
    """Whether the namespace is being deleted, or does not exist. False while that is unknown.

    The Role is deleted before the objects whose finalizers the operator has to remove.
    """
    try:
        found = await client.get(NAMESPACES, None, namespace)
    except NotFound:
        return True
    except KubeError:
        return False
    return "deletionTimestamp" in found["metadata"]
