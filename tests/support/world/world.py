"""The world: a Kubernetes cluster, Slurm clusters in it with jobs, the operator, and what users do
to them.
"""

import asyncio
import base64
import contextlib
import functools
import itertools
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from sidecars.contract.extra import pod_facts
from sidecars.contract.reasons import is_foreign
from sidecars.custom_resources import (
    ACCOUNTINGS,
    CONTROLLERS,
    LOGINSETS,
    NODESETS,
    RESTAPIS,
    TOKENS,
)
from sidecars.kube import (
    CONFIG_MAPS,
    NAMESPACES,
    PODS,
    SECRETS,
    STATEFUL_SETS,
    Client,
    Election,
    LeadershipLost,
    Manifest,
    Time,
)
from sidecars.kube.errors import ApiError
from sidecars.operator.main import Operator, lead, lead_when_elected
from sidecars.operator.runtime.real_world import RealWorld
from sidecars.operator.settings import Settings
from sidecars.simulate import SlurmModel
from sidecars.simulate.cluster import UNAVAILABLE
from sidecars.simulate.records import SimNode
from sidecars.slurm.on_demand import JOBS_WITHIN
from sidecars.slurm.tokens import TokenSource
from sidecars.workloads import names, structure
from sidecars.workloads.facts import Site
from tests.support.world.api import Api, Change, merged
from tests.support.world.client import (
    SPARED,
    Faults,
    Process,
    WatchFault,
    WorldSlurm,
    WorldTransport,
)
from tests.support.world.jobs import Job, Jobs, Kind
from tests.support.world.kubelets import NODE, OUT_OF_SERVICE, Kubelets
from tests.support.world.slurmctld import Slurmctld
from tests.support.world.watchdog import LEASE_NAMESPACE, Watchdog

EPOCH = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
SETTLED_AFTER = JOBS_WITHIN + 30.0
"""Seconds without a write after which no more are expected: longer than any back-off of the
operator and than its wait for a list of jobs.
"""
SETTLE_LIMIT = 1800.0
LATE = 45.0
"""Seconds after which a NodeSet without its desired pods must report that: longer than a request
takes.
"""

RESERVATION = "of-an-administrator"

POD, NODESET, CONTROLLER, RESTAPI = (
    PODS.path(),
    NODESETS.path(),
    CONTROLLERS.path(),
    RESTAPIS.path(),
)
NAMESPACE = NAMESPACES.path()
SLURMCTLD = "slurm-controller-0"
CUSTOM_RESOURCES = tuple(
    it.path() for it in (CONTROLLERS, RESTAPIS, ACCOUNTINGS, LOGINSETS, NODESETS, TOKENS)
)
_KINDS = {NODESET: "NodeSet", CONTROLLER: "Controller", RESTAPI: "RestApi"}
_SECRET = "c2VjcmV0LXZhbHVlLW9mLXRoZS1rZXk"
_KEYS = {
    "slurmKeyRef": {"name": "slurm-auth-slurm", "key": "slurm.key"},
    "jwtKeyRef": {"name": "slurm-auth-jwt", "key": "jwt.key"},
}


def seeded(seed: float) -> random.Random:
    """Randomness that the seed repeats."""
    return random.Random(seed)  # noqa: S311 - repeatable, which is the point


class Broken(AssertionError):
    """An invariant is broken."""


@functools.cache
def site() -> Site:
    """The installation's settings and workloads."""
    return Site(workloads=structure.load(structure.folder(None)), sidecars_image="sidecars:test")


class World:
    """Use `world(seed)`. Times are seconds of the loop, which begins at 0."""

    def __init__(self, seed: int, kube_nodes: int, candidates: int, *, named: bool) -> None:
        self.rng = seeded(seed)
        self.loop = asyncio.get_running_loop()
        self.api = Api(self.wall_clock)
        self.faults = Faults()
        self.slurms: dict[tuple[str, str], SlurmModel] = {}
        self.slurmctlds: dict[str, Slurmctld] = {}
        """By namespace."""
        self._tasks: list[asyncio.Task[None]] = []
        self.watchdog = Watchdog(self.api, self.loop.time)
        self.kubelets = Kubelets(
            self.api, self._slurm_of, seeded(seed + 1), self.watchdog.note, self._log, self.watchdog
        )
        self.kubelets.without_slurmctld = self.faults.without_slurmctld
        self.watchdog.kubelets = self.kubelets
        self.watchdog.operator_clock = lambda: self.wall_clock() + self.clock_is_off_by
        self.watchdog.lists_are_refused = lambda: bool(self.faults.unlisted)
        self.kubelets.returned.append(self.watchdog.returned_by_slurm)
        self.jobs = Jobs(self.kubelets, self.rng, self.watchdog.note)
        self.kube_nodes = [f"kube-{number}" for number in range(kube_nodes)]
        self.cordoned_by_users: set[str] = set()
        """uids of pods that a user has annotated as cordoned."""
        self.restarts_after = 1.0
        self.operator_since = 0.0
        """When the operator that runs was started."""
        self.clock_is_off_by = 0.0
        """Seconds by which the operator's wall clock is ahead."""
        self.each_second: list[Callable[[], None]] = []
        """Further checks."""
        self._process: Process | None = None
        self._operator: Operator | None = None
        self._processes: list[Process] = []
        self.returning = 0
        """How many namespaces or CRDs are being deleted, and are created again later."""
        self._candidates = candidates
        self._named = named
        self._supervisors: list[asyncio.Task[None]] = []
        self._incomplete_since: dict[tuple[str, str, str], float] = {}
        self._templates = 0
        self._specs: dict[tuple[str, str, str], dict[str, Any]] = {}
        """What users have defined, by collection, namespace and name."""
        self.api.listeners.append(self._configured)
        for name in self.kube_nodes:
            self.kubelets.add_kube_node(name)

    def wall_clock(self) -> float:
        """Seconds since the epoch."""
        return EPOCH + self.loop.time()

    def _log(self, line: str) -> None:
        self.watchdog.log.append(f"{self.loop.time():9.2f} {line}")

    # --- resources

    def cluster(self, namespace: str = "slurm") -> SlurmModel:
        """Keys, Controller and RestApi `slurm`, and their Slurm cluster."""
        model = self.slurms[namespace, "slurm"] = SlurmModel(self.wall_clock)
        model.return_to_service = 1  # as slurm.conf without extraConf
        started = functools.partial(self._slurmctld_started, namespace)
        slurmctld = self.slurmctlds[namespace] = Slurmctld(
            model, seeded(self.rng.random()), self.watchdog.note, self._log, started
        )
        self._tasks.append(asyncio.create_task(slurmctld.run()))
        controller = {**_KEYS, "slurmctld": {"image": "slurmctld:1"}}
        self._specs[CONTROLLER, namespace, "slurm"] = controller
        restapi = {"controllerRef": {"name": "slurm"}, "slurmrestd": {"image": "slurmrestd:1"}}
        self._specs[RESTAPI, namespace, "slurm"] = restapi
        self._create_namespace(namespace)
        return model

    def _create_namespace(self, namespace: str) -> None:
        """With the keys and what users have defined in it."""
        metadata: dict[str, Any] = {"name": namespace, "finalizers": ["kubernetes"]}
        self.api.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        value = base64.b64encode(_SECRET.encode()).decode()
        for reference in _KEYS.values():
            metadata = {"name": reference["name"], "namespace": namespace}
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata,
                "data": {reference["key"]: value},
            }
            self.api.create(SECRETS.path(), secret)
        self._create_missing()

    def _create_missing(self) -> None:
        """What users have defined and what doesn't exist, where it can be created."""
        for (collection, namespace, name), spec in self._specs.items():
            if namespace in self.api.closed_namespaces or collection in self.api.closed_kinds:
                continue
            if self.api.get(collection, namespace, name) is None:
                self.api.create(collection, _custom(_KINDS[collection], namespace, name, spec))

    def nodeset(
        self, name: str = "slinky", replicas: int = 2, *, namespace: str = "slurm", **spec: Any
    ) -> None:
        """A NodeSet of Controller `slurm`."""
        smallest = {
            "controllerRef": {"name": "slurm"},
            "replicas": replicas,
            "slurmd": {"image": "slurmd:1"},
        }
        self._specs[NODESET, namespace, name] = {**smallest, **spec}
        self.api.create(
            NODESET, _custom("NodeSet", namespace, name, self._specs[NODESET, namespace, name])
        )

    def pods(self, nodeset: str = "slinky", namespace: str = "slurm") -> list[Manifest]:
        """Its pods, by name."""
        found = (pod for pod in self.api.all(POD) if _owner(pod) == (namespace, nodeset))
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def configure(self, line: str, namespace: str = "slurm") -> None:
        """spec.extraConf of the Controller."""
        self._change(CONTROLLER, namespace, "slurm", {"extraConf": line})

    def change_controller(self, spec: Any, namespace: str = "slurm") -> None:
        """Change the Controller's spec."""
        self._change(CONTROLLER, namespace, "slurm", spec)

    def change(self, name: str, spec: Any, namespace: str = "slurm") -> None:
        """Change the NodeSet's spec."""
        self._change(NODESET, namespace, name, spec)

    def _change(self, collection: str, namespace: str, name: str, spec: Any) -> None:
        """Change a spec; a custom resource that is being replaced is created with the change."""
        self._specs[collection, namespace, name] = merged(
            self._specs[collection, namespace, name], spec
        )
        if self.api.get(collection, namespace, name) is not None:
            self.api.change(collection, namespace, name, {"spec": spec})

    def replace(self, collection: str, name: str, namespace: str = "slurm") -> None:
        """Delete the custom resource, and create it again when it is deleted."""
        former = self.api.get(collection, namespace, name)
        if former is None or former["metadata"].get("deletionTimestamp"):
            return

        def gone(change: Change) -> None:
            if (
                change.kind == "DELETED"
                and change.object["metadata"]["uid"] == former["metadata"]["uid"]
            ):
                self.api.listeners.remove(gone)
                self.loop.call_later(0.5, self._create_missing)

        self.api.listeners.append(gone)
        self.api.delete(collection, namespace, name)

    def lose_secret(self, name: str, seconds: float, namespace: str = "slurm") -> None:
        """A user deletes a Secret, and restores it after some seconds."""
        secret = self.api.get(SECRETS.path(), namespace, name)
        if secret is not None:
            self.api.delete(SECRETS.path(), namespace, name)
            self.loop.call_later(seconds, self._restore_secret, secret)

    def _restore_secret(self, secret: Manifest) -> None:
        metadata = {key: secret["metadata"][key] for key in ("name", "namespace")}
        with contextlib.suppress(
            ApiError
        ):  # its namespace was deleted meanwhile, and returns with all keys
            self.api.create(SECRETS.path(), {**secret, "metadata": metadata})

    # --- namespaces and CRDs

    def delete_namespace(self, seconds: float, namespace: str = "slurm") -> None:
        """kubectl delete namespace. So many seconds after its end, the namespace and what it had is
        created again.
        """
        if namespace in self.api.closed_namespaces:
            return
        self.returning += 1
        self.api.closed_namespaces[namespace] = "terminating"
        self.api.delete(NAMESPACE, "", namespace)
        for collection in dict.fromkeys(
            collection for collection, _ in self.api.in_namespace(namespace)
        ):
            # In any order.
            self.loop.call_later(
                self.rng.uniform(0.1, 3.0), self._delete_all, collection, namespace
            )
        if self._named:
            self.loop.call_later(
                self.rng.uniform(0.1, 10.0), self.faults.without_role.add, namespace
            )
        self.loop.call_later(self.rng.uniform(1.0, 30.0), self._slurmctld_gone, namespace)
        model = id(self.slurms[namespace, "slurm"])

        def ended() -> bool:
            return model in self.faults.without_slurmctld and not self.api.in_namespace(namespace)

        self._when(ended, functools.partial(self._namespace_gone, namespace, seconds))

    def _delete_all(self, collection: str, namespace: str = "") -> None:
        """Ask for the deletion of all objects of a collection, of one namespace or of all ("")."""
        for item in self.api.all(collection):
            metadata = item["metadata"]
            if namespace in ("", metadata["namespace"]) and not metadata.get("deletionTimestamp"):
                self.api.delete(collection, metadata["namespace"], metadata["name"])

    def _slurmctld_gone(self, namespace: str) -> None:
        """The pods of slurmctld and slurmrestd have ended, and the volume with slurmctld's state is
        deleted.
        """
        self.faults.without_slurmctld.add(id(self.slurms[namespace, "slurm"]))
        self.lose_state(namespace, registers=False)

    def _namespace_gone(self, namespace: str, seconds: float) -> None:
        self.api.change(NAMESPACE, "", namespace, {"metadata": {"finalizers": None}})
        self.api.closed_namespaces[namespace] = "gone"
        self.loop.call_later(seconds, self._namespace_returns, namespace)

    def _namespace_returns(self, namespace: str) -> None:
        self.faults.injected["namespace"] += 1
        self.returning -= 1
        del self.api.closed_namespaces[namespace]
        self.faults.without_role.discard(namespace)
        self.faults.without_slurmctld.discard(id(self.slurms[namespace, "slurm"]))
        self.slurmctlds[namespace].begin_again()
        self._create_namespace(namespace)

    def delete_crds(self, counted: str, collections: Iterable[str], seconds: float) -> None:
        """kubectl delete crd. So many seconds after their end, CRDs and custom resources are
        created again.
        """
        if self.api.closed_kinds:
            # A NodeSet that is created again would keep its Controller, and so the CRD, for ever.
            return
        deleted = tuple(collections)
        self.returning += 1
        self.api.closed_kinds.update(deleted)
        for collection in deleted:
            self._delete_all(collection)

        def ended() -> bool:
            for collection in deleted:
                if not self.api.all(collection) and collection not in self.api.unserved:
                    self._unserve(collection)
            return self.api.unserved.issuperset(deleted)

        def return_all() -> None:
            self.faults.injected[counted] += 1
            self.returning -= 1
            for collection in deleted:
                self.api.serve(collection)
            self._create_missing()

        self._when(ended, lambda: self.loop.call_later(seconds, return_all))

    def _unserve(self, collection: str) -> None:
        self.api.unserved.add(collection)
        for watched, end in tuple(self.faults.watches):
            if watched == collection:
                end(WatchFault.ENDED)

    def _when(self, condition: Callable[[], bool], then: Callable[[], object]) -> None:
        """Call `then` once the condition is true, which is looked at twice a second."""
        if condition():
            then()
        else:
            self.loop.call_later(0.5, self._when, condition, then)

    def condition(self, name: str, kind: str = "Ready", namespace: str = "slurm") -> dict[str, Any]:
        """A condition of a NodeSet; {} while it has none."""
        status = (self.api.get(NODESET, namespace, name) or {}).get("status") or {}
        return next((dict(it) for it in status.get("conditions") or () if it["type"] == kind), {})

    def strategy(self, name: str, namespace: str = "slurm") -> str:
        """The type of the desired update strategy."""
        return strategy_of({"spec": self._specs[NODESET, namespace, name]})

    def new_image(self) -> str:
        """An image that no pod uses."""
        self._templates += 1
        return f"slurmd:{self._templates + 1}"

    def _slurm_of(self, pod: Manifest) -> SlurmModel:
        return self.slurms[
            pod["metadata"]["namespace"], pod["metadata"]["labels"]["slinky.slurm.net/cluster"]
        ]

    # --- slurmctld and its `reconfigure` sidecar

    def slurm_conf(self, namespace: str) -> str | None:
        """The newest one, whether slurmctld has read it or not. None: it does not exist."""
        config = self.api.get(CONFIG_MAPS.path(), namespace, names.config("slurm"))
        return str(config["data"]["slurm.conf"]) if config is not None else None

    def _configured(self, change: Change) -> None:
        metadata = change.object["metadata"]
        if change.collection == CONFIG_MAPS.path() and metadata["name"] == names.config("slurm"):
            self.loop.call_later(
                self.rng.uniform(1.0, 20.0), self._reconfigure, metadata["namespace"]
            )
        if change.collection == STATEFUL_SETS.path() and change.kind == "ADDED":
            self.loop.call_later(0.5, self._create_slurmctld, metadata)

    def _create_slurmctld(self, owner: Manifest) -> None:
        """The pod of slurmctld, on a host of its own that nothing happens to. Its sidecar can't be
        asked.
        """
        labels = {"app.kubernetes.io/name": "slurmctld", "app.kubernetes.io/instance": "slurm"}
        reference = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": owner["name"],
            "uid": owner["uid"],
        }
        metadata = {
            "name": SLURMCTLD,
            "namespace": owner["namespace"],
            "labels": labels,
            "annotations": {},
        }
        metadata["ownerReferences"] = [reference | {"controller": True}]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"nodeName": "host-of-slurmctld"},
        }
        with contextlib.suppress(
            ApiError
        ):  # the namespace is being deleted, or the former pod terminates
            self.api.create(POD, pod)
        self._slurmctld_started(owner["namespace"])

    def _slurmctld_started(self, namespace: str) -> None:
        if self.api.get(POD, namespace, SLURMCTLD) is not None:
            container = {
                "name": "slurmctld",
                "state": {"running": {"startedAt": self.api.timestamp()}},
            }
            status = {"phase": "Running", "containerStatuses": [container]}
            self.api.change(POD, namespace, SLURMCTLD, {"status": status}, status=True)

    def _reconfigure(self, namespace: str) -> None:
        """The kubelet brings the present slurm.conf into the pod of slurmctld."""
        text = self.slurm_conf(namespace)
        if text is not None:
            self.slurmctlds[namespace].offer(text)

    # --- jobs and administrators

    def job(
        self, count: int, seconds: float, namespace: str = "slurm", *, kind: Kind = "plain"
    ) -> Job:
        """A job that starts as soon as `count` nodes are free."""
        return self.jobs.submit(self.slurms[namespace, "slurm"], count, seconds, kind)

    def admin(
        self, name: str, reason: str | None, namespace: str = "slurm", *, state: str = "DRAIN"
    ) -> None:
        """An administrator sets a node to DRAIN, DOWN or FAIL with a reason ("" for none), or
        resumes it (None).
        """
        model = self.slurms[namespace, "slurm"]
        if name not in model.nodes:
            return
        if reason is None:
            if model.update_node(name, "RESUME"):
                self.watchdog.unmarked(model, name)
            return
        if state == "DOWN":
            self.jobs.node_set_down(model, name, "an administrator")
            self.kubelets.ping(model, name)
        model.update_node(name, state, reason)
        self.watchdog.marked(model, name, state)

    def delete_record(self, name: str, namespace: str = "slurm") -> None:
        """scontrol delete nodename=NAME, which Slurm refuses for a node with a job or a
        reservation.
        """
        model = self.slurms[namespace, "slurm"]
        if name in model.nodes and not model.states(name) & {
            "ALLOCATED",
            "MIXED",
            "COMPLETING",
            "RESERVED",
        }:
            self.jobs.record_deleted(model, name, "an administrator")
            model.node_lose(name)
            self.watchdog.unmarked(model, name)

    def reserve(self, name: str, minutes: int, namespace: str = "slurm") -> None:
        """An administrator reserves a Slurm node for maintenance, from now on."""
        model = self.slurms[namespace, "slurm"]
        if name in model.nodes:
            model.reserve(RESERVATION, name, start=int(self.wall_clock()), minutes=minutes)

    def unreserve(self, namespace: str = "slurm") -> None:
        """scontrol delete reservation."""
        self.slurms[namespace, "slurm"].unreserve(RESERVATION)

    def lose_state(self, namespace: str = "slurm", *, registers: bool = True) -> None:
        """slurmctld restarts without its state. `registers`: whether every slurmd registers
        again.
        """
        model = self.slurms[namespace, "slurm"]
        self.jobs.state_lost(model)
        self.watchdog.state_lost(model)
        model.restart(lost_state=True)
        self._slurmctld_started(namespace)
        if registers:
            self.kubelets.register_again(model)

    # --- the operator

    def start(self) -> None:
        """Start the operator, which is started again whenever it is killed. Of several candidates
        one leads.
        """
        for number in range(self._candidates):
            self._supervisors.append(asyncio.create_task(self._supervise(number)))

    def crash(self) -> None:
        """Kill the operator that leads."""
        if self._process is not None:
            self._process.kill()

    def freeze(self, seconds: float) -> None:
        """The operator that leads does nothing for so many seconds."""
        if self._process is not None:
            self._process.frozen_until = self.loop.time() + seconds

    def _leads(self) -> bool:
        """Whether an operator leads and runs at this moment."""
        return (
            self._process is not None and not self._process.dead and not self._process.is_frozen()
        )

    def operator_works(self, namespace: str) -> bool:
        """Whether an operator reconciles the namespace: it may read what it needs for that."""
        if not self._leads() or self._operator is None:
            return False
        refused = {where for _, where in self.faults.unlisted}
        if refused & {"", namespace}:
            return False
        synced = (
            feed.answered.is_set()
            for reflector in self._operator.runtime.caches
            for feed in reflector._feeds
        )
        return not refused or all(synced)

    def operator(self) -> Operator:
        """The parts of the operator that runs at this moment."""
        assert self._operator is not None
        return self._operator

    def _begins(self, process: Process) -> None:
        """The process is the one that leads."""
        if self._process is not None and self._process.is_frozen() and not self._process.dead:
            self.faults.injected["frozen"] += 1
        self._process, self.operator_since = process, self.loop.time()
        self.watchdog.restarted()

    def _started(self, process: Process, operator: Operator) -> None:
        if process is not self._process:
            self._begins(process)
        self._operator = operator

    async def _supervise(self, candidate: int) -> None:
        namespaces = (
            tuple(sorted({namespace for namespace, _ in self.slurms})) if self._named else ()
        )
        settings = Settings(nodeset_workers=4, namespaces=namespaces)
        for number in itertools.count():
            ended = asyncio.Event()
            identity = f"operator-{candidate}-{number}" if self._candidates > 1 else ""
            process = Process(ended.set, identity)
            self._processes.append(
                process
            )  # what it left behind waits for ever, as the tasks of a dead process do
            rng = seeded(self.rng.random())
            client = Client(WorldTransport(self.api, process, self.faults, self.watchdog, rng))
            if not identity:
                self._begins(process)

            def connect(url: str, tokens: TokenSource, process: Process = process) -> WorldSlurm:
                service, namespace = (urlsplit(url).hostname or "").split(".")[:2]
                return WorldSlurm(
                    url,
                    tokens,
                    model=self.slurms[namespace, service.removesuffix("-restapi")],
                    process=process,
                    faults=self.faults,
                    watcher=self.watchdog,
                    rng=seeded(self.rng.random()),
                    spared=namespace == SPARED,
                )

            around = RealWorld(
                self.loop.time, lambda: self.wall_clock() + self.clock_is_off_by, connect, rng=rng
            )
            started = functools.partial(self._started, process)
            if identity:
                election = Election(
                    client.apart(),
                    LEASE_NAMESPACE,
                    settings.leader_elect_name,
                    identity,
                    time=Time(
                        self.loop.time,
                        lambda: datetime.fromtimestamp(self.wall_clock(), UTC),
                        process.sleep,
                    ),
                    rng=rng,
                )
                leading = lead_when_elected(client, settings, site(), election, around, started)
            else:
                leading = lead(client, settings, site(), around, started)
            work = asyncio.create_task(leading)
            dying = asyncio.create_task(ended.wait())
            try:
                await asyncio.wait({work, dying}, return_when=asyncio.FIRST_COMPLETED)
                if not process.dead:
                    error = work.exception()
                    if not (process.frozen_until and isinstance(error, LeadershipLost)):
                        self.watchdog.note(f"the operator ended unasked: {error!r}")
            finally:
                process.dead = True
                dying.cancel()
                work.cancel()
                await asyncio.gather(work, dying, return_exceptions=True)
            self.watchdog.log.append(f"{self.loop.time():9.2f} the operator is dead")
            await asyncio.sleep(self.restarts_after)

    # --- time

    async def run(self, seconds: float) -> None:
        """Let time pass, and check each second. Raises Broken at the first broken invariant."""
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            await asyncio.sleep(min(1.0, end - self.loop.time()))
            self.jobs.tick(self.loop.time())
            self._look()
            for check in self.each_second:
                check()
            if self.watchdog.broken:
                raise Broken(
                    "\n".join(
                        [*self.watchdog.broken, "what happened last:", *self.watchdog.log[-60:]]
                    )
                )

    async def until(self, what: str, look: Callable[[], object], seconds: float = 120.0) -> float:
        """Run until `look` is true; the seconds that took. Raises Broken naming `what` when it
        takes longer.
        """
        begun = self.loop.time()
        while not look():
            if self.loop.time() - begun > seconds:
                raise Broken(
                    "\n".join([f"waited {seconds:g} s for {what}", *self.watchdog.log[-60:]])
                )
            await self.run(0.25)
        return self.loop.time() - begun

    async def settle(self) -> None:
        """Run until the operator stops writing; then wake all of its resources, and check that it
        writes nothing.
        """
        begun = self.loop.time()
        while (
            self.loop.time() - max(self.watchdog.wrote_at, begun) < SETTLED_AFTER
            or self.has_running_jobs()
            or self.has_lost_workers()
        ):
            if self.loop.time() - begun > SETTLE_LIMIT:
                raise Broken("\n".join(["I7: it never settles:", *self.watchdog.log[-60:]]))
            await self.run(1.0)
        writes = self.watchdog.writes
        self._wake_everything()
        await self.run(SETTLED_AFTER)
        if self.watchdog.writes != writes:
            raise Broken(
                "\n".join(["I5: a settled cluster is written to:", *self.watchdog.log[-20:]])
            )

    def _wake_everything(self) -> None:
        """Change something that any resource may refer to: a ConfigMap of its namespace."""
        for namespace, _ in self.slurms:
            metadata = {"name": f"of-others-{self.loop.time():.0f}", "namespace": namespace}
            self.api.create(
                CONFIG_MAPS.path(), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            )

    def has_lost_workers(self) -> bool:
        """Whether a slurmd runs that Slurm doesn't know, which the operator replaces after some
        minutes.
        """
        running = [it for it in self.kubelets.running.values() if it.registered]
        return any(it.slurm_node not in it.model.nodes for it in running)

    def has_running_jobs(self) -> bool:
        """Whether a job that has started has not ended."""
        return any(job.runs for job in self.jobs.all)

    def _look(self) -> None:
        """I7: a NodeSet without its desired pods reports that. I4: what an administrator has marked
        stays marked.
        """
        now = self.loop.time()
        self.watchdog.check_marks()
        alive = self._leads()
        for nodeset in self.api.all(NODESET):
            key = (
                nodeset["metadata"]["namespace"],
                nodeset["metadata"]["name"],
                nodeset["metadata"]["uid"],
            )
            if not alive or self.faults.hide_status(now) or self._has_desired_pods(nodeset):
                self._incomplete_since.pop(key, None)
                continue
            since = self._incomplete_since.setdefault(key, now)
            ready = self.condition(key[1], namespace=key[0])
            if now - since > LATE and (ready.get("status") == "True" or not ready.get("message")):
                self.watchdog.note(
                    f"I7: NodeSet {key[1]} is without its desired pods since {since:.0f}, and "
                    f"reports {ready}"
                )

    def _has_desired_pods(self, nodeset: Manifest) -> bool:
        pods = self.pods(nodeset["metadata"]["name"], nodeset["metadata"]["namespace"])
        return len(pods) == self.desired(nodeset) and all(is_ready(pod) for pod in pods)

    def desired(self, nodeset: Manifest) -> int:
        """The desired number of pods. In DaemonSet mode a pod on a cordoned Kubernetes node stays,
        but no new one is created there; a node that is out of service has none.
        """
        if nodeset["metadata"].get("deletionTimestamp"):
            return 0
        if (nodeset["spec"].get("powerSaving") or {}).get("enabled"):
            return int((nodeset.get("status") or {}).get("desired", 0))
        if nodeset["spec"].get("scalingMode") != "DaemonSet":
            return int(nodeset["spec"]["replicas"])
        pods = self.pods(nodeset["metadata"]["name"], nodeset["metadata"]["namespace"])
        used = {pod["spec"].get("nodeName") for pod in pods}
        nodes = [it for it in self.api.all(NODE) if not _out_of_service(it)]
        return sum(
            not it["spec"].get("unschedulable") or it["metadata"]["name"] in used for it in nodes
        )

    # --- the end

    def end_state(self) -> dict[str, Any]:
        """The state, without what may differ between undisturbed runs: ordinals, uids, times."""
        found: dict[str, Any] = {}
        for nodeset in self.api.all(NODESET):
            metadata, status = nodeset["metadata"], nodeset.get("status") or {}
            pods = self.pods(metadata["name"], metadata["namespace"])
            model = self.slurms[metadata["namespace"], nodeset["spec"]["controllerRef"]["name"]]
            hosts = {pod["spec"].get("hostname", "") for pod in pods}
            records = {
                n: it for n, it in model.nodes.items() if _made_by(it.extra, metadata["uid"])
            }
            found[f"{metadata['namespace']}/{metadata['name']}"] = {
                "pods": len(pods),
                "ready": sum(is_ready(pod) for pod in pods),
                "cordoned": sum(
                    "pod-cordon" in key for pod in pods for key in pod["metadata"]["annotations"]
                ),
                "registered": len(hosts & records.keys()),
                "records without a pod": sorted(n for n, it in records.items() if n not in hosts),
                "drained": sorted(
                    n
                    for n, it in records.items()
                    if "DRAIN" in it.flags and not is_foreign(it.reason)
                ),
                "unavailable": sorted(
                    n for n in hosts & records.keys() if is_unavailable(records[n])
                ),
                "marked by others": sorted(n for n, it in records.items() if is_foreign(it.reason)),
                "finalizers": metadata.get("finalizers") or [],
                "conditions": {it["type"]: it["status"] for it in status.get("conditions") or ()},
                "seen": status.get("observedGeneration") == metadata["generation"],
                "counts": {
                    key: value
                    for key, value in status.items()
                    if isinstance(value, int) and key != "observedGeneration"
                    # Which pods are replaced depends on which one a user happened to delete.
                    if key != "updatedReplicas" or strategy_of(nodeset) != "OnDelete"
                },
            }
        return found

    def outdated(self, name: str = "slinky", namespace: str = "slurm") -> int:
        """How many of its pods have another image than the desired one."""
        nodeset = self.api.get(NODESET, namespace, name)
        wanted = nodeset["spec"]["slurmd"]["image"] if nodeset is not None else None
        images = [
            it["image"] for pod in self.pods(name, namespace) for it in pod["spec"]["containers"]
        ]
        return sum(image.startswith("slurmd:") and image != wanted for image in images)

    async def close(self) -> None:
        """End everything."""
        for supervisor in self._supervisors:
            supervisor.cancel()
        await asyncio.gather(*self._supervisors, return_exceptions=True)
        await self.kubelets.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


@contextlib.asynccontextmanager
async def world(
    seed: int = 0,
    *,
    kube_nodes: int = 6,
    namespaces: Iterable[str] = ("slurm",),
    candidates: int = 1,
    named: bool = False,
) -> AsyncIterator[World]:
    """A world with a Slurm cluster in each namespace and an operator. With several candidates, the
    operator is elected.

    `named`: it watches these namespaces, with a Role in each, instead of all.
    """
    made = World(seed, kube_nodes, candidates, named=named)
    log = logging.getLogger("sidecars")
    level = log.level
    log.addHandler(made.watchdog)
    log.setLevel(logging.INFO)
    log.propagate = False

    def failed(_: asyncio.AbstractEventLoop, what: dict[str, Any]) -> None:
        made.watchdog.note(f"in the event loop: {what.get('message')}: {what.get('exception')!r}")

    made.loop.set_exception_handler(failed)
    try:
        for namespace in namespaces:
            made.cluster(namespace)
        made.start()
        yield made
    finally:
        await made.close()
        log.removeHandler(made.watchdog)
        log.setLevel(level)
        log.propagate = True


def _custom(kind: str, namespace: str, name: str, spec: dict[str, Any]) -> Manifest:
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def _owner(pod: Manifest) -> tuple[str, str]:
    owners = pod["metadata"].get("ownerReferences") or ()
    return pod["metadata"]["namespace"], next(
        (it["name"] for it in owners if it.get("controller")), ""
    )


def strategy_of(nodeset: Manifest) -> str:
    """The type of its update strategy."""
    return str((nodeset["spec"].get("updateStrategy") or {}).get("type", "RollingUpdate"))


def is_ready(pod: Manifest) -> bool:
    """Whether the pod is ready and not terminating."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def is_unavailable(record: SimNode) -> bool:
    """Whether no job starts on the Slurm node until its state is changed."""
    return record.base == "DOWN" or bool(record.flags & UNAVAILABLE)


def _out_of_service(node: Manifest) -> bool:
    return any(taint["key"] == OUT_OF_SERVICE for taint in node["spec"].get("taints") or ())


def _made_by(extra: str, nodeset_uid: str) -> bool:
    facts = pod_facts(extra)
    return facts is not None and facts.nodeset_uid == nodeset_uid


__all__ = ["EPOCH", "NODE", "Broken", "Job", "World", "world"]
