"""What a decision wants done: typed records, in the order in which they are to be applied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecars.policy.nodeset.records import Claim, Deletion, WorkerPod
    from sidecars.policy.reasons import ReservationCreated
    from sidecars.workloads.resources import Json


@dataclass(frozen=True, slots=True)
class Drain:
    """Drain Slurm nodes that nobody else has drained."""

    reason: str | None
    """None doesn't change the reason."""
    slurm_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Undrain:
    """Lift drains of this product."""

    slurm_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """Return Slurm nodes to service that this product has set DOWN, or slurmctld because of a
    reboot.
    """

    slurm_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateRecords:
    """Create node records for Slurm's power saving."""

    conf: str
    """The rest of their line in slurm.conf."""
    slurm_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplaceRecords:
    """Delete records of powered-down nodes and create them again. If Slurm refuses the first, the
    others stay.
    """

    conf: str
    """The rest of their line in slurm.conf."""
    former: Mapping[str, str]
    """The line that each record shows now, by the name of the node."""


@dataclass(frozen=True, slots=True)
class PowerUp:
    """Have Slurm start nodes."""

    slurm_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Close:
    """Save the reservation that keeps jobs off these Slurm nodes. A drain could take a node from a
    job that got it meanwhile.
    """

    reservation: str
    slurm_nodes: tuple[str, ...]
    """All that are to be closed."""
    until: int | None = None
    """Seconds since the epoch, when Slurm uses them again; None doesn't change that."""


@dataclass(frozen=True, slots=True)
class Reopen:
    """Delete that reservation."""

    reservation: str


@dataclass(frozen=True, slots=True)
class PowerDown:
    """Have Slurm stop nodes that it is starting and whose pods can't start. Their jobs may start
    elsewhere at once.
    """

    slurm_nodes: tuple[str, ...]
    jobs: tuple[int, ...]
    """The ids of the jobs that wait for them."""
    because: str
    close: Close | None = None
    """To be done first. Otherwise Slurm would use other nodes of the NodeSet for the jobs."""


@dataclass(frozen=True, slots=True)
class PowerDownWhenIdle:
    """Have Slurm stop nodes without work: idle ones, and those whose records are to be replaced. No
    job ends.
    """

    slurm_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetOwners:
    """Give the claim these ownerReferences."""

    claim: Claim
    owners: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod by uid."""

    deletion: Deletion
    claims: tuple[SetOwners, ...] = ()
    """To be done first, so that these claims are deleted with the pod."""


@dataclass(frozen=True, slots=True)
class CreatePods:
    """Create pods from the template of new pods."""

    ordinals: tuple[int, ...] = ()
    kube_nodes: tuple[str, ...] = ()
    """In DaemonSet mode the Kubernetes nodes that they are for."""


@dataclass(frozen=True, slots=True)
class Cordon:
    """Annotate a pod as cordoned by the operator."""

    pod: WorkerPod


@dataclass(frozen=True, slots=True)
class Uncordon:
    """Remove that annotation."""

    pod: WorkerPod


@dataclass(frozen=True, slots=True)
class Step:
    """The next step towards a maintenance reservation."""

    do: Literal["nothing", "save", "delete"]
    """`save` creates the reservation, or changes the fields below that aren't None."""
    exists: bool
    """Status of the condition ReservationCreated."""
    reason: ReservationCreated
    """Its reason."""
    message: str
    """Its message."""
    start: int | None = None
    minutes: int | None = None
    nodes: tuple[str, ...] | None = None
    flags: tuple[str, ...] = ()
    users: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class AdvanceReservation:
    """Add the NodeSet's reservation finalizer, then create, change or delete the reservation, as
    the step requires.
    """

    name: str
    step: Step


@dataclass(frozen=True, slots=True)
class RemoveReservation:
    """Delete the reservation, then remove the NodeSet's reservation finalizer."""

    name: str
    reachable: bool = True
    """Otherwise only the finalizer is removed: Slurm can't be asked and its cluster is being
    removed.
    """


@dataclass(frozen=True, slots=True)
class SetDown:
    """Set Slurm nodes without a pod DOWN."""

    reason: str | None
    """None doesn't change the reason. They are drained as well: Slurm may return a DOWN node to
    service.
    """
    slurm_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """Delete the records of Slurm nodes without a pod."""

    slurm_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PruneRevision:
    """Delete a stored revision."""

    name: str


@dataclass(frozen=True, slots=True)
class ReleaseNodeSet:
    """Remove the finalizer that keeps the NodeSet, if every action before this one succeeded."""


Action = (
    Drain
    | Undrain
    | Resume
    | Close
    | Reopen
    | CreateRecords
    | ReplaceRecords
    | PowerUp
    | PowerDown
    | PowerDownWhenIdle
    | DeletePod
    | CreatePods
    | Cordon
    | Uncordon
    | SetOwners
    | AdvanceReservation
    | RemoveReservation
    | SetDown
    | DeleteRecords
    | PruneRevision
    | ReleaseNodeSet
)
