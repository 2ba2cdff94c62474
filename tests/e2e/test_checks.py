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
    "marker": {
        "script": "#!/bin/sh\n[ ! -e /tmp/faulty ] || { echo the marker is there; exit 1; }\necho measure room 5GiB\n",
        "limits": {"room": {"min": "1GiB"}},
    },
    "hangs": {"script": "#!/bin/sh\ntrap '' TERM\nsleep 300\n", "timeoutSeconds": 2, "drain": False},
    "network": {"env": {"CHECK_SECONDS": "1"}, "limits": {"bandwidth": {"min": "1Mbit/s"}}},
    "slow": {
        "script": "#!/bin/sh\necho measure rate 5MB/s\n",
        "limits": {"rate": {"min": "6MB/s"}},
        "drain": False,
    },
    "lost": {"script": "#!/bin/sh\n", "partition": "nowhere"},
}
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


def test_a_failing_check_drains_its_node_alone_and_a_passing_one_lifts_that_drain_alone(checked: Slurm) -> None:
    kubectl = checked.kubernetes.kubectl
    marker = ("exec", "slurm-worker-slinky-0", "-c", "slurmd", "--")
    kubectl(*HERE, *marker, "touch", "/tmp/faulty")  # noqa: S108
    try:
        begin(checked, "marker", "marker-1")
        assert ended(checked, "marker-1") == "Failed", log_of(checked, "marker-1")
    finally:
        kubectl(*HERE, *marker, "rm", "/tmp/faulty")  # noqa: S108
    assert reason(checked, "slinky-0") == "slurm-node: check: marker: the marker is there"
    # slurmctld may be told of the end of the check's job before that of its node's work.
    until_equal("slinky-1 to be idle", lambda: checked.nodes()["slinky-1"], "idle", 60)
    found = result(checked, "marker")
    assert found["slinky-0"] == {"result": "failed", "text": "the marker is there"}
    assert found["slinky-1"] == {"result": "passed", "measured": {"room": "5GiB"}}
    controller = ("exec", "slurm-controller-0", "-c", "slurmctld", "--", "scontrol")
    kubectl(*HERE, *controller, "update", "nodename=slinky-1", "state=drain", "reason=of an administrator")
    begin(checked, "marker", "marker-2")
    assert ended(checked, "marker-2") == "Complete", log_of(checked, "marker-2")
    until_equal("slinky-0 to be idle again", lambda: checked.nodes()["slinky-0"], "idle", 60)
    assert reason(checked, "slinky-1") == "of an administrator"
    assert "No reservations" in checked.login("scontrol", "show", "reservations")
    kubectl(*HERE, *controller, "update", "nodename=slinky-1", "state=undrain")
    checked.until_idle(2)


def test_a_check_that_hangs_is_ended_and_reported(checked: Slurm) -> None:
    begin(checked, "hangs", "hangs-1")
    assert ended(checked, "hangs-1") == "Failed", log_of(checked, "hangs-1")
    assert {it["result"] for it in result(checked, "hangs").values()} == {"hung"}
    checked.until_idle(2)


def test_the_script_of_the_chart_measures_the_network_between_two_workers(checked: Slurm) -> None:
    begin(checked, "network", "network-1")
    assert ended(checked, "network-1") == "Complete", log_of(checked, "network-1")
    found = result(checked, "network")
    assert {name: it["result"] for name, it in found.items()} == {"slinky-0": "passed", "slinky-1": "passed"}
    assert all(it["measured"]["bandwidth"].endswith("Mbit/s") for it in found.values())
    checked.until_idle(2)


def test_a_check_of_an_unknown_partition_says_which_ones_exist(checked: Slurm) -> None:
    begin(checked, "lost", "lost-1")
    assert ended(checked, "lost-1") == "Failed"
    assert "partition 'nowhere' of check lost is unknown to Slurm, which has all, slinky" in log_of(checked, "lost-1")


def test_the_result_of_a_run_is_in_the_metrics_and_in_the_explanation_of_its_node(
    checked: Slurm, tmp_path: Path
) -> None:
    begin(checked, "slow", "slow-1")
    assert ended(checked, "slow-1") == "Failed", log_of(checked, "slow-1")
    kubernetes = checked.kubernetes
    install_words = ("install", "slurm-exporter", str(CHARTS / "slurm-exporter"), *HERE, "--wait", "--timeout=2m")
    kubernetes.helm(*install_words)
    try:
        read = "import urllib.request as it; print(it.urlopen('http://127.0.0.1:8080/metrics').read().decode())"
        text = kubernetes.kubectl(*HERE, "exec", "deploy/slurm-exporter", "--", "python3", "-c", read)
    finally:
        kubernetes.helm("uninstall", "slurm-exporter", *HERE)
    metrics = {series: float(value) for series, value in re.findall(r"^(slurm_check_\S+) (\S+)$", text, re.MULTILINE)}
    assert metrics['slurm_check_nodes{check="slow",result="failed"}'] == 2, metrics
    assert metrics['slurm_check_node_not_passed{check="slow",node="slinky-0",result="failed"}'] == 1, metrics
    assert metrics['slurm_check_node_measured{check="slow",node="slinky-0",value="rate"}'] == 8 * 5e6, metrics
    program = tmp_path / "kubectl-slurm"
    assert plugin.main([str(program)]) == 0
    (tmp_path / "kubectl").symlink_to(kubernetes.kubectl_path)
    explain = [sys.executable, "-I", "-S", str(program), "explain", "node", "slinky-0", *HERE]
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "KUBECONFIG": str(kubernetes.kubeconfig), "HOME": "/nonexistent"}
    done = subprocess.run(explain, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert "Check slow, 0 min ago: failed: rate is 5MB/s, less than 6MB/s." in " ".join(done.stdout.split()), done
    checked.until_idle(2)
