"""Entries of the cache are whole or not there."""

from pathlib import Path

import pytest

from tests.cluster import cache


def fill(folder: Path) -> None:
    (folder / "written").write_text("whole")


def test_an_entry_is_made_once(tmp_path: Path) -> None:
    calls: list[Path] = []

    def make(folder: Path) -> None:
        calls.append(folder)
        fill(folder)

    final = tmp_path / "bin" / "tool"
    assert cache.entry(final, make) == cache.entry(final, make) == final
    assert (final / "written").read_text() == "whole"
    assert len(calls) == 1


def test_a_failed_making_leaves_nothing_under_the_final_name(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        fill(folder)
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError):
        cache.entry(tmp_path / "tool", fail)
    assert [path.name for path in tmp_path.iterdir()] == [".tool.lock"]


def test_what_a_killed_making_left_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".tool.making-dead").mkdir()
    cache.entry(tmp_path / "tool", fill)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".tool.lock", "tool"]


def test_a_file_is_written_with_its_mode_and_only_when_it_differs(tmp_path: Path) -> None:
    path = tmp_path / "pki" / "key"
    assert cache.write(path, "secret", mode=0o600)
    assert not cache.write(path, "secret", mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["key"]


def test_the_folder_is_the_one_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_CHARTS_CACHE", str(tmp_path / "c"))
    assert cache.root() == tmp_path / "c"
    monkeypatch.delenv("SLURM_CHARTS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.root() == tmp_path / "slurm-charts"
