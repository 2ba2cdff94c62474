"""ConfigMaps and Secrets on a real API server: only those that a custom resource refers to
matter.
"""

import asyncio
from typing import Any

import pytest
from prometheus_client import REGISTRY

from sidecars.custom_resources import CONTROLLERS
from sidecars.kube import CONFIG_MAPS, Manifest
from tests.support.apiserver import WatchedNamespace, until

pytestmark = pytest.mark.timeout(120, func_only=True)


def config_map(world: WatchedNamespace, name: str, text: str) -> Manifest:
    metadata = {"name": name, "namespace": world.namespace}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {f"{name}.conf": text},
    }


def passes() -> float:
    """How many passes all kinds together have had, Tokens' renewals apart."""
    kinds = ("Controller", "RestApi", "LoginSet", "Accounting", "NodeSet")
    metric = "slurm_operator_pass_seconds_count"
    return sum(REGISTRY.get_sample_value(metric, {"kind": kind}) or 0.0 for kind in kinds)


async def published(world: WatchedNamespace) -> str:
    found: list[str] = []
    for name in ("slurm-config", "slurm-config-1"):
        data: dict[str, Any] = ((await world.get(CONFIG_MAPS, name)) or {}).get("data") or {}
        found += data.values()
    return "\n".join(found)


async def until_quiet() -> None:
    """Wait for two seconds in which nothing was looked at."""
    before = -1.0

    async def quiet() -> bool:
        nonlocal before
        seen, before = before, passes()
        await asyncio.sleep(2)
        return seen == before == passes()

    await until("two seconds without a pass", quiet, 60)


async def test_a_referenced_config_map_is_published_at_each_change_and_another_one_wakes_nothing(
    world: WatchedNamespace,
) -> None:
    await world.client.create(CONFIG_MAPS, config_map(world, "site", "# one\n"))
    await world.client.merge_patch(
        CONTROLLERS, world.namespace, "slurm", {"spec": {"configFileRefs": [{"name": "site"}]}}
    )

    async def has(text: str) -> bool:
        return text in await published(world)

    await until("the file", lambda: has("# one"))
    await world.client.merge_patch(
        CONFIG_MAPS, world.namespace, "site", {"data": {"site.conf": "# two\n"}}
    )
    await until("the change", lambda: has("# two"))
    await world.client.create(CONFIG_MAPS, config_map(world, "leader", "0"))

    async def passes_for(text: str, unrelated: int) -> float:
        """The passes for one change of the file, behind so many changes of another ConfigMap."""
        await until_quiet()
        before = passes()
        for number in range(unrelated):
            data = {"data": {"leader.conf": f"{text}{number}"}}
            await world.client.merge_patch(CONFIG_MAPS, world.namespace, "leader", data)
            # So that each is seen alone.
            await asyncio.sleep(0.1)
        await world.client.merge_patch(
            CONFIG_MAPS, world.namespace, "site", {"data": {"site.conf": text}}
        )
        await until("the change", lambda: has(text))
        await until_quiet()
        return passes() - before

    alone = await passes_for("# three\n", 0)
    assert await passes_for("# four\n", 20) < alone + 5
