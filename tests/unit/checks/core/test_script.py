"""The batch script of a job, run by a shell, with a `scontrol` that records the job's comment."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from sidecars.checks.core.script import batch_script
from sidecars.policy.checks.declared import Check


class Ran:
    """A run of the script."""

    def __init__(self, folder: Path, script: str, timeout: int = 30) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        recorder = folder / "scontrol"
        recorder.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"{folder}/comment"\n')
        recorder.chmod(0o755)
        batch = folder / "batch"
        batch.write_text(batch_script(Check("own", script, timeout=timeout)))
        environment = {
            **os.environ,
            "PATH": f"{folder}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "7",
            "TMPDIR": str(folder),
        }
        self.process = subprocess.Popen(["/bin/sh", batch], env=environment)

    def status(self) -> int:
        return self.process.wait(60)

    @property
    def comment(self) -> str:
        words = (self._folder / "comment").read_text().split("\n")
        assert words[:2] == ["update", "jobid=7"]
        return words[2].removeprefix("comment=")


def test_exit_status_measured_values_and_first_line_are_reported(tmp_path: Path) -> None:
    script = (
        '#!/bin/sh\necho measure rate 5.5 MB/s\necho "it\'s \\"here\\" | now"\necho more\nexit 3\n'
    )
    ran = Ran(tmp_path, script)
    assert ran.status() == 3
    assert ran.comment == "check 0 rate=5.5MB/s | it's here  now"
    assert not list(tmp_path.glob("check.*"))


def test_a_script_that_ignores_signals_is_ended_in_time(tmp_path: Path) -> None:
    # Its time begins when it has begun.
    sleep = tmp_path / "sleep"
    sleep.write_text(
        '#!/bin/sh\nuntil [ -e "$TMPDIR/began" ]; do /bin/sleep 0.01; done\nexec /bin/sleep "$1"\n'
    )
    sleep.chmod(0o755)
    script = "#!/bin/sh\ntrap '' TERM INT HUP\necho began\n: >\"$TMPDIR/began\"\n"
    ran = Ran(tmp_path, f"{script}sleep 300\nsleep 300\n", timeout=3)
    assert ran.status() == 124
    assert ran.comment == "check 0  | began"


def test_output_without_end_is_cut_off(tmp_path: Path) -> None:
    ran = Ran(tmp_path, "#!/bin/sh\nhead -c 50000000 /dev/zero | tr '\\0' x\n")
    assert ran.status() == 0
    assert ran.comment == f"check 0  | {'x' * 120}"


def test_binary_output_is_no_part_of_the_comment(tmp_path: Path) -> None:
    ran = Ran(tmp_path, "#!/bin/sh\nprintf '\\001\\377\\033[31mred\\n'\n")
    assert ran.status() == 0
    assert ran.comment == "check 0  | [31mred"


def test_a_cancelled_job_ends_at_once_with_all_its_processes(tmp_path: Path) -> None:
    ran = Ran(tmp_path, f"#!/bin/sh\ntrap '' TERM\necho $$ >{tmp_path}/pid\nsleep 300\n")
    end = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        assert time.monotonic() < end, "the script did not begin"
    pid = int((tmp_path / "pid").read_text())
    ran.process.terminate()
    assert ran.status() == 143
    while Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < end, "the script's process outlived the job"
    assert not list(tmp_path.glob("check.*"))


def test_a_script_with_any_content_is_run_as_it_is(tmp_path: Path) -> None:
    ran = Ran(tmp_path, "#!/bin/sh\ncat <<'END'\n$HOME `x` \\\\ 'NAME' CONTENT TIMEOUT\nEND\n")
    assert ran.status() == 0
    assert ran.comment == "check 0  | $HOME `x`  'NAME' CONTENT TIMEOUT"


@pytest.mark.parametrize("interpreter", ["/no/such/shell"])
def test_a_missing_interpreter_is_a_failure(tmp_path: Path, interpreter: str) -> None:
    ran = Ran(tmp_path, f"#!{interpreter}\n")
    assert ran.status() in (126, 127)
    assert "setsid" in ran.comment
