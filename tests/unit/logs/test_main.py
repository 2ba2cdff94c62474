"""The role `logs` as a whole: its loop over real files, its configuration, and the process under
SIGTERM.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sidecars.logs import edge, main
from sidecars.logs.records import Settings
from sidecars.logs.shipper import LEAVE_SECONDS, Shipper
from tests.unit.logs.test_edge import ME, record

ROOT = Path(__file__).parents[3]
DEADLINE = 60.0


class VirtualSystem:
    """Virtual time; `at` has what happens when. A reader may stop taking what is printed."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.at: dict[float, Callable[[], None]] = {}
        self.terminated = False
        self.printed = b""
        self.is_read = True

    def now(self) -> float:
        return self.seconds

    def time(self) -> str:
        return "T"

    def wait(self, seconds: float) -> bool:
        assert self.seconds < 1000, "the loop doesn't end"
        self.seconds += max(seconds, 0.001)
        for moment in [moment for moment in self.at if moment <= self.seconds]:
            self.at.pop(moment)()
        terminated, self.terminated = self.terminated, False
        return terminated

    def write(self, data: bytes, until: Callable[[], bool]) -> bool:
        while not self.is_read:
            if until():
                return False
            self.seconds += 0.2
        self.printed += data
        return True

    def sigterm(self) -> None:
        self.terminated = True

    @property
    def messages(self) -> list[str]:
        return [json.loads(line)["message"] for line in self.printed.splitlines()]


def folders(root: Path) -> tuple[Path, Path]:
    inbox, home = root / "inbox", root / "home"
    inbox.mkdir(mode=0o700)
    home.mkdir()
    return inbox, home


def announce(inbox: Path, path: Path, number: int = 7) -> None:
    (inbox / "new").write_bytes(
        record(job=str(number), uid=str(ME), gid=str(os.getgid()), stdout=str(path))
    )
    (inbox / "new").rename(inbox / f"{number}-0.job")


def run(inbox: Path, home: Path, system: VirtualSystem) -> None:
    settings = Settings("w-0", bytes_per_second=1 << 30, backlog_bytes=1 << 30)
    files = edge.RealFiles(inbox, [str(home)], writer=ME)
    main.run(settings, edge.Shelf(files, "w-0"), Shipper(settings, files), system)


def test_the_loop_prints_a_job_from_its_start_to_the_pods_end(tmp_path: Path) -> None:
    inbox, home = folders(tmp_path)
    system, out = VirtualSystem(), home / "out"

    def started() -> None:
        announce(inbox, out)
        out.write_bytes(b"one\n")

    def ended() -> None:
        with out.open("ab") as file:
            file.write(b"two\n")
        (inbox / "7-0.end").touch()

    system.at = {3.0: started, 5.0: ended, 40.0: system.sigterm}
    run(inbox, home, system)
    assert system.messages[:2] == ["one", "two"]
    assert list(inbox.iterdir()) == []
    assert system.seconds < 42


def test_at_sigterm_what_files_still_contain_is_printed_first(tmp_path: Path) -> None:
    inbox, home = folders(tmp_path)
    system, out = VirtualSystem(), home / "out"

    def last() -> None:
        announce(inbox, out)
        out.write_bytes(b"last words\n" * 100_000)
        system.sigterm()

    system.at = {3.0: last}
    run(inbox, home, system)
    assert system.messages.count("last words") == 100_000
    assert system.seconds < 3 + LEAVE_SECONDS


def test_while_nobody_reads_the_output_the_pod_ends_in_time(tmp_path: Path) -> None:
    inbox, home = folders(tmp_path)
    system, out = VirtualSystem(), home / "out"
    out.write_bytes(b"line\n" * 10)
    announce(inbox, out)
    system.is_read = False
    system.at = {0.0: system.sigterm}
    run(inbox, home, system)
    assert system.printed == b""
    assert system.seconds <= LEAVE_SECONDS + 1


def test_a_bad_record_and_an_unknown_name_are_reported(tmp_path: Path) -> None:
    inbox, home = folders(tmp_path)
    (inbox / "8-0.job").write_bytes(b"junk")
    (inbox / "7-0.job").write_bytes(record(stdout="%x"))
    system = VirtualSystem()
    system.at = {1.0: system.sigterm}
    run(inbox, home, system)
    assert any(message.startswith("job 7-0: the name of the file") for message in system.messages)
    assert system.messages[-1] == "summary since the start of this container"
    assert any(
        message.startswith("the record of job 8-0 can't be read: ") for message in system.messages
    )


def environment(inbox: Path, home: Path, **more: str) -> dict[str, str]:
    return {
        "SLURM_NODE_NAME": "w-0",
        "SLURM_LOGS_DIR": str(inbox),
        "LOGS_FOLDERS": str(home),
    } | more


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"SLURM_NODE_NAME": ""}, "SLURM_NODE_NAME isn't set"),
        ({"LOGS_FOLDERS": "/home\nhome"}, "'home', which isn't an absolute path"),
        ({"LOGS_BYTES_PER_SECOND": "fast"}, "LOGS_BYTES_PER_SECOND is 'fast'"),
        ({"LOGS_BYTES_PER_SECOND": "0"}, "must be at least 1"),
    ],
)
def test_an_environment_that_cannot_be_used_is_named(
    tmp_path: Path, change: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(environment=environment(tmp_path, tmp_path) | change) == 2
    assert message in capsys.readouterr().err


def test_without_the_rights_for_private_files_it_ends_and_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_groups: list[int]) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setgroups", refuse)
    assert main.main(environment=environment(tmp_path, tmp_path, LOGS_PRIVATE_FILES="true")) == 2
    assert "needs root with the capabilities SETUID and SETGID" in capsys.readouterr().err


def test_a_folder_that_jobs_could_enter_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inbox, home = folders(tmp_path)
    inbox.chmod(0o777)
    assert main.main(environment=environment(inbox, home)) == 2
    assert "users other than its owner can enter it" in capsys.readouterr().err


def test_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--fast"], environment={}) == 2
    assert "'--fast'" in capsys.readouterr().err


def test_folders_are_those_that_the_links_of_the_image_lead_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    _, files = main.configure(environment(tmp_path, tmp_path / "link"))
    assert files.folders == [str(tmp_path / "real")]


def test_the_process_prints_json_lines_and_ends_at_sigterm(tmp_path: Path) -> None:
    inbox, home = folders(tmp_path)
    inbox.rmdir()
    command = [sys.executable, "-m", "sidecars", "logs"]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(inbox, home) | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        first: dict[str, Any] = json.loads(process.stdout.readline())
        assert first["stream"] == "logs"
        assert str(home) in first["message"]
        assert inbox.stat().st_mode & 0o777 == 0o700
        process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + DEADLINE
        process.wait(timeout=deadline - time.monotonic())
        assert process.returncode == 0
