"""Leader election by a Lease: at most one of several processes leads, and only it writes.

Time is a monotonic clock that counts suspend (CLOCK_BOOTTIME): a process that was stopped or frozen
finds its deadline passed. No other host's clock is ever compared with ours: a lease is expired when
it hasn't changed for its duration since we first saw it so. See
https://kubernetes.io/docs/concepts/architecture/leases/.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from sidecars.kube.errors import (
    AlreadyExists,
    Conflict,
    CredentialsError,
    KubeError,
    LeadershipLost,
    Malformed,
    NotFound,
)
from sidecars.kube.resources import LEASES
from sidecars.objects import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from sidecars.kube.client import Client

_log = logging.getLogger(__name__)
_SHORTEST_PAUSE = 0.05
"""Seconds. Two clocks that differ in resolution must not make a loop spin on the last nanosecond of
a lease.
"""


def boottime() -> float:
    """Return the seconds of a clock that never steps and continues while the host is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def run_until_lost(work: Coroutine[Any, Any, None]) -> None:
    """`asyncio.run`, but a LeadershipLost that `work` raises ends the process at once, with status
    1.

    Neither tasks nor threads are waited for: what doesn't end must not keep a process running that
    has lost its lease.
    """
    runner = asyncio.Runner()
    try:
        runner.run(work)
    except LeadershipLost as lost:
        _log.error("%s", lost)  # the traceback would tell nothing
        logging.shutdown()
        os._exit(1)
    finally:
        runner.close()


def status_of(work: Coroutine[Any, Any, None], *expected: type[Exception]) -> int:
    """Do the work of a candidate, as `run_until_lost`, and return the exit status: 0 at its end, 1
    after faults that are logged: one of the API or its credentials, of a port or a file, of time,
    or one of those `expected`.
    """
    known: tuple[type[Exception], ...] = (
        *(CredentialsError, LeadershipLost, OSError, TimeoutError),
        *expected,
    )
    try:
        run_until_lost(work)
    except known as error:
        _log.error("%s", error)
        return 1
    except ExceptionGroup as group:
        if group.split(known)[1] is not None:
            raise
        for failure in group.exceptions:
            _log.error("%s", failure)
        return 1
    return 0


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: _LeaseSpec = _LeaseSpec()


@dataclass(frozen=True, slots=True)
class Periods:
    """The times of an election, in seconds.

    Of `lease_duration` seconds after a renewal was sent, only `renew_deadline` are led: what was
    sent at the last moment has the rest of them to arrive before another one may lead.
    """

    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_period < self.renew_deadline < self.lease_duration:
            raise ValueError(
                "a lease needs 0 < retry_period < renew_deadline < lease_duration,"
                f" got {self.retry_period}, {self.renew_deadline}, {self.lease_duration}"
            )


@dataclass(frozen=True, slots=True)
class Time:
    """How an election learns the time, and lets it pass."""

    clock: Callable[[], float] = boottime
    """Seconds of a clock that never steps."""
    wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


PERIODS = Periods()
REAL_TIME = Time()


class Election:
    """One candidate. `identity` must differ in every process, also after a restart (pod name and a
    random part).
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        periods: Periods = PERIODS,
        time: Time = REAL_TIME,
        rng: random.Random | None = None,
    ) -> None:
        """`client` must not be guarded by this election: it is how the lease itself is written."""
        if not identity:
            raise ValueError("a candidate needs an identity")
        self.identity = identity
        self._client, self._namespace, self._name = client, namespace, name
        self._lease_duration = periods.lease_duration
        self._renew_deadline = periods.renew_deadline
        self._retry_period = periods.retry_period
        self._clock, self._wall_clock, self._sleep = time.clock, time.wall_clock, time.sleep
        self._rng = rng or random.Random()  # noqa: S311 - spreads tries, guards nothing
        self._deadline = float("-inf")
        self._lease: _Lease | None = None
        self._seen_version = ""
        self._seen_at = float("-inf")

    @property
    def deadline(self) -> float:
        """When, by the clock, leadership ends unless it is renewed; -inf when not leading."""
        return self._deadline

    @property
    def leading(self) -> bool:
        """Whether this process leads."""
        return self.left() > 0

    def left(self) -> float:
        """Return the seconds of leadership left, 0.0 when not leading. Give them to
        `Client.guarded`.
        """
        return max(0.0, self._deadline - self._clock())

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait to be elected, then run `lead()` and renew.

        Returns when `lead` returns, after releasing the lease. Raises LeadershipLost, with `lead`
        cancelled, if renewal failed until the deadline or another one holds the lease: end the
        process then. Cancellation ends `lead`, then releases the lease, so that another takes over
        at once.
        """
        await self._acquire()
        _log.info("%s leads (lease %s/%s)", self.identity, self._namespace, self._name)
        leading = asyncio.create_task(lead())
        renewing = asyncio.create_task(self._renew())
        try:
            await asyncio.wait({leading, renewing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Renewal continues until the work has really ended; work that doesn't end must not keep
            # the process alive.
            await _end(
                leading,
                timeout=60.0 if self.leading else self._lease_duration - self._renew_deadline,
            )
            await _end(renewing, timeout=self._renew_deadline)
            if leading.done():
                await self.release()
        if renewing.done() and not renewing.cancelled():
            renewing.result()
        leading.result()

    async def release(self) -> None:
        """Give up the lease if this process leads; best effort, no error when the server can't be
        reached.
        """
        lease, left = self._lease, self.left()
        self._deadline = float("-inf")
        if lease is None or left <= 0:
            return
        try:
            async with asyncio.timeout(left):
                await self._put(lease, holder="")
        except (KubeError, TimeoutError) as error:
            _log.warning(
                "the lease %s/%s could not be released: %s", self._namespace, self._name, error
            )

    async def _acquire(self) -> None:
        expires = float("inf")
        while not self.leading:
            try:
                async with asyncio.timeout(self._renew_deadline):
                    expires = await self._try_acquire()
            except (Conflict, AlreadyExists):
                _log.debug(
                    "another candidate for the lease %s/%s was quicker", self._namespace, self._name
                )
            except (KubeError, TimeoutError) as error:
                _log.warning("no try for the lease %s/%s: %s", self._namespace, self._name, error)
            if not self.leading:
                # Often enough to see a release soon, and at the very moment at which the lease
                # expires.
                wait = min(
                    self._retry_period * self._rng.uniform(0.5, 0.75),
                    max(0.0, expires - self._clock()),
                )
                await self._sleep(wait + self._rng.uniform(0.05, 0.2))

    async def _try_acquire(self) -> float:
        """Take the lease if it is free; else when, by our clock, it expires."""
        try:
            lease = await self._client.get(LEASES, self._namespace, self._name, _Lease)
        except NotFound:
            lease = _Lease(ObjectMeta(name=self._name, namespace=self._namespace))
        holder, now = lease.spec.holder_identity, self._clock()
        if lease.metadata.resource_version != self._seen_version:
            self._seen_version, self._seen_at = lease.metadata.resource_version, now
        if holder and holder != self.identity:
            expires = self._seen_at + (lease.spec.lease_duration_seconds or self._lease_duration)
            if now < expires:
                return expires
            _log.info("the lease of %s has expired", holder)
        await self._put(lease, holder=self.identity)
        return self._deadline

    async def _renew(self) -> None:
        """Until the lease is lost, which raises."""
        while True:
            pause = min(self._retry_period * self._rng.uniform(0.8, 1.0), self.left())
            await self._sleep(max(pause, _SHORTEST_PAUSE))
            if not self.leading:
                raise LeadershipLost(
                    f"{self.identity}: no renewal of the lease within {self._renew_deadline:g} s"
                )
            try:
                async with asyncio.timeout(min(self._retry_period * 2, self.left())):
                    await self._renew_once()
            except LeadershipLost:
                self._deadline = float("-inf")
                raise
            except (KubeError, TimeoutError) as error:
                _log.warning("the lease was not renewed, %.1f s left: %s", self.left(), error)

    async def _renew_once(self) -> None:
        assert self._lease is not None, "renewed only after it was acquired"  # noqa: S101 - see run
        try:
            await self._put(self._lease, holder=self.identity)
        except (Conflict, NotFound, AlreadyExists):
            # Someone wrote it: another holder, or ourselves in a request whose answer was lost.
            lease = await self._client.get(LEASES, self._namespace, self._name, _Lease)
            holder = lease.spec.holder_identity
            if holder != self.identity:
                raise LeadershipLost(
                    f"{self.identity}: the lease is held by {holder or 'nobody'}"
                ) from None
            await self._put(lease, holder=self.identity)

    async def _put(self, lease: _Lease, *, holder: str) -> None:
        """Write the lease on top of that version of it. Raises Conflict or AlreadyExists when it
        has changed since.
        """
        now = self._wall_clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = lease.spec
        spec: dict[str, Any] = {"holderIdentity": holder, "renewTime": now}
        if not holder:
            spec["leaseDurationSeconds"] = 1
        elif holder != before.holder_identity:
            spec |= {
                "leaseDurationSeconds": self._lease_duration,
                "acquireTime": now,
                "leaseTransitions": (before.lease_transitions or 0)
                + (1 if lease.metadata.resource_version else 0),
            }
        sent = self._clock()
        if lease.metadata.resource_version:
            patch = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
            stored = await self._client.merge_patch(LEASES, self._namespace, self._name, patch)
        else:
            metadata = {"name": self._name, "namespace": self._namespace}
            manifest = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": metadata,
                "spec": spec,
            }
            stored = await self._client.create(LEASES, manifest)
        try:
            self._lease = msgspec.convert(stored, _Lease)
        except msgspec.ValidationError as error:
            raise Malformed(f"lease {self._namespace}/{self._name}: {error}") from None
        if holder:
            # From the moment of sending: others count from when they saw it, which is later.
            self._deadline = sent + self._renew_deadline


def candidate(client: Client, namespace: str, name: str) -> Election:
    """Return this process's candidacy for the lease, which it writes with a client of its own."""
    _log.info("waiting for lease %s/%s", namespace, name)
    return Election(client.apart(), namespace, name, f"{socket.gethostname()}_{uuid.uuid4()}")


async def _end(task: asyncio.Task[None], timeout: float) -> None:
    """Cancel the task and wait for its end, at most for `timeout` seconds."""
    task.cancel()
    await asyncio.wait({task}, timeout=timeout)
