"""Several slurmctld, in a Slurm cluster of its own: the Kubernetes node of the primary is lost; the
start gate.
"""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.local import existing, named_by
from tests.support.real.clocks import logged
from tests.support.real.configuration import until_saved
from tests.support.real.harness import (
    CHARTS,
    VALUES,
    Kubernetes,
    Slurm,
    condition,
    until,
    until_equal,
)
from tests.support.real.kills import kill_processes

TIMEOUT = 10
"""SlurmctldTimeout: seconds without the primary after which a standby takes over."""

ACTIVE = "controller.slinky.slurm.net/active=true"
APART = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "slurmctld"}},
        }
    ]
}
"""The login pod isn't on the Kubernetes node that is lost: nothing could be run in it."""
STATE = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "state"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
}


@pytest.fixture(scope="module")
def doubled(kubernetes: Kubernetes, slurm: Slurm) -> Iterator[Slurm]:
    """A cluster with a standby and one worker. The operator exists, because `slurm` is."""
    found = Slurm(kubernetes, "doubled")
    kubernetes.kubectl("-n", found.namespace, "create", "-f", "-", stdin=json.dumps(STATE))
    kubernetes.helm(
        *(
            "upgrade",
            "--install",
            "slurm",
            str(CHARTS / "slurm"),
            "-n",
            found.namespace,
            "-f",
            str(VALUES),
        ),
        *(
            "--set",
            "controller.ha.enabled=true",
            "--set",
            "controller.persistence.existingClaim=state",
        ),
        *(
            "--set",
            f"controller.extraConfMap.SlurmctldTimeout={TIMEOUT}",
            "--set",
            "nodesets.slinky.replicas=1",
        ),
        *("--set-json", f"loginsets.slinky.podSpec.affinity.podAntiAffinity={json.dumps(APART)}"),
    )
    until_equal("both slurmctld to be ready", lambda: len(ready(found)), 2)
    found.until_idle(1)
    yield found
    kubernetes.helm("uninstall", "slurm", "-n", found.namespace)
    kubernetes.kubectl("delete", "namespace", found.namespace, "--wait=false")


def ready(slurm: Slurm) -> list[str]:
    """The pods of slurmctld that are ready."""
    pods = slurm.kubernetes.items(
        "-n", slurm.namespace, "pods", "-l", "app.kubernetes.io/name=slurmctld"
    )
    return sorted(
        pod["metadata"]["name"] for pod in pods if condition(pod, "Ready").get("status") == "True"
    )


def active(slurm: Slurm) -> list[str]:
    """The pods to which slurmctld's Service leads."""
    pods = slurm.kubernetes.items("-n", slurm.namespace, "pods", "-l", ACTIVE)
    return [pod["metadata"]["name"] for pod in pods]


@contextmanager
def lost(kubernetes: Kubernetes, namespace: str, name: str) -> Iterator[None]:
    """A pod whose Kubernetes node is lost: nothing runs there, and nothing reports that, until the
    block ends.
    """
    pod = kubernetes.get("-n", namespace, "pod", name)
    cluster = existing(named_by(str(kubernetes.kubeconfig)) or "")
    node = next(node for node in cluster.nodes if node.name == pod["spec"]["nodeName"])
    kubelet = node.daemons()[0]
    kubelet.signal(signal.SIGSTOP)
    try:
        kill_processes(pod["metadata"]["uid"])
        yield
    finally:
        kubelet.signal(signal.SIGCONT)


def test_a_standby_takes_over_from_a_lost_primary_and_its_jobs_go_on(doubled: Slurm) -> None:
    until_equal(
        "the Service to lead to the primary", lambda: active(doubled), ["slurm-controller-0"]
    )
    job = doubled.submit_until_ended("-N1", "--time=60")
    doubled.until_running(job)
    # Of a job, a standby knows what was saved last.
    until_saved(doubled, job)
    begun = time.time()
    with lost(doubled.kubernetes, doubled.namespace, "slurm-controller-0"):
        until(
            "jobs to be taken again",
            lambda: doubled.login("sbatch", "--parsable", "--wrap", "true"),
        )
        # By the clock of the log, which is that of this host: the test asks for a job when the host
        # lets it.
        took = (
            logged(doubled, "slurm-controller-1", "slurmctld", "Running as primary controller")
            - begun
        )
        print(
            f"primary lost -> the standby leads: {took:.1f} s, of which SlurmctldTimeout is "
            f"{TIMEOUT} s"
        )
        until_equal(
            "the Service to lead to the standby", lambda: active(doubled), ["slurm-controller-1"]
        )
        assert doubled.job(job)["JobState"] == "RUNNING"
        assert 0 < took < TIMEOUT + 15
    start = time.monotonic()
    until_equal(
        "the Service to lead to the primary again", lambda: active(doubled), ["slurm-controller-0"]
    )
    until("srun to be taken again", lambda: doubled.login("sbatch", "--parsable", "--wrap", "true"))
    print(f"primary back -> it leads again: {time.monotonic() - start:.1f} s")
    reported = doubled.kubernetes.kubectl(
        "-n", doubled.namespace, "logs", "slurm-controller-0", "-c", "reconfigure"
    )
    assert "slurm-controller-1 has saved its state and ended" in reported
    assert doubled.job(job)["JobState"] == "RUNNING"
    until_equal("both slurmctld to be ready again", lambda: len(ready(doubled)), 2)
    doubled.end(job)
    until_equal("the Service to lead to one of them", lambda: len(active(doubled)), 1)
    assert doubled.login("srun", "hostname").strip() == "slinky-0"


def start_gated(slurm: Slurm) -> tuple[str, str]:
    """Status and message of the Controller's condition StartGated."""
    controller = slurm.kubernetes.get(
        "-n", slurm.namespace, "controllers.slinky.slurm.net", "slurm"
    )
    found = condition(controller, "StartGated")
    return found.get("status", ""), found.get("message", "")


def test_a_command_of_the_site_starts_through_the_gate_and_its_restart_past_the_gate_is_reported(
    doubled: Slurm,
) -> None:
    until_equal("both starts to have been gated", lambda: start_gated(doubled)[0], "True")
    supervisor = "while true; do slurmctld -D; sleep 2; done"
    patch = json.dumps({"spec": {"slurmctld": {"command": ["bash", "-c", supervisor]}}})
    here = ("-n", doubled.namespace)
    doubled.kubernetes.kubectl(
        *here, "patch", "controllers.slinky.slurm.net", "slurm", "--type=merge", "--patch", patch
    )
    own = "slurm-controller-1"

    def renewed() -> bool:
        pods = doubled.kubernetes.items(*here, "pods", "-l", "app.kubernetes.io/name=slurmctld")
        return len(pods) == 2 and all(
            "while true" in str(pod["spec"]["containers"][0]["args"]) for pod in pods
        )

    until("both pods to have the command of the site", renewed)
    until_equal("both slurmctld to be ready", lambda: len(ready(doubled)), 2)
    until_equal("both starts to have been gated again", lambda: start_gated(doubled)[0], "True")
    assert "start gate: " in doubled.kubernetes.kubectl(*here, "logs", own, "-c", "slurmctld")
    doubled.kubernetes.kubectl(
        *here, "exec", own, "-c", "slurmctld", "--", "sh", "-c", "kill $(cat /run/slurmctld.pid)"
    )
    message = until("the start past the gate to be reported", lambda: _not_gated(doubled))
    assert f"slurmctld in {own} started without asking the start gate" in message


def _not_gated(slurm: Slurm) -> str | None:
    status, message = start_gated(slurm)
    return message if status == "False" else None
