"""Results of checks as metrics."""

import json
from pathlib import Path
from typing import Any

import pytest

from sidecars.exporter.checks import Checks, add_checks, read_checks
from sidecars.exporter.families import OWN
from sidecars.exporter.samples import Samples, page
from sidecars.policy.checks.results import Kind, Verdict, written
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
    add_checks(samples, read_checks(tmp_path, None, 0.0))
    found = parsed(page([samples.blocks()], openmetrics=False))
    assert found["slurm_check_last_run_timestamp_seconds"] == {("disk",): 1000}
    assert found["slurm_check_last_run_duration_seconds"] == {("disk",): 12.5}
    assert found["slurm_check_nodes"]["disk", "failed"] == 1
    assert found["slurm_check_nodes"]["disk", "hung"] == 0
    assert found["slurm_check_node_not_passed"] == {
        ("disk", "b", "failed"): 1,
        ("disk", "c", "interrupted"): 1,
    }
    assert found["slurm_check_node_measured"] == {
        ("disk", "a", "rate"): 8e6,
        ("disk", "b", "rate"): 8e3,
    }
    assert samples.unreadable == 1


def test_a_cluster_without_checks_and_a_file_of_another_kind_have_no_metrics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_checks(tmp_path / "absent", None, 0.0) == Checks()
    (tmp_path / "disk").write_text("no result")
    (tmp_path / "disk.json").write_text('{"name": "disk"}')
    assert read_checks(tmp_path, None, 0.0) == Checks()
    assert "disk is no result of a check" in caplog.text
    assert "disk.json is no check: script is missing" in caplog.text


def declare(folder: Path, name: str, **more: Any) -> None:
    check = {"name": name, "script": "#!/bin/sh\n", "schedule": "0 * * * *", **more}
    (folder / f"{name}.json").write_text(json.dumps(check))


def due(checks: Checks) -> dict[tuple[str, ...], float]:
    samples = Samples(OWN)
    add_checks(samples, checks)
    return parsed(page([samples.blocks()], openmetrics=False)).get(
        "slurm_check_result_due_timestamp_seconds", {}
    )


def test_the_next_result_is_due_an_interval_and_a_run_after_the_last_one(tmp_path: Path) -> None:
    declare(tmp_path, "disk", timeoutSeconds=50, windowSeconds=100)
    (tmp_path / "disk").write_text(written({}, 1000, 5))
    assert due(read_checks(tmp_path, None, 5000)) == {("disk",): 1000 + 3600 + 450}


def test_a_check_that_has_never_run_is_due_an_interval_and_a_run_after_it_was_first_read(
    tmp_path: Path,
) -> None:
    declare(tmp_path, "disk", timeoutSeconds=50, windowSeconds=100)
    first = read_checks(tmp_path, None, 5000)
    declare(tmp_path, "memory", timeoutSeconds=50, windowSeconds=100)
    later = read_checks(tmp_path, first, 9000)
    assert due(later) == {("disk",): 5000 + 4050, ("memory",): 9000 + 4050}


@pytest.mark.parametrize("former", [{"suspend": True}, {"schedule": "0 0 1 * *"}, None])
def test_a_check_that_is_resumed_or_enabled_again_or_runs_more_often_is_due_an_interval_later(
    tmp_path: Path, former: dict[str, Any] | None
) -> None:
    (tmp_path / "disk").write_text(written({}, 1000, 5))
    if former is not None:
        declare(tmp_path, "disk", timeoutSeconds=50, windowSeconds=100, **former)
    before = read_checks(tmp_path, None, 500_000)
    declare(tmp_path, "disk", timeoutSeconds=50, windowSeconds=100)
    changed = read_checks(tmp_path, before, 600_000)
    assert due(changed) == {("disk",): 600_000 + 4050}
    declare(tmp_path, "disk", timeoutSeconds=50, windowSeconds=100, maxDrains=1)
    later = read_checks(tmp_path, changed, 700_000)
    assert due(later) == {("disk",): 600_000 + 4050}
    (tmp_path / "disk").write_text(written({}, 603_000, 5))
    assert due(read_checks(tmp_path, later, 700_000)) == {("disk",): 603_000 + 4050}


def test_a_check_whose_result_is_lost_is_not_due_at_once(tmp_path: Path) -> None:
    declare(tmp_path, "disk", timeoutSeconds=50, windowSeconds=100)
    (tmp_path / "disk").write_text(written({}, 1000, 5))
    before = read_checks(tmp_path, None, 2000)
    (tmp_path / "disk").write_text(written({}, 90_000, 5))
    before = read_checks(tmp_path, before, 91_000)
    (tmp_path / "disk").unlink()
    assert due(read_checks(tmp_path, before, 92_000)) == {("disk",): 90_000 + 4050}


def test_a_check_that_is_declared_suspended_or_was_removed_is_never_due(tmp_path: Path) -> None:
    declare(tmp_path, "disk", suspend=True)
    (tmp_path / "memory").write_text(written({}, 1000, 5))
    assert due(read_checks(tmp_path, None, 5000)) == {}
