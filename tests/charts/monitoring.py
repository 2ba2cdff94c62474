"""The alerts and dashboards of charts/slurm-exporter, checked by Prometheus' own promtool.

Every expression is parsed. Every alert fires alone and resolves with the series of
tests/configurations/alerts.yaml. None fires with those of tests/configurations/quiet.yaml, and none
in a week of a healthy cluster. Prometheus answers the queries of dashboards with the series of a
busy day.
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
from tests.charts import answered, quiet_week
from tests.cluster import debian
from tests.cluster.commands import environment
from tests.cluster.errors import ClusterError
from tests.cluster.tools import tool

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "slurm-exporter"
CASES = ROOT / "tests" / "configurations" / "alerts.yaml"
QUIET = ROOT / "tests" / "configurations" / "quiet.yaml"
CLUSTER = 'slurm_cluster="slurm", namespace="slurm"'
SECONDS = 300
_FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'
_UP = "slurm_exporter_up{$cluster}"
_ANY = 'group by (alertname) (ALERTS{alertstate="firing"})'
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
        (path / "tests.yaml").write_text(json.dumps(promtool_tests(cases(), groups, cases(QUIET))))
        (path / "week.yaml").write_text(json.dumps(week(groups)))
        found = []
        for words in (
            ["check", "rules", "rules.yaml", "panels.yaml"],
            ["test", "rules", "tests.yaml"],
            ["test", "rules", "week.yaml"],
        ):
            done = subprocess.run(
                [promtool, *words],
                cwd=path,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            if done.returncode:
                found += [
                    line for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()
                ]
    return found + answered.unanswered()


def rules() -> list[dict[str, Any]]:
    """The groups of the chart's PrometheusRule, of the cluster `slurm` in the namespace `slurm`."""
    words = [
        *(
            "template",
            "slurm",
            str(CHART),
            "--namespace=slurm",
            "--api-versions=monitoring.coreos.com/v1",
        ),
        "--show-only=templates/prometheusrule.yaml",
    ]
    done = subprocess.run(
        [tool("helm"), *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        raise ClusterError(done.stderr)
    groups: list[dict[str, Any]] = yaml.safe_load(done.stdout)["spec"]["groups"]
    return groups


def cases(file: Path = CASES) -> list[dict[str, Any]]:
    """Those of tests/configurations/alerts.yaml, or of another file."""
    found: list[dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def panels() -> Iterator[dict[str, Any]]:
    """The queries of all dashboards as groups of rules, which promtool can parse."""
    for name in dashboards.DASHBOARDS:
        queries = [_VARIABLE.sub("a", query) for query in dashboards.queries(name)]
        yield {
            "name": name,
            "rules": [{"record": f"panel_{i}", "expr": query} for i, query in enumerate(queries)],
        }


def promtool_tests(
    wanted: list[dict[str, Any]], groups: list[dict[str, Any]], quiet: list[dict[str, Any]]
) -> dict[str, Any]:
    """The tests in promtool's form: the alert fires, with a severity, and later doesn't. In `quiet`
    situations none does.
    """
    severity = {
        rule["alert"]: rule["labels"]["severity"] for group in groups for rule in group["rules"]
    }
    tests = []
    for case in wanted:
        name = case["alert"]
        firing = (
            f'count by (alertname, severity) (ALERTS{{alertname="{name}", alertstate="firing"}})'
        )
        sample = {"labels": f'{{alertname="{name}", severity="{severity[name]}"}}', "value": 1}
        alone = {"labels": f'{{alertname="{name}"}}', "value": 1}
        tests.append(
            {
                "name": name,
                "interval": "1m",
                "input_series": _series(case),
                "promql_expr_test": [
                    {"expr": firing, "eval_time": case["fires"], "exp_samples": [sample]},
                    {"expr": _ANY, "eval_time": case["fires"], "exp_samples": [alone]},
                    {"expr": firing, "eval_time": case["resolved"], "exp_samples": []},
                ],
            }
        )
    tests += [
        {
            "name": case["name"],
            "interval": "1m",
            "input_series": _series(case),
            "promql_expr_test": [
                {"expr": _FIRING, "eval_time": time, "exp_samples": []} for time in case["times"]
            ],
        }
        for case in quiet
    ]
    return {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}


def week(groups: list[dict[str, Any]]) -> dict[str, Any]:
    """The test in promtool's form that no alert fires in a week of a healthy cluster."""
    expressions = [rule["expr"] for group in groups for rule in group["rules"]]
    step, end = f"{quiet_week.STEP}m", f"{quiet_week.DAYS}d"
    fired = f'group by (alertname) (count_over_time(ALERTS{{alertstate="firing"}}[{end}]))'
    found = quiet_week.series(expressions)
    series = [{"series": key, "values": values} for key, values in found.items()]
    test = {
        "name": "a week of a healthy cluster",
        "interval": step,
        "input_series": series,
        "promql_expr_test": [{"expr": fired, "eval_time": end, "exp_samples": []}],
    }
    return {"rule_files": ["rules.yaml"], "evaluation_interval": step, "tests": [test]}


def _series(case: dict[str, Any]) -> list[dict[str, str]]:
    """Those of the case, with an exporter that answers unless the case has another."""
    found: dict[str, str] = {_UP: "1x2000"} | case["series"]
    return [
        {"series": series.replace("$cluster", CLUSTER), "values": values}
        for series, values in found.items()
    ]
