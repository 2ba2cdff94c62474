"""What slurmctld would hold, and slurmrestd's answers about it, good and bad: pure but for the clock that it is given.

It behaves as Slurm 26.05 was seen to. It schedules nothing: whoever drives it starts and ends jobs.
"""

import json
import time
import urllib.parse
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sidecars.simulate.tokens import user_of
from sidecars.slurm.hostlists import HostlistError, expand
from sidecars.slurm.protocol import VERSIONS

Json = dict[str, Any]

BUSY, UNKNOWN_NODE, BAD_TRANSITION, NO_RIGHT, BAD_AUTH, NO_SLURMCTLD = 2016, 2018, 2180, 2010, 1007, 1800
TEXT = {
    BUSY: "Requested nodes are busy",
    UNKNOWN_NODE: "Invalid node name specified",
    BAD_TRANSITION: "Invalid node state transition",
    NO_RIGHT: "Invalid user id",
    BAD_AUTH: "Protocol authentication error",
    NO_SLURMCTLD: "Unable to contact slurm controller (connect failure)",
    9207: "Data parser unable to parse invalid flag",
    9216: "Request to parse invalid data",
    0: "No error",
}
UNDRAIN_SILENCE = 1.0
"""Seconds for which a node that was undrained doesn't respond: until slurmctld has asked it."""


class Fault(Enum):
    """What a sick slurmrestd does instead of answering."""

    SERVER_ERROR = "HTTP 500 without JSON"
    NO_SLURMCTLD = "HTTP 502, number 1800"
    ERRORS_WITH_200 = "HTTP 200 with errors"
    BAD_TOKEN = "HTTP 511, number 1007"  # noqa: S105 - an answer
    BAD_TOKEN_OLD = "HTTP 500, number 1007, as older releases"  # noqa: S105 - an answer
    NO_TOKEN = "HTTP 401 as text"  # noqa: S105 - an answer
    EMPTY = "HTTP 200 with empty lists"
    TRUNCATED = "HTTP 200 with half of the JSON"
    CUT = "the connection ends within the answer"
    HANG = "no answer at all"
    SLOW = "the right answer, late"


@dataclass(slots=True)
class SimNode:
    """A node record as slurmctld holds it. `base` is IDLE or DOWN; what jobs make of it is derived."""

    name: str
    base: str = "IDLE"
    flags: set[str] = field(default_factory=lambda: {"DYNAMIC_NORM"})
    reason: str = ""
    reason_changed_at: int = 0
    comment: str = ""
    extra: str = ""
    instance_id: str = ""
    features: list[str] = field(default_factory=list)
    active_features: list[str] = field(default_factory=list)
    topology: str = ""
    address: str = ""
    gres: str = ""
    cpus: int = 4
    real_memory: int = 16_000
    slurmd_start_time: int = 0
    silent_until: float = 0.0


@dataclass(slots=True)
class SimJob:
    """A job record. `states` as Slurm spells them; COMPLETING means that its nodes still clean up."""

    job_id: int
    nodes: list[str]
    states: set[str]
    cpus: int = 1
    start_time: int = 0
    time_limit: int | None = None
    name: str = "job"
    partition: str = "all"

    @property
    def on_nodes(self) -> bool:
        """Whether its nodes are busy with it."""
        return bool(self.states & {"RUNNING", "COMPLETING", "SUSPENDED"})


@dataclass(frozen=True, slots=True)
class SimReservation:
    """A reservation of named nodes."""

    name: str
    nodes: str
    start_time: int
    end_time: int
    users: str = "root"
    flags: tuple[str, ...] = ("MAINT", "IGNORE_JOBS", "SPEC_NODES")


@dataclass(frozen=True, slots=True)
class Call:
    """A request that reached slurmrestd, version and token left out."""

    method: str
    path: str
    query: dict[str, str]
    body: Json | None


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; sent after `delay` seconds (None: never), broken off in the middle when `cut`."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    delay: float | None = 0.0
    cut: bool = False


@dataclass(slots=True)
class _Planned:
    fault: Fault
    left: float
    method: str | None
    path: str
    seconds: float


class SlurmModel:
    """One simulated Slurm cluster. `clock` is the server's time in seconds since the epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.nodes: dict[str, SimNode] = {}
        self.jobs: dict[int, SimJob] = {}
        self.reservations: dict[str, SimReservation] = {}
        self.partial_answers = False
        self.versions: tuple[str, ...] = VERSIONS
        self.key: bytes | None = None
        self.calls: list[Call] = []
        self._changed_at: dict[str, float] = {}
        self._last_node_update = clock()
        self._last_job_update = clock()
        self._next_job = 1
        self._planned: list[_Planned] = []

    # --- what happens in the cluster

    def node_register(
        self,
        name: str,
        *,
        features: Iterable[str] = (),
        extra: str = "",
        instance_id: str = "",
        topology: str = "",
        address: str = "",
        gres: str = "",
        cpus: int = 4,
        real_memory: int = 16_000,
    ) -> SimNode:
        """slurmd -Z starts: a new record, or the old one back in service with its drain, reason and comment."""
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = SimNode(name, features=list(features), active_features=list(features))
            node.topology = topology
        if node.base == "DOWN":
            node.base = "IDLE"
            if "DRAIN" not in node.flags:
                node.reason, node.reason_changed_at = "", 0
        node.flags -= {"NOT_RESPONDING"}
        node.extra, node.instance_id, node.address, node.gres = extra, instance_id, address or name, gres
        node.cpus, node.real_memory, node.slurmd_start_time = cpus, real_memory, int(self.clock())
        self._touch(name)
        return node

    def node_vanish(self, name: str) -> None:
        """slurmd has not answered for SlurmdTimeout: DOWN, and its jobs are lost."""
        node = self.nodes[name]
        node.flags.add("NOT_RESPONDING")
        self._down(node)
        if not node.reason:
            self._set_reason(node, "Not responding")

    def node_lose(self, *names: str) -> None:
        """The records are gone without anybody deleting them."""
        for name in names:
            del self.nodes[name]
            self._touch(name)

    def job_start(
        self, nodes: str | Iterable[str], *, cpus: int = 1, time_limit: int | None = None, name: str = "job"
    ) -> int:
        """A job begins to run on these nodes (a hostlist or names); its id."""
        names = expand(nodes) if isinstance(nodes, str) else list(nodes)
        job = SimJob(self._next_job, names, {"RUNNING"}, cpus, int(self.clock()), time_limit, name)
        self._next_job += 1
        for node in names:
            if node not in self.nodes:
                raise KeyError(node)
        self.jobs[job.job_id] = job
        self._touch_job(job)
        return job.job_id

    def job_submit(self, *, name: str = "job") -> int:
        """A job that stays pending; its id."""
        job = SimJob(self._next_job, [], {"PENDING"}, name=name)
        self._next_job += 1
        self.jobs[job.job_id] = job
        self._touch_job(job)
        return job.job_id

    def job_end(self, job_id: int, *, state: str = "COMPLETED", completing: bool = False) -> None:
        """The job ends; with `completing` its nodes are busy until it is called again without."""
        job = self.jobs[job_id]
        job.states = {state, "COMPLETING"} if completing else {state}
        self._touch_job(job)

    def reserve(self, name: str, nodes: str, *, start: int, minutes: int) -> None:
        """A maintenance reservation."""
        self.reservations[name] = SimReservation(name, nodes, start, start + 60 * minutes)

    def restart(self, *, lost_state: bool = False) -> None:
        """slurmctld starts again, with its state or without."""
        if lost_state:
            self.nodes.clear()
            self.jobs.clear()
            self.reservations.clear()
        self._last_node_update = self._last_job_update = self.clock()
        self._changed_at = dict.fromkeys(self.nodes, self._last_node_update)

    def states(self, name: str) -> frozenset[str]:
        """The node's states as the REST API shows them."""
        node = self.nodes[name]
        jobs = [job for job in self.jobs.values() if job.on_nodes and name in job.nodes]
        flags = set(node.flags)
        if any("COMPLETING" in job.states for job in jobs):
            flags.add("COMPLETING")
        if node.silent_until > self.clock():
            flags.add("NOT_RESPONDING")
        running = sum(job.cpus for job in jobs if "COMPLETING" not in job.states)
        base = node.base
        if base == "IDLE" and running:
            base = "ALLOCATED" if running >= node.cpus else "MIXED"
        return frozenset({base, *flags})

    # --- faults

    def fail(
        self,
        fault: Fault,
        times: int | None = None,
        *,
        method: str | None = None,
        path: str = "",
        seconds: float = 5.0,
    ) -> None:
        """Answer the next `times` requests (None: all, until `heal`) so; only those of `method` and below `path`."""
        self._planned.append(_Planned(fault, float("inf") if times is None else times, method, path, seconds))

    def heal(self) -> None:
        """Answer rightly again."""
        self._planned.clear()

    def requests(self, method: str | None = None, path: str = "") -> list[Call]:
        """The calls so far of that method and below that path."""
        return [call for call in self.calls if method in (None, call.method) and call.path.startswith(path)]

    # --- slurmrestd

    def handle(self, method: str, target: str, body: bytes | None = None, token: str | None = "") -> Reply:
        """The reply to a request for `target` (`/slurm/VERSION/…?query`)."""
        parts = urllib.parse.urlsplit(target)
        segments = parts.path.split("/", 3)
        if len(segments) < 4 or segments[1] != "slurm" or segments[2] not in self.versions:
            return _NO_ENDPOINT
        path = urllib.parse.unquote(segments[3])
        query = dict(urllib.parse.parse_qsl(parts.query))
        content = json.loads(body) if body else None
        self.calls.append(Call(method, path, query, content))
        planned = next((p for p in self._planned if p.method in (None, method) and path.startswith(p.path)), None)
        if planned is not None:
            planned.left -= 1
            if planned.left <= 0:
                self._planned.remove(planned)
            if planned.fault is Fault.SLOW:
                reply = self._answer(method, path, query, content, token)
                return Reply(reply.status, reply.body, reply.content_type, delay=planned.seconds)
            return self._faulty(planned.fault, method, path, query, content, token)
        return self._answer(method, path, query, content, token)

    def _faulty(
        self, fault: Fault, method: str, path: str, query: dict[str, str], content: Json | None, token: str | None
    ) -> Reply:
        match fault:
            case Fault.SERVER_ERROR:
                return Reply(500, b"Internal Server Error", "text/plain")
            case Fault.NO_SLURMCTLD:
                return _refusal(502, NO_SLURMCTLD)
            case Fault.ERRORS_WITH_200:
                return _refusal(200, 1001)
            case Fault.BAD_TOKEN:
                return _refusal(511, BAD_AUTH)
            case Fault.BAD_TOKEN_OLD:
                return _refusal(500, BAD_AUTH)
            case Fault.NO_TOKEN:
                return Reply(401, b"Authentication failure", "text/plain")
            case Fault.EMPTY:
                key = path.strip("/")
                return self._listing(key, [], self.clock()) if method == "GET" else _ok({})
            case Fault.HANG:
                return Reply(200, delay=None)
        reply = self._answer(method, path, query, content, token)
        if fault is Fault.CUT:
            return Reply(reply.status, reply.body, cut=True)
        return Reply(200, (reply.body or b'{"nodes": [')[: max(1, len(reply.body) // 2)])

    def _answer(self, method: str, path: str, query: dict[str, str], content: Json | None, token: str | None) -> Reply:
        if token is None:
            return Reply(401, b"Authentication failure", "text/plain")
        if self.key is not None and user_of(token, self.key, self.clock()) is None:
            if path == "ping/":
                return _ok({"pings": [{**_PING, "responding": False, "status": TEXT[BAD_AUTH]}]})
            return _refusal(511, BAD_AUTH)
        kind, _, name = path.partition("/")
        match method, kind, name:
            case "GET", "nodes", "":
                return self._get_nodes(query.get("update_time"))
            case "GET", "node", _:
                nodes = [self._node(self.nodes[name])] if name in self.nodes else None
                return self._listing("nodes", nodes, self.clock()) if nodes else _refusal(200, 0)
            case "POST", "nodes", "":
                return self._update(content or {})
            case "POST", "node", _:
                return self._update({**(content or {}), "name": [name]})
            case "DELETE", "node", _:
                return self._delete(name)
            case "GET", "jobs", "":
                return self._get_jobs(query.get("update_time"))
            case "GET", "reservations", "":
                return self._listing(
                    "reservations", [_reservation(r) for r in self.reservations.values()], self.clock()
                )
            case "GET", "partitions", "":
                names = {"configured": ",".join(self.nodes), "total": len(self.nodes)}
                partition = {"name": "all", "node_sets": "ALL", "nodes": names, "partition": {"state": ["UP"]}}
                return self._listing("partitions", [partition], self.clock())
            case "GET", "ping", "":
                return _ok({"pings": [_PING]})
            case "GET", "diag", "":
                running = sum("RUNNING" in job.states for job in self.jobs.values())
                return _ok({"statistics": {"jobs_running": running, "jobs_pending": len(self.jobs) - running}})
            case "GET", "reconfigure", "":
                return _ok({})
        return _NO_ENDPOINT

    def _get_nodes(self, update_time: str | None) -> Reply:
        for node in self.nodes.values():
            if 0 < node.silent_until <= self.clock():
                self._touch(node.name, at=node.silent_until)
                node.silent_until = 0.0
        since = None if update_time is None else int(update_time)
        if since is not None and int(self._last_node_update) < since:
            return Reply(304)
        shown = [
            node
            for node in self.nodes.values()
            if since is None or not self.partial_answers or int(self._changed_at.get(node.name, 0)) >= since
        ]
        return self._listing("nodes", [self._node(node) for node in shown], self.clock())

    def _get_jobs(self, update_time: str | None) -> Reply:
        if update_time is not None and int(self._last_job_update) < int(update_time):
            return self._listing("jobs", [], 0)
        return self._listing("jobs", [_job(job) for job in self.jobs.values()], self.clock())

    def _update(self, content: Json) -> Reply:
        try:
            names = [name for expression in content.get("name", []) for name in expand(expression)]
        except HostlistError:
            return _refusal(422, 9216)
        state = content.get("state", [])
        known = {"DRAIN", "UNDRAIN", "DOWN", "IDLE", "RESUME"}
        if set(state) - known:
            return _refusal(500, 9207, BAD_TRANSITION)
        error = 0 if names else UNKNOWN_NODE
        for name in names:
            node = self.nodes.get(name)
            error = UNKNOWN_NODE if node is None else self._change(node, state, content) or error
        return _refusal(422, error) if error else _ok({})

    def _change(self, node: SimNode, state: list[str], content: Json) -> int:
        idle = node.base != "DOWN" and "DRAIN" not in node.flags
        silent = "NOT_RESPONDING" in self.states(node.name)
        match state:
            case []:
                pass
            case ["DRAIN"]:
                node.flags.add("DRAIN")
            case ["UNDRAIN"]:
                node.flags.discard("DRAIN")
                if node.base != "DOWN":
                    self._back(node)
            case ["DOWN"]:
                self._down(node)
            case ["IDLE" | "RESUME"] if not (idle and (silent or state == ["RESUME"])):
                node.base = "IDLE"
                node.flags -= {"DRAIN", "NOT_RESPONDING"}
                self._back(node)
            case _:
                return BAD_TRANSITION
        if content.get("reason") and state not in (["UNDRAIN"], ["IDLE"], ["RESUME"]):
            self._set_reason(node, content["reason"])
        node.comment = content.get("comment", node.comment)
        node.extra = content.get("extra", node.extra)
        node.topology = content.get("topology_str", node.topology)
        node.features = content.get("features", node.features)
        node.active_features = content.get("features_act", node.active_features)
        self._touch(node.name)
        return 0

    def _back(self, node: SimNode) -> None:
        node.reason, node.reason_changed_at = "", 0
        node.silent_until = self.clock() + UNDRAIN_SILENCE

    def _down(self, node: SimNode) -> None:
        node.base = "DOWN"
        for job in self.jobs.values():
            if job.on_nodes and node.name in job.nodes:
                job.states = {"PENDING"} if "RUNNING" in job.states else job.states - {"COMPLETING"}
                job.nodes = [] if "PENDING" in job.states else job.nodes
                self._last_job_update = self.clock()
        self._touch(node.name)

    def _delete(self, name: str) -> Reply:
        node = self.nodes.get(name)
        if node is None:
            return _refusal(422, UNKNOWN_NODE)
        if self.states(name) & {"ALLOCATED", "MIXED", "COMPLETING"}:
            return _refusal(422, BUSY)
        self.node_lose(name)
        return _ok({})

    def _set_reason(self, node: SimNode, reason: str) -> None:
        node.reason, node.reason_changed_at = reason, int(self.clock())

    def _touch(self, name: str, at: float | None = None) -> None:
        self._last_node_update = max(self._last_node_update, self.clock() if at is None else at)
        self._changed_at[name] = self._last_node_update

    def _touch_job(self, job: SimJob) -> None:
        self._last_job_update = self.clock()
        for name in job.nodes:
            self._touch(name)

    def _listing(self, key: str, items: list[Json], last_update: float) -> Reply:
        return _ok({key: items, "last_update": _number(int(last_update))})

    def _node(self, node: SimNode) -> Json:
        jobs = [job for job in self.jobs.values() if node.name in job.nodes and "RUNNING" in job.states]
        reserved = [r.name for r in self.reservations.values() if node.name in expand(r.nodes)]
        return {
            "name": node.name,
            "hostname": node.name,
            "address": node.address,
            "port": 6818,
            "state": sorted(self.states(node.name)),
            "reason": node.reason,
            "reason_changed_at": _number(node.reason_changed_at),
            "reason_set_by_user": "slurm" if node.reason else "",
            "comment": node.comment,
            "extra": node.extra,
            "instance_id": node.instance_id,
            "features": node.features,
            "active_features": node.active_features,
            "partitions": ["all"],
            "topology": node.topology,
            "reservation": ",".join(reserved),
            "gres": node.gres,
            "gres_used": "",
            "cpus": node.cpus,
            "alloc_cpus": min(node.cpus, sum(job.cpus for job in jobs)),
            "real_memory": node.real_memory,
            "alloc_memory": 0,
            "boot_time": _number(node.slurmd_start_time - 60),
            "slurmd_start_time": _number(node.slurmd_start_time),
            "last_busy": _number(node.slurmd_start_time),
            "free_mem": {"set": False, "infinite": False, "number": 0},
            "version": "26.05.5",
        }


_NO_ENDPOINT = Reply(404, b"Unable to find requested URL endpoint.", "text/plain")
_PING = {"hostname": "slurmctld", "responding": True, "latency": 500, "primary": True, "status": TEXT[0]}


def _ok(content: Json) -> Reply:
    return Reply(200, json.dumps({**content, "meta": {}, "errors": [], "warnings": []}).encode())


def _refusal(status: int, *numbers: int) -> Reply:
    errors = [
        {
            "error_number": number,
            "error": TEXT.get(number, "Unspecified error"),
            "description": "it failed",
            "source": "x",
        }
        for number in numbers
    ]
    return Reply(status, json.dumps({"meta": {}, "errors": errors, "warnings": []}).encode())


def _number(number: int) -> Json:
    return {"set": True, "infinite": False, "number": number}


def _job(job: SimJob) -> Json:
    limit = {"set": False, "infinite": True, "number": 0} if job.time_limit is None else _number(job.time_limit)
    end = job.start_time + 60 * job.time_limit if job.time_limit else 0
    return {
        "job_id": job.job_id,
        "job_state": sorted(job.states),
        "name": job.name,
        "partition": job.partition,
        "user_name": "root",
        "nodes": ",".join(job.nodes),
        "submit_time": _number(job.start_time),
        "start_time": _number(job.start_time),
        "end_time": _number(end),
        "time_limit": limit,
        "cpus": _number(job.cpus),
        "node_count": _number(len(job.nodes)),
    }


def _reservation(reservation: SimReservation) -> Json:
    return {
        "name": reservation.name,
        "node_list": reservation.nodes,
        "flags": list(reservation.flags),
        "users": reservation.users,
        "accounts": "",
        "partition": "",
        "start_time": _number(reservation.start_time),
        "end_time": _number(reservation.end_time),
    }
