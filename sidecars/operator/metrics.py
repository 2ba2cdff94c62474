"""The operator's own metrics, for Prometheus; those of Slurm are the exporter's."""

from prometheus_client import Counter, Gauge, Histogram

QUEUED = Gauge("slurm_operator_queue_length", "Resources that wait for a pass.", ["kind"])
FAILED = Counter("slurm_operator_passes_failed", "Passes that ended in an error and are tried again.", ["kind"])
UNREADABLE = Gauge(
    "slurm_operator_unreadable_namespaces", "Watched namespaces in which the operator lacks rights and changes nothing."
)
SECONDS = Histogram(
    "slurm_operator_pass_seconds",
    "Duration of a pass over one resource.",
    ["kind"],
    buckets=(0.001, 0.005, 0.025, 0.1, 0.5, 2.0, 10.0, 60.0),
)
