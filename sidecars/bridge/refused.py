"""Changes of pods that the API server refuses, such as one more annotation on a pod that has as many as it may have.

Without this, each of them would be sent in each pass.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sidecars.policy.bridge.decide import is_reported
from sidecars.policy.bridge.manifests import Pod
from sidecars.policy.bridge.records import Action, Label, Release, Report, Requeue, Why
from sidecars.policy.bridge.records import Pod as SeenPod

AGAIN_SECONDS = 300.0
"""Seconds after which a change is sent again although the pod is the same: the rule that forbids it may be another."""

Change = Label | Release | Report | Requeue
"""What changes a pod."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    change: Change
    version: str
    """Of the pod in the cache when the change was sent."""
    again_at: float
    text: str


class Refused:
    """`find` gives the pod in the cache; `now` gives monotonic seconds."""

    def __init__(self, find: Callable[[SeenPod], Pod | None], now: Callable[[], float]) -> None:
        self._find = find
        self._now = now
        self._refusals: dict[tuple[type[Action], str], _Refusal] = {}

    def version(self, change: Change) -> str:
        """That of the pod in the cache; "" if it is not there."""
        pod = self._find(change.pod)
        return pod.metadata.resource_version if pod is not None else ""

    def note(self, change: Change, version: str, text: str) -> None:
        """The API server has refused this change, which was for this version of the pod, with this explanation."""
        again_at = self._now() + AGAIN_SECONDS
        self._refusals[type(change), change.pod.uid] = _Refusal(change, version, again_at, text)

    def replaced(self, actions: Iterable[Action]) -> tuple[Action, ...]:
        """The actions, but for changes that would be refused again: the conditions of their pods show it instead.

        A change that was refused because the pod had changed is sent again when the cache has the new version.
        """
        now = self._now()
        self._refusals = {
            key: it for key, it in self._refusals.items() if now < it.again_at and it.version == self.version(it.change)
        }
        return tuple(it for it in map(self._replaced, actions) if it is not None)

    def _replaced(self, action: Action) -> Action | None:
        if not isinstance(action, Change):
            return action
        refusal = self._refusals.get((type(action), action.pod.uid))
        if refusal is None:
            return action
        report = Report(action.pod, Why.REFUSED, f"Kubernetes refuses to change this pod: {refusal.text}")
        return None if (Report, action.pod.uid) in self._refusals or is_reported(report) else report
