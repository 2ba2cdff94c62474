"""From figures to verdicts, a table, a file in the documented form, and an exit status."""

import json
import re
from pathlib import Path

import pytest

from tests.bench.figures import Figure, figure, median, run, table


def trivial() -> list[Figure]:
    return [
        figure("time", 2.0004, "ms", against=("bare", 4.0), most=5),
        figure("missed", 7.0, "ms", most=5),
        figure("plain", 1.0, "MiB"),
    ]


def broken() -> list[Figure]:
    raise OSError("no server")


def test_a_run_writes_each_benchs_figures_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([], {"trivial": trivial}, tmp_path / "build") == 0
    assert json.loads((tmp_path / "build" / "trivial.json").read_text()) == [
        {
            "figure": "time",
            "value": 2.0,
            "unit": "ms",
            "target": "≤ 5 ms",
            "ratio": 0.5,
            "against": "bare: 4 ms",
            "ok": True,
        },
        {
            "figure": "missed",
            "value": 7.0,
            "unit": "ms",
            "target": "≤ 5 ms",
            "ratio": None,
            "against": "",
            "ok": False,
        },
        {
            "figure": "plain",
            "value": 1.0,
            "unit": "MiB",
            "target": "",
            "ratio": None,
            "against": "",
            "ok": None,
        },
    ]
    assert re.search(r"missed +7 ms +≤ 5 ms +MISSED", capsys.readouterr().out)


def test_only_the_named_bench_runs(tmp_path: Path) -> None:
    assert run(["trivial"], {"trivial": trivial, "broken": broken}, tmp_path) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["trivial.json"]


def test_an_unknown_name_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["trivial", "kubes"], {"trivial": trivial, "kube": broken}, tmp_path) == 2
    assert capsys.readouterr().err == "bench: no benchmark 'kubes'; the names are kube, trivial\n"
    assert list(tmp_path.iterdir()) == []


def test_a_bench_that_could_not_measure_fails_the_run_but_not_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.json").write_text("[]")
    assert run([], {"broken": broken, "trivial": trivial}, tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["trivial.json"]
    assert "bench: broken could not measure" in capsys.readouterr().err


def test_a_multiple_of_the_ceiling_is_a_target_too() -> None:
    found = figure("CPU", 3.0, "s", against=("bare", 2.0), most_times=1.4)
    assert (found.target, found.ratio, found.ok) == ("≤ 1.4 x", 1.5, False)
    with pytest.raises(ValueError, match="needs something to compare with"):
        figure("CPU", 3.0, "s", most_times=1.4)


def test_the_verdict_is_on_what_was_measured_not_on_what_is_shown() -> None:
    found = figure("time", 5.001, "ms", most=5)
    assert (found.value, found.ok) == (5.0, False)


def test_a_table_has_a_line_for_each_figure() -> None:
    assert table(trivial()).splitlines() == [
        "figure  value  target          ratio  against",
        "time    2 ms   ≤ 5 ms  ok      0.5 x  bare: 4 ms",
        "missed  7 ms   ≤ 5 ms  MISSED",
        "plain   1 MiB",
    ]


def test_a_median_leaves_out_the_first_measurement() -> None:
    values = iter([100.0, 1.0, 3.0, 2.0])
    assert median(lambda: next(values), 3) == 2.0
