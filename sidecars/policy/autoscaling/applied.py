"""What was last applied to a NodeSet, as an annotation of it records it, and whether another client owns `replicas`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sidecars.policy.autoscaling.records import Past
from sidecars.policy.conditions import seconds
from sidecars.workloads import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

MANAGER = "slurm-operator-autoscaling"
"""The field manager of our writes of `replicas`."""
_PEOPLE = re.compile("kubectl|helm|k9s|mozilla", re.IGNORECASE)
"""How the names of managers begin that write when a person wants it."""


class Applied(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The annotation. Times are seconds since the epoch."""

    replicas: int
    """The number that was written."""
    remove: tuple[str, ...] = ()
    """The Slurm nodes that a lower number removes, in this order."""
    raised_at: float | None = None
    lowered_at: float | None = None
    node: str = ""
    """What a node offers, as it has registered: see `offers.text`."""
    reason: str = ""
    """Why, for people."""

    @property
    def past(self) -> Past:
        """What the planner remembers."""
        return Past(self.raised_at, self.lowered_at)


class Owner(NamedTuple):
    """A client that has set `replicas`."""

    manager: str
    """Its field manager; "" if unknown."""
    since: float | None
    """When it wrote last; None if unknown: the API server gives no time to writes of the subresource `scale`."""
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
        # The API server records none for writes to `scale` while nobody owns spec.replicas, as after a scale to zero.
        return "a client that the API server does not record (kubectl scale, a HorizontalPodAutoscaler or another)"


def read(annotations: Mapping[str, str]) -> Applied | None:
    """What the annotation records; None without one that can be read."""
    try:
        return msgspec.json.decode(annotations.get(names.AUTOSCALING, ""), type=Applied)
    except msgspec.DecodeError:
        return None


def text(applied: Applied) -> str:
    """The annotation."""
    return msgspec.json.encode(applied).decode()


def other_owner(metadata: Mapping[str, Any], replicas: int, applied: Applied | None) -> Owner | None:
    """Who else has set `replicas`; None if we did, or nobody has.

    Without a record of ours whatever the spec has is where autoscaling begins, unless a program scales the NodeSet.
    """
    if applied is not None and applied.replicas == replicas:
        return None
    others = [it for it in _owners(metadata) if it.manager != MANAGER]
    newest = max(others, key=lambda it: (it.scales, it.since or 0.0), default=None)
    if applied is None:
        return newest if newest is not None and newest.scales and not newest.person else None
    return newest or Owner("", None, scales=False)


def _owners(metadata: Mapping[str, Any]) -> Iterator[Owner]:
    """The managers of spec.replicas."""
    for entry in metadata.get("managedFields") or ():
        fields = entry.get("fieldsV1") or {}
        if "f:replicas" in (fields.get("f:spec") or {}):
            yield Owner(entry.get("manager") or "", seconds(entry.get("time")), entry.get("subresource") == "scale")
