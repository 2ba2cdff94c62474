"""A NodeSet follows the queue from zero and back.

By spec.autoscaling, while what it needs for that is killed; and by a HorizontalPodAutoscaler with
Prometheus and prometheus-adapter as docs/autoscaling.md has them. The one with the exporter alone
is in `test_horizontal_autoscaling`.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.charts.examples import examples
from tests.cluster.tools import tool
from tests.support.real import prometheus
from tests.support.real.following import (
    IDLE_SECONDS,
    MOST,
    REST,
    TARGET,
    Source,
    Way,
    follow_from_zero_and_back,
    follow_to_two_and_back,
    has_no_number,
    replicas,
    until_none,
)
from tests.support.real.harness import (
    CHARTS,
    NODESET,
    REPOSITORY,
    Kubernetes,
    Slurm,
    condition,
    until,
)
from tests.support.real.kills import OPERATOR, SLURMCTLD, SLURMRESTD

EXPORTER = "slurm-exporter"
ADAPTER = "prometheus-adapter"
PROMETHEUS = (prometheus.NAMESPACE, "prometheus")
QUICK = {"max": MOST, "idleSeconds": IDLE_SECONDS, "coolDownSeconds": 5, "stepSeconds": 1}


def patch(slurm: Slurm, autoscaling: Any) -> None:
    text = json.dumps({"spec": {"autoscaling": autoscaling}})
    slurm.kubernetes.kubectl("patch", *TARGET, "--type=merge", "-p", text)


@contextmanager
def by_operator(slurm: Slurm) -> Iterator[Way]:
    """spec.autoscaling, without workers."""

    def missed() -> bool:
        return condition(slurm.kubernetes.get(*TARGET), "Autoscaled").get("reason") == "NoData"

    patch(slurm, QUICK)
    try:
        until_none(slurm)
        yield Way(REST, missed)
        slurm.login("scancel", "--user=root")
    finally:
        patch(slurm, None)


def documents() -> list[dict[str, Any]]:
    """The YAML of the page, for the cluster's NodeSet instead of `cpu`."""
    page = REPOSITORY / "docs" / "autoscaling.md"
    return [
        json.loads(
            json.dumps(document).replace('"cpu"', '"slinky"').replace("worker-cpu", "worker-slinky")
        )
        for example in examples(page.name, page.read_text(encoding="utf-8"))
        for document in example.documents
    ]


def exporter_values() -> dict[str, Any]:
    """The page's values of the exporter without external.metrics.k8s.io of its own."""
    for document in documents():
        values: dict[str, Any] = document.get(EXPORTER, {})
        if values and "externalMetrics" not in values["exporter"]["autoscaling"]:
            values["exporter"]["cacheFrequency"] = "1s"
            values["exporter"]["autoscaling"]["nodeSets"]["slinky"]["idleSeconds"] = IDLE_SECONDS
            return values
    raise AssertionError("the page has no such values")


@contextmanager
def autoscaled(slurm: Slurm, values: dict[str, Any]) -> Iterator[None]:
    """The exporter, and an autoscaler."""
    kubernetes = slurm.kubernetes
    autoscaler = next(it for it in documents() if it.get("kind") == "HorizontalPodAutoscaler")
    autoscaler["spec"] |= {"minReplicas": 0, "maxReplicas": MOST}
    autoscaler["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 0
    install = (
        "install",
        EXPORTER,
        str(CHARTS / EXPORTER),
        "-n",
        "slurm",
        "--wait",
        "--timeout=3m",
        "-f",
        "-",
    )
    try:
        kubernetes.helm(*install, stdin=json.dumps(values))
        kubernetes.kubectl("apply", "-f", "-", stdin=json.dumps(autoscaler))
        yield
    finally:
        kubernetes.kubectl("-n", "slurm", "delete", "hpa", NODESET, "--ignore-not-found")
        kubernetes.helm("uninstall", EXPORTER, "-n", "slurm", "--ignore-not-found")


def adapter(kubernetes: Kubernetes) -> list[dict[str, Any]]:
    """The page's objects, with the program of this host instead of the image, which is not on the
    nodes.
    """
    program = tool(ADAPTER)
    page = documents()
    first = next(at for at, it in enumerate(page) if it.get("metadata", {}).get("name") == ADAPTER)
    last = next(at for at, it in enumerate(page) if it.get("kind") == "APIService")
    found = page[first : last + 1]
    [pod] = [it["spec"]["template"]["spec"] for it in found if it["kind"] == "Deployment"]
    [container] = pod["containers"]
    relist = container["args"].index("--metrics-relist-interval=30s")
    container["args"][relist] = "--metrics-relist-interval=3s"
    container |= {"image": prometheus.image(kubernetes), "command": [f"/programs/{program.name}"]}
    container["volumeMounts"].append({"name": "programs", "mountPath": "/programs"})
    container["readinessProbe"]["periodSeconds"] = 1
    pod["volumes"].append({"name": "programs", "hostPath": {"path": str(program.resolve().parent)}})
    return found


@contextmanager
def by_adapter(slurm: Slurm) -> Iterator[Way]:
    """A HorizontalPodAutoscaler with Prometheus and prometheus-adapter, to and from zero."""
    kubernetes, values = slurm.kubernetes, exporter_values()
    # The exporter gets what a worker offers, which one of them shows.
    slurm.scale(1)
    slurm.until_idle(1)
    [node] = json.loads(slurm.login("scontrol", "--json", "show", "node"))["nodes"]
    values["exporter"]["autoscaling"]["nodeSets"]["slinky"]["shape"] = {
        "sockets": node["sockets"],
        "coresPerSocket": node["cores"],
        "threadsPerCore": node["threads"],
        "memory": node["real_memory"],
    }
    with ExitStack() as stack:
        stack.enter_context(autoscaled(slurm, values))
        monitor = prometheus.service_monitor(EXPORTER, "slurm")
        stack.enter_context(prometheus.running(kubernetes, [monitor]))
        objects = [json.dumps(it) for it in adapter(kubernetes)]
        stack.callback(
            lambda: [
                kubernetes.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=it)
                for it in reversed(objects)
            ]
        )
        for it in objects:
            kubernetes.kubectl("create", "-f", "-", stdin=it)
        rollout = ("rollout", "status", f"deploy/{ADAPTER}", "--timeout=120s")
        kubernetes.kubectl("-n", prometheus.NAMESPACE, *rollout, timeout=130)
        until_none(slurm)
        yield Way(Source("deployment", "prometheus", PROMETHEUS), lambda: has_no_number(kubernetes))
        slurm.login("scancel", "--user=root")


@pytest.fixture(scope="module")
def workers(slurm: Slurm) -> Iterator[Slurm]:
    """Two workers at the end, as at the beginning."""
    slurm.until_idle(2)
    yield slurm
    slurm.login("scancel", "--user=root")
    # A worker that is left has the ordinal of the job that ended last; other tests know slinky-0
    # and slinky-1.
    slurm.scale(0)
    until("no worker to be left", lambda: not slurm.pods() and not slurm.nodes())
    slurm.scale(2)
    slurm.until_idle(2)
    # The record of the numbers that autoscaling set, by which others differ.
    slurm.kubernetes.kubectl("annotate", *TARGET, "slinky.slurm.net/autoscaling-")


def test_a_nodeset_follows_the_queue_and_keeps_its_size_without_data_whatever_is_killed(
    workers: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    with by_operator(workers) as way:
        first = follow_from_zero_and_back(workers, way, (SLURMCTLD, SLURMRESTD, OPERATOR))
    with capsys.disabled():
        print(f"\nanother worker pod {first:.2f} s after sbatch")


def test_a_number_that_a_user_sets_stays_for_a_while_and_is_named(workers: Slurm) -> None:
    with by_operator(workers):
        patch(workers, QUICK | {"coolDownSeconds": 3600, "idleSeconds": 3600})
        until(
            "the number to be recorded",
            lambda: workers.kubernetes.get(*TARGET)["metadata"]["annotations"].get(
                "slinky.slurm.net/autoscaling"
            ),
        )
        workers.scale(1)

        def named() -> dict[str, Any]:
            found = condition(workers.kubernetes.get(*TARGET), "Autoscaled")
            return (
                found if found.get("reason") == "OtherOwner" and "to 1" in found["message"] else {}
            )

        found = until("kubectl to be named", named)
        assert "'kubectl' has set replicas to 1" in found["message"]
        assert replicas(workers) == 1


def test_the_documented_adapter_has_a_nodeset_follow_the_queue_and_keep_its_size_without_data(
    workers: Slurm,
) -> None:
    with by_adapter(workers) as way:
        follow_to_two_and_back(workers, way)
