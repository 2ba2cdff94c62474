"""The work queues of the operator."""

import random
from dataclasses import dataclass, field, fields
from typing import Self

from sidecars.kube import WorkQueue

Key = tuple[str, str]
"""Namespace and name of an object."""


@dataclass(slots=True)
class Queues:
    """One queue per kind, keyed by namespace and name. All Kubernetes nodes share one key."""

    controllers: WorkQueue[Key] = field(default_factory=WorkQueue)
    restapis: WorkQueue[Key] = field(default_factory=WorkQueue)
    loginsets: WorkQueue[Key] = field(default_factory=WorkQueue)
    nodesets: WorkQueue[Key] = field(default_factory=WorkQueue)
    pods: WorkQueue[Key] = field(default_factory=WorkQueue)
    """Worker pods."""
    accountings: WorkQueue[Key] = field(default_factory=WorkQueue)
    tokens: WorkQueue[Key] = field(default_factory=WorkQueue)
    kube_nodes: WorkQueue[Key] = field(default_factory=WorkQueue)
    declared_accounts: WorkQueue[Key] = field(default_factory=WorkQueue)
    """Controllers, for what they declare for slurmdbd."""
    declared_users: WorkQueue[Key] = field(default_factory=WorkQueue)
    """Controllers, for the users that they declare for their pods."""
    autoscaling: WorkQueue[Key] = field(default_factory=WorkQueue)
    """Controllers, for all of their NodeSets that are scaled."""

    @classmethod
    def of(cls, rng: random.Random | None) -> Self:
        """Empty queues, whose retries `rng` spreads."""
        return cls(**{each.name: WorkQueue(rng=rng) for each in fields(cls)})
