"""Asks the `reconfigure` sidecars of slurmctld pods, only while something about them is not known
or not done.

Pods with a start gate are asked all the time, every `gate.WATCH_SECONDS`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sidecars.contract import status
from sidecars.contract.signature import Request, authorization
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.real_world import STATUS_SECONDS, FetchStatus
from sidecars.policy import gate
from sidecars.policy.gate import Known, Pod, Published

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    """What the pods of a Controller are asked about, and since when it is so."""

    published: Published
    pods: tuple[Pod, ...]
    since: float


class Statuses:
    """`changed(key)` is called when something new is known; `key_of` gives a Controller's
    jwt.key.
    """

    def __init__(
        self,
        key_of: Callable[[Key], bytes | None],
        changed: Callable[[Key], None],
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        fetch: FetchStatus,
    ) -> None:
        self._key_of, self._changed = key_of, changed
        self._clock, self._wall_clock, self._fetch = clock, wall_clock, fetch
        self._targets: dict[Key, Target] = {}
        self._known: dict[Key, dict[str, Known]] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._wakes: dict[Key, asyncio.Event] = {}
        """Set when what the pods are asked about changes."""

    def known(self, key: Key) -> Mapping[str, Known]:
        """Return the known statuses by pod."""
        return self._known.get(key, {})

    def since(self, key: Key) -> float:
        """Return the seconds since what the pods are asked about changed."""
        target = self._targets.get(key)
        return self._clock() - target.since if target is not None else 0.0

    def want(self, key: Key, published: Published | None, pods: Sequence[Pod]) -> None:
        """Learn which configuration these pods run compared to the published one; None ends it."""
        if published is None:
            self._targets.pop(key, None)
            self._known.pop(key, None)
            return
        before = self._targets.get(key)
        lives = {(pod.name, pod.life) for pod in pods}
        same = (
            before is not None
            and before.published == published
            and {(p.name, p.life) for p in before.pods} == lives
        )
        since = before.since if before is not None and same else self._clock()
        self._targets[key] = Target(published, tuple(pods), since)
        names = {pod.name for pod in pods}
        self._known[key] = {
            name: known for name, known in self._known.get(key, {}).items() if name in names
        }
        if not same and key in self._wakes:
            self._wakes[key].set()
        if key not in self._tasks and self._due(key):
            self._wakes[key] = asyncio.Event()
            self._tasks[key] = asyncio.create_task(
                self._ask(key), name=f"status of {key[0]}/{key[1]}"
            )

    async def aclose(self) -> None:
        """End all asking."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _due(self, key: Key) -> list[Pod]:
        """Return the pods about which something is outstanding."""
        target = self._targets.get(key)
        if target is None:
            return []
        known = self._known.get(key, {})
        return [
            pod
            for pod in target.pods
            if gate.outstanding(target.published, pod, known.get(pod.name))
        ]

    def _watched(self, key: Key) -> list[Pod]:
        """Return the pods with a start gate."""
        target = self._targets.get(key)
        known = self._known.get(key, {})
        return (
            [pod for pod in target.pods if gate.watched(pod, known.get(pod.name))]
            if target is not None
            else []
        )

    async def _ask(self, key: Key) -> None:
        try:
            while asked := (due := self._due(key)) or self._watched(key):
                answers = await asyncio.gather(*(self._one(key, pod) for pod in asked))
                target = self._targets.get(key)
                if target is None:
                    return
                news = False
                for pod, answer in zip(asked, answers, strict=True):
                    before = self._known[key].get(pod.name)
                    former = (
                        (before.life, before.report, before.trouble) if before is not None else None
                    )
                    news |= former != (answer.life, answer.report, answer.trouble)
                    self._known[key][pod.name] = answer
                since = self._clock() - target.since
                # Whoever is behind may need another nudge.
                behind = any(
                    it.report is not None and it.report.candidate != target.published.sha256
                    for it in answers
                )
                if news or (behind and since >= gate.NUDGE_AGAIN):
                    self._changed(key)
                pause = (
                    gate.pause(since, all(it.report is None for it in answers))
                    if due
                    else gate.WATCH_SECONDS
                )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._wakes[key].wait()
                self._wakes[key].clear()
        finally:
            del self._tasks[key], self._wakes[key]

    async def _one(self, key: Key, pod: Pod) -> Known:
        secret = self._key_of(key)
        if secret is None:
            return Known(pod.life, None, "its JWT key is missing", self._clock())
        try:
            asked = Request("GET", status.STATUS_PATH, pod.name)
            signed = authorization(asked, secret, self._wall_clock())
            async with asyncio.timeout(STATUS_SECONDS):
                report = status.decode(await self._fetch(pod.address, signed))
        except (OSError, TimeoutError, ValueError) as error:
            return Known(pod.life, None, str(error) or type(error).__name__, self._clock())
        return Known(pod.life, report, "", self._clock())
