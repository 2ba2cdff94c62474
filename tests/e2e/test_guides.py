"""What the guides in docs/ describe, on a Slurm cluster of its own: topology, and a backup of slurmctld's state.

Files and values are those of the pages.
"""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.charts.examples import Example, examples
from tests.support.real.configuration import until_saved
from tests.support.real.harness import CHARTS, REPOSITORY, VALUES, Kubernetes, Slurm, until

pytestmark = pytest.mark.timeout(300)

NAMESPACE = "guided"
ANNOTATION = "topology.slinky.slurm.net/spec"


def on_page(name: str, word: str) -> Example:
    """The one example of a page that contains the word."""
    found = examples(name, (REPOSITORY / "docs" / name).read_text(encoding="utf-8"))
    (example,) = (each for each in found if word in json.dumps(each.documents))
    return example


@pytest.fixture(scope="module")
def guided(kubernetes: Kubernetes, slurm: Slurm) -> Iterator[Slurm]:
    """A cluster with the topology of the guide and one worker. The operator is there, because `slurm` is."""
    found = Slurm(kubernetes, NAMESPACE)
    topology = on_page("rdma-topology.md", "topology.yaml").documents[0]
    kubernetes.kubectl("annotate", "nodes", "--all", f"{ANNOTATION}=rails:leaf1")
    try:
        kubernetes.helm(
            *("upgrade", "--install", "slurm", str(CHARTS / "slurm"), "-n", NAMESPACE, "-f", str(VALUES), "-f", "-"),
            *("--set", "nodesets.slinky.replicas=1", "--set", "nodesets.slinky.oversubscribeNode=true"),
            stdin=yaml.safe_dump(topology),
        )
        found.until_idle(1)
        yield found
    finally:
        kubernetes.kubectl("annotate", "nodes", "--all", f"{ANNOTATION}-")
    kubernetes.helm("uninstall", "slurm", "-n", NAMESPACE)
    kubernetes.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def kubectl_bytes(kubernetes: Kubernetes, *words: str, stdin: bytes | None = None) -> bytes:
    """kubectl with binary input and output."""
    done = subprocess.run(
        [kubernetes.kubectl_path, "-n", NAMESPACE, *words],
        input=stdin,
        capture_output=True,
        timeout=60,
        env={"KUBECONFIG": str(kubernetes.kubeconfig), "HOME": "/nonexistent"},
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_workers_register_at_the_switch_of_their_kubernetes_node(guided: Slurm) -> None:
    assert "Topology=rails:leaf1" in guided.login("scontrol", "show", "node", "slinky-0")
    switches = guided.login("scontrol", "show", "topology")
    assert "SwitchName=spine" in switches
    assert any("SwitchName=leaf1" in line and "Nodes=slinky-0" in line for line in switches.splitlines())
    guided.kubernetes.kubectl("annotate", "nodes", "--all", "--overwrite", f"{ANNOTATION}=rails:leaf2")
    until(
        "the node to be at the other switch",
        lambda: "Topology=rails:leaf2" in guided.login("scontrol", "show", "node", "slinky-0"),
        30,
    )
    assert guided.login("srun", "--switches=1", "hostname").strip() == "slinky-0"


def test_slurmctld_continues_from_a_backup_while_a_job_runs_on(guided: Slurm) -> None:
    kubernetes = guided.kubernetes
    waiting = guided.submit("#!/bin/sh\ntrue\n", "--hold")
    running = guided.submit("#!/bin/sh\nsleep 90\n")
    until("the job to run", lambda: guided.job(running)["JobState"] == "RUNNING", 60)
    until_saved(guided, running)
    save = "cd /var/spool/slurmctld/* && tar -cf - $(ls -A)"
    saved = kubectl_bytes(kubernetes, "exec", "slurm-controller-0", "-c", "slurmctld", "--", "sh", "-c", save)
    lost = guided.submit("#!/bin/sh\ntrue\n", "--hold")
    pods = {name: pod["metadata"]["uid"] for name, pod in guided.pods().items()}

    stop_slurmctld(kubernetes)
    restore(kubernetes, saved)
    start_slurmctld(kubernetes)

    until("slurmctld to answer", lambda: guided.job(waiting)["JobState"] == "PENDING", 60)
    assert guided.job(running)["JobState"] == "RUNNING"
    assert str(lost) not in guided.login("squeue", "--noheader", "--format=%i").split()
    assert {name: pod["metadata"]["uid"] for name, pod in guided.pods().items()} == pods
    guided.login("scancel", str(running))
    guided.login("scontrol", "release", str(waiting))
    until("the restored job to end", lambda: guided.job(waiting)["JobState"] == "COMPLETED", 60)


def stop_slurmctld(kubernetes: Kubernetes) -> None:
    kubernetes.kubectl("-n", "slinky", "scale", "deployment", "slurm-operator", "--replicas=0")
    kubernetes.kubectl("-n", NAMESPACE, "scale", "statefulset", "slurm-controller", "--replicas=0")
    kubernetes.kubectl("-n", NAMESPACE, "wait", "--for=delete", "pod/slurm-controller-0", "--timeout=60s")


def restore(kubernetes: Kubernetes, saved: bytes) -> None:
    """As the page describes, with its pod."""
    pod: dict[str, Any] = on_page("backup.md", "runAsUser").documents[0]
    pod["metadata"]["namespace"] = NAMESPACE
    kubernetes.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    kubernetes.kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", "pod/restore", "--timeout=60s")
    kubectl_bytes(kubernetes, "exec", "restore", "--", "find", "/statesave", "-mindepth", "1", "-delete")
    kubectl_bytes(kubernetes, "exec", "-i", "restore", "--", "tar", "-C", "/statesave", "-xf", "-", stdin=saved)
    kubernetes.kubectl("-n", NAMESPACE, "delete", "pod", "restore", "--now")


def start_slurmctld(kubernetes: Kubernetes) -> None:
    kubernetes.kubectl("-n", NAMESPACE, "scale", "statefulset", "slurm-controller", "--replicas=1")
    kubernetes.kubectl("-n", "slinky", "scale", "deployment", "slurm-operator", "--replicas=1")
