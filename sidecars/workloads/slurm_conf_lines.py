"""The operator's own lines of slurm.conf, section by section, and what a value needs to be part of
a line.
"""

import re
from collections.abc import Iterable, Sequence

from sidecars.contract import paths, ports
from sidecars.slurm.conf import Conf
from sidecars.workloads import gres, names, users
from sidecars.workloads.resources import Accounting, Controller, NodeSet, ResourceError
from sidecars.workloads.resources.specs import PowerSaving

MIN_MAX_NODE_COUNT = 1024
"""MaxNodeCount of a cluster with few declared replicas."""


_LOG = "/var/log/slurm"
_INTERVAL = "power_save_interval"

NO_LINES = Conf(())
"""Of a Controller whose extraConf sets nothing."""
_WORD = re.compile(r"[^\s#=\"\\,\[\]]+")


def max_node_count(nodesets: Iterable[NodeSet]) -> int:
    """Room in slurmctld's tables for twice the replicas that are declared, and for 1024 nodes at
    least.

    A NodeSet of mode DaemonSet counts with the pods that it last wanted, one with `autoscaling`
    with its maximum. Workers that a scale-in still has to drain count too: slurmctld 26.05 takes a
    higher MaxNodeCount on a reconfigure, and on a lower one forgets the nodes beyond it with their
    jobs.
    """
    declared = 0
    for nodeset in nodesets:
        wanted = (
            nodeset.status.desired
            if nodeset.spec.scaling_mode == "DaemonSet"
            else nodeset.spec.replicas
        )
        most = nodeset.spec.autoscaling.max if nodeset.spec.autoscaling is not None else 0
        declared += max(wanted, most, nodeset.status.replicas)
    return max(MIN_MAX_NODE_COUNT, 2 * declared)


def continued(line: str) -> bool:
    """Return whether a line's end continues it: an odd number of backslashes, where no comment
    is.
    """
    stripped = line.rstrip()
    return (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1


def unfit(value: str) -> str | None:
    """Return why a value can't be the rest of a line, None if it can."""
    if any(not character.isprintable() and character != "\t" for character in value):
        return "has a line break or another unprintable character: write it in one line"
    if continued(value):
        return "ends with a backslash, which would swallow the line that follows: remove it"
    return None


def is_word(value: str) -> bool:
    """Return whether a value is one word of a line."""
    return _WORD.fullmatch(value) is not None and value.isprintable()


def word(value: str, field: str) -> str:
    """Return a value that is one word of a line. Raises ResourceError."""
    if not is_word(value):
        raise ResourceError(
            field, f"{value!r} must be one word without spaces, quotes, `#`, `=`, `,` and brackets"
        )
    return value


def external_general(controller: Controller, *, ipv6: bool = False) -> list[str]:
    """Return the lines by which clients reach an external slurmctld. Raises ResourceError."""
    external = controller.spec.external_config
    if external is None:
        raise ResourceError(
            "spec.externalConfig", "must say where the external slurmctld is (host and port)"
        )
    return [
        f"ClusterName={word(controller.cluster_name, 'spec.clusterName')}",
        "SlurmUser=slurm",
        f"SlurmctldHost={word(external.host, 'spec.externalConfig.host')}",
        f"SlurmctldPort={external.port}",
        "AuthType=auth/slurm",
        "CredType=cred/slurm",
        "AuthAltTypes=auth/jwt",
        *(f"{key}={value}" for key, value in (IPV6 if ipv6 else {}).items()),
    ]


def general(controller: Controller, nodesets: Sequence[NodeSet]) -> list[str]:
    """Return the lines with names, hosts, ports and folders. Raises ResourceError."""
    pods = names.controller(controller.name)
    service = f"{names.controller_internal(controller.name)}.{controller.namespace}"
    cluster = word(controller.cluster_name, "spec.clusterName")
    return [
        f"ClusterName={cluster}",
        "SlurmUser=slurm",
        *(f"SlurmctldHost={pods}-{i}({pods}-{i}.{service})" for i in range(controller.replicas)),
        f"SlurmctldPort={ports.SLURMCTLD}",
        f"SlurmctldAddr={pods}.{controller.namespace}",
        f"StateSaveLocation={paths.STATE}/{cluster}",
        "SlurmdUser=root",
        f"SlurmdPort={ports.SLURMD}",
        "SlurmdSpoolDir=/var/spool/slurmd",
        f"MaxNodeCount={max_node_count(nodesets)}",
    ]


def return_to_service(extra_conf: Conf) -> list[str]:
    """Set which DOWN nodes slurmctld uses again, unless the Controller's extraConf sets it.

    With 1 these are workers that were cut off. With 2, a node that an administrator set DOWN is
    used again, too.
    """
    return [] if extra_conf.all("ReturnToService") else ["ReturnToService=1"]


def group_updates(controller: Controller, extra_conf: Conf) -> list[str]:
    """Set how often slurmctld reads the members of groups, where their changes restart nothing.
    Slurm's default is ten minutes.
    """
    if not users.overlays(controller) or extra_conf.all("GroupUpdateTime"):
        return []
    return [f"GroupUpdateTime={users.GROUP_UPDATE_SECONDS}"]


def saving_power(nodesets: Iterable[NodeSet]) -> list[PowerSaving]:
    """Return what the NodeSets with Slurm's power saving ask of it."""
    return [it.spec.power_saving for it in nodesets if it.spec.power_saving.enabled]


def power_saving(extra_conf: Conf, nodesets: Iterable[NodeSet]) -> list[str]:
    """Set Slurm's power saving, for NodeSets with it, without the keys that the Controller's
    extraConf sets.

    The programs do nothing: the state of a node is Slurm's request, and the operator acts on it.
    The global SuspendTime stops no node: the operator asks for that. Without it, power saving is
    off in a slurmctld that starts before any record exists. The rates are unlimited, because a
    request costs nothing: Slurm's default of 300 nodes a minute lets jobs wait.
    """
    found = saving_power(nodesets)
    if not found:
        return []
    ours = {
        "ResumeProgram": paths.NO_PROGRAM,
        "SuspendProgram": paths.NO_PROGRAM,
        "SuspendTime": "1000000000",
        "ResumeTimeout": str(max(it.start_seconds for it in found)),
        "ResumeRate": "0",
        "SuspendRate": "0",
        "SuspendExcStates": "EXTERNAL,DRAIN,FAIL,MAINTENANCE,PLANNED,RESERVED",
    }
    return [f"{key}={value}" for key, value in ours.items() if not extra_conf.all(key)]


AWAIT_SCRIPT = "await-nodes"
"""The script of the workloads folder that is PrologSlurmctld of clusters with power saving."""

AWAIT_FILE = "slurm-await-nodes"
"""Its name among the files of /etc/slurm."""


LOGGING = (
    f"SlurmctldLogFile={_LOG}/slurmctld.log",
    f"SlurmSchedLogFile={_LOG}/slurmctld.log",
    f"SlurmdLogFile={_LOG}/slurmd.log",
)


IPV6 = {"CommunicationParameters": "EnableIPv6"}
"""Of daemons and clients whose pods communicate by IPv6. They use IPv4 as well."""


def lists(
    controller: Controller,
    nodesets: Sequence[NodeSet] = (),
    extra_conf: Conf = NO_LINES,
    *,
    ipv6: bool = False,
) -> dict[str, str]:
    """Return the operator's values of keys that are lists. A user may add to them
    (`conf.merge_lists`).

    With ssh to workers, each job has a step on its nodes from its start that pam_slurm_adopt adds
    sessions to. It refuses all users without it.

    With power saving, slurmctld looks for nodes to start each second instead of each ten, unless
    the Controller's extraConf sets an interval.
    """
    daemon = ["enable_configless", "reconfig_on_restart"]
    own = (extra_conf.get("SlurmctldParameters") or "").lower().split(",")
    if saving_power(nodesets) and not any(it.startswith(f"{_INTERVAL}=") for it in own):
        daemon.append(f"{_INTERVAL}=1")
    jwks = ",jwks=/etc/slurm/jwks.json" if controller.spec.jwks_key_ref else ""
    return {
        "AuthAltParameters": f"jwt_key=/etc/slurm/jwt.key{jwks}",
        "AuthInfo": "use_client_ids",
        "SlurmctldParameters": ",".join(daemon),
        "GresTypes": gres.GRES_TYPES,
        **(IPV6 if ipv6 else {}),
        **(
            {"PrologFlags": "Contain"}
            if any(nodeset.spec.ssh.enabled for nodeset in nodesets)
            else {}
        ),
    }


def plugins(controller: Controller, lists: dict[str, str]) -> list[str]:
    """Plugins and their parameters. `lists`: see `lists`."""
    return [
        "AuthType=auth/slurm",
        "CredType=cred/slurm",
        "AuthAltTypes=auth/jwt",
        *(f"{key}={value}" for key, value in lists.items()),
        *(["MetricsType=metrics/openmetrics"] if controller.spec.metrics.enabled else []),
    ]


def constraints(extra_conf: Conf) -> list[str]:
    """Return the plugins that keep jobs within what they were given, without those that the
    Controller's extraConf sets.

    slurmd logs an error for a key that slurm.conf sets twice.
    """
    ours = {"TaskPlugin": "task/affinity,task/cgroup", "JobAcctGatherType": "jobacct_gather/cgroup"}
    return [f"{key}={value}" for key, value in ours.items() if not extra_conf.all(key)]


def accounting(accounting: Accounting | None) -> list[str]:
    """Set the address of slurmdbd. Raises ResourceError."""
    if accounting is None:
        return ["AccountingStorageType=accounting_storage/none"]
    external = accounting.spec.external_config if accounting.spec.external else None
    place = f"Accounting {accounting.name} spec.externalConfig.host"
    host = word(external.host, place) if external else names.accounting(accounting.name)
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={host}",
        f"AccountingStoragePort={external.port if external else ports.SLURMDBD}",
    ]
