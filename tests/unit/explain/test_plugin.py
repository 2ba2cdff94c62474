"""The file `kubectl-slurm`: Python and kubectl alone are enough for it."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from sidecars.explain import plugin
from tests.unit.explain.fake_kubectl import FakeKubectl
from tests.unit.explain.printed import output
from tests.unit.explain.test_reading import DAEMONS, running

ALONE = (sys.executable, "-I", "-S")
"""Python without installed packages and without the folder that it runs in."""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    assert plugin.main([str(tmp_path / "kubectl-slurm")]) == 0
    return tmp_path / "kubectl-slurm"


def test_the_file_explains_a_job_without_any_package(program: Path, tmp_path: Path) -> None:
    fake = FakeKubectl(tmp_path / "fake")
    fake.lists(DAEMONS, "Pod", running("slurmctld", "slurm-controller-0", "slurmctld"))
    fake.executed["slurm-controller-0"] = (0, output(), "")
    fake.write()
    command = [*ALONE, str(program), "explain", "job", "1", "-n", "slurm"]
    done = subprocess.run(
        command, env={"PATH": str(fake.folder)}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert "JobHeldUser" in done.stdout


def test_the_file_is_executable_and_starts_with_python(program: Path) -> None:
    assert program.stat().st_mode & 0o111
    assert program.read_bytes().startswith(b"#!/usr/bin/env python3\n")


def test_the_same_sources_give_the_same_file() -> None:
    assert plugin.build() == plugin.build()


def test_the_file_has_no_module_with_a_dependency() -> None:
    assert (
        not {
            "sidecars.kube",
            "sidecars.operator",
            "sidecars.slurm.client",
            "sidecars.explain.plugin",
        }
        & plugin.modules()
    )
    assert "sidecars.explain.core.job" in plugin.modules()


def test_the_file_starts_in_half_a_second_of_cpu(program: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*ALONE, str(program), "--help"], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used < 2.0, "half a second, and time for a busy host"


def test_standard_output_gets_the_file_unless_it_is_a_terminal(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    assert plugin.main([]) == 0
    assert capfdbinary.readouterr().out == plugin.build()
