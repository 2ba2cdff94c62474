"""What each Helm gives a post-renderer: `python -m tests.support.recorded_streams` records it.

The chart tests/fixtures/streams/shapes has what a stream can contain. `recorded` also records those
of our charts.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.commands import run
from tests.cluster.tools import tool

FOLDER = Path(__file__).parents[1] / "fixtures" / "streams"
HELMS = {"helm3": "helm", "helm4": "helm4"}
"""Names of the recorded files, each with the program."""

_PLUGIN = """\
apiVersion: v1
type: postrenderer/v1
name: record
version: 0.1.0
runtime: subprocess
runtimeConfig:
  platformCommand:
  - command: ${HELM_PLUGIN_DIR}/record
"""


def recorded(helm: str, chart: Path, *options: str | Path) -> str:
    """The stream that `helm` (a key of HELMS) gives a post-renderer for `helm template`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "record"
        folder.mkdir()
        program, stream = folder / "record", Path(name) / "stream.yaml"
        program.write_text(f"#!/bin/sh\nexec tee '{stream}'\n", encoding="utf-8")
        program.chmod(0o755)
        (folder / "plugin.yaml").write_text(_PLUGIN, encoding="utf-8")
        template(helm, chart, "record" if helm == "helm4" else program, name, options)
        return stream.read_text(encoding="utf-8")


def template(
    helm: str, chart: Path, renderer: str | Path, plugins: str | Path, options: Sequence[str | Path]
) -> str:
    """The output of `helm template` with a post-renderer: a path for Helm 3, for Helm 4 the name of
    a plugin.
    """
    words = [
        tool(HELMS[helm]),
        "template",
        "slurm",
        chart,
        "--namespace=slurm",
        "--include-crds",
        *options,
    ]
    env = {**os.environ, "HELM_PLUGINS": str(plugins) if helm == "helm4" else ""}
    return run([*words, f"--post-renderer={renderer}"], env=env)


def main() -> int:
    """Write the files."""
    for helm in HELMS:
        (FOLDER / f"{helm}.yaml").write_text(recorded(helm, FOLDER / "shapes"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
