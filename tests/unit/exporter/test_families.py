"""The tables of metrics: names that Prometheus accepts, units that are true, and no name twice."""

import re
from collections import Counter

import pytest

from sidecars.exporter.compatible import METRICS, REFERENCE, VPENSO, served
from sidecars.exporter.families import OWN
from sidecars.exporter.metrics import DEFAULT_FAMILIES, Family, Metric, NameSet, Source

NAME = re.compile(r"slurm_[a-z][a-z0-9_]*[a-z0-9]")
RESERVED = ("_bucket", "_count", "_sum", "_created", "_info", "_total")


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_has_a_valid_name_and_labels_and_a_sentence_as_help(metric: Metric) -> None:
    assert NAME.fullmatch(metric.name)
    assert all(re.fullmatch(r"[a-z][a-z_]*", label) for label in metric.labels)
    assert len(set(metric.labels)) == len(metric.labels)
    assert metric.help.endswith(".")
    assert "\n" not in metric.help
    assert "|" not in metric.help


@pytest.mark.parametrize("metric", OWN, ids=lambda metric: metric.name)
def test_own_names_follow_prometheus_rules_for_counters_and_units(metric: Metric) -> None:
    assert (metric.kind == "counter") == metric.name.endswith("_total")
    stem = metric.name.removesuffix("_total")
    assert metric.unit in ("", "seconds", "bytes")
    if metric.unit:
        assert stem.endswith(f"_{metric.unit}")
    assert not re.search(r"_(ms|micro|milli|mib|kib|mb|minutes|hours)", metric.name)


def test_no_two_metrics_share_a_name_or_the_name_of_a_counters_family() -> None:
    names = Counter(metric.name for metric in METRICS)
    assert [name for name, count in names.items() if count > 1] == []
    stems = {metric.name.removesuffix("_total") for metric in METRICS if metric.kind == "counter"}
    assert stems & names.keys() == set()


def test_the_name_sets_are_as_large_as_those_of_the_other_exporters() -> None:
    assert len(REFERENCE) == 185
    by_prefix = Counter(
        name.removeprefix("slurm_").split("_")[0] for name in (metric.name for metric in REFERENCE)
    )
    assert by_prefix == {
        "jobs": 20,
        "user": 20,
        "account": 20,
        "partition": 45,
        "nodes": 16,
        "node": 8,
        "scheduler": 28,
        "bfscheduler": 28,
    }
    names = {metric.name for metric in VPENSO}
    assert {
        "slurm_cpus_alloc",
        "slurm_nodes_mix",
        "slurm_queue_node_fail",
        "slurm_partition_cpus_allocated",
    } <= names
    assert {
        "slurm_node_mem_total",
        "slurm_gpus_utilization",
        "slurm_scheduler_backfill_depth_mean",
    } <= names


def test_only_the_chosen_families_and_name_sets_are_served_and_always_those_of_the_exporter() -> (
    None
):
    found = served(frozenset({Family.NODES}), frozenset({NameSet.VPENSO}))
    assert {metric.family for metric in found} == {Family.NODES, Family.EXPORTER}
    assert {metric.name_set for metric in found if metric.family is Family.NODES} == {
        NameSet.VPENSO
    }
    everything = served(frozenset(Family), frozenset(NameSet))
    assert everything == METRICS


def test_series_of_single_jobs_are_off_by_default() -> None:
    assert frozenset(Family) - DEFAULT_FAMILIES == {Family.JOB}


def test_each_family_but_the_exporters_own_is_read_from_slurm() -> None:
    for metric in METRICS:
        assert (metric.source is Source.NONE) == (metric.family is Family.EXPORTER)
