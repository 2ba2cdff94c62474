"""Whether the values files of a chart mention every key that its schema knows.

A key that neither values.yaml nor a values file of the tests mentions is one that nobody finds and no test turns on.
"""

from typing import Any

Schema = dict[str, Any]


def unmentioned(schema: Schema, documents: list[Any], path: str = "") -> list[str]:
    """Paths of the schema's keys that none of the documents holds; NAME stands for the keys of a map.

    What may be something else than an object, as an image may be a string, counts as a whole.
    """
    mappings = [document for document in documents if isinstance(document, dict)]
    missing = []
    for name, child in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        held = [mapping[name] for mapping in mappings if name in mapping]
        if not held and here != "global":
            missing.append(here)
        elif _only_object(child):
            missing += unmentioned(child, held, here)
    return missing


def _only_object(schema: Schema) -> bool:
    types = schema.get("type", "any")
    return not {types} - {"object"} if isinstance(types, str) else not set(types) - {"object", "null"}
