"""Namespaces in which the bridge may not change pods, because they have no RoleBinding.

The API server is asked before a job is submitted for their pods: without the rights, the job's id
could not be written on them. The bridge can write no condition and no Event there. So its log, and
Events of the ConfigMap of the tenants, have the command.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sidecars.bridge import metrics
from sidecars.contract import queued
from sidecars.kube import (
    CONFIG_MAPS,
    ApiError,
    Client,
    EventRecorder,
    Forbidden,
    KubeError,
    Malformed,
    Resource,
)
from sidecars.policy.reasons.bridge import BridgeEvent

log = logging.getLogger(__name__)

AGAIN_SECONDS = 300.0
"""Seconds after which a namespace is reported again."""
ASK_SECONDS = 60.0
"""Seconds after which the API server is asked again about a namespace with all rights."""
LACKING_SECONDS = 5.0
"""The same without them, and after a failure."""
_SECONDS = 15.0
"""How long an answer may take."""

_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    namespaced=False,
)
_BY_RBAC = re.compile(r"cannot \w+ resource ")
"""In the words of the API server: admission, such as a quota, refuses with the same status."""


class _Right(NamedTuple):
    verb: str
    resource: str
    subresource: str = ""
    group: str = ""


_CONDITIONS = _Right("patch", "pods", "status")
_PODS = (_Right("patch", "pods"), _Right("delete", "pods"), _CONDITIONS)
_CLAIMS = tuple(_Right("patch", "resourceclaims", it, "resource.k8s.io") for it in ("", "status"))


@dataclass(frozen=True, slots=True)
class _Answer:
    lacking: frozenset[_Right] | None
    """None: not known."""
    again_at: float


@dataclass(frozen=True, slots=True)
class Installation:
    """The names of the bridge's own objects."""

    namespace: str
    tenants: str
    """The ConfigMap of the tenants."""
    role: str
    """The ClusterRole that a RoleBinding in a tenant's namespace has to name."""
    account: str
    """The ServiceAccount of the bridge."""


class Rights:
    """`now` gives monotonic seconds. `wake` is called when something new is known. `claims`:
    whether claims of tenants are changed, too.
    """

    def __init__(
        self,
        kube: Client,
        events: EventRecorder,
        installation: Installation,
        now: Callable[[], float],
        wake: Callable[[], None],
        *,
        claims: bool = False,
    ) -> None:
        self._kube = kube
        self._events = events
        self._namespace = installation.namespace
        self._tenants = installation.tenants
        self._role = installation.role
        self._account = installation.account
        self._now = now
        self._wake = wake
        self._needed = (*_PODS, *(_CLAIMS if claims else ()))
        self._answers: dict[str, _Answer] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reported: dict[str, float] = {}

    def read(self, namespaces: Iterable[str]) -> None:
        """Begin to ask about those that are due, and forget all others."""
        now, wanted = self._now(), frozenset(namespaces)
        self._answers = {it: answer for it, answer in self._answers.items() if it in wanted}
        for namespace in wanted - self._tasks.keys():
            answer = self._answers.get(namespace)
            if answer is None or now >= answer.again_at:
                self._tasks[namespace] = asyncio.create_task(
                    self._ask(namespace), name=f"rights in {namespace}"
                )
        metrics.UNWRITABLE.set(
            sum(it.lacking is None or bool(it.lacking) for it in self._answers.values())
        )

    def unwritable(self, namespaces: Iterable[str]) -> dict[str, str]:
        """Return the namespaces among these in which it is unknown whether the bridge may change
        pods: see `View.unwritable`.
        """
        found: dict[str, str] = {}
        for namespace in namespaces:
            answer = self._answers.get(namespace)
            lacking = answer.lacking if answer is not None else None
            if lacking is None or lacking:
                found[namespace] = (
                    self._words(namespace) if lacking and _CONDITIONS not in lacking else ""
                )
        return found

    def explained(self, namespace: str, error: ApiError) -> str:
        """Explain why the API server refuses a change of a pod of this namespace, and report a
        missing RoleBinding.
        """
        if not isinstance(error, Forbidden) or not _BY_RBAC.search(error.message):
            return error.message
        # Whatever was answered before: no job is submitted until all rights are seen.
        self._answers[namespace] = _Answer(frozenset(self._needed), self._now() + LACKING_SECONDS)
        return self._report(namespace)

    async def close(self) -> None:
        """Give up what is not answered yet."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, namespace: str) -> None:
        lacking: frozenset[_Right] | None = None
        try:
            async with asyncio.timeout(_SECONDS):
                has = await asyncio.gather(*(self._has(namespace, it) for it in self._needed))
            lacking = frozenset(
                it for it, allowed in zip(self._needed, has, strict=True) if not allowed
            )
        except (KubeError, TimeoutError) as error:
            why = str(error) or f"no answer within {_SECONDS:.0f} s"
            log.warning(
                "no job for pods of namespace %s: it isn't known whether the bridge may change "
                "them: %s",
                namespace,
                why,
            )
        finally:
            del self._tasks[namespace]
        seconds = ASK_SECONDS if lacking is not None and not lacking else LACKING_SECONDS
        self._answers[namespace] = _Answer(lacking, self._now() + seconds)
        if lacking:
            self._report(namespace)
        self._wake()

    async def _has(self, namespace: str, right: _Right) -> bool:
        asked = {
            "namespace": namespace,
            **{name: value for name, value in right._asdict().items() if value},
        }
        kinds = {"apiVersion": _REVIEWS.api_version, "kind": _REVIEWS.kind}
        answer = await self._kube.create(
            _REVIEWS, {**kinds, "metadata": {}, "spec": {"resourceAttributes": asked}}
        )
        status = answer.get("status")
        allowed = status.get("allowed") if isinstance(status, dict) else None
        if not isinstance(allowed, bool):
            raise Malformed("the answer to an access review has no result")
        return allowed

    def _words(self, namespace: str) -> str:
        command = (
            f"kubectl create rolebinding {self._role} --namespace {namespace} "
            f"--clusterrole={self._role} --serviceaccount={self._namespace}:{self._account}"
        )
        return queued.NO_RIGHTS.write(namespace=namespace, command=command)

    def _report(self, namespace: str) -> str:
        text = self._words(namespace)
        at, now = self._reported.get(namespace), self._now()
        if at is None or now - at >= AGAIN_SECONDS:
            self._reported[namespace] = now
            log.warning("%s", text)
            metadata = {"namespace": self._namespace, "name": self._tenants}
            regarding = {
                "apiVersion": CONFIG_MAPS.api_version,
                "kind": CONFIG_MAPS.kind,
                "metadata": metadata,
            }
            self._events.emit(regarding, "Warning", BridgeEvent.NO_ROLE_BINDING, "Schedule", text)
        return text
