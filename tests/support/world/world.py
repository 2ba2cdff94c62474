"""The world: a Kubernetes cluster, Slurm clusters in it with jobs, the operator, and what users do to them."""

import asyncio
import base64
import contextlib
import functools
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from sidecars.contract.extra import pod_facts
from sidecars.contract.reasons import is_foreign
from sidecars.custom_resources import CONTROLLERS, NODESETS, RESTAPIS
from sidecars.kube import CONFIG_MAPS, PODS, SECRETS, Client, Manifest
from sidecars.operator.main import Operator, lead
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
from tests.support.world.client import SPARED, Faults, Process, WorldSlurm, WorldTransport
from tests.support.world.jobs import Job, Jobs, Kind
from tests.support.world.kubelets import NODE, OUT_OF_SERVICE, Kubelets
from tests.support.world.slurmctld import Slurmctld
from tests.support.world.watchdog import Watchdog

EPOCH = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
SETTLED_AFTER = JOBS_WITHIN + 30.0
"""Seconds without a write after which no more are expected: longer than any back-off of the operator and than its wait
for a list of jobs.
"""
SETTLE_LIMIT = 1800.0
LATE = 45.0
"""Seconds after which a NodeSet without its desired pods must report that: longer than a request takes."""

RESERVATION = "of-an-administrator"

POD, NODESET, CONTROLLER, RESTAPI = PODS.path(), NODESETS.path(), CONTROLLERS.path(), RESTAPIS.path()
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

    def __init__(self, seed: int, kube_nodes: int) -> None:
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
        self.watchdog.kubelets = self.kubelets
        self.watchdog.operator_clock = lambda: self.wall_clock() + self.clock_is_off_by
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
        self._lead: asyncio.Task[None] | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._incomplete_since: dict[tuple[str, str, str], float] = {}
        self._templates = 0
        self._specs: dict[tuple[str, str], dict[str, Any]] = {}
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
        slurmctld = self.slurmctlds[namespace] = Slurmctld(
            model, seeded(self.rng.random()), self.watchdog.note, self._log
        )
        self._tasks.append(asyncio.create_task(slurmctld.run()))
        value = base64.b64encode(_SECRET.encode()).decode()
        for reference in _KEYS.values():
            metadata = {"name": reference["name"], "namespace": namespace}
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {reference["key"]: value}}
            self.api.create(SECRETS.path(), secret)
        controller = {**_KEYS, "slurmctld": {"image": "slurmctld:1"}}
        self.api.create(CONTROLLER, _custom("Controller", namespace, "slurm", controller))
        restapi = {"controllerRef": {"name": "slurm"}, "slurmrestd": {"image": "slurmrestd:1"}}
        self.api.create(RESTAPI, _custom("RestApi", namespace, "slurm", restapi))
        return model

    def nodeset(self, name: str = "slinky", replicas: int = 2, *, namespace: str = "slurm", **spec: Any) -> None:
        """A NodeSet of Controller `slurm`."""
        smallest = {"controllerRef": {"name": "slurm"}, "replicas": replicas, "slurmd": {"image": "slurmd:1"}}
        self._specs[namespace, name] = {**smallest, **spec}
        self.api.create(NODESET, _custom("NodeSet", namespace, name, self._specs[namespace, name]))

    def pods(self, nodeset: str = "slinky", namespace: str = "slurm") -> list[Manifest]:
        """Its pods, by name."""
        found = (pod for pod in self.api.all(POD) if _owner(pod) == (namespace, nodeset))
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def configure(self, line: str, namespace: str = "slurm") -> None:
        """spec.extraConf of the Controller."""
        if self.api.get(CONTROLLER, namespace, "slurm") is not None:
            self.api.change(CONTROLLER, namespace, "slurm", {"spec": {"extraConf": line}})

    def change(self, name: str, spec: Any, namespace: str = "slurm") -> None:
        """Change the NodeSet's spec; one that is being replaced is created with the change."""
        self._specs[namespace, name] = merged(self._specs[namespace, name], spec)
        if self.api.get(NODESET, namespace, name) is not None:
            self.api.change(NODESET, namespace, name, {"spec": spec})

    def replace(self, name: str, namespace: str = "slurm") -> None:
        """Delete the NodeSet, and create it again when it is deleted."""
        self.replace_object(NODESET, name, lambda _: self._specs[namespace, name], namespace)

    def replace_object(
        self, collection: str, name: str, spec: Callable[[Any], Any] = lambda spec: spec, namespace: str = "slurm"
    ) -> None:
        """Delete the custom resource, and create it again when it is deleted."""
        former = self.api.get(collection, namespace, name)
        if former is None or former["metadata"].get("deletionTimestamp"):
            return

        def gone(change: Change) -> None:
            if change.kind == "DELETED" and change.object["metadata"]["uid"] == former["metadata"]["uid"]:
                self.api.listeners.remove(gone)
                self.loop.call_later(0.5, again)

        def again() -> None:
            self.api.create(collection, _custom(former["kind"], namespace, name, spec(former["spec"])))

        self.api.listeners.append(gone)
        self.api.delete(collection, namespace, name)

    def lose_secret(self, name: str, seconds: float, namespace: str = "slurm") -> None:
        """A user deletes a Secret, and restores it after some seconds."""
        secret = self.api.get(SECRETS.path(), namespace, name)
        if secret is not None:
            self.api.delete(SECRETS.path(), namespace, name)
            self.loop.call_later(seconds, self._restore, secret)

    def _restore(self, secret: Manifest) -> None:
        metadata = {key: secret["metadata"][key] for key in ("name", "namespace")}
        self.api.create(SECRETS.path(), {**secret, "metadata": metadata})

    def condition(self, name: str, kind: str = "Ready", namespace: str = "slurm") -> dict[str, Any]:
        """A condition of a NodeSet; {} while it has none."""
        status = (self.api.get(NODESET, namespace, name) or {}).get("status") or {}
        return next((dict(it) for it in status.get("conditions") or () if it["type"] == kind), {})

    def strategy(self, name: str, namespace: str = "slurm") -> str:
        """The type of the desired update strategy."""
        return strategy_of({"spec": self._specs[namespace, name]})

    def new_image(self) -> str:
        """An image that no pod uses."""
        self._templates += 1
        return f"slurmd:{self._templates + 1}"

    def _slurm_of(self, pod: Manifest) -> SlurmModel:
        return self.slurms[pod["metadata"]["namespace"], pod["metadata"]["labels"]["slinky.slurm.net/cluster"]]

    # --- slurmctld and its `reconfigure` sidecar

    def slurm_conf(self, namespace: str) -> str | None:
        """The newest one, whether slurmctld has read it or not. None: it does not exist."""
        config = self.api.get(CONFIG_MAPS.path(), namespace, names.config("slurm"))
        return str(config["data"]["slurm.conf"]) if config is not None else None

    def _configured(self, change: Change) -> None:
        metadata = change.object["metadata"]
        if change.collection == CONFIG_MAPS.path() and metadata["name"] == names.config("slurm"):
            self.loop.call_later(self.rng.uniform(1.0, 20.0), self._reconfigure, metadata["namespace"])

    def _reconfigure(self, namespace: str) -> None:
        """The kubelet brings the present slurm.conf into the pod of slurmctld."""
        text = self.slurm_conf(namespace)
        if text is not None:
            self.slurmctlds[namespace].offer(text)

    # --- jobs and administrators

    def job(self, count: int, seconds: float, namespace: str = "slurm", *, kind: Kind = "plain") -> Job:
        """A job that starts as soon as `count` nodes are free."""
        return self.jobs.submit(self.slurms[namespace, "slurm"], count, seconds, kind)

    def admin(self, name: str, reason: str | None, namespace: str = "slurm", *, state: str = "DRAIN") -> None:
        """An administrator sets a node to DRAIN, DOWN or FAIL with a reason ("" for none), or resumes it (None)."""
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
        """scontrol delete nodename=NAME, which Slurm refuses for a node with a job or a reservation."""
        model = self.slurms[namespace, "slurm"]
        if name in model.nodes and not model.states(name) & {"ALLOCATED", "MIXED", "COMPLETING", "RESERVED"}:
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
        """slurmctld restarts without its state. `registers`: whether every slurmd registers again."""
        model = self.slurms[namespace, "slurm"]
        self.faults.injected["Slurm LOST_STATE"] += 1
        self.jobs.state_lost(model)
        self.watchdog.state_lost(model)
        model.restart(lost_state=True)
        if registers:
            self.kubelets.register_again(model)

    # --- the operator

    def start(self) -> None:
        """Start an operator, which is started again whenever it is killed."""
        self._supervisor = asyncio.create_task(self._supervise())

    def crash(self) -> None:
        """Kill the operator."""
        if self._process is not None:
            self._process.kill()

    def operator(self) -> Operator:
        """The parts of the operator that runs at this moment."""
        assert self._operator is not None
        return self._operator

    def _started(self, operator: Operator) -> None:
        self._operator = operator

    async def _supervise(self) -> None:
        settings = Settings(nodeset_workers=4)
        while True:
            ended = asyncio.Event()
            process = self._process = Process(ended.set)
            self._processes.append(process)  # what it left behind waits for ever, as the tasks of a dead process do
            rng = seeded(self.rng.random())
            client = Client(WorldTransport(self.api, process, self.faults, self.watchdog, rng))
            self.watchdog.restarted()

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

            around = RealWorld(self.loop.time, lambda: self.wall_clock() + self.clock_is_off_by, connect, rng=rng)
            self.operator_since = self.loop.time()
            work = self._lead = asyncio.create_task(lead(client, settings, site(), around, self._started))
            dying = asyncio.create_task(ended.wait())
            try:
                await asyncio.wait({work, dying}, return_when=asyncio.FIRST_COMPLETED)
                if not process.dead:
                    self.watchdog.note(f"the operator ended unasked: {work.exception()!r}")
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
                raise Broken("\n".join([*self.watchdog.broken, "what happened last:", *self.watchdog.log[-60:]]))

    async def until(self, what: str, look: Callable[[], object], seconds: float = 120.0) -> float:
        """Run until `look` is true; the seconds that took. Raises Broken naming `what` when it takes longer."""
        begun = self.loop.time()
        while not look():
            if self.loop.time() - begun > seconds:
                raise Broken("\n".join([f"waited {seconds:g} s for {what}", *self.watchdog.log[-60:]]))
            await self.run(0.25)
        return self.loop.time() - begun

    async def settle(self) -> None:
        """Run until the operator stops writing; then wake all of its resources, and check that it writes nothing."""
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
            raise Broken("\n".join(["I5: a settled cluster is written to:", *self.watchdog.log[-20:]]))

    def _wake_everything(self) -> None:
        """Change something that any resource may refer to: a ConfigMap of its namespace."""
        for namespace, _ in self.slurms:
            metadata = {"name": f"of-others-{self.loop.time():.0f}", "namespace": namespace}
            self.api.create(CONFIG_MAPS.path(), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})

    def has_lost_workers(self) -> bool:
        """Whether a slurmd runs that Slurm doesn't know, which the operator replaces after some minutes."""
        running = [it for it in self.kubelets.running.values() if it.registered]
        return any(it.slurm_node not in it.model.nodes for it in running)

    def has_running_jobs(self) -> bool:
        """Whether a job that has started has not ended."""
        return any(job.runs for job in self.jobs.all)

    def _look(self) -> None:
        """I7: a NodeSet without its desired pods reports that. I4: what an administrator has marked stays marked."""
        now = self.loop.time()
        self.watchdog.check_marks()
        alive = self._process is not None and not self._process.dead
        for nodeset in self.api.all(NODESET):
            key = (nodeset["metadata"]["namespace"], nodeset["metadata"]["name"], nodeset["metadata"]["uid"])
            if not alive or self.faults.hide_status(now) or self._has_desired_pods(nodeset):
                self._incomplete_since.pop(key, None)
                continue
            since = self._incomplete_since.setdefault(key, now)
            ready = self.condition(key[1], namespace=key[0])
            if now - since > LATE and (ready.get("status") == "True" or not ready.get("message")):
                self.watchdog.note(
                    f"I7: NodeSet {key[1]} is without its desired pods since {since:.0f}, and reports {ready}"
                )

    def _has_desired_pods(self, nodeset: Manifest) -> bool:
        pods = self.pods(nodeset["metadata"]["name"], nodeset["metadata"]["namespace"])
        return len(pods) == self.desired(nodeset) and all(is_ready(pod) for pod in pods)

    def desired(self, nodeset: Manifest) -> int:
        """The desired number of pods. In DaemonSet mode a pod on a cordoned Kubernetes node stays, but no new one is
        created there; a node that is out of service has none.
        """
        if nodeset["metadata"].get("deletionTimestamp"):
            return 0
        if nodeset["spec"].get("scalingMode") != "DaemonSet":
            return int(nodeset["spec"]["replicas"])
        pods = self.pods(nodeset["metadata"]["name"], nodeset["metadata"]["namespace"])
        used = {pod["spec"].get("nodeName") for pod in pods}
        nodes = [it for it in self.api.all(NODE) if not _out_of_service(it)]
        return sum(not it["spec"].get("unschedulable") or it["metadata"]["name"] in used for it in nodes)

    # --- the end

    def end_state(self) -> dict[str, Any]:
        """The state, without what may differ between undisturbed runs: ordinals, uids, times."""
        found: dict[str, Any] = {}
        for nodeset in self.api.all(NODESET):
            metadata, status = nodeset["metadata"], nodeset.get("status") or {}
            pods = self.pods(metadata["name"], metadata["namespace"])
            model = self.slurms[metadata["namespace"], nodeset["spec"]["controllerRef"]["name"]]
            hosts = {pod["spec"].get("hostname", "") for pod in pods}
            records = {n: it for n, it in model.nodes.items() if _made_by(it.extra, metadata["uid"])}
            found[f"{metadata['namespace']}/{metadata['name']}"] = {
                "pods": len(pods),
                "ready": sum(is_ready(pod) for pod in pods),
                "cordoned": sum("pod-cordon" in key for pod in pods for key in pod["metadata"]["annotations"]),
                "registered": len(hosts & records.keys()),
                "records without a pod": sorted(n for n, it in records.items() if n not in hosts),
                "drained": sorted(n for n, it in records.items() if "DRAIN" in it.flags and not is_foreign(it.reason)),
                "unavailable": sorted(n for n in hosts & records.keys() if is_unavailable(records[n])),
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
        images = [it["image"] for pod in self.pods(name, namespace) for it in pod["spec"]["containers"]]
        return sum(image.startswith("slurmd:") and image != wanted for image in images)

    async def close(self) -> None:
        """End everything."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        await self.kubelets.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


@contextlib.asynccontextmanager
async def world(seed: int = 0, *, kube_nodes: int = 6, namespaces: Iterable[str] = ("slurm",)) -> AsyncIterator[World]:
    """A world with a Slurm cluster in each namespace and an operator."""
    made = World(seed, kube_nodes)
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
    return {"apiVersion": "slinky.slurm.net/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}


def _owner(pod: Manifest) -> tuple[str, str]:
    owners = pod["metadata"].get("ownerReferences") or ()
    return pod["metadata"]["namespace"], next((it["name"] for it in owners if it.get("controller")), "")


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
