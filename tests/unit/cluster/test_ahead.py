"""That the command of `make test` runs beside the build of what it needs."""

import contextlib
import signal
import sys
from collections.abc import Iterator

import pytest

from tests.cluster import ahead, debian
from tests.cluster.errors import ClusterError


def test_the_commands_exit_code_is_returned_and_the_build_ends_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    @contextlib.contextmanager
    def beside(module: str) -> Iterator[None]:
        seen.append(f"{module} begins")
        yield
        seen.append("ends")

    monkeypatch.setattr(ahead, "beside", beside)
    monkeypatch.setattr(signal, "signal", lambda *_: seen.append("interrupts are left to the command"))
    assert ahead.main([sys.executable, "-c", "raise SystemExit(3)"]) == 3
    assert seen == ["tests.cluster.ahead begins", "interrupts are left to the command", "ends"]


def test_what_cannot_be_built_is_left_out_and_the_rest_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def tool(name: str) -> None:
        if name == "helm":
            raise ClusterError("no Go")
        built.append(name)

    def images(*_: object) -> None:
        built.append("images")

    monkeypatch.setattr(ahead, "tool", tool)
    monkeypatch.setattr(ahead, "build_images", images)
    monkeypatch.setattr(ahead, "pause_archive", lambda: built.append("pause"))
    monkeypatch.setattr(ahead, "kernel", lambda: built.append("kernel"))
    monkeypatch.setattr(debian, "unpacked", lambda: built.append("packages"))
    ahead.build()
    assert built == [*ahead.PROGRAMS[1:], "packages", "pause", "images", "kernel"]
