"""The results of checks as text."""

import pytest

from sidecars.policy.checks.results import MOST_NODES, Kind, Verdict, read, value_of, written

FAILED, PASSED = Verdict(Kind.FAILED, "full"), Verdict(Kind.PASSED)


def test_a_result_is_read_as_it_was_written() -> None:
    verdicts = {
        "a": Verdict(Kind.FAILED, "full", {"rate": "1MB/s"}),
        "b": Verdict(Kind.PASSED, "", {}),
    }
    found = read(written(verdicts, 1000.4, 12.34))
    assert found is not None
    assert (found.at, found.seconds, dict(found.nodes)) == (1000, 12.3, verdicts)
    assert found.counts["passed"] == found.counts["failed"] == 1


def test_a_long_result_keeps_the_nodes_that_failed() -> None:
    verdicts = {f"n{number:05}": PASSED for number in range(MOST_NODES + 10)} | {"z": FAILED}
    text = written(verdicts, 0, 0)
    found = read(text)
    assert found is not None
    assert "z" in found.nodes
    assert len(found.nodes) == MOST_NODES
    assert found.counts["passed"] == MOST_NODES + 10
    assert len(text) < 500_000


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", '{"at": 1}', '{"at": 1, "seconds": 1, "counts": {}, "nodes": {"a": {}}}'),
        '{"at": 1, "seconds": 1, "counts": {"passed": Infinity}, "nodes": {}}',
        '{"at": 1' + "0" * 400 + ', "seconds": 1, "counts": {}, "nodes": {}}',
        "[" * 100_000,
    ],
)
def test_another_text_is_no_result(text: str) -> None:
    assert read(text) is None


def test_a_measured_value_that_is_no_text_has_no_unit() -> None:
    found = read(
        '{"at": 1, "seconds": 1, "counts": {}, "nodes": {"a": {"result": "passed", "measured": '
        '{"rate": 3}}}}'
    )
    assert found is not None
    assert [value_of(text) for text in (found.nodes["a"].measured or {}).values()] == [None]


def test_the_results_of_all_checks_fit_into_a_configmap() -> None:
    measured = {f"value_{number}": "123456.789Mbit/s" for number in range(8)}
    verdicts = {
        f"worker-{number:05}": Verdict(Kind.FAILED, "x" * 120, measured)
        for number in range(MOST_NODES)
    }
    for checks in (1, 7, 40):
        text = written(verdicts, 0, 0, checks)
        assert len(text) * checks < 1_000_000
        found = read(text)
        assert found is not None
        assert found.nodes
        assert found.counts["failed"] == MOST_NODES


def test_a_measured_value_has_a_number_in_its_basic_unit() -> None:
    assert value_of("2ms") == pytest.approx(0.002)
    assert value_of("2") is None
