"""A benchmark beside a former commit: measured in turns, compared by name."""

import os
import re
from pathlib import Path

import pytest

from tests.bench.figures import Figure, figure
from tests.bench.former import beside, comparing, former
from tests.bench.operator import CHECKOUT_VARIABLE

MEASURES_ITSELF = """
import json, pathlib, sys
path = pathlib.Path("build/bench", sys.argv[1] + ".json")
path.parent.mkdir(parents=True, exist_ok=True)
keys = ("figure", "value", "unit", "target", "ratio", "against", "ok")
path.write_text(json.dumps([dict(zip(keys, ("time", 4.0, "ms", "", None, "", None)))]))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A former commit whose benchmark took 4 ms."""
    package = tmp_path / "tests" / "bench"
    package.mkdir(parents=True)
    (package / "__main__.py").write_text(MEASURES_ITSELF)
    return tmp_path


def now() -> list[Figure]:
    return [figure("time", 2.0, "ms", most=3), figure("new", 1.0, "ms")]


def test_a_former_commit_measures_itself(checkout: Path) -> None:
    assert [(it.figure, it.value) for it in former("kube", now, checkout)] == [("time", 4.0)]


def test_the_former_operator_is_measured_by_this_checkout(checkout: Path) -> None:
    started_from = []

    def measured() -> list[Figure]:
        started_from.append(os.environ.get(CHECKOUT_VARIABLE))
        return now()

    assert former("nodeset", measured, checkout) == now()
    assert started_from == [str(checkout)]
    assert CHECKOUT_VARIABLE not in os.environ


def test_figures_are_compared_by_name_and_unit() -> None:
    before = [figure("time", 4.0, "ms"), figure("new", 1.0, "s"), figure("gone", 1.0, "ms")]
    [found] = beside(now(), before)
    assert (found.figure, found.value, found.ratio, found.against) == (
        "time",
        2.0,
        0.5,
        "former: 4 ms",
    )


def test_a_former_figure_of_zero_has_no_ratio() -> None:
    [found] = beside([figure("writes", 3.0, "writes")], [figure("writes", 0.0, "writes")])
    assert (found.ratio, found.against) == (None, "former: 0 writes")


def test_each_round_measures_both_and_shows_the_ratios(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def measured() -> list[Figure]:
        calls.append("now")
        return now()

    assert comparing("kube", measured, checkout, 2)() == now()
    assert calls == ["now", "now"]
    assert len(re.findall(r"time +2 ms +0.5 x +former: 4 ms", capsys.readouterr().out)) == 2
