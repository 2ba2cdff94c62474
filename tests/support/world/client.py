"""The operator's clients of the model: the shipped ones of Kubernetes and slurmrestd, without the
network.

Requests take some time, fail according to `Faults`, and are shown to the `Watcher` before they are
applied.
"""

import asyncio
import contextlib
import functools
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from sidecars.kube.errors import ApiError, KubeError, Unreachable, api_error
from sidecars.kube.transport import Transport
from sidecars.simulate import Fault, SlurmModel
from sidecars.simulate.records import PlannedFault
from sidecars.slurm import client as slurm_client
from sidecars.slurm import errors as slurm_errors
from sidecars.slurm.protocol import VERSIONS, Request
from sidecars.slurm.tokens import TokenSource
from tests.support.world.api import Api, Change, Place, Selector, event, place_of

T = TypeVar("T")


class KubeFault(Enum):
    """The fate of one request to the API server."""

    CONFLICT = "409, not done"
    ERROR = "500, not done"
    TIMEOUT = "no answer, not done"
    LOST = "done, but the answer is lost"
    TOO_MANY = "429, not done"
    DENIED = "403 of an admission controller, not done"
    CRASH_BEFORE = "the operator is killed before it is sent"
    CRASH_AFTER = "the operator is killed when it is done, before it knows"
    ARRIVES_LATE = (
        "the operator is killed while it is on its way, and it arrives when another one leads"
    )
    STALE = "a list is answered by an API server that lags behind"
    GONE = "a list or watch is answered with 410"
    LATE = "done, but answered 8 s later"


WRITE_FAULTS = (
    *(KubeFault.CONFLICT, KubeFault.ERROR, KubeFault.TIMEOUT, KubeFault.LOST),
    *(KubeFault.CRASH_BEFORE, KubeFault.CRASH_AFTER, KubeFault.LATE),
    *(KubeFault.TOO_MANY, KubeFault.DENIED, KubeFault.ARRIVES_LATE),
)


class SlurmFault(Enum):
    """The fate of one write to Slurm."""

    ERROR = "500, not done"
    UNREACHABLE = "the connection is refused, not done"
    TIMEOUT = "done, but never answered"
    LOST = "done, but the answer is lost"
    CRASH_BEFORE = "the operator is killed before it is sent"
    CRASH_AFTER = "the operator is killed when it is done, before it knows"
    ARRIVES_LATE = (
        "the operator is killed while it is on its way, and it arrives when another one leads"
    )


class WatchFault(Enum):
    """The fate of all open watches."""

    ENDED = "the server ends them"
    CUT = "their connections are cut, with what was on its way"
    GONE = "an event of type ERROR with code 410"


Refusal = Literal["quota", "RBAC"]
"""What the API server refuses for a while: new pods, by a ResourceQuota; or all writes, because a
role was deleted.
"""

AFTER_THAW = 0.05
"""Seconds after which a process that was frozen notices that it has lost its lease."""

LATE_SECONDS = 2.0
"""After so many seconds a request arrives whose sender was killed meanwhile; another operator leads
by then.
"""

REPORTED_ASIDE = frozenset({"events", "leases"})
"""What the operator writes beside its work. These writes meet no numbered faults, and are not
counted.
"""

EVERYWHERE = frozenset({"controllers", "restapis", "nodesets"})
"""What the operator may read and patch in every namespace (charts/slurm-operator,
clusterrole.yaml).
"""

SPARED = "sound"
"""Requests about this namespace meet no faults: what happens elsewhere must not delay it."""

_EXPIRED = (
    b'{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410,"reason":"Expired",'
    b'"message":"injected: too old resource version"}}'
)


class Watcher(Protocol):
    """Sees every request of the operator. Raises nothing."""

    def kube_write(self, method: str, place: Place, body: Any) -> None:
        """The API server is about to apply it."""

    def slurm_request(
        self,
        model: SlurmModel,
        method: str,
        target: str,
        content: bytes | None,
        carry: Callable[[], T],
    ) -> T:
        """Returns Slurm's answer, which `carry` gets."""

    def slurm_sent(
        self, model: SlurmModel, method: str, target: str, content: bytes | None
    ) -> Callable[[Callable[[], object]], None]:
        """A write is sent that arrives late. Call the result, with what carries it, when it
        arrives.
        """

    def slurm_seen(
        self,
        model: SlurmModel,
        method: str,
        target: str,
        at: float,
        listed: set[str] | None,
        identity: str,
    ) -> None:
        """A good answer, true `at` that time, has reached the operator. `listed`: the nodes in an
        incomplete list. `identity`: see `writes_as`.
        """

    def writes_as(self, identity: str) -> None:
        """The operator of that identity writes. "": it runs without an election."""


@dataclass
class Faults:
    """The faults, by the number of the write (from 1, over all operators) or for a time."""

    writes: dict[int, KubeFault] = field(default_factory=dict)
    lists: deque[KubeFault] = field(default_factory=deque)
    lag_until: float = 0.0
    """Watches deliver nothing before."""
    watches: list[tuple[str, Callable[[WatchFault], None]]] = field(default_factory=list)
    """The open ones: their collection, and what ends each."""
    silent_until: float = 0.0
    """A write is not answered before."""
    slow: float = 0.0
    """Seconds by which each write is answered later."""
    refused: dict[Refusal, float] = field(default_factory=dict)
    """Until when the API server refuses something."""
    listed_badly_at: float = 0.0
    """When a list has failed last."""
    without_role: set[str] = field(default_factory=set)
    """Namespaces without the operator's Role."""
    events_are_hidden: bool = False
    """The operator may not read Events."""
    without_slurmctld: set[int] = field(default_factory=set)
    """Models whose slurmctld and slurmrestd don't exist."""
    unlisted: set[tuple[str, str]] = field(default_factory=set)
    """Collection and namespace of each list that was refused, and has not succeeded since."""
    done: int = 0
    slurm_writes: dict[int, SlurmFault] = field(default_factory=dict)
    slurm_done: int = 0
    injected: Counter[str] = field(default_factory=Counter)
    """How often each has happened, by its name."""

    def hide_status(self, now: float) -> bool:
        """Whether the operator's view is out of date, or its status can't be written."""
        return max(self.lag_until, self.silent_until, self.refused.get("RBAC", 0.0)) > now

    def refuses(self, method: str, place: Place, now: float) -> str:
        """Why the API server refuses the request; "" if it doesn't."""
        if place.namespace in self.without_role and not (
            place.plural in EVERYWHERE and method in ("GET", "PATCH")
        ):
            return "User cannot do that: no RBAC policy matched"
        if self.events_are_hidden and method == "GET" and place.plural == "events":
            return "User cannot list events: no RBAC policy matched"
        if place.namespace == SPARED or place.plural in REPORTED_ASIDE:
            return ""
        if now < self.refused.get("RBAC", 0.0) and (
            method != "GET" or (place.namespace and not place.name)
        ):
            return "injected: User cannot do that: no RBAC policy matched"
        if method == "POST" and place.plural == "pods" and now < self.refused.get("quota", 0.0):
            return "injected: exceeded quota: pods=0"
        return ""


class Process:
    """One process of the operator, until it ends or is killed. `identity` is that of its election,
    "" without one.
    """

    def __init__(self, killed: Callable[[], None], identity: str = "") -> None:
        self.identity = identity
        self.dead = False
        self.frozen_until = 0.0
        """Before, it sends no request and gets no answer."""
        self.never = asyncio.Event()
        """The requests of a dead process wait for it."""
        self._killed = killed

    def kill(self) -> None:
        """End it at this moment: no further request is sent, none is answered."""
        if not self.dead:
            self.dead = True
            self._killed()

    def is_frozen(self) -> bool:
        """Whether it is frozen at this moment."""
        return self.frozen_until > asyncio.get_running_loop().time()

    async def thawed(self) -> None:
        """Returns when the process runs; never if it is dead."""
        if self.dead:
            await self.never.wait()
        if self.is_frozen():
            await asyncio.sleep(self.frozen_until - asyncio.get_running_loop().time())
            await self.thawed()

    async def sleep(self, seconds: float) -> None:
        """As `asyncio.sleep` in this process."""
        await asyncio.sleep(seconds)
        if self.is_frozen():
            await self.thawed()
            # The event loop handles what has arrived meanwhile before its timers.
            await asyncio.sleep(AFTER_THAW)


class WorldTransport(Transport):
    """`sidecars.kube.transport.Transport` without HTTP: it calls the Api in this process, as
    `process`.
    """

    def __init__(
        self, api: Api, process: Process, faults: Faults, watcher: Watcher, rng: random.Random
    ) -> None:
        self._api, self._process, self._faults, self._watcher, self._random = (
            api,
            process,
            faults,
            watcher,
            rng,
        )
        self._seconds_left: Callable[[], float] | None = None

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        content: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> bytes:
        """As the shipped one, with the injected `Faults`."""
        request, left = f"{method} {path}", None
        await self._process.thawed()
        if method != "GET" and self._seconds_left is not None:
            self._check_lead(request)
            left = self._seconds_left()
        try:
            async with asyncio.timeout(left):
                answer = await self._answer(method, path, query, content, content_type, accept)
        except TimeoutError:
            raise Unreachable(f"{request}: no answer while the lease is held") from None
        except KubeError:
            await self._process.thawed()
            raise
        await self._process.thawed()
        return answer

    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        content: bytes | None,
        content_type: str,
        accept: str,
    ) -> bytes:
        place, request = place_of(path), f"{method} {path}"
        sent = None if content is None else msgspec.json.decode(content)
        if method == "GET":
            await self._pass(self._random.uniform(0.001, 0.01))
            return await self._read(place, query or {}, request, accept)
        # Anything may happen while it is on its way.
        await self._pass(self._random.uniform(0.0, 0.01))
        now = asyncio.get_running_loop().time()
        fault = None
        if why := self._faults.refuses(method, place, now):
            self._count_refusal(why)
            raise api_error(403, "Forbidden", why, request=request)
        if place.plural not in REPORTED_ASIDE and place.namespace != SPARED:
            self._faults.done += 1
            fault = self._faults.writes.pop(self._faults.done, None)
        if fault is not None and fault is not KubeFault.ARRIVES_LATE:
            self._faults.injected[fault.name] += 1
        match fault:
            case KubeFault.CONFLICT:
                raise api_error(
                    409, "Conflict", "injected: another writer was quicker", request=request
                )
            case KubeFault.ERROR:
                raise api_error(
                    500, "InternalError", "injected: etcd has no leader", request=request
                )
            case KubeFault.TIMEOUT:
                self._faults.silent_until = asyncio.get_running_loop().time() + 30.0
                await self._pass(30.0)
                raise Unreachable(f"{request}: injected: no answer within 30 s")
            case KubeFault.TOO_MANY:
                raise api_error(
                    429, "TooManyRequests", "injected: the server is busy", request=request
                )
            case KubeFault.DENIED:
                raise api_error(
                    403,
                    "Forbidden",
                    "injected: admission webhook denied the request",
                    request=request,
                )
            case KubeFault.CRASH_BEFORE:
                self._process.kill()
                await self._pass(0)
            case KubeFault.ARRIVES_LATE:
                self._watcher.kube_write(method, place, sent)
                late = functools.partial(
                    self._arrive_late, method, place, query or {}, sent, content_type
                )
                # Not in this task, which ends with the process.
                asyncio.get_running_loop().call_later(LATE_SECONDS, late)
                self._process.kill()
                await self._pass(0)
        if place.plural != "leases":
            self._watcher.writes_as(self._process.identity)
            self._watcher.kube_write(method, place, sent)
        answer = self._api.handle(method, place, query or {}, sent, content_type)
        if fault is KubeFault.CRASH_AFTER:
            self._process.kill()
        await self._pass(
            8.0
            if fault is KubeFault.LATE
            else self._random.uniform(0.001, 0.01) + self._faults.slow
        )
        if fault is KubeFault.LOST:
            raise Unreachable(f"{request}: injected: the connection was cut")
        return answer

    def _arrive_late(
        self, method: str, place: Place, query: Mapping[str, str], sent: Any, content_type: str
    ) -> None:
        self._faults.injected[KubeFault.ARRIVES_LATE.name] += 1
        with contextlib.suppress(ApiError):
            self._api.handle(method, place, query, sent, content_type)

    def _count_refusal(self, why: str) -> None:
        if why.startswith("injected"):
            self._faults.injected["RBAC" if "RBAC" in why else "quota"] += 1

    def _check_readable(self, place: Place, request: str) -> None:
        """Raises ApiError for what the operator may not read, or what the API server doesn't
        serve.
        """
        why = self._faults.refuses("GET", place, asyncio.get_running_loop().time())
        served = place.collection not in self._api.unserved
        if not place.name and (why or not served) and place.plural != "events":
            self._faults.unlisted.add((place.collection, place.namespace))
        if why:
            self._count_refusal(why)
            raise api_error(403, "Forbidden", why, request=request)
        if not place.name and served:
            self._faults.unlisted.discard((place.collection, place.namespace))

    async def _read(
        self, place: Place, query: Mapping[str, str], request: str, accept: str
    ) -> bytes:
        self._check_readable(place, request)
        if place.name:
            return self._api.handle("GET", place, query, None, "")
        fault = self._faults.lists.popleft() if self._faults.lists else None
        if fault is not None:
            self._faults.injected[f"list {fault.name}"] += 1
            self._faults.listed_badly_at = asyncio.get_running_loop().time()
        if fault is KubeFault.GONE:
            raise api_error(410, "Expired", "injected: too old", request=request)
        if fault is KubeFault.ERROR:
            raise api_error(500, "InternalError", "injected: etcd has no leader", request=request)
        version = None
        if fault is KubeFault.STALE and not query.get("continue"):
            version = max(
                self._api.oldest(place.collection), self._api.version - self._random.randint(1, 30)
            )
        return self._api.page(
            place, query, version, metadata_only="as=PartialObjectMetadataList;" in accept
        )

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], *, accept: str, read_deadline: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """As the shipped one; events come within 20 ms, or when `lag_until` is over."""
        metadata_only = "as=PartialObjectMetadata;" in accept
        place = place_of(path)
        selector, since = Selector.of(place, query), int(query["resourceVersion"])
        await self._process.thawed()
        await self._pass(self._random.uniform(0.001, 0.01))
        self._check_readable(place, f"WATCH {path}")
        loop = asyncio.get_running_loop()
        ends = loop.time() + int(query["timeoutSeconds"])
        queue = _Queue()

        def take(change: Change) -> None:
            if change.collection == place.collection:
                line = event(change, selector, metadata_only=metadata_only)
                if line:
                    queue.put(loop.time() + self._random.uniform(0.0, 0.02), line)

        def end(fault: WatchFault) -> None:
            queue.clear()
            queue.put(loop.time(), fault)

        async def lines() -> AsyncIterator[bytes]:
            while True:
                try:
                    due, line = await queue.get(ends)
                except TimeoutError:
                    return
                if isinstance(line, WatchFault):
                    self._faults.injected[f"watch {line.name}"] += 1
                match line:
                    case WatchFault.ENDED:
                        return
                    case WatchFault.CUT:
                        raise Unreachable(f"WATCH {path}: injected: the connection was cut")
                    case WatchFault.GONE:
                        line = _EXPIRED
                if self._faults.lag_until > max(due, loop.time()):
                    self._faults.injected["watch SILENT"] += 1
                await self._pass(max(due, self._faults.lag_until) - loop.time())
                await self._process.thawed()
                yield line

        if since < self._api.compacted:
            self._faults.injected["watch OLD"] += 1
        for change in self._api.changes(place.collection, since):
            take(change)
        self._api.listeners.append(take)
        opened = place.collection, end
        self._faults.watches.append(opened)
        try:
            yield lines()
        finally:
            self._api.listeners.remove(take)
            self._faults.watches.remove(opened)

    async def _pass(self, seconds: float) -> None:
        """Let time pass; for a process that was killed it never ends."""
        if seconds > 0:
            await asyncio.sleep(seconds)
        if self._process.dead:
            await self._process.never.wait()


class _Queue:
    """What one watch is sent, with the times."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, bytes | WatchFault]] = deque()
        self._woken = asyncio.Event()

    def put(self, due: float, line: bytes | WatchFault) -> None:
        self._lines.append((due, line))
        self._woken.set()

    def clear(self) -> None:
        self._lines.clear()

    async def get(self, until: float) -> tuple[float, bytes | WatchFault]:
        """The next one. Raises TimeoutError when none has come until that time."""
        if not self._lines:
            self._woken.clear()
            async with asyncio.timeout_at(until):
                await self._woken.wait()
        return self._lines.popleft()


class WorldSlurm(slurm_client.Client):
    """`sidecars.slurm.client.Client` without HTTP: it asks a model in this process, as
    `process`.
    """

    def __init__(
        self,
        url: str,
        tokens: TokenSource,
        *,
        model: SlurmModel,
        process: Process,
        faults: Faults,
        watcher: Watcher,
        rng: random.Random,
        spared: bool = False,
    ) -> None:
        super().__init__(url, tokens)
        self._spared = spared
        self._model, self._process, self._faults, self._watcher, self._random = (
            model,
            process,
            faults,
            watcher,
            rng,
        )

    async def _exchange(self, request: Request[Any], token: str) -> tuple[int, bytes]:
        await self._process.thawed()
        await self._pass(self._random.uniform(0.001, 0.01))
        if id(self._model) in self._faults.without_slurmctld:
            raise slurm_errors.Unreachable(str(request), "slurmrestd does not exist")
        target = request.target(VERSIONS[0])
        made = asyncio.get_running_loop().time()
        fault = None
        if request.method != "GET" and not self._spared:
            self._faults.slurm_done += 1
            fault = self._faults.slurm_writes.pop(self._faults.slurm_done, None)
        if fault is not None and fault is not SlurmFault.ARRIVES_LATE:
            self._faults.injected[f"Slurm write {fault.name}"] += 1

        def carry() -> tuple[Any, list[PlannedFault]]:
            planned = [it for it in self._model._planned if it.method in (None, request.method)]
            self._faults.injected.update(f"Slurm {it.fault.name}" for it in planned)
            return self._model.handle(request.method, target, request.content(), token), planned

        match fault:
            case SlurmFault.ERROR:
                return 500, b"Internal Server Error"
            case SlurmFault.UNREACHABLE:
                raise slurm_errors.Unreachable(str(request), "injected: the connection was refused")
            case SlurmFault.CRASH_BEFORE:
                self._process.kill()
                await self._pass(0)
            case SlurmFault.ARRIVES_LATE:
                arrives = self._watcher.slurm_sent(
                    self._model, request.method, target, request.content()
                )
                # Not in this task, which ends with the process.
                asyncio.get_running_loop().call_later(
                    LATE_SECONDS, self._arrive_late, arrives, carry
                )
                self._process.kill()
                await self._pass(0)

        if request.method != "GET":
            self._watcher.writes_as(self._process.identity)
        reply, planned = self._watcher.slurm_request(
            self._model, request.method, target, request.content(), carry
        )
        if fault is SlurmFault.CRASH_AFTER:
            self._process.kill()
        silent = reply.delay is None or fault is SlurmFault.TIMEOUT
        await self._pass(
            3600.0 if silent else (reply.delay or 0.0) + self._random.uniform(0.001, 0.01)
        )
        await self._process.thawed()
        if fault is SlurmFault.LOST:
            raise slurm_errors.Unreachable(str(request), "injected: the connection was cut")
        if reply.cut:
            raise slurm_errors.Unreachable(str(request), "the answer was cut off")
        stale = made
        if planned and planned[0].fault is Fault.STALE:
            stale -= self._model.clock() - planned[0].since
        partial = bool(planned) and planned[0].fault is Fault.PARTIAL
        if reply.status in (200, 304) and (not planned or reply.delay or partial or stale < made):
            names = msgspec.json.decode(reply.body).get("nodes") if partial and reply.body else None
            listed = None if names is None else {it["name"] for it in names}
            identity = self._process.identity
            self._watcher.slurm_seen(self._model, request.method, target, stale, listed, identity)
        return reply.status, reply.body

    def _arrive_late(
        self, arrives: Callable[[Callable[[], object]], None], carry: Callable[[], object]
    ) -> None:
        if id(self._model) not in self._faults.without_slurmctld:
            self._faults.injected[f"Slurm write {SlurmFault.ARRIVES_LATE.name}"] += 1
            arrives(carry)

    async def _pass(self, seconds: float) -> None:
        if seconds > 0:
            await asyncio.sleep(seconds)
        if self._process.dead:
            await self._process.never.wait()
