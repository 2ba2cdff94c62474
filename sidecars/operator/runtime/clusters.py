"""The Slurm clusters that the operator talks to: one client and one poller for each Controller with
a RestApi.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeVar

from sidecars.operator.runtime.queues import Key
from sidecars.policy.nodeset.records import SlurmView
from sidecars.slurm.carrier import Carrier
from sidecars.slurm.client import Client
from sidecars.slurm.errors import Unreachable
from sidecars.slurm.poller import Poller
from sidecars.slurm.protocol import Request
from sidecars.slurm.tokens import TokenSource

log = logging.getLogger(__name__)
T = TypeVar("T")

WRITE_SECONDS = 15.0

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
"""Seconds after which a poller that ended with an error is started again: doubled each time, up to
this.
"""

Changed = Callable[[Key, frozenset[str], frozenset[str]], None]
"""Gets a Controller's key, the Slurm nodes whose records changed, and those that were removed.

Both sets are empty when the change is whether the records can be trusted.
"""


class Connection(Carrier, Protocol):
    """What carries requests to one slurmrestd until it is closed."""

    async def close(self) -> None:
        """End its connections."""


Connect = Callable[[str, TokenSource], Connection]
"""Opens the connection to the slurmrestd at a URL."""


class Guarded:
    """A connection for one who must lead to write: with 0 seconds left or less, a write is
    Unreachable and isn't sent.

    It waits at most those seconds for its answer. Give it `Election.left`.
    """

    def __init__(self, connection: Connection, seconds_left: Callable[[], float]) -> None:
        self._connection = connection
        self._seconds_left = seconds_left

    async def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        """Call the connection."""
        if request.method != "GET":
            left = self._seconds_left()
            if left <= 0:
                raise Unreachable(str(request), "not sent, the lease is not held")
            timeout = min(left, WRITE_SECONDS if timeout is None else timeout)
        return await self._connection.call(request, timeout=timeout)

    async def close(self) -> None:
        """End it."""
        await self._connection.close()


def guarded(connect: Connect, seconds_left: Callable[[], float]) -> Connect:
    """Return a function that opens such connections."""
    return lambda url, tokens: Guarded(connect(url, tokens), seconds_left)


@dataclass(slots=True)
class Cluster:
    """One Slurm cluster under observation.

    `deadlines`: when the running jobs of a node end at the latest, by node; read at `deadlines_at`
    (seconds since the epoch), and only while something waits for jobs.
    """

    url: str
    client: Connection
    poller: Poller
    task: asyncio.Task[None]
    deadlines: Mapping[str, float] = field(default_factory=dict)
    deadlines_at: float = float("-inf")

    def view(self) -> SlurmView:
        """Return Slurm's nodes as the policy takes them."""
        poller = self.poller
        return SlurmView(
            poller.nodes,
            poller.trouble or None,
            poller.unsettled,
            deadlines=self.deadlines,
            last_listed=poller.last_listed,
            release=poller.release,
        )


class Clusters:
    """Keeps a poller running for each Controller that has a RestApi, and reports changes to the
    subscribers.

    `key_of` gives the current JWT key of a Controller, None while its Secret is missing. The last
    key that was seen stays in use: on removal of everything the Secret is often deleted first, and
    the workers still have to be drained.
    """

    def __init__(
        self,
        key_of: Callable[[Key], bytes | None],
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        connect: Connect = Client,
        rng: random.Random | None = None,
    ) -> None:
        self._connect = connect
        self._rng = rng
        self._key_of = key_of
        self._subscribers: list[Changed] = []
        self._clock = clock
        self._wall_clock = wall_clock
        self._clusters: dict[Key, Cluster] = {}
        self._last_key: dict[Key, bytes] = {}

    def subscribe(self, changed: Changed) -> None:
        """Call `changed` after each change. Subscribers must not raise."""
        self._subscribers.append(changed)

    def get(self, key: Key) -> Cluster | None:
        """Return the cluster of this Controller, or None while it has no RestApi or no key was ever
        seen.
        """
        return self._clusters.get(key)

    def poll_ages(self) -> dict[Key, float]:
        """Return the seconds since the last good answer of each cluster that has given one."""
        now = self._clock()
        answered = ((key, cluster.poller.last_good) for key, cluster in self._clusters.items())
        return {key: now - at for key, at in answered if at is not None}

    async def want(self, key: Key, url: str | None) -> None:
        """Have the cluster polled at `url`; None ends it. Does nothing when that is so already."""
        cluster = self._clusters.get(key)
        if cluster is not None and cluster.url != url:
            del self._clusters[key]
            await _end(cluster)
            log.info("Slurm cluster %s/%s: not polled at %s", *key, cluster.url)
        if url is None:
            self._last_key.pop(key, None)
            return
        if key in self._clusters or self._jwt_key(key) is None:
            return
        tokens = TokenSource(
            lambda: self._jwt_key(key) or b"", clock=self._wall_clock, rng=self._rng
        )
        client = self._connect(url, tokens)
        poller = Poller(client, self._clock, rng=self._rng)
        generation = poller.generation

        def notify(changed: frozenset[str], removed: frozenset[str]) -> None:
            nonlocal generation
            if changed or removed:
                self._changed(key, changed, removed)
            if poller.generation != generation:
                generation = poller.generation
                self._changed(key, frozenset(), frozenset())

        poller.subscribe(notify)
        task = asyncio.create_task(self._poll(key, poller), name=f"poller {key[0]}/{key[1]}")
        self._clusters[key] = Cluster(url, client, poller, task)
        log.info("Slurm cluster %s/%s: polled at %s", *key, url)
        self._changed(key, frozenset(), frozenset())

    async def _poll(self, key: Key, poller: Poller) -> None:
        """Poll until cancelled. An error that ends the poller is reported, and polling starts again
        after a pause.
        """
        pause = FIRST_PAUSE
        while True:
            started = self._clock()
            try:
                await poller.run()
            except Exception as error:
                log.exception("Slurm cluster %s/%s: polling ended, and starts again", *key)
                poller.fail(f"{type(error).__name__}: {error}")
            if self._clock() - started > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def close(self) -> None:
        """End all polling."""
        for cluster in self._clusters.values():
            await _end(cluster)
        self._clusters.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _changed(self, key: Key, changed: frozenset[str], removed: frozenset[str]) -> None:
        for subscriber in self._subscribers:
            subscriber(key, changed, removed)

    def _jwt_key(self, key: Key) -> bytes | None:
        current = self._key_of(key)
        if current is not None:
            self._last_key[key] = current
        return self._last_key.get(key)


async def _end(cluster: Cluster) -> None:
    cluster.task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await cluster.task
    await cluster.poller.close()
    await cluster.client.close()
