"""The NodeSets of EXPORTER_NODESETS: a JSON list, of which each item has these keys.

| key | default | meaning |
|---|---|---|
| name | required | of the NodeSet |
| maxReplicas | required | the most replicas that are wanted |
| minReplicas | 0 | the fewest |
| feature | the name | the feature of its Slurm nodes |
| price | 1 | of a node: NodeSets with a lower one are extended first |
| idleSeconds | 300 | a node that is idle for so long is not wanted |
| shape | | the resources of a node, while no node exists |

A shape has `sockets`, `coresPerSocket`, `threadsPerCore`, `specializedCores`, `memory` (MiB) and
`gres`.
"""

import json
from dataclasses import dataclass
from typing import Any

from sidecars.autoscaling.records import Shape
from sidecars.contract import environment as variables
from sidecars.slurm import gres


@dataclass(frozen=True, slots=True)
class Declared:
    """A NodeSet whose wanted replicas are computed."""

    name: str
    max: int
    min: int = 0
    feature: str = ""
    price: float = 1.0
    idle_seconds: float = 300.0
    shape: Shape | None = None
    """Until one of its nodes has registered; None: unknown until then."""


_KEYS = {"name", "maxReplicas", "minReplicas", "feature", "price", "idleSeconds", "shape"}
_SHAPE = {"sockets", "coresPerSocket", "threadsPerCore", "specializedCores", "memory", "gres"}


def declared(text: str) -> tuple[Declared, ...]:
    """Read the variable. Raises ValueError, which names the place, the value and the remedy."""
    if not text:
        return ()
    try:
        items = json.loads(text)
    except ValueError as fault:
        raise ValueError(f"{variables.EXPORTER_NODESETS} is no JSON: {fault}") from None
    if not isinstance(items, list):
        raise ValueError(f"{variables.EXPORTER_NODESETS} is {text[:60]!r}: give a list of objects")
    found = tuple(
        _one(item, f"{variables.EXPORTER_NODESETS}[{at}]") for at, item in enumerate(items)
    )
    names = [it.name for it in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(
            f"{variables.EXPORTER_NODESETS} has NodeSet {twice!r} twice: give each once"
        )
    return found


def _one(item: Any, place: str) -> Declared:
    _check_keys(item, place, _KEYS)
    name = item.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"{place}.name is {name!r}: give the name of a NodeSet")
    low, high = _whole(item, place, "minReplicas", 0), _whole(item, place, "maxReplicas", None)
    if low > high:
        raise ValueError(f"{place}.minReplicas is {low}: give at most maxReplicas, {high}")
    return Declared(
        name,
        max=high,
        min=low,
        feature=item.get("feature") or name,
        price=float(_number(item, place, "price", 1)),
        idle_seconds=float(_number(item, place, "idleSeconds", 300)),
        shape=None if item.get("shape") is None else _shape(item["shape"], f"{place}.shape", item),
    )


def _shape(item: Any, place: str, nodeset: dict[str, Any]) -> Shape:
    _check_keys(item, place, _SHAPE)
    try:
        resources = gres.total(gres.parse(item.get("gres") or ""))
    except gres.GresError as fault:
        raise ValueError(f"{place}.gres: {fault}") from None
    return Shape(
        sockets=_whole(item, place, "sockets", 1),
        cores=_whole(item, place, "coresPerSocket", None),
        threads=_whole(item, place, "threadsPerCore", 1),
        memory=_whole(item, place, "memory", None),
        gres=resources,
        features=frozenset({nodeset.get("feature") or nodeset["name"]}),
        specialized_cores=_whole(item, place, "specializedCores", 0),
    )


def _check_keys(item: Any, place: str, known: set[str]) -> None:
    if not isinstance(item, dict):
        raise ValueError(f"{place} is {item!r}: give an object")
    unknown = sorted(item.keys() - known)
    if unknown:
        raise ValueError(
            f"{place} has {unknown[0]!r}, which doesn't exist; choose from "
            f"{', '.join(sorted(known))}"
        )


def _number(item: dict[str, Any], place: str, key: str, default: int | None) -> float:
    value = item.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ValueError(f"{place}.{key} is {value!r}: give a number that isn't negative")
    return value


def _whole(item: dict[str, Any], place: str, key: str, default: int | None) -> int:
    value = _number(item, place, key, default)
    if value != int(value):
        raise ValueError(f"{place}.{key} is {value!r}: give a whole number")
    return int(value)
