"""A simulated slurmrestd: how it answers requests about a cluster, and the faults that it can
have.
"""

import dataclasses
import json
import time
import urllib.parse
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from sidecars.simulate import answers
from sidecars.simulate.accounting import Accounting
from sidecars.simulate.answers import (
    BAD_AUTH,
    BAD_DATA,
    BAD_FEATURES,
    BAD_FLAG,
    BAD_QUERY,
    BAD_RESERVATION,
    BAD_TIME,
    BAD_TRANSITION,
    BUSY,
    NO_ENDPOINT,
    NO_RIGHT,
    NO_SLURMCTLD,
    NO_TOKEN,
    REPORTS_CHANGES,
    STARTED,
    TEXT,
    UNCHANGED,
    UNKNOWN_NODE,
    listing,
    ok,
    refusal,
)
from sidecars.simulate.cluster import UNAVAILABLE, Use
from sidecars.simulate.external import ExternalJobs
from sidecars.simulate.power import POWER_STATES
from sidecars.simulate.records import (
    RECURRING,
    RESERVATION_FLAGS,
    Call,
    Fault,
    Json,
    PlannedFault,
    Reply,
    SimLicense,
    SimNode,
    SimReservation,
)
from sidecars.simulate.tokens import acting_user, user_of
from sidecars.slurm.hostlists import HostlistError, compress, expand
from sidecars.slurm.protocol import VERSIONS

UNDRAIN_SILENCE = 1.0
"""Seconds for which an undrained node doesn't respond: until slurmctld has pinged it."""

MAX_DELAY = 600
"""Seconds that the start of a new reservation may lie in the past."""

HAS_V45 = HAS_SUSPEND_TIME = (26, 5)
"""The first release with this version of the API, and with SuspendTime of a single node."""

OPERATORS = frozenset({"root", "slurm"})
"""Users whose tokens may write."""

_STATES_TO_SET = frozenset({"DRAIN", "FAIL", "UNDRAIN", "DOWN", "IDLE", "RESUME"}) | POWER_STATES


class SlurmModel(ExternalJobs):
    """A cluster behind slurmrestd, with faults on demand."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock)
        self.accounting: Accounting | None = Accounting()
        """None for a cluster without slurmdbd."""
        self.partial_answers = False
        """Whether a change is answered with the changed nodes alone, as other releases of Slurm may
        do.
        """
        self.licenses: list[SimLicense] = []
        self.versions: tuple[str, ...] = VERSIONS
        """The API versions that it offers."""
        self.key: bytes | None = None
        """The key that must have signed tokens; None accepts any token."""
        self.calls: list[Call] = []
        """The requests so far."""
        self._counted: dict[str, int] = {}
        self._was_reserved: frozenset[str] = frozenset()
        self._planned: list[PlannedFault] = []

    def fail(
        self,
        fault: Fault,
        times: int | None = None,
        *,
        method: str | None = None,
        path: str = "",
        seconds: float = 5.0,
    ) -> None:
        """Have the next `times` requests (None: all, until `heal`) fail; only those of `method` and
        below `path`.
        """
        planned = PlannedFault(
            fault, float("inf") if times is None else times, method, path, seconds, self.clock()
        )
        if fault is Fault.STALE:
            planned.former = {kind: self._list(kind.strip("/"), {}) for kind in ("nodes/", "jobs/")}
        self._planned.append(planned)

    @property
    def faults(self) -> frozenset[Fault]:
        """The kinds of faults that requests may meet now."""
        return frozenset(planned.fault for planned in self._planned)

    def heal(self) -> None:
        """End all faults."""
        self._planned.clear()

    def requests(self, method: str | None = None, path: str = "") -> list[Call]:
        """Return the requests so far of that method and below that path."""
        return [
            call
            for call in self.calls
            if method in (None, call.method) and call.path.startswith(path)
        ]

    def handle(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        token: str | None = "",
        named: str | None = None,
    ) -> Reply:
        """Reply to a request for `target` (`/slurm/VERSION/…?query` or `/slurmdb/…`).

        `named`: the user as whom it is sent, if it names one beside its token.
        """
        parts = urllib.parse.urlsplit(target)
        _, service, version, path, *_ = (*parts.path.split("/", 3), "", "", "")
        known = {"slurm"} if self.accounting is None else {"slurm", "slurmdb"}
        if (
            service not in known
            or version not in self.versions
            or (version == "v0.0.45" and self.release < HAS_V45)
            or (path, version) == ("conf", "v0.0.44")
        ):
            return NO_ENDPOINT
        path = (
            urllib.parse.unquote(path)
            if service == "slurm"
            else f"slurmdb/{urllib.parse.unquote(path)}"
        )
        query = dict(urllib.parse.parse_qsl(parts.query))
        try:
            content = json.loads(body) if body else {}
        except ValueError:
            return refusal(400, BAD_DATA)
        if not isinstance(content, dict):
            return refusal(500, BAD_DATA)
        call = Call(method, path, query, content if body else None, version)
        self.calls.append(call)
        planned = next(
            (p for p in self._planned if p.method in (None, method) and path.startswith(p.path)),
            None,
        )
        reported = self.reported or self.release
        if planned is None:
            return answers.of_release(self._answer(call, token, named), reported)
        planned.left -= 1
        if planned.left <= 0:
            self._planned.remove(planned)
        return answers.of_release(self._faulty(planned, call, token, named), reported)

    def job_forget(self, job_id: int) -> None:
        """Have slurmctld forget an ended job, as it does MinJobAge after the end. slurmdbd has it
        for ever.
        """
        job = self.jobs.pop(job_id)
        if self.accounting is not None:
            self.accounting.jobs[job_id] = job

    def _faulty(
        self, planned: PlannedFault, call: Call, token: str | None, named: str | None
    ) -> Reply:
        match planned.fault:
            case Fault.SERVER_ERROR:
                return Reply(500, b"Internal Server Error", "text/plain")
            case Fault.NO_SLURMCTLD:
                return refusal(502, NO_SLURMCTLD)
            case Fault.ERRORS_WITH_200:
                return refusal(200, 1001)
            case Fault.BAD_TOKEN:
                return refusal(511, BAD_AUTH)
            case Fault.BAD_TOKEN_OLD:
                return refusal(500, BAD_AUTH)
            case Fault.NO_TOKEN:
                return NO_TOKEN
            case Fault.EMPTY:
                key = call.path.strip("/").removeprefix("slurmdb/")
                return listing(key, [], self.clock()) if call.method == "GET" else ok({})
            case Fault.HANG:
                return Reply(200, delay=None)
            case Fault.RESET:
                return Reply(200, reset=True)
        reply = self._answer(call, token, named)
        match planned.fault:
            case Fault.STALE:
                return planned.former.get(call.path, reply) if call.method == "GET" else reply
            case Fault.PARTIAL:
                return answers.without_every_second_node(reply) if call.path == "nodes/" else reply
            case Fault.SLOW:
                return dataclasses.replace(reply, delay=planned.seconds)
            case Fault.CUT:
                return dataclasses.replace(reply, cut=True)
        return Reply(200, (reply.body or b'{"nodes": [')[: max(1, len(reply.body) // 2)])

    def _answer(self, call: Call, token: str | None, named: str | None) -> Reply:
        if token is None:
            return NO_TOKEN
        user = "slurm" if self.key is None else user_of(token, self.key, self.clock())
        user = None if user is None else acting_user(user, named)
        if user is None:
            return answers.ping(TEXT[BAD_AUTH]) if call.path == "ping/" else refusal(511, BAD_AUTH)
        if call.path.startswith("slurmdb/") and self.accounting is not None:
            self.accounting.jobs.update(self.jobs)
            return self.accounting.answer(call, trusted=user in OPERATORS)
        if (
            call.method != "GET"
            and user not in OPERATORS
            and (call.method, call.path[:4]) != ("POST", "job/")
        ):
            return refusal(422, NO_RIGHT)
        self.advance()
        match call.method:
            case "GET":
                return self._read(call)
            case "POST":
                return self._post(call, user)
            case "DELETE":
                return self._remove(call)
        return NO_ENDPOINT

    def _read(self, call: Call) -> Reply:
        kind, slash, name = call.path.partition("/")
        if not name:
            return self._list(kind, call.query, call.version)
        match kind + slash, name:
            case "node/", _:
                return self._node_alone(name)
            case "jobs/", "state/":
                return self.get_states()
            case "job/", _:
                return self.get_job(name)
            case "reservation/", _:
                found = self.reservations.get(name)
                return (
                    _NONE
                    if found is None
                    else listing("reservations", [answers.reservation(found)], self.clock())
                )
        return NO_ENDPOINT

    def _post(self, call: Call, user: str) -> Reply:
        content = call.body or {}
        kind, slash, name = call.path.partition("/")
        match kind + slash, name:
            case "new/", "node/":
                line = str(content.get("node_conf"))
                if self.release < HAS_SUSPEND_TIME and "SuspendTime=" in line:
                    return refusal(500, -1)
                created = self.create_nodes(line)
                return ok({}) if created else refusal(500, -1)
            case "nodes/", "":
                return self._update(content)
            case "node/", _:
                return self._update({**content, "name": [name]})
            case "job/", "submit":
                return self.submit_job(content, user)
            case "job/", _:
                return self.update_job(name, content, trusted=user in OPERATORS)
            case "reservation", "":
                return self._save_reservation(content)
        return NO_ENDPOINT

    def _remove(self, call: Call) -> Reply:
        kind, _, name = call.path.partition("/")
        match kind:
            case "node":
                return self._delete(name)
            case "job":
                return self.cancel(name)
            case "reservation":
                return self._delete_reservation(name)
        return NO_ENDPOINT

    def _list(self, kind: str, query: dict[str, str], version: str = VERSIONS[0]) -> Reply:
        since = query.get("update_time")
        if since is not None and not since.isdigit():
            return refusal(500, 9202, BAD_QUERY)
        match kind:
            case "nodes":
                return self._get_nodes(since)
            case "jobs":
                return self._get_jobs(since, version)
            case "reservations":
                found = [
                    answers.reservation(reservation) for reservation in self.reservations.values()
                ]
                unchanged = since is not None and int(self._last_reservation_update) < int(since)
                return UNCHANGED if unchanged else listing(kind, found, self.clock())
            case "partitions":
                shown = [answers.partition(p, self._nodes_of(p)) for p in self.partitions.values()]
                return listing(kind, shown, self.clock())
            case "ping":
                return answers.ping(TEXT[0])
            case "diag":
                return ok({"statistics": answers.statistics(self.jobs.values(), self.clock())})
            case "licenses":
                return ok({"licenses": [answers.license_(it) for it in self.licenses]})
            case "conf":
                return ok(
                    {
                        "slurm_conf": {"SelectTypeParameters": list(self.select_type_parameters)},
                        "slurm_conf_meta": {"BOOT_TIME": int(self.started_at)},
                    }
                )
            case "reconfigure":
                self.reconfigure()
                return ok({})
        return NO_ENDPOINT

    def _get_nodes(self, update_time: str | None) -> Reply:
        for node in self.nodes.values():
            if 0 < node.silent_until <= self.clock():
                self._touch(node.name, at=node.silent_until)
                node.silent_until = 0.0
        use = self._use()
        for name in use.reservations.keys() ^ self._was_reserved:
            if name in self.nodes:
                self._touch(name)
        self._was_reserved = frozenset(use.reservations)
        self._counted = dict(use.cpus)
        since = None if update_time is None else int(update_time)
        if since is not None and int(self._last_node_update) < since:
            return UNCHANGED
        if since is not None and self.release < REPORTS_CHANGES:
            return refusal(500, -1)
        shown = [
            node
            for node in self.nodes.values()
            if since is None
            or not self.partial_answers
            or int(self._changed_at.get(node.name, 0)) >= since
        ]
        members = self._members()
        found = [self._shown(node, use, members, use.cpus.get(node.name, 0)) for node in shown]
        return listing("nodes", found, self.clock())

    def _get_jobs(self, update_time: str | None, version: str) -> Reply:
        if update_time is not None and int(self._last_job_update) < int(update_time):
            return listing("jobs", [], 0)
        return answers.jobs(self.jobs.values(), version, self.clock())

    def _save_reservation(self, content: Json) -> Reply:
        now, name = self.clock(), content.get("name") or f"slurm_{len(self._reservations) + 1}"
        former = self.reservations.get(name)
        flags = list(content.get("flags", ()))
        if set(flags) - RESERVATION_FLAGS:
            # Slurm 26.05 creates the reservation in spite of it, without the unknown flag.
            status, flags = 500, [flag for flag in flags if flag in RESERVATION_FLAGS]
        else:
            status = 200
        try:
            nodes = [node for text in content.get("node_list", ()) for node in expand(text)]
        except HostlistError:
            return refusal(422, UNKNOWN_NODE)
        start = int(content.get("start_time", {}).get("number", former.start_time if former else 0))
        length = content.get("duration", {}).get("number")
        end = content.get("end_time", {}).get("number")
        if length is not None:
            seconds = 60 * int(length)
        elif end is not None:
            seconds = int(end) - start
        else:
            seconds = former.end_time - former.start_time if former else 0
        users = ",".join(content.get("users", ())) or (former.users if former else "")
        if set(nodes) - self.nodes.keys():
            return refusal(422, UNKNOWN_NODE)
        if former is None and not (users and nodes and seconds):
            return refusal(422, BAD_RESERVATION)
        if "FORCE_START" in flags and not RECURRING & {*flags, *(former.flags if former else ())}:
            return refusal(422, BAD_RESERVATION)
        if former is not None and former.active(now) and start != former.start_time:
            return refusal(422, STARTED)
        if (former is None or start != former.start_time) and start < now - MAX_DELAY:
            return refusal(422, BAD_TIME)
        hostlist = compress(nodes) if nodes else former.nodes if former else ""
        kept = former.flags if former else ()
        shown = (
            tuple(dict.fromkeys((*kept, *flags, "SPEC_NODES"))) if nodes or former else tuple(flags)
        )
        self._reservations[name] = SimReservation(
            name, hostlist, start, start + seconds, users, shown
        )
        self._last_reservation_update = now
        return ok({}) if status == 200 else refusal(status, BAD_FLAG)

    def _delete_reservation(self, name: str) -> Reply:
        if name not in self.reservations:
            return refusal(422, BAD_RESERVATION)
        del self._reservations[name]
        self._last_reservation_update = self.clock()
        return ok({})

    def _update(self, content: Json) -> Reply:
        try:
            names = [name for expression in content.get("name", []) for name in expand(expression)]
        except HostlistError:
            return refusal(422, BAD_DATA)
        state = content.get("state", [])
        if set(state) - _STATES_TO_SET:
            return refusal(500, BAD_FLAG, BAD_TRANSITION)
        if not names or names[0] not in self.nodes:
            return refusal(422, UNKNOWN_NODE)
        error = 0
        for name in names:
            node = self.nodes.get(name)
            error = (UNKNOWN_NODE if node is None else self._change(node, state, content)) or error
        return refusal(422, error) if error else ok({})

    def update_node(self, name: str, state: str, reason: str = "") -> bool:
        """`scontrol update nodename=NAME state=STATE reason=REASON`. Returns whether Slurm accepts
        it.
        """
        return not self._change(self.nodes[name], [state], {"reason": reason})

    def _change(self, node: SimNode, state: list[str], content: Json) -> int:
        idle = node.base != "DOWN" and not node.flags & UNAVAILABLE
        silent = "NOT_RESPONDING" in self.states(node.name)
        active = content.get("features_act", node.active_features)
        if not set(active) <= set(content.get("features", node.features)):
            return BAD_FEATURES
        match state:
            case []:
                pass
            case ["DRAIN" | "FAIL"]:
                self.set_unavailable(node, state[0])
            case ["UNDRAIN"]:
                # Of a node without a job, slurmctld's update_node ends FAIL as well.
                node.flags -= UNAVAILABLE if "IDLE" in self.states(node.name) else {"DRAIN"}
                if node.base != "DOWN" and "FAIL" not in node.flags:
                    self._back(node)
            case ["DOWN"]:
                self._down(node)
            case ["IDLE" | "RESUME"] if not (idle and (silent or state == ["RESUME"])):
                node.base = "IDLE"
                node.flags -= UNAVAILABLE
                self._back(node)
            case [power] if power in POWER_STATES:
                self.set_power(node, power)
            case _:
                return BAD_TRANSITION
        if content.get("reason") and state not in (["UNDRAIN"], ["IDLE"], ["RESUME"]):
            self._set_reason(node, content["reason"])
        node.comment = content.get("comment", node.comment)
        node.extra = content.get("extra", node.extra)
        node.topology = content.get("topology_str", node.topology)
        if (available := content.get("features")) is not None:
            # Without active features, they are these.
            node.features, node.active_features = [*available], [*available]
        node.active_features = [*content.get("features_act", node.active_features)]
        self._touch(node.name)
        return 0

    def _back(self, node: SimNode) -> None:
        node.reason, node.reason_changed_at = "", 0
        node.silent_until = self.clock() + UNDRAIN_SILENCE

    def _delete(self, name: str) -> Reply:
        node = self.nodes.get(name)
        if node is None:
            return refusal(422, UNKNOWN_NODE)
        if self.states(name) & {"ALLOCATED", "MIXED", "COMPLETING", "RESERVED"}:
            return refusal(422, BUSY)
        self.node_lose(name)
        return ok({})

    def _node_alone(self, name: str) -> Reply:
        """Return a node as slurmctld shows it: with the allocations at the last request for the
        list.
        """
        node = self.nodes.get(name)
        if node is None:
            return _NONE
        shown = self._shown(node, self._use(), self._members(), self._counted.get(name, 0))
        return listing("nodes", [shown], self.clock())

    def _shown(
        self, node: SimNode, use: Use, members: Mapping[str, AbstractSet[str]], counted: int
    ) -> Json:
        return answers.node(
            node,
            self._states(node, use, counted),
            alloc_cpus=min(node.cpus, counted),
            reservation=",".join(
                reservation.name for reservation in use.reservations.get(node.name, ())
            ),
            partitions=[name for name, nodes in members.items() if node.name in nodes],
        )


_NONE = refusal(200, 0)
