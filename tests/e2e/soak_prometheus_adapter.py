"""`make soak`: a NodeSet follows the queue from zero and back by a HorizontalPodAutoscaler with
Prometheus and prometheus-adapter, as docs/autoscaling.md has them.

`make test` has the way with the exporter alone, in `test_horizontal_autoscaling`.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.charts.examples import examples
from tests.cluster.tools import tool
from tests.support.real import prometheus
from tests.support.real.following import (
    EXPORTER,
    MOST,
    Source,
    Way,
    autoscaled,
    follow_to_two_and_back,
    has_no_number,
    until_none,
)
from tests.support.real.harness import REPOSITORY, Kubernetes, Slurm

ADAPTER = "prometheus-adapter"
PROMETHEUS = (prometheus.NAMESPACE, "prometheus")


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
            return values
    raise AssertionError("the page has no such values")


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
        autoscaler = next(it for it in documents() if it.get("kind") == "HorizontalPodAutoscaler")
        autoscaler["spec"] |= {"minReplicas": 0, "maxReplicas": MOST}
        stack.enter_context(autoscaled(kubernetes, values, autoscaler))
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


def test_the_documented_adapter_has_a_nodeset_follow_the_queue_and_keep_its_size_without_data(
    slurm: Slurm,
) -> None:
    slurm.until_idle(2)
    with by_adapter(slurm) as way:
        follow_to_two_and_back(slurm, way)
