"""The kind NodeSet: worker pods."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from sidecars.workloads.resources.common import (
    Json,
    KeySelector,
    LocalObjectReference,
    Part,
    PodTemplate,
    Resource,
    Status,
)


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
    """NodeSet.spec.gpu."""

    enabled: bool = False
    count: int = 8
    """GPUs that each worker requests from Kubernetes, unless its slurmd container has a limit of its own."""
    expected: int | None = None
    """GPUs that a worker must detect; None: as many as it requests."""
    type: str = ""
    """Slurm's type of the GPUs; "": the type that is detected."""
    resource_name: str = "nvidia.com/gpu"
    """Name of the GPUs as a resource of Kubernetes nodes."""
    on_mismatch: Literal["Drain", "Refuse"] = "Drain"
    """Whether a worker with another number of GPUs registers drained, or does not register."""
    auto_detect: Literal["nvidia", "nvml"] = "nvidia"
    """How slurmd detects them: AutoDetect in gres.conf."""
    devices: list[str] | None = None
    """File= values in gres.conf; None: those that are detected."""


class Health(Part, frozen=True, kw_only=True):
    """NodeSet.spec.health."""

    enabled: bool | None = None
    """None: `gpu.enabled`."""
    check_seconds: int = 10
    """Seconds after which a check that has not ended has failed."""
    skip: list[str] | None = None
    """Names of checks that don't run."""
    disks: list[str] | None = None
    """Folders whose file systems need free space and must be writable; None: the operator's own list."""
    disk_free_percent: int = 3
    """Space and inodes of a file system that must be free."""
    memory_free_percent: int = 1
    """Memory of the host that must be available."""
    paths: list[str] | None = None
    """Folders that must exist and answer, besides all network file systems."""
    xids: list[int] | None = None
    """Numbers of the Xid errors for which a node is drained; None: the operator's own list."""
    checks: Mapping[str, str] | None = None
    """The site's own programs, by the name of the check."""


class JobLogs(Part, frozen=True, kw_only=True):
    """NodeSet.spec.jobLogs."""

    enabled: bool = False
    private_files: bool = False
    """Whether files are printed that not all users may read."""
    bytes_per_second: int = 10_485_760
    """Bytes that a worker prints at most, averaged over a second."""
    backlog_bytes: int = 268_435_456
    """Bytes of a file that may wait to be printed."""


class AutoscalingWindow(Part, frozen=True, kw_only=True):
    """Other limits at some times of the week. Times are UTC, as "08:00"."""

    days: list[Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]] | None = None
    """Days on which it begins; None: all."""
    start: str
    end: str
    """Not later than `start`: on the next day."""
    min: int | None = None
    max: int | None = None


class Autoscaling(Part, frozen=True, kw_only=True):
    """NodeSet.spec.autoscaling: the operator sets `replicas`. The CRD describes all fields."""

    min: int = 0
    max: int
    node: str = ""
    """What one worker offers, as `slurmd -C` prints it; "": as the last one has registered."""
    price: int = 1
    idle_seconds: int = 300
    cool_down_seconds: int = 300
    step_seconds: int = 15
    max_step_up: int = 100
    max_step_down: int = 100
    capacity_wait_seconds: int = 120
    windows: list[AutoscalingWindow] | None = None


class PowerSaving(Part, frozen=True, kw_only=True):
    """NodeSet.spec.powerSaving."""

    enabled: bool = False
    min: int = 0
    """Workers that always run."""
    idle_seconds: int = 300
    """Time after which Slurm stops an idle worker."""
    start_seconds: int = 600
    """Time in which a worker has to register (ResumeTimeout)."""
    capacity_wait_seconds: int = 30
    """How long a pod may wait for a Kubernetes node or its image before Slurm uses other NodeSets."""
    retry_seconds: int = 300
    """How long Slurm uses other NodeSets then."""
    start_ahead_seconds: int = 0
    """How long before a job's planned start its nodes are powered up."""
    node: str = ""
    """What one worker offers, as items of a node line of slurm.conf; "": as a worker has registered."""
    price: int = 1
    """Weight of the Slurm nodes, unless extraConf sets it."""


class NodeSetSpec(Part, frozen=True, kw_only=True):
    """NodeSet.spec. Durations are Go's ("1m30s")."""

    controller_ref: LocalObjectReference
    replicas: int = 1
    """Number of worker pods in mode StatefulSet; with power saving the number of Slurm nodes."""
    autoscaling: Autoscaling | None = None
    """None: the operator never sets `replicas`."""
    scaling_mode: Literal["StatefulSet", "DaemonSet"] = "StatefulSet"
    slurmd: Json = {}
    """A container, merged into that of slurmd."""
    gpu: Gpu = Gpu()
    health: Health = Health()
    job_logs: JobLogs = JobLogs()
    power_saving: PowerSaving = PowerSaving()
    ssh: Ssh = Ssh()
    logfile: Json = {}
    """A container, merged into the one that prints the log."""
    template: PodTemplate = PodTemplate()
    extra_conf: str = ""
    """Items of slurmd's --conf, such as `Features=a Weight=2`."""
    partition: NodeSetPartition = NodeSetPartition()
    volume_claim_templates: list[Json] | None = None
    update_strategy: UpdateStrategy = UpdateStrategy()
    revision_history_limit: int = 0
    """Number of revisions that are kept although no pod has them and they are not current."""
    persistent_volume_claim_retention_policy: ClaimRetentionPolicy = ClaimRetentionPolicy()
    min_ready_seconds: int = 0
    """Seconds for which a pod must have been ready to be available."""
    ordinal_padding: int = 0
    """Digits of an ordinal in names, filled with zeros."""
    pin_to_node: bool = False
    """Each ordinal returns to the Kubernetes node on which its first pod ran."""
    workload_disruption_protection: bool = True
    """Whether a PodDisruptionBudget protects workers with jobs from eviction."""
    prune_slurm_node_records: Literal["Never", "NodeNotFound"] = "Never"
    """Accepted without effect: `node_records` decides."""
    node_records: Literal["Delete", "Keep"] = "Delete"
    """Whether the record of a Slurm node is deleted when its pod is gone."""
    oversubscribe_node: bool = False
    deletion_timeout: str | None = None
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
    node_conf: str = ""
    """What a worker has registered with, for the records of power saving."""
    selector: str = ""


class NodeSet(Resource, frozen=True, kw_only=True):
    """A set of worker pods, which run slurmd."""

    spec: NodeSetSpec
    kind: str = "NodeSet"
    status: NodeSetStatus = NodeSetStatus()

    @property
    def slurm_name(self) -> str:
        """Its name in Slurm: that of its node set, feature and partition."""
        prefix = str(self.spec.template.spec.get("hostname") or "").split()
        return (prefix[0].strip("-") if prefix else "") or self.name
