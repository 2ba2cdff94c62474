"""The parts that every reconciler works with."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sidecars.kube import Client, Event, EventRecorder, Expectations, Manifest, identity
from sidecars.operator.runtime.apply import Applier
from sidecars.operator.runtime.caches import Caches
from sidecars.operator.runtime.clusters import Clusters
from sidecars.operator.runtime.contents import Contents
from sidecars.operator.runtime.kept import Kept
from sidecars.operator.runtime.lookup import Lookup
from sidecars.operator.runtime.notices import Notices
from sidecars.operator.runtime.own_writes import OwnWrites
from sidecars.operator.runtime.queues import Key, Queues
from sidecars.operator.runtime.status import StatusWriter
from sidecars.operator.runtime.switches import Switches
from sidecars.operator.settings import Settings
from sidecars.policy.conditions import Condition
from sidecars.workloads.facts import Site


@dataclass(frozen=True, slots=True)
class Runtime:
    """The operator's parts, the same for all kinds."""

    client: Client
    settings: Settings
    site: Site
    caches: Caches
    contents: Contents
    lookup: Lookup
    clusters: Clusters
    queues: Queues
    applier: Applier
    own_writes: OwnWrites
    status: StatusWriter
    events: EventRecorder
    expectations: Expectations[Key]
    """Creations and deletions of worker pods that the cache must show before more are sent, by
    NodeSet.
    """
    now: Callable[[], float]
    """Seconds since the epoch."""
    autoscaled: dict[tuple[str, Key], Condition] = field(default_factory=dict)
    """What autoscaling reports about an object, by its kind and key, for the pass that writes the
    object's status.
    """

    accounts: dict[Key, Condition] = field(default_factory=dict)
    """The condition of the declared accounts of a Controller, likewise."""

    users: dict[Key, Condition] = field(default_factory=dict)
    """The condition of the declared users of a Controller, likewise."""

    users_settle: dict[Key, tuple[str, float]] = field(default_factory=dict)
    """By Controller that declares users: the digest of the declaration and when its pods have them,
    by `now`.
    """

    users_awaited: dict[Key, float] = field(default_factory=dict)
    """By Controller whose Secret with users exists without its key: since when its accounts wait
    for them, by `now`.
    """

    kept: Kept = field(default_factory=Kept)
    """Changes of workloads that are not applied."""

    notices: Notices = field(default_factory=Notices)
    """What node autoscalers report about worker pods."""

    switches: Switches = field(default_factory=Switches)
    """Where the switches of topologies are."""

    def forget_deleted(self) -> None:
        """Have what is remembered of an object dropped when it is deleted. Call it once, before the
        reflectors run.
        """
        for reflector in self.caches.custom_resources():
            reflector.store.subscribe(self._forget_writes)
        for kind, applied in self.caches.applied().items():
            applied.store.subscribe(partial(self._forget_applied, kind))

    def _forget_writes(self, event: Event[Manifest]) -> None:
        if event.new is None:
            self.own_writes.forget(event.object)

    def _forget_applied(self, kind: str, event: Event[Any]) -> None:
        if event.new is None:
            key = identity(event.object).key
            self.applier.forget(kind, key.namespace, key.name)
            self.kept.forget(kind, key.namespace, key.name)
