"""The operator's own metrics, for Prometheus; those of Slurm are the exporter's."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from sidecars.contract.explained import Explained

if TYPE_CHECKING:
    from sidecars.kube import Manifest, Store


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
    CONDITION = (
        "slurm_operator_condition",
        "The value is 1 for each condition of each custom resource, with its status and reason.",
        "If the status is not the desired one, look up the reason on this page.",
    )
    PODS = (
        "slurm_operator_nodeset_pods",
        "Pods of a NodeSet: `desired`, and those that are `ready` and `updated`.",
        (
            "If fewer pods are ready than desired for minutes, see the condition `Ready` of the "
            "NodeSet."
        ),
    )
    SLURM_NODES = (
        "slurm_operator_nodeset_slurm_nodes",
        "Slurm nodes of a NodeSet: `idle`, `allocated`, `down` and `drain`.",
        "If nodes are down or drained for long, `sinfo -R` shows the reasons.",
    )
    POLL_AGE = (
        "slurm_operator_poll_age_seconds",
        (
            "Time since slurmrestd last gave the operator a good answer, of each Controller. "
            "Absent before the first."
        ),
        "If it exceeds a minute, see the condition `SlurmReachable` of the Controller.",
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

_PODS = {"desired": "desired", "ready": "readyReplicas", "updated": "updatedReplicas"}
_SLURM_NODES = {
    "idle": "slurmIdle",
    "allocated": "slurmAllocated",
    "down": "slurmDown",
    "drain": "slurmDrain",
}


class Reported(Collector):
    """What the custom resources report in their status at the time of a scrape."""

    def __init__(self) -> None:
        self.stores: Sequence[Store[Manifest]] = ()
        """Those of the custom resources. None before the operator leads."""
        self.poll_ages: Callable[[], Mapping[tuple[str, str], float]] = dict
        """Seconds since the last good answer of slurmrestd, by namespace and name of the
        Controller.
        """

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Describe no metric, so that nothing is collected when this is registered."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families, as the resources and the polls are now."""
        labels = ["kind", "namespace", "name", "type", "status", "reason"]
        conditions = GaugeMetricFamily(
            Metric.CONDITION.value, Metric.CONDITION.cause, labels=labels
        )
        pods = GaugeMetricFamily(
            Metric.PODS.value, Metric.PODS.cause, labels=["namespace", "nodeset", "state"]
        )
        nodes = GaugeMetricFamily(
            Metric.SLURM_NODES.value,
            Metric.SLURM_NODES.cause,
            labels=["namespace", "nodeset", "state"],
        )
        for manifest in (manifest for store in self.stores for manifest in store.values()):
            place = (manifest["metadata"]["namespace"], manifest["metadata"]["name"])
            status = manifest.get("status") or {}
            for condition in status.get("conditions") or ():
                what = (condition["type"], condition["status"], condition.get("reason", ""))
                conditions.add_metric([manifest["kind"], *place, *what], 1)
            if manifest["kind"] == "NodeSet":
                for family, fields in ((pods, _PODS), (nodes, _SLURM_NODES)):
                    for state, field in fields.items():
                        family.add_metric([*place, state], status.get(field) or 0)
        ages = GaugeMetricFamily(
            Metric.POLL_AGE.value, Metric.POLL_AGE.cause, labels=["namespace", "controller"]
        )
        for controller, age in self.poll_ages().items():
            ages.add_metric([*controller], age)
        yield from (conditions, pods, nodes, ages)


REPORTED = Reported()
REGISTRY.register(REPORTED)
