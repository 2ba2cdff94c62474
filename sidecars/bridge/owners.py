"""The objects that have the sizes of groups, and the controllers of pods: read when a waiting pod
names one, and not watched.

A cluster without these kinds costs nothing, and reading needs `get` alone. Nothing waits for an
answer.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from sidecars.bridge.core import groups
from sidecars.bridge.core.groups import Facts, Source, SourceKind
from sidecars.kube import Forbidden, KubeError, Manifest, NotFound, Resource

log = logging.getLogger(__name__)

RESOURCES = {kind: Resource(*kind.value) for kind in SourceKind}
NEWER = {
    SourceKind.POD_GROUP: Resource("scheduling.k8s.io", "v1beta1", "PodGroup", "podgroups"),
}
"""The kinds that later releases of Kubernetes have under another version, instead of that
of RESOURCES. Their sizes are in the same fields.
"""
AGAIN_SECONDS = 60.0
"""Seconds after which an object is read again while pods wait for their group to be complete."""
FAILED_SECONDS = 5.0
"""The same after a failure, but later each time: as long as it has failed."""
_SECONDS = 15.0
"""How long an answer may take."""
_AT_ONCE = 16
_NEVER = float("-inf")


class Reader(Protocol):
    """Reads one object."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest:
        """Read an object. Raises KubeError."""


class Owners:
    """`now` gives monotonic seconds; `wake` is called when something new is known."""

    def __init__(self, kube: Reader, now: Callable[[], float], wake: Callable[[], None]) -> None:
        self._kube = kube
        self._now = now
        self._wake = wake
        self._due: dict[Source, float] = {}
        self._tasks: dict[Source, asyncio.Task[None]] = {}
        self._facts: dict[Source, Facts] = {}
        self._failing: dict[Source, float] = {}
        """Since when an object can't be read."""
        self._lacking: list[Source] = []
        """What the last `read` was for and had no sizes."""

    @property
    def facts(self) -> Mapping[Source, Facts]:
        """What is known now."""
        return self._facts

    @property
    def waiting(self) -> bool:
        """Whether something has to be read soon without a change of a pod: what failed, or was too
        much at once.
        """
        lacking = (it for it in self._lacking if self._facts.get(it, groups.UNREAD).sizes is None)
        return any(it in self._facts or it not in self._tasks for it in lacking)

    def read(self, again: Iterable[Source], once: Iterable[Source] = ()) -> None:
        """Begin to read the objects that are due. Namespaces take turns, and in each the longest
        due comes first.

        Those of `again` are read each AGAIN_SECONDS, those of `once` until their sizes are known.
        """
        now, again = self._now(), dict.fromkeys(again)
        self._lacking = [
            it
            for it in dict.fromkeys((*again, *once))
            if self._facts.get(it, groups.UNREAD).sizes is None
        ]
        due = [
            it
            for it in {**dict.fromkeys(self._lacking), **again}
            if it not in self._tasks and now >= self._due_at(it)
        ]
        turns: Counter[str] = Counter()
        turn: dict[Source, int] = {}
        for source in sorted(due, key=self._due_at):
            turn[source] = turns[source.namespace]
            turns[source.namespace] += 1
        for source in sorted(turn, key=lambda it: turn[it])[: _AT_ONCE - len(self._tasks)]:
            task = asyncio.create_task(
                self._read(source), name=f"read {source.kind.resource} {source.name}"
            )
            self._tasks[source] = task

    def _due_at(self, source: Source) -> float:
        return self._due.get(source, _NEVER)

    def forget(self, named: frozenset[Source]) -> None:
        """Forget what no pod names."""
        for source in self._facts.keys() - named:
            del self._facts[source]
            self._due.pop(source, None)
            self._failing.pop(source, None)

    async def close(self) -> None:
        """Give up what is not answered yet."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _get(self, source: Source) -> Manifest:
        newer = NEWER.get(source.kind)
        if newer is not None:
            try:
                return await self._kube.get(newer, source.namespace, source.name)
            except NotFound:
                # The API server answers the same for a version that it doesn't have.
                pass
        return await self._kube.get(RESOURCES[source.kind], source.namespace, source.name)

    async def _read(self, source: Source) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                manifest = await self._get(source)
            found = groups.read(source, manifest)
        except NotFound:
            found = groups.missing(source)
        except Forbidden:
            found = groups.forbidden(source)
        except (KubeError, TimeoutError) as error:
            found = groups.failed(source, str(error) or f"no answer within {_SECONDS:.0f} s")
        except ValueError as error:
            # A label that can't be the name of an object.
            found = Facts(problem=str(error), refused=True)
        finally:
            del self._tasks[source]
        now = self._now()
        if found.sizes is not None:
            self._failing.pop(source, None)
            self._due[source] = now + AGAIN_SECONDS
        else:
            failing = now - self._failing.setdefault(source, now)
            self._due[source] = now + min(max(failing, FAILED_SECONDS), AGAIN_SECONDS)
        if self._facts.get(source) != found:
            if found.problem:
                log.warning("pods of namespace %s: %s", source.namespace, found.problem)
            self._facts[source] = found
            self._wake()
