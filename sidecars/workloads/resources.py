"""The six custom resources as typed records, spelled as in their CRDs (slinky.slurm.net/v1beta1).

Defaults are those of the CRDs, so that a manifest that never passed an apiserver reads the same. Pod templates,
container overrides and the specs of Services are plain JSON values: Kubernetes owns their schema. Validates types
only; the rules between fields are in the CRDs.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypeVar, cast

import msgspec

GROUP = "slinky.slurm.net"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"

Json: TypeAlias = dict[str, Any]
Manifest: TypeAlias = dict[str, Any]
"""A whole Kubernetes object as JSON."""


class ResourceError(ValueError):
    """A custom resource that can't be used as it is: where, what stands there, and what to do.

    `field` is a path such as `spec.template.spec.hostname`.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem

    def under(self, place: str) -> "ResourceError":
        """The same error with its field inside `place`."""
        return ResourceError(f"{place}.{self.field}" if self.field else place, self.problem)


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """metadata.ownerReferences[*]."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """metadata; times are UTC."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner marked `controller: true`; None for an object that nobody controls."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of all records here: immutable, camelCase in JSON, unset fields not written."""


class LocalObjectReference(Part, frozen=True, kw_only=True):
    """An object of the same namespace; the API server takes no `namespace` but an empty one."""

    name: str = ""
    namespace: str = ""


class KeySelector(Part, frozen=True, kw_only=True):
    """One key of a Secret or ConfigMap of the same namespace; the API server takes no `namespace` but an empty one."""

    key: str
    name: str = ""
    namespace: str = ""
    optional: bool | None = None


class ExternalConfig(Part, frozen=True, kw_only=True):
    """Where a daemon runs that isn't ours to run."""

    host: str
    port: int


class TemplateMetadata(Part, frozen=True, kw_only=True):
    """Labels and annotations for the pods (or the Service)."""

    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class PodTemplate(Part, frozen=True, kw_only=True):
    """What the user wants different in the pods. `spec` is a PodSpec, laid over ours."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: Json = {}


class Service(Part, frozen=True, kw_only=True):
    """What the user wants different in the Service. `spec` is a ServiceSpec; ports of 0 mean the daemon's own."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: Json = {}
    port: int = 0
    node_port: int = 0


class Status(Part, frozen=True, kw_only=True):
    """What every kind reports: standard conditions, as JSON, and the generation that they are about."""

    conditions: list[Json] = []
    observed_generation: int = 0


class Resource(Part, frozen=True, kw_only=True):
    """What every custom resource has."""

    metadata: ObjectMeta
    api_version: str = API_VERSION
    kind: str = ""

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """metadata.namespace."""
        return self.metadata.namespace


# Controller


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


class ControllerSpec(Part, frozen=True, kw_only=True):
    """Controller.spec. `inplace_reconfigure` is accepted; `config_update` decides."""

    cluster_name: str = ""
    slurm_key_ref: KeySelector | None = None
    jwt_hs256_key_ref: KeySelector | None = msgspec.field(name="jwtHs256KeyRef", default=None)
    jwt_key_ref: KeySelector | None = None
    jwks_key_ref: KeySelector | None = None
    next_slurm_key_ref: KeySelector | None = None
    accounting_ref: LocalObjectReference | None = None
    external: bool = False
    external_config: ExternalConfig | None = None
    ha: HighAvailability = HighAvailability()
    slurmctld: Json = {}
    reconfigure: Json = {}
    logfile: Json = {}
    inplace_reconfigure: bool = False
    config_update: Literal["Reconfigure", "Recreate"] = "Reconfigure"
    template: PodTemplate = PodTemplate()
    extra_conf: str = ""
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


# Accounting


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


# RestApi


class RestApiSpec(Part, frozen=True, kw_only=True):
    """RestApi.spec."""

    controller_ref: LocalObjectReference
    replicas: int = 1
    slurmrestd: Json = {}
    template: PodTemplate = PodTemplate()
    service: Service = Service()


class RestApiStatus(Status, frozen=True, kw_only=True):
    """RestApi.status."""

    replicas: int = 0
    ready_replicas: int = 0


class RestApi(Resource, frozen=True, kw_only=True):
    """slurmrestd."""

    spec: RestApiSpec
    kind: str = "RestApi"
    status: RestApiStatus = RestApiStatus()


# LoginSet


class LoginSetSpec(Part, frozen=True, kw_only=True):
    """LoginSet.spec. `strategy` is a DeploymentStrategy."""

    controller_ref: LocalObjectReference
    sssd_conf_ref: KeySelector | None = None
    replicas: int = 1
    login: Json = {}
    initconf: Json = {}
    template: PodTemplate = PodTemplate()
    root_ssh_authorized_keys: str = ""
    extra_sshd_config: str = ""
    strategy: Json = {}
    service: Service = Service()


class LoginSetStatus(Status, frozen=True, kw_only=True):
    """LoginSet.status; `selector` is a label selector in its text form, for the scale subresource."""

    replicas: int = 0
    ready_replicas: int = 0
    selector: str = ""


class LoginSet(Resource, frozen=True, kw_only=True):
    """Login nodes: sackd and sshd."""

    spec: LoginSetSpec
    kind: str = "LoginSet"
    status: LoginSetStatus = LoginSetStatus()


# NodeSet


class Ssh(Part, frozen=True, kw_only=True):
    """spec.ssh: logins into worker pods by pam_slurm_adopt."""

    enabled: bool = False
    extra_sshd_config: str = ""
    sssd_conf_ref: KeySelector | None = None


class NodeSetPartition(Part, frozen=True, kw_only=True):
    """spec.partition: a partition of this NodeSet's name; `config` is the rest of its line in slurm.conf."""

    enabled: bool = False
    config: str = ""


class RollingUpdate(Part, frozen=True, kw_only=True):
    """spec.updateStrategy.rollingUpdate; a percentage is rounded up."""

    max_unavailable: int | str = "25%"


class ScheduledUpdate(Part, frozen=True, kw_only=True):
    """spec.updateStrategy.scheduledUpdate."""

    start_time: datetime | None = None
    duration: str = "30m"
    flags: list[str] | None = None


class UpdateStrategy(Part, frozen=True, kw_only=True):
    """spec.updateStrategy."""

    type: Literal["RollingUpdate", "OnDelete", "ScheduledUpdate"] = "RollingUpdate"
    rolling_update: RollingUpdate = RollingUpdate()
    scheduled_update: ScheduledUpdate | None = None


class ClaimRetentionPolicy(Part, frozen=True, kw_only=True):
    """spec.persistentVolumeClaimRetentionPolicy."""

    when_deleted: Literal["Retain", "Delete"] = "Retain"
    when_scaled: Literal["Retain", "Delete"] = "Retain"


class Gpu(Part, frozen=True, kw_only=True):
    """NodeSet.spec.gpu. `expected` is None for `count`; `devices` are File= values of gres.conf."""

    enabled: bool = False
    count: int = 8
    expected: int | None = None
    type: str = ""
    resource_name: str = "nvidia.com/gpu"
    on_mismatch: Literal["Drain", "Refuse"] = "Drain"
    auto_detect: Literal["nvidia", "nvml"] = "nvidia"
    devices: list[str] | None = None


class Health(Part, frozen=True, kw_only=True):
    """NodeSet.spec.health. `enabled` is None for gpu.enabled; `disks` and `xids` None for the operator's own."""

    enabled: bool | None = None
    check_seconds: int = 10
    skip: list[str] | None = None
    disks: list[str] | None = None
    disk_free_percent: int = 3
    memory_free_percent: int = 1
    paths: list[str] | None = None
    xids: list[int] | None = None
    checks: Mapping[str, str] | None = None


class NodeSetSpec(Part, frozen=True, kw_only=True):
    """NodeSet.spec. `prune_slurm_node_records` is accepted; `node_records` decides. Durations are Go's ("1m30s")."""

    controller_ref: LocalObjectReference
    replicas: int = 1
    scaling_mode: Literal["StatefulSet", "DaemonSet"] = "StatefulSet"
    slurmd: Json = {}
    gpu: Gpu = Gpu()
    health: Health = Health()
    ssh: Ssh = Ssh()
    logfile: Json = {}
    template: PodTemplate = PodTemplate()
    extra_conf: str = ""
    partition: NodeSetPartition = NodeSetPartition()
    volume_claim_templates: list[Json] | None = None
    update_strategy: UpdateStrategy = UpdateStrategy()
    revision_history_limit: int = 0
    persistent_volume_claim_retention_policy: ClaimRetentionPolicy = ClaimRetentionPolicy()
    min_ready_seconds: int = 0
    ordinal_padding: int = 0
    pin_to_node: bool = False
    workload_disruption_protection: bool = True
    prune_slurm_node_records: Literal["Never", "NodeNotFound"] = "Never"
    node_records: Literal["Delete", "Keep"] = "Delete"
    oversubscribe_node: bool = False
    deletion_timeout: str = "60s"
    force_removal: bool = False


class NodeSetStatus(Status, frozen=True, kw_only=True):
    """NodeSet.status; `selector` is a label selector in its text form, for the scale subresource."""

    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    desired: int = 0
    slurm_idle: int = 0
    slurm_allocated: int = 0
    slurm_down: int = 0
    slurm_drain: int = 0
    partitions: tuple[str, ...] = ()
    node_set_hash: str = ""
    collision_count: int | None = None
    ordinal_to_node: Mapping[str, str] | None = None
    selector: str = ""


class NodeSet(Resource, frozen=True, kw_only=True):
    """A pool of slurmd pods."""

    spec: NodeSetSpec
    kind: str = "NodeSet"
    status: NodeSetStatus = NodeSetStatus()

    @property
    def slurm_name(self) -> str:
        """The name of this pool in Slurm: its NodeSet, feature and partition."""
        prefix = str(self.spec.template.spec.get("hostname") or "").split()
        return (prefix[0].strip("-") if prefix else "") or self.name


# Token


class TokenSpec(Part, frozen=True, kw_only=True):
    """Token.spec. `lifetime` is a Go duration."""

    username: str
    jwt_hs256_key_ref: KeySelector | None = msgspec.field(name="jwtHs256KeyRef", default=None)
    jwt_key_ref: KeySelector | None = None
    lifetime: str = "15m"
    refresh: bool = True
    secret_ref: KeySelector | None = None


class TokenStatus(Status, frozen=True, kw_only=True):
    """Token.status."""

    issued_at: datetime | None = None
    expires_at: datetime | None = None


class Token(Resource, frozen=True, kw_only=True):
    """A Slurm token for a user, kept in a Secret."""

    spec: TokenSpec
    kind: str = "Token"
    status: TokenStatus = TokenStatus()


AnyResource: TypeAlias = Controller | Accounting | RestApi | LoginSet | NodeSet | Token

KINDS: Mapping[str, type[AnyResource]] = {
    "Accounting": Accounting,
    "Controller": Controller,
    "LoginSet": LoginSet,
    "NodeSet": NodeSet,
    "RestApi": RestApi,
    "Token": Token,
}

PLURALS: Mapping[str, str] = {kind: f"{kind.lower()}s" for kind in KINDS}


R = TypeVar("R", bound=Resource)


def read(kind: type[R], manifest: Manifest) -> R:
    """A manifest (parsed JSON or YAML) as a record of `kind` (`Controller`, …).

    Nulls count as absent, as for the apiserver; unknown fields are ignored. Raises ResourceError, which names the
    field, for a wrong type, a missing required field and another kind or version.
    """
    version, found = manifest.get("apiVersion", API_VERSION), manifest.get("kind", kind.__name__)
    if version != API_VERSION:
        raise ResourceError("apiVersion", f"{version!r} isn't {API_VERSION}")
    if found != kind.__name__:
        raise ResourceError("kind", f"{found!r} isn't {kind.__name__}")
    try:
        return msgspec.convert(_without_nulls(manifest), kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        raise ResourceError(place.rstrip("`").lstrip(".") or kind.__name__, problem) from error


def decode(kind: str, manifest: Manifest) -> AnyResource:
    """Like `read`, for a kind by its name. Raises ResourceError for a kind that isn't ours, too."""
    if kind not in KINDS:
        raise ResourceError("kind", f"{kind!r} is none of {', '.join(KINDS)}")
    return read(KINDS[kind], manifest)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def builtins(part: Part) -> Json:
    """The JSON form of a record, as it stands in a manifest: only what differs from the defaults."""
    return cast("Json", msgspec.to_builtins(part))


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_DURATION = 2.0**63 / 1e9
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)", re.ASCII)


def duration(text: str, field: str) -> float:
    """Seconds, not negative, of a Go duration (https://pkg.go.dev/time#ParseDuration). Raises ResourceError."""
    found = list(_DURATION.finditer(text))
    if text != "0" and (not found or "".join(match.group() for match in found) != text):
        raise ResourceError(field, f"{text!r} isn't a duration such as 90s, 15m or 1h30m")
    seconds = sum(float(match.group(1)) * _UNITS[match.group(2)] for match in found)
    if seconds >= _LONGEST_DURATION:
        raise ResourceError(field, f"{text[:20]} is longer than Go can count (2^63 ns)")
    return seconds
