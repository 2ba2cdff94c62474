"""What was read of a Slurm cluster on Kubernetes, and the answer. Times are seconds since the
epoch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecars.slurm.details import JobDetail, PartitionDetail
    from sidecars.slurm.records import Node, Reservation
    from sidecars.slurm.usage import License

_LINK = re.compile(r"\[([^]]*)\]\((?:\.\./)?([^)]*)\)")
CONDITIONS = "reference/conditions.md"
"""The page of the documentation to which a remedy without a page in its link belongs."""
Object = dict[str, Any]
"""A Kubernetes object, as the API server returned it."""


class Level(StrEnum):
    """How much a finding matters, the most first."""

    BLOCKS = "blocks"
    """Nothing changes without a remedy."""
    WAITS = "waits"
    """It ends without a remedy."""
    WARNS = "warns"
    """It stops nothing now, and may later."""
    SHOWS = "shows"
    """A fact that helps."""


RANK = {level: number for number, level in enumerate(Level)}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found."""

    code: str
    """A stable word: Slurm's or Kubernetes' own reason where one exists. "" for one of `doctor
    gres`.
    """
    level: Level
    about: str
    """`job 12`, `node gpu-0`, `pod slurm/gpu-0`, …"""
    cause: str
    remedy: str = ""
    commands: tuple[str, ...] = ()
    """Commands that apply the remedy."""
    event: str = ""
    """What happens next without a remedy; "" where nothing does."""
    at: float | None = None
    """When; None while unknown."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A part that could not be read."""

    part: str
    """What the answer lacks."""
    why: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Moment:
    """An entry of a timeline."""

    at: float
    what: str
    source: str
    """`Slurm`, or the object whose Event it is."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question."""

    about: str
    state: str
    """In one line."""
    findings: tuple[Finding, ...] = ()
    """Ranked: what blocks first."""
    would_start: tuple[str, ...] = ()
    """Changes with each of which the job would start now."""
    timeline: tuple[Moment, ...] = ()
    missing: tuple[Missing, ...] = ()
    known: bool = True
    """Whether the object exists, as far as was read."""

    @property
    def next_event(self) -> Finding | None:
        """The finding whose event comes first; one without a time only if no other has one."""
        events = [it for it in self.findings if it.event]
        timed = [it for it in events if it.at is not None]
        return min(timed, key=lambda it: it.at or 0.0) if timed else next(iter(events), None)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pending job of a queue."""

    job: str
    priority: int
    user: str = ""
    reason: str = ""
    partitions: tuple[str, ...] = ()
    """() where it wasn't read."""


@dataclass(frozen=True, slots=True)
class Ending:
    """A job with resources, and when it ends at the latest."""

    job: str
    at: float | None
    user: str = ""
    nodes: str = ""
    partition: str = ""
    """"" where it wasn't read."""


@dataclass(frozen=True, slots=True)
class Qos:
    """How jobs of a QOS are preempted."""

    name: str
    preempt_mode: str
    """As `suspend`; `cluster` for that of the whole cluster."""
    grace_time: str
    """As `00:00:30`."""


@dataclass(frozen=True, slots=True)
class Slurm:
    """What Slurm reported. None: it was not read, see `Seen.missing`."""

    jobs: tuple[JobDetail, ...] | None = None
    """The records of the one job that was asked for; () if Slurm has no such job."""
    nodes: tuple[Node, ...] | None = None
    partitions: tuple[PartitionDetail, ...] | None = None
    reservations: tuple[Reservation, ...] | None = None
    licenses: tuple[License, ...] | None = None
    config: Mapping[str, str] | None = None
    """`scontrol show config`, by lower-case key."""
    limits: str | None = None
    """`scontrol -o show assoc_mgr`."""
    qos: tuple[Qos, ...] | None = None
    """None also without slurmdbd."""
    waiting: tuple[Waiting, ...] | None = None
    """Pending jobs of all partitions, in the order of their priority; the last ones may lack."""
    running: tuple[Ending, ...] | None = None
    """Jobs with resources, the first to end first; the last ones may lack."""

    @property
    def scheduler_parameters(self) -> dict[str, str]:
        """SchedulerParameters by lower-case name, with "" for one without a value."""
        words = (self.config or {}).get("schedulerparameters", "").lower().split(",")
        return dict(it.strip().partition("=")[::2] for it in words if it.strip())


@dataclass(frozen=True, slots=True)
class Kube:
    """What Kubernetes reported of the namespace. None: it was not read."""

    controllers: tuple[Object, ...] | None = None
    nodesets: tuple[Object, ...] | None = None
    resources: tuple[Object, ...] | None = None
    """The other custom resources: Accountings, RestApis, LoginSets, Tokens."""
    pods: tuple[Object, ...] | None = None
    """Of a large cluster perhaps not all workers that run; those that don't run, and other pods,
    are complete.
    """
    kube_nodes: tuple[Object, ...] | None = None
    """Those that matter."""
    absent_kube_nodes: frozenset[str] = frozenset()
    """Names of Kubernetes nodes that were looked for and don't exist."""
    events: tuple[Object, ...] | None = None
    quotas: tuple[Object, ...] | None = None
    check_results: tuple[Object, ...] | None = None
    """The ConfigMaps to which checks write the results of their last runs."""
    workloads: tuple[Object, ...] | None = None
    """The Deployments of the operator."""
    guarded: tuple[Object, ...] | None = None
    """The pods of the guard that was asked for, while its nodes wait for them."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that was read."""

    now: float
    namespace: str = "slurm"
    slurm: Slurm = field(default_factory=Slurm)
    kube: Kube = field(default_factory=Kube)
    missing: tuple[Missing, ...] = ()
    exec_in: str = ""
    """What a command for Slurm begins with: `kubectl -n slurm exec slurm-controller-0 -c slurmctld
    --`.
    """
    slurm_namespace: str = ""
    """The namespace of the Slurm cluster that schedules the pod which was asked for; "" for any
    other question.
    """
    tenants: tuple[str, str] | None = None
    """Namespace and name of the ConfigMap with the tenants of the Slurm Bridge. None: not asked
    for, or not found.
    """
    bridge_events: tuple[Object, ...] = ()
    """The Events of the bridge about RoleBindings, for a pod of which it has reported nothing."""

    def command(self, words: str) -> str:
        """Return a command of Slurm as the user types it."""
        return f"{self.exec_in} {words}".strip()


def ranked(findings: list[Finding]) -> tuple[Finding, ...]:
    """Return the findings without repetitions, the most important first, and within a level in the
    given order.
    """
    return tuple(sorted(dict.fromkeys(findings), key=lambda it: RANK[it.level]))


def plain(markdown: str) -> str:
    """Return a sentence of the documentation as it is printed: without links and code marks."""
    text = _LINK.sub(r"\1 (docs/\2)", markdown).replace("`", "")
    return text.replace("(docs/#", f"(docs/{CONDITIONS}#")
