"""Which change wakes which RestApi."""

from typing import Any

import pytest

from sidecars.operator.runtime.queues import Key
from tests.support.operator_parts import NAMESPACE, Parts

pytestmark = pytest.mark.looptime
SLURM = {(NAMESPACE, "slurm")}


async def settled(**metadata: Any) -> Parts:
    """RestApi `slurm` of Controller `slurm`, and RestApi `other` of another."""
    parts = Parts()
    parts.keys()
    parts.controller()
    parts.custom("RestApi", "slurm", {"controllerRef": {"name": "slurm"}}, **metadata)
    parts.custom("RestApi", "other", {"controllerRef": {"name": "other"}})
    await parts.woken()
    return parts


async def woken(parts: Parts) -> set[Key]:
    return (await parts.woken()).get("restapis", set())


async def test_its_controller_and_the_keys_of_that_wake_it() -> None:
    parts = await settled()
    parts.controller(extraConf="X=1\n")
    parts.custom("Controller", "slurm", {}, generation=2)
    assert await woken(parts) == SLURM


async def test_what_slurmctld_has_accepted_wakes_the_restapis_of_that_controller() -> None:
    parts = await settled()
    owner = {"kind": "Controller", "name": "slurm", "uid": "uid-of-slurm"}
    parts.config_map("slurm-accepted", {"slurm.conf": ""}, own=True, ownerReferences=[owner])
    assert await woken(parts) == SLURM
    parts.config_map("unrelated", {"slurm.conf": ""}, own=True)
    assert await woken(parts) == set()


@pytest.mark.parametrize("deleting", [True, False])
async def test_nodesets_wake_a_restapi_only_while_it_is_being_deleted_and_waits_for_them(
    deleting: bool,
) -> None:
    parts = await settled(**({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}))
    parts.custom("NodeSet", "slinky", {"controllerRef": {"name": "slurm"}})
    assert await woken(parts) == (SLURM if deleting else set())
