"""Commands in a shell that stays."""

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.real.shells import Done, GoneError, Shells


@pytest.fixture
def shells() -> Iterator[Shells]:
    found = Shells(["sh"], dict(os.environ))
    yield found
    found.close()


def test_a_command_answers_with_its_status_its_output_and_its_errors(shells: Shells) -> None:
    assert shells.run(["sh", "-c", "printf 'a\nb'; printf c >&2; exit 3"], 20) == Done(3, "a\nb", "c")
    assert shells.run(["printf", "%s", "$HOME 'x' \"y\" ;"], 20) == Done(0, "$HOME 'x' \"y\" ;", "")
    assert shells.run(["cat"], 20) == Done(0, "", "")
    assert shells.run(["/no/such/program"], 20).status == 127


def test_commands_one_after_the_other_share_a_shell_and_those_at_the_same_time_do_not(
    shells: Shells, tmp_path: Path
) -> None:
    parent = ["sh", "-c", "echo $PPID"]
    first = shells.run(parent, 20)
    assert shells.run(parent, 20) == first
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with ThreadPoolExecutor(2) as threads:
        reader = threads.submit(shells.run, ["cat", str(fifo)], 20)
        writer = threads.submit(shells.run, ["sh", "-c", 'echo line > "$0"', str(fifo)], 20)
        assert (reader.result(), writer.result()) == (Done(0, "line\n", ""), Done(0, "", ""))


def test_large_output_is_whole(shells: Shells) -> None:
    done = shells.run(["sh", "-c", "seq 200000; seq 200000 >&2"], 60)
    expected = "".join(f"{number}\n" for number in range(1, 200001))
    assert (done.output, done.errors) == (expected, expected)


def test_a_command_that_hangs_is_given_up_and_the_next_one_has_a_new_shell(shells: Shells) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        shells.run(["sh", "-c", "echo half; exec sleep 1"], 0.2)
    assert shells.run(["echo", "well"], 20) == Done(0, "well\n", "")


def test_a_shell_that_ends_under_a_command_is_named_and_the_next_command_has_a_new_one(shells: Shells) -> None:
    with pytest.raises(GoneError):
        shells.run(["sh", "-c", "kill -9 $PPID"], 20)
    assert shells.run(["echo", "well"], 20) == Done(0, "well\n", "")


def test_a_shell_that_does_not_start_reports_the_reason() -> None:
    shells = Shells(["sh", "-c", "echo found no container >&2; exit 1"], dict(os.environ))
    with pytest.raises(GoneError, match="no container"):
        shells.run(["true"], 20)
