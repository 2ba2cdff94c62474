"""Slurm's REST API as values: requests to be carried by someone else, and answers decoded from status and body.

No I/O, no clock, no token. A request is made without an API version; the carrier asks `Request.target(version)`. The
versions spoken are v0.0.45 and v0.0.44 (https://slurm.schedmd.com/rest_api.html); records are the same for both.

How slurmrestd answers (checked on 26.05):
- nothing new: nodes with HTTP 304; jobs with HTTP 200, an empty list and a `last_update` of 0.
- anything new: all records, not only the changed ones.
- `last_update` is the time of the answer, so a change later in the same second is found only by asking from one second
  before it.
- an unknown node: 200 without a list and with error number 0 when read, 422 with number 2018 when written or deleted.
- a refused token: 511 with number 1007 (500 in older releases), 401 as plain text when none was sent. `ping/` answers
  200 all the same.
- a hostlist with one unknown node: 422 and number 2018; the change is made to all the others, but to none at all when
  the unknown one comes first.
- an unknown reservation: 200 without a list and with error number 0 when read, 422 with number 2053 when deleted.
- slurmctld down: 502 and number 1800 after 10 seconds. slurmdbd down: 502 and number 7000 at once.
"""

import json
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern
from typing import Any, Generic, TypedDict, TypeVar

from sidecars.slurm import hostlists
from sidecars.slurm.errors import (
    AuthenticationError,
    ErrorEntry,
    Malformed,
    NotFound,
    Refused,
    Rejected,
    ServerFault,
)
from sidecars.slurm.records import Diag, Job, Jobs, Node, Nodes, Partition, Ping, Reservation

T = TypeVar("T")

VERSIONS = ("v0.0.45", "v0.0.44")
"""API versions that we speak, newest first."""

TOKEN_HEADER = "X-SLURM-USER-TOKEN"  # noqa: S105 - the header's name

# Numbers of slurm_errno.h, grouped by what a caller can do about them.
_AUTHENTICATION = frozenset(
    {
        1007,  # SLURM_PROTOCOL_AUTHENTICATION_ERROR
        2002,  # ESLURM_ACCESS_DENIED
        2010,  # ESLURM_USER_ID_MISSING: what a user without the right gets
    }
)
_NOT_FOUND = frozenset(
    {
        2017,  # ESLURM_INVALID_JOB_ID
        2018,  # ESLURM_INVALID_NODE_NAME
    }
)
_RESERVATION_INVALID = 2053  # ESLURM_RESERVATION_INVALID: of a reservation that is made, or because there is none
_FIRST_REJECTION, _AFTER_REJECTIONS = 2000, 3000  # slurmctld's own refusals
_REJECTED_BY_SLURMDBD = frozenset(
    {
        7001,  # ESLURM_JOBS_RUNNING_ON_ASSOC
        7104,  # ESLURM_INVALID_CLUSTER_NAME
    }
)
_FIRST_PARSER, _AFTER_PARSER = 9000, 9300  # slurmrestd could not read what we sent
_FAR = 2**32 - 1  # seconds since the epoch: nothing has changed since
_STATUS_UNCHANGED, _STATUS_UNAUTHORIZED, _STATUS_NO_NETWORK_AUTH = 304, 401, 511
STATUS_NO_SUCH_ENDPOINT = 404

ONE_NODES_FAULT = frozenset(
    {
        2016,  # ESLURM_NODES_BUSY
        2018,  # ESLURM_INVALID_NODE_NAME
        2180,  # ESLURM_INVALID_NODE_STATE_TRANSITION
    }
)
"""Numbers that say that one of the nodes of a write is at fault, not the write itself."""


class _WrongField(Exception):
    """A value that isn't what the schema says; becomes Malformed where the call is known."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(where, message)
        self.where = where
        self.message = message


@dataclass(frozen=True)
class Request(Generic[T]):
    """One call. `path` is below `/SERVICE/VERSION/`; `query` is a tuple of pairs; `body` is JSON or None.

    The service is `slurm` for what slurmctld answers and `slurmdb` for what slurmdbd does. The answer to one with
    `all_jobs` may be hundreds of megabytes: `sidecars.slurm.streaming` reads it as it comes.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: dict[str, Any] | None = None
    read: Callable[["Fields"], T] = field(kw_only=True, repr=False, compare=False)
    unchanged: Callable[[], T] | None = field(default=None, kw_only=True, repr=False, compare=False)
    service: str = field(default="slurm", kw_only=True)
    all_jobs: bool = field(default=False, kw_only=True, repr=False, compare=False)

    def target(self, version: str) -> str:
        """The request target for HTTP: path and query, percent-encoded."""
        query = f"?{urllib.parse.urlencode(self.query)}" if self.query else ""
        return f"/{self.service}/{version}/{self.path}{query}"

    def content(self) -> bytes | None:
        """The body as it is sent, with content type application/json."""
        return None if self.body is None else json.dumps(self.body, separators=(",", ":")).encode()

    def __str__(self) -> str:
        return f"{self.method} {self.path}" if self.service == "slurm" else f"{self.method} {self.service}/{self.path}"


def get_nodes(update_time: int | None = None) -> "Request[Nodes | None]":
    """All nodes; with `update_time`, None when no node changed in that second or later."""
    return Request("GET", "nodes/", _since(update_time), read=_nodes, unchanged=_none)


def count_allocations() -> "Request[None]":
    """Have slurmctld count anew what jobs use on its nodes, so that `get_node` tells it. Cheap."""
    return Request("GET", "nodes/", _since(_FAR), read=_nothing, unchanged=_none)


def get_node(name: str) -> "Request[Node]":
    """One node. An unknown one is NotFound.

    Its states and `alloc_cpus` hold allocations as they were when anybody last asked for the list of nodes, changed or
    not: a node whose job has ended stays MIXED until then. Ask `count_allocations` first where nobody polls the list.
    """
    return Request("GET", f"node/{_segment(name)}", read=_one_node)


def update_nodes(
    names: Iterable[str],
    *,
    state: Sequence[str] = (),
    reason: str | None = None,
    comment: str | None = None,
    extra: str | None = None,
    features: Sequence[str] | None = None,
    active_features: Sequence[str] | None = None,
    topology: str | None = None,
) -> "Request[None]":
    """The same change for all the named nodes, in one call. None leaves a field alone, "" clears it (but not a reason).

    NotFound means that at least one of several names is unknown; the others have been changed all the same, unless that
    one is the first in order. What the states do, besides setting what they say:
    DRAIN keeps the old reason unless one is given. UNDRAIN clears the reason unless the node is DOWN, and leaves DOWN
    as it is. IDLE and RESUME end DOWN and DRAIN and clear the reason. DOWN ends or requeues the node's jobs at once,
    those that are COMPLETING too. After UNDRAIN, IDLE and RESUME the node is NOT_RESPONDING for about a second.
    Raises HostlistError for a name that can't be one.
    """
    body: dict[str, Any] = {"name": [hostlists.compress(names)]}
    if state:
        body["state"] = list(state)
    texts = {"reason": reason, "comment": comment, "extra": extra, "topology_str": topology}
    body.update((key, text) for key, text in texts.items() if text is not None)
    if features is not None:
        body["features"] = list(features)
    if active_features is not None:
        body["features_act"] = list(active_features)
    return Request("POST", "nodes/", body=body, read=_nothing)


def delete_node(name: str) -> "Request[None]":
    """Remove a dynamic node's record. An unknown one is NotFound, one with a job on it Rejected (number 2016).

    Rejected likewise while a reservation that has begun names the node. It is taken from a node that is DOWN whatever
    ran there, from one that is reserved for later, and while slurmd runs: that slurmd stays unknown until it is started
    again or slurmctld is reconfigured.
    """
    return Request("DELETE", f"node/{_segment(name)}", read=_nothing)


def get_jobs(update_time: int | None = None) -> "Request[Jobs | None]":
    """All jobs; with `update_time`, None when no job changed in that second or later."""
    read = _jobs if update_time is None else _jobs_since
    return Request("GET", "jobs/", _since(update_time), read=read, unchanged=_none, all_jobs=True)


def get_job(job_id: int) -> "Request[Job]":
    """One job. NotFound for one that slurmctld doesn't know, or knows no longer."""
    return Request("GET", f"job/{job_id}", read=_one_job)


def cancel_job(job_id: int) -> "Request[None]":
    """End a job. NotFound as `get_job`."""
    return Request("DELETE", f"job/{job_id}", read=_nothing)


def get_partitions() -> "Request[tuple[Partition, ...]]":
    """All partitions."""
    return Request("GET", "partitions/", read=lambda answer: tuple(map(_partition, answer.items("partitions"))))


def get_reservations() -> "Request[tuple[Reservation, ...]]":
    """All reservations."""
    return Request("GET", "reservations/", read=lambda answer: tuple(map(_reservation, answer.items("reservations"))))


def get_reservation(name: str) -> "Request[Reservation]":
    """One reservation. An unknown one is NotFound."""
    return Request("GET", f"reservation/{_segment(name)}", read=_one_reservation)


def save_reservation(
    name: str,
    *,
    start_time: int | None = None,
    minutes: int | None = None,
    nodes: Iterable[str] | None = None,
    users: Sequence[str] | None = None,
    flags: Sequence[str] = (),
) -> "Request[None]":
    """Make the reservation of that name, or change it when there is one; None leaves a field of it alone.

    A new one needs `start_time`, `minutes`, `nodes` and `users`. Slurm adds the flag SPEC_NODES.
    Rejected with 2054 for a start more than ten minutes ago, with 2053 for what is missing and for FORCE_START without
    recurrence, with 2104 for another start of one that has begun; NotFound for an unknown node. With an unknown flag it
    is Rejected (9207) and made all the same. Raises HostlistError for a name that can't be a node's.
    """
    body: dict[str, Any] = {"name": _named(name)}
    numbers = {"start_time": start_time, "duration": minutes}
    body.update((key, {"set": True, "number": number}) for key, number in numbers.items() if number is not None)
    if nodes is not None:
        body["node_list"] = [hostlists.compress(nodes)]
    if users is not None:
        body["users"] = list(users)
    if flags:
        body["flags"] = list(flags)
    return Request("POST", "reservation", body=body, read=_nothing)


def delete_reservation(name: str) -> "Request[None]":
    """Remove a reservation. An unknown one is NotFound."""
    return Request("DELETE", f"reservation/{_segment(name)}", read=_nothing)


def ping() -> "Request[tuple[Ping, ...]]":
    """Whether each slurmctld of the configuration answers slurmrestd; cheap, also when none does."""
    return Request("GET", "ping/", read=lambda answer: tuple(map(_ping, answer.items("pings"))))


def diag() -> "Request[Diag]":
    """Counters of slurmctld."""
    return Request("GET", "diag/", read=_diag)


def reconfigure() -> "Request[None]":
    """Make slurmctld read its configuration again."""
    return Request("GET", "reconfigure/", read=_nothing)


def versions_to_try(chosen: str | None, versions: Sequence[str] = VERSIONS) -> tuple[str, ...]:
    """API versions in the order to try them: the one that worked before, then as they are listed.

    A server that doesn't offer a version answers `STATUS_NO_SUCH_ENDPOINT` and has done nothing.
    """
    return (*(() if chosen is None else (chosen,)), *(version for version in versions if version != chosen))


def decode(request: Request[T], status: int, body: bytes, *, parse: Callable[[bytes], Any] = json.loads) -> T:
    """The typed answer to `request`, or a SlurmError other than Unreachable: see `sidecars.slurm.errors`.

    `parse` reads JSON and raises ValueError where it can't. It may put a Node in the place of a node that it knows
    already, and a Job in that of a job.
    """
    if status == _STATUS_UNCHANGED and request.unchanged is not None:
        return request.unchanged()
    try:
        answer = parse(body)
    except (ValueError, RecursionError):
        # Slurm's own refusals without JSON: no token, no such endpoint, a proxy in between.
        if status != 200:
            raise _refused(request, status, (), body[:200].decode(errors="replace")) from None
        raise Malformed(str(request), "body", f"no JSON: {body[:80]!r}") from None
    try:
        fields = Fields(answer, "")
        errors = tuple(map(_error, fields.items("errors", optional=True)))
        if status != 200 or errors:
            raise _refused(request, status, errors, "")
        return request.read(fields)
    except _WrongField as wrong:
        if status != 200:
            raise _refused(request, status, (), f"{wrong.where} {wrong.message}") from None
        raise Malformed(str(request), wrong.where, wrong.message) from None


class Fields:
    """A JSON object of an answer, read field by field; says where a wrong value was."""

    __slots__ = ("_at", "_values")

    def __init__(self, value: object, at: str) -> None:
        if not isinstance(value, dict):
            raise _WrongField(at or "body", f"should be an object, is {_kind(value)}")
        self._values: dict[str, Any] = value
        self._at = at

    def text(self, key: str, *, required: bool = False) -> str:
        """A string; "" when absent or null, unless it is required."""
        value = self._values.get(key)
        if isinstance(value, str) and (value or not required):
            return value
        if value is None and not required:
            return ""
        raise self._wrong(key, "a string" if not required else "a string that isn't empty", value)

    def flag(self, key: str) -> bool:
        """A boolean; it must be there."""
        value = self._values.get(key)
        if isinstance(value, bool):
            return value
        raise self._wrong(key, "a boolean", value)

    def number(self, key: str) -> int:
        """A whole number, plain or as `{set, infinite, number}`; 0 when absent, not set or infinite."""
        value = self._values.get(key)
        return self.number_or_none(key) or 0 if isinstance(value, dict) else self._whole(key, value)

    def number_or_none(self, key: str) -> int | None:
        """As `number`, but None when it isn't set or infinite."""
        value = self._values.get(key)
        if not isinstance(value, dict):
            return None if value is None else self._whole(key, value)
        if value.get("infinite") is True or value.get("set") is False:
            return None
        return self._whole(f"{key}.number", value.get("number"))

    def words(self, key: str) -> tuple[str, ...]:
        """A list of strings, or a comma list as older API versions have it; () when absent."""
        value = self._values.get(key)
        if isinstance(value, str):
            return tuple(filter(None, value.split(",")))
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return tuple(value)
        raise self._wrong(key, "a list of strings", value)

    def nested(self, key: str) -> "Fields":
        """A nested object; an empty one when absent."""
        value = self._values.get(key)
        return Fields({} if value is None else value, self._place(key))

    def items(self, key: str, *, optional: bool = False) -> "Iterable[Fields]":
        """The objects of a list. A list that is missing is wrong unless it is optional: it would look like "none"."""
        value = self._values.get(key)
        if value is None and optional:
            return
        if not isinstance(value, list):
            raise self._wrong(key, "a list", value)
        for index, item in enumerate(value):
            yield Fields(item, self._place(f"{key}[{index}]"))

    def nodes(self) -> tuple[Node, ...]:
        """The records of the list `nodes`."""
        values = self._values.get("nodes")
        if not isinstance(values, list):
            raise self._wrong("nodes", "a list", values)
        return tuple(
            value if isinstance(value, Node) else _node(Fields(value, self._place(f"nodes[{index}]")))
            for index, value in enumerate(values)
        )

    def jobs(self) -> tuple[Job, ...]:
        """The records of the list `jobs`."""
        values = self._values.get("jobs")
        if not isinstance(values, list):
            raise self._wrong("jobs", "a list", values)
        return tuple(
            value if isinstance(value, Job) else _job(Fields(value, self._place(f"jobs[{index}]")))
            for index, value in enumerate(values)
        )

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(key) is not None

    def _whole(self, key: str, value: object) -> int:
        if value is None:
            return 0
        # Slurm's numbers have at most 64 bits; anything else is damage that would spread.
        if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**64:
            return value
        raise self._wrong(key, "a whole number of at most 64 bits", value)

    def _wrong(self, key: str, wanted: str, value: object) -> _WrongField:
        return _WrongField(self._place(key), f"should be {wanted}, is {_kind(value)}")

    def _place(self, key: str) -> str:
        return f"{self._at}.{key}" if self._at else key


def _refused(request: Request[Any], status: int, errors: tuple[ErrorEntry, ...], message: str) -> Refused:
    numbers = {entry.number for entry in errors}
    kind: type[Refused]
    if status in (_STATUS_UNAUTHORIZED, _STATUS_NO_NETWORK_AUTH) or numbers & _AUTHENTICATION:
        kind = AuthenticationError
    elif numbers & _NOT_FOUND or _no_reservation(request, numbers) or _silently_unknown(request, status, errors):
        kind = NotFound
    elif numbers & _REJECTED_BY_SLURMDBD or any(
        _FIRST_REJECTION <= n < _AFTER_REJECTIONS or _FIRST_PARSER <= n < _AFTER_PARSER for n in numbers
    ):
        kind = Rejected
    else:
        kind = ServerFault
    return kind(str(request), status, errors, message)


def _no_reservation(request: Request[Any], numbers: set[int]) -> bool:
    return request.method == "DELETE" and _RESERVATION_INVALID in numbers


def _silently_unknown(request: Request[Any], status: int, errors: tuple[ErrorEntry, ...]) -> bool:
    """Reading one unknown record fails with "No error"."""
    one = request.method == "GET" and not request.path.endswith("/")
    return one and status == 200 and all(entry.number == 0 for entry in errors)


def _error(entry: Fields) -> ErrorEntry:
    return ErrorEntry(
        number=entry.number("error_number"),
        error=entry.text("error"),
        description=entry.text("description"),
        source=entry.text("source"),
    )


def _nodes(answer: Fields) -> Nodes:
    return Nodes(answer.nodes(), answer.number("last_update"))


def _one_node(answer: Fields) -> Node:
    nodes = answer.nodes()
    if len(nodes) != 1:
        raise _WrongField("nodes", f"should hold one node, holds {len(nodes)}")
    return nodes[0]


def _node(node: Fields) -> Node:
    return Node(
        name=node.text("name", required=True),
        states=_states(node.words("state")),
        reason=node.text("reason"),
        reason_changed_at=node.number("reason_changed_at"),
        reason_set_by_user=node.text("reason_set_by_user"),
        comment=node.text("comment"),
        extra=node.text("extra"),
        instance_id=node.text("instance_id"),
        features=node.words("features"),
        active_features=node.words("active_features"),
        partitions=node.words("partitions"),
        topology=node.text("topology"),
        reservation=node.text("reservation"),
        address=node.text("address"),
        hostname=node.text("hostname"),
        port=node.number("port"),
        gres=node.text("gres"),
        gres_used=node.text("gres_used"),
        cpus=node.number("cpus"),
        alloc_cpus=node.number("alloc_cpus"),
        real_memory=node.number("real_memory"),
        alloc_memory=node.number("alloc_memory"),
        boot_time=node.number("boot_time"),
        slurmd_start_time=node.number("slurmd_start_time"),
        last_busy=node.number("last_busy"),
        version=node.text("version"),
    )


def _jobs(answer: Fields) -> Jobs:
    return Jobs(answer.jobs(), answer.number("last_update"))


def _jobs_since(answer: Fields) -> Jobs | None:
    jobs = _jobs(answer)
    return None if not jobs.jobs and jobs.last_update == 0 else jobs


def _one_job(answer: Fields) -> Job:
    jobs = _jobs(answer).jobs
    if len(jobs) != 1:
        raise _WrongField("jobs", f"should hold one job, holds {len(jobs)}")
    return jobs[0]


class JobFields(TypedDict, total=False):
    """The fields of a job's record that `_job` reads, before it has looked at them."""

    job_id: Any
    job_state: Any
    name: Any
    partition: Any
    user_name: Any
    nodes: Any
    submit_time: Any
    start_time: Any
    end_time: Any
    time_limit: Any
    cpus: Any
    node_count: Any


def job_or_fields(fields: JobFields) -> Job | JobFields:
    """The Job, or what was given when there is something wrong with it: `decode` will find it and say where."""
    try:
        return _job(Fields(fields, ""))
    except _WrongField:
        return fields


@lru_cache(maxsize=1024)
def _states(words: tuple[str, ...]) -> frozenset[str]:
    # Shared, because there are few of them and tens of thousands of records.
    return frozenset(map(intern, words))


def _job(job: Fields) -> Job:
    return Job(
        job_id=job.number("job_id"),
        states=_states(job.words("job_state")),
        name=job.text("name"),
        partition=intern(job.text("partition")),
        user_name=intern(job.text("user_name")),
        nodes=job.text("nodes"),
        submit_time=job.number("submit_time"),
        start_time=job.number("start_time"),
        end_time=job.number("end_time"),
        time_limit=job.number_or_none("time_limit"),
        cpus=job.number("cpus"),
        node_count=job.number("node_count"),
    )


def _partition(partition: Fields) -> Partition:
    nodes = partition.nested("nodes")
    return Partition(
        name=partition.text("name", required=True),
        states=frozenset(partition.nested("partition").words("state")),
        node_list=nodes.text("configured"),
        node_sets=partition.text("node_sets"),
        total_nodes=nodes.number("total"),
    )


def _reservation(reservation: Fields) -> Reservation:
    return Reservation(
        name=reservation.text("name", required=True),
        node_list=reservation.text("node_list"),
        flags=frozenset(reservation.words("flags")),
        users=reservation.words("users"),
        accounts=reservation.words("accounts"),
        partition=reservation.text("partition"),
        start_time=reservation.number("start_time"),
        end_time=reservation.number("end_time"),
    )


def _one_reservation(answer: Fields) -> Reservation:
    reservations = tuple(map(_reservation, answer.items("reservations")))
    if len(reservations) != 1:
        raise _WrongField("reservations", f"should hold one reservation, holds {len(reservations)}")
    return reservations[0]


def _ping(ping: Fields) -> Ping:
    return Ping(
        hostname=ping.text("hostname", required=True),
        responding=ping.flag("responding"),
        primary=ping.flag("primary"),
        status=ping.text("status"),
    )


def _diag(answer: Fields) -> Diag:
    statistics = answer.nested("statistics")
    return Diag(
        request_time=statistics.number("req_time"),
        server_thread_count=statistics.number("server_thread_count"),
        agent_queue_size=statistics.number("agent_queue_size"),
        jobs_submitted=statistics.number("jobs_submitted"),
        jobs_started=statistics.number("jobs_started"),
        jobs_completed=statistics.number("jobs_completed"),
        jobs_pending=statistics.number("jobs_pending"),
        jobs_running=statistics.number("jobs_running"),
        schedule_cycle_last=statistics.number("schedule_cycle_last"),
    )


def _nothing(answer: Fields) -> None:
    """Only that there were no errors."""


def _none() -> None:
    return None


def _since(update_time: int | None) -> tuple[tuple[str, str], ...]:
    return () if update_time is None else (("update_time", str(update_time)),)


def _segment(name: str) -> str:
    return urllib.parse.quote(_named(name), safe="")


def _named(name: str) -> str:
    if not name or name in {".", ".."}:
        raise ValueError(f"{name!r} can't name anything in Slurm")
    return name


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return "missing or null" if value is None else names.get(type(value), type(value).__name__)
