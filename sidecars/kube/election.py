"""Leader election by a Lease: at most one of several processes leads, and only it writes.

Time is a monotonic clock that counts suspend (CLOCK_BOOTTIME): a process that was stopped or frozen finds its
deadline passed. No clock of another machine is ever compared with ours.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Coroutine

    from sidecars.kube.client import Client


def boottime() -> float:
    """Seconds of a clock that never steps and goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Election:
    """One candidate. `identity` must differ in every process, also after a restart (pod name and a random part)."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        clock: Callable[[], float] = boottime,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        raise NotImplementedError

    @property
    def deadline(self) -> float:
        """When, by `clock`, leadership ends unless it is renewed; -inf when not leading."""
        raise NotImplementedError

    @property
    def held(self) -> bool:
        """Leading now."""
        return self.left() > 0

    def left(self) -> float:
        """Seconds of leadership left; 0.0 when not leading. Give it to `Client.guarded`."""
        raise NotImplementedError

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait to be elected, then run `lead()` and renew.

        Returns when `lead` returns, after releasing the lease. Raises LeadershipLost, with `lead` cancelled, if renewal
        failed until the deadline or another one holds the lease: end the process then. Cancellation ends `lead`,
        then releases the lease, so that another takes over at once.
        """
        raise NotImplementedError

    async def release(self) -> None:
        """Give the lease up if it is held; best effort, no error when the server can't be reached."""
        raise NotImplementedError
