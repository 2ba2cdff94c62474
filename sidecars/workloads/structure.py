"""The structure of the pods: reads the YAML folder once, composes a base with its overlays, fills
in variables.

A file is a stream of Kubernetes objects. `slurmctld.yaml` is a base, `slurmctld-ha.yaml` an overlay
of it: each of its documents is merged (Kubernetes' strategic merge, null removes) into the base's
document of the same kind and name, or added where the base has none. Variables are filled in last:

- `${name}` in a string is replaced by the variable's text; `$${` stands for `${`.
- A string that is nothing but `${name}` takes the variable's value, whatever its type: None removes
  the field or list item, and a list as a list item is spliced in.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sidecars.contract.project import VERSION
from sidecars.workloads import merge
from sidecars.workloads.resources import Json, Manifest, ResourceError

STAMP = "version"
"""The file, without `.yaml`, that contains the version of the folder."""

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""That of libyaml if PyYAML has it: it takes a sixth of the time."""

_PACKAGED = Path(__file__).parent / "base"
_SOURCE = Path(__file__).parents[2] / "charts" / "slurm-operator" / "workloads"

_VARIABLE = re.compile(r"\$?\$\{(\w+)\}")


class StructureError(ValueError):
    """The folder of YAML files can't be used: which file, what is wrong, what to do."""


@dataclass(frozen=True, slots=True)
class Workloads:
    """The folder's files, by name without `.yaml`; each a stream of objects with their variables
    not filled in.

    `scripts` are its shell scripts, by name without `.sh`, as they are.
    """

    files: Mapping[str, Sequence[Json]]
    scripts: Mapping[str, str] = field(default_factory=dict)

    def part(self, base: str) -> "Workloads":
        """Return only the base of this name and its overlays."""
        return Workloads(
            {
                name: file
                for name, file in self.files.items()
                if name == base or name.startswith(f"{base}-")
            }
        )

    def render(
        self, base: str, overlays: Sequence[str], variables: Mapping[str, Any]
    ) -> list[Manifest]:
        """Return the objects of a base with overlays laid on in order, variables filled in. Raises
        StructureError.
        """
        objects = list(self._file(base))
        for overlay in overlays:
            name = f"{base}-{overlay}"
            for patch in self._file(name):
                index = next(
                    (
                        i
                        for i, document in enumerate(objects)
                        if _identity(document) == _identity(patch)
                    ),
                    None,
                )
                if index is None:
                    objects.append(patch)
                    continue
                try:
                    objects[index] = merge.merge(objects[index], patch, str(patch["kind"]))
                except ResourceError as error:
                    raise StructureError(f"{name}.yaml: {error}") from error
        try:
            return [_filled(document, variables) for document in objects]
        except StructureError as error:
            raise StructureError(f"{base}.yaml: {error}") from None

    def _file(self, name: str) -> Sequence[Json]:
        if name not in self.files:
            raise StructureError(
                f"{name}.yaml is missing among {', '.join(sorted(self.files)) or 'no files'}"
            )
        return self.files[name]


def _identity(document: Json) -> tuple[Any, Any]:
    return document.get("kind"), document.get("metadata", {}).get("name")


_DROPPED = object()


def _filled(value: Any, variables: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        filled = {}
        for key, item in value.items():
            try:
                new = _filled(item, variables)
            except StructureError as error:
                raise StructureError(f"{key}: {error}") from None
            if new is not _DROPPED:
                filled[key] = new
        return filled
    if isinstance(value, list):
        items: list[Any] = []
        for item in value:
            new = _filled(item, variables)
            if isinstance(new, list) and isinstance(item, str):
                items.extend(new)
            elif new is not _DROPPED:
                items.append(new)
        return items
    if not isinstance(value, str) or "${" not in value:
        return value
    whole = _VARIABLE.fullmatch(value)
    if whole is not None and not value.startswith("$$"):
        new = _variable(whole[1], variables)
        return _DROPPED if new is None else new
    return _VARIABLE.sub(lambda match: _text(match, variables), value)


def _text(match: re.Match[str], variables: Mapping[str, Any]) -> str:
    if match[0].startswith("$$"):
        return match[0][1:]
    value = _variable(match[1], variables)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise StructureError(
            f"${{{match[1]}}} stands within a text, but its value is no text or number"
        )
    return str(value)


def _variable(name: str, variables: Mapping[str, Any]) -> Any:
    if name not in variables:
        raise StructureError(f"${{{name}}} isn't one of {', '.join(sorted(variables))}")
    return variables[name]


def folder(choice: str | None) -> Path:
    """Return the folder to read: `choice` if given, else the one in the installed package, else the
    source checkout's.
    """
    if choice:
        return Path(choice)
    return _PACKAGED if _PACKAGED.is_dir() else _SOURCE


def load(path: Path) -> Workloads:
    """Read all files of the folder. Raises StructureError for unreadable files and for a stamp of
    another version.
    """
    files: dict[str, Sequence[Json]] = {}
    try:
        for file in sorted(path.glob("*.yaml")):
            documents = [
                document
                for document in yaml.load_all(file.read_text(encoding="utf-8"), _Loader)
                if document
            ]
            if not all(isinstance(document, dict) for document in documents):
                raise StructureError(f"{file}: every document must be a map")
            # JSON values only: a YAML timestamp or set could not be written into an object.
            files[file.stem] = json.loads(json.dumps(documents))
        scripts = {
            file.stem: file.read_text(encoding="utf-8") for file in sorted(path.glob("*.sh"))
        }
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError) as error:
        raise StructureError(f"{path}: {error}") from error
    stamp = files.pop(STAMP, None)
    if stamp is None:
        raise StructureError(f"{path / STAMP}.yaml doesn't exist: is this the folder of workloads?")
    found = str(stamp[0].get("version")) if stamp else "nothing"
    if found != VERSION:  # Variables and files of the two go together.
        raise StructureError(
            f"{path} belongs to version {found}, this is {VERSION}: "
            "install the chart slurm-operator and the image of the same version"
        )
    return Workloads(files, scripts)
