"""The reasons of our conditions and Events, each with its cause and remedy.

`Condition` and `Deletion` accept these words alone, so that docs/reference/conditions.md lists all
of them. A class per condition type: two types may use one word for two things.
"""

from sidecars.policy.reasons.accounts import AccountsApplied
from sidecars.policy.reasons.autoscaling import Autoscaled, JobsCounted, NotCounted
from sidecars.policy.reasons.base import Reason
from sidecars.policy.reasons.configuration import ConfigurationAccepted, ConfigurationRunning
from sidecars.policy.reasons.events import EventReason
from sidecars.policy.reasons.others import (
    PartitionsReleased,
    PowerSaving,
    RecordsReleased,
    ReservationCreated,
    ServiceMonitor,
    SlurmKey,
    SlurmReachable,
    StartGated,
)
from sidecars.policy.reasons.pods import Mark, SlurmNodeState
from sidecars.policy.reasons.ready import Ready
from sidecars.policy.reasons.users import UsersApplied

CONDITION_TYPES: tuple[type[Reason], ...] = (
    Ready,
    ConfigurationAccepted,
    ConfigurationRunning,
    StartGated,
    SlurmKey,
    SlurmReachable,
    PartitionsReleased,
    RecordsReleased,
    ReservationCreated,
    ServiceMonitor,
    AccountsApplied,
    UsersApplied,
    Autoscaled,
    JobsCounted,
    PowerSaving,
)
"""The name of each class is the type of the condition."""

__all__ = [
    "CONDITION_TYPES",
    "AccountsApplied",
    "Autoscaled",
    "ConfigurationAccepted",
    "ConfigurationRunning",
    "EventReason",
    "JobsCounted",
    "Mark",
    "NotCounted",
    "PartitionsReleased",
    "PowerSaving",
    "Ready",
    "Reason",
    "RecordsReleased",
    "ReservationCreated",
    "ServiceMonitor",
    "SlurmKey",
    "SlurmNodeState",
    "SlurmReachable",
    "StartGated",
    "UsersApplied",
]
