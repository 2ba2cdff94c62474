"""Topology and features of a Slurm node, from the annotations of its Kubernetes node. Pure.

`topology.slinky.slurm.net/spec` contains a value of slurmd's Topology item such as
`topo-switch:s2,topo-block:b2`, `features.slinky.slurm.net/spec` names separated by commas, each of
which becomes the feature `k8s/NAME`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sidecars.slurm import nodeconf

FEATURE_PREFIX = "k8s/"

_FEATURE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/=-]*")


@dataclass(frozen=True, slots=True)
class Topology:
    """What to do about a pod's topology: `send` to Slurm (None: nothing), then `stamp` the pod
    (None: nothing).
    """

    send: str | None = None
    stamp: str | None = None


def topology(asked: str, stamped: str | None, registered: str | None) -> Topology:
    """Compare the topology that is wanted with what the pod and its Slurm node have.

    `stamped` is the pod's annotation, None while it has none: `register` waits for it, and reads it
    once. So it contains what Slurm has, and is changed only after Slurm was updated. `registered`
    is the topology of this pod's own node record, None without one. Slurm may spell it otherwise,
    so only its absence means anything.
    """
    if stamped is None:
        return Topology(asked if registered == "" and asked else None, asked)
    if registered is None:
        return Topology()
    if asked != stamped:
        return Topology(asked, asked)
    # Stamped too late for register.
    return Topology(asked if asked and not registered else None)


def sets_topology(extra_conf: str) -> bool:
    """Return whether the NodeSet itself sets the topology of its nodes. The Kubernetes nodes'
    annotations don't count then.
    """
    return nodeconf.parse(extra_conf).get("Topology") is not None


def features(annotation: str, present: Iterable[str]) -> tuple[str, ...] | None:
    """Return the features to set, sorted, when the `k8s/` ones among those present aren't those
    wanted, or None otherwise.

    Names that Slurm couldn't read in a job's constraint are left out: see `bad_features`.
    """
    has = set(present)
    names = {FEATURE_PREFIX + name for name in _names(annotation) if _FEATURE.fullmatch(name)}
    asked = {name for name in has if not name.startswith(FEATURE_PREFIX)} | names
    return None if asked == has else tuple(sorted(asked))


def bad_features(annotation: str) -> tuple[str, ...]:
    """Return the names that can't be features."""
    return tuple(name for name in _names(annotation) if not _FEATURE.fullmatch(name))


def _names(annotation: str) -> list[str]:
    return [name for name in (part.strip() for part in annotation.split(",")) if name]
