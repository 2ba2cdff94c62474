"""Objects of other owners whose names the operator needs, on a real API server: it never writes to
them.
"""

from typing import Any

import pytest

from sidecars.custom_resources import LOGINSETS
from sidecars.kube import DEPLOYMENTS, SERVICES, Manifest
from tests.support.apiserver import WatchedNamespace, custom, secret, until

pytestmark = pytest.mark.timeout(120, func_only=True)

LOGINSET = {
    "controllerRef": {"name": "slurm"},
    "sssdConfRef": {"name": "sssd", "key": "sssd.conf"},
    "login": {"image": "login:test"},
}


def service(world: WatchedNamespace, **metadata: Any) -> Manifest:
    """A Service named `web`, which leads to pods of an application."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": world.namespace, **metadata},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "ssh", "port": 22}]},
    }


async def until_ready_is(world: WatchedNamespace, reason: str) -> str:
    """Wait for this reason of the condition Ready of LoginSet `web`; its message."""

    async def look() -> dict[str, Any] | None:
        found = await world.condition(LOGINSETS, "web")
        return found if found.get("reason") == reason else None

    return str((await until(f"LoginSet web to have reason {reason}", look))["message"])


async def test_a_loginset_does_not_rewrite_a_foreign_service_with_its_name(
    world: WatchedNamespace,
) -> None:
    before = await world.client.create(SERVICES, service(world))
    await world.create(secret("sssd", "sssd.conf", b"[sssd]"))
    await world.create(custom("LoginSet", "web", LOGINSET))
    message = await until_ready_is(world, "NameTaken")
    assert f"Service {world.namespace}/web" in message
    assert "delete" in message
    assert await world.get(SERVICES, "web") == before
    await world.until_event("SyncFailed", "LoginSet", "NameTaken")
    # The operator doesn't watch it, and continues nevertheless when it is deleted.
    await world.client.delete(SERVICES, world.namespace, "web")
    await until("the Deployment", lambda: world.get(DEPLOYMENTS, "web"))
    found = await until("the Service", lambda: world.get(SERVICES, "web"))
    assert found["spec"]["selector"]["app.kubernetes.io/name"] == "login"


async def test_a_loginset_does_not_rewrite_an_object_of_another_owner_that_has_the_operators_label(
    world: WatchedNamespace,
) -> None:
    labels = {"app.kubernetes.io/managed-by": "slurm-operator"}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": "other", "controller": True}
    before = await world.client.create(
        SERVICES, service(world, labels=labels, ownerReferences=[owner])
    )
    await world.create(secret("sssd", "sssd.conf", b"[sssd]"))
    await world.create(custom("LoginSet", "web", LOGINSET))
    assert "Pod other" in await until_ready_is(world, "NameTaken")
    assert await world.get(SERVICES, "web") == before


async def test_an_object_that_belongs_to_the_loginset_is_adopted(world: WatchedNamespace) -> None:
    created = await world.create(custom("LoginSet", "web", LOGINSET))
    await until_ready_is(world, "ReferenceMissing")
    owner = {
        "apiVersion": created["apiVersion"],
        "kind": "LoginSet",
        "name": "web",
        "uid": created["metadata"]["uid"],
        "controller": True,
    }
    await world.client.create(SERVICES, service(world, ownerReferences=[owner]))
    await world.create(secret("sssd", "sssd.conf", b"[sssd]"))

    async def adopted() -> bool:
        found = await world.get(SERVICES, "web")
        return bool(found and found["spec"]["selector"].get("app.kubernetes.io/name") == "login")

    await until("the Service to be adopted", adopted)
