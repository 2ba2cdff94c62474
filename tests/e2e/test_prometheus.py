"""Debian's Prometheus scrapes the exporter and the operator, by the ServiceMonitors of the charts.

With RECORD=SECONDS in the environment, jobs are submitted for that long, and the answers to the
queries of dashboards are written to schemas/dashboard_samples, from which `make generate` draws the
pictures in docs/images. tests.charts.answered records the dashboards that show a busy day.
"""

import itertools
import json
import math
import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from schemas import dashboard_pictures, dashboards
from tests.charts.answered import expression, recorded
from tests.charts.monitoring import rules
from tests.e2e.fake_gpus import gpu_nodeset
from tests.support.real import prometheus
from tests.support.real.harness import CHARTS, Slurm, until, until_equal
from tests.support.real.prometheus import Prometheus

RECORD = float(os.environ.get("RECORD", "0"))
STEPS = 40
REFUSED = {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}
"""Resources with which the API server refuses a Deployment, so that passes of the operator fail."""
GPUS = ("--partition=all", "--nodelist=gpu-0", "--gres=gpu:2")

pytestmark = pytest.mark.timeout(900 + RECORD)


@pytest.fixture(scope="module")
def monitored(slurm: Slurm) -> Iterator[Prometheus]:
    """Prometheus beside a cluster with GPUs."""
    kubernetes = slurm.kubernetes
    exporter = ("slurm-exporter", str(CHARTS / "slurm-exporter"), "-n", slurm.namespace)
    with gpu_nodeset(slurm):
        kubernetes.helm(
            "install", *exporter, "--set=exporter.cacheFrequency=1s", "--wait", "--timeout=2m"
        )
        try:
            monitors = [
                prometheus.service_monitor("slurm-exporter", slurm.namespace),
                prometheus.service_monitor(
                    "slurm-operator", "slinky", "serviceMonitor.enabled=true"
                ),
            ]
            with prometheus.running(kubernetes, monitors) as found:
                yield found
        finally:
            kubernetes.helm("uninstall", "slurm-exporter", "-n", slurm.namespace)


@pytest.fixture
def busy(slurm: Slurm) -> Iterator[None]:
    """Running and pending jobs of two accounts, with GPUs too, a drained node, and a LoginSet that
    is refused.
    """
    slurm.until_idle(3)
    loginset = {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": "LoginSet",
        "metadata": {"name": "refused", "namespace": slurm.namespace},
        "spec": {
            "controllerRef": {"name": "slurm"},
            "sssdConfRef": {"name": "slurm-sssd-conf", "key": "sssd.conf"},
            "login": {"resources": REFUSED},
        },
    }
    slurm.kubernetes.kubectl("create", "--filename=-", stdin=json.dumps(loginset))
    slurm.login("scontrol", "update", "NodeName=slinky-1", "State=DRAIN", "Reason=fan replacement")
    slurm.submit("#!/bin/sh\nsleep 3600\n", "--account=physics", *GPUS)
    for account in ("physics", "chemistry"):
        slurm.submit(
            "#!/bin/sh\nsleep 3600\n", f"--account={account}", "--nodelist=slinky-0", "--exclusive"
        )
    try:
        yield
    finally:
        slurm.login("sh", "-c", "squeue --noheader --format=%A | xargs --no-run-if-empty scancel")
        slurm.login("scontrol", "update", "NodeName=slinky-1", "State=UNDRAIN")
        slurm.kubernetes.kubectl(
            "-n", slurm.namespace, "delete", "loginsets.slinky.slurm.net", "refused"
        )
        slurm.until_idle(3)


def test_both_targets_are_up_and_prometheus_evaluates_all_alerts(monitored: Prometheus) -> None:
    jobs = {"serviceMonitor/slurm/slurm-exporter/0", "serviceMonitor/slinky/slurm-operator/0"}

    def up() -> bool:
        targets = monitored.get("targets", state="active")["activeTargets"]
        return sorted((it["scrapePool"], it["health"]) for it in targets) == sorted(
            (job, "up") for job in jobs
        )

    until("both targets to be up", up)
    wanted = {rule["alert"] for group in rules() for rule in group["rules"]}

    def evaluated() -> bool:
        found = [rule for group in monitored.get("rules")["groups"] for rule in group["rules"]]
        return {(rule["name"], rule["health"]) for rule in found} == {
            (name, "ok") for name in wanted
        }

    until("all alerts to be evaluated", evaluated)


def test_an_alert_becomes_pending_while_a_node_is_drained_and_ends_with_the_drain(
    slurm: Slurm, monitored: Prometheus
) -> None:
    alert = 'ALERTS{alertname="SlurmManyNodesUnavailable"}'
    slurm.until_idle(3)
    slurm.login("scontrol", "update", "NodeName=slinky-1", "State=DRAIN", "Reason=fan replacement")
    try:
        until("the alert to be pending", lambda: monitored.query(alert))
    finally:
        slurm.login("scontrol", "update", "NodeName=slinky-1", "State=UNDRAIN")
    until("the alert to end", lambda: not monitored.query(alert))


def test_every_query_of_every_dashboard_has_data_of_a_real_slurm(
    monitored: Prometheus, busy: None
) -> None:
    empty = {
        (name, query): expression(query)
        for name in dashboards.DASHBOARDS.keys() - dashboards.BESIDE
        for query in dashboards.queries(name)
    }

    def all_answered() -> bool:
        # Each alone: after a read that took too long, a target has no data for a moment.
        for place, query in tuple(empty.items()):
            if numbers(monitored.query(query)):
                del empty[place]
        return not empty

    try:
        until("every query to have data", all_answered, pause=5.0)
    except AssertionError as error:
        raise AssertionError(f"{error}\nno data: " + "\n".join(map(str, empty))) from None


def test_panels_show_what_sinfo_and_squeue_show(
    slurm: Slurm, monitored: Prometheus, busy: None
) -> None:
    titles = [
        panel.title for panel in dashboards.DASHBOARDS["cluster"].panels for _ in panel.queries
    ]
    query = dict(zip(titles, map(expression, dashboards.queries("cluster")), strict=True))

    def of_slurm() -> dict[str, dict[str, float]]:
        # The panel has the base states: a drained node is idle.
        shown = slurm.login(
            "sh", "-c", "scontrol -o show nodes | sed 's/.* State=\\([A-Z]*\\).*/\\1/'"
        )
        nodes = Counter(shown.lower().split())
        jobs = Counter(slurm.login("squeue", "-h", "-r", "-o", "%T").lower().split())
        return {
            "Nodes": {"": nodes.total()},
            "Running jobs": {"": jobs["running"]},
            "Pending jobs": {"": jobs["pending"]},
            "Nodes by state": dict(nodes),
            "Jobs by state": dict(jobs),
        }

    def shown() -> dict[str, dict[str, float]]:
        return {title: by_state(monitored.query(query[title])) for title in of_slurm()}

    def differences() -> dict[str, tuple[dict[str, float], dict[str, float]]]:
        panels, slurms = shown(), of_slurm()
        return {
            title: (panels[title], slurms[title])
            for title in slurms
            if panels[title] != slurms[title]
        }

    until_equal("the jobs", lambda: of_slurm()["Jobs by state"], {"running": 2, "pending": 1})
    until_equal("what panels show, and sinfo and squeue otherwise", differences, {})


if RECORD:
    # Records the answers for the pictures in docs/images: RECORD=SECONDS.

    def test_the_answers_are_recorded_for_the_pictures(
        slurm: Slurm, monitored: Prometheus, busy: None
    ) -> None:
        start = time.time()
        for number in itertools.count():
            if time.time() - start >= RECORD:
                break
            account, seconds = ("physics", "chemistry", "biology")[number % 3], 5 + 7 * number % 40
            kind = GPUS if number % 4 == 0 else ("--cpus-per-task=1", "--partition=all")
            slurm.submit(f"#!/bin/sh\nsleep {seconds}\n", f"--account={account}", *kind)
        end, step = time.time(), RECORD / STEPS
        points = [end - RECORD + step * it for it in range(STEPS + 1)]
        for name, dashboard in dashboards.DASHBOARDS.items():
            if name in dashboards.BUSY:
                continue
            expressions = iter(dashboards.queries(name))
            panels = {
                panel.title: [
                    recorded(
                        monitored.range(expression(next(expressions)), end - RECORD, end, step),
                        points,
                    )
                    for _ in panel.queries
                ]
                for panel in dashboard.panels
            }
            dashboard_pictures.write(name, {"step": step, "panels": panels})


def by_state(series: list[dict[str, Any]]) -> dict[str, float]:
    """The values that aren't 0 by the label `state`, "" without it."""
    return {
        it["metric"].get("state", ""): float(it["value"][1])
        for it in series
        if float(it["value"][1])
    }


def numbers(series: list[dict[str, Any]]) -> list[float]:
    """The values of an answer that are numbers."""
    return [float(it["value"][1]) for it in series if not math.isnan(float(it["value"][1]))]
