"""What the guides in docs/ describe, on a Slurm cluster of its own: topology, job logs, a backup,
ways to restore it.

Files and values are those of the pages.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.charts.examples import Example, examples
from tests.e2e.upgrading import RELEASE, reference
from tests.support.real.configuration import until_saved
from tests.support.real.harness import (
    CHARTS,
    REPOSITORY,
    VALUES,
    Kubernetes,
    Slurm,
    until,
    until_equal,
)
from tests.support.real.kills import stop_operator

NAMESPACE, RESTORED = "guided", "restored"
ANNOTATION = "topology.slinky.slurm.net/spec"
BLOCK = "nvidia.com/gpu.clique"
POD = "slurm-worker-slinky-0"
USER = "daemon"
"""A user that all images have."""
CHECK = "#!/bin/sh\ntest ! -e /data/fault || { echo no scratch space; exit 1; }\n"
HEALTH = "exec $(scontrol show config | sed -n 's/^HealthCheckProgram *= *//p')"
LABELS = (
    "topology.kubernetes.io/zone",
    "network.topology.nvidia.com/tier-1",
    "network.topology.nvidia.com/tier-0",
)
"""Those of the guide's tree, from the top."""


def on_page(name: str, word: str) -> Example:
    """The one example of a page that contains the word."""
    found = examples(name, (REPOSITORY / "docs" / name).read_text(encoding="utf-8"))
    (example,) = (each for each in found if word in json.dumps(each.documents))
    return example


@pytest.fixture(scope="module")
def guided(kubernetes: Kubernetes, slurm: Slurm) -> Iterator[Slurm]:
    """A cluster with the topology of the guide and one worker. The operator exists, because
    `slurm` is.
    """
    found = Slurm(kubernetes, NAMESPACE)
    kubernetes.kubectl("annotate", "nodes", "--all", f"{ANNOTATION}=rails:leaf1")
    try:
        install(found, job_logs())
        found.until_idle(1)
        yield found
    finally:
        kubernetes.kubectl("annotate", "nodes", "--all", f"{ANNOTATION}-")
        kubernetes.kubectl("label", "nodes", "--all", *(f"{label}-" for label in (*LABELS, BLOCK)))
    for namespace in (NAMESPACE, RESTORED):
        kubernetes.helm("uninstall", "slurm", "-n", namespace, "--ignore-not-found")
        kubernetes.kubectl("delete", "namespace", namespace, "--wait=false")


def install(slurm: Slurm, values: dict[str, Any]) -> None:
    """Install the release with the topology of the guide, these values, and one worker."""
    topology = on_page("rdma-topology.md", "rails").documents[0]
    slurm.kubernetes.helm(
        *(
            "upgrade",
            "--install",
            "slurm",
            str(CHARTS / "slurm"),
            "-n",
            slurm.namespace,
            "-f",
            str(VALUES),
            "-f",
            "-",
        ),
        *("--set", "nodesets.slinky.replicas=1", "--set", "nodesets.slinky.oversubscribeNode=true"),
        stdin=yaml.safe_dump(topology | values),
    )


def job_logs() -> dict[str, Any]:
    """Job logs as on their page, with private files and scripts; a volume for output, and a check
    that can fail.
    """
    (logs,) = on_page("job-logs.md", "privateFiles").documents
    (scripts,) = on_page("job-logs.md", "prologScripts").documents
    logs["nodesets"]["slinky"] |= {
        "slurmd": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
        "podSpec": {"volumes": [{"name": "data", "emptyDir": {}}]},
        "health": {"enabled": True, "checks": {"site": CHECK}},
    }
    return dict(logs | scripts)


def until_printed(slurm: Slurm, **wanted: object) -> None:
    """Wait until the log of the worker's pod has a line with these fields."""

    def look() -> bool:
        lines = slurm.kubernetes.kubectl("-n", NAMESPACE, "logs", POD, "-c", "logs").splitlines()
        return any(wanted.items() <= json.loads(line).items() for line in lines)

    until(f"the log of {POD} to have {wanted}", look)


def kubectl_bytes(
    kubernetes: Kubernetes, *words: str, stdin: bytes | None = None, namespace: str = NAMESPACE
) -> bytes:
    """kubectl with binary input and output."""
    done = subprocess.run(
        [kubernetes.kubectl_path, "-n", namespace, *words],
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
    assert any(
        "SwitchName=leaf1" in line and "Nodes=slinky-0" in line for line in switches.splitlines()
    )
    guided.kubernetes.kubectl(
        "annotate", "nodes", "--all", "--overwrite", f"{ANNOTATION}=rails:leaf2"
    )
    until(
        "the node to be at the other switch",
        lambda: "Topology=rails:leaf2" in guided.login("scontrol", "show", "node", "slinky-0"),
    )
    assert guided.login("srun", "--switches=1", "hostname").strip() == "slinky-0"


def test_prolog_epilog_and_a_private_file_of_a_job_are_printed(guided: Slurm) -> None:
    private = ("runuser", "-u", USER, "--", "sh", "-c", 'umask 077 && exec "$@"', "sh")
    submit = ("sbatch", "--parsable", "--chdir=/data", "--output=/data/%j.out")
    job = int(guided.login(*private, *submit, stdin="#!/bin/sh\necho for me alone\n"))
    until_printed(guided, job=job, user=USER, stream="stdout", message="for me alone")
    until_printed(guided, job=job, stream="prolog", message="preparing the scratch folder")
    until_printed(guided, job=job, stream="epilog", message="cleaning the scratch folder")
    assert guided.worker(POD, "stat", "--format=%a", f"/data/{job}.out").strip() == "600"


def test_a_failed_health_check_is_printed(guided: Slurm) -> None:
    guided.worker(POD, "touch", "/data/fault")
    guided.worker(POD, "sh", "-c", f"({HEALTH}) || true")
    until_printed(guided, stream="health", message="slurm-node: health: site: no scratch space")
    assert guided.nodes() == {"slinky-0": "drained"}
    guided.worker(POD, "rm", "/data/fault")
    guided.worker(POD, "sh", "-c", HEALTH)
    guided.until_idle(1)
    until_printed(guided, stream="health", message="undrained slinky-0: it is healthy again")


def test_slurmctld_continues_from_a_backup_while_a_job_runs_on(guided: Slurm) -> None:
    kubernetes = guided.kubernetes
    waiting = guided.submit("#!/bin/sh\ntrue\n", "--hold")
    running = guided.submit_until_ended()
    guided.until_running(running)
    until_saved(guided, running)
    saved = save(kubernetes)
    lost = guided.submit("#!/bin/sh\ntrue\n", "--hold")
    pods = {name: pod["metadata"]["uid"] for name, pod in guided.pods().items()}

    stop_slurmctld(kubernetes)
    restore(kubernetes, saved)
    start_slurmctld(kubernetes)

    until_equal("slurmctld to answer", lambda: guided.job(waiting)["JobState"], "PENDING")
    assert str(lost) not in guided.login("squeue", "--noheader", "--format=%i").split()
    assert {name: pod["metadata"]["uid"] for name, pod in guided.pods().items()} == pods
    guided.end(running)
    guided.login("scontrol", "release", str(waiting))
    until_equal("the restored job to end", lambda: guided.job(waiting)["JobState"], "COMPLETED")


def test_a_lost_cluster_is_restored_into_an_empty_namespace_with_its_jobs(guided: Slurm) -> None:
    kubernetes = guided.kubernetes
    waiting = guided.submit("#!/bin/sh\ntrue\n", "--hold")
    running = guided.submit("#!/bin/sh\nsleep 600\n")
    until_equal("the job to run", lambda: guided.job(running)["JobState"], "RUNNING")
    until_saved(guided, running)
    saved = save(kubernetes)
    keys = [
        kubernetes.get("-n", NAMESPACE, "secret", name)
        for name in ("slurm-auth-slurm", "slurm-auth-jwt")
    ]
    guided.login("scancel", str(running), str(waiting))

    for key in keys:
        key["metadata"] = {"name": key["metadata"]["name"], "namespace": RESTORED}
        kubernetes.kubectl("create", "-f", "-", stdin=json.dumps(key))
    create_claim(kubernetes)
    restore(kubernetes, saved, RESTORED, "statesave-restored")
    (values,) = on_page("backup.md", "existingClaim").documents
    restored = Slurm(kubernetes, RESTORED)
    # slurmctld requeues the job itself when its worker registers later than 20 s after slurmctld's
    # start.
    patient = values["controller"] | {"extraConfMap": {"BatchStartTimeout": 600}}
    install(restored, values | {"clusterName": f"{NAMESPACE}_slurm", "controller": patient})

    until("the login node", lambda: kubernetes.kubectl(*_ROLLOUT))
    until_equal("the worker to be ready", lambda: restored.nodes().get("slinky-0"), "mixed")
    assert restored.job(running)["JobState"] == "RUNNING", (
        "Slurm doesn't know that the job ended with its cluster"
    )
    restored.login("sh", "-c", command_of_page("squeue"))
    until_equal("the job to be requeued", lambda: restored.job(running)["Restarts"], "1")
    restored.login("scontrol", "release", str(waiting))
    until_equal("the restored job to end", lambda: restored.job(waiting)["JobState"], "COMPLETED")
    assert restored.job(running)["JobState"] == "PENDING"
    restored.login("scancel", str(running))


def test_labels_of_the_kubernetes_nodes_place_the_workers_and_a_changed_one_moves_them(
    guided: Slurm,
) -> None:
    kubernetes = guided.kubernetes
    zone, spine, leaf = LABELS

    def place() -> str | None:
        """None while it is nowhere, because slurmctld doesn't have the new topology.yaml yet."""
        shown = guided.login("scontrol", "show", "node", "slinky-0").split()
        return next((word for word in shown if word.startswith("Topology=")), None)

    kubernetes.kubectl(
        "label",
        "nodes",
        "--all",
        "--overwrite",
        f"{zone}=zone-a",
        f"{spine}=spine1",
        f"{leaf}=leaf7",
    )
    kubernetes.kubectl("annotate", "nodes", "--all", f"{ANNOTATION}-")
    (values,) = on_page("rdma-topology.md", LABELS[-1]).documents
    install(guided, values | {"configFiles": {}})
    until_equal("the label's switch", place, "Topology=fabric:fabric:zone-a:spine1:leaf7")
    assert "SwitchName=leaf7" in guided.login("scontrol", "show", "topology")
    kubernetes.kubectl("label", "nodes", "--all", "--overwrite", f"{leaf}=leaf8", f"{BLOCK}=d1")
    until_equal("the other place", place, "Topology=fabric:fabric:zone-a:spine1:leaf8,nvlink:d1")
    assert guided.login("srun", "--switches=1", "hostname").strip() == "slinky-0"


_ROLLOUT = ("-n", RESTORED, "rollout", "status", "deployment/slurm-login-slinky", "--timeout=60s")


def command_of_page(word: str) -> str:
    """The one shell command of the page about backups that contains the word."""
    page = (REPOSITORY / "docs" / "backup.md").read_text(encoding="utf-8")
    (command,) = (each for each in re.findall(r"-- sh -c '(.*?)'", page) if word in each)
    return str(command)


def save(kubernetes: Kubernetes) -> bytes:
    """The state of slurmctld, with the command of the page."""
    inside = ("exec", "slurm-controller-0", "-c", "slurmctld", "--", "sh", "-c")
    return kubectl_bytes(kubernetes, *inside, command_of_page("tar -cf"))


def create_claim(kubernetes: Kubernetes) -> None:
    """An empty claim for the restored state."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "statesave-restored", "namespace": RESTORED},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    kubernetes.kubectl("create", "-f", "-", stdin=json.dumps(claim))


def stop_slurmctld(kubernetes: Kubernetes) -> None:
    stop_operator(kubernetes)
    kubernetes.kubectl("-n", NAMESPACE, "scale", "statefulset", "slurm-controller", "--replicas=0")
    wait = ("wait", "--for=delete", "pod/slurm-controller-0", "--timeout=120s")
    kubernetes.kubectl("-n", NAMESPACE, *wait, timeout=130)


def restore(
    kubernetes: Kubernetes,
    saved: bytes,
    namespace: str = NAMESPACE,
    claim: str = "statesave-slurm-controller-0",
) -> None:
    """As the page describes, with its pod, and the image that slurmctld has."""
    pod: dict[str, Any] = on_page("backup.md", "runAsUser").documents[0]
    pod["spec"]["containers"][0]["image"] = reference("slurmctld", RELEASE)
    pod["metadata"]["namespace"] = namespace
    pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = claim
    inside = ("exec", "-i", "restore", "--")
    kubernetes.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    wait = ("wait", "--for=condition=Ready", "pod/restore", "--timeout=120s")
    kubernetes.kubectl("-n", namespace, *wait, timeout=130)
    kubectl_bytes(
        kubernetes, *inside, "find", "/statesave", "-mindepth", "1", "-delete", namespace=namespace
    )
    kubectl_bytes(
        kubernetes, *inside, "tar", "-C", "/statesave", "-xf", "-", stdin=saved, namespace=namespace
    )
    kubernetes.kubectl("-n", namespace, "delete", "pod", "restore", "--now")


def start_slurmctld(kubernetes: Kubernetes) -> None:
    kubernetes.kubectl("-n", NAMESPACE, "scale", "statefulset", "slurm-controller", "--replicas=1")
    kubernetes.kubectl("-n", "slinky", "scale", "deployment", "slurm-operator", "--replicas=1")
