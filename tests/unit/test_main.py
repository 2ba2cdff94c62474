"""The entry point: which role runs, and what a role in a worker pod may load."""

import subprocess
import sys
from pathlib import Path

import pytest

from sidecars.__main__ import main

ROOT = Path(__file__).parents[2]
HEAVY = {"aiohttp", "asyncio", "msgspec", "yaml", "argparse", "logging", "pynvml"}
MODULES = 190
MEMORY_KIB = 40 * 1024
CPU_SECONDS = 0.5

PROBE = """
import sys, time
import {module}
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(*sorted(name for name in sys.modules))
print(peak, time.process_time())
"""


@pytest.mark.parametrize(
    "module", ["sidecars.register.main", "sidecars.register.nvidia", "sidecars.node.main", "sidecars.logs.main"]
)
def test_a_role_in_a_worker_pod_loads_little(module: str) -> None:
    command = [sys.executable, "-c", PROBE.format(module=module)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)})
    names, figures = done.stdout.splitlines()
    loaded = set(names.split())
    memory, seconds = figures.split()
    assert not HEAVY & loaded
    assert not {
        name for name in loaded if name.startswith(("sidecars.kube", "sidecars.operator", "sidecars.workloads"))
    }
    assert len(loaded) < MODULES
    assert int(memory) < MEMORY_KIB
    assert float(seconds) < CPU_SECONDS


def test_an_unknown_role_is_refused_with_the_roles_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["regster"]) == 2
    error = capsys.readouterr().err
    assert "'regster'" in error
    assert "operator, register, node, reconfigure, release, simulate" in error


def test_no_role_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "no role given" in capsys.readouterr().err


def test_help_names_the_roles(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert (
        "{operator,register,node,reconfigure,release,simulate,doctor,exporter,plugin,secrets,backup,bridge,webhook,logs,"
        "checks,ldap}" in capsys.readouterr().out
    )


def test_the_rest_of_the_arguments_goes_to_the_role(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["register", "--fast"]) == 2
    assert "'--fast'" in capsys.readouterr().err
