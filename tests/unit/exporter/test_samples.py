"""Lines of expositions, read by prometheus_client's parsers of both formats."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.exporter import families
from sidecars.exporter.compatible import METRICS
from sidecars.exporter.samples import Samples, page
from tests.unit.exporter.exposition import everything, parsed, values


@given(text=st.text(max_size=40))
def test_any_text_is_a_label_that_a_scraper_reads_back(text: str) -> None:
    samples = everything()
    samples.add(families.CPUS, 1, text)
    assert values(samples)["slurm_cpus"] == {(text,): 1}
    assert samples.blocks()["slurm_cpus"].count(b"\n") == 1


def test_all_metrics_together_are_valid_in_both_formats() -> None:
    samples = everything()
    for number, metric in enumerate(METRICS):
        samples.add(metric, number, *("x" for _ in metric.labels))
    expected = {
        metric.name: {("x",) * len(metric.labels): float(n)} for n, metric in enumerate(METRICS)
    }
    assert parsed(page([samples.blocks()], openmetrics=False)) == expected
    assert parsed(page([samples.blocks()], openmetrics=True), openmetrics=True) == expected


def test_openmetrics_names_counters_and_units_and_ends() -> None:
    samples = everything()
    samples.add(families.CYCLE_SUM, 1.5)
    samples.add(families.JOBS, 2, "pending")
    text = page([samples.blocks()], openmetrics=True).decode()
    assert (
        "# TYPE slurm_schedule_cycle_seconds counter\n# UNIT slurm_schedule_cycle_seconds seconds\n"
        in text
    )
    assert "slurm_schedule_cycle_seconds_total 1.5\n" in text
    assert text.endswith("# EOF\n")
    plain = page([samples.blocks()], openmetrics=False).decode()
    assert "# TYPE slurm_schedule_cycle_seconds_total counter\n" in plain
    assert not re.search("^# (UNIT|EOF)", plain, re.MULTILINE)


def test_the_last_of_two_samples_with_the_same_labels_counts() -> None:
    samples = everything()
    samples.add(families.CPUS, 1, "idle")
    samples.add(families.CPUS, 2, "idle")
    assert values(samples)["slurm_cpus"] == {("idle",): 2}


def test_samples_of_metrics_that_are_not_served_are_ignored() -> None:
    samples = Samples([families.JOBS])
    samples.add(families.CPUS, 1, "idle")
    assert samples.blocks() == {}


def test_a_wrong_number_of_labels_is_a_defect() -> None:
    with pytest.raises(ValueError, match="slurm_cpus"):
        everything().add(families.CPUS, 1)
