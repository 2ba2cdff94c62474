"""A Kubernetes cluster without its API server and the operator: scheduler, kubelets, the built-in
controllers.

The containers of a worker pod are in `worker`; the kubelet starts and ends them here, and slurmd
registers with the simulated Slurm. None of this meets injected faults of the API server.
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Literal, Protocol

from sidecars.kube import (
    DEPLOYMENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
    Manifest,
)
from sidecars.kube.errors import ApiError
from sidecars.register.main import RECORD_WAIT
from sidecars.simulate import SlurmModel
from sidecars.simulate.records import Reply
from tests.support.world.api import Api, Change
from tests.support.world.worker import Outside, Worker

POD, NODE, STATEFUL_SET, DEPLOYMENT = (
    PODS.path(),
    NODES.path(),
    STATEFUL_SETS.path(),
    DEPLOYMENTS.path(),
)
CLAIM = PERSISTENT_VOLUME_CLAIMS.path()
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
UNREACHABLE = "node.kubernetes.io/unreachable"

LAST_GRACE = 2.0  # seconds for a native sidecar even where the grace is used up
NODE_MONITOR_GRACE = 40.0  # kube-controller-manager --node-monitor-grace-period
EVICTION = 300.0  # tolerationSeconds of every pod for an unreachable node
SLURMD_TIMEOUT = 300.0  # slurm.conf SlurmdTimeout
PING = SLURMD_TIMEOUT / 3  # slurmctld/ping_nodes.c
POD_GC = 20.0  # a pod bound to a node that doesn't exist


class Ending(Enum):
    """How the containers of a worker pod have ended."""

    STOPPED = "its slurmd was stopped"
    GRACE_OVER = "another client, or a deletionTimeout, deleted it, and its grace is over"
    FORCE = "another client than the operator deleted it by force"
    EVICTED = "the kubelet evicted it, because its host runs out of something"
    POWER = "its host has lost its power"


Cut = Literal["slurmctld", "all"]
"""What a Kubernetes node can't reach: slurmctld alone, or anything at all."""


@dataclass
class Slurmd:
    """A slurmd process."""

    worker: Worker
    model: SlurmModel
    slurm_node: str
    registered: bool = False
    registered_at: float = float("inf")
    """By the loop's clock."""

    @property
    def uid(self) -> str:
        """Its pod's."""
        return self.worker.pod_uid

    @property
    def kube_node(self) -> str:
        """The Kubernetes node that it runs on."""
        return self.worker.kube_node


class Watch(Protocol):
    """Sees the requests of the `node` sidecars. Raises nothing."""

    def sidecar_request(
        self,
        model: SlurmModel,
        method: str,
        target: str,
        content: bytes | None,
        carry: Callable[[], Reply],
    ) -> Reply:
        """Returns Slurm's answer, which `carry` gets."""


@dataclass
class Kubelets:
    """`model` is the Slurm cluster of a pod; `note` records a broken invariant, `log` what the pods
    log.
    """

    api: Api
    model: Callable[[Manifest], SlurmModel]
    rng: random.Random
    note: Callable[[str], None]
    log: Callable[[str], None]
    watch: "Watch"
    running: dict[str, Slurmd] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    cut: dict[str, Cut] = field(default_factory=dict)
    """Kubernetes nodes that are cut off."""
    without_slurmctld: set[int] = field(default_factory=set)
    """Models whose slurmctld doesn't exist."""
    broken_images: set[str] = field(default_factory=set)
    late: float = 0.0
    """Seconds by which kubelets report later that a container runs."""
    deleted_by_operator: set[str] = field(default_factory=set)
    """The uids of pods."""
    steps: Callable[[Slurmd], int] = lambda _: 0
    """The slurmstepd processes beside a slurmd."""
    ended: list[Callable[[Slurmd, Ending], None]] = field(default_factory=list)
    """Called when a slurmd has ended."""
    registered: list[Callable[[Slurmd], None]] = field(default_factory=list)
    """Called when a slurmd has registered, for the first time or again."""
    timed_out: list[Callable[[Slurmd], None]] = field(default_factory=list)
    """Called before slurmctld sets a node DOWN because it doesn't respond."""
    returned: list[Callable[[SlurmModel, str], None]] = field(default_factory=list)
    """Called when a DOWN node is up again because its slurmd, which has run all the time, answers
    slurmctld.
    """
    _workers: dict[str, Worker] = field(default_factory=dict)
    _booted_at: dict[str, float] = field(default_factory=dict)
    """When a Kubernetes node has booted again."""
    _lost_at: dict[tuple[int, str], float] = field(default_factory=dict)
    """When slurmctld has lost contact, by model and node."""
    _addresses: Iterator[int] = field(default_factory=itertools.count)
    _stopping: set[str] = field(default_factory=set)
    _owners: dict[str, set[tuple[str, str, str]]] = field(default_factory=dict)
    _uids: set[str] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.api.listeners.append(self._changed)

    def add_kube_node(self, name: str) -> None:
        """Add a Kubernetes node."""
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {_HOST: name}},
        }
        self.api.create(NODE, {**node, "spec": {}})
        self.api.change(
            NODE,
            "",
            name,
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            status=True,
        )

    def kill(self, name: str) -> None:
        """A Kubernetes node loses its power: its processes have ended, and nothing has reported it
        yet.
        """
        if name in self.dead:
            return
        self.dead.add(name)
        for uid, worker in list(self._workers.items()):
            if worker.kube_node == name:
                self._end(uid, Ending.POWER)
        self._later(NODE_MONITOR_GRACE, self._unreachable, name)

    def cut_off(self, name: str, what: Cut) -> None:
        """A Kubernetes node loses the connection to slurmctld, or to everything; its processes
        continue.
        """
        if name in self.dead or name in self.cut:
            return
        self.cut[name] = what
        for slurmd in list(self.running.values()):
            if slurmd.kube_node == name and slurmd.registered:
                self._contact_lost(slurmd)
        if what == "all":
            self._later(NODE_MONITOR_GRACE, self._unreachable, name)

    def join(self, name: str) -> None:
        """A Kubernetes node that was cut off is reached again."""
        what = self.cut.pop(name, None)
        if what is None:
            return
        for slurmd in list(self.running.values()):
            if slurmd.kube_node == name and slurmd.registered:
                self._later(self.rng.uniform(1, PING), self._contact_again, slurmd)
        if what == "slurmctld":
            return
        self._reachable(name)
        for uid, worker in list(self._workers.items()):
            if worker.kube_node != name or uid in self._stopping:
                continue
            pod = self._pod(uid)
            self._stopping.add(uid)
            if pod is None:
                self._later(self.rng.uniform(0.1, 1.0), self.kill_pod, uid)
            elif pod["metadata"].get("deletionTimestamp"):
                self._spawn(self._stop(uid))
            else:
                self._stopping.discard(uid)
                slurmd_of = self.running.get(uid)
                if slurmd_of is not None:
                    self._later(
                        1.0, self._show, uid, True, {"running": {"startedAt": self.api.timestamp()}}
                    )
        for pod in self.api.all(POD):
            going = (
                pod["metadata"].get("deletionTimestamp")
                and pod["metadata"]["uid"] not in self._workers
            )
            if pod["spec"].get("nodeName") == name and going:
                self._gone(pod["metadata"]["uid"])

    def _isolated(self, name: str | None) -> bool:
        """Whether the API server reaches nothing on that Kubernetes node."""
        return name in self.dead or (name is not None and self.cut.get(name) == "all")

    def _reachable(self, name: str) -> None:
        """The kubelet reports to the API server again."""
        node = self.api.get(NODE, "", name)
        if node is None:
            self.add_kube_node(name)
            return
        taints = [
            it
            for it in node["spec"].get("taints", [])
            if it["key"] not in (UNREACHABLE, OUT_OF_SERVICE)
        ]
        self.api.change(NODE, "", name, {"spec": {"taints": taints or None}})
        self.api.change(
            NODE,
            "",
            name,
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            status=True,
        )

    def revive(self, name: str) -> None:
        """A dead Kubernetes node boots."""
        if name not in self.dead:
            return
        self.dead.discard(name)
        self._booted_at[name] = self._now()
        existed = self.api.get(NODE, "", name) is not None
        self._reachable(name)
        for pod in self.api.all(POD) if existed else ():
            if pod["spec"].get("nodeName") != name:
                continue
            if pod["metadata"].get("deletionTimestamp"):
                self._gone(pod["metadata"]["uid"])
            else:
                self._later(self.rng.uniform(1, 5), self._start, pod["metadata"]["uid"])

    def remove(self, name: str) -> None:
        """An administrator deletes the Node object of a dead Kubernetes node."""
        if name in self.dead and self.api.get(NODE, "", name) is not None:
            self.api.delete(NODE, "", name)
            for pod in self.api.all(POD):
                if pod["spec"].get("nodeName") == name:
                    self._later(
                        self.rng.uniform(POD_GC, 2 * POD_GC), self._gone, pod["metadata"]["uid"]
                    )

    def switch_off(self, name: str) -> None:
        """An administrator adds the taint out-of-service to a dead Kubernetes node."""
        node = self.api.get(NODE, "", name)
        if name in self.dead and node is not None:
            taints = [it for it in node["spec"].get("taints", []) if it["key"] != OUT_OF_SERVICE]
            taints.append({"key": OUT_OF_SERVICE, "effect": "NoExecute"})
            self.api.change(NODE, "", name, {"spec": {"taints": taints}})
            # NoExecute: nothing tolerates it.
            for pod in self.api.all(POD):
                if pod["spec"].get("nodeName") == name:
                    self._later(
                        self.rng.uniform(0.1, 2.0), self._evict, name, pod["metadata"]["uid"]
                    )

    async def close(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- what follows from a change

    def _changed(self, change: Change) -> None:
        item = change.object
        metadata = item["metadata"]
        if change.kind == "ADDED":
            self._uids.add(metadata["uid"])
            for owner in metadata.get("ownerReferences") or ():
                self._owners.setdefault(owner["uid"], set()).add((change.collection, *_key(item)))
                if owner["uid"] not in self._uids:
                    self._later(1.0, self._collect, owner["uid"])
        elif change.kind == "DELETED":
            self._uids.discard(metadata["uid"])
            if metadata["uid"] in self._owners:
                self._later(self.rng.uniform(0.05, 0.5), self._collect, metadata["uid"])
        else:
            for owner in metadata.get("ownerReferences") or ():
                self._owners.setdefault(owner["uid"], set()).add((change.collection, *_key(item)))
        if change.collection == POD:
            self._pod_changed(change)
        elif change.collection in (STATEFUL_SET, DEPLOYMENT) and change.new is not None:
            self._later(0.1, self._roll_out, change.collection, _key(item))

    def _pod_changed(self, change: Change) -> None:
        pod = change.object
        metadata, uid = pod["metadata"], pod["metadata"]["uid"]
        if change.kind == "DELETED":
            if (
                uid in self._workers
                and uid not in self._stopping
                and not self._isolated(pod["spec"].get("nodeName"))
            ):
                # Deleted by force: the kubelet kills what still runs.
                self._stopping.add(uid)
                self._later(self.rng.uniform(0.1, 1.0), self.kill_pod, uid)
        elif metadata.get("deletionTimestamp"):
            if not self._isolated(pod["spec"].get("nodeName")) and uid not in self._stopping:
                self._stopping.add(uid)
                self._spawn(self._stop(uid))
        elif change.kind == "ADDED":
            self._later(self.rng.uniform(0.02, 0.2), self._bind, uid)

    def _collect(self, owner: str) -> None:
        """https://kubernetes.io/docs/concepts/architecture/garbage-collection/, in the
        background.
        """
        for collection, namespace, name in sorted(self._owners.get(owner, ())):
            item = self.api.get(collection, namespace, name)
            owners = (item or {}).get("metadata", {}).get("ownerReferences") or []
            if item is not None and owners and all(it["uid"] not in self._uids for it in owners):
                self.api.delete(collection, namespace, name)

    def _roll_out(self, collection: str, key: tuple[str, str]) -> None:
        item = self.api.get(collection, *key)
        if item is not None:
            count = item["spec"].get("replicas", 1)
            names = ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas")
            status = dict.fromkeys(names, count) | {
                "observedGeneration": item["metadata"]["generation"]
            }
            self.api.change(collection, *key, {"status": status}, status=True)

    # --- scheduler

    def _bind(self, uid: str) -> None:
        pod = self._pod(uid)
        if pod is None or pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            return
        taken: dict[str, int] = {}
        for other in self.api.all(POD):
            # podAntiAffinity is about pods of the same namespace.
            if other["metadata"]["namespace"] == pod["metadata"]["namespace"]:
                name = other["spec"].get("nodeName", "")
                taken[name] = taken.get(name, 0) + 1
        fits = [
            node["metadata"]["name"] for node in self.api.all(NODE) if self._fits(pod, node, taken)
        ]
        if not fits:
            self._later(2.0, self._bind, uid)
            return
        chosen = min(fits, key=lambda name: (taken.get(name, 0), self.rng.random()))
        self.api.change(POD, *_key(pod), {"spec": {"nodeName": chosen}})
        self._later(self.rng.uniform(0.2, 2.0), self._start, uid)

    def _fits(self, pod: Manifest, node: Manifest, taken: dict[str, int]) -> bool:
        name, spec = node["metadata"]["name"], pod["spec"]
        tolerated = {it.get("key") for it in spec.get("tolerations") or ()}
        blocked = [
            it["key"] for it in node["spec"].get("taints") or () if it["key"] not in tolerated
        ]
        if name in self.dead or blocked:
            return False
        if (
            node["spec"].get("unschedulable")
            and "node.kubernetes.io/unschedulable" not in tolerated
        ):
            return False
        affinity = spec.get("affinity") or {}
        if affinity.get("podAntiAffinity") and taken.get(name):
            return False
        needed = (affinity.get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        ) or {}
        terms = needed.get("nodeSelectorTerms")
        labels = node["metadata"].get("labels") or {}
        if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
            return False
        return not terms or any(_term_fits(term, name, labels) for term in terms)

    # --- kubelet, slurmd and `node`

    def _start(self, uid: str) -> None:
        pod = self._pod(uid)
        if (
            pod is None
            or pod["spec"].get("nodeName") in self.dead
            or uid in self._workers
            or uid in self._stopping
        ):
            return
        if self._isolated(pod["spec"].get("nodeName")):
            self._later(5.0, self._start, uid)
            return
        image = next(
            (it.get("image", "") for it in pod["spec"]["containers"] if it["name"] == "slurmd"), ""
        )
        if image in self.broken_images:
            waiting = {"waiting": {"reason": "ImagePullBackOff", "message": image}}
            self._report(pod, ready=False, state=waiting, phase="Pending")
            self._later(5.0, self._start, uid)
            return
        model, number = self.model(pod), next(self._addresses)
        ip = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        kube_node = pod["spec"]["nodeName"]
        outside = Outside(
            model=model,
            carry=partial(self.watch.sidecar_request, model),
            reaches=lambda: (
                not self._isolated(kube_node) and id(model) not in self.without_slurmctld
            ),
            listens=self._listens,
            rng=self.rng,
            log=self.log,
            spawn=self._spawn,
        )
        worker = self._workers[uid] = Worker(pod, ip, outside)
        self._spawn(self._boot(worker, Slurmd(worker, model, slurm_node(pod))))

    async def _boot(self, worker: Worker, slurmd: Slurmd) -> None:
        """`register` waits for `node`, then slurmd starts."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RECORD_WAIT):
                await worker.record.wait()
        uid = worker.pod_uid
        if self._workers.get(uid) is not worker or uid in self._stopping:
            return
        for other in self.running.values():
            if other.slurm_node == slurmd.slurm_node and other.model is slurmd.model:
                name = slurmd.slurm_node
                self.note(
                    f"I3: slurmd of pod {uid} starts as {name} while that of pod {other.uid} "
                    "still runs"
                )
        worker.start_slurmd()
        self.running[uid] = slurmd
        running = {"running": {"startedAt": self.api.timestamp()}}
        # Sometimes Slurm lists slurmd before the kubelet has reported it; mostly it is the other
        # way round.
        first, second = sorted((self.rng.uniform(0.05, 0.6), self.rng.uniform(0.05, 0.6)))
        if self.rng.random() < 0.05:
            # The kubelet reports late, because it has much to do.
            second += self.rng.uniform(5.0, 20.0)
        reported, registered = (first, second) if self.rng.random() < 0.8 else (second, first)
        self._later(self.late + reported, self._show, uid, False, running)
        self._later(registered, self._register, uid)
        self._later(self.late + second + self.rng.uniform(0.1, 1.0), self._show, uid, True, running)

    def _listens(self, address: str) -> bool:
        """Whether a slurmd answers at the address."""
        return any(it.worker.ip == address for it in self.running.values())

    def _show(self, uid: str, ready: bool, state: dict[str, Any]) -> None:
        pod, slurmd = self._pod(uid), self.running.get(uid)
        if pod is None or slurmd is None or (uid in self._stopping and ready):
            return
        if (ready and not slurmd.registered) or self._isolated(slurmd.kube_node):
            self._later(0.5, self._show, uid, ready, state)
            return
        self._report(pod, ready=ready, state=state, phase="Running")

    def _report(self, pod: Manifest, *, ready: bool, state: dict[str, Any], phase: str) -> None:
        now, word = self.api.timestamp(), "True" if ready else "False"
        present = {it["type"]: it for it in (pod.get("status") or {}).get("conditions") or ()}
        conditions = [
            it for it in present.values() if it["type"] not in ("Ready", "ContainersReady")
        ]
        for kind in ("ContainersReady", "Ready"):
            old = present.get(kind)
            same = old is not None and old["status"] == word
            conditions.append(
                {
                    "type": kind,
                    "status": word,
                    "lastTransitionTime": old["lastTransitionTime"] if old and same else now,
                }
            )
        container = {
            "name": "slurmd",
            "ready": ready,
            "started": "running" in state,
            "restartCount": 0,
            "state": state,
        }
        status = {"phase": phase, "conditions": conditions, "containerStatuses": [container]}
        worker = self._workers.get(pod["metadata"]["uid"])
        address = {"podIP": worker.ip} if worker is not None else {}
        self.api.change(POD, *_key(pod), {"status": status | address}, status=True)

    def _register(self, uid: str) -> None:
        slurmd = self.running.get(uid)
        if slurmd is None or self._pod(uid) is None:
            return
        if not self._reaches_slurmctld(slurmd):
            self._later(5.0, self._register, uid)
            return
        self._add_record(slurmd)
        slurmd.registered, slurmd.registered_at = True, self._now()

    def _add_record(self, slurmd: Slurmd) -> None:
        worker = slurmd.worker
        record = slurmd.model.nodes.get(slurmd.slurm_node)
        # A record keeps what it was created with.
        extra = worker.registration.extra if record is None else record.extra
        instance = worker.registration.instance_id if record is None else record.instance_id
        lost_at = self._lost_at.get((id(slurmd.model), slurmd.slurm_node), float("inf"))
        slurmd.model.node_register(
            slurmd.slurm_node,
            extra=extra,
            instance_id=instance,
            address=worker.ip,
            rebooted=record is not None and self._booted_at.get(slurmd.kube_node, 0.0) > lost_at,
        )
        self._lost_at.pop((id(slurmd.model), slurmd.slurm_node), None)
        for listener in self.registered:
            listener(slurmd)

    def crash(self, uid: str, container: Literal["slurmd", "node"]) -> None:
        """A process of the pod ends, and starts again. slurmstepd processes outlive their
        slurmd.
        """
        worker, slurmd = self._workers.get(uid), self.running.get(uid)
        if worker is None or slurmd is None or uid in self._stopping:
            return
        if container == "node":
            worker.restart_node()
        elif slurmd.registered:
            slurmd.registered = worker.slurmd_runs = False
            self._contact_lost(slurmd)
            self._later(self.rng.uniform(0.5, 5.0), self._slurmd_again, uid)

    def _slurmd_again(self, uid: str) -> None:
        worker = self._workers.get(uid)
        if worker is not None and uid in self.running:
            worker.slurmd_runs = True
            self._register(uid)

    def evict(self, pod: Manifest) -> None:
        """The kubelet ends the pod at once (https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/)."""
        uid = pod["metadata"]["uid"]
        if (
            uid not in self.running
            or uid in self._stopping
            or self._isolated(pod["spec"].get("nodeName"))
        ):
            return
        self._end(uid, Ending.EVICTED)
        self._stopping.add(uid)
        ended = {"terminated": {"exitCode": 137, "reason": "Evicted"}}
        self._report(pod, ready=False, state=ended, phase="Failed")

    def register_again(self, model: SlurmModel) -> None:
        """slurmctld has lost its state, and asks every slurmd."""
        for slurmd in list(self.running.values()):
            if slurmd.model is model:
                self._later(self.rng.uniform(0.5, 20.0), self._register_lost, slurmd.uid)

    def _register_lost(self, uid: str) -> None:
        slurmd = self.running.get(uid)
        if slurmd is None or uid in self._stopping or slurmd.slurm_node in slurmd.model.nodes:
            return
        if not self._reaches_slurmctld(slurmd):
            self._later(5.0, self._register_lost, uid)
            return
        self._add_record(slurmd)

    async def _stop(self, uid: str) -> None:
        """The preStop hook, slurmd's end, that of `node`, then the pod's."""
        begun = self._now()
        worker, slurmd = self._workers.get(uid), self.running.get(uid)
        if worker is not None:
            if slurmd is not None:
                await self._hook(slurmd, begun)
                await asyncio.sleep(self.rng.uniform(0.1, 0.5))
                if self.running.pop(uid, None) is None:
                    return  # the Kubernetes node died
                over = not worker.released.is_set() and uid not in self.deleted_by_operator
                self._report_ended(slurmd, Ending.GRACE_OVER if over else Ending.STOPPED)
                worker.stop_slurmd()
            worker.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(
                    max(begun + self._grace(uid), self._now()) + LAST_GRACE
                ):
                    await worker.ended.wait()
            if self._workers.get(uid) is not worker:
                return
            self._end(uid, Ending.STOPPED, slurmd)
        await asyncio.sleep(self.rng.uniform(0.05, 0.3))
        pod = self._pod(uid)
        if pod is not None and not self._isolated(pod["spec"].get("nodeName")):
            self._gone(uid)
        self._stopping.discard(uid)

    async def _hook(self, slurmd: Slurmd, begun: float) -> None:
        """slurmd's preStop hook: until `node` lets it end, or the kubelet's patience does."""
        while slurmd.uid in self.running and self._now() - begun < self._grace(slurmd.uid):
            slurmd.worker.hook(self.steps(slurmd))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await slurmd.worker.released.wait()
                    return

    def _grace(self, uid: str) -> float:
        """Seconds until the kubelet kills the pod, after any shortening; 0 once its object is
        deleted.
        """
        pod = self._pod(uid)
        return (
            float(pod["metadata"].get("deletionGracePeriodSeconds", 0)) if pod is not None else 0.0
        )

    def kill_pod(self, uid: str) -> None:
        """The kubelet kills what runs of a pod that was deleted by force."""
        self._stopping.discard(uid)
        self._end(uid, Ending.STOPPED if uid in self.deleted_by_operator else Ending.FORCE)

    def _end(self, uid: str, ending: Ending, slurmd: Slurmd | None = None) -> None:
        """Nothing of the pod runs any longer; a record that nobody has deleted is left to
        slurmctld.

        `slurmd`: the one that has ended already.
        """
        worker = self._workers.pop(uid, None)
        running = self.running.pop(uid, None)
        if worker is not None:
            worker.kill()
        if running is not None:
            self._report_ended(running, ending)
        slurmd = running or slurmd
        if slurmd is not None and slurmd.slurm_node in slurmd.model.nodes:
            self._contact_lost(slurmd)

    def _report_ended(self, slurmd: Slurmd, ending: Ending) -> None:
        for listener in self.ended:
            listener(slurmd, ending)

    # --- slurmctld's pings

    def _answers(self, model: SlurmModel, name: str) -> bool:
        """Whether slurmctld reaches a slurmd of that name."""
        found = (it for it in self.running.values() if it.slurm_node == name and it.model is model)
        return any(it.registered and self._reaches_slurmctld(it) for it in found)

    def _reaches_slurmctld(self, slurmd: Slurmd) -> bool:
        return slurmd.kube_node not in self.cut and id(slurmd.model) not in self.without_slurmctld

    def _contact_lost(self, slurmd: Slurmd) -> None:
        since = self._lost_at.setdefault((id(slurmd.model), slurmd.slurm_node), self._now())
        if since == self._now():
            self._later(self.rng.uniform(0, PING), self._silent, slurmd, since)
            self._later(SLURMD_TIMEOUT, self._vanish, slurmd, since)

    def _still_lost(self, slurmd: Slurmd, since: float) -> bool:
        key = id(slurmd.model), slurmd.slurm_node
        present = slurmd.slurm_node in slurmd.model.nodes
        return (
            self._lost_at.get(key) == since
            and present
            and not self._answers(slurmd.model, slurmd.slurm_node)
        )

    def _contact_again(self, slurmd: Slurmd) -> None:
        """slurmctld asks it to register."""
        registers = slurmd.uid in self.running and self._reaches_slurmctld(slurmd)
        if registers and slurmd.slurm_node in slurmd.model.nodes:
            was_down = slurmd.model.nodes[slurmd.slurm_node].base == "DOWN"
            self._add_record(slurmd)
            self._report_returned(slurmd.model, slurmd.slurm_node, was_down=was_down)

    def ping(self, model: SlurmModel, name: str) -> None:
        """slurmctld's next ping, which it also sends to nodes that are DOWN and respond."""
        self._later(self.rng.uniform(0, PING), self._pinged, model, name)

    def _pinged(self, model: SlurmModel, name: str) -> None:
        if name in model.nodes and self._answers(model, name):
            was_down = model.nodes[name].base == "DOWN"
            model.node_responds(name)
            self._report_returned(model, name, was_down=was_down)

    def _report_returned(self, model: SlurmModel, name: str, *, was_down: bool) -> None:
        if was_down and model.nodes[name].base != "DOWN":
            for listener in self.returned:
                listener(model, name)

    def _silent(self, slurmd: Slurmd, since: float) -> None:
        if self._still_lost(slurmd, since):
            slurmd.model.node_silence(slurmd.slurm_node)

    def _vanish(self, slurmd: Slurmd, since: float) -> None:
        """slurmctld's SlurmdTimeout, unless a slurmd answers by then."""
        if self._still_lost(slurmd, since):
            for listener in self.timed_out:
                listener(slurmd)
            slurmd.model.node_vanish(slurmd.slurm_node)

    # --- node life cycle controller

    def _unreachable(self, name: str) -> None:
        node = self.api.get(NODE, "", name)
        if not self._isolated(name) or node is None:
            return
        taints = [*node["spec"].get("taints", []), {"key": UNREACHABLE, "effect": "NoExecute"}]
        self.api.change(NODE, "", name, {"spec": {"taints": taints}})
        status = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
        self.api.change(NODE, "", name, {"status": status}, status=True)
        for pod in self.api.all(POD):
            if pod["spec"].get("nodeName") == name:
                containers = (pod.get("status") or {}).get("containerStatuses") or [
                    {"state": {"waiting": {}}}
                ]
                phase = (pod.get("status") or {}).get("phase", "Pending")
                self._report(pod, ready=False, state=containers[0]["state"], phase=phase)
                self._later(EVICTION, self._evict, name, pod["metadata"]["uid"])

    def _evict(self, name: str, uid: str) -> None:
        pod = self._pod(uid)
        if (
            self._isolated(name)
            and pod is not None
            and not pod["metadata"].get("deletionTimestamp")
        ):
            self.api.delete(POD, *_key(pod))

    def _gone(self, uid: str) -> None:
        pod = self._pod(uid)
        if pod is not None:
            self.api.delete(POD, *_key(pod), grace=0)

    # --- helpers

    def _pod(self, uid: str) -> Manifest | None:
        return next((pod for pod in self.api.all(POD) if pod["metadata"]["uid"] == uid), None)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _later(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        def due() -> None:
            try:
                call(*arguments)
            except ApiError as error:
                if error.status not in (404, 409):
                    raise

        asyncio.get_running_loop().call_later(seconds, due)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self.note(f"in a worker pod: {error!r}")

        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(ended)
        return task


_HOST = "kubernetes.io/hostname"


def slurm_node(pod: Manifest) -> str:
    """The Slurm node that its slurmd registers."""
    spec = pod["spec"]
    if spec.get("hostNetwork"):
        return str(spec.get("nodeName", ""))
    return str(spec.get("hostname") or pod["metadata"]["name"])


def _key(item: Manifest) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _term_fits(term: dict[str, Any], name: str, labels: dict[str, str]) -> bool:
    fields = all(
        name in it["values"] for it in term.get("matchFields") or () if it["key"] == "metadata.name"
    )
    return fields and all(_expression_fits(it, labels) for it in term.get("matchExpressions") or ())


def _expression_fits(it: dict[str, Any], labels: dict[str, str]) -> bool:
    present, values = it["key"] in labels, it.get("values") or ()
    match it["operator"]:
        case "In":
            return labels.get(it["key"]) in values
        case "NotIn":
            return labels.get(it["key"]) not in values
        case "Exists":
            return present
        case _:
            return not present
