"""Taking everything away again: a namespace, and the releases in both orders. Runs last: other
tests use all of it.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.charts import chart_testing
from tests.support.real.harness import CHARTS, VALUES, Kubernetes, Slurm, until
from tests.support.real.installed import install_operator, install_slurm
from tests.support.real.kills import processes

KINDS = ("controllers", "restapis", "accountings", "loginsets", "nodesets", "tokens")
DEFINITIONS = frozenset(f"customresourcedefinitions {kind}.slinky.slurm.net" for kind in KINDS)


@pytest.fixture
def alone(slurm: Slurm) -> Iterator[Slurm]:
    """A Slurm cluster with one worker in a namespace of its own."""
    found = Slurm(slurm.kubernetes, "deleted")
    # Kubernetes looks at a namespace again when half of the longest grace period of its pods is
    # over.
    worker = "nodesets.slinky.replicas=1,nodesets.slinky.podSpec.terminationGracePeriodSeconds=60"
    install = (
        "upgrade",
        "--install",
        "slurm",
        str(CHARTS / "slurm"),
        "-n",
        found.namespace,
        "--create-namespace",
    )
    slurm.kubernetes.helm(*install, "-f", str(VALUES), "--set", worker)
    found.until_idle(1)
    yield found
    slurm.kubernetes.kubectl(
        "delete", "namespace", found.namespace, "--wait=false", "--ignore-not-found"
    )


def runs(pod_uid: str, job: int) -> bool:
    """Whether the script of the job runs in the containers of the pod."""
    script = f"/job{job:05}/slurm_script"
    for pid in processes(pod_uid):
        with suppress(OSError):
            if script in Path(f"/proc/{pid}/cmdline").read_text():
                return True
    return False


def test_a_namespace_that_is_deleted_ends_no_job_and_nothing_of_it_remains(alone: Slurm) -> None:
    kubernetes = alone.kubernetes
    job = alone.submit_until_ended("--no-requeue")
    alone.until_running(job)
    [(name, worker)] = alone.pods().items()
    uid = worker["metadata"]["uid"]
    # Slurm lists a job as running before its script has started.
    until("the script to run", lambda: runs(uid, job))
    kubernetes.kubectl("delete", "namespace", alone.namespace, "--wait=false")
    until(
        "the worker to be asked to go",
        lambda: "deletionTimestamp" in alone.pods()[name]["metadata"],
    )
    gone = ("-n", alone.namespace, "pods", "-l", "app.kubernetes.io/name=slurmctld")
    until("slurmctld to be gone", lambda: not kubernetes.items(*gone))
    assert runs(uid, job)
    alone.worker(name, "touch", f"/tmp/end-{job}")  # noqa: S108 - in the worker

    def exists() -> bool:
        return alone.namespace in {
            item["metadata"]["name"] for item in kubernetes.items("namespaces")
        }

    until("the namespace to be gone", lambda: not exists())


def leftovers(kubernetes: Kubernetes) -> list[str]:
    """What is in the two namespaces beside what the README lists as kept, and our cluster-wide
    objects.
    """
    found = []
    for kind in (
        "pods",
        "services",
        "statefulsets",
        "deployments",
        "secrets",
        "configmaps",
        "poddisruptionbudgets",
    ):
        for namespace in ("slurm", "slinky"):
            for item in kubernetes.items("-n", namespace, kind):
                name = item["metadata"]["name"]
                if (kind, name) != ("configmaps", "kube-root-ca.crt"):
                    found.append(f"{kind} {namespace}/{name}")
    for kind in ("roles", "rolebindings", "serviceaccounts", "leases", "networkpolicies"):
        for namespace in ("slurm", "slinky"):
            for item in kubernetes.items("-n", namespace, kind):
                name = item["metadata"]["name"]
                if (kind, name) != ("serviceaccounts", "default"):
                    found.append(f"{kind} {namespace}/{name}")
    for kind in (
        "customresourcedefinitions",
        "clusterroles",
        "clusterrolebindings",
        "priorityclasses",
    ):
        for item in kubernetes.items(kind):
            name = item["metadata"]["name"]
            if "slinky" in name or "slurm" in name:
                found.append(f"{kind} {name}")
    return found


def until_nothing_is_left(kubernetes: Kubernetes, but: frozenset[str] = frozenset()) -> None:
    remaining: list[str] = ["not looked yet"]

    def look() -> bool | None:
        remaining[:] = set(leftovers(kubernetes)) - but
        return not remaining or None

    try:
        until("nothing of ours to be left", look, pause=1.0)
    except AssertionError as error:
        raise AssertionError(f"{error}: {', '.join(remaining)}") from None


def kept(kubernetes: Kubernetes) -> set[str]:
    return {
        item["metadata"]["name"]
        for item in kubernetes.items("-n", "slurm", "persistentvolumeclaims")
    }


def test_uninstalling_slurm_then_the_operator_leaves_only_the_state_volume_and_the_definitions(
    slurm: Slurm, kubernetes: Kubernetes
) -> None:
    # The NodeSet waits for the jobs of other tests, too.
    slurm.login("sh", "-c", "squeue --noheader --format=%A | xargs --no-run-if-empty scancel")
    kubernetes.helm("uninstall", "slurm", "-n", "slurm")
    until(
        "all custom resources to be gone",
        lambda: (
            not any(kubernetes.items("-n", "slurm", f"{kind}.slinky.slurm.net") for kind in KINDS)
        ),
    )
    kubernetes.helm("uninstall", "slurm-operator", "-n", "slinky")
    kubernetes.helm("uninstall", "slurm-operator-crds", "-n", "slinky")
    until_nothing_is_left(kubernetes, DEFINITIONS)
    assert set(leftovers(kubernetes)) == DEFINITIONS
    assert kept(kubernetes) == {"statesave-slurm-controller-0"}


def test_uninstalling_the_operator_first_leaves_only_the_state_volume_as_well(
    kubernetes: Kubernetes,
) -> None:
    # The other tests name the namespaces, and keep the definitions.
    install_operator(kubernetes, "allNamespaces=true", "keep=false")
    install_slurm(kubernetes)
    kubernetes.helm("uninstall", "slurm-operator", "-n", "slinky")
    kubernetes.helm("uninstall", "slurm", "-n", "slurm")
    kubernetes.helm("uninstall", "slurm-operator-crds", "-n", "slinky")
    until_nothing_is_left(kubernetes)
    assert kept(kubernetes) == {"statesave-slurm-controller-0"}


def test_chart_testing_installs_the_charts_of_the_operator_and_nothing_is_left(
    kubernetes: Kubernetes,
) -> None:
    charts = ["slurm-operator-crds", "slurm-operator"]
    chart_testing.run(
        "install", charts, "--namespace=slinky", kubeconfig=kubernetes.kubeconfig, seconds=180
    )
    until_nothing_is_left(kubernetes)
