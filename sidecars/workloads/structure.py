"""The structure of the pods: reads the YAML folder once, composes a base with its overlays, fills in variables.

A file holds a stream of Kubernetes objects. `slurmctld.yaml` is a base, `slurmctld-ha.yaml` an overlay of it: each of
its documents is merged (Kubernetes' strategic merge, null removes) into the base's document of the same kind and name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sidecars.workloads.resources import Json, Manifest

ENVIRONMENT = "SLURM_CHARTS_WORKLOADS"


class StructureError(ValueError):
    """The folder of YAML files can't be used: which file, what is wrong, what to do."""


@dataclass(frozen=True, slots=True)
class Workloads:
    """The folder's files, by name without `.yaml`; each a stream of objects with their variables not filled in."""

    files: Mapping[str, Sequence[Json]]

    def part(self, base: str) -> "Workloads":
        """Only the base of this name and its overlays."""
        raise NotImplementedError

    def render(self, base: str, overlays: Sequence[str], variables: Mapping[str, Any]) -> list[Manifest]:
        """The objects of a base with overlays laid on in order, variables filled in. Raises StructureError."""
        raise NotImplementedError


def folder(choice: str | None) -> Path:
    """The folder to read: `choice` if given, else the one in the installed package, else the source checkout's."""
    raise NotImplementedError


def load(path: Path) -> Workloads:
    """Read all files of the folder. Raises StructureError for unreadable files and for a stamp of another version."""
    raise NotImplementedError
