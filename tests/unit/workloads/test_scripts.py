"""The shell scripts in the pods, run by this machine's own shell."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sidecars.workloads import nodeset as render
from tests.support import builders
from tests.support.builders import controller, nodeset, part

DEADLINE = 8.0


def until(condition: Callable[[], bool], what: str) -> None:
    """Poll a condition; fails with what was waited for."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"waited {DEADLINE:g} s for {what}"
        time.sleep(0.02)


@contextmanager
def shell(script: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The script in a process group of its own, which ends with the test."""
    process = subprocess.Popen(
        ["sh", "-c", script], env=os.environ | environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What /run/slurm-node is to the script."""
    return tmp_path


def pre_stop(folder: Path, grace: int) -> str:
    """The preStop hook with its folder elsewhere."""
    of = nodeset(template={"spec": {"terminationGracePeriodSeconds": grace}})
    pod = render.pod(of, render.pod_template(of, controller(), builders.facts()), 0, "abc")
    script: str = part(pod, "slurmd")["lifecycle"]["preStop"]["exec"]["command"][2]
    assert "cd /run/slurm-node" in script
    return script.replace("/run/slurm-node", str(folder))


def steps(folder: Path) -> int:
    """What the hook counted last; -1 before it did."""
    try:
        return int((folder / "stop").read_text())
    except FileNotFoundError:
        return -1


def test_the_hook_waits_until_it_is_released(folder: Path) -> None:
    (folder / "released").write_text("of a former stop")
    with shell(pre_stop(folder, 3600)) as hook:
        until(lambda: steps(folder) >= 0, "the hook to count steps")
        assert hook.poll() is None
        (folder / "released").touch()
        until(lambda: hook.poll() is not None, "the released hook to end")
        assert hook.returncode == 0


def test_the_hook_counts_steps_and_not_the_keeper_of_their_scope(folder: Path, tmp_path: Path) -> None:
    program = shutil.copy("/bin/sleep", tmp_path / "slurmstepd")
    with shell(pre_stop(folder, 3600)):
        until(lambda: steps(folder) >= 0, "the hook to count steps")
        before = steps(folder)
        keeper = shell(f"exec {program} infinity")
        with keeper, shell(f"exec {program} 60"):
            until(lambda: steps(folder) == before + 1, "the hook to see one more step")
        until(lambda: steps(folder) == before, "the hook to see the step gone")


def test_the_hook_ends_by_itself_before_the_grace_period(folder: Path) -> None:
    with shell(pre_stop(folder, 21)) as hook:
        until(lambda: hook.poll() is not None, "the hook to reach its bound")
        assert hook.returncode == 0


def test_the_log_sidecar_copies_what_is_written_to_the_fifo_and_ends_at_term(tmp_path: Path) -> None:
    of = nodeset()
    pod = render.pod(of, render.pod_template(of, controller(), builders.facts()), 0, "abc")
    script: str = part(pod, "logfile")["command"][2]
    log = tmp_path / "slurmd.log"
    log.write_text("not a fifo yet")
    with shell(script, SOCKET=str(log)) as sidecar:
        until(log.is_fifo, "the FIFO")
        for line in ("one", "two"):
            with log.open("w") as writer:
                writer.write(f"{line}\n")
            assert sidecar.stdout is not None
            assert sidecar.stdout.readline() == f"{line}\n"
        sidecar.send_signal(signal.SIGTERM)
        until(lambda: sidecar.poll() is not None, "the sidecar to end")
        assert sidecar.returncode == 0
