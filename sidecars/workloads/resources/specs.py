"""The specs and statuses of the custom resources, as `schemas/crds` describes them.

Generated from schemas/crds by `make generate`. Edit that instead.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from sidecars.workloads.resources.common import Json, Part, Status


class LocalObjectReference(Part, frozen=True, kw_only=True):
    """An object in the same namespace."""

    name: str = ""
    """Name of the object."""
    namespace: str = ""
    """Must be empty. A reference to another namespace is refused."""


class KeySelector(Part, frozen=True, kw_only=True):
    """One key of an object in the same namespace."""

    name: str = ""
    """Name of the object."""
    namespace: str = ""
    """Must be empty. A reference to another namespace is refused."""
    key: str
    """The key in its data."""
    optional: bool | None = None
    """Whether the object and its key are optional."""


class TemplateMetadata(Part, frozen=True, kw_only=True):
    """Labels and annotations to add."""

    labels: Mapping[str, str] | None = None
    """Labels to add."""
    annotations: Mapping[str, str] | None = None
    """Annotations to add."""


class PodTemplate(Part, frozen=True, kw_only=True):
    """Changes to the pods. They are merged into the operator's pod template with Kubernetes'
    strategic merge, except `args` and containers, which are appended. All items of your lists
    are kept: ports of one number with two protocols, and spread constraints of one
    `topologyKey`. Items for one address of `hostAliases` become one.
    """

    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations to add."""
    spec: Json = {}
    """A PodSpec, or any part of one."""


class Service(Part, frozen=True, kw_only=True):
    """Changes to the Service."""

    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations to add to the Service."""
    spec: Json = {}
    """Changes to the Service's spec. It accepts all fields of a Kubernetes ServiceSpec."""
    port: int = 0
    """Port of the Service. Default: the daemon's port, as with 0."""
    node_port: int = 0
    """Port on each Kubernetes node, for Services of type NodePort and LoadBalancer. 0:
    Kubernetes selects a port.
    """


class ExternalConfig(Part, frozen=True, kw_only=True):
    """Address at which the external daemon listens."""

    host: str
    """Host name or address."""
    port: int
    """Port number."""


class Persistence(Part, frozen=True, kw_only=True):
    """Controller.spec.persistence: The volume of slurmctld's state: jobs, nodes, reservations.
    The other fields are those of a PersistentVolumeClaim's `spec`. A larger size is applied if
    the StorageClass allows it. The other fields can't be changed.
    """

    storage_class_name: str | None = None
    """Name of the StorageClass. Default: the cluster's default. Empty: none."""
    access_modes: list[str] | None = None
    """Access modes of the volume."""
    resources: Json | None = None
    """Size of the volume, as `requests.storage`."""
    selector: Json | None = None
    """Labels that an existing volume must have to be bound."""
    data_source: Json | None = None
    """A VolumeSnapshot or a claim whose content a new volume gets."""
    data_source_ref: Json | None = None
    """Like `dataSource`, also of other kinds and namespaces."""
    volume_mode: str | None = None
    """Mode of the volume: `Filesystem` or `Block`."""
    volume_name: str | None = None
    """Name of the volume to bind."""
    volume_attributes_class_name: str | None = None
    """Name of the VolumeAttributesClass."""
    enabled: bool = True
    """Whether to store the state on a volume. Otherwise all jobs are lost when the pod restarts.
    It can't be changed.
    """
    existing_claim: str = ""
    """Name of an existing PersistentVolumeClaim to use instead of a new one. It can't be changed
    while `enabled` is true.
    """


class HighAvailability(Part, frozen=True, kw_only=True):
    """Controller.spec.ha: High availability: Slurm's fail-over between several slurmctld."""

    enabled: bool = False
    """Whether to run standbys. They need a claim with access mode ReadWriteMany in
    `persistence.existingClaim`.
    """
    backups: int = 1
    """Number of standbys besides the primary."""


class AutoscalingLimits(Part, frozen=True, kw_only=True):
    """Controller.spec.autoscaling: Limits of all NodeSets with `autoscaling` together."""

    budget: int | None = None
    """Highest sum of the prices of all autoscaled workers. Without `price`, the highest number
    of workers. It limits additions. Default: without a limit.
    """


class MetricsEndpoint(Part, frozen=True, kw_only=True):
    """Controller.spec.metrics.serviceMonitor.endpoints: One path that Prometheus scrapes."""

    path: str
    """Path of the endpoint, for example `/metrics/jobs`."""
    interval: str | None = None
    """Time between two scrapes."""
    scrape_timeout: str | None = None
    """Time limit of a scrape."""


class ServiceMonitor(Part, frozen=True, kw_only=True):
    """Controller.spec.metrics.serviceMonitor: A ServiceMonitor, with which the Prometheus
    operator finds the metrics.
    """

    enabled: bool = False
    """Whether to create a ServiceMonitor, if the Prometheus operator is installed."""
    annotations: Mapping[str, str] | None = None
    """Annotations of the ServiceMonitor."""
    labels: Mapping[str, str] | None = None
    """Labels of the ServiceMonitor, by which Prometheus selects it."""
    interval: str | None = None
    """Time between two scrapes of endpoints that set none."""
    scrape_timeout: str | None = None
    """Time limit of a scrape of endpoints that set none."""
    endpoints: list[MetricsEndpoint] | None = None
    """Endpoints to scrape: `path`, and optionally `interval` and `scrapeTimeout`. slurmctld also
    serves `/metrics/jobs-users-accts`, whose size grows with the number of users.
    """


class Metrics(Part, frozen=True, kw_only=True):
    """Controller.spec.metrics: Metrics of slurmctld."""

    enabled: bool = False
    """Whether slurmctld serves OpenMetrics on its port."""
    service_monitor: ServiceMonitor = ServiceMonitor()


class Tree(Part, frozen=True, kw_only=True):
    """Controller.spec.topologies.tree: Switches below each other."""

    labels: list[str]
    """Labels whose values name the switches, from the top to the switch of the Kubernetes node."""
    join_names: bool = False
    """Whether the name of a switch begins with those above it, as in `zone-a.rack-1`. Set it if
    two zones have a rack of the same name.
    """


class Block(Part, frozen=True, kw_only=True):
    """Controller.spec.topologies.block: Blocks of Kubernetes nodes with a fast network of their
    own, such as NVLink domains.
    """

    label: str
    """Label whose value names the block."""
    sizes: list[int]
    """Slurm's `block_sizes`: number of nodes that a block has at least, then sizes of groups of
    blocks, each the one before multiplied by a power of two.
    """


class Topology(Part, frozen=True, kw_only=True):
    """Controller.spec.topologies: One topology."""

    name: str
    """Name of the topology, for `Topology=` of partitions. Also the root switch of a tree."""
    cluster_default: bool = False
    """Whether partitions without a `Topology` have this one."""
    tree: Tree | None = None
    block: Block | None = None


class ControllerSpec(Part, frozen=True, kw_only=True):
    """Controller.spec: Desired state of the cluster."""

    cluster_name: str = ""
    """Slurm's ClusterName. Default: the namespace and the name of this resource, for example
    `slurm_slurm`. It can't be changed, unless slurmctld is external.
    """
    slurm_key_ref: KeySelector | None = None
    """Secret and key with the credential of `auth/slurm`, which pods mount as `slurm.key`.
    Slurm's daemons authenticate with it. Anyone who can read it has root access to Slurm.
    """
    next_slurm_key_ref: KeySelector | None = None
    """Secret and key with the new credential that replaces that of `slurmKeyRef`. The operator
    switches all daemons to it step by step, without a restart of slurmctld or workers and
    without a lost job. The condition `SlurmKey` shows the progress.
    """
    jwt_hs256_key_ref: KeySelector | None = None
    """Deprecated: use `jwtKeyRef`. It has an effect only if `jwtKeyRef` isn't set."""
    jwt_key_ref: KeySelector | None = None
    """Secret and key with the HS256 key of `auth/jwt`, which signs and verifies Slurm's tokens."""
    jwks_key_ref: KeySelector | None = None
    """ConfigMap and key with a JSON Web Key Set, for tokens of other issuers."""
    accounting_ref: LocalObjectReference | None = None
    """The Accounting of this cluster. Without it, the cluster has no accounting."""
    declared_accounts_ref: LocalObjectReference | None = None
    """The ConfigMap that declares accounts, users, QOS and reservations, in its key
    `declared.json`. The operator applies them to slurmdbd and slurmctld. Without it, only
    sacctmgr and scontrol manage them.
    """
    users_ref: KeySelector | None = None
    """The Secret and its key that declare users and groups of the operating system. The operator
    renders them into the ConfigMap `NAME-users`, which all pods of this cluster mount. A change
    reaches running pods within seconds. Without it, pods have the users of their images and of
    SSSD.
    """
    extra_conf: str = ""
    """Lines to append to slurm.conf."""
    persistence: Persistence = Persistence()
    constrain_jobs: bool = True
    """Whether jobs are confined to the cores, the devices and the memory that they were given,
    by cgroup v2. With `true`, slurm.conf has task/affinity, task/cgroup and
    jobacct_gather/cgroup, unless `extraConf` sets these keys or a cgroup.conf of yours has
    `CgroupPlugin=disabled`. The cgroup.conf of the operator then constrains all four.
    """
    slurmctld: Json = {}
    """The slurmctld container. With `ha.enabled` a `command` runs behind the start gate of the
    pod, and without one the start gate runs `slurmctld -D` instead of the image's entrypoint.
    """
    template: PodTemplate = PodTemplate()
    """Changes to the pods. They are merged into the operator's pod template with Kubernetes'
    strategic merge, except `args` and containers, which are appended. All items of your lists
    are kept: ports of one number with two protocols, and spread constraints of one
    `topologyKey`. Items for one address of `hostAliases` become one.
    """
    service: Service = Service()
    """Changes to the Service at which clients and workers reach slurmctld."""
    ha: HighAvailability = HighAvailability()
    autoscaling: AutoscalingLimits = AutoscalingLimits()
    metrics: Metrics = Metrics()
    config_update: Literal["Reconfigure", "Recreate"] = "Reconfigure"
    """How a changed configuration is applied: `Reconfigure` applies it to the running slurmctld,
    `Recreate` replaces the pod. Default: `Reconfigure`.
    """
    inplace_reconfigure: bool = False
    """Accepted for compatibility. It has no effect: use `configUpdate`."""
    reconfigure: Json = {}
    """The container that applies a changed configuration to the running slurmctld."""
    logfile: Json = {}
    """The container that prints slurmctld's log file."""
    topologies: list[Topology] = []
    """Where workers are, from labels of their Kubernetes nodes. The operator composes
    topology.yaml, and workers register with their place. A changed label moves a running worker.
    The annotation `topology.slinky.slurm.net/spec` of a Kubernetes node overrides its labels.
    """
    config_file_refs: list[LocalObjectReference] | None = None
    """ConfigMaps whose keys become files in `/etc/slurm`."""
    prolog_script_refs: list[LocalObjectReference] | None = None
    """ConfigMaps with scripts that slurmd runs before a job, in the order of their names."""
    epilog_script_refs: list[LocalObjectReference] | None = None
    """ConfigMaps with scripts that slurmd runs after a job, in the order of their names."""
    prolog_slurmctld_script_refs: list[LocalObjectReference] | None = None
    """ConfigMaps with scripts that slurmctld runs before a job, in the order of their names."""
    epilog_slurmctld_script_refs: list[LocalObjectReference] | None = None
    """ConfigMaps with scripts that slurmctld runs after a job, in the order of their names."""
    external: bool = False
    """Whether slurmctld runs outside Kubernetes, at `externalConfig`. The operator then creates
    only the configuration that workers and clients need.
    """
    external_config: ExternalConfig | None = None
    """Address at which the external daemon listens."""


class DatabaseTLS(Part, frozen=True, kw_only=True):
    """Accounting.spec.storageConfig.tls: TLS to the database. slurmdbd then refuses a database
    whose certificate the authority in `caKeyRef` has not signed. A database without TLS is
    refused only if it requires TLS itself. A renewed certificate needs no restart.
    """

    ca_key_ref: KeySelector
    """Secret and key with the certificates of the authorities that sign the database's
    certificate, as PEM.
    """
    client_secret_ref: LocalObjectReference | None = None
    """Secret of the type `kubernetes.io/tls` with slurmdbd's client certificate: its keys
    `tls.crt` and `tls.key`. Without it, slurmdbd shows no certificate.
    """


class StorageConfig(Part, frozen=True, kw_only=True):
    """Accounting.spec.storageConfig: The database. It must exist, or the user must be allowed to
    create it.
    """

    host: str
    """Host name or address."""
    port: int = 3_306
    """Port number."""
    database: str = "slurm_acct_db"
    """Name of the database."""
    username: str = ""
    """User of the database."""
    password_key_ref: KeySelector
    """Secret and key with the password."""
    tls: DatabaseTLS | None = None


class AccountingSpec(Part, frozen=True, kw_only=True):
    """Accounting.spec: Desired state of slurmdbd."""

    slurm_key_ref: KeySelector | None = None
    """Secret and key with the credential of `auth/slurm`, which pods mount as `slurm.key`.
    Slurm's daemons authenticate with it. Anyone who can read it has root access to Slurm.
    """
    jwt_hs256_key_ref: KeySelector | None = None
    """Deprecated: use `jwtKeyRef`. It has an effect only if `jwtKeyRef` isn't set."""
    jwt_key_ref: KeySelector | None = None
    """Secret and key with the HS256 key of `auth/jwt`, which signs and verifies Slurm's tokens."""
    jwks_key_ref: KeySelector | None = None
    """ConfigMap and key with a JSON Web Key Set, for tokens of other issuers."""
    storage_config: StorageConfig | None = None
    extra_conf: str = ""
    """Lines to append to slurmdbd.conf."""
    slurmdbd: Json = {}
    """The slurmdbd container. It accepts all fields of a Kubernetes container."""
    template: PodTemplate = PodTemplate()
    """Changes to the pods. They are merged into the operator's pod template with Kubernetes'
    strategic merge, except `args` and containers, which are appended. All items of your lists
    are kept: ports of one number with two protocols, and spread constraints of one
    `topologyKey`. Items for one address of `hostAliases` become one.
    """
    service: Service = Service()
    """Changes to the Service at which slurmctld reaches slurmdbd."""
    external: bool = False
    """Whether slurmdbd runs outside Kubernetes, at `externalConfig`. The operator then creates
    no objects for it.
    """
    external_config: ExternalConfig | None = None
    """Address at which the external daemon listens."""


class RestApiSpec(Part, frozen=True, kw_only=True):
    """RestApi.spec: Desired state of slurmrestd."""

    controller_ref: LocalObjectReference
    """The Controller of the cluster. It can't be changed."""
    replicas: int = 1
    """Number of pods."""
    slurmrestd: Json = {}
    """The slurmrestd container. It accepts all fields of a Kubernetes container."""
    template: PodTemplate = PodTemplate()
    """Changes to the pods. They are merged into the operator's pod template with Kubernetes'
    strategic merge, except `args` and containers, which are appended. All items of your lists
    are kept: ports of one number with two protocols, and spread constraints of one
    `topologyKey`. Items for one address of `hostAliases` become one.
    """
    service: Service = Service()
    """Changes to the Service at which clients reach slurmrestd."""


class RestApiStatus(Status, frozen=True, kw_only=True):
    """RestApi.status: Current state."""

    replicas: int = 0
    """Number of pods."""
    ready_replicas: int = 0
    """Number of pods that answer."""


class LoginSetSpec(Part, frozen=True, kw_only=True):
    """LoginSet.spec: Desired state of the login nodes."""

    controller_ref: LocalObjectReference
    """The Controller of the cluster. It can't be changed."""
    replicas: int = 1
    """Number of pods."""
    login: Json = {}
    """The login container, with sshd and sackd. It accepts all fields of a Kubernetes container."""
    initconf: Json = {}
    """The container that prepares the configuration before the login container starts."""
    template: PodTemplate = PodTemplate()
    """Changes to the pods. They are merged into the operator's pod template with Kubernetes'
    strategic merge, except `args` and containers, which are appended. All items of your lists
    are kept: ports of one number with two protocols, and spread constraints of one
    `topologyKey`. Items for one address of `hostAliases` become one.
    """
    root_ssh_authorized_keys: str = ""
    """Public keys with which users may log in as root, in the format of `authorized_keys`."""
    extra_sshd_config: str = ""
    """Lines to append to sshd_config."""
    sssd_conf_ref: KeySelector | None = None
    """Secret and key with the `sssd.conf` of the login nodes."""
    strategy: Json = {}
    """How old pods are replaced when their template changes, as in a Kubernetes Deployment."""
    service: Service = Service()
    """Changes to the Service at which users reach sshd."""


class LoginSetStatus(Status, frozen=True, kw_only=True):
    """LoginSet.status: Current state."""

    replicas: int = 0
    """Number of pods."""
    ready_replicas: int = 0
    """Number of pods that accept logins."""
    selector: str = ""
    """Label selector of the pods, for the `scale` subresource."""


class Gpu(Part, frozen=True, kw_only=True):
    """NodeSet.spec.gpu: NVIDIA GPUs. Each worker requests them from Kubernetes, detects their
    types, and registers them in Slurm, for example as `gpu:nvidia_h100_80gb_hbm3:8`. gres.conf
    and GresTypes are generated.
    """

    enabled: bool = False
    """Whether workers have GPUs."""
    count: int = 8
    """Number of devices of each worker. With a privileged slurmd it must be all devices of a
    Kubernetes node. A limit in `slurmd.resources` overrides it.
    """
    expected: int | None = None
    """Number of devices that a worker must find. Default: as many as it requests."""
    type: str = ""
    """Type of the devices in Slurm. Default: the name of the product, as Slurm spells it."""
    resource_name: str = "nvidia.com/gpu"
    """Name of the resource in Kubernetes, for example `nvidia.com/mig-1g.5gb`."""
    on_mismatch: Literal["Drain", "Refuse"] = "Drain"
    """What a worker does if it finds another number of devices than expected. `Drain`: it
    registers drained, with the reason. `Refuse`: it doesn't register.
    """
    auto_detect: Literal["nvidia", "nvml"] = "nvidia"
    """How slurmd detects the devices. `nvidia` needs no library and doesn't see MIG devices.
    `nvml` sees them, and needs a slurmd that was built with NVML.
    """
    devices: list[str] | None = None
    """Device files that gres.conf declares instead of detection, for example `/dev/nvidia[0-7]`.
    Needs `type`, and workers in mode StatefulSet without `hostNetwork`.
    """


class NodeSetPartition(Part, frozen=True, kw_only=True):
    """NodeSet.spec.partition: A Slurm partition of these workers only."""

    enabled: bool = False
    """Whether to create the partition in Slurm."""
    config: str = ""
    """Options of the partition's line in slurm.conf, for example `State=UP MaxTime=UNLIMITED`."""


class AutoscalingWindow(Part, frozen=True, kw_only=True):
    """NodeSet.spec.autoscaling.windows: A window."""

    days: list[Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]] | None = None
    """Days on which the window begins. Default: all days."""
    start: str
    """Begin of the window in UTC, for example `"08:00"`."""
    end: str
    """End of the window in UTC. If it isn't later than `start`, it is on the next day."""
    min: int | None = None
    """Lowest number of workers in the window. Default: as outside of it."""
    max: int | None = None
    """Highest number of workers in the window. Default: as outside of it."""


class Autoscaling(Part, frozen=True, kw_only=True):
    """NodeSet.spec.autoscaling: The operator sets `replicas` by what pending jobs request,
    between `min` and `max`. It removes only idle workers. For mode StatefulSet.
    """

    min: int = 0
    """Lowest number of workers."""
    max: int
    """Highest number of workers."""
    node: str = ""
    """What one worker offers to jobs, in the words that `slurmd -C` prints, for example
    `Sockets=1 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=64000 Gres=gpu:a100:4`. Default: as
    the last worker has registered. As long as none has, one worker is started when a job waits.
    """
    price: int = 1
    """Price of one worker. Of the NodeSets that could run a job, the one with the lowest price
    is extended. The unit is that of the Controller's `autoscaling.budget`.
    """
    idle_seconds: int = 300
    """Time in seconds after which an idle worker is removed."""
    cool_down_seconds: int = 300
    """Time in seconds from an addition of workers to a removal."""
    step_seconds: int = 15
    """Time in seconds between two changes in the same direction."""
    max_step_up: int = 100
    """Highest number of workers that are added at once."""
    max_step_down: int = 100
    """Highest number of workers that are removed at once."""
    capacity_wait_seconds: int = 120
    """Time in seconds that a pod may wait for a Kubernetes node or its image before jobs are
    planned on other NodeSets. Events of Cluster Autoscaler and Karpenter about the pod decide
    instead.
    """
    windows: list[AutoscalingWindow] | None = None
    """Other limits at some times of the week, in UTC. Where several apply, the last one counts."""


class PowerSaving(Part, frozen=True, kw_only=True):
    """NodeSet.spec.powerSaving: Slurm's power saving decides which workers run. All `replicas`
    nodes exist in Slurm. A worker is started when Slurm powers up its node for a job, and is
    deleted when Slurm powers it down. For mode StatefulSet. It needs Slurm 26.05.3 or later.
    """

    enabled: bool = False
    """Whether Slurm decides which workers run. A change replaces the workers."""
    min: int = 0
    """Number of workers that always run, those with the lowest ordinals."""
    idle_seconds: int = 300
    """Time in seconds after which an idle node is powered down."""
    start_seconds: int = 600
    """Time in seconds in which a worker has to register (ResumeTimeout). Slurm has one for all
    nodes: the highest one of the cluster's NodeSets.
    """
    capacity_wait_seconds: int | None = None
    """Time in seconds that a pod may wait for a Kubernetes node or its image. After that, its
    job is requeued, and Slurm uses other NodeSets. Events of Cluster Autoscaler and Karpenter
    about the pod decide instead. It must be lower than `startSeconds`, and is half of it if
    unset.
    """
    retry_seconds: int = 300
    """Time in seconds after which Slurm uses the nodes again whose workers couldn't start."""
    start_ahead_seconds: int = 0
    """Time in seconds before the start that the backfill scheduler plans for a job, at which
    Slurm powers up the nodes that it plans for it. 0: when the job starts.
    """
    node: str = ""
    """What one worker offers to jobs, in the words that `slurmd -C` prints, for example `CPUs=32
    Sockets=1 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=64000 Gres=gpu:a100:4`. Default: as a
    worker has registered. As long as none has, one worker is started.
    """
    price: int = 1
    """Price of a worker: the Weight of its Slurm node, unless `extraConf` sets one. Of the nodes
    that a job can use, Slurm uses those with the lowest.
    """


class ClaimRetentionPolicy(Part, frozen=True, kw_only=True):
    """NodeSet.spec.persistentVolumeClaimRetentionPolicy: When the claims of
    `volumeClaimTemplates` are deleted.
    """

    when_deleted: Literal["Retain", "Delete"] = "Retain"
    """What happens to the claims when the NodeSet is deleted."""
    when_scaled: Literal["Retain", "Delete"] = "Retain"
    """What happens to the claims of a worker that is scaled in."""


class RollingUpdate(Part, frozen=True, kw_only=True):
    """NodeSet.spec.updateStrategy.rollingUpdate: Settings of the type RollingUpdate."""

    max_unavailable: int | str = "25%"
    """How many workers may be missing or unavailable at once, as a number or a percentage of all
    workers. A percentage is rounded up.
    """


class ScheduledUpdate(Part, frozen=True, kw_only=True):
    """NodeSet.spec.updateStrategy.scheduledUpdate: The maintenance reservation of the type
    ScheduledUpdate.
    """

    start_time: datetime | None = None
    """Start of the reservation, for example `2026-01-31T06:00:00Z`."""
    duration: str = "30m"
    """Duration of the reservation, at least one minute."""
    flags: list[str] | None = None
    """Additional flags of the reservation, for example `FORCE_START` or `DAILY`."""


class UpdateStrategy(Part, frozen=True, kw_only=True):
    """NodeSet.spec.updateStrategy: How the workers are replaced when their pod changes. They are
    always drained first.
    """

    type: Literal["RollingUpdate", "OnDelete", "ScheduledUpdate"] = "RollingUpdate"
    """When workers are replaced. `RollingUpdate`: a few at a time. `OnDelete`: when you delete
    them. `ScheduledUpdate`: in a maintenance reservation.
    """
    rolling_update: RollingUpdate = RollingUpdate()
    scheduled_update: ScheduledUpdate | None = None


class Health(Part, frozen=True, kw_only=True):
    """NodeSet.spec.health: Health checks of the workers (Slurm's HealthCheckProgram). A failing
    check drains the node with a reason that begins with `slurm-node: health: `. A recovered node
    is undrained. Changes take effect without a restart.
    """

    enabled: bool | None = None
    """Whether workers are checked. Default: if `gpu.enabled` is true."""
    check_seconds: int = 10
    """Time in seconds after which a check that hasn't ended has failed."""
    skip: list[str] | None = None
    """Names of checks that don't run, for example `gpu-ecc`."""
    disks: list[str] | None = None
    """Folders whose file systems must have free space and be writable. Default: `/`, `/tmp` and
    `/var/spool/slurmd`.
    """
    disk_free_percent: int = 3
    """Space and inodes of a file system that must be free, in percent."""
    memory_free_percent: int = 1
    """Memory of the host that must be available, in percent."""
    paths: list[str] | None = None
    """Folders that must exist and answer, besides all mounted network file systems."""
    xids: list[int] | None = None
    """Numbers of the NVIDIA Xid errors for which a node is drained until its pod is replaced.
    Default: errors after which a GPU needs a reset, a reboot or a repair.
    """
    checks: Mapping[str, str] | None = None
    """Your own checks, name → program. A program begins with `#!`. To drain the node, it exits
    with a status other than 0 and prints the reason on its first line of output.
    """


class Ssh(Part, frozen=True, kw_only=True):
    """NodeSet.spec.ssh: ssh access to workers for users with a job on the node
    (pam_slurm_adopt).
    """

    enabled: bool = False
    """Whether workers run sshd."""
    extra_sshd_config: str = ""
    """Lines to append to sshd_config."""
    sssd_conf_ref: KeySelector | None = None
    """Secret and key with the `sssd.conf` of the workers."""


class JobLogs(Part, frozen=True, kw_only=True):
    """NodeSet.spec.jobLogs: Job logs: the container `logs` of the workers prints the output
    files of batch jobs, and the output of prolog, epilog and health checks, as JSON lines. A
    change replaces the workers.
    """

    enabled: bool = False
    """Whether workers print the output of jobs."""
    private_files: bool = False
    """Whether files of jobs are printed that not all users may read. The container can then take
    on any user, and does so while it opens a file of that user.
    """
    bytes_per_second: int = 10_485_760
    """Number of bytes that a worker prints at most in a second."""
    backlog_bytes: int = 268_435_456
    """Number of bytes of a file that may wait to be printed. Of a file that grows faster, the
    oldest bytes are dropped, counted and reported.
    """


class NodeSetSpec(Part, frozen=True, kw_only=True):
    """NodeSet.spec: Desired state of the workers."""

    controller_ref: LocalObjectReference
    """The Controller of the cluster. It can't be changed."""
    replicas: int = 1
    """Number of workers. The maximum is Slurm's limit of nodes. It has no effect in mode
    DaemonSet.
    """
    gpu: Gpu = Gpu()
    slurmd: Json = {}
    """The slurmd container. It accepts all fields of a Kubernetes container."""
    extra_conf: str = ""
    """Node options with which slurmd registers: `Key=Value` items of a node line in slurm.conf,
    separated by spaces, for example `Features=fast Weight=10`.
    """
    partition: NodeSetPartition = NodeSetPartition()
    autoscaling: Autoscaling | None = None
    scaling_mode: Literal["StatefulSet", "DaemonSet"] = "StatefulSet"
    """How many workers run, and where. `StatefulSet`: `replicas` workers with ordinals.
    `DaemonSet`: one worker on each Kubernetes node that matches the pod template. If you change
    the mode, the workers are drained and replaced.
    """
    power_saving: PowerSaving = PowerSaving()
    template: PodTemplate = PodTemplate()
    """Changes to the pods. They are merged into the operator's pod template with Kubernetes'
    strategic merge, except `args` and containers, which are appended. All items of your lists
    are kept: ports of one number with two protocols, and spread constraints of one
    `topologyKey`. Items for one address of `hostAliases` become one.
    """
    volume_claim_templates: list[Json] | None = None
    """PersistentVolumeClaims of each worker. A new worker with the same ordinal gets the same
    claims. It can't be changed.
    """
    persistent_volume_claim_retention_policy: ClaimRetentionPolicy = ClaimRetentionPolicy()
    update_strategy: UpdateStrategy = UpdateStrategy()
    health: Health = Health()
    ssh: Ssh = Ssh()
    job_logs: JobLogs = JobLogs()
    ordinal_padding: int = 0
    """Number of digits to which ordinals are padded with zeros. 0: no padding. A change replaces
    the workers.
    """
    pin_to_node: bool = False
    """Whether each worker always runs on the Kubernetes node where it first ran. For mode
    StatefulSet.
    """
    oversubscribe_node: bool = False
    """Whether several workers may share a Kubernetes node."""
    workload_disruption_protection: bool = True
    """Whether a PodDisruptionBudget protects workers with jobs from eviction, for example by
    `kubectl drain`.
    """
    node_records: Literal["Delete", "Keep"] = "Delete"
    """What happens to the Slurm node record of a deleted worker: `Delete` deletes it, `Keep`
    retains it. Default: `Delete`.
    """
    prune_slurm_node_records: Literal["Never", "NodeNotFound"] = "Never"
    """Accepted for compatibility. It has no effect: use `nodeRecords`."""
    deletion_timeout: str | None = None
    """How long the NodeSet waits for its jobs when it is being deleted, for example by `helm
    uninstall`. Then its pods are deleted with their jobs. It can be set on a NodeSet that is
    being deleted. Default: without a limit.
    """
    min_ready_seconds: int = 0
    """Time in seconds that a pod must be ready before it is available."""
    revision_history_limit: int = 0
    """Number of old revisions to retain besides those in use."""
    logfile: Json = {}
    """The container that prints slurmd's log file."""
    force_removal: bool = False
    """Whether to remove the NodeSet's partition from slurm.conf although jobs still name it.
    Jobs that name no other partition end as `NODE_FAIL`. It can be set on a NodeSet that is
    being deleted.
    """


class NodeSetStatus(Status, frozen=True, kw_only=True):
    """NodeSet.status: Current state."""

    replicas: int = 0
    """Number of pods."""
    updated_replicas: int = 0
    """Number of pods of the newest revision."""
    ready_replicas: int = 0
    """Number of ready pods."""
    available_replicas: int = 0
    """Number of pods that have been ready for `minReadySeconds`."""
    unavailable_replicas: int = 0
    """Number of pods that are missing or not available."""
    desired: int = 0
    """Desired number of pods."""
    slurm_idle: int = 0
    """Number of idle Slurm nodes."""
    slurm_allocated: int = 0
    """Number of Slurm nodes with jobs, on all or some of their CPUs."""
    slurm_down: int = 0
    """Number of Slurm nodes that are down."""
    slurm_drain: int = 0
    """Number of drained and draining Slurm nodes."""
    partitions: tuple[str, ...] = ()
    """Partitions that jobs may name: the current one, and former ones. A former partition is
    closed and stays in slurm.conf until no job names it.
    """
    node_set_hash: str = ""
    """Hash of the newest revision."""
    collision_count: int | None = None
    """Number of times that the name of a new revision already existed."""
    ordinal_to_node: Mapping[str, str] | None = None
    """The Kubernetes node of each ordinal, if `pinToNode` is true."""
    node_conf: str = ""
    """What a worker has registered with, for the Slurm nodes of `powerSaving`."""
    selector: str = ""
    """Label selector of the pods, for the `scale` subresource."""


class TokenSpec(Part, frozen=True, kw_only=True):
    """Token.spec: Desired state of the token."""

    jwt_hs256_key_ref: KeySelector | None = None
    """Deprecated: use `jwtKeyRef`. It has an effect only if `jwtKeyRef` isn't set."""
    jwt_key_ref: KeySelector | None = None
    """Secret and key with the HS256 key of `auth/jwt`, which signs and verifies Slurm's tokens."""
    username: str
    """The Slurm user of the token. Letters, digits, `_`, `.` and `-`, beginning with one of the
    first three.
    """
    lifetime: str = "15m"
    """Lifetime of the token, at least 30s."""
    refresh: bool = True
    """Whether to renew the token before it expires. Otherwise the Secret is immutable, and the
    token expires at the end of its lifetime.
    """
    secret_ref: KeySelector | None = None
    """Secret and key for the token. The default name is that of this resource, followed by
    `-jwt-` and the username. The default key is `SLURM_JWT`.
    """


class TokenStatus(Status, frozen=True, kw_only=True):
    """Token.status: Current state."""

    expires_at: datetime | None = None
    """Time when the token in the Secret expires."""
    issued_at: datetime | None = None
    """Time when the token in the Secret was issued."""
