"""The shell scripts in the pods, run by this machine's own shell."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sidecars.workloads import loginset
from sidecars.workloads import nodeset as render
from sidecars.workloads.assembly import find
from tests.support import builders
from tests.support.builders import controller, nodeset, part

DEADLINE = 60.0


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
        ["sh", "-c", script],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
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
    (tmp_path / "hook").mkdir()
    return tmp_path


class Proc:
    """A folder instead of /proc."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.uptime(1000)

    def uptime(self, seconds: int) -> None:
        """The host has been up that long."""
        draft = self.folder / "draft"
        draft.write_text(f"{seconds}.25 17.00\n")
        draft.replace(self.folder / "uptime")

    def process(
        self,
        number: int,
        command: str = "slurmstepd: [1.0]",
        *,
        user: int = 0,
        state: str = "S",
        parent: int = 1,
    ) -> None:
        """A process that is called slurmstepd. `user` is its real user; its effective user is
        root.
        """
        process = self.folder / str(number)
        process.mkdir()
        (process / "comm").write_text("slurmstepd\n")
        (process / "cmdline").write_text(command.replace(" infinity", "\0infinity\0"))
        (process / "status").write_text(
            f"Name:\tslurmstepd\nState:\t{state} "
            f"(x)\nPid:\t{number}\nPPid:\t{parent}\nUid:\t{user}\t0\t0\t0\n"
        )

    def real(self, process: subprocess.Popen[str]) -> None:
        """This slurmstepd of the host, as the kernel shows it: without those of other tests."""
        files = Path(f"/proc/{process.pid}")
        until(lambda: (files / "comm").read_text() == "slurmstepd\n", "the process to begin")
        (self.folder / files.name).symlink_to(files)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """What /proc is to the script."""
    return Proc(tmp_path / "proc")


def pre_stop(folder: Path, grace: int, proc: Proc | None = None) -> str:
    """The preStop hook with its folder, and /proc if given, elsewhere."""
    of = nodeset(template={"spec": {"terminationGracePeriodSeconds": grace}})
    pod = render.pod(of, render.pod_template(of, controller(), builders.facts()), 0, "abc")
    script: str = part(pod, "slurmd")["lifecycle"]["preStop"]["exec"]["command"][2]
    assert "/run/slurm-node/hook" in script
    script = script.replace("/run/slurm-node", str(folder))
    return script.replace("/proc/", f"{proc.folder}/") if proc else script


def stop(folder: Path) -> tuple[str, int]:
    """What the hook wrote last: its name and the number of steps; -1 before it wrote."""
    try:
        name, steps = (folder / "hook" / "stop").read_text().split()
    except FileNotFoundError:
        return "", -1
    return name, int(steps)


def steps(folder: Path) -> int:
    """What the hook counted last; -1 before it did."""
    return stop(folder)[1]


def test_the_hook_waits_until_it_is_released(folder: Path) -> None:
    with shell(pre_stop(folder, 3600)) as hook:
        until(lambda: steps(folder) >= 0, "the hook to count steps")
        assert hook.poll() is None
        (folder / "released").write_text(f"{stop(folder)[0]}\n")
        until(lambda: hook.poll() is not None, "the released hook to end")
        assert hook.returncode == 0


@pytest.mark.parametrize("released", ["", "of an earlier stop\n"])
def test_the_hook_is_not_ended_by_the_release_of_another(
    folder: Path, proc: Proc, released: str
) -> None:
    (folder / "released").write_text(released)
    with shell(pre_stop(folder, 3600, proc)) as hook:
        until(lambda: steps(folder) == 0, "the hook to count steps")
        proc.process(7)
        until(lambda: steps(folder) == 1 or hook.poll() is not None, "the hook to count again")
        assert hook.poll() is None


def test_the_hook_protects_the_jobs_of_a_pod_without_its_folder(tmp_path: Path, proc: Proc) -> None:
    with shell(pre_stop(tmp_path / "missing", 100, proc)) as hook:
        with pytest.raises(subprocess.TimeoutExpired):
            hook.wait(1.5)
        proc.uptime(1080)
        until(lambda: hook.poll() is not None, "the hook to reach its bound")


def test_a_change_of_the_wall_clock_does_not_end_the_hook(
    folder: Path, proc: Proc, tmp_path: Path
) -> None:
    date = tmp_path / "date"
    date.write_text(
        f"#!/bin/sh\necho x >> {tmp_path}/dates\necho $(wc -l < {tmp_path}/dates)000000\n"
    )
    date.chmod(0o755)
    with shell(pre_stop(folder, 3600, proc), PATH=f"{tmp_path}:{os.environ['PATH']}") as hook:
        until(lambda: steps(folder) == 0 or hook.poll() is not None, "the hook to count steps")
        proc.process(7)
        until(lambda: steps(folder) == 1 or hook.poll() is not None, "the hook to count again")
        assert hook.poll() is None


def test_a_process_of_a_job_is_not_counted_as_a_step_whatever_its_name(
    folder: Path, proc: Proc
) -> None:
    proc.process(1)
    for number in (20, 21, 22):
        proc.process(number, user=65534)
    proc.process(3, "slurmstepd infinity")
    proc.process(4, "", state="Z")
    proc.process(5, "")
    with shell(pre_stop(folder, 3600, proc)):
        until(lambda: steps(folder) >= 0, "the hook to count steps")
        assert steps(folder) == 2, "the step, and the one whose command line could not be read"


def test_the_hook_counts_steps_and_not_the_keeper_of_their_scope(
    folder: Path, proc: Proc, tmp_path: Path
) -> None:
    program = shutil.copy("/bin/sleep", tmp_path / "slurmstepd")
    with shell(pre_stop(folder, 3600, proc)), shell(f"exec {program} infinity") as keeper:
        proc.real(keeper)
        with shell(f"exec {program} 60") as step:
            proc.real(step)
            until(lambda: steps(folder) == 1, "the hook to see the step")
        until(lambda: steps(folder) == 0, "the hook to see the keeper alone")


def test_the_hook_ends_by_itself_before_the_grace_period(folder: Path) -> None:
    with shell(pre_stop(folder, 21)) as hook:
        until(lambda: hook.poll() is not None, "the hook to reach its bound")
        assert hook.returncode == 0


def test_initconf_prepares_folders_that_users_of_a_login_node_can_not_write(tmp_path: Path) -> None:
    rendered = loginset.objects(builders.loginset(), controller(), builders.facts())
    script: str = part(find(rendered, "Deployment"), "initconf")["command"][2]
    for name in ("mnt/etc/slurm", "mnt/run/slurm", "mnt/slurm", "bin"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name).chmod(0o1777)
    (tmp_path / "mnt/slurm/slurm.key").write_text("key")
    # The test's user can't change owners.
    chown = tmp_path / "bin/chown"
    chown.write_text(f'#!/bin/sh\necho "$1 $2 $(stat -c %a $2)" >>{tmp_path}/owners\n')
    chown.chmod(0o755)
    with shell(
        script.replace("/mnt/", f"{tmp_path}/mnt/"), PATH=f"{chown.parent}:{os.environ['PATH']}"
    ) as process:
        assert process.wait(DEADLINE) == 0
    etc, run = tmp_path / "mnt/etc/slurm", tmp_path / "mnt/run/slurm"
    assert [stat.S_IMODE(it.stat().st_mode) for it in (etc, run, etc / "slurm.key")] == [
        0o755,
        0o755,
        0o600,
    ]
    # root without CAP_FOWNER changes the mode of what it owns.
    owners = (tmp_path / "owners").read_text().splitlines()
    assert [it for it in owners if "/run/" in it] == [f"0:0 {run} 1777", f"401:401 {run} 755"]
    assert f"401:401 {etc}/slurm.key 600" in owners
    assert not [it for it in owners if it.split()[1] == str(etc)], "root owns it"


@pytest.mark.parametrize("present", [False, True])
def test_the_log_sidecar_copies_what_is_written_to_the_fifo_and_ends_at_term(
    tmp_path: Path, present: bool
) -> None:
    of = nodeset()
    pod = render.pod(of, render.pod_template(of, controller(), builders.facts()), 0, "abc")
    script: str = part(pod, "logfile")["command"][2]
    log = tmp_path / "slurmd" / "slurmd.log"
    if present:
        log.parent.mkdir(0o700)
        log.write_text("not a fifo yet")
    with shell(script, SOCKET=str(log)) as sidecar:
        until(log.is_fifo, "the FIFO")
        assert [stat.S_IMODE(it.stat().st_mode) for it in (log.parent, log)] == [0o700, 0o600]
        for line in ("one", "two"):
            with log.open("w") as writer:
                writer.write(f"{line}\n")
            assert sidecar.stdout is not None
            assert sidecar.stdout.readline() == f"{line}\n"
        sidecar.send_signal(signal.SIGTERM)
        until(lambda: sidecar.poll() is not None, "the sidecar to end")
        assert sidecar.returncode == 0


def staying() -> dict[str, dict[str, Any]]:
    """The containers of a worker pod that run until it ends, by their names."""
    of = nodeset(jobLogs={"enabled": True})
    pod = render.pod(of, render.pod_template(of, controller(), builders.facts()), 0, "abc")
    spec = builders.pod_spec(pod)
    sidecars = [it for it in spec["initContainers"] if it.get("restartPolicy") == "Always"]
    return {it["name"]: it for it in [*sidecars, *spec["containers"]]}


def first_runs(proc: Proc, sidecar: str = "node") -> str:
    """The preStop hook of a sidecar, with /proc elsewhere."""
    script: str = staying()[sidecar]["lifecycle"]["preStop"]["exec"]["command"][2]
    assert "in /proc/[0-9]*" in script
    return script.replace("/proc/", f"{proc.folder}/")


def test_no_container_of_a_worker_pod_gets_term_without_a_hook_before_it() -> None:
    hooks = {
        name: container["lifecycle"]["preStop"]["exec"]["command"]
        for name, container in staying().items()
    }
    assert hooks.keys() == {"logs", "logfile", "node", "slurmd"}
    assert hooks["logs"] == hooks["logfile"] == hooks["node"] != hooks["slurmd"]


def test_the_hook_of_a_sidecar_ends_when_its_first_process_has_started_another(proc: Proc) -> None:
    proc.process(1, parent=0)
    proc.process(30, parent=0)
    with shell(first_runs(proc)) as hook:
        with pytest.raises(subprocess.TimeoutExpired):
            hook.wait(0.5)
        proc.process(12, parent=11)
        with pytest.raises(subprocess.TimeoutExpired):
            hook.wait(0.5)
        proc.process(7, parent=1)
        until(lambda: hook.poll() is not None, "the hook to end")
        assert hook.returncode == 0


AS_TINI = """import signal, subprocess
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
child = subprocess.Popen(["sleep", "60"])
print(flush=True)
signal.sigtimedwait({signal.SIGTERM, signal.SIGCHLD}, 60)
child.kill()
child.wait()
"""


def test_the_hook_of_a_sidecar_ends_while_its_first_process_waits_for_signals() -> None:
    script: str = staying()["node"]["lifecycle"]["preStop"]["exec"]["command"][2]
    with subprocess.Popen([sys.executable, "-c", AS_TINI], stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        first.stdout.readline()
        script = script.replace("/proc/1/", f"/proc/{first.pid}/").replace(
            "PPid: 1'", f"PPid: {first.pid}'"
        )
        with shell(script.replace("sleep 0.1", "echo look")) as hook:
            assert hook.communicate(timeout=DEADLINE)[0] == ""
            assert hook.returncode == 0
        first.terminate()
        assert first.wait(DEADLINE) == 0


def test_the_hook_of_a_sidecar_ends_where_the_first_process_starts_no_other(proc: Proc) -> None:
    proc.process(1, parent=0)
    script = first_runs(proc).replace("sleep 0.1", "echo look")
    with shell(script) as hook:
        assert hook.communicate(timeout=DEADLINE)[0].count("look") == 100
        assert hook.returncode == 0
