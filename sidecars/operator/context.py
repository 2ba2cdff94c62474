"""What every reconciler works with, and the few steps that all kinds share: status, finalizers, lookups."""

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, Self, TypeVar

from sidecars.kube import (
    Client,
    EventRecorder,
    Expectations,
    Manifest,
    NotFound,
    Resource,
    Store,
    WorkQueue,
    boottime,
    identity,
    records,
)
from sidecars.operator.apply import FIELD_MANAGER, MANAGED_BY, Applier
from sidecars.operator.caches import Caches
from sidecars.operator.clusters import Clusters, Connect
from sidecars.operator.controller import failover, statuses
from sidecars.operator.controller.failover import Primaries
from sidecars.operator.controller.statuses import Statuses
from sidecars.policy import conditions
from sidecars.policy.conditions import Condition
from sidecars.policy.nodeset.failures import Failures
from sidecars.policy.nodeset.records import WorkerPod
from sidecars.policy.placement import Rules
from sidecars.slurm.client import Client as SlurmClient
from sidecars.slurm.client import ready as slurm_ready
from sidecars.workloads import names, resources, restapi
from sidecars.workloads.config import CONFIG_MAPS
from sidecars.workloads.facts import Facts, Site, config_map_contents, digest

log = logging.getLogger(__name__)
T = TypeVar("T")
V = TypeVar("V")

Key = tuple[str, str]
"""Namespace and name of a custom resource."""

LEASE = "slurm-operator"
"""Name of the Lease that the leading operator holds."""

IN_USE = "slinky.slurm.net/in-use"
"""Finalizer of a Controller and a RestApi: held while a NodeSet needs them to drain its nodes."""

WORKERS_LEAVE_FIRST = "nodeset.slinky.slurm.net/workers"
"""Finalizer of a NodeSet: held until its workers are drained and gone."""


class NotUsableError(Exception):
    """A custom resource can't be acted upon now. `reason` and the text become its condition `Ready`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(slots=True)
class Queues:
    """One queue per kind, keyed by namespace and name; of all Kubernetes nodes together, with one key."""

    controllers: WorkQueue[Key] = field(default_factory=WorkQueue)
    restapis: WorkQueue[Key] = field(default_factory=WorkQueue)
    loginsets: WorkQueue[Key] = field(default_factory=WorkQueue)
    nodesets: WorkQueue[Key] = field(default_factory=WorkQueue)
    pods: WorkQueue[Key] = field(default_factory=WorkQueue)
    accountings: WorkQueue[Key] = field(default_factory=WorkQueue)
    tokens: WorkQueue[Key] = field(default_factory=WorkQueue)
    machines: WorkQueue[Key] = field(default_factory=WorkQueue)

    @classmethod
    def of(cls, rng: random.Random | None) -> Self:
        """Empty queues, whose retries `rng` spreads."""
        return cls(**{each.name: WorkQueue(rng=rng) for each in fields(cls)})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the operator takes from the process that it runs in: clocks, the way to slurmrestd and to the slurmctld
    pods, randomness.

    `clock` is monotonic seconds that count suspend, so that what was known before is old afterwards; `wall_clock` is
    seconds since the epoch.
    """

    clock: Callable[[], float] = boottime
    wall_clock: Callable[[], float] = time.time
    connect: Connect = SlurmClient
    fetch_status: statuses.Fetch = statuses.fetch
    ask_ready: failover.Ready = slurm_ready
    rng: random.Random | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """What the policy was last told of a pod, and from which records."""

    pod: records.Pod
    node: records.Node | None
    min_ready_seconds: int
    seen: WorkerPod

    def holds(self, pod: records.Pod, node: records.Node | None, min_ready_seconds: int) -> bool:
        """Whether it is still true: nothing but time makes a ready pod available."""
        same = self.pod is pod and self.node is node and self.min_ready_seconds == min_ready_seconds
        return same and (self.seen.available or not self.seen.ready)


@dataclass(slots=True)
class Memory:
    """What is remembered of one NodeSet from pass to pass. Times are seconds since the epoch.

    `rules`: where its pods may run, None in StatefulSet mode; `failures`: by the name of the pod; `observed`: by its
    uid; `creating`: some pods have just been made and others are still to be made; `urgent`: since the pass began, its
    spec has changed or a machine that it uses; `coming_until`: until when at the latest pods that were made are waited
    for; `come`: how many were ready at the most meanwhile; `unshown`: pods that show their state in Slurm when both are
    over; `orphaned_since`: since when a Slurm node's record has no pod, by its name; `absent_since`: since when Slurm
    doesn't know a running pod, by its uid; `going`, `going_since`: the partitions that are to go, and since when it is
    just these; `closed_since`: since when those of them that are closed are known to be. The last two by the poller's
    clock.
    """

    rules: Rules | None = None
    failures: dict[str, Failures] = field(default_factory=dict)
    observed: dict[str, Observed] = field(default_factory=dict)
    creating: bool = False
    urgent: bool = False
    coming_until: float = 0.0
    come: int = 0
    unshown: set[Key] = field(default_factory=set)
    orphaned_since: dict[str, float] = field(default_factory=dict)
    absent_since: dict[str, float] = field(default_factory=dict)
    going: Sequence[str] = ()
    going_since: float = 0.0
    closed_since: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Reported:
    """Our status writes of one object, by its uid: the last that was answered, and the one that is under way.

    `version`: the resourceVersion that the answer told; 0 before the first.
    """

    uid: str
    version: int = 0
    status: Mapping[str, Any] | None = None
    coming: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Context:
    """The operator's parts. `now` is seconds since the epoch."""

    client: Client
    caches: Caches
    clusters: Clusters
    queues: Queues
    applier: Applier
    statuses: Statuses
    primaries: Primaries
    events: EventRecorder
    site: Site
    expectations: Expectations[Key] = field(default_factory=Expectations)
    slurmrestd_url: str | None = None
    propagated_node_conditions: tuple[str, ...] = ()
    cordon_drained_nodes: bool = False
    namespaces: tuple[str, ...] = ()
    now: Callable[[], float] = time.time
    remembered: dict[Key, Memory] = field(default_factory=dict)
    nudged: dict[Key, str] = field(default_factory=dict)
    walks: dict[Key, Any] = field(default_factory=dict)
    _controllers: dict[Key, tuple[Manifest, resources.Controller]] = field(default_factory=dict)
    _reported: dict[tuple[str, Key], _Reported] = field(default_factory=dict)

    def memory(self, key: Key) -> Memory:
        """What is remembered of a NodeSet that there is; nothing at first."""
        return self.remembered.setdefault(key, Memory())

    def controller(self, namespace: str, name: str) -> resources.Controller | None:
        """The Controller of that name; None if there is none. Raises ResourceError for one that can't be read."""
        manifest = self.caches.controllers.store.get(namespace, name)
        if manifest is None:
            self._controllers.pop((namespace, name), None)
            return None
        known = self._controllers.get((namespace, name))
        # Each poll of its Slurm asks for its key, and most of them are all that goes on.
        if known is None or known[0] is not manifest:
            known = self._controllers[namespace, name] = manifest, resources.read(resources.Controller, manifest)
        return known[1]

    def needed_controller(self, namespace: str, name: str) -> resources.Controller:
        """The Controller that a controllerRef names. Raises NotUsableError if there is none, ResourceError."""
        controller = self.controller(namespace, name)
        if controller is None:
            said = f"spec.controllerRef: there is no Controller {name!r} in {namespace!r}"
            raise NotUsableError("ControllerMissing", said)
        return controller

    def nodesets_of(self, namespace: str, controller: str) -> list[resources.NodeSet]:
        """The NodeSets that refer to the Controller, by name; unreadable ones are left out and logged."""
        return sorted(
            _readable(self.caches.nodesets.store.values(), resources.NodeSet, namespace, controller),
            key=lambda nodeset: nodeset.name,
        )

    def loginsets_of(self, namespace: str, controller: str) -> list[resources.LoginSet]:
        """The LoginSets that refer to the Controller; unreadable ones are left out and logged."""
        return _readable(self.caches.loginsets.store.values(), resources.LoginSet, namespace, controller)

    def users_of(self, namespace: str, controller: str) -> list[str]:
        """Names of the NodeSets that refer to the Controller, readable or not."""
        nodesets = self.caches.nodesets.store.values()
        return sorted(item["metadata"]["name"] for item in nodesets if controller_of(item) == (namespace, controller))

    def restapi_of(self, namespace: str, controller: str) -> resources.RestApi | None:
        """The RestApi that serves the Controller: the oldest, then the first by name; None if there is none."""
        found = _readable(self.caches.restapis.store.values(), resources.RestApi, namespace, controller)
        return min(found, key=lambda restapi: (str(restapi.metadata.creation_timestamp), restapi.name), default=None)

    def url(self, served_by: resources.RestApi | None) -> str | None:
        """Where slurmrestd answers; None without a RestApi."""
        return None if served_by is None else self.slurmrestd_url or restapi.url(served_by)

    def facts(self, controller: resources.Controller) -> Facts:
        """What surrounds the Controller at this moment."""
        namespace = controller.namespace
        accounting = None
        if controller.spec.accounting_ref is not None:
            manifest = self.caches.accountings.store.get(namespace, controller.spec.accounting_ref.name)
            accounting = resources.read(resources.Accounting, manifest) if manifest is not None else None
        return replace(
            self.namespace_facts(namespace),
            published=frozenset(
                name
                for name in (names.config(controller.name, index) for index in range(CONFIG_MAPS))
                if _ours(self.caches.config_maps.store.get(namespace, name))
            ),
            accounting=accounting,
            restapi=self.restapi_of(namespace, controller.name),
        )

    def namespace_facts(self, namespace: str) -> Facts:
        """The Secrets and ConfigMaps of a namespace, for what belongs to no Controller."""
        return Facts(
            site=self.site,
            secrets=_Referenced(
                namespace,
                self.caches.secrets.store,
                lambda secret: {key: digest(value) for key, value in secret.data.items()},
            ),
            config_maps=_Referenced(
                namespace,
                self.caches.config_maps.store,
                lambda config_map: config_map_contents(config_map.get("data"), config_map.get("binaryData")),
            ),
        )

    def secret_value(self, namespace: str, facts: Facts, selector: resources.KeySelector, place: str) -> bytes:
        """What a Secret holds under a key. Raises MissingReferenceError, which names the `place` that refers to it."""
        facts.secret(selector, place)
        secret = self.caches.secrets.store.get(namespace, selector.name)
        return secret.data[selector.key] if secret is not None else b""

    def jwt_key(self, key: Key) -> bytes | None:
        """The key that signs tokens for a Controller's Slurm; None while its Secret or the Controller is missing."""
        controller = self.controller(*key)
        reference = controller.jwt_key_ref if controller is not None else None
        secret = self.caches.secrets.store.get(key[0], reference.name) if reference is not None else None
        return secret.data.get(reference.key) if secret is not None and reference is not None else None

    async def report(
        self, resource: Resource, manifest: Manifest, wanted: Iterable[Condition], more: Mapping[str, Any] | None = None
    ) -> None:
        """Write the status if it differs: these conditions, and the fields of `more`."""
        metadata, present = manifest["metadata"], self._status_of(resource, manifest)
        status = {
            **(more or {}),
            "conditions": conditions.merge(
                present.get("conditions") or [], wanted, metadata.get("generation", 0), self.now()
            ),
        }
        if any(present.get(name) != value for name, value in status.items()):
            place = (resource.kind, (metadata["namespace"], metadata["name"]))
            # The watch may show it before the answer is there.
            self._reported[place] = replace(self._reported_of(resource.kind, manifest), coming={**present, **status})
            try:
                stored = await self.client.merge_patch(
                    resource, metadata["namespace"], metadata["name"], {"status": status}, subresource="status"
                )
            except NotFound:
                self.forget(manifest)
                raise
            version = int(stored["metadata"]["resourceVersion"])
            self._reported[place] = _Reported(stored["metadata"]["uid"], version, stored.get("status"))

    def _status_of(self, resource: Resource, manifest: Manifest) -> Mapping[str, Any]:
        """The newest status known: what we wrote last may not have come back by the watch yet.

        resourceVersions can be compared:
        https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
        """
        reported = self._reported_of(resource.kind, manifest)
        newer = reported.version > int(manifest["metadata"]["resourceVersion"])
        return (reported.status if newer else manifest.get("status")) or {}

    def is_reported(self, manifest: Manifest) -> bool:
        """Whether its status is what this operator wrote, or older than that, so that nobody needs to look at it."""
        reported, status = self._reported_of(manifest["kind"], manifest), manifest.get("status")
        old = int(manifest["metadata"]["resourceVersion"]) <= reported.version
        return old or (status is not None and status in (reported.status, reported.coming))

    def _reported_of(self, kind: str, manifest: Manifest) -> _Reported:
        """Our status writes of this very object."""
        metadata = manifest["metadata"]
        found = self._reported.get((kind, (metadata["namespace"], metadata["name"])))
        return found if found is not None and found.uid == metadata["uid"] else _Reported(metadata["uid"])

    def forget(self, manifest: Manifest) -> None:
        """The object is gone."""
        metadata = manifest["metadata"]
        self._reported.pop((manifest["kind"], (metadata["namespace"], metadata["name"])), None)

    async def hold(self, resource: Resource, manifest: Manifest, finalizer: str) -> None:
        """Put our finalizer on."""
        present = manifest["metadata"].get("finalizers") or []
        if finalizer not in present:
            await self._set_finalizers(resource, manifest, [*present, finalizer])

    async def let_go(self, resource: Resource, manifest: Manifest, finalizer: str) -> None:
        """Take our finalizer off."""
        present = manifest["metadata"].get("finalizers") or []
        if finalizer in present:
            await self._set_finalizers(resource, manifest, [other for other in present if other != finalizer])

    async def let_go_unless_used(self, resource: Resource, manifest: Manifest, users: list[str]) -> None:
        """Let a Controller or RestApi that is being deleted leave, or say which NodeSets still need it."""
        if not users:
            await self.let_go(resource, manifest, IN_USE)
            return
        said = f"kept until its NodeSets are gone: {', '.join(users)}"
        await self.report(resource, manifest, [Condition("Ready", "False", "InUse", said)])

    async def _set_finalizers(self, resource: Resource, manifest: Manifest, finalizers: list[str]) -> None:
        metadata = manifest["metadata"]
        # The resourceVersion makes it a Conflict if somebody changed the list meanwhile.
        patch = {"metadata": {"finalizers": finalizers, "resourceVersion": metadata["resourceVersion"]}}
        await self.client.merge_patch(resource, metadata["namespace"], metadata["name"], patch)


class _Referenced(Mapping[str, V], Generic[T, V]):
    """The objects of one namespace by name, each read when it is first asked for, and the same from then on.

    A namespace may hold thousands of Secrets and ConfigMaps, of which a custom resource refers to a handful.
    """

    def __init__(self, namespace: str, store: Store[T], read: Callable[[T], V]) -> None:
        self._namespace = namespace
        self._store = store
        self._read = read
        self._found: dict[str, V] = {}

    def __getitem__(self, name: str) -> V:
        if name not in self._found:
            item = self._store.get(self._namespace, name)
            if item is None:
                raise KeyError(name)
            self._found[name] = self._read(item)
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        keys = (identity(item).key for item in self._store.values())
        return (key.name for key in keys if key.namespace == self._namespace)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _ours(manifest: Manifest | None) -> bool:
    labels = manifest["metadata"].get("labels") or {} if manifest is not None else {}
    return bool(labels.get(MANAGED_BY) == FIELD_MANAGER)


def _readable(manifests: Iterable[Manifest], kind: type[Any], namespace: str, controller: str) -> list[Any]:
    found = []
    for manifest in manifests:
        if controller_of(manifest) != (namespace, controller):
            continue
        try:
            found.append(resources.read(kind, manifest))
        except resources.ResourceError as error:
            log.warning("%s %s/%s is left out: %s", kind.__name__, namespace, manifest["metadata"]["name"], error)
    return found


def controller_of(manifest: Manifest) -> Key:
    """Namespace and name of the Controller that a controllerRef names; the name is empty without one."""
    reference = (manifest.get("spec") or {}).get("controllerRef") or {}
    return manifest["metadata"]["namespace"], reference.get("name", "")
