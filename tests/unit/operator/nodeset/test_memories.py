"""What the operator remembers of NodeSets."""

from collections import deque
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import pytest

from sidecars.kube.events import EventRecorder
from sidecars.simulate import SlurmModel
from sidecars.slurm.node_cache import LISTED_FOR
from sidecars.slurm.pending import CachedRead
from tests.support.virtual_time import run
from tests.support.world.world import NODESET, POD, World, world

CONTAINERS = (list, tuple, set, frozenset, deque)


def received(root: object, word: str) -> Iterator[str]:
    """Where a text that contains the word is reachable from an object of the operator's, through
    such and containers.

    Left out are events, which are kept for their series, a fixed number of them, and the last list
    of each kind that Slurm was asked for.
    """
    seen: set[int] = set()
    todo: list[tuple[str, Any]] = [("operator", root)]
    while todo:
        place, item = todo.pop()
        if isinstance(item, str):
            if word in item:
                yield f"{place}: {item[:100]}"
            continue
        if id(item) in seen or isinstance(item, (EventRecorder, CachedRead, SlurmModel)):
            continue
        seen.add(id(item))
        if isinstance(item, (dict, MappingProxyType)):
            todo += [(f"{place}.keys()", key) for key in item]
            todo += [(f"{place}[{str(key)[:60]}]", value) for key, value in item.items()]
        elif isinstance(item, CONTAINERS):
            todo += [(f"{place}[]", value) for value in item]
        elif type(item).__module__.startswith("sidecars."):
            names = [
                *getattr(item, "__dict__", ()),
                *(n for c in type(item).__mro__ for n in getattr(c, "__slots__", ())),
            ]
            todo += [(f"{place}.{name}", getattr(item, name, None)) for name in names]


async def life(w: World, name: str, **spec: Any) -> None:
    """Of a NodeSet: created, scaled, updated, its pods lost and failed, removed."""
    w.nodeset(name, 3, partition={"enabled": True}, health={"enabled": True}, **spec)
    await w.run(20)
    w.change(
        name, {"replicas": 2, "slurmd": {"image": "slurmd:2"}, "partition": {"enabled": False}}
    )
    await w.run(20)
    for pod in w.pods(name)[:1]:
        w.api.delete(POD, "slurm", pod["metadata"]["name"])
    await w.run(5)
    w.api.delete(NODESET, "slurm", name)
    await w.until("its removal", lambda: w.api.get(NODESET, "slurm", name) is None, 600)


@pytest.mark.parametrize("mode", ["StatefulSet", "DaemonSet"])
def test_of_a_nodeset_that_is_gone_nothing_stays(mode: str) -> None:
    keeper = f"keeper-{mode}".lower()

    async def scenario() -> None:
        async with world(5) as w:
            w.nodeset(keeper, 1)
            await w.run(10)
            operator = w.operator()
            await life(w, "fleeting", scalingMode=mode)
            # Longer than announced removals of records are expected, failures remembered, and
            # vanished nodes known.
            await w.run(LISTED_FOR + 100)
            assert {key for key, _ in operator.nodesets.items()} == {("slurm", keeper)}
            assert sorted(received(operator, keeper))
            assert sorted(received(operator, "fleeting")) == []

    run(scenario())
