"""The size of a worker: `register` writes what the next record of its node would have, and `node`
reads it.
"""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """What slurmd is about to register. None is what `register` doesn't decide."""

    cpus: int | None = None
    memory: int | None = None
    """In MiB."""

    gres: str | None = None
    """The value of `Gres=`; "" for none."""


def encode(shape: Shape) -> str:
    """Return the text of the file."""
    return json.dumps({"cpus": shape.cpus, "memory": shape.memory, "gres": shape.gres})


def decode(text: str) -> Shape | None:
    """Return the content of the file, or None if it isn't one."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    cpus, memory, gres = fields.get("cpus"), fields.get("memory"), fields.get("gres")
    return Shape(
        cpus if isinstance(cpus, int) else None,
        memory if isinstance(memory, int) else None,
        gres if isinstance(gres, str) else None,
    )
