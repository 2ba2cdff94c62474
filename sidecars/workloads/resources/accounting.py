"""The kind Accounting: slurmdbd."""

from sidecars.workloads.resources.common import Resource, Status
from sidecars.workloads.resources.specs import AccountingSpec, KeySelector


class Accounting(Resource, frozen=True, kw_only=True):
    """slurmdbd."""

    kind: str = "Accounting"
    spec: AccountingSpec = AccountingSpec()
    status: Status = Status()

    @property
    def jwt_key_ref(self) -> KeySelector | None:
        """The key that signs Slurm's tokens, by whichever of its two fields."""
        return self.spec.jwt_key_ref or self.spec.jwt_hs256_key_ref
