"""That what tests need is built before them, and a part that can't be built hinders no other."""

import pytest

from tests.cluster import ahead
from tests.cluster.errors import ClusterError


def test_a_part_that_cannot_be_built_is_named_with_its_reason_and_the_rest_is_built() -> None:
    built: list[str] = []

    def lacking() -> None:
        raise ClusterError("no Go")

    found = ahead.build({"helm": lacking, "kube": lambda: built.append("kube")})
    assert found == ["helm: no Go"]
    assert built == ["kube"]


def test_a_run_does_not_begin_if_something_cannot_be_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ahead, "build", lambda row: [f"{next(iter(row))}: no Go"])
    assert ahead.main(["clusters"]) == 1
    assert "kube: no Go" in capsys.readouterr().err
