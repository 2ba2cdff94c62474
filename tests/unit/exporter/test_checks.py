"""Results of checks as metrics."""

from pathlib import Path

import pytest

from sidecars.exporter.checks import add_checks, read_results
from sidecars.exporter.families import OWN
from sidecars.exporter.samples import Samples, page
from sidecars.policy.checks.outcome import Kind
from sidecars.policy.checks.plan import Verdict
from sidecars.policy.checks.results import written
from tests.unit.exporter.exposition import parsed


def test_each_check_has_its_last_run_and_each_node_what_was_measured(tmp_path: Path) -> None:
    verdicts = {
        "a": Verdict(Kind.PASSED, "", {"rate": "1MB/s", "odd": "5"}),
        "b": Verdict(Kind.FAILED, "rate is 1kB/s", {"rate": "1kB/s"}),
        "c": Verdict(Kind.INTERRUPTED, "busy"),
    }
    (tmp_path / "disk").write_text(written(verdicts, 1000, 12.5))
    (tmp_path / "..data").mkdir()
    samples = Samples(OWN)
    add_checks(samples, read_results(tmp_path))
    found = parsed(page([samples.blocks()], openmetrics=False))
    assert found["slurm_check_last_run_timestamp_seconds"] == {("disk",): 1000}
    assert found["slurm_check_last_run_duration_seconds"] == {("disk",): 12.5}
    assert found["slurm_check_nodes"]["disk", "failed"] == 1
    assert found["slurm_check_nodes"]["disk", "hung"] == 0
    assert found["slurm_check_node_not_passed"] == {("disk", "b", "failed"): 1, ("disk", "c", "interrupted"): 1}
    assert found["slurm_check_node_measured"] == {("disk", "a", "rate"): 8e6, ("disk", "b", "rate"): 8e3}
    assert samples.unreadable == 1


def test_a_cluster_without_checks_and_a_file_of_another_kind_have_no_metrics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_results(tmp_path / "absent") == {}
    (tmp_path / "disk").write_text("no result")
    assert read_results(tmp_path) == {}
    assert "is no result of a check" in caplog.text
