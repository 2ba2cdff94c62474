"""Manifests of Soperator → values of the chart slurm. Pure.

Each field that is set in a `SlurmCluster` or a `NodeSet` of Soperator is in the values, or is
listed as not converted, with the reason. What equals nothing (`false`, 0, "") is not listed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from postrender import writing
from postrender.errors import PostrenderError

Manifest = Mapping[str, Any]
Values = dict[str, Any]

GROUP = "slurm.nebius.ai"
GPU = "nvidia.com/gpu"
NODESET = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
DEFAULT_PARTITIONS = {
    "main": "Default=YES PriorityTier=10 MaxTime=INFINITE State=UP OverSubscribe=YES",
    "hidden": "Default=NO PriorityTier=10 PreemptMode=OFF Hidden=YES MaxTime=INFINITE State=UP "
    "OverSubscribe=YES",
}
"""Those of Soperator's `configType: default`, which have all nodes."""

_IMAGE = "the images of Soperator don't run here: set `images`, or `image` of the container"
_MUNGE = "not used: Slurm's own auth/slurm authenticates"
_SSSD = "the default images have no SSSD: see docs/users.md, section `SSSD`, or use `ldap`"
_JAIL = (
    "workers have the root of their image: mount the folders that jobs need, or set `jail`, see "
    "docs/jail.md"
)
_PROBE = "the probes are those of the operator"
_CLAIM = "create this claim in the namespace of the new release: claims can't be moved"
_SERVICE_ACCOUNT = "the pods need no ServiceAccount, or have one of the chart"
_EXPORTER = "set the values of the chart slurm-exporter, see docs/monitoring.md"
_SLURMRESTD = "set arguments in `restapi.slurmrestd.args`"
_HOST_USERS = "Slurm's pods use the user namespace of the host"
_JAIL_PATH = "a path in the jail: put the text of the script into {} here"
_TOPOLOGY = "set `topologies`, see docs/rdma-topology.md"
_POWER = "set `powerSaving` of the NodeSet, see docs/power-saving.md"

_OF_CONTAINER = {
    "image": _IMAGE,
    "command": _IMAGE,
    "args": _IMAGE,
    "imagePullPolicy": _IMAGE,
    "imagePullSecrets": _IMAGE,
    "port": "ports are those of the operator, or of the Service",
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "securityLimitsConfig": "put the limits into the image, or into the container runtime",
    "appArmorProfile": "set `appArmorProfile` in the `securityContext` of the container",
    "procMount": "set `procMount` in the `securityContext` of the container",
    "security": "set the `securityContext` of the container",
}
REASONS: Mapping[str, str] = {
    "SlurmCluster.crVersion": "a version of Soperator",
    "SlurmCluster.maintenance": "scale the NodeSets to 0 in place of it",
    "SlurmCluster.populateJail": _JAIL,
    "SlurmCluster.secrets.sshdKeysName": (
        "host keys are generated, unless the Secret RELEASE-login-login-ssh-host-keys exists: see "
        "docs/login.md"
    ),
    "SlurmCluster.slurmConfig.prolog": _JAIL_PATH.format("`prologScripts`"),
    "SlurmCluster.slurmConfig.epilog": _JAIL_PATH.format("`epilogScripts`"),
    "SlurmCluster.slurmConfig.taskProlog": (
        "a path in the jail: set TaskProlog in `controller.extraConfMap` to a path in the image"
    ),
    "SlurmCluster.slurmConfig.topologyPlugin": _TOPOLOGY,
    "SlurmCluster.slurmConfig.topologyParam": _TOPOLOGY,
    "SlurmCluster.slurmConfig.suspendTime": _POWER,
    "SlurmCluster.slurmConfig.resumeTimeout": _POWER,
    "SlurmCluster.topology": _TOPOLOGY,
    "SlurmCluster.partitionConfiguration": "not used with this `configType`",
    "SlurmCluster.customCgroupConfig": (
        "a file of yours replaces the generated one: set `configFiles`, with CgroupPlugin and "
        "IgnoreSystemd"
    ),
    "SlurmCluster.cgroupVersion": "workers need cgroup v2",
    "SlurmCluster.mpiConfig": "set `mpi.conf` in `configFiles`, see docs/mpi.md",
    "SlurmCluster.plugStackConfig": (
        "`srun --container-image` works without a plugin: see docs/containers.md. For other "
        "plugins, set `plugstack.conf` in `configFiles`"
    ),
    "SlurmCluster.sConfigController": "the operator distributes the configuration",
    "SlurmCluster.useDefaultAppArmorProfile": _OF_CONTAINER["appArmorProfile"],
    "SlurmCluster.healthCheckConfig": (
        "a program in the jail: set `nodesetDefaults.health`, see docs/health.md"
    ),
    "SlurmCluster.slurmNodes.exporter": _EXPORTER,
    "SlurmCluster.slurmNodes.rest.threadCount": _SLURMRESTD,
    "SlurmCluster.slurmNodes.rest.maxConnections": _SLURMRESTD,
    "SlurmCluster.slurmNodes.controller.openMetrics.serviceMonitor.endpoints": (
        "set `controller.metrics.serviceMonitor.endpoints`"
    ),
    "SlurmCluster.slurmNodes.controller.volumes.customMounts": (
        "set `volumeMounts` and `podSpec.volumes` of the controller"
    ),
    "SlurmCluster.slurmNodes.controller.volumes.spool.volumeSourceName": (
        "slurmctld gets a claim of `controller.persistence`: restore its state, see docs/backup.md"
    ),
    "SlurmCluster.slurmNodes.login.sshdConfigMapRefName": (
        "put its lines into `loginsetDefaults.extraSshdConfig`"
    ),
    "SlurmCluster.slurmNodes.login.userIsolation": "set the resources of the login container",
    "SlurmCluster.slurmNodes.accounting.size": "slurmdbd has one pod",
    "SlurmCluster.slurmNodes.accounting.externalDB.tls": (
        "set StorageParameters in `accounting.extraConfMap`, and mount the certificates"
    ),
    "SlurmCluster.slurmNodes.accounting.mariadbOperator": (
        "`accounting.mariadb` is one MariaDB without replicas. Or keep the database of "
        "mariadb-operator, and set `accounting.storageConfig`"
    ),
    "NodeSet.ephemeralNodes": _POWER,
    "NodeSet.initialNumberEphemeralNodes": _POWER,
    "NodeSet.ephemeralTopologyWaitTimeout": _POWER,
    "NodeSet.enableHostUserNamespace": _HOST_USERS,
    "NodeSet.workerInitRandomDelaySeconds": "workers register without a delay",
    "NodeSet.slurmd.volumes.spool": "slurmd's spool folder is in the pod",
    "NodeSet.slurmd.volumes.jail": _JAIL,
    "NodeSet.nodeConfig.autoResume": "the operator resumes its own drains only",
    "NodeSet.nodeConfig.static": (
        "workers register what they have: set other options of the node in `extraConfMap`"
    ),
    "NodeSet.nodeConfig.dynamic": "the operator uses the field Extra of the Slurm node",
    "NodeSet.nodeConfig.gresConfig": "workers detect their GPUs: see docs/gpus.md",
    "NodeSet.gpu.nvidia.gdrCopyEnabled": "mount the device /dev/gdrdrv: see docs/rdma-topology.md",
    "NodeSet.docker": "no container engine runs in the pods",
    "NodeSet.topology": _TOPOLOGY,
    "NodeSet.configMapRefSupervisord": "the pods run no supervisord",
    "NodeSet.configMapRefSshd": "set `ssh.extraSshdConfig` of the NodeSet",
    "NodeSet.imagePullSecrets": _IMAGE,
    "NodeSet.updateStrategy": (
        "a worker is drained before it is replaced, see `updateStrategy` in docs/nodesets.md"
    ),
}
"""Why a field, and all below it, is not converted."""
_ANYWHERE: Mapping[str, str] = {
    "munge": _MUNGE,
    "sssd": _SSSD,
    "sssdDebugLevel": _SSSD,
    "sssdConfSecretRefName": _SSSD,
    "sssdLdapCAConfigMapRefName": _SSSD,
    "hostUsers": _HOST_USERS,
    "serviceAccountName": _SERVICE_ACCOUNT,
    "jail": _JAIL,
    "volumeSourceName": "this volume isn't used here",
    **_OF_CONTAINER,
}
"""The same, for fields that several parts of the resource have."""


@dataclass(frozen=True)
class NotConverted:
    """A field without a value here."""

    place: str
    reason: str


@dataclass(frozen=True)
class Conversion:
    """Values of the chart slurm, and what they lack."""

    values: Values
    left: tuple[NotConverted, ...]


@dataclass
class Source:
    """The spec of a manifest, and which of its fields have been converted."""

    kind: str
    name: str
    spec: Any
    taken: set[tuple[str, ...]] = field(default_factory=set)
    noted: list[NotConverted] = field(default_factory=list)

    def place(self, path: str) -> str:
        """Return where a field is, for people."""
        return f"{self.kind} {self.name}: spec.{path}"

    def take(self, path: str, kind: type, default: Any = None) -> Any:
        """Return a field and count it as converted. Raises PostrenderError for another type."""
        keys = tuple(path.split("."))
        value = self.spec
        for key in keys:
            if not isinstance(value, Mapping):
                return default
            value = value.get(key)
        if value is None:
            return default
        wrong = (kind is int and isinstance(value, bool)) or (
            kind is Sequence and isinstance(value, str)
        )
        if wrong or not isinstance(value, kind):
            expected = {Mapping: "an object", Sequence: "a list", str: "a text", int: "a number"}
            raise PostrenderError(
                f"{self.place(path)}: {value!r} is not {expected.get(kind, 'true or false')}"
            )
        self.taken.add(keys)
        return value

    def note(self, path: str, reason: str) -> None:
        """List a field that was converted, for what remains to be done."""
        self.noted.append(NotConverted(self.place(path), reason))

    def left(self) -> Iterator[NotConverted]:
        """Yield what was not converted, a part of the resource once."""
        yield from self.noted
        seen = {it.place for it in self.noted}
        for path in _fields(self.spec, ()):
            if not any(path[: len(it)] == it for it in self.taken):
                part, reason = self._reason(path)
                if (place := self.place(part)) not in seen:
                    seen.add(place)
                    yield NotConverted(place, reason)

    def _reason(self, path: tuple[str, ...]) -> tuple[str, str]:
        for length in range(1, len(path) + 1):
            part = ".".join(path[:length])
            if reason := REASONS.get(f"{self.kind}.{part}"):
                return part, reason
        for length, key in enumerate(path, 1):
            if key in _ANYWHERE:
                return ".".join(path[:length]), _ANYWHERE[key]
        return ".".join(path), "this command doesn't know the field"


def _fields(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _fields(inner, (*path, str(key)))
    elif value not in (None, False, 0, "", []):
        yield path


def convert(documents: Sequence[Any]) -> Conversion:
    """Convert one SlurmCluster with its NodeSets. Documents of other kinds are ignored.

    Raises PostrenderError for a resource that Soperator wouldn't take either.
    """
    own = [it for each in documents for it in _listed(each) if _group(it) == GROUP]
    clusters = [_source(it) for it in own if it["kind"] == "SlurmCluster"]
    if len(clusters) != 1:
        names = ", ".join(it.name for it in clusters) or "none"
        raise PostrenderError(f"{len(clusters)} SlurmClusters ({names}): give the files of one")
    (cluster,) = clusters
    nodesets = [_source(it) for it in own if it["kind"] == "NodeSet"]
    for it in nodesets:
        if (other := it.take("clusterName", str, cluster.name)) != cluster.name:
            raise PostrenderError(
                f"{it.place('clusterName')} is {other!r}, and the SlurmCluster is {cluster.name!r}"
            )
    values = _cluster_values(cluster)
    if nodesets:
        values["nodesets"] = {it.name: _nodeset(it) for it in nodesets}
    values["partitions"] = _partitions(cluster, {it.name for it in nodesets})
    left = [it for source in (cluster, *nodesets) for it in source.left()]
    return Conversion(_without_empty(values), tuple(left))


def _listed(document: Any) -> Iterator[Manifest]:
    if isinstance(document, Mapping):
        items = document.get("items")
        yield from items if isinstance(items, list) else [document]


def _group(manifest: Any) -> str:
    known = isinstance(manifest, Mapping) and isinstance(manifest.get("kind"), str)
    return str(manifest.get("apiVersion", "")).partition("/")[0] if known else ""


def _source(manifest: Manifest) -> Source:
    kind = manifest["kind"]
    metadata, spec = manifest.get("metadata"), manifest.get("spec")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not NODESET.fullmatch(name):
        raise PostrenderError(f"{kind}: metadata.name is {name!r}, and not the name of a resource")
    if not isinstance(spec, Mapping):
        raise PostrenderError(f"{kind} {name}: spec is missing")
    return Source(kind, name, spec)


def _cluster_values(cluster: Source) -> Values:
    filters = _filters(cluster)
    nodes = "slurmNodes"
    return {
        "clusterName": cluster.name,
        "controller": {
            "slurmctld": _container(cluster, f"{nodes}.controller.slurmctld"),
            "podSpec": _pod(cluster, f"{nodes}.controller", filters),
            "persistence": _spool(cluster, f"{nodes}.controller.volumes.spool"),
            "metrics": _metrics(cluster, f"{nodes}.controller.openMetrics"),
            "extraConfMap": _slurm_conf(cluster),
            "extraConf": cluster.take("customSlurmConfig", str, ""),
        },
        "restapi": {
            "enabled": cluster.take(f"{nodes}.rest.enabled", bool, False),
            "replicas": cluster.take(f"{nodes}.rest.size", int),
            "slurmrestd": _container(cluster, f"{nodes}.rest.rest"),
            "podSpec": _pod(cluster, f"{nodes}.rest", filters),
        },
        "accounting": _accounting(cluster, f"{nodes}.accounting", filters),
        "loginsets": {"login": _login(cluster, f"{nodes}.login", filters)},
    }


def _filters(cluster: Source) -> dict[str, Values]:
    """Return what pods get by the name of a filter."""
    found = {}
    for it in cluster.take("k8sNodeFilters", Sequence, []):
        if not isinstance(it, Mapping) or not isinstance(it.get("name"), str):
            raise PostrenderError(f"{cluster.place('k8sNodeFilters')}: {it!r} has no name")
        fields = ("affinity", "tolerations", "nodeSelector")
        found[it["name"]] = {key: it[key] for key in fields if it.get(key)}
    return found


def _pod(source: Source, path: str, filters: Mapping[str, Values]) -> Values:
    name = source.take(f"{path}.k8sNodeFilterName", str, "")
    if name and name not in filters:
        raise PostrenderError(
            f"{source.place(path)}.k8sNodeFilterName: no filter {name!r} in spec.k8sNodeFilters"
        )
    return {
        **filters.get(name, {}),
        "priorityClassName": source.take(f"{path}.priorityClass", str),
        "initContainers": source.take(f"{path}.customInitContainers", Sequence),
    }


def _container(source: Source, path: str) -> Values:
    """Return a container of Slurm's daemons, whose limits have no CPUs, as Soperator's."""
    resources = source.take(f"{path}.resources", Mapping, {})
    limits = {key: value for key, value in resources.items() if key != "cpu"}
    return {
        "env": source.take(f"{path}.customEnv", Sequence),
        "resources": {"requests": dict(resources), "limits": limits},
    }


def _spool(source: Source, path: str) -> Values:
    claim = f"{path}.volumeClaimTemplateSpec"
    fields = ("storageClassName", "accessModes", "resources", "selector", "volumeMode")
    found = source.take(claim, Mapping, {})
    for key in found.keys() - set(fields):
        source.note(f"{claim}.{key}", "set `controller.persistence`")
    return {key: found[key] for key in fields if key in found}


def _metrics(source: Source, path: str) -> Values:
    monitor = f"{path}.serviceMonitor"
    times = {key: source.take(f"{monitor}.{key}", str) for key in ("interval", "scrapeTimeout")}
    return {
        "enabled": source.take(f"{path}.enabled", bool),
        "serviceMonitor": {"enabled": True, **times} if any(times.values()) else {},
    }


def _slurm_conf(source: Source) -> Values:
    """Return lines of slurm.conf; names of fields are those of Slurm, with a small first letter."""
    direct = ("defMemPerNode", "defCpuPerGPU", "completeWait", "maxJobCount", "minJobAge")
    found = {
        _title(key): source.take(f"slurmConfig.{key}", int) for key in (*direct, "messageTimeout")
    }
    found["TaskPluginParam"] = source.take("slurmConfig.taskPluginParam", str)
    accounting = "slurmNodes.accounting.slurmConfig"
    for key in source.take(accounting, Mapping, {}):
        found[_title(key)] = source.take(f"{accounting}.{key}", object)
    return found


def _title(key: str) -> str:
    return "TCPTimeout" if key == "tcpTimeout" else key[:1].upper() + key[1:]


def _accounting(source: Source, path: str, filters: Mapping[str, Values]) -> Values:
    database, inner = f"{path}.externalDB", f"{path}.mariadbOperator"
    external = source.take(f"{database}.enabled", bool, False)
    password = source.take(f"{database}.passwordSecretKeyRef", Mapping)
    embedded = source.take(f"{inner}.enabled", bool, False)
    lines = source.take(f"{path}.slurmdbdConfig", Mapping, {})
    storage = {
        "host": source.take(f"{database}.host", str),
        "port": source.take(f"{database}.port", int),
        "username": source.take(f"{database}.user", str),
        "passwordKeyRef": password,
    }
    parameters = source.take(f"{database}.storageParameters", Mapping, {})
    texts = [f"{key}={value}" for key, value in sorted(parameters.items())]
    found: Values = {
        "enabled": source.take(f"{path}.enabled", bool, False),
        "slurmdbd": _container(source, f"{path}.slurmdbd"),
        "podSpec": _pod(source, path, filters),
        "storageConfig": storage if external else {},
        "extraConfMap": {
            **{_title(key): value for key, value in lines.items()},
            "StorageParameters": ",".join(texts),
        },
    }
    if embedded:
        size = source.take(f"{inner}.storage.size", str)
        found["mariadb"] = {"enabled": True, "storage": size}
        source.note(inner, REASONS[f"SlurmCluster.{inner}"])
    return found


def _login(source: Source, path: str, filters: Mapping[str, Values]) -> Values:
    keys = source.take(f"{path}.sshRootPublicKeys", Sequence, [])
    ranges = source.take(f"{path}.sshdServiceLoadBalancerSourceRanges", Sequence)
    mounts, volumes, templates = _mounts(source, f"{path}.volumes", _sources(source))
    if templates:
        source.note(f"{path}.volumes", "login pods are of a Deployment: create these claims")
    return {
        "replicas": source.take(f"{path}.size", int),
        "login": {**_container(source, f"{path}.sshd"), "volumeMounts": mounts},
        "podSpec": {**_pod(source, path, filters), "volumes": volumes},
        "rootSshAuthorizedKeys": "".join(f"{key}\n" for key in keys),
        "service": {
            "metadata": {
                "annotations": source.take(f"{path}.sshdServiceAnnotations", Mapping),
            },
            "nodePort": source.take(f"{path}.sshdServiceNodePort", int),
            "spec": {
                "type": source.take(f"{path}.sshdServiceType", str),
                "loadBalancerIP": source.take(f"{path}.sshdServiceLoadBalancerIP", str),
                "loadBalancerSourceRanges": ranges,
            },
        },
    }


def _sources(cluster: Source) -> dict[str, Values]:
    """Return the volumes that mounts refer to by name."""
    found = {}
    for it in cluster.take("volumeSources", Sequence, []):
        if not isinstance(it, Mapping) or not isinstance(it.get("name"), str):
            raise PostrenderError(f"{cluster.place('volumeSources')}: {it!r} has no name")
        # Those of Soperator's chart have values of the chart too.
        others = {"name", "createPVC", "storageClassName", "size"}
        found[it["name"]] = {key: value for key, value in it.items() if key not in others}
    return found


Mounts = tuple[list[Values], list[Values], list[Values]]


def _mounts(source: Source, path: str, sources: Mapping[str, Values]) -> Mounts:
    """Return mounts, volumes and claim templates of the mounts in the jail and beside it."""
    mounts: list[Values] = []
    volumes: list[Values] = []
    templates: list[Values] = []
    for key in ("jailSubMounts", "customMounts", "customVolumeMounts"):
        for it in source.take(f"{path}.{key}", Sequence, []):
            if not isinstance(it, Mapping) or not {"name", "mountPath"} <= it.keys():
                raise PostrenderError(
                    f"{source.place(path)}.{key}: {it!r} has no name or mountPath"
                )
            mount = {"name": it["name"], "mountPath": it["mountPath"]}
            mounts.append(mount | {one: it[one] for one in ("subPath", "readOnly") if it.get(one)})
            if claim := it.get("volumeClaimTemplateSpec"):
                templates.append({"metadata": {"name": it["name"]}, "spec": claim})
                continue
            volume = it.get("volumeSource") or sources.get(it.get("volumeSourceName", ""))
            if not volume:
                raise PostrenderError(
                    f"{source.place(path)}.{key}: {it['name']!r} names no volume of "
                    "spec.volumeSources"
                )
            volumes.append({"name": it["name"], **volume})
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"].get("claimName")
                source.note(f"{path}.{key}", f"{claim}: {_CLAIM}")
    return mounts, volumes, templates


def _nodeset(nodeset: Source) -> Values:
    resources = dict(nodeset.take("slurmd.resources", Mapping, {}))
    gpus = resources.pop(GPU, None)
    mounts, volumes, templates = _mounts(nodeset, "slurmd.volumes", {})
    if size := nodeset.take("slurmd.volumes.sharedMemorySize", object):
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})  # noqa: S108
        memory = {"medium": "Memory", "sizeLimit": size}
        volumes.append({"name": "shared-memory", "emptyDir": memory})
    retention = "slurmd.volumes.persistentVolumeClaimRetentionPolicy"
    features = nodeset.take("nodeConfig.features", Sequence, [])
    return {
        "replicas": nodeset.take("replicas", int),
        "gpu": {"enabled": True, "count": _count(nodeset, gpus)} if _has_gpus(nodeset) else {},
        "slurmd": {
            "env": nodeset.take("slurmd.customEnv", Sequence),
            "resources": {"requests": resources, "limits": dict(resources)},
            "volumeMounts": mounts,
        },
        "podSpec": {
            "nodeSelector": nodeset.take("nodeSelector", Mapping),
            "affinity": nodeset.take("affinity", Mapping),
            "tolerations": nodeset.take("tolerations", Sequence),
            "priorityClassName": nodeset.take("priorityClass", str),
            "initContainers": nodeset.take("customInitContainers", Sequence),
            "volumes": volumes,
        },
        "volumeClaimTemplates": templates,
        "persistentVolumeClaimRetentionPolicy": nodeset.take(retention, Mapping),
        "updateStrategy": {
            "rollingUpdate": {"maxUnavailable": nodeset.take("maxUnavailable", object)}
        },
        "metadata": {"annotations": nodeset.take("workerAnnotations", Mapping)},
        "extraConfMap": {"Features": list(features)},
    }


def _has_gpus(nodeset: Source) -> bool:
    return bool(nodeset.take("gpu.enabled", bool, False))


def _count(nodeset: Source, gpus: Any) -> int:
    if not str(gpus).isdecimal() or not int(gpus):
        raise PostrenderError(
            f"{nodeset.place('slurmd.resources')}: gpu.enabled is set, and {GPU} is {gpus!r}: set "
            "their number"
        )
    return int(gpus)


def _partitions(cluster: Source, nodesets: set[str]) -> Values:
    path = "partitionConfiguration"
    kind = cluster.take(f"{path}.configType", str, "default")
    if kind == "default":
        return {name: _partition(["ALL"], line) for name, line in DEFAULT_PARTITIONS.items()}
    found = {}
    if kind == "structured":
        for it in cluster.take(f"{path}.partitions", Sequence, []):
            if not isinstance(it, Mapping) or not isinstance(it.get("name"), str):
                raise PostrenderError(f"{cluster.place(path)}.partitions: {it!r} has no name")
            refs = ["ALL"] if it.get("isAll") else list(it.get("nodeSetRefs") or ())
            found[it["name"]] = _partition(refs, str(it.get("config", "")))
    elif kind == "custom":
        for line in cluster.take(f"{path}.rawConfig", Sequence, []):
            words = str(line).split()
            options = dict(word.partition("=")[::2] for word in words)
            name = options.pop("PartitionName", "")
            if not name:
                raise PostrenderError(
                    f"{cluster.place(path)}.rawConfig: {line!r} has no PartitionName"
                )
            refs = [it for it in options.pop("Nodes", "").split(",") if it]
            rest = " ".join(f"{key}={value}" for key, value in options.items())
            found[name] = _partition(refs, rest)
    else:
        raise PostrenderError(
            f"{cluster.place(path)}.configType: {kind!r} is not default, custom or structured"
        )
    for name, partition in found.items():
        for ref in set(partition["nodesets"]) - nodesets - {"ALL"}:
            raise PostrenderError(
                f"{cluster.place(path)}: partition {name} has the NodeSet {ref!r}, which none of "
                "the files has"
            )
    return found


def _partition(nodesets: Sequence[str], line: str) -> Values:
    return {"enabled": True, "nodesets": list(nodesets), "config": line}


_GIVEN = frozenset(
    ("affinity", "annotations", "limits", "nodeSelector", "requests", "selector", "passwordKeyRef")
)
"""Values that are objects of Soperator's resources as they are: an empty label selects too."""


def _without_empty(value: Values) -> Values:
    """Return the values without keys that say nothing, at all levels of the chart's own."""
    inner = {
        key: _without_empty(it) if isinstance(it, dict) and key not in _GIVEN else it
        for key, it in value.items()
    }
    return {key: it for key, it in inner.items() if it not in (None, "", [], {})}


def text(found: Conversion) -> str:
    """Return a values file: first, in comments, what it lacks."""
    lines = ["# Values of the chart slurm, of a SlurmCluster of Soperator."]
    if found.left:
        lines.append("# Not converted:")
        lines += [f"# - {_comment(it.place)}: {_comment(it.reason)}" for it in found.left]
    return "\n".join(lines) + "\n" + writing.document(found.values)


def _comment(words: str) -> str:
    return " ".join(words.split())
