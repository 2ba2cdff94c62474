"""Debian's Prometheus in a pod of the local cluster, with the targets of the charts' ServiceMonitors."""

import json
import re
import subprocess
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from tests.charts.monitoring import rules
from tests.cluster import debian
from tests.cluster.errors import ClusterError
from tests.cluster.tools import tool
from tests.support.real.harness import CHARTS, Kubernetes, until

NAMESPACE = "monitoring"
API = "monitoring.coreos.com/v1"
INTERVAL = "1s"
_GET = (
    "import sys, urllib.error as e, urllib.request as r\n"
    "try: print(r.urlopen('http://127.0.0.1:9090' + sys.argv[1], timeout=10).read().decode())\n"
    "except e.HTTPError as error: print(error.read().decode())\n"
)


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    kubernetes: Kubernetes

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its HTTP API. Fails with its error."""
        url = f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        text = self.kubernetes.kubectl("-n", NAMESPACE, "exec", "prometheus", "--", "python3", "-c", _GET, url)
        answer = json.loads(text)
        assert answer["status"] == "success", f"{parameters}: {answer}"
        return answer["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression at this moment."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def range(self, expression: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """The series of an expression over a time, in seconds since the epoch."""
        times = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        found: list[dict[str, Any]] = self.get("query_range", query=expression, **times)["result"]
        return found


def service_monitor(chart: str, namespace: str, *settings: str) -> dict[str, Any]:
    """The ServiceMonitor of a chart's release, which has the chart's name."""
    file = "servicemonitor.yaml" if chart == "slurm-exporter" else "operator/servicemonitor.yaml"
    words = [word for setting in settings for word in ("--set", setting)]
    command = [
        *(str(tool("helm")), "template", chart, str(CHARTS / chart), f"--namespace={namespace}"),
        *(f"--api-versions={API}", f"--show-only=templates/{file}", *words),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise ClusterError(done.stderr)
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


def scrape_configs(
    monitor: Mapping[str, Any], services: Iterable[Mapping[str, Any]], slices: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What the Prometheus operator would have scraped by a ServiceMonitor, as far as those of the charts need it.

    `services` and `slices`: the Services and EndpointSlices of its namespace. Debian's Prometheus can't ask Kubernetes.
    """
    spec, metadata = monitor["spec"], monitor["metadata"]
    wanted = spec["selector"]["matchLabels"].items()
    names = {it["metadata"]["name"] for it in services if wanted <= (it["metadata"].get("labels") or {}).items()}
    chosen = [it for it in slices if it["metadata"]["labels"].get("kubernetes.io/service-name") in names]
    found = []
    for number, endpoint in enumerate(spec["endpoints"]):
        own = [{_snake(key): value for key, value in it.items()} for it in endpoint.get("relabelings", ())]
        found.append(
            {
                "job_name": f"serviceMonitor/{metadata['namespace']}/{metadata['name']}/{number}",
                "scrape_interval": INTERVAL,
                "scrape_timeout": INTERVAL,
                "metrics_path": endpoint["path"],
                "scheme": endpoint.get("scheme", "http"),
                "honor_labels": endpoint.get("honorLabels", False),
                "static_configs": [
                    {
                        "targets": [f"{address}:{port['port']}" for address in it["addresses"]],
                        "labels": {
                            "namespace": each["metadata"]["namespace"],
                            "service": each["metadata"]["labels"]["kubernetes.io/service-name"],
                            "pod": it["targetRef"]["name"],
                        },
                    }
                    for each in chosen
                    for port in each["ports"]
                    if port["name"] == endpoint["port"]
                    for it in each["endpoints"]
                ],
                "relabel_configs": own,
            }
        )
    return found


@contextmanager
def running(kubernetes: Kubernetes, monitors: Sequence[Mapping[str, Any]]) -> Iterator[Prometheus]:
    """Prometheus with the alerts of the chart slurm-exporter, which scrapes these, until the end."""
    binary = debian.program("prometheus", "prometheus").resolve()
    operator = kubernetes.get("-n", "slinky", "deployment", "slurm-operator")
    # It has the C library, and Python for the requests of the tests. The nodes share this machine's files.
    image = operator["spec"]["template"]["spec"]["containers"][0]["image"]
    configuration = {
        "global": {"evaluation_interval": INTERVAL},
        "rule_files": ["/etc/prometheus/rules.yaml"],
        "scrape_configs": [config for monitor in monitors for config in _scraped(kubernetes, monitor)],
    }
    files = {"prometheus.yaml": json.dumps(configuration), "rules.yaml": json.dumps({"groups": rules()})}
    kubernetes.kubectl("create", "namespace", NAMESPACE)
    try:
        metadata = {"name": "prometheus", "namespace": NAMESPACE}
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files}
        for item in (config_map, _pod(image, str(binary.parent))):
            kubernetes.kubectl("create", "--filename=-", stdin=json.dumps(item))
        phase = ("-n", NAMESPACE, "get", "pod", "prometheus", "-o", "jsonpath={.status.phase}")
        until("Prometheus' pod to run", lambda: kubernetes.kubectl(*phase) == "Running", 60)
        found = Prometheus(kubernetes)
        until("Prometheus to answer", lambda: found.query("vector(1)"), 60)
        yield found
    finally:
        kubernetes.kubectl("delete", "namespace", NAMESPACE, "--wait=true", timeout=120)


def _scraped(kubernetes: Kubernetes, monitor: Mapping[str, Any]) -> list[dict[str, Any]]:
    [namespace] = monitor["spec"]["namespaceSelector"]["matchNames"]
    services, slices = (kubernetes.items("-n", namespace, kind) for kind in ("services", "endpointslices"))
    return scrape_configs(monitor, services, slices)


def _pod(image: str, programs: str) -> dict[str, Any]:
    command = [
        *("/programs/prometheus", "--config.file=/etc/prometheus/prometheus.yaml"),
        *("--storage.tsdb.path=/data", "--web.listen-address=:9090"),
    ]
    mounts = {"programs": "/programs", "configuration": "/etc/prometheus", "data": "/data"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        # The NetworkPolicies of the charts admit Prometheus by this label.
        "metadata": {"name": "prometheus", "namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": "prometheus"}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "prometheus",
                    "image": image,
                    "command": command,
                    "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
                }
            ],
            "volumes": [
                {"name": "programs", "hostPath": {"path": programs}},
                {"name": "configuration", "configMap": {"name": "prometheus"}},
                {"name": "data", "emptyDir": {}},
            ],
        },
    }


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()
