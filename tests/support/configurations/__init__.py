"""Configurations as data: bad ones, each with the finding that must be reported.

A file of bad/ has `wrong` (what is wrong, for people), `input`, `found_by` (`lint`, or `slurmctld`
where only its dry run can tell) and `message`, a fragment of the finding. `input`: `name`,
`clusterName` and `extraConf` of the Controller, `version` of Slurm, `files` and `binaryFiles`
(base64) of one ConfigMap of configFileRefs, `configMaps` for several, `largeFiles` (that many files
of 1 MiB), `nodesets` (spec by name).
"""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

BAD = Path(__file__).parent / "bad"


@dataclass(frozen=True)
class BadConfiguration:
    """One file of bad/."""

    name: str
    input: dict[str, Any]
    found_by: str
    message: str

    @property
    def config_maps(self) -> dict[str, dict[str, str | bytes]]:
        """Contents of the ConfigMaps of configFileRefs, by name."""
        maps: dict[str, dict[str, str | bytes]] = {
            name: dict(files) for name, files in self.input.get("configMaps", {}).items()
        }
        binary = {
            name: base64.b64decode(data) for name, data in self.input.get("binaryFiles", {}).items()
        }
        files: dict[str, str | bytes] = {**self.input.get("files", {}), **binary}
        if files:
            maps["files"] = files
        for index in range(self.input.get("largeFiles", 0)):
            maps[f"large-{index}"] = {f"large-{index}": "x" * 1024 * 1024}
        return maps


def bad() -> list[BadConfiguration]:
    """All of them, by name."""
    found = []
    for path in sorted(BAD.glob("*.yaml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        found.append(
            BadConfiguration(path.stem, content["input"], content["found_by"], content["message"])
        )
    return found
