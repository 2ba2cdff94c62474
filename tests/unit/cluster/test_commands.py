"""The environment of programs and daemons."""

import pytest

from tests.cluster.commands import GO, run
from tests.cluster.control_plane import daemon_environment

PRINT = ("sh", "-c", 'printf %s "$GOGC"')


def test_programs_and_daemons_collect_garbage_as_chosen_in_one_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GOGC", raising=False)
    assert (
        run(PRINT)
        == run(PRINT, env={"PATH": "/usr/bin:/bin"})
        == daemon_environment()["GOGC"]
        == GO["GOGC"]
    )


def test_a_caller_may_choose_otherwise() -> None:
    assert run(PRINT, env={"PATH": "/usr/bin:/bin", "GOGC": "50"}) == "50"
