"""That dashboards and the simulated day name what dcgm-exporter serves:
tests/configurations/dcgm.yaml records it from its sources.
"""

import re
from pathlib import Path

import yaml

from schemas import dashboards
from tests.charts import busy_day

ROOT = Path(__file__).parents[3]
DCGM = yaml.safe_load((ROOT / "tests/configurations/dcgm.yaml").read_text(encoding="utf-8"))
LABELS = {*DCGM["labels"], *DCGM["labels_of_pods"], *DCGM["labels_of_jobs"]}
SELECTOR = re.compile(r"(DCGM_\w+)\{([^}]*)\}")
QUERIES = [
    query
    for name in dashboards.DASHBOARDS
    for query in dashboards.queries(name)
    if "DCGM_" in query
]


def test_dashboards_ask_for_metrics_of_the_default_list_of_dcgm_exporter() -> None:
    asked = {name for query in QUERIES for name in re.findall(r"DCGM_\w+", query)}
    assert len(asked) == 6
    assert asked <= set(DCGM["metrics"])


def test_dashboards_use_labels_that_each_release_of_dcgm_exporter_has() -> None:
    # Prometheus renames a label of the target's own name.
    known = {*LABELS, "exported_namespace"} - set(DCGM["unreliable"])
    selected = [found for query in QUERIES for found in SELECTOR.findall(query)]
    matched = {label for _, text in selected for label in re.findall(r"(\w+) *[=!]", text)}
    grouped = {
        label.strip()
        for query in QUERIES
        for labels in re.findall(r"\bby \(([^)]*)\) \(\(?DCGM_", query)
        for label in labels.split(",")
    }
    assert {"namespace", "exported_namespace", "hpc_job"} <= matched | grouped <= known


def test_the_simulated_gpus_have_the_series_of_dcgm_exporter() -> None:
    day = next(it for it in busy_day.days() if it.running)
    found = [re.fullmatch(r"(\w+)\{(.*)\}", series) for series, _ in busy_day._gpus(day)]
    names = {it[1] for it in found if it}
    assert names == {name for query in QUERIES for name in re.findall(r"DCGM_\w+", query)}
    labels = {tuple(re.findall(r"(\w+)=", it[2])) for it in found if it}
    without_job = LABELS - set(DCGM["labels_of_jobs"])
    assert {frozenset(it) for it in labels} == {frozenset(LABELS), frozenset(without_job)}
