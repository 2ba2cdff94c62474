"""The kind Controller: slurmctld and its configuration."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from sidecars.workloads.resources.common import (
    ExternalConfig,
    Json,
    KeySelector,
    LocalObjectReference,
    Part,
    PodTemplate,
    Resource,
    Service,
    Status,
)


class HighAvailability(Part, frozen=True, kw_only=True):
    """spec.ha: `backups` standby slurmctld beside the primary."""

    enabled: bool = False
    backups: int = 1


class Persistence(Part, frozen=True, kw_only=True):
    """spec.persistence: slurmctld's state. The fields after `existing_claim` are a PersistentVolumeClaimSpec."""

    enabled: bool = True
    existing_claim: str = ""
    access_modes: list[str] | None = None
    data_source: Json | None = None
    data_source_ref: Json | None = None
    resources: Json | None = None
    selector: Json | None = None
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None
    volume_mode: str | None = None
    volume_name: str | None = None


class MetricsEndpoint(Part, frozen=True, kw_only=True):
    """One path that Prometheus scrapes."""

    path: str
    interval: str | None = None
    scrape_timeout: str | None = None


class ServiceMonitor(Part, frozen=True, kw_only=True):
    """spec.metrics.serviceMonitor: a monitoring.coreos.com/v1 ServiceMonitor."""

    enabled: bool = False
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    interval: str | None = None
    scrape_timeout: str | None = None
    endpoints: list[MetricsEndpoint] | None = None


class Metrics(Part, frozen=True, kw_only=True):
    """spec.metrics: slurmctld's own OpenMetrics endpoints."""

    enabled: bool = False
    service_monitor: ServiceMonitor = ServiceMonitor()


class AutoscalingLimits(Part, frozen=True, kw_only=True):
    """spec.autoscaling: limits of all NodeSets with `autoscaling` together."""

    budget: int | None = None
    """The highest sum of the prices of their workers; None: no limit."""


class Tree(Part, frozen=True, kw_only=True):
    """Switches below each other, whose names are the values of labels of Kubernetes nodes."""

    labels: list[str]
    """From the top to the switch that the Kubernetes node is connected to."""
    join_names: bool = False
    """Whether a switch has the names of those above in its own."""


class Block(Part, frozen=True, kw_only=True):
    """Blocks of Kubernetes nodes, whose names are the values of a label."""

    label: str
    sizes: list[int]
    """Slurm's block_sizes."""


class Topology(Part, frozen=True, kw_only=True):
    """One of spec.topologies. Either `tree` or `block` is set."""

    name: str
    cluster_default: bool = False
    tree: Tree | None = None
    block: Block | None = None


class ControllerSpec(Part, frozen=True, kw_only=True):
    """Controller.spec. The CRD describes all fields."""

    cluster_name: str = ""
    """Slurm's ClusterName; "": `Controller.cluster_name` is derived from the object's namespace and name."""
    slurm_key_ref: KeySelector | None = None
    jwt_hs256_key_ref: KeySelector | None = msgspec.field(name="jwtHs256KeyRef", default=None)
    """Another name of `jwt_key_ref`: see `Controller.jwt_key_ref`."""
    jwt_key_ref: KeySelector | None = None
    jwks_key_ref: KeySelector | None = None
    next_slurm_key_ref: KeySelector | None = None
    """The key that replaces the one of `slurm_key_ref`, step by step; None: no rotation."""
    accounting_ref: LocalObjectReference | None = None
    declared_accounts_ref: LocalObjectReference | None = None
    """The ConfigMap that declares accounts, users and QOS; None: sacctmgr alone manages them."""
    users_ref: KeySelector | None = None
    """The Secret that declares users of the operating system; None: the pods have those of their images and SSSD."""
    external: bool = False
    """Whether slurmctld runs outside Kubernetes, at the address in `external_config`."""
    external_config: ExternalConfig | None = None
    ha: HighAvailability = HighAvailability()
    slurmctld: Json = {}
    """A container, merged into that of slurmctld."""
    reconfigure: Json = {}
    """A container, merged into that of `reconfigure`."""
    logfile: Json = {}
    """A container, merged into the one that prints the log."""
    inplace_reconfigure: bool = False
    """Accepted without effect: `config_update` decides."""
    config_update: Literal["Reconfigure", "Recreate"] = "Reconfigure"
    """Whether a changed configuration is read by the running slurmctld, or its pod is replaced."""
    template: PodTemplate = PodTemplate()
    autoscaling: AutoscalingLimits = AutoscalingLimits()
    constrain_jobs: bool = True
    extra_conf: str = ""
    topologies: list[Topology] = []
    """The operator composes topology.yaml of these."""
    config_file_refs: list[LocalObjectReference] | None = None
    prolog_script_refs: list[LocalObjectReference] | None = None
    epilog_script_refs: list[LocalObjectReference] | None = None
    prolog_slurmctld_script_refs: list[LocalObjectReference] | None = None
    epilog_slurmctld_script_refs: list[LocalObjectReference] | None = None
    persistence: Persistence = Persistence()
    service: Service = Service()
    metrics: Metrics = Metrics()


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
