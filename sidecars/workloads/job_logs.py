"""Job logs: what the container `logs` of worker pods reads, and the prolog and epilog that announce
jobs to it.
"""

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from sidecars.contract import podfiles
from sidecars.workloads.resources import Json, NodeSet, ResourceError

SCRIPT = "job-logs"
"""The script of the workloads folder that is both prolog and epilog."""

FILE = "slurm-job-logs"
"""Its name among the files of /etc/slurm, from where slurmctld hands it to every slurmd."""

_WITHOUT_OUTPUT = ("configMap", "secret", "projected", "downwardAPI", "image")
"""Sources of volumes to which no job writes."""

_SYSTEM = (
    *map(
        PurePosixPath,
        (
            "/bin",
            "/dev",
            "/etc",
            "/lib",
            "/lib64",
            "/opt",
            "/proc",
            "/run",
            "/sbin",
            "/sys",
            "/usr",
        ),
    ),
    *map(PurePosixPath, ("/var/run", "/var/cache/slurm-containers")),
)
"""Folders that the container has of its own, or in which jobs write no output, such as that of
unpacked images.
"""


def is_on(nodesets: Iterable[NodeSet]) -> bool:
    """Return whether the workers of a NodeSet print the output of jobs."""
    return any(nodeset.spec.job_logs.enabled for nodeset in nodesets)


def overlays(nodeset: NodeSet) -> dict[str, bool]:
    """Return the overlays of slurmd.yaml for job logs, and whether this NodeSet needs them, in
    order.
    """
    logs = nodeset.spec.job_logs
    host_network = bool(nodeset.spec.template.spec.get("hostNetwork"))
    return {
        "logs": logs.enabled,
        "logs-private": logs.enabled and logs.private_files,
        "logs-hostnetwork": logs.enabled and host_network,
    }


def variables(nodeset: NodeSet) -> dict[str, Any]:
    """Return the variables of slurmd-logs.yaml. Raises ResourceError."""
    logs = nodeset.spec.job_logs
    if not logs.enabled:
        return {}
    mounts = _mounts(nodeset)
    own = {
        "name": "slurm-logs",
        "mountPath": str(PurePosixPath(podfiles.FOLDER, podfiles.JOBS).parent),
    }
    return {
        "logsFolders": "\n".join(mount["mountPath"] for mount in mounts),
        "logsPrivateFiles": "true" if logs.private_files else "false",
        "logsBytesPerSecond": str(logs.bytes_per_second),
        "logsBacklogBytes": str(logs.backlog_bytes),
        "logsMounts": [own, *mounts],
    }


def _mounts(nodeset: NodeSet) -> list[Json]:
    """Return the mounts of the slurmd container at which jobs may write, read-only, in their
    order.
    """
    volumes = {
        str(volume.get("name")): volume
        for volume in _maps(nodeset.spec.template.spec.get("volumes"), "spec.template.spec.volumes")
    }
    for template in nodeset.spec.volume_claim_templates or ():
        volumes[str((template.get("metadata") or {}).get("name"))] = {"persistentVolumeClaim": {}}
    found = []
    for mount in _maps(nodeset.spec.slurmd.get("volumeMounts"), "spec.slurmd.volumeMounts"):
        volume = volumes.get(str(mount.get("name")))
        path = PurePosixPath(str(mount.get("mountPath")))
        if volume is None or any(volume.get(source) for source in _WITHOUT_OUTPUT):
            continue
        # The container doesn't have slurmd's environment, from which `subPathExpr` is computed.
        if (
            mount.get("subPathExpr")
            or mount.get("readOnly")
            or any(path.is_relative_to(folder) for folder in _SYSTEM)
        ):
            continue
        kept = {key: mount[key] for key in ("name", "mountPath", "subPath") if mount.get(key)}
        # What slurmd sees of mounts of the host, for example by an automounter, is seen here, too.
        if mount.get("mountPropagation") in ("HostToContainer", "Bidirectional"):
            kept["mountPropagation"] = "HostToContainer"
        found.append(kept | {"readOnly": True})
    return found


def _maps(value: object, place: str) -> list[Json]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ResourceError(place, "must be a list of maps")
    return value
