"""Commands in a shell that stays."""

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.waiting import until
from tests.support.real.shells import Done, GoneError, NotStartedError, Shells


@pytest.fixture
def shells() -> Iterator[Shells]:
    found = Shells(["sh"], dict(os.environ))
    yield found
    found.close()


def test_a_command_answers_with_its_status_its_output_and_its_errors(shells: Shells) -> None:
    assert shells.run(["sh", "-c", "printf 'a\nb'; printf c >&2; exit 3"], 60) == Done(
        3, "a\nb", "c"
    )
    assert shells.run(["printf", "%s", "$HOME 'x' \"y\" ;"], 60) == Done(0, "$HOME 'x' \"y\" ;", "")
    assert shells.run(["cat"], 60) == Done(0, "", "")
    assert shells.run(["/no/such/program"], 60).status == 127


@pytest.mark.parametrize("text", ["one line", "'$HOME'\n\\n%s\n", "\n", "x" * 300_000])
def test_a_command_reads_its_input_to_the_end(shells: Shells, text: str) -> None:
    assert shells.run(["cat"], 60, text) == Done(0, text, "")
    assert shells.run(["true"], 60, text) == Done(0, "", "")
    assert shells.run(["sh", "-c", "read -r line; exit 4"], 60, text).status == 4


def test_commands_one_after_the_other_share_a_shell_and_those_at_the_same_time_do_not(
    shells: Shells, tmp_path: Path
) -> None:
    parent = ["sh", "-c", "echo $PPID"]
    first = shells.run(parent, 60)
    assert shells.run(parent, 60) == first
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with ThreadPoolExecutor(2) as threads:
        reader = threads.submit(shells.run, ["cat", str(fifo)], 60)
        writer = threads.submit(shells.run, ["sh", "-c", 'echo line > "$0"', str(fifo)], 60)
        assert (reader.result(), writer.result()) == (Done(0, "line\n", ""), Done(0, "", ""))


def test_shells_are_gone_when_none_runs_that_has_run(shells: Shells) -> None:
    assert not shells.gone, "another thread is about to start the first one"
    shells.run(["true"], 60)
    assert not shells.gone
    shells.close()
    assert shells.gone


def test_large_output_is_whole(shells: Shells) -> None:
    done = shells.run(["sh", "-c", "seq 200000; seq 200000 >&2"], 60)
    expected = "".join(f"{number}\n" for number in range(1, 200001))
    assert (done.output, done.errors) == (expected, expected)


def test_a_command_that_hangs_is_given_up_and_the_next_one_has_a_new_shell(
    shells: Shells, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with fifo.open("r+b", buffering=0):
        with pytest.raises(subprocess.TimeoutExpired):
            shells.run(["sh", "-c", 'echo half; exec cat "$0"', str(fifo)], 0.2)
        assert shells.run(["echo", "well"], 60) == Done(0, "well\n", "")
        # The command ends with this block, also if it has not begun yet.
        fifo.unlink()


def test_a_command_whose_shell_ends_under_it_is_not_repeated_and_the_next_one_has_a_new_shell(
    shells: Shells, tmp_path: Path
) -> None:
    with pytest.raises(GoneError):
        shells.run(["sh", "-c", 'echo once >> "$0"; kill -9 $PPID', str(tmp_path / "runs")], 60)
    assert (tmp_path / "runs").read_text() == "once\n"
    assert shells.run(["echo", "well"], 60) == Done(0, "well\n", "")


def test_a_command_runs_once_although_the_shell_that_was_kept_has_ended(
    shells: Shells, tmp_path: Path
) -> None:
    pid = int(shells.run(["sh", "-c", "echo $PPID"], 60).output)
    assert not shells.gone
    os.kill(pid, signal.SIGKILL)
    until(lambda: shells.gone, "the end to be noticed", 60)
    shells.run(["sh", "-c", 'echo once >> "$0"', str(tmp_path / "runs")], 60)
    assert (tmp_path / "runs").read_text() == "once\n"


def test_what_a_command_leaves_running_prints_into_no_other_commands_output(
    shells: Shells, tmp_path: Path
) -> None:
    released, printed = tmp_path / "released", tmp_path / "printed"
    late = 'until [ -e "$0" ]; do sleep 0.05; done; echo late; touch "$1"'
    shells.run(["sh", "-c", f"({late}) &", str(released), str(printed)], 60)
    released.touch()
    until(printed.exists, "the late line to be printed", 60)
    assert shells.run(["echo", "well"], 60) == Done(0, "well\n", "")


def test_a_shell_that_does_not_start_reports_the_reason() -> None:
    shells = Shells(["sh", "-c", "echo found no container >&2; exit 1"], dict(os.environ))
    with pytest.raises(NotStartedError, match="no container"):
        shells.run(["true"], 60)
