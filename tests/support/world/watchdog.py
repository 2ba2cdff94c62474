"""Checks the invariants of docs/invariants.md at each request of the operator, before the request is applied.

Broken ones are listed in `broken`; no request is stopped.
"""

import logging
import urllib.parse
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from sidecars.contract.reasons import is_foreign
from sidecars.custom_resources import NODESETS
from sidecars.kube import PODS, KubeError, Manifest
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.simulate import SlurmModel
from sidecars.slurm.errors import SlurmError
from sidecars.slurm.hostlists import expand
from tests.support.world.api import Api, Place
from tests.support.world.kubelets import NODE, OUT_OF_SERVICE, Kubelets, slurm_node

T = TypeVar("T")

BELIEVED = 12.0
"""Seconds after which an answer of Slurm is out of date: the poller's 10, and a request that is under way."""


class Watchdog(logging.Handler):
    """Sees requests (`tests.support.world.client.Watcher`) and log records. `clock` is the loop's."""

    def __init__(self, api: Api, clock: Callable[[], float], secrets: tuple[str, ...]) -> None:
        super().__init__(logging.INFO)
        self.api = api
        self.clock = clock
        self.secrets = secrets
        self.kubelets: Kubelets | None = None
        self.broken: list[str] = []
        self.writes = 0
        self.wrote_at = 0.0
        self.log: list[str] = []
        self.foreign_since: dict[tuple[int, str], float] = {}
        """When an administrator last drained or undrained a node: by model and node."""
        self._seen: dict[int, float] = {}

    def note(self, what: str) -> None:
        """An invariant is broken."""
        self.broken.append(f"{self.clock():.2f}: {what}")
        self.log.append(f"{self.clock():9.2f} BROKEN {what}")

    def restarted(self) -> None:
        """A new operator process has read nothing yet."""
        self._seen.clear()

    def emit(self, record: logging.LogRecord) -> None:
        """A line of the operator's log."""
        text = record.getMessage()
        self.log.append(f"{self.clock():9.2f} {record.levelname} {text}")
        self._check_secrets("the log", text)
        arguments = record.args if isinstance(record.args, tuple) else ()
        for error in arguments:
            expected = (KubeError, SlurmError, NotUsableError, TimeoutError, OSError)
            if isinstance(error, Exception) and not isinstance(error, expected):
                self.note(f"a pass failed by {error!r}")
        if record.levelno >= logging.ERROR:
            self.note(f"logged as an error: {text}")

    # --- Kubernetes

    def kube_write(self, method: str, place: Place, body: Any) -> None:
        """As `Watcher.kube_write`."""
        self.log.append(f"{self.clock():9.2f} {method} {place.plural}/{place.name} {place.subresource}")
        if place.plural != "events":
            self.writes += 1
            self.wrote_at = self.clock()
        if place.plural != "secrets":
            self._check_secrets(f"{method} {place.plural}", msgspec.json.encode(body).decode())
        if place.collection == PODS.path() and method == "DELETE":
            self._check_pod_deletion(place, body or {})

    def _check_pod_deletion(self, place: Place, options: dict[str, Any]) -> None:
        pod = self.api.get(place.collection, place.namespace, place.name)
        asked: dict[str, str] = options.get("preconditions") or {}
        wanted = asked.get("uid", "")
        if not wanted:
            self.note(f"I3: pod {place.name} is deleted whatever its uid: that may be a successor")
        if pod is None or any(pod["metadata"][name] != value for name, value in asked.items()):
            return  # it will be refused
        assert self.kubelets is not None
        grace = options.get("gracePeriodSeconds")
        kube_node_gone = self._kube_node_gone(pod)
        slurmd = self.kubelets.running.get(wanted)
        if grace == 0 and not kube_node_gone and pod["spec"].get("nodeName"):
            self.note(f"I3: pod {place.name} is deleted by force though its Kubernetes node may be alive")
        if kube_node_gone or self._forced(pod):
            return
        model, name = self.kubelets.model(pod), slurm_node(pod)
        seen = self._seen.get(id(model))
        reported_running = "running" in _slurmd_state(pod)
        unseen = slurmd is not None and (seen is None or slurmd.registered_at >= seen)
        not_known_to_have_started = unseen and not reported_running
        excused = not_known_to_have_started or self._changed_unseen(model, name)
        jobs = [job.job_id for job in model.jobs.values() if job.on_nodes and name in job.nodes]
        if jobs and not excused:
            self.note(f"I1: pod {place.name} is deleted while its Slurm node {name} has jobs {jobs}")
        if slurmd is None or not slurmd.registered or not_known_to_have_started:
            return
        if seen is None or self.clock() - seen > BELIEVED:
            self.note(f"I2: pod {place.name} is deleted though Slurm has given no good answer since {seen}")
        record = model.nodes.get(name)
        if record is not None and "DRAIN" not in record.flags and not excused:
            self.note(f"I1: pod {place.name} is deleted though a job may start on Slurm node {name} at any moment")

    def _kube_node_gone(self, pod: Manifest) -> bool:
        name = pod["spec"].get("nodeName")
        node = self.api.get(NODE, "", name) if name else None
        taints = (node or {}).get("spec", {}).get("taints") or ()
        return bool(name) and (node is None or any(it["key"] == OUT_OF_SERVICE for it in taints))

    def _forced(self, pod: Manifest) -> bool:
        """Whether its NodeSet is gone, or is being deleted with a limit for the jobs (docs: deletionTimeout)."""
        metadata = pod["metadata"]
        owner = next((it["name"] for it in metadata.get("ownerReferences") or () if it.get("controller")), "")
        nodeset = self.api.get(NODESETS.path(), metadata["namespace"], owner)
        if nodeset is None:
            return True
        return bool(nodeset["metadata"].get("deletionTimestamp") and nodeset["spec"].get("deletionTimeout"))

    # --- Slurm

    def slurm_seen(self, model: SlurmModel, method: str, target: str, at: float) -> None:
        """As `Watcher.slurm_seen`."""
        if method == "GET" and "/nodes/" in target:
            self._seen[id(model)] = max(at, self._seen.get(id(model), at))

    def slurm_request(
        self, model: SlurmModel, method: str, target: str, content: bytes | None, carry: Callable[[], T]
    ) -> T:
        """As `Watcher.slurm_request`."""
        if method == "GET":
            return carry()
        self.log.append(f"{self.clock():9.2f} {method} {target} {(content or b'').decode()}")
        self.writes += 1
        self.wrote_at = self.clock()
        self._check_secrets(f"{method} {target}", (content or b"").decode())
        path = urllib.parse.unquote(urllib.parse.urlsplit(target).path).split("/", 3)[-1]
        body = msgspec.json.decode(content) if content else {}
        named = [name for expression in body.get("name") or () for name in expand(expression)]
        names = [path.removeprefix("node/")] if path.startswith("node/") else named
        before = {name: (it.reason, set(it.flags), it.base) for name in names if (it := model.nodes.get(name))}
        answer = carry()
        for name, (reason, flags, base) in before.items():
            self._node_written(model, name, reason, flags, base)
        return answer

    def _node_written(self, model: SlurmModel, name: str, reason: str, flags: set[str], base: str) -> None:
        assert self.kubelets is not None
        record = model.nodes.get(name)
        unseen = self._changed_unseen(model, name)
        running = [it for it in self.kubelets.running.values() if it.registered and it.slurm_node == name]
        alive = any(it.model is model for it in running)
        if record is None:
            if alive:
                self.note(f"I1: the record of Slurm node {name} is deleted while its slurmd runs")
            if is_foreign(reason) and not unseen:
                self.note(f"I4: the record of Slurm node {name} is deleted, whose foreign reason is {reason!r}")
            return
        if record.base == "DOWN" and base != "DOWN" and alive:
            self.note(f"I1: Slurm node {name} is set DOWN while its slurmd runs")
        lifted = "DRAIN" in flags and "DRAIN" not in record.flags
        if is_foreign(reason) and (record.reason != reason or lifted) and not unseen:
            self.note(f"I4: the foreign reason {reason!r} of Slurm node {name} becomes {record.reason!r}")

    def _changed_unseen(self, model: SlurmModel, name: str) -> bool:
        """Whether an administrator changed the drain after the operator last read the node."""
        changed = self.foreign_since.get((id(model), name))
        return changed is not None and changed >= self._seen.get(id(model), 0.0)

    def _check_secrets(self, where: str, text: str) -> None:
        for secret in self.secrets:
            if secret in text:
                self.note(f"I10: a secret value in {where}")


def _slurmd_state(pod: Manifest) -> dict[str, Any]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((dict(it.get("state") or {}) for it in statuses if it["name"] == "slurmd"), {})
