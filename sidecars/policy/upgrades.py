"""Another version of Slurm, in the order that Slurm asks for: slurmdbd, slurmctld, slurmrestd and login nodes, workers.

Each daemon may be older than the one before it in this list, and never newer
(https://slurm.schedmd.com/upgrades.html). slurmctld and slurmdbd can't go back: an older one doesn't read what a newer
one has stored.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sidecars.policy.conditions import Condition

WAITING = "WaitingForUpgrade"
OLDER = "OlderThanState"
NEWER = "NewerThanLeader"

_VERSION = re.compile(r"(\d\d)\.(0[1-9]|1[0-2])(?![0-9])")

Version = tuple[int, int]
"""Slurm's major release, as (26, 5). A state is compatible within it."""


@dataclass(frozen=True, slots=True)
class Live:
    """A workload as it is: the image of its daemon, whether all of its pods run it and are ready, and the newest
    version that ever did, None where the images' tags don't tell.
    """

    image: str
    ready: bool
    ran: Version | None = None


@dataclass(frozen=True, slots=True)
class Before:
    """What goes before a daemon. `waits` says what must be up to date and healthy first, and is not; empty when
    everything is. `daemon` with `image` is the one that may not be older, as it is now; empty where that is unknown.
    `moves`: that one is about to change.
    """

    waits: str = ""
    daemon: str = ""
    image: str = ""
    moves: bool = False


NOTHING = Before()


@dataclass(frozen=True, slots=True)
class Hold:
    """Why the daemon keeps its image."""

    reason: str
    message: str

    @property
    def condition(self) -> Condition:
        """As `Ready` says it."""
        return Condition("Ready", "False", self.reason, self.message)


def version(image: str) -> Version | None:
    """The version that an image's tag begins with, as tags of Slurm images do; None for one that doesn't tell."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    found = _VERSION.match(tag.removeprefix("v"))
    return (int(found[1]), int(found[2])) if found else None


def ran(live: Live) -> Version | None:
    """The newest version that is known to have run, now that this is seen."""
    now = version(live.image) if live.ready else None
    return max((it for it in (now, live.ran) if it is not None), default=None)


def rolled_out(status: Mapping[str, Any], generation: int, wanted: int) -> bool:
    """Whether a StatefulSet or Deployment of `wanted` pods, with this status, has brought its newest template about:
    each pod is made of it and ready. So it is where no controller of Kubernetes ever looked: there are no pods.
    """
    if not status.get("observedGeneration"):
        return True
    updated = status.get("updatedReplicas", 0)
    return bool(
        status["observedGeneration"] >= generation
        and updated >= wanted
        and status.get("readyReplicas", 0) >= wanted
        # A Deployment's new pod comes beside an old one, which counts as ready, and goes only when the new one is.
        and status.get("replicas", 0) <= updated
    )


def hold(daemon: str, live: Live | None, wanted: str, before: Before) -> Hold | None:
    """Why `daemon` keeps its image, or is not made, rather than take `wanted`; None if it may have that.

    A daemon that is not there, or is broken as it is, has nothing to lose; but it is no cure to be newer than the one
    that goes before it. Versions that no tag tells hold nothing.
    """
    if live is not None and live.image == wanted:
        return None
    asked, leads = version(wanted), version(before.image)
    newer = asked is not None and leads is not None and asked > leads
    keeps = f"keeps image {live.image}" if live is not None else "is not made"
    if newer and before.moves:
        return Hold(WAITING, f"{daemon} {keeps}, and gets {wanted} as soon as {before.waits}")
    if newer and asked is not None and leads is not None:
        said = (
            f"{daemon} {_text(asked)} (image {wanted}) is newer than {before.daemon} {_text(leads)} (image "
            f"{before.image}), which doesn't understand it, so {daemon} {keeps}: give {before.daemon} an image of "
            f"{_text(asked)} or newer first, or ask for {daemon} of {_text(leads)} or older"
        )
        return Hold(NEWER, said)
    if live is None:
        return None
    newest = ran(live)
    if newest is not None and asked is not None and asked < newest and daemon in {"slurmctld", "slurmdbd"}:
        said = (
            f"{daemon} {_text(asked)} (image {wanted}) can't read what {daemon} {_text(newest)} has stored, so image "
            f"{live.image} is kept: ask for an image of {_text(newest)} or newer, or restore the state of before"
        )
        return Hold(OLDER, said)
    if before.waits and live.ready:
        return Hold(WAITING, f"{daemon} {keeps}, and gets {wanted} as soon as {before.waits}")
    return None


def parse(text: str) -> Version | None:
    """A version as `text` wrote it; None for anything else."""
    found = _VERSION.fullmatch(text)
    return (int(found[1]), int(found[2])) if found else None


def text(of: Version | None) -> str:
    """A version as Slurm writes it, as 26.05; empty for None."""
    return _text(of) if of is not None else ""


def _text(of: Version) -> str:
    return f"{of[0]:02}.{of[1]:02}"
