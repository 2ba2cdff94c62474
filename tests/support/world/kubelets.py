"""All of a Kubernetes cluster but the API server and the operator: scheduler, kubelets, the built-in controllers.

A worker pod's slurmd and its `node` sidecar are acted here: slurmd registers with the simulated Slurm and leaves it,
`node` settles an earlier record at the start, holds the preStop hook until the jobs are gone, and removes the record,
as sidecars/node/machine.py does. What these do never meets injected faults of the API server; what `node` asks Slurm
does meet a sick slurmrestd.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sidecars.contract import reasons
from sidecars.contract.extra import PodFacts, encode, pod_facts
from sidecars.kube import (
    DEPLOYMENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
    Manifest,
)
from sidecars.kube.errors import ApiError
from sidecars.simulate import SlurmModel
from tests.support.world.api import Api, Change

POD, NODE, STATEFUL_SET, DEPLOYMENT = PODS.path(), NODES.path(), STATEFUL_SETS.path(), DEPLOYMENTS.path()
CLAIM = PERSISTENT_VOLUME_CLAIMS.path()
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
UNREACHABLE = "node.kubernetes.io/unreachable"

MARGIN = 20.0  # before the end of the grace, slurmd is stopped whatever runs (sidecars/workloads/nodeset.py)
NODE_MONITOR_GRACE = 40.0  # kube-controller-manager --node-monitor-grace-period
EVICTION = 300.0  # tolerationSeconds of every pod for an unreachable node
SLURMD_TIMEOUT = 300.0  # slurm.conf SlurmdTimeout
POD_GC = 20.0  # a pod bound to a node that is no more


@dataclass
class Slurmd:
    """A slurmd process."""

    pod: str
    uid: str
    slurm_node: str
    kube_node: str
    registered: bool = False
    registered_at: float = float("inf")
    """By the loop's clock."""


@dataclass
class Kubelets:
    """`model` tells the Slurm cluster of a pod; `note` takes what should never happen."""

    api: Api
    model: Callable[[Manifest], SlurmModel]
    rng: random.Random
    note: Callable[[str], None]
    running: dict[str, Slurmd] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    broken_images: set[str] = field(default_factory=set)
    _models: dict[str, SlurmModel] = field(default_factory=dict)
    _stopping: set[str] = field(default_factory=set)
    _owners: dict[str, set[tuple[str, str, str]]] = field(default_factory=dict)
    _uids: set[str] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.api.listeners.append(self._changed)

    def machine(self, name: str) -> None:
        """Add a machine."""
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {_HOST: name}}}
        self.api.create(NODE, {**node, "spec": {}})
        self.api.change(NODE, "", name, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, status=True)

    def kill(self, name: str) -> None:
        """The machine loses its power: its processes are gone, and nobody says so yet."""
        if name in self.dead:
            return
        self.dead.add(name)
        for uid, slurmd in list(self.running.items()):
            if slurmd.kube_node == name:
                del self.running[uid]
                self._stopping.discard(uid)
                self._later(SLURMD_TIMEOUT, self._vanish, slurmd)
        self._later(NODE_MONITOR_GRACE, self._unreachable, name)

    def revive(self, name: str) -> None:
        """The machine boots."""
        if name not in self.dead:
            return
        self.dead.discard(name)
        node = self.api.get(NODE, "", name)
        if node is None:
            self.machine(name)
            return
        taints = [it for it in node["spec"].get("taints", []) if it["key"] not in (UNREACHABLE, OUT_OF_SERVICE)]
        self.api.change(NODE, "", name, {"spec": {"taints": taints or None}})
        self.api.change(NODE, "", name, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, status=True)
        for pod in self.api.all(POD):
            if pod["spec"].get("nodeName") != name:
                continue
            if pod["metadata"].get("deletionTimestamp"):
                self._gone(pod["metadata"]["uid"])
            else:
                self._later(self.rng.uniform(1, 5), self._start, pod["metadata"]["uid"])

    def remove(self, name: str) -> None:
        """An administrator deletes the Node object of a machine that is dead."""
        if name in self.dead and self.api.get(NODE, "", name) is not None:
            self.api.delete(NODE, "", name)
            for pod in self.api.all(POD):
                if pod["spec"].get("nodeName") == name:
                    self._later(self.rng.uniform(POD_GC, 2 * POD_GC), self._gone, pod["metadata"]["uid"])

    def switch_off(self, name: str) -> None:
        """An administrator says of a machine that is dead that it is: the taint out-of-service."""
        node = self.api.get(NODE, "", name)
        if name in self.dead and node is not None:
            taints = [it for it in node["spec"].get("taints", []) if it["key"] != OUT_OF_SERVICE]
            taints.append({"key": OUT_OF_SERVICE, "effect": "NoExecute"})
            self.api.change(NODE, "", name, {"spec": {"taints": taints}})
            # NoExecute: nothing tolerates it.
            for pod in self.api.all(POD):
                if pod["spec"].get("nodeName") == name:
                    self._later(self.rng.uniform(0.1, 2.0), self._evict, name, pod["metadata"]["uid"])

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
            slurmd = self.running.get(uid)
            if slurmd is not None and uid not in self._stopping:
                # Deleted by force: the kubelet kills what still runs.
                self._stopping.add(uid)
                self._later(self.rng.uniform(0.1, 1.0), self._killed, uid)
        elif metadata.get("deletionTimestamp"):
            if pod["spec"].get("nodeName") not in self.dead and uid not in self._stopping:
                self._stopping.add(uid)
                self._spawn(self._stop(uid))
        elif change.kind == "ADDED":
            self._later(self.rng.uniform(0.02, 0.2), self._bind, uid)

    def _collect(self, owner: str) -> None:
        """https://kubernetes.io/docs/concepts/architecture/garbage-collection/, in the background."""
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
            status = dict.fromkeys(names, count) | {"observedGeneration": item["metadata"]["generation"]}
            self.api.change(collection, *key, {"status": status}, status=True)

    # --- scheduler

    def _bind(self, uid: str) -> None:
        pod = self._pod(uid)
        if pod is None or pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            return
        taken: dict[str, int] = {}
        for other in self.api.all(POD):
            name = other["spec"].get("nodeName", "")
            taken[name] = taken.get(name, 0) + 1
        fits = [node["metadata"]["name"] for node in self.api.all(NODE) if self._fits(pod, node, taken)]
        if not fits:
            self._later(2.0, self._bind, uid)
            return
        chosen = min(fits, key=lambda name: (taken.get(name, 0), self.rng.random()))
        self.api.change(POD, *_key(pod), {"spec": {"nodeName": chosen}})
        self._later(self.rng.uniform(0.2, 2.0), self._start, uid)

    def _fits(self, pod: Manifest, node: Manifest, taken: dict[str, int]) -> bool:
        name, spec = node["metadata"]["name"], pod["spec"]
        tolerated = {it.get("key") for it in spec.get("tolerations") or ()}
        blocked = [it["key"] for it in node["spec"].get("taints") or () if it["key"] not in tolerated]
        if name in self.dead or blocked:
            return False
        if node["spec"].get("unschedulable") and "node.kubernetes.io/unschedulable" not in tolerated:
            return False
        affinity = spec.get("affinity") or {}
        if affinity.get("podAntiAffinity") and taken.get(name):
            return False
        needed = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        terms = needed.get("nodeSelectorTerms")
        labels = node["metadata"].get("labels") or {}
        if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
            return False
        return not terms or any(_term_fits(term, name, labels) for term in terms)

    # --- kubelet, slurmd and `node`

    def _start(self, uid: str) -> None:
        pod = self._pod(uid)
        if pod is None or pod["spec"].get("nodeName") in self.dead or uid in self.running or uid in self._stopping:
            return
        image = next((it.get("image", "") for it in pod["spec"]["containers"] if it["name"] == "slurmd"), "")
        if image in self.broken_images:
            waiting = {"waiting": {"reason": "ImagePullBackOff", "message": image}}
            self._report(pod, ready=False, state=waiting, phase="Pending")
            self._later(5.0, self._start, uid)
            return
        name = slurm_node(pod)
        for other in self.running.values():
            if other.slurm_node == name and self.model(pod) is self.model_of(other):
                self.note(f"I3: slurmd of pod {uid} starts as {name} while that of pod {other.uid} still runs")
        self.running[uid] = Slurmd(pod["metadata"]["name"], uid, name, pod["spec"]["nodeName"])
        self._models[uid] = self.model(pod)
        self._claim(pod, name)
        running = {"running": {"startedAt": self.api.timestamp()}}
        # Sometimes Slurm knows of slurmd before the kubelet has told of it, mostly it is the other way round.
        first, second = sorted((self.rng.uniform(0.05, 0.6), self.rng.uniform(0.05, 0.6)))
        said, registered = (first, second) if self.rng.random() < 0.8 else (second, first)
        self._later(said, self._say, uid, False, running)
        self._later(registered, self._register, uid)
        self._later(second + self.rng.uniform(0.1, 1.0), self._say, uid, True, running)

    def model_of(self, slurmd: Slurmd) -> SlurmModel:
        """The Slurm cluster of a slurmd."""
        return self._models[slurmd.uid]

    def _claim(self, pod: Manifest, name: str) -> None:
        model, uid = self.model(pod), pod["metadata"]["uid"]
        record = model.nodes.get(name)
        facts = pod_facts(record.extra) if record is not None else None
        if record is None or (facts is not None and facts.pod_uid == uid):
            return
        foreign = reasons.is_foreign(record.reason)
        if foreign or not self._rest(model, "DELETE", f"node/{name}"):
            record.extra = _extra(pod)
            self._lift(uid)

    def _lift(self, uid: str) -> None:
        """`node` takes back the drain that an earlier pod of its name left on a record that had to stay."""
        slurmd = self.running.get(uid)
        record = self._models[uid].nodes.get(slurmd.slurm_node) if slurmd is not None else None
        if record is None or uid in self._stopping or reasons.owner(record.reason) is not reasons.Owner.POD:
            return
        if not self._rest(self._models[uid], "POST", f"node/{record.name}", {"state": ["UNDRAIN"]}):
            self._later(2.0, self._lift, uid)

    def _say(self, uid: str, ready: bool, state: dict[str, Any]) -> None:
        pod, slurmd = self._pod(uid), self.running.get(uid)
        if pod is None or slurmd is None or (uid in self._stopping and ready):
            return
        if ready and not slurmd.registered:
            self._later(0.5, self._say, uid, True, state)
            return
        self._report(pod, ready=ready, state=state, phase="Running")

    def _report(self, pod: Manifest, *, ready: bool, state: dict[str, Any], phase: str) -> None:
        now, word = self.api.timestamp(), "True" if ready else "False"
        present = {it["type"]: it for it in (pod.get("status") or {}).get("conditions") or ()}
        conditions = [it for it in present.values() if it["type"] not in ("Ready", "ContainersReady")]
        for kind in ("ContainersReady", "Ready"):
            old = present.get(kind)
            same = old is not None and old["status"] == word
            conditions.append(
                {"type": kind, "status": word, "lastTransitionTime": old["lastTransitionTime"] if old and same else now}
            )
        container = {"name": "slurmd", "ready": ready, "started": "running" in state, "restartCount": 0, "state": state}
        status = {"phase": phase, "conditions": conditions, "containerStatuses": [container]}
        self.api.change(POD, *_key(pod), {"status": status | {"podIP": "10.0.0.1"}}, status=True)

    def _register(self, uid: str) -> None:
        slurmd, pod = self.running.get(uid), self._pod(uid)
        if slurmd is None or pod is None:
            return
        model = self.model_of(slurmd)
        record = model.nodes.get(slurmd.slurm_node)
        # What a record was made with, it keeps.
        extra = record.extra if record is not None else _extra(pod)
        model.node_register(slurmd.slurm_node, extra=extra)
        slurmd.registered, slurmd.registered_at = True, self._now()

    def register_again(self, model: SlurmModel) -> None:
        """slurmctld has lost its state, and asks every slurmd."""
        for slurmd in list(self.running.values()):
            if self.model_of(slurmd) is model:
                self._later(self.rng.uniform(0.5, 20.0), self._register_lost, slurmd.uid)

    def _register_lost(self, uid: str) -> None:
        slurmd, pod = self.running.get(uid), self._pod(uid)
        if slurmd is not None and pod is not None and uid not in self._stopping:
            model = self.model_of(slurmd)
            if slurmd.slurm_node not in model.nodes:
                model.node_register(slurmd.slurm_node, extra=_extra(pod))

    async def _stop(self, uid: str) -> None:
        """The preStop hook and `node`, then slurmd's end, then the pod's."""
        pod, slurmd = self._pod(uid), self.running.get(uid)
        begun = self._now()
        if slurmd is not None and pod is not None:
            silent_since: float | None = None
            while (pod := self._pod(uid)) is not None and slurmd.uid in self.running:
                grace = pod["metadata"].get("deletionGracePeriodSeconds", 0)
                if self._now() - begun >= grace - MARGIN:
                    break
                busy = self._work(slurmd)
                record = self.model_of(slurmd).nodes.get(slurmd.slurm_node)
                drained = record is None or "DRAIN" in record.flags
                asked = drained or self._drain(slurmd)
                if asked and not self._sick(slurmd):
                    silent_since = None
                    if not busy:
                        break
                else:
                    silent_since = silent_since or self._now()
                    if not busy and self._now() - silent_since >= 10:
                        break
                await asyncio.sleep(1.0)
            await asyncio.sleep(self.rng.uniform(0.1, 0.5))
            if uid not in self.running:
                return  # the machine died
            del self.running[uid]
            if slurmd.registered:
                await self._depart(slurmd)
        await asyncio.sleep(self.rng.uniform(0.05, 0.3))
        pod = self._pod(uid)
        if pod is not None and pod["spec"].get("nodeName") not in self.dead:
            self._gone(uid)
        self._stopping.discard(uid)

    async def _depart(self, slurmd: Slurmd) -> None:
        model, name = self.model_of(slurmd), slurmd.slurm_node
        for _ in range(6):
            record = model.nodes.get(name)
            facts = pod_facts(record.extra) if record is not None else None
            if record is None or facts is None or facts.pod_uid != slurmd.uid:
                return
            foreign = reasons.is_foreign(record.reason)
            reserved = any(name in it.nodes for it in model.reservations.values())
            if foreign or reserved or self._work(slurmd):
                self._rest(model, "POST", f"node/{name}", {"state": ["DOWN"]})
            if not foreign and not reserved and self._rest(model, "DELETE", f"node/{name}"):
                return
            await asyncio.sleep(2.0)
        self._later(SLURMD_TIMEOUT, self._vanish, slurmd)

    def _drain(self, slurmd: Slurmd) -> bool:
        body = {"state": ["DRAIN"], "reason": reasons.POD_LEAVING}
        return self._rest(self.model_of(slurmd), "POST", f"node/{slurmd.slurm_node}", body)

    def _rest(self, model: SlurmModel, method: str, path: str, body: dict[str, Any] | None = None) -> bool:
        content = None if body is None else msgspec.json.encode(body)
        reply = model.handle(method, f"/slurm/v0.0.45/{path}", content, "")
        return reply.status == 200 and reply.delay is not None and b'"error_number"' not in reply.body

    def _sick(self, slurmd: Slurmd) -> bool:
        return bool(self.model_of(slurmd)._planned)

    def _work(self, slurmd: Slurmd) -> bool:
        return any(slurmd.slurm_node in job.nodes and job.on_nodes for job in self.model_of(slurmd).jobs.values())

    def _killed(self, uid: str) -> None:
        slurmd = self.running.pop(uid, None)
        self._stopping.discard(uid)
        if slurmd is not None:
            self._later(SLURMD_TIMEOUT, self._vanish, slurmd)

    def _vanish(self, slurmd: Slurmd) -> None:
        """slurmctld's SlurmdTimeout, unless another slurmd answers by now."""
        model = self.model_of(slurmd)
        answers = any(it.slurm_node == slurmd.slurm_node and self.model_of(it) is model for it in self.running.values())
        if slurmd.slurm_node in model.nodes and not answers:
            model.node_vanish(slurmd.slurm_node)

    # --- node life cycle controller

    def _unreachable(self, name: str) -> None:
        node = self.api.get(NODE, "", name)
        if name not in self.dead or node is None:
            return
        taints = [*node["spec"].get("taints", []), {"key": UNREACHABLE, "effect": "NoExecute"}]
        self.api.change(NODE, "", name, {"spec": {"taints": taints}})
        status = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
        self.api.change(NODE, "", name, {"status": status}, status=True)
        for pod in self.api.all(POD):
            if pod["spec"].get("nodeName") == name:
                containers = (pod.get("status") or {}).get("containerStatuses") or [{"state": {"waiting": {}}}]
                phase = (pod.get("status") or {}).get("phase", "Pending")
                self._report(pod, ready=False, state=containers[0]["state"], phase=phase)
                self._later(EVICTION, self._evict, name, pod["metadata"]["uid"])

    def _evict(self, name: str, uid: str) -> None:
        pod = self._pod(uid)
        if name in self.dead and pod is not None and not pod["metadata"].get("deletionTimestamp"):
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

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_HOST = "kubernetes.io/hostname"


def slurm_node(pod: Manifest) -> str:
    """The name under which its slurmd registers."""
    spec = pod["spec"]
    if spec.get("hostNetwork"):
        return str(spec.get("nodeName", ""))
    return str(spec.get("hostname") or pod["metadata"]["name"])


def _extra(pod: Manifest) -> str:
    metadata = pod["metadata"]
    owner = next((it["uid"] for it in metadata.get("ownerReferences") or () if it.get("controller")), "")
    return encode(PodFacts(metadata["uid"], metadata["name"], metadata["namespace"], owner))


def _key(item: Manifest) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _term_fits(term: dict[str, Any], name: str, labels: dict[str, str]) -> bool:
    fields = all(name in it["values"] for it in term.get("matchFields") or () if it["key"] == "metadata.name")
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
