"""Back-off of pods that fail again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sidecars.policy.nodeset.records import WorkerPod

MAX_BACKOFF_SECONDS = 900.0
"""Longest wait before the pod of a name that keeps failing is created again."""


@dataclass(frozen=True, slots=True)
class Failures:
    """The failures in a row of pods of one name."""

    count: int
    uid: str
    """The last pod that failed."""
    until: float
    """When the next one may be created, in seconds since the epoch."""


def failures(
    before: Mapping[str, Failures],
    pods: Iterable[WorkerPod],
    now: float,
    *,
    unregistered: Collection[str] = (),
    absent: Collection[str] = (),
) -> tuple[dict[str, Failures], float | None]:
    """Return the failures by pod name after this pass, and after how many seconds the next pod may
    be created.

    The wait doubles from a second to `MAX_BACKOFF_SECONDS`, as the DaemonSet controller's does, and
    is forgotten once a pod of that name is available. `unregistered`: uids of pods that never
    registered in Slurm, which is a failure. `absent`: uids of pods that Slurm does not know at this
    moment.
    """
    found = {name: item for name, item in before.items() if item.until + MAX_BACKOFF_SECONDS > now}
    for pod in pods:
        known = found.get(pod.name)
        failed = pod.phase == "Failed" or pod.uid in unregistered
        if failed and (known is None or known.uid != pod.uid):
            count = 1 if known is None else known.count + 1
            found[pod.name] = Failures(
                count, pod.uid, now + min(MAX_BACKOFF_SECONDS, 2.0 ** (count - 1))
            )
        elif pod.available and not pod.terminating and pod.uid not in absent:
            found.pop(pod.name, None)
    waits = [item.until - now for item in found.values() if item.until > now]
    return found, min(waits, default=None)
