"""Checks the invariants of docs/invariants.md at each request of the operator, before the request
is applied.

Broken ones are listed in `broken`; no request is stopped.
"""

import base64
import contextlib
import logging
import re
import urllib.parse
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from sidecars.contract.reasons import is_foreign
from sidecars.custom_resources import NODESETS
from sidecars.kube import LEASES, PODS, SECRETS, KubeError, Manifest
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.settings import Settings
from sidecars.simulate import SlurmModel
from sidecars.simulate.cluster import UNAVAILABLE
from sidecars.simulate.power import STARTING, STOPPED, STOPPING
from sidecars.simulate.records import Reply, SimJob
from sidecars.slurm.errors import SlurmError
from sidecars.slurm.hostlists import expand
from sidecars.workloads.resources.durations import duration
from tests.support.world.api import Api, Place
from tests.support.world.kubelets import NODE, OUT_OF_SERVICE, Kubelets

T = TypeVar("T")

BELIEVED = 12.0
"""Seconds after which an answer of Slurm is out of date: the poller's 10, and a request that is
under way.
"""

LIVE = 1.5
"""Seconds after an answer within which the request must be sent that relies on it: those for which
a record counts as live (`sidecars.policy.nodeset.worker_pods.LIVE_SECONDS`), and a batch of writes.
"""

LEASE_NAMESPACE = "slinky"
"""The operator's namespace, in which its Lease is."""

SHORTEST_SECRET = 12
"""Characters."""

_JWT = re.compile(r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.")


class Mark(NamedTuple):
    """An administrator's DRAIN, DOWN or FAIL."""

    model: SlurmModel
    state: str


class Read(NamedTuple):
    """An answer of Slurm: when it was given, and when it arrived."""

    given: float
    got: float


class Watchdog(logging.Handler):
    """Sees requests (`tests.support.world.client.Watcher`) and log records. `clock` is the
    loop's.
    """

    def __init__(self, api: Api, clock: Callable[[], float]) -> None:
        super().__init__(logging.INFO)
        self.api = api
        self.clock = clock
        self.operator_clock: Callable[[], float] = clock
        """The operator's wall clock."""
        self.lists_are_refused: Callable[[], bool] = lambda: False
        """Whether the API server refuses lists for want of a role: then an error is logged that
        names the remedy.
        """
        self.kubelets: Kubelets | None = None
        self.broken: list[str] = []
        self.writes = 0
        self.wrote_at = 0.0
        self.log: list[str] = []
        self.foreign_since: dict[tuple[int, str], float] = {}
        """When an administrator last drained or undrained a node: by model and node."""
        self.marks: dict[tuple[int, str], Mark] = {}
        """What administrators have set and not lifted, by model and node."""
        self._seen: dict[int, Read] = {}
        """The operator's last good list of nodes, by model."""
        self._seen_alone: dict[tuple[int, str], Read] = {}
        """Its last good answer about one node."""
        self._sidecar_read: dict[tuple[int, str], Read] = {}
        """The last answer about one node that its `node` sidecar has got."""
        self._secrets: dict[str, str] = {}
        self._secrets_of: list[Manifest] = []

    def note(self, what: str) -> None:
        """An invariant is broken."""
        self.broken.append(f"{self.clock():.2f}: {what}")
        self.log.append(f"{self.clock():9.2f} BROKEN {what}")

    def restarted(self) -> None:
        """A new operator process has read nothing yet."""
        self._seen.clear()
        self._seen_alone.clear()

    def marked(self, model: SlurmModel, name: str, state: str) -> None:
        """An administrator has set a node to DRAIN, DOWN or FAIL."""
        self.foreign_since[id(model), name] = self.clock()
        self.marks[id(model), name] = Mark(model, state)

    def unmarked(self, model: SlurmModel, name: str) -> None:
        """An administrator has resumed it, or deleted its record."""
        self.foreign_since[id(model), name] = self.clock()
        self.marks.pop((id(model), name), None)

    def returned_by_slurm(self, model: SlurmModel, name: str) -> None:
        """slurmctld has ended an administrator's DOWN, because ReturnToService=2 and slurmd has
        answered it.
        """
        mark, record = self.marks.get((id(model), name)), model.nodes[name]
        if mark is not None and not record.flags & UNAVAILABLE:
            del self.marks[id(model), name]

    def state_lost(self, model: SlurmModel) -> None:
        """slurmctld has forgotten what administrators had set."""
        self.marks = {key: mark for key, mark in self.marks.items() if mark.model is not model}

    def check_marks(self) -> None:
        """I4: a node stays unavailable until the administrator resumes it."""
        for key, mark in list(self.marks.items()):
            record = mark.model.nodes.get(key[1])
            if record is None or (record.base != "DOWN" and not record.flags & UNAVAILABLE):
                del self.marks[key]
                found = "has no record" if record is None else "is available"
                self.note(
                    f"I4: Slurm node {key[1]}, which an administrator has set {mark.state}, {found}"
                )

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
        reported = text.startswith("the operator may not list ") and self.lists_are_refused()
        if record.levelno >= logging.ERROR and not reported:
            self.note(f"logged as an error: {text}")

    # --- Kubernetes

    def writes_as(self, identity: str) -> None:
        """As `Watcher.writes_as`."""
        if identity and self._lease_holder() != identity:
            self.note(
                f"I8: operator {identity} writes while {self._lease_holder() or 'nobody'} holds "
                "the Lease"
            )

    def _lease_holder(self) -> str:
        lease = self.api.get(LEASES.path(), LEASE_NAMESPACE, Settings().leader_elect_name)
        return str(lease["spec"].get("holderIdentity") or "") if lease is not None else ""

    def kube_write(self, method: str, place: Place, body: Any) -> None:
        """As `Watcher.kube_write`."""
        self.log.append(
            f"{self.clock():9.2f} {method} {place.plural}/{place.name} {place.subresource}"
        )
        if place.plural != "events":
            self.writes += 1
            self.wrote_at = self.clock()
        public = body
        if place.plural == "secrets" and isinstance(body, dict):
            public = {
                key: value for key, value in body.items() if key not in ("data", "stringData")
            }
        self._check_secrets(f"{method} {place.plural}", msgspec.json.encode(public).decode())
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
            self.note(
                f"I3: pod {place.name} is deleted by force though its Kubernetes node may be alive"
            )
        if self._forced(pod):
            # The user has allowed that its jobs end with it.
            self.kubelets.deleted_by_operator.discard(wanted)
            return
        if not pod["metadata"].get("deletionTimestamp"):
            self.kubelets.deleted_by_operator.add(wanted)
        if slurmd is None or kube_node_gone:
            # Nothing of it runs, or an administrator has declared so. What runs in spite of that
            # ends in `Jobs`.
            return
        model, name = slurmd.model, slurmd.slurm_node
        seen, alone = self._seen.get(id(model)), self._seen_alone.get((id(model), name))
        # Neither the kubelet nor Slurm has reported that slurmd has started. The API server refuses
        # the deletion as soon as the kubelet does; until then the preStop hook protects the jobs,
        # whose end is checked in any case.
        started_unseen = (
            # An answer that arrived while the deletion was decided or on its way is none that it
            # could rely on.
            (seen is None or slurmd.registered_at >= min(seen.given, self.clock() - LIVE))
            and "running" not in _slurmd_state(pod)
            and bool(asked.get("resourceVersion"))
        )
        there = [job for job in model.jobs.values() if job.on_nodes and name in job.nodes]
        waiting = [job for job in there if self._waits_for(model, name, job, alone)]
        jobs = [job.job_id for job in there if job not in waiting]
        if jobs and not started_unseen and not self._raced(model, name):
            self.note(
                f"I1: pod {place.name} is deleted while its Slurm node {name} has jobs {jobs}"
            )
        if not slurmd.registered or started_unseen:
            return
        read = max(
            (it for it in (seen, alone) if it is not None), key=lambda it: it.got, default=None
        )
        if read is None or self.clock() - read.got > BELIEVED:
            self.note(
                f"I2: pod {place.name} is deleted though Slurm has given no good answer since "
                f"{read}"
            )
        record = model.nodes.get(name)
        closed = bool(waiting or (record and record.flags & (UNAVAILABLE | {STOPPED, STOPPING})))
        if record is not None and not closed and not self._raced(model, name):
            self.note(
                f"I1: pod {place.name} is deleted though a job may start on Slurm node {name} at "
                "any moment"
            )

    def _waits_for(self, model: SlurmModel, name: str, job: SimJob, read: "Read | None") -> bool:
        """Whether Slurm has given the job a powered-down node after the operator's last read of it,
        on which the deletion relies: it hasn't begun.

        Slurm starts the node again, for which it gets another pod. No job is lost by that, which is
        checked anyway.
        """
        record = model.nodes.get(name)
        if record is None or read is None or self.clock() - read.got > LIVE:
            return False
        since = self.clock() - (model.clock() - record.power_at)
        return STARTING in record.flags and "CONFIGURING" in job.states and since > read.given

    def _kube_node_gone(self, pod: Manifest) -> bool:
        name = pod["spec"].get("nodeName")
        node = self.api.get(NODE, "", name) if name else None
        taints = (node or {}).get("spec", {}).get("taints") or ()
        return bool(name) and (node is None or any(it["key"] == OUT_OF_SERVICE for it in taints))

    def _forced(self, pod: Manifest) -> bool:
        """Whether its NodeSet is being deleted, and the time for which it waits for jobs is over
        (deletionTimeout).
        """
        metadata = pod["metadata"]
        owner = next(
            (it["name"] for it in metadata.get("ownerReferences") or () if it.get("controller")), ""
        )
        nodeset = self.api.get(NODESETS.path(), metadata["namespace"], owner)
        deleted = (nodeset or {"metadata": {}})["metadata"].get("deletionTimestamp")
        if nodeset is None or deleted is None or "deletionTimeout" not in nodeset["spec"]:
            return False
        begun = datetime.fromisoformat(deleted).timestamp()
        waits = duration(nodeset["spec"]["deletionTimeout"], "spec.deletionTimeout")
        # As the operator's clock shows it.
        return self.operator_clock() >= begun + waits

    # --- Slurm

    def slurm_seen(
        self,
        model: SlurmModel,
        method: str,
        target: str,
        at: float,
        listed: set[str] | None,
        identity: str,
    ) -> None:
        """As `Watcher.slurm_seen`."""
        if identity and self._lease_holder() != identity:
            return  # the operator that leads has not seen it
        path = _path(target)
        if method == "GET" and path == "nodes/" and listed is not None:
            self._seen_alone |= {(id(model), name): Read(at, self.clock()) for name in listed}
        elif method == "GET" and path == "nodes/":
            self._seen[id(model)] = Read(at, self.clock())
        elif method == "GET" and path.startswith("node/"):
            self._seen_alone[id(model), path.removeprefix("node/")] = Read(at, self.clock())

    def slurm_request(
        self,
        model: SlurmModel,
        method: str,
        target: str,
        content: bytes | None,
        carry: Callable[[], T],
    ) -> T:
        """As `Watcher.slurm_request`."""
        if method == "GET":
            return carry()
        self._slurm_write(method, target, content)
        names = _written(target, content)
        before = self._records(model, names)
        answer = carry()
        for name, (reason, flags, base) in before.items():
            self._node_written(model, name, reason, flags, base, raced=self._raced(model, name))
        return answer

    def slurm_sent(
        self, model: SlurmModel, method: str, target: str, content: bytes | None
    ) -> Callable[[Callable[[], object]], None]:
        """As `Watcher.slurm_sent`."""
        self._slurm_write(method, target, content)
        names, sent = _written(target, content), self.clock()
        reads = {name: self._read(model, name) for name in names}

        def arrives(carry: Callable[[], object]) -> None:
            before = self._records(model, names)
            self.log.append(f"{self.clock():9.2f} late: {method} {target}")
            carry()
            self.wrote_at = self.clock()
            for name, (reason, flags, base) in before.items():
                changed, read = self.foreign_since.get((id(model), name)), reads[name]
                raced = (
                    changed is not None
                    and read is not None
                    and changed >= read.given
                    and sent - read.got <= LIVE
                )
                self._node_written(model, name, reason, flags, base, raced=raced, late=True)

        return arrives

    def _slurm_write(self, method: str, target: str, content: bytes | None) -> None:
        self.log.append(f"{self.clock():9.2f} {method} {target} {(content or b'').decode()}")
        self.writes += 1
        self.wrote_at = self.clock()
        self._check_secrets(f"{method} {target}", (content or b"").decode())

    @staticmethod
    def _records(model: SlurmModel, names: Iterable[str]) -> dict[str, tuple[str, set[str], str]]:
        """Reason, flags and base state of those that exist."""
        return {
            name: (it.reason, set(it.flags), it.base)
            for name in names
            if (it := model.nodes.get(name))
        }

    def sidecar_request(
        self,
        model: SlurmModel,
        method: str,
        target: str,
        content: bytes | None,
        carry: Callable[[], Reply],
    ) -> Reply:
        """As `kubelets.Watch.sidecar_request`."""
        path = _path(target)
        if method == "GET":
            reply = carry()
            if path.startswith("node/") and reply.delay is not None:
                key = id(model), path.removeprefix("node/")
                self._sidecar_read[key] = Read(self.clock(), self.clock() + reply.delay)
            return reply
        self.log.append(f"{self.clock():9.2f} node: {method} {target} {(content or b'').decode()}")
        before = self._records(model, _written(target, content))
        reply = carry()
        for name, (reason, flags, base) in before.items():
            read = self._sidecar_read.get((id(model), name))
            changed = self.foreign_since.get((id(model), name))
            raced = changed is not None and read is not None and self._is_race(changed, read)
            self._node_written(model, name, reason, flags, base, raced=raced)
        return reply

    def _node_written(
        self,
        model: SlurmModel,
        name: str,
        reason: str,
        flags: set[str],
        base: str,
        *,
        raced: bool,
        late: bool = False,
    ) -> None:
        """`late`: when it was sent, no slurmd ran there, or Slurm had another record of the
        node.
        """
        assert self.kubelets is not None
        record = model.nodes.get(name)
        running = [
            it for it in self.kubelets.running.values() if it.registered and it.slurm_node == name
        ]
        alive = any(it.model is model for it in running)
        foreign = is_foreign(reason) and not raced
        if raced and (
            record is None or record.reason != reason or (flags & UNAVAILABLE) - record.flags
        ):
            # What the administrator has set is lost, which nobody could prevent.
            self.marks.pop((id(model), name), None)
        if record is None:
            if alive and not late:
                self.note(f"I1: the record of Slurm node {name} is deleted while its slurmd runs")
            if foreign:
                self.note(
                    f"I4: the record of Slurm node {name} is deleted, whose foreign reason is "
                    f"{reason!r}"
                )
            return
        if record.base == "DOWN" and base != "DOWN" and alive and not late:
            self.note(f"I1: Slurm node {name} is set DOWN while its slurmd runs")
        if foreign and record.reason != reason:
            self.note(
                f"I4: the foreign reason {reason!r} of Slurm node {name} becomes {record.reason!r}"
            )
        lifted = (flags & UNAVAILABLE) - record.flags
        if foreign and (lifted or (base == "DOWN" and record.base != "DOWN")):
            self.note(
                f"I4: {sorted(lifted) or base} of Slurm node {name}, whose reason is {reason!r}, "
                "is lifted"
            )

    def _raced(self, model: SlurmModel, name: str) -> bool:
        """Whether an administrator changed the node between the operator's last read of it and this
        request.
        """
        changed, read = self.foreign_since.get((id(model), name)), self._read(model, name)
        return changed is not None and read is not None and self._is_race(changed, read)

    def _read(self, model: SlurmModel, name: str) -> Read | None:
        """The operator's newest answer about the node."""
        reads = [
            it
            for it in (self._seen.get(id(model)), self._seen_alone.get((id(model), name)))
            if it is not None
        ]
        return max(reads, key=lambda it: it.given, default=None)

    def _is_race(self, changed: float, read: "Read") -> bool:
        """Slurm has no conditional write, so nobody can exclude a change between the answer and the
        next request.
        """
        return changed >= read.given and self.clock() - read.got <= LIVE

    def _check_secrets(self, where: str, text: str) -> None:
        if _JWT.search(text):
            self.note(f"I10: a token in {where}")
        for value, name in self._secret_values().items():
            if value in text:
                self.note(f"I10: a secret value in {where}: one of Secret {name}")

    def _secret_values(self) -> dict[str, str]:
        """The values of all Secrets, plain and in base64, with the name of the Secret."""
        present = self.api.all(SECRETS.path())
        if present != self._secrets_of:
            self._secrets_of = present
            for secret in present:
                for encoded in (secret.get("data") or {}).values():
                    self._remember(encoded, secret["metadata"]["name"])
                    with contextlib.suppress(ValueError):
                        self._remember(
                            base64.b64decode(encoded).decode(), secret["metadata"]["name"]
                        )
                for plain in (secret.get("stringData") or {}).values():
                    self._remember(plain, secret["metadata"]["name"])
                    self._remember(
                        base64.b64encode(plain.encode()).decode(), secret["metadata"]["name"]
                    )
        return self._secrets

    def _remember(self, value: str, secret: str) -> None:
        # A former value is a secret still. A short one is found by chance.
        if len(value) >= SHORTEST_SECRET:
            self._secrets.setdefault(value, secret)


def _slurmd_state(pod: Manifest) -> dict[str, Any]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((dict(it.get("state") or {}) for it in statuses if it["name"] == "slurmd"), {})


def _path(target: str) -> str:
    """What a request to slurmrestd is about: its path without service and version."""
    return urllib.parse.unquote(urllib.parse.urlsplit(target).path).split("/", 3)[-1]


def _written(target: str, content: bytes | None) -> list[str]:
    """The nodes that a write names."""
    path, body = _path(target), msgspec.json.decode(content) if content else {}
    if path.startswith("node/"):
        return [path.removeprefix("node/")]
    return [name for expression in body.get("name") or () for name in expand(expression)]
