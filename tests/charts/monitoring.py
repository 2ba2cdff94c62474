"""The alerts and dashboards of charts/slurm-exporter, checked by Prometheus' own promtool.

Every expression is parsed. Every alert fires and resolves with the series of tests/configurations/alerts.yaml.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from schemas import dashboards
from tests.cluster import debian
from tests.cluster.commands import environment
from tests.cluster.errors import ClusterError
from tests.cluster.tools import tool

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "slurm-exporter"
CASES = ROOT / "tests" / "configurations" / "alerts.yaml"
CLUSTER = 'slurm_cluster="slurm", namespace="slurm"'
SECONDS = 120
_VARIABLE = re.compile(r"\$\w+")


def problems(charts: list[Path]) -> list[str]:
    """What promtool finds wrong. Nothing if the chart is not one of `charts`."""
    if CHART not in charts:
        return []
    promtool = debian.program("promtool", "prometheus")
    groups = rules()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "rules.yaml").write_text(json.dumps({"groups": groups}))
        (path / "panels.yaml").write_text(json.dumps({"groups": list(panels())}))
        (path / "tests.yaml").write_text(json.dumps(promtool_tests(cases(), groups)))
        found = []
        for words in (["check", "rules", "rules.yaml", "panels.yaml"], ["test", "rules", "tests.yaml"]):
            done = subprocess.run(
                [promtool, *words], cwd=path, capture_output=True, text=True, timeout=SECONDS, check=False
            )
            if done.returncode:
                found += [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
    return found


def rules() -> list[dict[str, Any]]:
    """The groups of the chart's PrometheusRule, of the cluster `slurm` in the namespace `slurm`."""
    words = [
        *("template", "slurm", str(CHART), "--namespace=slurm", "--api-versions=monitoring.coreos.com/v1"),
        "--show-only=templates/prometheusrule.yaml",
    ]
    done = subprocess.run(
        [tool("helm"), *words], env=environment(), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode:
        raise ClusterError(done.stderr)
    groups: list[dict[str, Any]] = yaml.safe_load(done.stdout)["spec"]["groups"]
    return groups


def cases() -> list[dict[str, Any]]:
    """Those of tests/configurations/alerts.yaml."""
    found: list[dict[str, Any]] = yaml.safe_load(CASES.read_text(encoding="utf-8"))
    return found


def panels() -> Iterator[dict[str, Any]]:
    """The queries of all dashboards as groups of rules, which promtool can parse."""
    for name in dashboards.DASHBOARDS:
        queries = [_VARIABLE.sub("a", query) for query in dashboards.queries(name)]
        yield {"name": name, "rules": [{"record": f"panel_{i}", "expr": query} for i, query in enumerate(queries)]}


def promtool_tests(wanted: list[dict[str, Any]], groups: list[dict[str, Any]]) -> dict[str, Any]:
    """The tests in promtool's form: the alert fires, with a severity, and later doesn't."""
    severity = {rule["alert"]: rule["labels"]["severity"] for group in groups for rule in group["rules"]}
    tests = []
    for case in wanted:
        name = case["alert"]
        firing = f'count by (alertname, severity) (ALERTS{{alertname="{name}", alertstate="firing"}})'
        sample = {"labels": f'{{alertname="{name}", severity="{severity[name]}"}}', "value": 1}
        tests.append(
            {
                "name": name,
                "interval": "1m",
                "input_series": [
                    {"series": series.replace("$cluster", CLUSTER), "values": values}
                    for series, values in case["series"].items()
                ],
                "promql_expr_test": [
                    {"expr": firing, "eval_time": case["fires"], "exp_samples": [sample]},
                    {"expr": firing, "eval_time": case["resolved"], "exp_samples": []},
                ],
            }
        )
    return {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
