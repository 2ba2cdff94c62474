"""Whether slurmds that ran end on a configuration. Pure. Times are seconds of a monotonic clock.

A slurmd that takes a configuration executes itself again and registers with slurmctld, while its
port stays open. One that ends of it is started again in its pod, and ends again, before it opens
its port. Unknown is no evidence: not a slurmd that doesn't answer, nor one whose node isn't in
service, because its pod may be about to be deleted.
"""

from collections.abc import Mapping

from sidecars.contract.status import Stage
from sidecars.reconfigure.actions import Looked
from sidecars.reconfigure.fileset import Id
from sidecars.reconfigure.slurmds import Slurmd
from sidecars.reconfigure.states import Rejected, Seen
from sidecars.slurm.diagnosis import Culprit

WATCH = 30.0
"""Seconds for which slurmds are watched after slurmctld took a configuration, unless all have
registered before.
"""
LOOK = 1.0
"""Seconds between two looks."""
ENDED = 5.0
"""Seconds for which nothing listens at a slurmd's port until it counts as ended: it was started
again meanwhile.
"""
SLURMD = "slurmd"
_NAMED = 5
"""Nodes that a message names."""


def looked(
    slurmds: tuple[Slurmd, ...], silent: Mapping[str, float], seen: Looked, now: float
) -> tuple[tuple[Slurmd, ...], dict[str, float]]:
    """Return the slurmds that must be watched on, and since when nothing listens at the ports of
    which.
    """
    records = {it.name: it for it in seen.in_service}
    left: list[Slurmd] = []
    quiet: dict[str, float] = {}
    for slurmd in slurmds:
        record = records.get(slurmd.name)
        answers = seen.listening.get(slurmd.name)
        if record is not None and record.address != slurmd.address:
            continue  # Another pod has registered by this name.
        if record is not None and answers and record.started != slurmd.started:
            continue  # It has taken the configuration.
        left.append(slurmd)
        if record is not None and answers is False:
            quiet[slurmd.name] = silent.get(slurmd.name, now)
    return tuple(left), quiet


def ended(silent: Mapping[str, float], now: float) -> tuple[str, ...]:
    """Return the nodes whose slurmd has ended of the configuration, () while none is known to."""
    return tuple(silent) if any(now - since >= ENDED for since in silent.values()) else ()


def culprit(nodes: tuple[str, ...], of: int) -> Culprit:
    """Return what to report of slurmds that ended. `of` is the number of those that were
    watched.
    """
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    some = "1 worker" if len(nodes) == 1 else f"{len(nodes)} workers"
    return Culprit(
        f"slurmd ended on {some} of {of} when it read the configuration: "
        f"{', '.join(nodes[:_NAMED])}{more}"
    )


def is_refused(which: Id | None, seen: Seen) -> bool:
    """Return whether slurmds ended of this one, and another can replace it."""
    refused, good = seen.refused, seen.good
    if refused is None or which is None or good is None:
        return False
    return which.config == refused.config != good.config


def rejection(seen: Seen) -> Rejected | None:
    """Return why the candidate `is_refused`."""
    candidate, refused = seen.candidate, seen.refused
    if candidate is None or refused is None:
        return None
    return Rejected(
        candidate, Stage.SLURMD, refused.culprit, refused.since, daemon=SLURMD, nodes=refused.nodes
    )
