"""The configuration: a YAML file with a list of steps. Its schema:
schemas/postrender.schema.yaml.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from postrender import reading, validation
from postrender.errors import PostrenderError, YamlError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StepSettings(Generic[T]):
    """A step of the configuration."""

    name: str
    """The step, such as `labels`."""

    settings: T
    """What the schema allows for this step: a TypedDict of its module."""

    origin: str
    """The file of the configuration, or what messages call it."""

    text: str = ""
    """The YAML of the configuration, for line numbers; "" if unknown."""

    index: int = 0
    """Its position in the list of steps."""

    @property
    def place(self) -> str:
        """For messages, such as `postrender.yaml line 3: steps[0].labels`."""
        return self.at()

    def at(self, *path: str | int) -> str:
        """Return the place of a setting of the step, for messages."""
        return _place(self.origin, self.text, ("steps", self.index, self.name, *path))


def schema() -> dict[str, Any]:
    """Return the JSON schema of a configuration."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / "schema.json").read_bytes())
    return found


def read(file: Path) -> list[StepSettings[Any]]:
    """Return the steps of a file. Raises PostrenderError that names file, line and key."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise PostrenderError(f"the configuration {file} can't be read: {reason}") from None
    try:
        value = reading.load(text)
    except YamlError as error:
        raise PostrenderError(f"{file} line {error.line}: {error.problem}") from None
    return steps(value, str(file), text)


def steps(value: Any, origin: str, text: str = "") -> list[StepSettings[Any]]:
    """Return the steps of a configuration. `text`: its YAML, for line numbers."""
    rules = schema()
    for path, problem in validation.faults(value, rules, rules):
        raise PostrenderError(f"{_place(origin, text, path)} {problem}")
    found = []
    for index, step in enumerate(value["steps"]):
        ((name, settings),) = step.items()
        found.append(StepSettings(name, settings or {}, origin, text, index))
    return found


def _place(origin: str, text: str, path: validation.Path) -> str:
    line = f" line {reading.line_of(reading.compose(text), path)}" if text else ""
    key = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in path
    ).removeprefix(".")
    return f"{origin}{line}: {key or 'the configuration'}"
