"""Namespaces themselves: whether one exists, because its Role is deleted with it, and which one it
is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecars.kube.errors import KubeError, NotFound
from sidecars.kube.resources import NAMESPACES

if TYPE_CHECKING:
    from sidecars.kube.client import Client


async def is_leaving(client: Client, namespace: str) -> bool:
    """Return whether the namespace is being deleted, or does not exist. False while that is
    unknown.

    The Role is deleted before the objects whose finalizers the operator has to remove.
    """
    try:
        live = await client.get(NAMESPACES, None, namespace)
    except NotFound:
        return True
    except KubeError:
        return False
    return "deletionTimestamp" in live["metadata"]


async def uid_of(client: Client, namespace: str) -> str:
    """Return the uid of the namespace, by which it differs from those of its name in other
    clusters; "" while it is unknown.
    """
    try:
        live = await client.get(NAMESPACES, None, namespace)
    except KubeError:
        return ""
    return str(live["metadata"].get("uid", ""))
