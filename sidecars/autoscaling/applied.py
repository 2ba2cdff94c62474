"""Whether another client owns the `replicas` of a NodeSet, other than what was applied last."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from sidecars.autoscaling.records import Past
from sidecars.policy.conditions import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from sidecars.contract.autoscaling import Applied

MANAGER = "slurm-operator-autoscaling"
"""The field manager of our writes of `replicas`."""
_PEOPLE = re.compile("kubectl|helm|k9s|mozilla", re.IGNORECASE)
"""How the names of managers begin that write when a person wants it."""


class Owner(NamedTuple):
    """A client that has set `replicas`."""

    manager: str
    """Its field manager; "" if unknown."""
    since: float | None
    """When it wrote last; None if unknown: the API server gives no time to writes of the
    subresource `scale`.
    """
    scales: bool
    """It wrote the subresource `scale`."""

    @property
    def person(self) -> bool:
        """Whether it writes once, because a person wants it, and not again and again."""
        return _PEOPLE.match(self.manager) is not None

    def __str__(self) -> str:
        if self.manager == "kube-controller-manager" and self.scales:
            return "a HorizontalPodAutoscaler (kube-controller-manager; that of KEDA too)"
        if self.manager:
            return f"field manager {self.manager!r}"
        # The API server records none for writes to `scale` while nobody owns spec.replicas, as
        # after a scale to zero.
        return (
            "a client that the API server does not record (kubectl scale, a "
            "HorizontalPodAutoscaler or another)"
        )


def past(applied: Applied) -> Past:
    """Return what the planner remembers of it."""
    return Past(applied.raised_at, applied.lowered_at)


def other_owner(
    metadata: Mapping[str, Any], replicas: int, applied: Applied | None
) -> Owner | None:
    """Return who else has set `replicas`, None if we did, or nobody has.

    Without a record of ours whatever the spec has is where autoscaling begins, unless a program
    scales the NodeSet.
    """
    if applied is not None and applied.replicas == replicas:
        return None
    others = [it for it in _owners(metadata) if it.manager != MANAGER]
    newest = max(others, key=lambda it: (it.scales, it.since or 0.0), default=None)
    if applied is None:
        return newest if newest is not None and newest.scales and not newest.person else None
    return newest or Owner("", None, scales=False)


def _owners(metadata: Mapping[str, Any]) -> Iterator[Owner]:
    """Yield the managers of spec.replicas."""
    for entry in metadata.get("managedFields") or ():
        fields = entry.get("fieldsV1") or {}
        if "f:replicas" in (fields.get("f:spec") or {}):
            yield Owner(
                entry.get("manager") or "",
                seconds(entry.get("time")),
                entry.get("subresource") == "scale",
            )
