"""One Slurm cluster as the operator sees it: polled node records, told changes, batched writes, and how far to trust it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from sidecars.slurm.protocol import Request
from sidecars.slurm.records import Job, Node, Reservation

T = TypeVar("T")

Subscriber = Callable[[frozenset[str], frozenset[str]], None]


class Carrier(Protocol):
    """What carries requests: `sidecars.slurm.client.Client`, or a double."""

    async def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        """Carry the request and decode its answer within `timeout` seconds. Raises SlurmError."""


class Poller:
    """Polls one Slurm cluster and writes to it. `clock` is monotonic seconds. `run()` polls until cancelled."""

    def __init__(
        self, client: Carrier, clock: Callable[[], float], *, interval: float = 1.0, full_every: float = 30.0
    ) -> None:
        raise NotImplementedError

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The last known record of each node by name: a live view, read-only. Not to be trusted unless `known`."""
        raise NotImplementedError

    def fresh(self, now: float) -> bool:
        """Whether the last good answer is recent enough at `now` (of `clock`)."""
        raise NotImplementedError

    @property
    def known(self) -> bool:
        """Whether `nodes` may be acted upon destructively: a full list was read, it is fresh, no fault, no suspicion."""
        raise NotImplementedError

    @property
    def trouble(self) -> str:
        """Why the cluster isn't `known`, in words for a condition; "" when it is."""
        raise NotImplementedError

    @property
    def suspect(self) -> frozenset[str]:
        """Nodes that vanished in a way that looks like lost state; still in `nodes`, not reported as removed."""
        raise NotImplementedError

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Have `subscriber(changed, removed)` called (synchronously) after each poll that changed something.

        Names new to us are in `changed`. It is also called with two empty sets when `known` flips. Returns the unsubscriber.
        """
        raise NotImplementedError

    def expect_removal(self, names: Iterable[str]) -> None:
        """Say that these records are about to be deleted by others, so that their vanishing is no lost state."""
        raise NotImplementedError

    def wake(self) -> None:
        """Poll now instead of at the next tick (while the circuit breaker is open it changes nothing)."""
        raise NotImplementedError

    async def run(self) -> None:
        """Poll until cancelled."""
        raise NotImplementedError

    async def poll(self) -> None:
        """One poll, now; what `run` does each tick. Never raises for a fault of Slurm: see `known` and `trouble`."""
        raise NotImplementedError

    async def drain(self, names: Iterable[str], reason: str) -> None:
        """Set DRAIN with `reason`. Calls made together with the same reason go out as one request. Raises SlurmError."""
        raise NotImplementedError

    async def undrain(self, names: Iterable[str]) -> None:
        """Take a drain back (leaves DOWN as it is). Raises SlurmError."""
        raise NotImplementedError

    async def down(self, names: Iterable[str], reason: str) -> None:
        """Set DOWN with `reason`: Slurm ends what runs there. Raises SlurmError."""
        raise NotImplementedError

    async def update(
        self,
        names: Iterable[str],
        *,
        comment: str | None = None,
        features: Iterable[str] | None = None,
        active_features: Iterable[str] | None = None,
        topology: str | None = None,
    ) -> None:
        """Set descriptive fields. Raises SlurmError."""
        raise NotImplementedError

    async def delete(self, name: str) -> None:
        """Delete the record; a record that is already gone is success. Raises SlurmError."""
        raise NotImplementedError

    async def jobs(self) -> tuple[Job, ...]:
        """All jobs, at most a second old. Raises SlurmError."""
        raise NotImplementedError

    async def reservations(self) -> tuple[Reservation, ...]:
        """All reservations, at most a second old. Raises SlurmError."""
        raise NotImplementedError
