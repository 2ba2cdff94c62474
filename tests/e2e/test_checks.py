"""Checks run as Slurm jobs on a real cluster, from the CronJobs of the chart."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecars.explain import plugin
from tests.support.real.check_runs import begin, ended, log_of, result
from tests.support.real.harness import CHARTS, VALUES, Slurm, until_equal

DECLARED: dict[str, dict[str, Any]] = {
    "slow": {
        "script": "#!/bin/sh\n[ -e /tmp/slow ] && rate=5 || rate=7\necho measure rate "
        "${rate}MB/s\n",
        "limits": {"rate": {"min": "6MB/s"}},
    },
    "network": {"env": {"CHECK_SECONDS": "1"}, "limits": {"bandwidth": {"min": "1Mbit/s"}}},
}
FAULT = "rate is 5MB/s, less than 6MB/s"
HERE = ("-n", "slurm")


@pytest.fixture(scope="module")
def checked(slurm: Slurm) -> Iterator[Slurm]:
    """Slurm with checks that run only on demand."""
    common = {"enabled": True, "suspend": True, "schedule": "0 0 1 1 *"}
    install(slurm, {name: {**common, **check} for name, check in DECLARED.items()})
    yield slurm
    install(slurm, {})


def install(slurm: Slurm, definitions: dict[str, Any]) -> None:
    values = yaml.safe_dump({"checks": {"definitions": definitions}})
    words = ("upgrade", "slurm", str(CHARTS / "slurm"), *HERE, "-f", str(VALUES), "-f", "-")
    slurm.kubernetes.helm(*words, "--set", "nodesets.slinky.oversubscribeNode=true", stdin=values)


def reason(slurm: Slurm, node: str) -> str:
    return slurm.login("sinfo", "-h", "-n", node, "-N", "-o", "%E").split("\n")[0].strip()


def metrics(slurm: Slurm) -> dict[str, float]:
    """The series of checks, as an exporter that is installed now shows them."""
    kubernetes = slurm.kubernetes
    kubernetes.helm(
        *("install", "slurm-exporter", str(CHARTS / "slurm-exporter"), *HERE),
        *("--wait", "--timeout=2m"),
    )
    try:
        read = (
            "import urllib.request as it; "
            "print(it.urlopen('http://127.0.0.1:8080/metrics').read().decode())"
        )
        text = kubernetes.kubectl(
            *HERE, "exec", "deploy/slurm-exporter", "--", "python3", "-c", read
        )
    finally:
        kubernetes.helm("uninstall", "slurm-exporter", *HERE)
    return {
        series: float(value)
        for series, value in re.findall(r"^(slurm_check_\S+) (\S+)$", text, re.MULTILINE)
    }


def explanation(slurm: Slurm, node: str, folder: Path) -> str:
    """What `kubectl slurm explain` prints for a node, on one line. The plugin is created in the
    folder.
    """
    program = folder / "kubectl-slurm"
    assert plugin.main([str(program)]) == 0
    (folder / "kubectl").symlink_to(slurm.kubernetes.kubectl_path)
    explain = [sys.executable, "-I", "-S", str(program), "explain", "node", node, *HERE]
    env = {
        "PATH": f"{folder}:/usr/bin:/bin",
        "KUBECONFIG": str(slurm.kubernetes.kubeconfig),
        "HOME": "/nonexistent",
    }
    done = subprocess.run(explain, env=env, capture_output=True, text=True, check=False, timeout=60)
    return " ".join((done.stdout + done.stderr).split())


def test_a_failed_run_drains_its_node_and_is_in_results_metrics_and_explanation_until_a_run_passes(
    checked: Slurm, tmp_path: Path
) -> None:
    marker = ("exec", "slurm-worker-slinky-0", "-c", "slurmd", "--")
    kubectl = checked.kubernetes.kubectl
    kubectl(*HERE, *marker, "touch", "/tmp/slow")  # noqa: S108 - in the worker
    try:
        begin(checked, "slow", "slow-1")
        assert ended(checked, "slow-1") == "Failed", log_of(checked, "slow-1")
    finally:
        kubectl(*HERE, *marker, "rm", "/tmp/slow")  # noqa: S108 - in the worker
    assert reason(checked, "slinky-0") == f"slurm-node: check: slow: {FAULT}"
    # slurmctld may learn the end of the check's job before that of its node's work.
    until_equal("slinky-1 to be idle", lambda: checked.nodes()["slinky-1"], "idle")
    assert result(checked, "slow") == {
        "slinky-0": {"result": "failed", "text": FAULT, "measured": {"rate": "5MB/s"}},
        "slinky-1": {"result": "passed", "measured": {"rate": "7MB/s"}},
    }
    found = metrics(checked)
    assert found['slurm_check_nodes{check="slow",result="failed"}'] == 1, found
    assert found['slurm_check_nodes{check="slow",result="passed"}'] == 1, found
    assert (
        found['slurm_check_node_not_passed{check="slow",node="slinky-0",result="failed"}'] == 1
    ), found
    assert (
        found['slurm_check_node_measured{check="slow",node="slinky-0",value="rate"}'] == 8 * 5e6
    ), found
    message = explanation(checked, "slinky-0", tmp_path)
    assert re.search(rf"Check slow, \d+ min ago: failed: {re.escape(FAULT)}\.", message), message

    begin(checked, "slow", "slow-2")
    assert ended(checked, "slow-2") == "Complete", log_of(checked, "slow-2")
    checked.until_idle(2)
    assert "No reservations" in checked.login("scontrol", "show", "reservations")


def test_the_script_of_the_chart_measures_the_network_between_two_workers(checked: Slurm) -> None:
    begin(checked, "network", "network-1")
    assert ended(checked, "network-1") == "Complete", log_of(checked, "network-1")
    found = result(checked, "network")
    assert {name: it["result"] for name, it in found.items()} == {
        "slinky-0": "passed",
        "slinky-1": "passed",
    }
    assert all(it["measured"]["bandwidth"].endswith("Mbit/s") for it in found.values())
    checked.until_idle(2)
