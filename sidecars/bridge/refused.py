"""Changes of pods that the API server refuses, such as one more annotation on a pod that has as
many as it may have.

Without this, each of them would be sent in each pass.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeGuard

from sidecars.bridge.core.decide import is_reported
from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.records import Action, Label, Release, Report, Requeue, Why
from sidecars.bridge.core.records import Pod as SeenPod
from sidecars.kube import ApiError, Forbidden, Invalid

FIRST_SECONDS = 5.0
AGAIN_SECONDS = 300.0
"""Seconds after which a change is sent again although the pod is the same: the rule that forbids it
may be another.

At first, and at most: each time it is refused, twice as long.
"""

Change = Label | Release | Report | Requeue
"""What changes a pod."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    change: Change
    version: str
    """Of the pod in the cache when the change was sent."""
    again_at: float
    text: str


def is_refusal(error: Exception) -> TypeGuard[ApiError]:
    """Return whether the API server, or a webhook that it asks, doesn't take the change: it
    answers, and others may pass.

    A webhook that doesn't answer is an error of the API server (500).
    """
    if isinstance(error, Invalid | Forbidden):
        return True
    if not isinstance(error, ApiError):
        return False
    return error.status == 400 or (error.status >= 500 and "webhook" in error.message)


class Refused:
    """`find` gives the pod in the cache; `now` gives monotonic seconds."""

    def __init__(self, find: Callable[[SeenPod], Pod | None], now: Callable[[], float]) -> None:
        self._find = find
        self._now = now
        self._refusals: dict[tuple[type[Action], str], _Refusal] = {}
        self._releases: dict[str, _Refusal] = {}
        """Until the pod is gone: one that changes all the time must not keep its job's nodes."""
        self._requeues: dict[str, Requeue] = {}
        """The same of pods that keep the id of their job."""
        self._tries: dict[tuple[type[Action], str], tuple[int, SeenPod]] = {}
        """How often a change has been refused, of a pod that exists."""

    def version(self, change: Change) -> str:
        """Return the version of the pod in the cache, "" without it."""
        pod = self._find(change.pod)
        return pod.metadata.resource_version if pod is not None else ""

    def note(self, change: Change, version: str, text: str) -> None:
        """Record that the API server has refused this change, which was for this version of the
        pod, with this explanation.
        """
        key = type(change), change.pod.uid
        tries = self._tries.get(key, (0, change.pod))[0]
        self._tries[key] = tries + 1, change.pod
        again_at = self._now() + min(AGAIN_SECONDS, FIRST_SECONDS * 2.0 ** min(tries, 10))
        refusal = self._refusals[key] = _Refusal(change, version, again_at, text)
        if isinstance(change, Release):
            self._releases[change.pod.uid] = refusal
        elif isinstance(change, Requeue):
            self._requeues[change.pod.uid] = change

    def releases(self) -> dict[str, str]:
        """Return why the releases of pods have been refused, by the uid of the pod, which
        exists.
        """
        self._releases = {
            uid: it for uid, it in self._releases.items() if self._find(it.change.pod) is not None
        }
        return {uid: it.text for uid, it in self._releases.items()}

    def requeues(self) -> dict[str, int]:
        """Return the jobs whose id could not be taken off a pod that exists, by the pod's uid."""
        self._requeues = {
            uid: it for uid, it in self._requeues.items() if self._find(it.pod) is not None
        }
        return {uid: it.job for uid, it in self._requeues.items()}

    def replaced(self, actions: Iterable[Action]) -> tuple[Action, ...]:
        """Return the actions, but for changes that would be refused again: the conditions of their
        pods show it instead.

        A change that was refused because the pod had changed is sent again when the cache has the
        new version.
        """
        now = self._now()
        self._tries = {key: it for key, it in self._tries.items() if self._find(it[1]) is not None}
        self._refusals = {
            key: it
            for key, it in self._refusals.items()
            if now < it.again_at and it.version == self.version(it.change)
        }
        return tuple(it for it in map(self._replaced, actions) if it is not None)

    def _replaced(self, action: Action) -> Action | None:
        if not isinstance(action, Change):
            return action
        refusal = self._refusals.get((type(action), action.pod.uid))
        if refusal is None:
            return action
        report = Report(
            action.pod, Why.REFUSED, f"Kubernetes refuses to change this pod: {refusal.text}"
        )
        return None if (Report, action.pod.uid) in self._refusals or is_reported(report) else report
