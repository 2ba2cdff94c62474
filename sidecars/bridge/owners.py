"""The objects that have the sizes of groups: read when a waiting pod names one, and not watched.

A cluster without these kinds costs nothing, and reading needs `get` alone. Nothing waits for an answer.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from sidecars.kube import Forbidden, KubeError, Manifest, NotFound, Resource
from sidecars.policy.bridge import groups
from sidecars.policy.bridge.groups import Facts, Source, SourceKind

log = logging.getLogger(__name__)

RESOURCES = {kind: Resource(*kind.value) for kind in SourceKind}
AGAIN_SECONDS = 60.0
"""Seconds after which an object is read again while pods wait for their group to be complete."""
FAILED_SECONDS = 5.0
"""The same after a failure."""
_SECONDS = 15.0
"""How long an answer may take."""
_AT_ONCE = 16


class Reader(Protocol):
    """Reads one object."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest:
        """Raises KubeError."""


class Owners:
    """`now` gives monotonic seconds; `wake` is called when something new is known."""

    def __init__(self, kube: Reader, now: Callable[[], float], wake: Callable[[], None]) -> None:
        self._kube = kube
        self._now = now
        self._wake = wake
        self._due: dict[Source, float] = {}
        self._tasks: dict[Source, asyncio.Task[None]] = {}
        self._facts: dict[Source, Facts] = {}

    @property
    def facts(self) -> Mapping[Source, Facts]:
        """What is known now."""
        return self._facts

    @property
    def waiting(self) -> bool:
        """Whether something has to be read again, after a failure, without a change of a pod."""
        return any(it.sizes is None for it in self._facts.values())

    def read(self, sources: Iterable[Source]) -> None:
        """Begin to read the objects of `sources` that are due."""
        now = self._now()
        for source in sources:
            if len(self._tasks) >= _AT_ONCE:
                return
            if source not in self._tasks and now >= self._due.get(source, now):
                task = asyncio.create_task(self._read(source), name=f"read {source.kind.resource} {source.name}")
                self._tasks[source] = task

    def forget(self, named: frozenset[Source]) -> None:
        """Forget what no pod names."""
        for source in self._facts.keys() - named:
            del self._facts[source]
            self._due.pop(source, None)

    async def close(self) -> None:
        """Give up what is not answered yet."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, source: Source) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                manifest = await self._kube.get(RESOURCES[source.kind], source.namespace, source.name)
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
        self._due[source] = self._now() + (AGAIN_SECONDS if found.sizes is not None else FAILED_SECONDS)
        if self._facts.get(source) != found:
            if found.problem:
                log.warning("pods of namespace %s: %s", source.namespace, found.problem)
            self._facts[source] = found
            self._wake()
