"""`backup.beforeUpgrade`: Helm itself with a real kube-apiserver. The test ends the Job, as its
pods would.
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.commands import environment, run
from tests.cluster.control_plane import ControlPlane
from tests.cluster.tools import tool
from tests.support.apiserver import control_plane

CHART = Path(__file__).parents[3] / "charts" / "slurm"
HOOK = "slurm-backup-before-upgrade"
NAMESPACE = "backed"
NOW = "2026-11-24T02:30:00Z"
ENDS: dict[str, dict[str, Any]] = {
    "Failed": {"failed": 1, "conditions": ["FailureTarget", "Failed"]},
    "Complete": {
        "succeeded": 1,
        "completionTime": NOW,
        "conditions": ["SuccessCriteriaMet", "Complete"],
    },
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A release with backups."""
    with control_plane(tmp_path_factory.mktemp("before-upgrade")) as found:
        run([*helm(found, "install"), "--create-namespace"], seconds=60)
        yield found


def helm(plane: ControlPlane, verb: str, *words: str) -> list[str | Path]:
    """A command on the release, with the values of a small cluster with accounting and backups."""
    values = f"--values={CHART / 'ci' / 'accounting-values.yaml'}"
    return [
        tool("helm"),
        f"--kubeconfig={plane.kubeconfig}",
        f"-n={NAMESPACE}",
        verb,
        "slurm",
        CHART,
        values,
        *words,
    ]


def kubectl(plane: ControlPlane, *words: str) -> str:
    return run(
        [tool("kubectl"), f"--kubeconfig={plane.kubeconfig}", f"--namespace={NAMESPACE}", *words],
        seconds=60,
    )


def specs(plane: ControlPlane) -> dict[str, Any]:
    """By kind and name, what an upgrade changes."""
    found = json.loads(
        kubectl(
            plane,
            "get",
            "nodesets.slinky.slurm.net,controllers.slinky.slurm.net,cronjobs",
            "-o=json",
        )
    )
    return {f"{it['kind']}/{it['metadata']['name']}": it["spec"] for it in found["items"]}


def end_hook(plane: ControlPlane, end: str) -> None:
    """Give the Job that Helm waits for this end, as soon as it exists."""
    deadline = time.monotonic() + 60
    while HOOK not in kubectl(plane, "get", "jobs", "--output=name"):
        assert time.monotonic() < deadline, "Helm creates no Job"
    conditions = [
        {
            "type": type,
            "status": "True",
            "reason": "BackoffLimitExceeded",
            "lastTransitionTime": NOW,
        }
        for type in ENDS[end]["conditions"]
    ]
    status = {"startTime": NOW, **ENDS[end], "conditions": conditions}
    kubectl(
        plane,
        "patch",
        f"job/{HOOK}",
        "--subresource=status",
        "--type=merge",
        f"--patch={json.dumps({'status': status})}",
    )


@contextlib.contextmanager
def upgrade(plane: ControlPlane) -> Iterator["subprocess.Popen[str]"]:
    """An upgrade that first creates a backup, and then a second worker and another schedule."""
    changes = "backup.beforeUpgrade=true,backup.keep=5,nodesets.slinky.replicas=2"
    command = helm(plane, "upgrade", "--timeout=100s", f"--set={changes}")
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        yield process


def test_a_backup_that_fails_before_an_upgrade_stops_it_and_one_that_succeeds_does_not(
    plane: ControlPlane,
) -> None:
    before = specs(plane)
    with upgrade(plane) as process:
        end_hook(plane, "Failed")
        output, _ = process.communicate(timeout=100)
    assert process.returncode != 0
    assert "pre-upgrade hooks failed" in output
    assert HOOK in output
    assert specs(plane) == before

    kubectl(plane, "delete", f"job/{HOOK}")
    with upgrade(plane) as process:
        end_hook(plane, "Complete")
        output, _ = process.communicate(timeout=100)
    assert process.returncode == 0, output
    assert specs(plane)["NodeSet/slurm-worker-slinky"]["replicas"] == 2
    assert "--keep=5" in json.dumps(specs(plane)["CronJob/slurm-backup"])
