"""The YAML and shell scripts of charts/slurm-operator/workloads agree with `sidecars.contract`."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

WORKLOADS = Path(__file__).parents[3] / "charts/slurm-operator/workloads"
FILES = sorted(path.name for path in WORKLOADS.glob("*.yaml"))


def containers(name: str) -> Iterator[dict[str, Any]]:
    """All containers of a file, those of init too."""
    for document in yaml.safe_load_all((WORKLOADS / name).read_text()):
        spec = (document or {}).get("spec") or {}
        pod = spec if document.get("kind") == "Pod" else (spec.get("template") or {}).get("spec") or {}
        yield from (it for field in ("initContainers", "containers") for it in pod.get(field) or () if "name" in it)


@pytest.mark.parametrize("name", FILES)
def test_a_container_sets_a_variable_once(name: str) -> None:
    for container in containers(name):
        found = Counter(it["name"] for it in container.get("env") or ())
        assert [name for name, times in found.items() if times > 1] == [], container["name"]
