"""The entry point: which role runs, and what a role in a worker pod may load."""

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from sidecars.__main__ import ROLES, main
from sidecars.contract import environment
from sidecars.contract.project import VERSION

ROOT = Path(__file__).parents[2]
HEAVY = {"aiohttp", "asyncio", "msgspec", "yaml", "argparse", "logging", "pynvml"}
MODULES = 200
MEMORY_KIB = 40 * 1024
CPU_SECONDS = 0.5

PROBE = """
import sys, time
import {module}
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(*sorted(name for name in sys.modules))
print(peak, time.process_time())
"""


def probed(module: str) -> tuple[set[str], int, float]:
    """The modules that the import of one loads, its memory in KiB, and its CPU seconds."""
    command = [sys.executable, "-c", PROBE.format(module=module)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)}
    )
    names, figures = done.stdout.splitlines()
    memory, seconds = figures.split()
    return set(names.split()), int(memory), float(seconds)


@pytest.mark.parametrize(
    "module",
    [
        "sidecars.register.main",
        "sidecars.register.nvidia",
        "sidecars.node.main",
        "sidecars.logs.main",
    ],
)
def test_a_role_in_a_worker_pod_loads_little(module: str) -> None:
    loaded, memory, seconds = probed(module)
    assert not HEAVY & loaded
    assert not {
        name
        for name in loaded
        if name.startswith(("sidecars.kube", "sidecars.operator", "sidecars.workloads"))
    }
    assert len(loaded) < MODULES
    assert memory < MEMORY_KIB
    # The first start may compile the modules, and each takes more CPU while others use the caches.
    assert seconds < CPU_SECONDS or any(probed(module)[2] < CPU_SECONDS for _ in range(4))


@pytest.mark.parametrize("role", ROLES)
def test_each_role_has_a_module_whose_main_takes_its_arguments(role: str) -> None:
    run = import_module(ROLES[role].module).main
    inspect.signature(run).bind(["--some", "argument"])
    assert inspect.signature(run).return_annotation is int


def test_an_unknown_role_is_refused_with_the_nearest_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["regster"]) == 2
    error = capsys.readouterr().err
    assert "unknown role 'regster'. Did you mean 'register'?" in error
    assert "  operator " in error


def test_no_role_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "no role given" in capsys.readouterr().err


def test_help_has_a_line_for_each_role(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    found = capsys.readouterr().out
    for name, role in ROLES.items():
        assert f"  {name:<12} {role.about}\n" in found
    assert all(len(line) <= 80 for line in found.splitlines())


@pytest.mark.parametrize("role", ROLES)
def test_each_role_prints_its_help_and_ends_with_status_0(
    role: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main([role, "--help"])
    except SystemExit as ended:
        status = int(ended.code or 0)
    found = capsys.readouterr()
    assert (status, found.err) == (0, "")
    assert found.out.startswith(f"usage: slurm-sidecars {role}")
    assert len(found.out.splitlines()) > 2


@pytest.mark.parametrize("words", [["--version"], *([role, "--version"] for role in ROLES)])
def test_the_image_and_each_role_print_the_version(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out == f"slurm-sidecars {VERSION}\n"


@pytest.mark.parametrize(
    ("role", "variable", "meaning"),
    [
        ("register", "REGISTER_GPUS_EXPECTED", "How many GPUs the pod must have"),
        ("register", "REGISTER_SLURMD_LIMIT_MIB", "A limit that Kubernetes has given"),
        ("node", "SLURMRESTD_URL", "Where slurmrestd answers"),
        ("reconfigure", "CONFIG_UPDATE", "Reconfigure or Recreate"),
        ("exporter", "EXPORTER_PORT", "The TCP port of /metrics"),
        ("logs", "LOGS_FOLDERS", "Folders in which output files of jobs may lie"),
        ("ldap", "LDAP_TARGET", "NAMESPACE/NAME of the Secret"),
    ],
)
def test_the_help_of_a_role_that_its_environment_configures_lists_the_variables(
    role: str, variable: str, meaning: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([role, "-h"]) == 0
    found = capsys.readouterr().out
    assert f"  {variable}\n      {meaning}" in found


@pytest.mark.parametrize("role", sorted(environment.BY_ROLE))
def test_the_help_of_a_role_in_a_pod_describes_each_variable_that_its_template_sets(
    role: str,
) -> None:
    assert {name for name, meaning in environment.described(role) if meaning} == (
        environment.BY_ROLE[role]
    )


def test_the_rest_of_the_arguments_goes_to_the_role(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["register", "--fast"]) == 2
    assert "'--fast'" in capsys.readouterr().err
