"""Whether slurmctld can use the PersistentVolumeClaim that `spec.persistence.existingClaim`
names.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sidecars.policy.reasons import Ready
from sidecars.workloads.resources import Controller

_PLACE = "spec.persistence.existingClaim: PersistentVolumeClaim"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with the claim."""

    reason: Ready
    message: str
    blocks: bool
    """Nothing of slurmctld may be applied. Else Kubernetes schedules its pod as soon as the claim
    exists.
    """


def needed(controller: Controller) -> str:
    """Return the name of the claim, "" where none is named, or slurmctld runs elsewhere."""
    persistence = controller.spec.persistence
    return (
        persistence.existing_claim or ""
        if persistence.enabled and not controller.spec.external
        else ""
    )


def problem(controller: Controller, access_modes: Sequence[str] | None) -> Problem | None:
    """`access_modes`: those of the claim that is needed; None while it doesn't exist. None: no
    problem.
    """
    name, ha = needed(controller), controller.spec.ha.enabled
    if not name:
        return None
    if access_modes is None:
        message = f"{_PLACE} {name!r} doesn't exist; create it, and the operator continues"
        # Whether several slurmctld can share it is not known yet.
        return Problem(Ready.REFERENCE_MISSING, message, blocks=ha)
    if ha and "ReadWriteMany" not in access_modes:
        message = (
            f"{_PLACE} {name!r} has access modes {', '.join(access_modes)}; with spec.ha several "
            "slurmctld on several Kubernetes nodes share it: name one with ReadWriteMany"
        )
        return Problem(Ready.INVALID, message, blocks=True)
    return None
