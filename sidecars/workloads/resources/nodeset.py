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
