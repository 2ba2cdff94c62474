"""The alerts and dashboards of charts/slurm-exporter. Prometheus' own programs read them in `make
charts`.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas import dashboards
from sidecars.exporter import families
from sidecars.operator.metrics import Metric
from tests.charts import monitoring

ROOT = Path(__file__).parents[3]
GROUPS: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / "charts/slurm-exporter/alerts.yaml").read_text()
)["groups"]
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in GROUPS for rule in group["rules"]
}
PAGE = (ROOT / "docs/alerts.md").read_text(encoding="utf-8")
QUERIES = {
    **{name: alert["expr"] for name, alert in ALERTS.items()},
    **{
        f"{name} {number}": query
        for name in dashboards.DASHBOARDS
        for number, query in enumerate(dashboards.queries(name))
    },
}
LABELS: dict[str, set[str]] = {
    **{metric.name: set(metric.labels) for metric in families.OWN},
    **{
        metric.value: {"kind", "namespace", "name", "nodeset", "type", "status", "state", "reason"}
        for metric in Metric
    },
    **{f"{Metric.SECONDS}_{part}": {"kind", "le"} for part in ("bucket", "count", "sum")},
}
FAULTS = 30
"""So many faults, at least, whose own alert is the only one."""
ADDED = {"slurm_cluster", "namespace"}
"""The labels that Prometheus adds by the chart's ServiceMonitor."""


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_every_metric_of_a_query_exists_with_the_labels_that_select_its_series(query: str) -> None:
    assert set(re.findall(r"\bslurm_\w+", query)) - ADDED <= LABELS.keys()
    for name, selector in re.findall(r"\b(slurm_\w+)\{([^}]*)\}", query):
        assert set(re.findall(r'(\w+) *[=!]~?"', selector)) - ADDED <= LABELS[name]


@pytest.mark.parametrize("alert", ALERTS.values(), ids=list(ALERTS))
def test_an_alert_has_a_severity_a_summary_a_description_and_only_labels_that_its_expression_keeps(
    alert: dict[str, Any],
) -> None:
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert alert["annotations"].keys() == {"summary", "description"}
    kept = alert["expr"].replace("$cluster", "slurm_cluster namespace")
    for label in re.findall(r"\$labels\.(\w+)", str(alert["annotations"])):
        assert re.search(rf"\b{label}\b", kept)


def test_every_alert_has_a_section_of_its_own_with_cause_diagnosis_and_remedy() -> None:
    sections = re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in sections] == list(ALERTS)
    for name, text in sections:
        assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) == [
            "Cause",
            "Check",
            "Remedy",
        ], name


def test_every_alert_has_a_case_in_which_it_fires_and_resolves() -> None:
    cases = [case["alert"] for case in monitoring.cases()]
    assert list(dict.fromkeys(cases)) == list(ALERTS)
    assert len(cases) >= FAULTS


@pytest.mark.parametrize("name", dashboards.DASHBOARDS)
def test_the_panels_of_a_dashboard_lie_beside_each_other_and_ask_for_the_chosen_cluster(
    name: str,
) -> None:
    model = json.loads(dashboards.text(name))
    taken: set[tuple[int, int]] = set()
    for panel in model["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["datasource"]["uid"] == "${datasource}"
    assert {each["name"] for each in model["templating"]["list"]} == {
        "datasource",
        dashboards.DASHBOARDS[name].variable[0],
    }
    if name not in dashboards.BESIDE:
        asked = [query for query in dashboards.queries(name) if "slurm_operator_" not in query]
        assert [query for query in asked if 'slurm_cluster="$slurm_cluster"' not in query] == []


@pytest.mark.parametrize("name", dashboards.BESIDE)
def test_a_dashboard_of_other_exporters_selects_by_the_namespace_what_is_of_pods(name: str) -> None:
    of_nodes = re.compile(r"sum\((kube_node_\w+)(\{[^}]*\})?\)")
    asked = [query for query in dashboards.queries(name) if not of_nodes.fullmatch(query)]
    assert asked
    assert [query for query in asked if 'namespace="$namespace"' not in query] == []


def test_every_dashboard_has_an_identity_of_its_own() -> None:
    models = [json.loads(dashboards.text(name)) for name in dashboards.DASHBOARDS]
    assert (
        len({model["uid"] for model in models})
        == len({model["title"] for model in models})
        == len(models)
    )
