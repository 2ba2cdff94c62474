"""kubectl's own completion of `kubectl slurm`, by the files that a user installs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sidecars.explain import plugin
from tests.cluster.tools import tool


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with kubectl-slurm and kubectl_complete-slurm, and nothing that lists names."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "kubectl-slurm"
    assert plugin.main([str(program)]) == 0
    printed = subprocess.run([program, "completion"], capture_output=True, check=True).stdout
    complete = folder / "kubectl_complete-slurm"
    complete.write_bytes(printed)
    complete.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["slurm", ""], ["completion", "doctor", "explain", "top"]),
        (["slurm", "explain", "node"], ["node", "nodeset"]),
        (["slurm", "top", "--wa"], ["--watch"]),
        (["slurm", "explain", "job", ""], []),
    ],
)
def test_kubectl_completes_the_words_of_the_plugin(
    installed: Path, words: list[str], found: list[str], tmp_path: Path
) -> None:
    folders = [installed, tool("kubectl").parent, Path(sys.executable).parent]
    path = ":".join([*map(str, folders), os.environ["PATH"]])
    done = subprocess.run(
        [tool("kubectl"), "__complete", *words],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": path, "HOME": str(tmp_path)},
    )
    *offered, directive = done.stdout.splitlines()
    assert (offered, directive) == (found, ":4")
