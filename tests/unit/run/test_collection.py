"""That collecting tests builds and starts nothing."""

import os
import subprocess
import sys
from pathlib import Path

from tests.run.stages import ROOT

TIERS = ("e2e", "gpus", "integration", "slurm")


def test_collecting_the_tests_with_real_daemons_builds_nothing(tmp_path: Path) -> None:
    folders = [f"tests/{name}" for name in TIERS if (ROOT / "tests" / name).is_dir()]
    words = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "--quiet",
        "-p",
        "no:cacheprovider",
        *folders,
    ]
    environment = {**os.environ, "SLURM_CHARTS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    for folder in folders:
        assert f"{folder}/" in done.stdout
    assert not (tmp_path / "cache").exists()
