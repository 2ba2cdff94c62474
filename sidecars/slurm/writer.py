"""Writes of node records, in batches: calls within 20 ms with the same content become one
request.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sidecars.contract.reasons import REPLACEABLE, Owner
from sidecars.slurm import protocol, states
from sidecars.slurm.carrier import Carrier
from sidecars.slurm.errors import Refused, SlurmError, Unreachable
from sidecars.slurm.node_cache import NodeCache
from sidecars.slurm.owners import owner_of
from sidecars.slurm.protocol import Request

ANY_OWNER = frozenset(Owner)
"""A write may change any node, whoever set its state and reason."""

_BATCH_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class _Change:
    """What a write sets. Equal changes are sent together."""

    state: tuple[str, ...] = ()
    reason: str | None = None
    owners: frozenset[Owner] = ANY_OWNER
    """The owners of the states and reasons that the write may change."""
    features: tuple[str, ...] | None = None
    active_features: tuple[str, ...] | None = None
    topology: str | None = None

    def request(self, names: Iterable[str]) -> Request[None]:
        return protocol.update_nodes(
            names,
            state=self.state,
            reason=self.reason,
            features=self.features,
            active_features=self.active_features,
            topology=self.topology,
        )


@dataclass(slots=True)
class _Batch:
    """A write that waits to be sent."""

    change: _Change
    names: set[str]
    done: asyncio.Future[dict[str, SlurmError]]
    """The failures by name."""


class NodeWriter:
    """Writes to the nodes of one cluster.

    `guard` raises SlurmError for a request that must not be sent. `wake` is called when all batches
    are sent.

    All writes raise SlurmError for the first name that failed; the other names are written in spite
    of it. They are sent in the order of the calls. A node whose state or reason has become that of
    none of the `owners` in the meantime is left as it is, which is no error. `REPLACEABLE` owners
    needn't be among them while the node is not drained.
    """

    def __init__(
        self,
        client: Carrier,
        clock: Callable[[], float],
        cache: NodeCache,
        guard: Callable[[Request[Any]], None],
        wake: Callable[[], None],
    ) -> None:
        self._client = client
        self._clock = clock
        self._cache = cache
        self._guard = guard
        self._wake = wake
        self._batches: list[_Batch] = []
        self._task: asyncio.Task[None] | None = None

    async def drain(
        self, names: Iterable[str], reason: str | None, *, owners: frozenset[Owner] = ANY_OWNER
    ) -> None:
        """Set DRAIN with `reason`; None doesn't change the reason."""
        touched = ANY_OWNER if reason is None else owners
        await self._write(_Change(state=("DRAIN",), reason=reason, owners=touched), names)

    async def undrain(self, names: Iterable[str], *, owners: frozenset[Owner] = ANY_OWNER) -> None:
        """Set UNDRAIN, which clears the reason. A node that is DOWN stays DOWN and keeps it."""
        await self._write(_Change(state=("UNDRAIN",), owners=owners), names)

    async def resume(self, names: Iterable[str], *, owners: frozenset[Owner] = ANY_OWNER) -> None:
        """Set RESUME, which ends DOWN, DRAIN and FAIL and clears the reason."""
        await self._write(_Change(state=("RESUME",), owners=owners), names)

    async def down(
        self, names: Iterable[str], reason: str | None, *, owners: frozenset[Owner] = ANY_OWNER
    ) -> None:
        """Set DOWN with `reason`; None doesn't change the reason. Slurm ends or requeues the
        jobs.
        """
        touched = ANY_OWNER if reason is None else owners
        await self._write(_Change(state=("DOWN",), reason=reason, owners=touched), names)

    async def power_up(
        self, names: Iterable[str], *, owners: frozenset[Owner] = REPLACEABLE
    ) -> None:
        """Set POWER_UP: power saving starts the nodes."""
        await self._write(_Change(state=("POWER_UP",), owners=owners), names)

    async def power_down(self, names: Iterable[str]) -> None:
        """Set POWER_DOWN_FORCE: power saving stops the nodes. Slurm ends or requeues their jobs."""
        await self._write(_Change(state=("POWER_DOWN_FORCE",)), names)

    async def power_down_when_idle(self, names: Iterable[str]) -> None:
        """Set POWER_DOWN: power saving stops each node as soon as it has no job."""
        await self._write(_Change(state=("POWER_DOWN",)), names)

    async def update(
        self,
        names: Iterable[str],
        *,
        features: Iterable[str] | None = None,
        active_features: Iterable[str] | None = None,
        topology: str | None = None,
    ) -> None:
        """Set fields that don't change the state. None doesn't change a field, "" clears it.

        Features set this way outlive slurmd's next registration.
        """
        change = _Change(
            features=None if features is None else tuple(features),
            active_features=None if active_features is None else tuple(active_features),
            topology=topology,
        )
        await self._write(change, names)

    async def close(self) -> None:
        """Stop. Writes that are not sent yet fail with Unreachable."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for batch in self._batches:
            error = Unreachable(str(batch.change.request(batch.names)), "not sent: shutting down")
            batch.done.set_result(dict.fromkeys(batch.names, error))
        self._batches.clear()

    async def _write(self, change: _Change, names: Iterable[str]) -> None:
        wanted = set(names)
        if not wanted:
            return
        self._guard(change.request(wanted))
        batch = self._joinable(change, wanted)
        if batch is None:
            batch = _Batch(change, wanted, asyncio.get_running_loop().create_future())
            self._batches.append(batch)
        else:
            batch.names |= wanted
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send_batches(), name="slurm writes")
        failures = await asyncio.shield(batch.done)
        for name in sorted(wanted & failures.keys()):
            raise failures[name]

    def _joinable(self, change: _Change, names: set[str]) -> _Batch | None:
        """Return a waiting batch with the same change that these names can join without overtaking
        a later one of theirs.
        """
        for batch in reversed(self._batches):
            if batch.change == change:
                return batch
            if not batch.names.isdisjoint(names):
                return None
        return None

    async def _send_batches(self) -> None:
        await asyncio.sleep(_BATCH_SECONDS)
        while self._batches:
            # At the same time only for different nodes: for one node the order of the calls counts.
            touched: set[str] = set()
            together: list[_Batch] = []
            while self._batches and touched.isdisjoint(self._batches[0].names):
                batch = self._batches.pop(0)
                touched |= batch.names
                together.append(batch)
            await asyncio.gather(*(self._send_batch(batch) for batch in together))
        self._wake()

    async def _send_batch(self, batch: _Batch) -> None:
        failures: dict[str, SlurmError] = {}
        if batch.change.state:
            self._cache.being_written(batch.names)
        try:
            await self._send(
                batch.change,
                [it for it in sorted(batch.names) if self._may(batch.change, it)],
                failures,
            )
        except BaseException as error:
            batch.done.set_exception(
                Unreachable("POST nodes/", f"not known to be done: {type(error).__name__}")
            )
            # The caller may be cancelled as well, and asyncio complains about an exception that
            # nobody retrieves.
            batch.done.exception()
            raise
        finally:
            if batch.change.state:
                self._cache.written(batch.names, self._clock())
        batch.done.set_result(failures)

    async def _send(
        self, change: _Change, names: list[str], failures: dict[str, SlurmError]
    ) -> None:
        """Send one write. If one name is at fault, halve until that name is found and the others
        are written.
        """
        if not names:
            return
        request = change.request(names)
        try:
            self._guard(request)
            await self._client.call(request)
        except Refused as error:
            if len(names) == 1 or not error.numbers & protocol.ONE_NODES_FAULT:
                failures.update(dict.fromkeys(names, error))
                return
            middle = len(names) // 2
            await self._send(change, names[:middle], failures)
            await self._send(change, names[middle:], failures)
        except SlurmError as error:
            failures.update(dict.fromkeys(names, error))

    def _may(self, change: _Change, name: str) -> bool:
        """Return whether the write may still be sent. An administrator may have changed the node
        while it waited.
        """
        node = self._cache.nodes.get(name)
        if node is None:
            return True
        found = owner_of(node)
        return found in change.owners or (found in REPLACEABLE and not states.is_drain(node.states))
