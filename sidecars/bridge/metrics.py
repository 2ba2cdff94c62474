"""The bridge's own metrics, for Prometheus. No label has the name of a pod, of a job or of a
user.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from sidecars.contract.explained import Explained


class Metric(Explained):
    """The names, with what to do about a value that should not be."""

    WAITING = (
        "slurm_bridge_pods_waiting",
        (
            "Pods that wait, by `reason`, that of their condition `slinky.slurm.net/Queued`, and "
            "by `cause`, the class of Slurm's reason: `Resources`, `Priority`, `Limit`, "
            "`Dependency`, `BeginTime`, `Licenses`, `Reservation`, `Partition`, `NotReleased`, "
            "`Nodes` or `Other`. The cause is empty without a pending job."
        ),
        (
            "If pods wait with `Refused` or `JobUnknown`, `kubectl slurm explain pod` shows the "
            "remedy."
        ),
    )
    JOBS = (
        "slurm_bridge_jobs",
        (
            "Placeholder jobs by phase: `submitted` (it may not start yet), `pending`, `starting`, "
            "`running` or `stopped` (suspended)."
        ),
        (
            "If jobs are submitted for minutes, or stopped, see the bridge's log and PreemptMode "
            "of the partition."
        ),
    )
    NODES = (
        "slurm_bridge_nodes",
        (
            "Kubernetes nodes for Slurm by state of their record: `in_service`, `drained`, "
            "`missing` (not created yet) or `refused` (it can't have one)."
        ),
        (
            "If nodes are drained, `sinfo -R` shows the reasons. If nodes are refused, see their "
            "Events."
        ),
    )
    ANSWER_AGE = (
        "slurm_bridge_answer_age_seconds",
        (
            "Time since Slurm last gave the bridge a good answer about its jobs. Absent before the "
            "first."
        ),
        (
            "If it exceeds a minute, no pod is submitted, released or deleted: see the bridge's "
            "log and slurmrestd."
        ),
    )
    WAIT_SECONDS = (
        "slurm_bridge_wait_seconds",
        "Time from the creation of a pod to its release.",
        "If it grows, the queue of the partition is long: `kubectl slurm top` shows it.",
    )
    BIND_SECONDS = (
        "slurm_bridge_bind_seconds",
        "Time from the release of a pod until the scheduler of Kubernetes has bound it.",
        (
            "If it exceeds seconds, check the kube-scheduler. If it exceeds minutes, jobs are "
            "cancelled."
        ),
    )
    NOT_BOUND = (
        "slurm_bridge_not_bound_total",
        "Jobs that were cancelled because the scheduler could not bind a released pod within 15 s.",
        "If it grows, the Events `NotBound` of the pods quote the scheduler.",
    )
    REFUSED = (
        "slurm_bridge_submit_errors_total",
        (
            "Submissions that failed, by `cause`: `Rejected` by Slurm, `AuthenticationError`, "
            "`NoToken` (the key can't be read), `NotFound`, `ServerFault`, `Malformed`, or "
            "`Unreachable`."
        ),
        "If it grows, the conditions of the pods with the reason `Refused` quote Slurm.",
    )
    ENDED = (
        "slurm_bridge_pods_ended_total",
        (
            "Pods that were deleted because their job had ended, by the job's `state`, such as "
            "`CANCELLED`, `TIMEOUT`, `PREEMPTED` or `NODE_FAIL`."
        ),
        "If it grows with `NODE_FAIL`, see the nodes of the partition.",
    )
    EVENTS_DROPPED = (
        "slurm_bridge_events_dropped_total",
        (
            "Events of pods that were dropped because too many waited while many pods started or "
            "ended. None is a Warning."
        ),
        (
            "If it grows, the timelines of `kubectl slurm explain pod` lack entries. Nothing else "
            "does."
        ),
    )
    UNWRITABLE = (
        "slurm_bridge_unwritable_namespaces",
        (
            "Namespaces of tenants with pods that wait, in which the bridge may not change pods, "
            "or can't find out."
        ),
        "If it is not 0, the bridge's log has the command that creates the RoleBinding.",
    )
    SECONDS = (
        "slurm_bridge_pass_seconds",
        "Duration of a pass: read Slurm's jobs, decide, apply.",
        "If it exceeds seconds, check the response times of the API server and of slurmrestd.",
    )
    CERTIFICATE = (
        "slurm_bridge_webhook_certificate_expiry_timestamp_seconds",
        (
            "When the certificate of the admission webhook ends. Absent without a webhook, and "
            "before the first one."
        ),
        (
            "If it is less than 100 days ahead, the bridge can't renew it: see its log. When it "
            "ends, pods are refused."
        ),
    )


class Source(Protocol):
    """What is counted at the time of a scrape."""

    def waiting(self) -> Mapping[tuple[str, str], int]:
        """Count the pods by reason and cause."""

    def phases(self) -> Mapping[str, int]:
        """Count the jobs by phase."""

    def node_states(self) -> Mapping[str, int]:
        """Count the Kubernetes nodes by the state of their record."""

    def answer_age(self) -> float | None:
        """Return the seconds since Slurm's last good answer, None before the first."""


_WAITS = (1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 43_200.0, 172_800.0)
WAIT_SECONDS = Histogram(Metric.WAIT_SECONDS.value, Metric.WAIT_SECONDS.cause, buckets=_WAITS)
BIND_SECONDS = Histogram(
    Metric.BIND_SECONDS.value,
    Metric.BIND_SECONDS.cause,
    buckets=(0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0),
)
SECONDS = Histogram(
    Metric.SECONDS.value,
    Metric.SECONDS.cause,
    buckets=(0.001, 0.005, 0.025, 0.1, 0.5, 2.0, 10.0, 60.0),
)
EVENTS_DROPPED = Counter(Metric.EVENTS_DROPPED.value, Metric.EVENTS_DROPPED.cause)
UNWRITABLE = Gauge(Metric.UNWRITABLE.value, Metric.UNWRITABLE.cause)
NOT_BOUND = Counter(Metric.NOT_BOUND.value, Metric.NOT_BOUND.cause)
REFUSED = Counter(Metric.REFUSED.value, Metric.REFUSED.cause, ["cause"])
ENDED = Counter(Metric.ENDED.value, Metric.ENDED.cause, ["state"])


class Reported(Collector):
    """What the bridge knows at the time of a scrape."""

    def __init__(self) -> None:
        self.source: Source | None = None
        """None before the bridge leads."""
        self.certificate: float | None = None
        """When the certificate of the webhook ends, in seconds since the epoch; None if none is
        known.
        """

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Describe no metric, so that nothing is collected when this is registered."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families, as pods, jobs and nodes are now. None before the bridge leads."""
        source = self.source
        if source is None:
            return
        yield _family(Metric.WAITING, ["reason", "cause"], source.waiting().items())
        for metric, label, counts in (
            (Metric.JOBS, "phase", source.phases()),
            (Metric.NODES, "state", source.node_states()),
        ):
            yield _family(metric, [label], (((name,), count) for name, count in counts.items()))
        age = source.answer_age()
        yield _family(Metric.ANSWER_AGE, [], [] if age is None else [((), age)])
        yield _family(
            Metric.CERTIFICATE, [], [] if self.certificate is None else [((), self.certificate)]
        )


def _family(
    metric: Metric, labels: list[str], values: Iterable[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(metric.value, metric.cause, labels=labels)
    for names, value in values:
        family.add_metric(list(names), value)
    return family


REPORTED = Reported()
REGISTRY.register(REPORTED)
