"""Another version of Slurm, in the order that Slurm asks for: slurmdbd, slurmctld, slurmrestd and
login nodes, workers.

Each daemon may be older than the one before it in this list, and never newer
(https://slurm.schedmd.com/upgrades.html). slurmctld and slurmdbd can't go back: an older one
doesn't read what a newer one has stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import Ready
from sidecars.slurm import versions
from sidecars.slurm.versions import Version


@dataclass(frozen=True, slots=True)
class Live:
    """A workload as it is: the image of its daemon, whether all of its pods run it and are ready,
    and the newest version that ever did, None where the images' tags don't tell.
    """

    image: str
    ready: bool
    ran: Version | None = None


@dataclass(frozen=True, slots=True)
class Before:
    """What must be upgraded before a daemon."""

    waits: str = ""
    """What must be up to date and healthy first, and is not; "" when everything is."""
    daemon: str = ""
    """The daemon that must not be older; "" if unknown."""
    image: str = ""
    """The image that it has."""
    moves: bool = False
    """Whether its image is about to change."""


NOTHING = Before()


@dataclass(frozen=True, slots=True)
class Block:
    """Why the daemon keeps its image."""

    reason: Ready
    message: str

    @property
    def condition(self) -> Condition:
        """As the condition `Ready`."""
        return Condition("Ready", "False", self.reason, self.message)


def ran(live: Live) -> Version | None:
    """Return the newest version that is known to have run, now that this is seen."""
    now = versions.of_image(live.image) if live.ready else None
    return max((it for it in (now, live.ran) if it is not None), default=None)


def rolled_out(status: Mapping[str, Any], generation: int, wanted: int) -> bool:
    """Return whether a StatefulSet or Deployment of `wanted` pods, with this status, has completed
    its rollout: each pod is created from it and ready. Also true while no controller has observed
    it: it has no pods yet.
    """
    if not status.get("observedGeneration"):
        return True
    updated = status.get("updatedReplicas", 0)
    return bool(
        status["observedGeneration"] >= generation
        and updated >= wanted
        and status.get("readyReplicas", 0) >= wanted
        # A Deployment creates a new pod beside an old one, which counts as ready and is deleted
        # when the new one is.
        and status.get("replicas", 0) <= updated
    )


def block(daemon: str, live: Live | None, wanted: str, before: Before) -> Block | None:
    """Return why `daemon` keeps its image, or is not created, instead of getting `wanted`, None if
    it may get that.

    A daemon that doesn't exist, or isn't ready, has nothing to lose, but it must not be newer than
    the daemon before it. Versions that no tag shows block nothing.
    """
    if live is not None and live.image == wanted:
        return None
    asked, leads = versions.of_image(wanted), versions.of_image(before.image)
    newer = asked is not None and leads is not None and asked > leads
    keeps = f"keeps image {live.image}" if live is not None else "is not created"
    if newer and before.moves:
        return Block(
            Ready.WAITING_FOR_UPGRADE,
            f"{daemon} {keeps}, and gets {wanted} as soon as {before.waits}",
        )
    if newer and asked is not None and leads is not None:
        message = (
            f"{daemon} {versions.text(asked)} (image {wanted}) is newer than {before.daemon} "
            f"{versions.text(leads)} (image {before.image}), which doesn't understand it, so "
            f"{daemon} {keeps}: give {before.daemon} an image of {versions.text(asked)} or newer "
            f"first, or set one of {versions.text(leads)} or older for {daemon}"
        )
        return Block(Ready.NEWER_THAN_LEADER, message)
    if live is None:
        return None
    newest = ran(live)
    if (
        newest is not None
        and asked is not None
        and asked < newest
        and daemon in {"slurmctld", "slurmdbd"}
    ):
        message = (
            f"{daemon} {versions.text(asked)} (image {wanted}) can't read what {daemon} "
            f"{versions.text(newest)} has stored, so image {live.image} is kept: set an image of "
            f"{versions.text(newest)} or newer, or restore a backup of its state"
        )
        return Block(Ready.OLDER_THAN_STATE, message)
    if before.waits and live.ready:
        return Block(
            Ready.WAITING_FOR_UPGRADE,
            f"{daemon} {keeps}, and gets {wanted} as soon as {before.waits}",
        )
    return None


RANKS: Mapping[str, int] = {"slurmdbd": 0, "slurmctld": 1, "slurmrestd": 2, "login": 2, "slurmd": 3}
"""The daemons in Slurm's order. Those of one rank are upgraded at the same time."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon of a Slurm cluster, with the images that it has and gets."""

    resource: str
    """Its custom resource, such as `Controller 'slurm'`."""
    name: str
    """A key of `RANKS`."""
    image: str | None
    """None: it doesn't exist yet."""
    wanted: str

    def is_done(self, images: Mapping["Daemon", str | None]) -> bool:
        """Return whether it has its image already."""
        return not self.wanted or images[self] == self.wanted


def plan(daemons: Sequence[Daemon]) -> tuple[list[list[Daemon]], list[Block]]:
    """Return the steps in which all daemons of one Slurm cluster get their images, and why some
    keep theirs.

    Each step begins when the daemons of the one before are up to date and ready. External daemons
    are left out.
    """
    images = {it: it.image for it in daemons}
    steps: list[list[Daemon]] = []
    while True:
        blocks = {
            it: block(it.name, _ready(images[it]), it.wanted, _before(it, daemons, images))
            for it in daemons
            if not it.is_done(images)
        }
        free = [it for it, blocked in blocks.items() if blocked is None]
        if not free:
            return steps, [it for it in blocks.values() if it is not None]
        steps.append(free)
        images |= {it: it.wanted for it in free}


def _ready(image: str | None) -> Live | None:
    return Live(image, ready=True) if image is not None else None


def _before(of: Daemon, daemons: Sequence[Daemon], images: Mapping[Daemon, str | None]) -> Before:
    if of.name == "slurmdbd":
        return NOTHING
    leads = "slurmdbd" if of.name == "slurmctld" else "slurmctld"
    leader = next((it for it in daemons if it.name == leads), None)
    earlier = [
        it
        for it in daemons
        if RANKS[it.name] < RANKS[of.name]
        and not it.is_done(images)
        and (leader is not None or it.name != "slurmdbd")
    ]
    waits = next(
        (f"{it.resource} is up to date and ready with image {it.wanted}" for it in earlier), ""
    )
    moves = any(RANKS[it.name] <= RANKS["slurmctld"] for it in earlier)
    return Before(waits, leads if leader else "", (images[leader] or "") if leader else "", moves)
