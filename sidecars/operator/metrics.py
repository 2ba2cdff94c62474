"""The operator's own metrics, for Prometheus; those of Slurm are the exporter's."""

from prometheus_client import Counter, Gauge, Histogram

from sidecars.contract.explained import Explained


class Metric(Explained):
    """The names, with what to do about a value that should not be."""

    QUEUED = (
        "slurm_operator_queue_length",
        "Resources that wait for a pass.",
        "If it grows for minutes, check the operator's CPU and the API server.",
    )
    FAILED = (
        "slurm_operator_passes_failed_total",
        "Passes that ended in an error and are tried again.",
        "If it grows, the operator's log and the conditions `Ready` show the error.",
    )
    UNREADABLE = (
        "slurm_operator_unreadable_namespaces",
        "Watched namespaces in which the operator lacks rights and changes nothing.",
        "If it is not 0, see the reason `Forbidden` of the condition `Ready`.",
    )
    SECONDS = (
        "slurm_operator_pass_seconds",
        "Duration of a pass over one resource.",
        "If it exceeds seconds, check the response times of the API server and of slurmrestd.",
    )


QUEUED = Gauge(Metric.QUEUED.value, Metric.QUEUED.cause, ["kind"])
FAILED = Counter(Metric.FAILED.value, Metric.FAILED.cause, ["kind"])
UNREADABLE = Gauge(Metric.UNREADABLE.value, Metric.UNREADABLE.cause)
SECONDS = Histogram(
    Metric.SECONDS.value,
    Metric.SECONDS.cause,
    ["kind"],
    buckets=(0.001, 0.005, 0.025, 0.1, 0.5, 2.0, 10.0, 60.0),
)
