"""Pods of SchedMD's operator with a running job, which this operator takes over on a real cluster."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.upgrading import RELEASE, reference
from tests.support import former
from tests.support.real.harness import Kubernetes, Slurm, condition, until

pytestmark = pytest.mark.timeout(420)

NAMESPACE = "former"
OPERATOR = ("-n", "slinky", "scale", "deployment", "slurm-operator")
EXTRA_CONF = [
    "ProctrackType=proctrack/linuxproc",
    "SelectTypeParameters=CR_Core",
    "SchedulerParameters=batch_sched_delay=0",
]
KEYS = {
    "slurmKeyRef": {"name": "slurm-auth-slurm", "key": "slurm.key"},
    "jwtKeyRef": {"name": "slurm-auth-jwt", "key": "jwt.key"},
}
REFERENCE = {"controllerRef": {"name": "slurm"}}
SPECS: dict[str, tuple[str, dict[str, Any]]] = {
    "Controller": (
        "slurm",
        KEYS
        | {
            "slurmctld": {"image": reference("slurmctld", RELEASE)},
            "persistence": {"enabled": True, "accessModes": ["ReadWriteOnce"]},
            "extraConf": "\n".join(EXTRA_CONF),
            "configFileRefs": [{"name": "cgroup"}],
        },
    ),
    "RestApi": ("slurm", REFERENCE | {"slurmrestd": {"image": reference("slurmrestd", RELEASE)}}),
    "NodeSet": (
        "slinky",
        REFERENCE
        | {
            "replicas": 1,
            "oversubscribeNode": True,
            "slurmd": {"image": reference("slurmd", RELEASE)},
            "partition": {"enabled": True, "config": "State=UP Default=YES MaxTime=UNLIMITED"},
        },
    ),
}
KINDS = ("nodesets", "restapis", "controllers")


def create(kubernetes: Kubernetes, *manifests: dict[str, Any], manager: str = "kubectl-create") -> None:
    """Create objects in the namespace, as this field manager."""
    items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    kubernetes.kubectl("-n", NAMESPACE, "create", f"--field-manager={manager}", "--filename=-", stdin=json.dumps(items))


def slurmctld(kubernetes: Kubernetes, *words: str) -> str:
    """Run a command beside slurmctld."""
    place = ("-n", NAMESPACE, "exec", "slurm-controller-0", "-c", "slurmctld", "--")
    return kubernetes.kubectl(*place, *words).strip()


def job(kubernetes: Kubernetes, number: str) -> dict[str, str]:
    """`scontrol show job` as fields."""
    text = slurmctld(kubernetes, "scontrol", "-o", "show", "job", number)
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def uid(kubernetes: Kubernetes, kind: str, name: str) -> str:
    return str(kubernetes.get("-n", NAMESPACE, kind, name)["metadata"]["uid"])


def node(kubernetes: Kubernetes) -> str:
    return slurmctld(kubernetes, "sinfo", "-h", "-N", "-o", "%T")


@pytest.fixture
def installation(slurm: Slurm, kubernetes: Kubernetes) -> Iterator[str]:
    """A cluster as SchedMD's operator 1.2 leaves it, with an idle worker; no operator runs. The uid of its claim."""
    kubernetes.kubectl(*OPERATOR, "--replicas=0")
    try:
        keys = [(f"slurm-auth-{name}", f"{name}.key", f"{name}-" + "k" * 1019) for name in ("slurm", "jwt")]
        create(
            kubernetes,
            *(
                {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {key: value}}
                for name, key, value in keys
            ),
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "cgroup"},
                "data": {"cgroup.conf": "CgroupPlugin=disabled\n"},
            },
            *(
                {"apiVersion": "slinky.slurm.net/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}
                for kind, (name, spec) in SPECS.items()
            ),
        )
        variables = {
            "namespace": NAMESPACE,
            "cgroup": "disabled",
            "extra_conf": "\n    ".join(EXTRA_CONF),
            "logfile_image": reference("slurmctld", RELEASE),
            **{f"{daemon}_image": reference(daemon, RELEASE) for daemon in ("slurmctld", "slurmd", "slurmrestd")},
            **{kind.lower(): uid(kubernetes, f"{kind.lower()}s", name) for kind, (name, _) in SPECS.items()},
        }
        objects = [
            it for kind in ("controller", "restapi", "nodeset") for it in former.objects(kind, "1.2", **variables)
        ]
        create(kubernetes, *objects, manager=former.MANAGER)
        until("the worker to register", lambda: node(kubernetes) == "idle", 120)
        yield uid(kubernetes, "pvc", "statesave-slurm-controller-0")
    finally:
        kubernetes.kubectl(*OPERATOR, "--replicas=1")
        for kind in KINDS:
            kubernetes.kubectl("-n", NAMESPACE, "delete", f"{kind}.slinky.slurm.net", "--all", "--wait=false")


def test_a_job_outlives_that_its_cluster_is_taken_over_from_schedmds_operator(
    installation: str, kubernetes: Kubernetes
) -> None:
    script = "while ! test -e /go; do sleep 0.2; done"
    number = slurmctld(kubernetes, "sbatch", "--parsable", "-D", "/", "-o", "/dev/null", "--wrap", script)
    until("the job to run", lambda: job(kubernetes, number)["JobState"] == "RUNNING", 30)
    started = job(kubernetes, number)["StartTime"]
    pods = {name: uid(kubernetes, "pod", name) for name in ("slurm-controller-0", "slinky-0")}
    kubernetes.kubectl(*OPERATOR, "--replicas=1")

    def ready(kind: str, name: str) -> bool:
        return (
            condition(kubernetes.get("-n", NAMESPACE, f"{kind}.slinky.slurm.net", name), "Ready").get("status")
            == "True"
        )

    until("slurmctld to be taken over", lambda: ready("controllers", "slurm"), 150)
    assert uid(kubernetes, "pod", "slurm-controller-0") != pods["slurm-controller-0"]
    assert uid(kubernetes, "pvc", "statesave-slurm-controller-0") == installation
    stateful_set = kubernetes.get("-n", NAMESPACE, "statefulset", "slurm-controller")
    assert stateful_set["spec"]["serviceName"] == "slurm-controller-internal"
    until("slurmrestd to be taken over", lambda: ready("restapis", "slurm"), 60)

    def drains() -> bool:
        return "drain" in node(kubernetes)

    # It takes no other job; this one continues.
    until("the worker to be drained", drains, 60)
    found = job(kubernetes, number)
    assert (found["JobState"], found["StartTime"], found["Restarts"]) == ("RUNNING", started, "0")
    assert uid(kubernetes, "pod", "slinky-0") == pods["slinky-0"]
    kubernetes.kubectl("-n", NAMESPACE, "exec", "slinky-0", "-c", "slurmd", "--", "touch", "/go")
    until("the job to complete", lambda: job(kubernetes, number)["JobState"] == "COMPLETED", 30)

    def replaced() -> bool:
        return uid(kubernetes, "pod", "slinky-0") != pods["slinky-0"] and node(kubernetes) == "idle"

    until("a worker of this operator", replaced, 90)
    # slurmctld has continued with its state.
    again = slurmctld(kubernetes, "sbatch", "--parsable", "-D", "/", "-o", "/dev/null", "--wrap", "true")
    assert int(again) == int(number) + 1
    until("the next job to complete", lambda: job(kubernetes, again)["JobState"] == "COMPLETED", 30)
