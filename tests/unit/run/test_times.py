"""What is recorded of a run, also of one that was cut off, and how it is shown."""

import json
from pathlib import Path

import pytest

from tests.run import times

BEGUN = times.Begun("e2e", 1, 1000.0)
TESTS = (
    times.Test("tests/e2e/test_a.py::test_short", "passed", 1.0, 0.5),
    times.Test("tests/e2e/test_a.py::test_long", "failed", 9.0, 4.0),
    times.Test("tests/e2e/test_b.py::test_other", "skipped", 2.0, 0.1),
)


def part(folder: Path, *records: times.Record) -> Path:
    path = folder / "e2e-lane-1.jsonl"
    for record in records:
        times.append(path, record)
    return path


def test_a_part_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = times.read(part(tmp_path, BEGUN, *TESTS, times.Session(5.5), times.Ended(14.0, 2.0, 1)))
    assert (found.begun, found.tests, found.session) == (BEGUN, [*TESTS], times.Session(5.5))
    assert [found.counted(outcome) for outcome in ("passed", "failed", "skipped")] == [1, 1, 1]
    assert (found.wall, found.cpu) == (14.0, 5.5)


def test_of_a_part_that_was_cut_off_within_a_line_the_lines_before_are_read(tmp_path: Path) -> None:
    path = part(tmp_path, BEGUN, *TESTS)
    path.write_text(path.read_text()[:-20])
    found = times.read(path)
    assert found.tests == [*TESTS[:2]]
    assert (found.ended, found.wall, found.cpu) == (None, 10.0, 4.5)


def test_the_file_has_tests_files_and_stages_with_their_lane_the_longest_first(
    tmp_path: Path,
) -> None:
    found = times.read(part(tmp_path, BEGUN, *TESTS, times.Ended(14.0, 6.0, 1)))
    times.write([found], 15.0, tmp_path / "times.json")
    content = json.loads((tmp_path / "times.json").read_text())
    assert content["wall"] == 15.0
    assert content["cpu"] == 6.0
    stage = {"stage": "e2e", "lane": 1}
    assert content["stages"] == [
        {**stage, "tests": 3, "passed": 1, "failed": 1, "wall": 14.0, "cpu": 6.0, "exit": 1}
    ]
    assert content["files"] == [
        {**stage, "file": "tests/e2e/test_a.py", "tests": 2, "wall": 10.0, "cpu": 4.5},
        {**stage, "file": "tests/e2e/test_b.py", "tests": 1, "wall": 2.0, "cpu": 0.1},
    ]
    assert [test["test"].rpartition("::")[2] for test in content["tests"]] == [
        "test_long",
        "test_other",
        "test_short",
    ]
    assert content["tests"][0] == {
        **stage,
        "test": "tests/e2e/test_a.py::test_long",
        "outcome": "failed",
        "wall": 9.0,
        "cpu": 4.0,
    }


def test_the_report_lists_the_slowest_tests_and_the_totals(tmp_path: Path) -> None:
    many = [
        times.Test(f"tests/unit/test_m.py::test_{number}", "passed", number, 0.0)
        for number in range(100)
    ]
    lane = times.read(part(tmp_path / "lane", BEGUN, *TESTS))
    unit = times.read(
        part(tmp_path / "unit", times.Begun("unit", None, 0.0), *many, times.Ended(70.0, 60.0, 0))
    )
    lines = times.report(times.merge([lane, unit], 100.0)).splitlines()
    assert lines[1].split() == ["99.0", "0.0", "tests/unit/test_m.py::test_99"]
    assert sum("::" in line for line in lines) == times.TOP
    assert "12.0 4.6 3 e2e lane 1 (cut off)" in [" ".join(line.split()) for line in lines]
    assert "70.0 60.0 100 unit" in [" ".join(line.split()) for line in lines]
    assert "100.0 64.6 103 in all" in [" ".join(line.split()) for line in lines]


def test_the_record_of_a_run_that_was_killed_is_put_together_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "PARTS", tmp_path / "times")
    monkeypatch.setattr(times, "FILE", tmp_path / "times.json")
    assert times.latest() is None
    part(tmp_path / "times", BEGUN, *TESTS)
    content = times.latest()
    assert content is not None
    assert [stage["tests"] for stage in content["stages"]] == [3]
    assert content["stages"][0]["exit"] is None
