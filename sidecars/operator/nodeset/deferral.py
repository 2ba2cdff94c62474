"""When a NodeSet's pods show that they are idle: not while others are being created, which small
writes would delay.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import add_all
from sidecars.policy.nodeset.records import DesiredPods, WorkerPod

DEFER_SECONDS = 5.0
"""For how long after the last pod was created the ready ones wait for the others."""


@dataclass(slots=True)
class Deferral:
    """One NodeSet's. Times are seconds since the epoch."""

    creating: bool = False
    """Some pods have just been created and others are still to be created."""
    _until: float = 0.0
    """Until when at the latest pods that were created are waited for; 0 while none is."""
    _pods: set[Key] = field(default_factory=set)

    def defer(self, pod: Key) -> bool:
        """Return whether the pod shows its state later. `end` returns it then."""
        if not (self.creating or self._until):
            return False
        self._pods.add(pod)
        return True

    def created(self, now: float) -> None:
        """Record that all pods have been created."""
        self.creating, self._until = False, now + DEFER_SECONDS

    def goes_on(self, now: float) -> bool:
        """Return whether the pods that are not ready are still waited for."""
        return self.creating or 0 < self._until - now <= DEFER_SECONDS

    def seconds_left(self, now: float) -> float | None:
        """Return after how many seconds to ask `goes_on` again, None while pods are created, of
        which each change wakes.
        """
        return None if self.creating else self._until - now

    def end(self) -> set[Key]:
        """Return the pods that have deferred their state, which now show it."""
        pods, self._pods = self._pods, set()
        self.creating, self._until = False, 0.0
        return pods


def wake_if_due(
    runtime: Runtime,
    deferral: Deferral,
    pods: Iterable[WorkerPod],
    desired: DesiredPods,
    failure: Exception | None,
) -> float | None:
    """Wake the pods that defer showing their state, once as many are ready as are desired, their
    time is over, or creation has failed.

    Return after how many seconds to ask again; None if none defers.
    """
    ready, now = sum(1 for pod in pods if pod.ready), runtime.now()
    if failure is None and ready < desired.replicas and deferral.goes_on(now):
        return deferral.seconds_left(now)
    wake_all(runtime, deferral)
    return None


def wake_all(runtime: Runtime, deferral: Deferral) -> None:
    """Wake all pods that defer showing their state."""
    add_all(runtime.queues.pods, deferral.end())
