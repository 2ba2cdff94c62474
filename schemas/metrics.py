"""The page docs/reference/metrics.md: all metrics of the exporter with type, unit, labels and
meaning.
"""

from collections.abc import Iterable

from schemas import markdown
from sidecars.bridge.metrics import Metric as BridgeMetric
from sidecars.exporter.compatible import REFERENCE, VPENSO
from sidecars.exporter.families import OWN
from sidecars.exporter.metrics import Family, Metric

SOURCE = (
    "sidecars/exporter/families.py, sidecars/exporter/compatible.py and sidecars/bridge/metrics.py"
)

_HEAD = """\
This page lists the metrics of `slurm-sidecars exporter`, and at the end those of the
[Slurm Bridge](#metrics-of-the-slurm-bridge). [Metrics of Slurm](../metrics.md) describes how they
are read.

Label values are Slurm's words in lower case, such as `idle` and `not_responding`. A word that the
exporter doesn't know counts as `unrecognized`. A counter starts again at 0 when slurmctld resets
its statistics, which it does every night at 00:00 UTC. `rate()` and `increase()` allow for that."""

_OTHERS = """\
Values and units are those of the other exporter. Switch these names on with
`EXPORTER_NAME_SETS`."""

_BRIDGE = """\
The [Slurm Bridge](../bridge.md) serves them itself, at `/metrics` on the port of its health.
Counters begin at 0 at its start."""


def page() -> str:
    """Return the page."""
    return markdown.page(
        SOURCE,
        [
            "# Metrics of Slurm: reference",
            _HEAD,
            *(part for family in Family for part in _family(family)),
            "## Names of SchedMD's slurm-exporter",
            f"{_OTHERS} All are gauges, also those whose names end in `_total`.",
            _table(REFERENCE),
            "## Names of vpenso's prometheus-slurm-exporter",
            f"{_OTHERS} `slurm_account_fairshare` is missing.",
            _table(VPENSO),
            "## Metrics of the Slurm Bridge",
            _BRIDGE,
            markdown.explained("metric", BridgeMetric),
        ],
    )


def _family(family: Family) -> Iterable[str]:
    yield f"## Family {family.value}"
    yield _MEANINGS[family]
    yield _table(metric for metric in OWN if metric.family is family)


_MEANINGS = {
    Family.NODES: "Totals of all nodes.",
    Family.CHECKS: "Results of the [checks that run](../checks.md) as Slurm jobs, if the cluster "
    "has any.",
    Family.NODE: "Each node on its own.",
    Family.PARTITIONS: "Each partition: its nodes and its jobs.",
    Family.JOBS: "Totals of all jobs.",
    Family.USERS: "Jobs and resources of each user.",
    Family.ACCOUNTS: "Jobs and resources of each account.",
    Family.JOB: "Each running and pending job on its own, up to `EXPORTER_MAX_JOBS` of them. Off "
    "by default.",
    Family.SCHEDULER: "slurmctld: main scheduler, backfill, threads and queues.",
    Family.RPCS: "Requests to slurmctld by type and by user.",
    Family.LICENSES: "Licenses.",
    Family.RESERVATIONS: "Reservations.",
    Family.AUTOSCALING: "What [autoscaling](../autoscaling.md) wants for the NodeSets of "
    "`EXPORTER_NODESETS`.",
    Family.EXPORTER: "The exporter itself. These metrics are always on.",
}


def _table(metrics: Iterable[Metric]) -> str:
    rows = [
        f"| `{metric.name}` | {metric.kind} | {metric.unit} | "
        f"{', '.join(f'`{label}`' for label in metric.labels)} | {metric.help} |"
        for metric in metrics
    ]
    return "\n".join(
        ["| metric | type | unit | labels | meaning |", "|---|---|---|---|---|", *rows]
    )
