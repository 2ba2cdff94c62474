"""What slurmdbd and slurmctld have, as a plan looks at it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from sidecars.slurm.protocol.accounting import Account, Association, Qos, User
from sidecars.slurm.records import Reservation


@dataclass(frozen=True)
class Live:
    """One reading of both. `cluster`: the Slurm cluster that the declaration is for."""

    cluster: str
    accounts: Mapping[str, Account]
    users: Mapping[str, User]
    qos: Mapping[str, Qos]
    associations: tuple[Association, ...]
    """Of all clusters."""
    tres: frozenset[str]
    """What Slurm counts."""
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    now: float = 0.0
    """When it was read, in seconds since the epoch."""

    @cached_property
    def here(self) -> Mapping[tuple[str, str], Association]:
        """The associations of the cluster without a partition, by account and user ("" for the
        account's own).
        """
        return {
            (it.account, it.user): it
            for it in self.associations
            if it.cluster == self.cluster and not it.partition
        }

    @cached_property
    def accounts_here(self) -> Mapping[str, Association]:
        """The accounts of the cluster, by name."""
        return {account: it for (account, user), it in self.here.items() if not user}
