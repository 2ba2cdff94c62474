"""chart-testing (`ct`), run on a copy of the charts: it builds their dependencies, which writes.

ct reads the values files in `ci/` of a chart alone. The copy also has the examples there that a run
is to have.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.cluster.commands import environment
from tests.cluster.errors import ClusterError
from tests.cluster.tools import tool

ROOT = Path(__file__).parents[2]


def values_files(chart: Path) -> list[Path]:
    """The values files of a chart that ct renders: those in `ci/` and all examples."""
    return [
        *sorted((chart / "ci").glob("*-values.yaml")),
        *sorted((chart / "examples").glob("*.yaml")),
    ]


def run(
    command: str,
    charts: Sequence[str],
    *words: str,
    seconds: float,
    values: Iterable[Path] | None = None,
    kubeconfig: Path | None = None,
) -> str:
    """`ct COMMAND` of charts by their names, with ct.yaml; what it prints. Raises ClusterError with
    it if ct fails.

    `values`: the values files of the charts. Default: those in `ci/`.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("charts", ".github", "ct.yaml"):
            source, target = ROOT / name, copy / name
            if source.is_dir():
                shutil.copytree(source, target)
            else:
                shutil.copy(source, target)
        if values is not None:
            for path in copy.glob("charts/*/ci/*-values.yaml"):
                path.unlink()
            for path in values:
                chart, name = path.parents[1].name, path.stem.removesuffix("-values")
                shutil.copy(path, copy / "charts" / chart / "ci" / f"{name}-values.yaml")
        # ct finds its helpers on PATH.
        programs = [tool("helm").parent, tool("kubectl").parent, Path(sys.executable).parent]
        variables = {
            **environment(),
            **{
                f"HELM_{kind}_HOME": str(copy / kind.lower())
                for kind in ("CACHE", "CONFIG", "DATA")
            },
            "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
        }
        if kubeconfig:
            variables["KUBECONFIG"] = str(kubeconfig)
        chosen = f"--charts={','.join(f'charts/{chart}' for chart in charts)}"
        try:
            done = subprocess.run(
                [tool("ct"), command, "--config=ct.yaml", chosen, *words],
                cwd=copy,
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(
                f"ct {command}: not done after {seconds:g} s\n{error.output}"
            ) from None
    if done.returncode:
        raise ClusterError(f"ct {command}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout
