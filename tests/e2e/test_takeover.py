"""A cluster of SchedMD's operator with a running job: this operator takes it over, and SchedMD's
gets it back.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sidecars.kube import load_credentials
from tests.e2e.conftest import WATCHED
from tests.e2e.upgrading import RELEASE, reference
from tests.support import former
from tests.support.real.harness import Kubernetes, Slurm, condition, until, until_equal
from tests.support.real.installed import install_operator
from tests.support.real.kills import stop_operator

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


def create(
    kubernetes: Kubernetes, *manifests: dict[str, Any], manager: str = "kubectl-create"
) -> None:
    """Create objects in the namespace, as this field manager."""
    items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    kubernetes.kubectl(
        "-n",
        NAMESPACE,
        "create",
        f"--field-manager={manager}",
        "--filename=-",
        stdin=json.dumps(items),
    )


def slurmctld(kubernetes: Kubernetes, *words: str) -> str:
    """Run a command beside slurmctld."""
    return kubernetes.execute(NAMESPACE, "slurm-controller-0", "slurmctld", *words).strip()


def job(kubernetes: Kubernetes, number: str) -> dict[str, str]:
    """`scontrol show job` as fields."""
    text = slurmctld(kubernetes, "scontrol", "-o", "show", "job", number)
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def uid(kubernetes: Kubernetes, kind: str, name: str) -> str:
    return str(kubernetes.get("-n", NAMESPACE, kind, name)["metadata"]["uid"])


def node(kubernetes: Kubernetes) -> str:
    return slurmctld(kubernetes, "sinfo", "-h", "-N", "-o", "%T")


@dataclass(frozen=True)
class Installation:
    """What SchedMD's operator has created. `claim`: the uid of slurmctld's."""

    objects: list[dict[str, Any]]
    claim: str

    def restore(self, kubernetes: Kubernetes) -> None:
        """Write all objects but the worker pod as SchedMD's operator does when it runs again."""

        async def sync() -> None:
            async with former.connect(load_credentials(kubernetes.kubeconfig)) as client:
                for item in self.objects:
                    if item["kind"] != "Pod":
                        await former.sync(client, item)

        asyncio.run(sync())

    @property
    def worker(self) -> dict[str, Any]:
        """The worker pod."""
        [found] = [item for item in self.objects if item["kind"] == "Pod"]
        return found


@pytest.fixture(scope="module")
def installation(slurm: Slurm, kubernetes: Kubernetes) -> Iterator[Installation]:
    """A cluster as SchedMD's operator 1.2 created it, with an idle worker; no operator runs."""
    # Without an operator, a cluster that another file of tests has deleted would never be gone, and
    # Helm can't create a Role in a namespace that is being deleted.
    until("the namespaces of other tests to be gone", lambda: not terminating(kubernetes), 400)
    stop_operator(kubernetes)
    try:
        keys = [
            (f"slurm-auth-{name}", f"{name}.key", f"{name}-" + "k" * 1019)
            for name in ("slurm", "jwt")
        ]
        create(
            kubernetes,
            *(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": name},
                    "stringData": {key: value},
                }
                for name, key, value in keys
            ),
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "cgroup"},
                "data": {"cgroup.conf": "CgroupPlugin=disabled\n"},
            },
            *(
                {
                    "apiVersion": "slinky.slurm.net/v1beta1",
                    "kind": kind,
                    "metadata": {"name": name},
                    "spec": spec,
                }
                for kind, (name, spec) in SPECS.items()
            ),
        )
        variables = {
            "namespace": NAMESPACE,
            "cgroup": "disabled",
            "extra_conf": "\n    ".join(EXTRA_CONF),
            "logfile_image": reference("slurmctld", RELEASE),
            **{
                f"{daemon}_image": reference(daemon, RELEASE)
                for daemon in ("slurmctld", "slurmd", "slurmrestd")
            },
            **{
                kind.lower(): uid(kubernetes, f"{kind.lower()}s", name)
                for kind, (name, _) in SPECS.items()
            },
        }
        objects = [
            it
            for kind in ("controller", "restapi", "nodeset")
            for it in former.objects(kind, "1.2", **variables)
        ]
        create(kubernetes, *objects, manager=former.MANAGER)
        until_equal("the worker to register", lambda: node(kubernetes), "idle")
        yield Installation(objects, uid(kubernetes, "pvc", "statesave-slurm-controller-0"))
    finally:
        kubernetes.kubectl(*OPERATOR, "--replicas=1")
        for kind in KINDS:
            kubernetes.kubectl(
                "-n", NAMESPACE, "delete", f"{kind}.slinky.slurm.net", "--all", "--wait=false"
            )


@dataclass(frozen=True)
class Blocked:
    """A job that runs until it is released."""

    kubernetes: Kubernetes
    number: str
    started: str

    def runs(self) -> bool:
        """Whether it has run all the time."""
        found = job(self.kubernetes, self.number)
        return (found["JobState"], found["StartTime"], found["Restarts"]) == (
            "RUNNING",
            self.started,
            "0",
        )

    def release(self) -> None:
        """Let it end."""
        self.kubernetes.kubectl(
            "-n", NAMESPACE, "exec", "slinky-0", "-c", "slurmd", "--", "touch", "/go"
        )
        until_equal(
            "the job to complete",
            lambda: job(self.kubernetes, self.number)["JobState"],
            "COMPLETED",
        )


def submit(kubernetes: Kubernetes, script: str) -> str:
    """Submit a job; its number."""
    return slurmctld(
        kubernetes, "sbatch", "--parsable", "-D", "/", "-o", "/dev/null", "--wrap", script
    )


def block(kubernetes: Kubernetes) -> Blocked:
    """Start a job that runs until it is released."""
    number = submit(kubernetes, "while ! test -e /go; do sleep 0.2; done")
    until_equal("the job to run", lambda: job(kubernetes, number)["JobState"], "RUNNING")
    return Blocked(kubernetes, number, job(kubernetes, number)["StartTime"])


def complete(kubernetes: Kubernetes, script: str) -> str:
    """Run a job to its end; its number."""
    number = submit(kubernetes, script)
    until_equal(
        "the next job to complete", lambda: job(kubernetes, number)["JobState"], "COMPLETED"
    )
    return number


def terminating(kubernetes: Kubernetes) -> list[str]:
    """The namespaces that are being deleted."""
    found = kubernetes.items("namespaces")
    return [it["metadata"]["name"] for it in found if it["metadata"].get("deletionTimestamp")]


def worker(kubernetes: Kubernetes) -> dict[str, Any]:
    """The worker pod; {} while none exists."""
    found = kubernetes.items("-n", NAMESPACE, "pods", "-l", "app.kubernetes.io/name=slurmd")
    return found[0] if len(found) == 1 else {}


def test_a_job_outlives_that_its_cluster_is_taken_over_from_schedmds_operator(
    installation: Installation, kubernetes: Kubernetes
) -> None:
    blocked = block(kubernetes)
    pods = {name: uid(kubernetes, "pod", name) for name in ("slurm-controller-0", "slinky-0")}
    kubernetes.kubectl(*OPERATOR, "--replicas=1")

    def ready(kind: str, name: str) -> bool:
        return (
            condition(
                kubernetes.get("-n", NAMESPACE, f"{kind}.slinky.slurm.net", name), "Ready"
            ).get("status")
            == "True"
        )

    until("slurmctld to be taken over", lambda: ready("controllers", "slurm"))
    assert uid(kubernetes, "pod", "slurm-controller-0") != pods["slurm-controller-0"]
    assert uid(kubernetes, "pvc", "statesave-slurm-controller-0") == installation.claim
    stateful_set = kubernetes.get("-n", NAMESPACE, "statefulset", "slurm-controller")
    assert stateful_set["spec"]["serviceName"] == "slurm-controller-internal"
    until("slurmrestd to be taken over", lambda: ready("restapis", "slurm"))
    # It takes no other job; this one continues.
    until("the worker to be drained", lambda: "drain" in node(kubernetes))
    assert blocked.runs()
    assert uid(kubernetes, "pod", "slinky-0") == pods["slinky-0"]
    blocked.release()

    def replaced() -> bool:
        return uid(kubernetes, "pod", "slinky-0") != pods["slinky-0"] and node(kubernetes) == "idle"

    until("a worker of this operator", replaced)
    # slurmctld has continued with its state.
    assert int(complete(kubernetes, "true")) == int(blocked.number) + 1


def test_a_job_outlives_that_schedmds_operator_gets_its_cluster_back(
    installation: Installation, kubernetes: Kubernetes
) -> None:
    kubernetes.kubectl(*OPERATOR, "--replicas=1")

    def ours() -> bool:
        annotations = worker(kubernetes).get("metadata", {}).get("annotations", {})
        return "slinky.slurm.net/slurm-key-hash" in annotations and node(kubernetes) == "idle"

    until("a worker of this operator", ours)
    blocked = block(kubernetes)
    pods = {name: uid(kubernetes, "pod", name) for name in ("slurm-controller-0", "slinky-0")}
    try:
        kubernetes.helm("uninstall", "slurm-operator", "-n", "slinky", "--wait")
        for kind, name in (("controllers", "slurm"), ("restapis", "slurm"), ("nodesets", "slinky")):
            metadata = kubernetes.get("-n", NAMESPACE, f"{kind}.slinky.slurm.net", name)["metadata"]
            assert (metadata.get("finalizers"), metadata.get("deletionTimestamp")) == (None, None)
        assert {name: uid(kubernetes, "pod", name) for name in pods} == pods
        installation.restore(kubernetes)

        def back() -> bool:
            return (
                uid(kubernetes, "pod", "slurm-controller-0") != pods["slurm-controller-0"]
                and blocked.runs()
            )

        until("SchedMD's slurmctld to run with the job", back)
        assert uid(kubernetes, "pvc", "statesave-slurm-controller-0") == installation.claim
        assert uid(kubernetes, "pod", "slinky-0") == pods["slinky-0"]
        until("the worker to respond to it", lambda: node(kubernetes) in {"mixed", "allocated"})
        assert blocked.runs()
        blocked.release()
        # SchedMD's operator replaces the worker by its rules.
        kubernetes.kubectl("-n", NAMESPACE, "delete", "pod", "slinky-0", timeout=120)
        create(kubernetes, installation.worker, manager=former.MANAGER)
        until_equal("a worker of SchedMD's operator", lambda: node(kubernetes), "idle")
        assert int(complete(kubernetes, "true")) == int(blocked.number) + 1
    finally:
        install_operator(kubernetes, f"namespaces={{{','.join(WATCHED)}}}")
