"""Whether the values files of a chart mention every key that its schema has, and whether every
field of a custom resource that values have arrives in one that the chart renders.

A key that neither values.yaml nor a values file of the tests mentions is one that nobody finds and
no test turns on. A field that doesn't arrive has no effect, without a word.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from schemas import resource_fields

Schema = dict[str, Any]


def unmentioned(schema: Schema, documents: list[Any], path: str = "") -> list[str]:
    """Paths of the schema's keys that none of the documents contains; NAME stands for the keys of a
    map.

    What may be something else than an object, as an image may be a string, counts as a whole, and
    so does a value whose fields another key describes (`described_at`).
    """
    mappings = [document for document in documents if isinstance(document, dict)]
    missing = []
    for name, child in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        blocked = [mapping[name] for mapping in mappings if name in mapping]
        if not blocked and here != "global":
            missing.append(here)
        elif _only_object(child) and "described_at" not in child:
            missing += unmentioned(child, blocked, here)
    return missing


def lost(kind: str, manifests: Iterable[Any]) -> list[str]:
    """Fields of a kind that values have and none of the rendered objects, such as
    `NodeSet.gpu.count`.
    """
    objects = resource_fields.objects(resource_fields.load(kind)["spec"], kind)
    described = [f"{place}.{name}" for place, names in objects for name in names]
    present = {
        path for each in manifests if each["kind"] == kind for path in _paths(each["spec"], kind)
    }
    return [path for path in described if path not in present]


def _paths(value: Any, place: str) -> Iterator[str]:
    """The paths of the keys in a map and in the maps in it."""
    if isinstance(value, dict):
        for name, item in value.items():
            if item is not None:
                yield f"{place}.{name}"
                yield from _paths(item, f"{place}.{name}")


def _only_object(schema: Schema) -> bool:
    types = schema.get("type", "any")
    return (
        not {types} - {"object"} if isinstance(types, str) else not set(types) - {"object", "null"}
    )
