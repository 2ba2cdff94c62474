"""The table of mutants: the YAML files in this folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """A defect, as a change of one text in one file."""

    name: str
    """Short: for the command line and the report."""
    defect: str
    """The effect on a user."""
    file: str
    """Path from the top of the repository."""
    text: str
    """What the file contains exactly once."""
    becomes: str
    """What replaces the text."""
    tests: tuple[str, ...]
    """Tests that must fail, each: `FILE::TEST`, or `FILE::it: TITLE` in a suite of helm-unittest.
    """

    def mutated(self, root: Path) -> str | None:
        """The file with the defect; None if it doesn't contain the text exactly once."""
        path = root / self.file
        found = path.read_text(encoding="utf-8") if path.is_file() else ""
        return found.replace(self.text, self.becomes) if found.count(self.text) == 1 else None


EQUIVALENT = "equivalent.yaml"
"""Not a part of the table: see `tests.mutants.generic`."""


def load() -> list[Mutant]:
    """All mutants, in the order of the files' names and of their lines."""
    paths = sorted(Path(__file__).parent.glob("*.yaml"))
    return [
        it
        for path in paths
        if path.name != EQUIVALENT
        for it in rows(path.read_text(encoding="utf-8"))
    ]


def rows(text: str) -> list[Mutant]:
    """The mutants of one file of the table."""
    document: dict[str, dict[str, Any]] = yaml.load(text, yaml.CSafeLoader) or {}
    return [Mutant(name, **{**row, "tests": tuple(row["tests"])}) for name, row in document.items()]
