"""Debian's Prometheus on the local cluster, with the targets of the charts' ServiceMonitors.

It is a Deployment behind a Service, and reaches its targets by theirs, so that any of them may be
replaced.
"""

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
from tests.cluster.commands import environment
from tests.cluster.errors import ClusterError
from tests.cluster.tools import tool
from tests.support.real.harness import CHARTS, Kubernetes, until

NAMESPACE = "monitoring"
API = "monitoring.coreos.com/v1"
INTERVAL = "1s"
LABELS = {"app.kubernetes.io/name": "prometheus"}
"""The NetworkPolicies of the charts admit Prometheus by this label."""
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
        text = self.kubernetes.execute(
            NAMESPACE, "deploy/prometheus", "", "python3", "-c", _GET, url, repeatable=True
        )
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
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise ClusterError(done.stderr)
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


def scrape_configs(
    monitor: Mapping[str, Any], services: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What the Prometheus operator would have scraped by a ServiceMonitor, as far as those of the
    charts need it.

    `services`: those of its namespace. Debian's Prometheus can't ask Kubernetes, so it scrapes the
    Service and not each of its pods.
    """
    spec, metadata = monitor["spec"], monitor["metadata"]
    wanted = spec["selector"]["matchLabels"].items()
    chosen = [it for it in services if wanted <= (it["metadata"].get("labels") or {}).items()]
    return [
        {
            "job_name": f"serviceMonitor/{metadata['namespace']}/{metadata['name']}/{number}",
            "scrape_interval": INTERVAL,
            "scrape_timeout": INTERVAL,
            "metrics_path": endpoint["path"],
            "scheme": endpoint.get("scheme", "http"),
            "honor_labels": endpoint.get("honorLabels", False),
            "static_configs": [
                {
                    "targets": [
                        f"{it['metadata']['name']}.{it['metadata']['namespace']}.svc.cluster.local:{port['port']}"
                    ],
                    "labels": {
                        "namespace": it["metadata"]["namespace"],
                        "service": it["metadata"]["name"],
                    },
                }
                for it in chosen
                for port in it["spec"]["ports"]
                if port["name"] == endpoint["port"]
            ],
            "relabel_configs": [
                {_snake(key): value for key, value in it.items()}
                for it in endpoint.get("relabelings", ())
            ],
        }
        for number, endpoint in enumerate(spec["endpoints"])
    ]


@contextmanager
def running(kubernetes: Kubernetes, monitors: Sequence[Mapping[str, Any]]) -> Iterator[Prometheus]:
    """Prometheus with the alerts of the chart slurm-exporter, which scrapes these, until the
    end.
    """
    binary = debian.program("prometheus", "prometheus").resolve()
    configuration = {
        "global": {"evaluation_interval": INTERVAL},
        "rule_files": ["/etc/prometheus/rules.yaml"],
        "scrape_configs": [
            config for monitor in monitors for config in _scraped(kubernetes, monitor)
        ],
    }
    files = {
        "prometheus.yaml": json.dumps(configuration),
        "rules.yaml": json.dumps({"groups": rules()}),
    }
    kubernetes.kubectl("create", "namespace", NAMESPACE)
    try:
        metadata = {"name": "prometheus", "namespace": NAMESPACE}
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files}
        ports = [{"name": "web", "port": 9090}]
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": LABELS, "ports": ports},
        }
        for item in (config_map, service, _deployment(image(kubernetes), str(binary.parent))):
            kubernetes.kubectl("create", "--filename=-", stdin=json.dumps(item))
        kubernetes.kubectl(
            "-n", NAMESPACE, "rollout", "status", "deploy/prometheus", "--timeout=120s", timeout=130
        )
        found = Prometheus(kubernetes)
        until("Prometheus to answer", lambda: found.query("vector(1)"))
        yield found
    finally:
        kubernetes.kubectl("delete", "namespace", NAMESPACE, "--wait=true", timeout=120)


def image(kubernetes: Kubernetes) -> str:
    """The operator's image: it has the C library for other programs, and Python for the requests of
    the tests.
    """
    operator = kubernetes.get("-n", "slinky", "deployment", "slurm-operator")
    return str(operator["spec"]["template"]["spec"]["containers"][0]["image"])


def _scraped(kubernetes: Kubernetes, monitor: Mapping[str, Any]) -> list[dict[str, Any]]:
    [namespace] = monitor["spec"]["namespaceSelector"]["matchNames"]
    return scrape_configs(monitor, kubernetes.items("-n", namespace, "services"))


def _deployment(image: str, programs: str) -> dict[str, Any]:
    """`programs`: a folder of this machine, whose files the nodes share."""
    command = [
        *("/programs/prometheus", "--config.file=/etc/prometheus/prometheus.yaml"),
        *("--storage.tsdb.path=/data", "--web.listen-address=:9090"),
    ]
    mounts = {"programs": "/programs", "configuration": "/etc/prometheus", "data": "/data"}
    container = {
        "name": "prometheus",
        "image": image,
        "command": command,
        "ports": [{"name": "web", "containerPort": 9090}],
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": "web"}, "periodSeconds": 1},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }
    spec = {
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [
            {"name": "programs", "hostPath": {"path": programs}},
            {"name": "configuration", "configMap": {"name": "prometheus"}},
            {"name": "data", "emptyDir": {}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "prometheus", "namespace": NAMESPACE},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": spec},
        },
    }


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()
