"""That what `make test` needs is built ahead, in an order that delays no local cluster."""

import pytest

from tests.cluster import ahead, debian
from tests.cluster.errors import ClusterError


def test_what_cannot_be_built_is_left_out_and_the_rest_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    assert built == ["packages", *ahead.PROGRAMS[1:], "kernel", "pause", "images"]
