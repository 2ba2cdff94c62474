"""Where objects have pods, containers and images. Custom resources name single containers beside
their pod template.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from postrender.stream import Manifest

Path = tuple[str | int, ...]

_TEMPLATE: Sequence[tuple[str, ...]] = (("spec", "template"),)
TEMPLATES: Mapping[str, Sequence[tuple[str, ...]]] = {
    **dict.fromkeys(("DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet"), _TEMPLATE),
    **dict.fromkeys(("Accounting", "Controller", "LoginSet", "NodeSet", "RestApi"), _TEMPLATE),
    "CronJob": (("spec", "jobTemplate", "spec", "template"),),
}
"""Where the kinds have the template of their pods."""

CONTAINERS: Mapping[str, Sequence[str]] = {
    "Accounting": ("slurmdbd", "initconf"),
    "Controller": ("slurmctld", "reconfigure", "logfile"),
    "LoginSet": ("login", "initconf"),
    "NodeSet": ("slurmd", "logfile"),
    "RestApi": ("slurmrestd",),
}
"""Fields of `spec` that are a container each."""


def specs(value: Manifest) -> Iterator[tuple[Path, Manifest]]:
    """Yield the specs of an object's pods, with their paths."""
    kind = str(value.get("kind") or "")
    paths = [("spec",)] if kind == "Pod" else [(*path, "spec") for path in TEMPLATES.get(kind, ())]
    for path in paths:
        found = at(value, path)
        if isinstance(found, dict):
            yield path, found


def containers(value: Manifest) -> Iterator[tuple[Path, Manifest]]:
    """Yield all containers of an object, with their paths."""
    for path, spec in specs(value):
        for field in ("initContainers", "containers", "ephemeralContainers"):
            items = spec.get(field)
            for index, item in enumerate(items if isinstance(items, list) else ()):
                if isinstance(item, dict):
                    yield (*path, field, index), item
    own = value.get("spec")
    for field in CONTAINERS.get(str(value.get("kind") or ""), ()):
        if isinstance(own, dict) and isinstance(own.get(field), dict):
            yield ("spec", field), own[field]


def images(value: Manifest) -> Iterator[tuple[Path, str]]:
    """Yield the images of an object: of containers, of volumes, and texts in the environment, which
    only may be images.
    """
    for path, container in containers(value):
        if isinstance(container.get("image"), str):
            yield (*path, "image"), container["image"]
        env = container.get("env")
        for index, variable in enumerate(env if isinstance(env, list) else ()):
            if isinstance(variable, dict) and isinstance(variable.get("value"), str):
                yield (*path, "env", index, "value"), variable["value"]
    for path, spec in specs(value):
        volumes = spec.get("volumes")
        for index, volume in enumerate(volumes if isinstance(volumes, list) else ()):
            source = volume.get("image") if isinstance(volume, dict) else None
            if isinstance(source, dict) and isinstance(source.get("reference"), str):
                yield (*path, "volumes", index, "image", "reference"), source["reference"]


def at(value: Any, path: Sequence[str | int]) -> Any:
    """Return the value at `path`, or None if it doesn't exist."""
    for part in path:
        if isinstance(part, int):
            value = value[part] if isinstance(value, list) and part < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def put(value: Any, path: Sequence[str | int], new: Any) -> Any:
    """Return a copy of an object with `new` at `path`, which exists but for its last part."""
    if not path:
        return new
    copied = value.copy()
    copied[path[0]] = put(
        value.get(path[0]) if isinstance(value, dict) else value[path[0]], path[1:], new
    )
    return copied
