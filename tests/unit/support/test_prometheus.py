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


def service(name: str, app: str, **ports: int) -> dict[str, object]:
    return {
        "metadata": {
            "name": name,
            "namespace": "slurm",
            "labels": {"app.kubernetes.io/name": app, "more": "labels"},
        },
        "spec": {"ports": [{"name": port, "port": number} for port, number in ports.items()]},
    }


def test_the_port_of_the_services_with_its_labels_is_scraped_and_relabelled() -> None:
    exporter = service("exporter", "slurm-exporter", metrics=8080, health=8081)
    [config] = scrape_configs(MONITOR, [exporter, service("restapi", "slurmrestd", metrics=6820)])
    assert config["job_name"] == "serviceMonitor/slurm/slurm-exporter/0"
    assert (config["metrics_path"], config["scheme"], config["honor_labels"]) == (
        "/metrics",
        "http",
        True,
    )
    labels = {"namespace": "slurm", "service": "exporter"}
    target = "exporter.slurm.svc.cluster.local:8080"
    assert config["static_configs"] == [{"targets": [target], "labels": labels}]
    assert config["relabel_configs"] == [{"target_label": "slurm_cluster", "replacement": "blue"}]
