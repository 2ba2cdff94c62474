"""Daemons are known by more than a pid."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.processes import Daemon, start_time
from tests.cluster.waiting import until


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(
        "sleeper",
        ["sleep", "1000"],
        tmp_path / "run",
        tmp_path / "logs",
        {"PATH": os.environ["PATH"]},
    )
    yield made
    made.kill()


def test_a_started_daemon_runs_in_a_session_of_its_own(daemon: Daemon) -> None:
    assert daemon.start()
    pid = daemon.pid()
    assert pid is not None
    assert os.getsid(pid) == pid


def test_starting_what_runs_does_nothing(daemon: Daemon) -> None:
    daemon.start()
    pid = daemon.pid()
    assert not daemon.start()
    assert daemon.pid() == pid


def test_other_words_make_it_another_daemon(daemon: Daemon) -> None:
    daemon.start()
    old = daemon.pid()
    changed = replace(daemon, argv=["sleep", "2000"])
    assert changed.pid() is None
    assert changed.start()
    assert old is not None
    assert start_time(old) is None
    assert changed.pid() not in {None, old}


def test_a_stopped_daemon_is_gone_with_its_record(daemon: Daemon) -> None:
    daemon.start()
    daemon.stop()
    assert daemon.pid() is None
    assert list(daemon.folder.iterdir()) == []


def test_a_process_that_took_over_the_pid_is_never_touched(daemon: Daemon) -> None:
    daemon.folder.mkdir()
    mine = {"pid": os.getpid(), "started": "another boot/17", "argv": ["sleep", "1000"]}
    (daemon.folder / "sleeper.json").write_text(json.dumps(mine))
    assert daemon.pid() is None
    daemon.stop()
    assert start_time(os.getpid()) is not None


def test_the_last_words_are_the_end_of_the_log(daemon: Daemon) -> None:
    talker = replace(daemon, argv=["sh", "-c", "echo can not; exit 3"])
    talker.start()
    until(lambda: talker.pid() is None, "it to end", 5)
    assert "can not" in talker.last_words()


def test_a_daemon_that_never_ran_has_no_last_words(daemon: Daemon) -> None:
    assert daemon.last_words() == "sleeper wrote nothing"
