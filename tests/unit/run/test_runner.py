"""How a run continues and ends: what it prints, what remains, and its exit code.

The runner waits for all children of its process, so it gets a process of its own here.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cluster.waiting import until
from tests.run.processes import with_environment
from tests.run.stages import ROOT

PROGRAM = """
import json, os, sys
from pathlib import Path
from tests.run import processes
from tests.run.runner import Runner
from tests.run.stages import Stage

folder = Path(sys.argv[1])
given = json.loads(sys.argv[2])
def stages(some):
    return [Stage(name, tuple(words), f"make {name}", **more) for name, words, more in some]

lanes, others = map(stages, given[:2])
options = {**given[2], "first": stages(given[2].get("first", []))}
processes.adopt_orphans()
runner = Runner(folder / "logs", os.environ, folder / "parts", folder / "times.json", **options)
sys.exit(runner.run(lanes, others))
"""
MARK = "SLURM_CHARTS_TEST"
Given = tuple[str, list[str], dict[str, object]]


def stage(name: str, source: str, **more: object) -> Given:
    """A stage that runs Python."""
    return name, [sys.executable, "-c", source], more


def started(
    folder: Path, lanes: list[Given], others: list[Given], **options: object
) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), MARK: str(folder)}
    words = [sys.executable, "-c", PROGRAM, str(folder), json.dumps([lanes, others, options])]
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


def run(
    folder: Path, lanes: list[Given], others: list[Given], **options: object
) -> tuple[int, list[str]]:
    """Exit code, and lines without the time at their start."""
    process = started(folder, lanes, others, **options)
    output, _ = process.communicate(timeout=100)
    return process.returncode, [
        line.partition("] ")[2] if line.startswith("[") else line for line in output.splitlines()
    ]


def left(folder: Path) -> Mapping[int, str]:
    return with_environment(f"{MARK}={folder}")


def pytest_stage(folder: Path, source: str, **more: object) -> Given:
    (folder / "conftest.py").write_text(
        "from tests.run import recorder\n\ndef pytest_configure(config):\n    "
        "recorder.register(config)\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(source)
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        str(folder / "pytest.ini"),
        "--rootdir",
        str(folder),
    ]
    return (
        "tests",
        [sys.executable, "-m", "pytest", *options, str(folder)],
        {"pytest": True, **more},
    )


def test_lanes_begin_at_once_and_the_others_run_one_after_the_other_beside_them(
    tmp_path: Path,
) -> None:
    # The first lane waits for the last of the others, and the second of these for the end of the
    # first.
    wait = "import time\nfrom pathlib import Path\nwhile not Path({!r}).exists(): time.sleep(0.05)"
    touch = "from pathlib import Path\nPath({!r}).touch()"
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    lanes = [stage("a", wait.format(second)), stage("b", wait.format(first))]
    others = [
        stage("c", touch.format(first)),
        stage(
            "d",
            f"from pathlib import Path\nassert Path({first!r}).exists()\nPath({second!r}).touch()",
        ),
    ]
    code, lines = run(tmp_path, lanes, others)
    assert code == 0
    assert lines[:3] == ["a begins", "b begins", "c begins"]
    ended = {line.partition(" ok")[0]: number for number, line in enumerate(lines) if " ok" in line}
    assert ended["c"] < lines.index("d begins") < ended["a"]
    assert lines[-1] == "4 passed, 0 failed"
    stages = json.loads((tmp_path / "times.json").read_text())["stages"]
    assert {each["stage"]: each["exit"] for each in stages} == {"a": 0, "b": 0, "c": 0, "d": 0}


def test_lanes_begin_when_what_they_need_is_built_and_the_others_meanwhile(
    tmp_path: Path,
) -> None:
    # The build waits for the stage beside it.
    beside = str(tmp_path / "beside")
    wait = f"import time\nfrom pathlib import Path\nwhile not Path({beside!r}).exists(): "
    first = [stage("build", f"{wait}time.sleep(0.05)")]
    others = [stage("check", f"from pathlib import Path\nPath({beside!r}).touch()")]
    code, lines = run(tmp_path, [stage("lane", "")], others, first=first)
    assert code == 0
    assert lines[:2] == ["build begins", "check begins"]
    built = next(number for number, line in enumerate(lines) if line.startswith("build ok"))
    assert built < lines.index("lane begins")
    assert lines[-1] == "3 passed, 0 failed"


def test_nothing_that_needs_it_begins_after_a_build_that_failed(tmp_path: Path) -> None:
    first = [stage("build", "raise SystemExit(1)")]
    code, lines = run(tmp_path, [stage("lane", "")], [], first=first)
    assert code == 1
    assert "lane begins" not in lines
    assert "not run: lane" in lines


def test_the_first_failure_is_shown_ends_the_rest_and_names_the_command_that_repeats_it(
    tmp_path: Path,
) -> None:
    begun, tidy = tmp_path / "begun", tmp_path / "tidied"
    lane = stage(
        "lane",
        "import time\nfrom pathlib import Path\n"
        f"try: Path({str(begun)!r}).touch(); time.sleep(1000)\n"
        f"except KeyboardInterrupt: Path({str(tidy)!r}).touch()",
    )
    # The failure comes when the lane can tidy up.
    wait = f"import time\nfrom pathlib import Path\nwhile not Path({str(begun)!r}).exists(): "
    others = [
        stage("good", "print('unseen')"),
        stage("bad", f"{wait}time.sleep(0.05)\nprint('seen')\nraise SystemExit(3)"),
        stage("never", ""),
    ]
    code, lines = run(tmp_path, [lane], others, first_failure_ends=True)
    assert code == 1
    assert "unseen" not in lines
    assert lines[lines.index("--- bad") + 1] == "seen"
    assert tidy.exists()
    assert lines[-6:] == [
        "failed:",
        "  bad: exit code 3",
        "    repeat: make bad",
        "ended before their end: lane",
        "not run: never",
        "1 passed, 1 failed",
    ]
    assert not left(tmp_path)


def test_without_that_wish_the_others_go_on(tmp_path: Path) -> None:
    code, lines = run(tmp_path, [], [stage("bad", "raise SystemExit(3)"), stage("good", "")])
    assert code == 1
    assert lines[-1] == "1 passed, 1 failed"


def test_failed_tests_are_named_each_with_the_command_that_repeats_it(tmp_path: Path) -> None:
    source = "def test_a(): assert not 1\ndef test_b(): assert not 1\ndef test_c(): pass\n"
    code, lines = run(tmp_path, [], [pytest_stage(tmp_path, source)])
    assert code == 1
    assert lines[-5:] == [
        "  test_it.py::test_a",
        "    repeat: make tests T=test_it.py::test_a",
        "  test_it.py::test_b",
        "    repeat: make tests T=test_it.py::test_b",
        "1 passed, 2 failed",
    ]


@pytest.mark.parametrize(
    "source", ["", "import pytest\n@pytest.mark.skip\ndef test_a(): pass"], ids=["none", "skipped"]
)
def test_a_stage_in_which_no_test_ran_has_failed(tmp_path: Path, source: str) -> None:
    code, lines = run(tmp_path, [], [pytest_stage(tmp_path, source)])
    assert code == 1
    assert lines[-1] == "0 passed, 1 failed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process_and_reports_what_it_has_done(
    tmp_path: Path, number: signal.Signals
) -> None:
    # Neither one in a session of its own nor one that ignores signals.
    ready = tmp_path / "ready"
    source = (
        "import signal, subprocess, sys, time\nfrom pathlib import Path\n"
        "subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "ignores = 'import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "time.sleep(1000)'\n"
        "subprocess.Popen([sys.executable, '-c', ignores])\n"
        f"Path({str(ready)!r}).touch()\ntime.sleep(1000)"
    )
    second = tmp_path / "second"
    endless = (
        f"import time\nfrom pathlib import Path\nPath({str(second)!r}).touch()\ntime.sleep(1000)"
    )
    others = [stage("done", ""), stage("endless", endless), stage("never", "")]
    process = started(tmp_path, [stage("lane", source)], others)
    try:
        until(lambda: ready.exists() and second.exists(), "the stages to run", 60)
        process.send_signal(number)
        output, _ = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert "ended a process that was left: sleep 1000" in output
    assert output.splitlines()[-4:] == [
        "ended before their end: lane, endless",
        "not run: never",
        f"ended by {number.name}",
        "1 passed, 0 failed",
    ]
    assert not left(tmp_path)


def test_stages_end_when_the_run_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    source = (
        f"import time\nfrom pathlib import Path\nPath({str(ready)!r}).touch()\ntime.sleep(1000)"
    )
    process = started(tmp_path, [stage("lane", source)], [])
    until(ready.exists, "the stage to run", 60)
    process.kill()
    process.communicate(timeout=100)
    until(lambda: not left(tmp_path), "the stage to end", 60)
