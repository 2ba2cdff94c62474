"""Node health: the ConfigMap with Slurm's HealthCheckProgram, and the lines of slurm.conf that name
it.

The program and its checks are the files `health-*.sh` of the workloads folder. They can't be served
to slurmd by slurmctld: a program must be there where slurmd runs.
https://slurm.schedmd.com/slurm.conf.html#OPT_HealthCheckProgram
"""

from collections.abc import Iterable

from sidecars.contract import paths
from sidecars.slurm.conf import Conf
from sidecars.workloads import gres, names
from sidecars.workloads.resources import Json, Manifest, NodeSet, ResourceError
from sidecars.workloads.structure import Workloads

PROGRAM = f"{paths.HEALTH}/run"
INTERVAL_SECONDS = 75
"""More than Slurm's HealthCheckTimeout of 60 s, or Slurm logs an error. A smaller
HealthCheckTimeout can't be written: daemons of Slurm 25.11, which may still run during an upgrade,
end on this key.
"""

XIDS = (46, 48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 142, 143, 151, 158)
"""Errors after which a GPU needs a reset, a reboot or a repair (https://docs.nvidia.com/deploy/xid-errors/)."""

_SCRIPTS = "health-"
_CHECK = "check-"
_GPU = "gpu-"


def is_on(nodeset: NodeSet) -> bool:
    """Return whether the NodeSet's workers are checked: `health.enabled`, and by default those with
    GPUs.
    """
    enabled = nodeset.spec.health.enabled
    return nodeset.spec.gpu.enabled if enabled is None else enabled


def slurm_conf(extra_conf: Conf, nodesets: Iterable[NodeSet]) -> list[str]:
    """Return the lines of slurm.conf, none where no NodeSet is checked, or the Controller's
    extraConf sets a program. What extraConf sets is omitted, because slurmd logs an error for a key
    that slurm.conf sets twice.
    """
    if extra_conf.all("HealthCheckProgram") or not any(is_on(nodeset) for nodeset in nodesets):
        return []
    interval = (
        [] if extra_conf.all("HealthCheckInterval") else [f"HealthCheckInterval={INTERVAL_SECONDS}"]
    )
    return [f"HealthCheckProgram={PROGRAM}", *interval]


def config_map(nodeset: NodeSet, limits: Json, workloads: Workloads) -> Manifest:
    """Return the ConfigMap with the program, its settings and its checks, without an owner.

    Where the workers aren't checked the program has nothing to do but to lift the drain that it
    left. `limits` are the slurmd container's own. Raises ResourceError.
    """
    scripts = {
        name.removeprefix(_SCRIPTS): text
        for name, text in workloads.scripts.items()
        if _is_ours(name)
    }
    health = nodeset.spec.health
    own = {f"{_CHECK}{name}": text for name, text in (health.checks or {}).items()}
    for name in own:
        if name in scripts:
            raise ResourceError(
                "spec.health.checks", f"{name.removeprefix(_CHECK)} is a check of the operator's"
            )
    skipped = {f"{_CHECK}{name}" for name in health.skip or ()}
    for name in sorted(skipped - scripts.keys() - own.keys()):
        checks = ", ".join(
            found.removeprefix(_CHECK)
            for found in sorted({**scripts, **own})
            if found.startswith(_CHECK)
        )
        raise ResourceError(
            "spec.health.skip", f"{name.removeprefix(_CHECK)!r} is none of the checks: {checks}"
        )
    run = [
        name.removeprefix(_CHECK)
        for name in sorted({**scripts, **own})
        if is_on(nodeset)
        and name.startswith(_CHECK)
        and name not in skipped
        and (nodeset.spec.gpu.enabled or not _is_gpu(name, own))
    ]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{nodeset.name}-health",
            "labels": {
                names.APP_NAME: "slurmd",
                names.APP_INSTANCE: nodeset.name,
                names.APP_COMPONENT: "worker",
                names.CLUSTER: nodeset.spec.controller_ref.name,
            },
        },
        "data": {**scripts, **own, "settings": _settings(nodeset, run, limits)},
    }


def _is_ours(name: str) -> bool:
    return name.startswith(_SCRIPTS)


def _is_gpu(name: str, own: Iterable[str]) -> bool:
    return name.startswith(f"{_CHECK}{_GPU}") and name not in own


def _settings(nodeset: NodeSet, checks: Iterable[str], limits: Json) -> str:
    """Write assignments of sh. What a user may write has no character that means anything to a
    shell: see the CRD.
    """
    health, gpu = nodeset.spec.health, nodeset.spec.gpu
    values: dict[str, str | int] = {
        "CHECKS": " ".join(checks),
        "CHECK_SECONDS": health.check_seconds,
        "DISKS": " ".join(
            health.disks if health.disks is not None else ("/", "/tmp", "/var/spool/slurmd")  # noqa: S108
        ),
        "DISK_FREE_PERCENT": health.disk_free_percent,
        "MEMORY_FREE_PERCENT": health.memory_free_percent,
        "PATHS": " ".join(health.paths or ()),
        "XIDS": " ".join(map(str, health.xids if health.xids is not None else XIDS)),
    }
    if gpu.enabled:
        values["GPUS"] = gpu.expected if gpu.expected is not None else gres.count(nodeset, limits)
        values["MIG"] = int("/mig-" in gpu.resource_name)
    for name, value in values.items():
        if "'" in str(value):
            raise ResourceError("spec.health", f"{value!r} may contain no quote ({name})")
    return "".join(f"{name}='{value}'\n" for name, value in values.items())
