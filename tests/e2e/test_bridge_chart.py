"""The chart slurm-bridge beside a Slurm cluster: a pod runs where Slurm places its job, and ends
with it.
"""

import json
from collections.abc import Iterator

import pytest

from sidecars.contract import bridge
from tests.support.bridge_world import slurm_conf
from tests.support.real.configuration import controller, patch, until_running
from tests.support.real.harness import CHARTS, Slurm, until, until_equal

TENANT = "physics"
DOCUMENTED = dict(line.split("=", 1) for line in slurm_conf(page="docs/bridge.md").splitlines())
LINES = "".join(
    f"\n{key}={DOCUMENTED[key]}" for key in ("SchedulerParameters", "NodeSet", "PartitionName")
)
"""Of the quick start in docs/bridge.md, without what the cluster of the tests sets itself."""


@pytest.fixture(scope="module")
def kube_node(slurm: Slurm) -> Iterator[str]:
    """A Kubernetes node that Slurm schedules, with the bridge and its tenant as docs/bridge.md
    describes.
    """
    kubectl, helm = slurm.kubernetes.kubectl, slurm.kubernetes.helm
    before = controller(slurm)["spec"].get("extraConf", "")
    patch(slurm, extraConf=before + LINES)
    until_running(slurm)
    # One with a worker is refused: Slurm would give its cores away twice.
    taken = {pod["spec"].get("nodeName") for pod in slurm.pods().values()}
    name = next(
        it
        for node in slurm.kubernetes.items("nodes")
        if (it := str(node["metadata"]["name"])) not in taken
    )
    words = ("slurm-bridge", str(CHARTS / "slurm-bridge"), "-n", slurm.namespace)
    kubectl("create", "namespace", TENANT)
    # Newer releases of Kubernetes have a policy for the gate, which needs no network.
    webhook = "admission.mode=webhook"
    values = f"--set=tenants.{TENANT}.user=mail,{webhook}", "--wait", "--timeout=2m"
    # The second release has a Token, as one that was installed with jwt.key has after an upgrade.
    helm("install", *words, *values, "--set=token.enabled=false")
    assert mounted(slurm) == {"slurm-auth-jwt"}
    helm("upgrade", *words, *values)
    try:
        kubectl("label", "namespace", TENANT, "slurm-bridge=managed")
        kubectl("label", "node", name, f"{bridge.EXTERNAL_NODE}=true")
        until_equal("the external node", lambda: slurm.nodes().get(name), "idle")
        # Its pod is ready; the API server may not reach it yet, and refuses pods until then.
        until(
            "the webhook to add the gate",
            lambda: bridge.GATE in create(slurm, "tried", dry_run="server"),
        )
        yield name
        kubectl("label", "node", name, f"{bridge.EXTERNAL_NODE}-")
        until("the bridge to delete the external node", lambda: name not in slurm.nodes())
    finally:
        kubectl("label", "node", name, f"{bridge.EXTERNAL_NODE}-")
        kubectl("delete", "namespace", TENANT, "--ignore-not-found", "--wait=true", timeout=90)
        helm("uninstall", "slurm-bridge", "-n", slurm.namespace)
        leases = [
            it["metadata"]["name"] for it in slurm.kubernetes.items("-n", slurm.namespace, "leases")
        ]
        assert "slurm-bridge" not in leases
        if name in slurm.nodes():
            kubectl(
                *("-n", slurm.namespace, "exec", "slurm-controller-0", "-c", "slurmctld", "--"),
                *("scontrol", "delete", f"nodename={name}"),
            )
        patch(slurm, extraConf=before)
        until_running(slurm)


def mounted(slurm: Slurm) -> set[str]:
    """The Secrets that the pods of the bridge mount which don't terminate."""
    label = "app.kubernetes.io/component=bridge,app.kubernetes.io/name=slurm-bridge"
    return {
        volume["secret"]["secretName"]
        for pod in slurm.kubernetes.items("-n", slurm.namespace, "pods", "-l", label)
        if "deletionTimestamp" not in pod["metadata"]
        for volume in pod["spec"]["volumes"]
        if "secret" in volume
    }


def create(slurm: Slurm, name: str, *gates: str, dry_run: str = "none") -> str:
    """A pod of the tenant that sleeps, as JSON."""
    operator = slurm.kubernetes.get("-n", "slinky", "deployment", "slurm-operator")
    image = operator["spec"]["template"]["spec"]["containers"][0]["image"]
    requests = {"cpu": "100m", "memory": "32Mi"}
    sleep = {
        "name": "sleep",
        "image": image,
        "command": ["sleep", "infinity"],
        "resources": {"requests": requests},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulingGates": [{"name": gate} for gate in gates],
            "terminationGracePeriodSeconds": 1,
            "containers": [sleep],
        },
    }
    words = ("create", f"--dry-run={dry_run}", "--output=json", "-f", "-")
    return slurm.kubernetes.kubectl("-n", TENANT, *words, stdin=json.dumps(pod))


def queue(slurm: Slurm) -> list[str]:
    """User, state and nodes of each job of the partition."""
    return slurm.login("squeue", "-h", "-p", "slurm-bridge", "-o", "%u %T %N").splitlines()


def test_a_pod_without_a_gate_runs_as_a_job_of_its_tenant_and_ends_with_it(
    slurm: Slurm, kube_node: str
) -> None:
    kubectl, get = slurm.kubernetes.kubectl, slurm.kubernetes.get

    # The API server of the local cluster has no MutatingAdmissionPolicy: the webhook adds the gate.
    create(slurm, "train")
    until_equal(
        "the pod to run",
        lambda: get("-n", TENANT, "pod", "train")["status"].get("phase"),
        "Running",
    )
    pod = get("-n", TENANT, "pod", "train")
    assert pod["spec"]["nodeName"] == kube_node
    # Without the gate, the pod would not have been limited to the node of its job.
    assert pod["metadata"]["annotations"][bridge.NODE_ANNOTATION] == kube_node
    assert queue(slurm) == [f"mail RUNNING {kube_node}"]
    job = pod["metadata"]["labels"][bridge.JOB_LABEL]
    words = (
        "-n",
        slurm.namespace,
        "exec",
        "slurm-controller-0",
        "-c",
        "slurmctld",
        "--",
        "scancel",
        job,
    )
    kubectl(*words)
    until("the pod to end with its job", lambda: not slurm.kubernetes.items("-n", TENANT, "pods"))
    assert queue(slurm) == []


def test_an_upgrade_gives_the_bridge_a_token_in_place_of_the_key(
    slurm: Slurm, kube_node: str
) -> None:
    assert mounted(slurm) == {"slurm-bridge-slurm-token"}
    token = slurm.kubernetes.get("-n", slurm.namespace, "tokens.slinky.slurm.net", "slurm-bridge")
    assert token["spec"]["username"] == "slurm"


def test_a_job_ends_with_its_pod(slurm: Slurm, kube_node: str) -> None:
    create(slurm, "deleted", bridge.GATE)
    until_equal("the job to run", lambda: queue(slurm), [f"mail RUNNING {kube_node}"])
    slurm.kubernetes.kubectl("-n", TENANT, "delete", "pod", "deleted", "--wait=true")
    until_equal("the job to end", lambda: queue(slurm), [])
