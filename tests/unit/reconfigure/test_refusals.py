"""What slurmds ended of, as another process finds it."""

from dataclasses import replace
from pathlib import Path

import pytest

from sidecars.reconfigure import refusals
from sidecars.reconfigure.refusals import Refusal
from sidecars.slurm.diagnosis import Culprit

REFUSAL = Refusal("a" * 64, Culprit("slurmd ended", "slurm.conf", 3), ("w-0", "w-1"), 50.0)


def test_it_is_found_until_it_is_forgotten(tmp_path: Path) -> None:
    folder = tmp_path / "good"
    assert refusals.read(folder) is None
    before = refusals.version(folder)
    assert before == ""
    refusals.write(folder, REFUSAL)
    found = refusals.read(folder)
    assert found is not None
    assert replace(found, since=REFUSAL.since) == REFUSAL
    assert found.since == pytest.approx(REFUSAL.since, abs=1)
    assert refusals.version(folder) != before
    refusals.forget(folder)
    refusals.forget(folder)
    assert refusals.read(folder) is None
    assert refusals.version(folder) == before


def test_a_host_with_another_uptime_finds_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1_000_000.0)
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    refusals.write(tmp_path, REFUSAL)
    monkeypatch.setattr("time.time", lambda: 1_000_010.0)
    monkeypatch.setattr("time.monotonic", lambda: 7.0)
    found = refusals.read(tmp_path)
    assert found is not None
    assert found.since == 7.0 - 60.0


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"sha256": 1}'])
def test_a_damaged_one_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / refusals.FILE).write_text(content)
    assert refusals.read(tmp_path) is None
