"""The dashboards of charts/slurm-exporter as Grafana's JSON, from one description of their panels.

`$cluster` in a query stands for the selector of the chosen Slurm cluster. Series that Prometheus has given no label
`slurm_cluster` are found, too: the variable is then empty. Writes nothing.
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


def _stat(title: str, query: str, unit: str = "short", meaning: str = "") -> Panel:
    return Panel(title, ((query, ""),), unit, "stat", 4, 4, meaning=meaning)


def _graph(title: str, *queries: tuple[str, str], unit: str = "short", meaning: str = "") -> Panel:
    return Panel(title, queries, unit, meaning=meaning)


def _stack(title: str, *queries: tuple[str, str], unit: str = "short", meaning: str = "") -> Panel:
    return Panel(title, queries, unit, stacked=True, meaning=meaning)


def _table(title: str, query: str, meaning: str = "") -> Panel:
    return Panel(title, ((query, ""),), kind="table", width=24, meaning=meaning)


_STARTABLE = "Without held jobs. Array tasks count one by one."

DASHBOARDS: dict[str, Dashboard] = {
    "cluster": Dashboard(
        "Slurm / Cluster",
        (
            _stat("Nodes", "sum(slurm_nodes{$cluster})"),
            _stat("Unavailable nodes", "sum(slurm_nodes_unavailable{$cluster}) or vector(0)"),
            _stat("Running jobs", 'sum(slurm_jobs{$cluster, state="running"})'),
            _stat("Pending jobs", 'sum(slurm_jobs{$cluster, state="pending"})'),
            _stat(
                "CPUs allocated",
                'sum(slurm_cpus{$cluster, state="allocated"}) / sum(slurm_cpus{$cluster})',
                "percentunit",
            ),
            _stat(
                "GPUs allocated",
                'sum(slurm_gpus{$cluster, state="allocated"}) / sum(slurm_gpus{$cluster})',
                "percentunit",
                "Empty without GPUs.",
            ),
            _stack("Nodes by state", ("sum by (state) (slurm_nodes{$cluster})", "{{state}}")),
            _stack("Jobs by state", ('sum by (state) (slurm_jobs{$cluster, state=~"running|pending"})', "{{state}}")),
            _stack("CPUs", ("sum by (state) (slurm_cpus{$cluster})", "{{state}}")),
            _stack("GPUs", ("sum by (type, state) (slurm_gpus{$cluster})", "{{type}} {{state}}")),
            _stack("Memory", ("sum by (state) (slurm_memory_bytes{$cluster})", "{{state}}"), unit="bytes"),
            _graph(
                "Jobs per minute",
                ("sum(rate(slurm_controller_jobs_submitted_total{$cluster}[5m])) * 60", "submitted"),
                ("sum(rate(slurm_controller_jobs_started_total{$cluster}[5m])) * 60", "started"),
                ("sum(rate(slurm_controller_jobs_completed_total{$cluster}[5m])) * 60", "completed"),
                ("sum(rate(slurm_controller_jobs_failed_total{$cluster}[5m])) * 60", "failed"),
            ),
        ),
    ),
    "queue": Dashboard(
        "Slurm / Partitions and queue",
        (
            _stack("Pending jobs by reason", ("sum by (reason) (slurm_pending_jobs{$cluster})", "{{reason}}")),
            _graph(
                "Longest wait by partition",
                (
                    "time() - max by (partition) (slurm_partition_pending_oldest_timestamp_seconds{$cluster})",
                    "{{partition}}",
                ),
                unit="s",
                meaning=_STARTABLE,
            ),
            _graph(
                "Running jobs by partition",
                ('sum by (partition) (slurm_partition_jobs{$cluster, state="running"})', "{{partition}}"),
            ),
            _graph(
                "Pending jobs by partition",
                ('sum by (partition) (slurm_partition_jobs{$cluster, state="pending"})', "{{partition}}"),
                meaning="A pending job counts in each of its partitions.",
            ),
            _graph(
                "CPUs in use by partition",
                (
                    (
                        'sum by (partition) (slurm_partition_cpus{$cluster, state="allocated"}) '
                        "/ sum by (partition) (slurm_partition_cpus{$cluster})"
                    ),
                    "{{partition}}",
                ),
                unit="percentunit",
            ),
            _graph(
                "CPUs that pending jobs ask for",
                ("sum by (partition) (slurm_partition_pending_cpus{$cluster})", "{{partition}}"),
                meaning=_STARTABLE,
            ),
            _graph(
                "GPUs in use by partition",
                (
                    (
                        'sum by (partition) (slurm_partition_gpus{$cluster, state="allocated"}) '
                        "/ sum by (partition) (slurm_partition_gpus{$cluster})"
                    ),
                    "{{partition}}",
                ),
                unit="percentunit",
            ),
            _stack(
                "Jobs that have waited long",
                (
                    'sum by (age_seconds) (slurm_pending_jobs_older{$cluster, age_seconds=~"600|3600|21600|86400"})',
                    "longer than {{age_seconds}} s",
                ),
                meaning=_STARTABLE,
            ),
            _table("Nodes of the partitions", "sum by (partition, state) (slurm_partition_nodes{$cluster})"),
        ),
    ),
    "nodes": Dashboard(
        "Slurm / Nodes and GPUs",
        (
            _stack(
                "Unavailable nodes by cause and owner",
                ("sum by (cause, owner) (slurm_nodes_unavailable{$cluster})", "{{cause}} ({{owner}})"),
                meaning="The owner is who drained the node or set it down.",
            ),
            _stack("Flags of nodes", ("sum by (flag) (slurm_nodes_flagged{$cluster})", "{{flag}}")),
            _table(
                "Unavailable nodes and reasons",
                "max by (node, owner, cause, reason) (slurm_node_unavailable{$cluster})",
            ),
            _table(
                "Unavailable for, in seconds",
                "time() - max by (node) (slurm_node_unavailable_since_timestamp_seconds{$cluster})",
            ),
            _graph(
                "GPUs allocated by node",
                ("sum by (node, type) (slurm_node_gpus_allocated{$cluster})", "{{node}} {{type}}"),
            ),
            _graph(
                "GPUs configured by node",
                ("sum by (node, type) (slurm_node_gpus_configured{$cluster})", "{{node}} {{type}}"),
            ),
            _graph(
                "CPUs allocated by node",
                (
                    (
                        "max by (node) (slurm_node_cpus_allocated{$cluster}) "
                        "/ max by (node) (slurm_node_cpus_allocatable{$cluster})"
                    ),
                    "{{node}}",
                ),
                unit="percentunit",
            ),
            _graph("Load by node", ("max by (node) (slurm_node_cpu_load{$cluster})", "{{node}}")),
            _graph(
                "Memory allocated by node",
                ("max by (node) (slurm_node_memory_allocated_bytes{$cluster})", "{{node}}"),
                unit="bytes",
            ),
            _graph(
                "Memory unused by node",
                ("max by (node) (slurm_node_memory_unused_bytes{$cluster})", "{{node}}"),
                unit="bytes",
                meaning="As slurmd reports it, of the node's operating system.",
            ),
        ),
    ),
    "users": Dashboard(
        "Slurm / Users and accounts",
        tuple(
            panel
            for word in ("user", "account")
            for panel in (
                _stack(
                    f"Running jobs by {word}",
                    (f'topk(20, sum by ({word}) (slurm_{word}_jobs{{$cluster, state="running"}}))', f"{{{{{word}}}}}"),
                ),
                _stack(
                    f"Pending jobs by {word}",
                    (f'topk(20, sum by ({word}) (slurm_{word}_jobs{{$cluster, state="pending"}}))', f"{{{{{word}}}}}"),
                ),
                _stack(
                    f"CPUs by {word}",
                    (f"topk(20, sum by ({word}) (slurm_{word}_cpus_allocated{{$cluster}}))", f"{{{{{word}}}}}"),
                ),
                _stack(
                    f"GPUs by {word}",
                    (f"topk(20, sum by ({word}) (slurm_{word}_gpus_allocated{{$cluster}}))", f"{{{{{word}}}}}"),
                ),
                _stack(
                    f"Memory by {word}",
                    (f"topk(20, sum by ({word}) (slurm_{word}_memory_allocated_bytes{{$cluster}}))", f"{{{{{word}}}}}"),
                    unit="bytes",
                ),
            )
        ),
    ),
    "scheduler": Dashboard(
        "Slurm / Scheduler",
        (
            _stat("Server threads", "max(slurm_controller_server_threads{$cluster})", meaning="Of 256 at most."),
            _stat("Messages to slurmdbd", "max(slurm_controller_slurmdbd_queue_messages{$cluster})"),
            _stat("Requests to nodes", "max(slurm_controller_agent_queue_requests{$cluster})"),
            _stat("Main queue", "max(slurm_schedule_queue_jobs{$cluster})"),
            _stat("Backfill queue", "max(slurm_backfill_queue_jobs{$cluster})"),
            _stat(
                "Since the last backfill", "time() - max(slurm_backfill_last_cycle_timestamp_seconds{$cluster})", "s"
            ),
            _graph(
                "Duration of a cycle",
                (
                    (
                        "sum(rate(slurm_schedule_cycle_seconds_total{$cluster}[5m])) "
                        "/ sum(rate(slurm_schedule_cycles_total{$cluster}[5m]))"
                    ),
                    "main scheduler",
                ),
                (
                    (
                        "sum(rate(slurm_backfill_cycle_seconds_total{$cluster}[5m])) "
                        "/ sum(rate(slurm_backfill_cycles_total{$cluster}[5m]))"
                    ),
                    "backfill",
                ),
                unit="s",
            ),
            _graph(
                "Jobs tested in the last backfill cycle",
                ("max(slurm_backfill_last_jobs_considered{$cluster})", "considered"),
                ("max(slurm_backfill_last_jobs_tried{$cluster})", "tried"),
            ),
            _graph(
                "Ends of cycles, per minute",
                ("sum by (reason) (rate(slurm_schedule_exits_total{$cluster}[5m])) * 60", "main scheduler: {{reason}}"),
                ("sum by (reason) (rate(slurm_backfill_exits_total{$cluster}[5m])) * 60", "backfill: {{reason}}"),
            ),
            _graph(
                "Threads and agents of slurmctld",
                ("max(slurm_controller_server_threads{$cluster})", "server threads"),
                ("max(slurm_controller_agents{$cluster})", "agents"),
                ("max(slurm_controller_agent_threads{$cluster})", "agent threads"),
            ),
            _graph(
                "Requests to slurmctld by type, per second",
                ("topk(10, sum by (type) (rate(slurm_controller_rpcs_total{$cluster}[5m])))", "{{type}}"),
                unit="reqps",
            ),
            _graph(
                "Processing time of requests by type",
                (
                    (
                        "topk(10, sum by (type) (rate(slurm_controller_rpc_seconds_total{$cluster}[5m])) "
                        "/ sum by (type) (rate(slurm_controller_rpcs_total{$cluster}[5m]) > 0))"
                    ),
                    "{{type}}",
                ),
                unit="s",
            ),
            _graph(
                "Requests to slurmctld by user, per second",
                ("topk(10, sum by (user) (rate(slurm_controller_user_rpcs_total{$cluster}[5m])))", "{{user}}"),
                unit="reqps",
            ),
            _graph(
                "Age of the exporter's data",
                ("time() - max by (family) (slurm_exporter_last_success_timestamp_seconds{$cluster})", "{{family}}"),
                unit="s",
            ),
        ),
    ),
    "operator": Dashboard(
        "Slurm / Operator",
        (
            _table(
                "Conditions that are not True",
                "max by (kind, name, type, status, reason) "
                '(slurm_operator_condition{namespace="$namespace", status!="True"})',
            ),
            _graph(
                "Pods of NodeSets",
                (
                    'sum by (nodeset, state) (slurm_operator_nodeset_pods{namespace="$namespace"})',
                    "{{nodeset}} {{state}}",
                ),
            ),
            _graph(
                "Slurm nodes of NodeSets",
                (
                    'sum by (nodeset, state) (slurm_operator_nodeset_slurm_nodes{namespace="$namespace"})',
                    "{{nodeset}} {{state}}",
                ),
            ),
            _graph(
                "Duration of a pass, 99th percentile",
                (
                    "histogram_quantile(0.99, sum by (le, kind) (rate(slurm_operator_pass_seconds_bucket[5m])))",
                    "{{kind}}",
                ),
                unit="s",
                meaning="Of all namespaces.",
            ),
            _graph(
                "Passes per second",
                ("sum by (kind) (rate(slurm_operator_pass_seconds_count[5m]))", "{{kind}}"),
                meaning="Of all namespaces.",
            ),
            _graph(
                "Failed passes per minute",
                ("sum by (kind) (rate(slurm_operator_passes_failed_total[5m])) * 60", "{{kind}}"),
                meaning="Of all namespaces.",
            ),
            _graph(
                "Resources that wait for a pass",
                ("sum by (kind) (slurm_operator_queue_length)", "{{kind}}"),
                meaning="Of all namespaces.",
            ),
        ),
        ("namespace", "Namespace", "label_values(slurm_operator_condition, namespace)"),
    ),
}
"""By the names of their files."""


def text(name: str) -> str:
    """The file of one dashboard."""
    dashboard = DASHBOARDS[name]
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
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
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


def queries(name: str) -> list[str]:
    """The PromQL of all panels of a dashboard, in their order, with Grafana's variables."""
    return [_query(query) for panel in DASHBOARDS[name].panels for query, _ in panel.queries]


def _query(query: str) -> str:
    return query.replace("$cluster", _CLUSTER)


def _panels(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """The panels from left to right, in rows."""
    found: list[dict[str, Any]] = []
    x = y = height = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > _COLUMNS:
            x, y, height = 0, y + height, 0
        found.append({"id": number, "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height}, **_panel(panel)})
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
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, **({"custom": custom} if custom else {})}
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
