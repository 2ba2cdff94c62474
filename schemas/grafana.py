"""A dashboard as Grafana's JSON, from a description of its panels.

`$cluster` in a query stands for the selector of the chosen Slurm cluster. Series that Prometheus
has given no label `slurm_cluster` are found, too: the variable is then empty.
"""

import json
from dataclasses import dataclass
from typing import Any

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_CLUSTER = 'slurm_cluster="$slurm_cluster"'
_COLUMNS = 24


@dataclass(frozen=True)
class Panel:
    """One panel. `queries`: PromQL and the legend of its series."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    """A unit of Grafana."""
    kind: str = "timeseries"
    """timeseries, stat or table."""
    width: int = 12
    """Columns, of 24."""
    height: int = 8
    stacked: bool = False
    meaning: str = ""
    """What the reader should know about the values."""


@dataclass(frozen=True)
class Dashboard:
    """One dashboard. `variable`: name, label of the variable and the query of its values."""

    title: str
    panels: tuple[Panel, ...]
    variable: tuple[str, str, str] = (
        "slurm_cluster",
        "Slurm cluster",
        "label_values(slurm_exporter_up, slurm_cluster)",
    )


def stat(title: str, query: str, unit: str = "short", meaning: str = "") -> Panel:
    """Return a number."""
    return Panel(title, ((query, ""),), unit, "stat", 4, 4, meaning=meaning)


def graph(title: str, *queries: tuple[str, str], unit: str = "short", meaning: str = "") -> Panel:
    """Return a panel with lines."""
    return Panel(title, queries, unit, meaning=meaning)


def stack(title: str, *queries: tuple[str, str], unit: str = "short", meaning: str = "") -> Panel:
    """Return a panel with lines on top of each other, which add up."""
    return Panel(title, queries, unit, stacked=True, meaning=meaning)


def table(title: str, query: str, meaning: str = "") -> Panel:
    """Return a row for each series."""
    return Panel(title, ((query, ""),), kind="table", width=24, meaning=meaning)


def text(name: str, dashboard: Dashboard) -> str:
    """Return the file of a dashboard."""
    variable, label, query = dashboard.variable
    model = {
        "uid": f"slurm-{name}",
        "title": dashboard.title,
        "tags": ["slurm"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "links": [
            {
                "type": "dashboards",
                "title": "Slurm",
                "tags": ["slurm"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                },
                {
                    "name": variable,
                    "label": label,
                    "type": "query",
                    "datasource": _SOURCE,
                    "query": {"query": query, "refId": variable},
                    "refresh": 2,
                    "sort": 1,
                },
            ]
        },
        "panels": _panels(dashboard.panels),
    }
    return json.dumps(model, indent=1) + "\n"


def queries(dashboard: Dashboard) -> list[str]:
    """Return the PromQL of all panels of a dashboard, in their order, with Grafana's variables."""
    return [_query(query) for panel in dashboard.panels for query, _ in panel.queries]


def _query(query: str) -> str:
    return query.replace("$cluster", _CLUSTER)


def _panels(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """Return the panels from left to right, in rows."""
    found: list[dict[str, Any]] = []
    x = y = height = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > _COLUMNS:
            x, y, height = 0, y + height, 0
        found.append(
            {
                "id": number,
                "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
                **_panel(panel),
            }
        )
        x, height = x + panel.width, max(height, panel.height)
    return found


def _panel(panel: Panel) -> dict[str, Any]:
    instant = panel.kind != "timeseries"
    targets = [
        {
            "refId": chr(ord("A") + number),
            "datasource": _SOURCE,
            "expr": _query(query),
            "legendFormat": legend,
            "instant": instant,
            "range": not instant,
            **({"format": "table"} if panel.kind == "table" else {}),
        }
        for number, (query, legend) in enumerate(panel.queries)
    ]
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if panel.stacked else {}
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "min": 0,
        **({"custom": custom} if custom else {}),
    }
    model: dict[str, Any] = {
        "title": panel.title,
        "type": panel.kind,
        "description": panel.meaning,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": targets,
    }
    if panel.kind == "table":
        hidden = {"excludeByName": {"Time": True}}
        model["transformations"] = [{"id": "organize", "options": hidden}]
    return model
