"""The kind Accounting: slurmdbd."""

import msgspec

from sidecars.workloads.resources.common import (
    ExternalConfig,
    Json,
    KeySelector,
    Part,
    PodTemplate,
    Resource,
    Service,
    Status,
)


class StorageConfig(Part, frozen=True, kw_only=True):
    """spec.storageConfig: slurmdbd's database."""

    host: str
    password_key_ref: KeySelector
    port: int = 3306
    database: str = "slurm_acct_db"
    username: str = ""


class AccountingSpec(Part, frozen=True, kw_only=True):
    """Accounting.spec."""

    slurm_key_ref: KeySelector | None = None
    jwt_hs256_key_ref: KeySelector | None = msgspec.field(name="jwtHs256KeyRef", default=None)
    jwt_key_ref: KeySelector | None = None
    jwks_key_ref: KeySelector | None = None
    external: bool = False
    external_config: ExternalConfig | None = None
    slurmdbd: Json = {}
    template: PodTemplate = PodTemplate()
    storage_config: StorageConfig | None = None
    extra_conf: str = ""
    service: Service = Service()


class Accounting(Resource, frozen=True, kw_only=True):
    """slurmdbd."""

    kind: str = "Accounting"
    spec: AccountingSpec = AccountingSpec()
    status: Status = Status()

    @property
    def jwt_key_ref(self) -> KeySelector | None:
        """The key that signs Slurm's tokens, by whichever of its two fields."""
        return self.spec.jwt_key_ref or self.spec.jwt_hs256_key_ref
