"""How a ServiceMonitor of the charts is scraped on the local cluster."""

from tests.support.real.prometheus import scrape_configs

MONITOR = {
    "metadata": {"name": "slurm-exporter", "namespace": "slurm"},
    "spec": {
        "namespaceSelector": {"matchNames": ["slurm"]},
        "selector": {"matchLabels": {"app.kubernetes.io/name": "slurm-exporter"}},
        "endpoints": [
            {
                "port": "metrics",
                "path": "/metrics",
                "honorLabels": True,
                "relabelings": [{"targetLabel": "slurm_cluster", "replacement": "blue"}],
            }
        ],
    },
}


def service(name: str, app: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": {"app.kubernetes.io/name": app, "more": "labels"}}}


def endpoint_slice(name: str, **ports: int) -> dict[str, object]:
    return {
        "metadata": {"namespace": "slurm", "labels": {"kubernetes.io/service-name": name}},
        "ports": [{"name": port, "port": number} for port, number in ports.items()],
        "endpoints": [{"addresses": ["10.0.0.7"], "targetRef": {"name": f"{name}-pod"}}],
    }


def test_the_port_of_the_services_with_its_labels_is_scraped_and_relabelled() -> None:
    services = [service("exporter", "slurm-exporter"), service("restapi", "slurmrestd")]
    slices = [endpoint_slice("exporter", metrics=8080, health=8081), endpoint_slice("restapi", metrics=6820)]
    [config] = scrape_configs(MONITOR, services, slices)
    assert config["job_name"] == "serviceMonitor/slurm/slurm-exporter/0"
    assert (config["metrics_path"], config["scheme"], config["honor_labels"]) == ("/metrics", "http", True)
    labels = {"namespace": "slurm", "service": "exporter", "pod": "exporter-pod"}
    assert config["static_configs"] == [{"targets": ["10.0.0.7:8080"], "labels": labels}]
    assert config["relabel_configs"] == [{"target_label": "slurm_cluster", "replacement": "blue"}]
