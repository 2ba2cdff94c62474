"""Which change wakes the pass over the NodeSets of a Controller:
`sidecars.operator.autoscaling.wiring`.
"""

import pytest

from sidecars.operator.autoscaling.memory import Memory
from tests.support.operator_parts import CONTROLLER, Parts, SlurmConnection
from tests.unit.operator.autoscaling.builders import nodeset

pytestmark = pytest.mark.looptime


async def test_a_nodeset_that_is_scaled_wakes_its_controller_and_another_does_not() -> None:
    parts = Parts()
    nodeset(parts)
    assert (await parts.woken())["autoscaling"] == {CONTROLLER}
    nodeset(parts, "other", autoscaling=None)
    assert "autoscaling" not in await parts.woken()


async def test_a_nodeset_that_ceases_to_be_scaled_wakes_it_too() -> None:
    parts = Parts()
    nodeset(parts)
    await parts.woken()
    nodeset(parts, meta={"generation": 2}, autoscaling=None)
    assert (await parts.woken())["autoscaling"] == {CONTROLLER}


async def test_pods_and_nodes_wake_it_only_while_something_is_scaled() -> None:
    connection = SlurmConnection()
    parts = Parts(lambda url, tokens: connection)
    nodeset(parts)
    await parts.woken()
    parts.pod("slinky-0")
    assert "autoscaling" not in await parts.woken()
    memory = parts.operator.autoscaling[CONTROLLER] = Memory(changed=False)
    parts.pod("slinky-1")
    assert (await parts.woken())["autoscaling"] == {CONTROLLER}
    assert memory.changed
    await parts.connect()
    memory.changed = False
    parts.runtime.clusters._changed(CONTROLLER, frozenset({"slinky-0"}), frozenset())
    assert (await parts.woken())["autoscaling"] == {CONTROLLER}
    assert memory.changed
