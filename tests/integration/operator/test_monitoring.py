"""The ServiceMonitor of a Controller, on an API server that gets its kind later, and loses it
again.
"""

from typing import Any

import pytest

from sidecars.custom_resources import CONTROLLERS
from sidecars.kube import SERVICE_MONITORS, STATEFUL_SETS, Manifest, Resource
from tests.support.apiserver import WatchedNamespace, until

pytestmark = pytest.mark.timeout(120, func_only=True)

DEFINITIONS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
)
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                        },
                    }
                },
            }
        ],
    },
}
MONITOR = {
    "enabled": True,
    "interval": "30s",
    "scrapeTimeout": "25s",
    "labels": {"release": "prometheus"},
}


async def ask(
    world: WatchedNamespace, enabled: bool, monitor: dict[str, Any] | None = None
) -> None:
    """Change spec.metrics."""
    metrics = {"enabled": enabled, "serviceMonitor": monitor}
    await world.client.merge_patch(
        CONTROLLERS, world.namespace, "slurm", {"spec": {"metrics": metrics}}
    )


async def until_event(world: WatchedNamespace, status: str, reason: str) -> str:
    """Wait for the condition ServiceMonitor; its message."""

    async def look() -> str | None:
        found = await world.condition(CONTROLLERS, "slurm", "ServiceMonitor")
        return (
            str(found["message"])
            if (found.get("status"), found.get("reason")) == (status, reason)
            else None
        )

    return await until(f"ServiceMonitor={status} {reason}", look, 45)


async def monitor(world: WatchedNamespace) -> Manifest | None:
    """The ServiceMonitor."""
    return await world.get(SERVICE_MONITORS, "slurm-controller")


async def until_gone(world: WatchedNamespace) -> None:
    """Wait until none exists."""

    async def gone() -> bool:
        return await monitor(world) is None

    await until("the ServiceMonitor to be gone", gone)


async def test_a_service_monitor_is_created_where_its_kind_exists_and_deleted_when_it_is_disabled(
    world: WatchedNamespace,
) -> None:
    await ask(world, True, MONITOR)
    assert "install the Prometheus operator" in await until_event(world, "False", "KindMissing")
    assert await until(
        "slurmctld, which doesn't wait for it", lambda: world.get(STATEFUL_SETS, "slurm-controller")
    )

    async def updating() -> bool:
        return (await world.condition(CONTROLLERS, "slurm")).get("reason") == "Updating"

    await until("Controller to tell of slurmctld's pods", updating)

    await world.client.create(DEFINITIONS, DEFINITION)
    try:
        await until_event(world, "True", "Applied")
        found = await until("the ServiceMonitor", lambda: monitor(world))
        assert found["metadata"]["labels"]["release"] == "prometheus"
        assert found["spec"]["namespaceSelector"] == {"matchNames": [world.namespace]}
        shared = {"port": "slurmctld", "scheme": "http", "interval": "30s", "scrapeTimeout": "25s"}
        assert found["spec"]["endpoints"] == [
            {"path": f"/metrics/{what}", **shared}
            for what in ("jobs", "nodes", "partitions", "scheduler")
        ]

        # One that is deleted by hand comes back, and one that is changed is restored.
        await world.client.delete(SERVICE_MONITORS, world.namespace, "slurm-controller")

        async def another() -> bool:
            now = await monitor(world)
            return now is not None and now["metadata"]["uid"] != found["metadata"]["uid"]

        await until("another ServiceMonitor", another)
        own = {**MONITOR, "endpoints": [{"path": "/metrics/jobs-users-accts", "interval": "5m"}]}
        await ask(world, True, own)

        async def changed() -> bool:
            endpoints = ((await monitor(world)) or {"spec": {"endpoints": []}})["spec"]["endpoints"]
            return bool(
                endpoints == [{"path": "/metrics/jobs-users-accts", **shared, "interval": "5m"}]
            )

        await until("the user's endpoints", changed)
        await ask(world, False, MONITOR)
        await until_gone(world)

        async def untold() -> bool:
            return await world.condition(CONTROLLERS, "slurm", "ServiceMonitor") == {}

        await until("the condition to go, too", untold)
        await ask(world, True, MONITOR)
        await until("the ServiceMonitor again", lambda: monitor(world))
        await ask(world, True, {"enabled": False})
        await until_gone(world)
    finally:
        await world.client.delete(DEFINITIONS, None, "servicemonitors.monitoring.coreos.com")
