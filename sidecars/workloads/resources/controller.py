"""The kind Controller: slurmctld and its configuration."""

from sidecars.workloads.resources.common import Resource, Status
from sidecars.workloads.resources.specs import ControllerSpec, KeySelector


class Controller(Resource, frozen=True, kw_only=True):
    """A Slurm cluster: slurmctld and its configuration."""

    kind: str = "Controller"
    spec: ControllerSpec = ControllerSpec()
    status: Status = Status()

    @property
    def cluster_name(self) -> str:
        """Slurm's ClusterName."""
        return self.spec.cluster_name or f"{self.namespace}_{self.name}"

    @property
    def jwt_key_ref(self) -> KeySelector | None:
        """The key that signs Slurm's tokens, by whichever of its two fields."""
        return self.spec.jwt_key_ref or self.spec.jwt_hs256_key_ref

    @property
    def replicas(self) -> int:
        """How many slurmctld run."""
        return 1 + self.spec.ha.backups if self.spec.ha.enabled else 1
