"""Environment variables by which pod templates configure the sidecars, and their readers.

All of a role's variables are set by charts/slurm-operator/workloads, and the exporter's by
charts/slurm-exporter. The variables under "For tests" are not: their defaults are the values in a
pod.
"""

from collections.abc import Mapping
from typing import Final

# ---- Set in several roles
# ------------------------------------------------------------------------------------------

POD_NAME: Final = "POD_NAME"
"""metadata.name. In slurmctld's pod also the host's name in SlurmctldHost."""

POD_NAMESPACE: Final = "POD_NAMESPACE"
"""metadata.namespace"""

POD_UID: Final = "POD_UID"
"""metadata.uid"""

POD_IP: Final = "POD_IP"
"""status.podIP"""

NODESET_UID: Final = "NODESET_UID"
"""metadata.uid of the pod's NodeSet."""

# ---- node
# --------------------------------------------------------------------------------------------------

SLURM_NODE_NAME: Final = "SLURM_NODE_NAME"
"""Name of the pod's Slurm node."""

SLURMRESTD_URL: Final = "SLURMRESTD_URL"
"""Where slurmrestd answers, without a trailing slash."""

GRACE_SECONDS: Final = "TERMINATION_GRACE_SECONDS"
"""terminationGracePeriodSeconds of the pod."""

# ---- ldap
# --------------------------------------------------------------------------------------------------

LDAP_SETTINGS: Final = "LDAP_SETTINGS"
"""The file with the settings."""

LDAP_TARGET: Final = "LDAP_TARGET"
"""NAMESPACE/NAME of the Secret that the role keeps in step with the directory."""

LDAP_OWN: Final = "LDAP_OWN"
"""NAME/KEY of the Secret with the users that are declared beside the directory; unset without any.
"""

LDAP_PASSWORD_FILE: Final = "LDAP_PASSWORD_FILE"  # noqa: S105 - a name
"""The file with the password of the bind DN; unset without one."""

LDAP_CA_FILE: Final = "LDAP_CA_FILE"
"""The file with the CA of the directory's certificate; unset: those of the image."""

LDAP_READY: Final = "LDAP_READY"
"""The file that exists while the last pass succeeded."""

# ---- register
# --------------------------------------------------------------------------------------------------

NODESET_CONF: Final = "NODESET_CONF"
"""Items of slurmd's --conf that the NodeSet sets (`sidecars.slurm.nodeconf`)."""

CPUS: Final = "REGISTER_CPUS"
"""CPU limit of slurmd's container; 0 without one."""

MEMORY_MIB: Final = "REGISTER_MEMORY_MIB"
"""Memory limit of slurmd's container, or else of the pod, in MiB; 0 without one."""

POD_MEMORY_MIB: Final = "REGISTER_POD_MEMORY_MIB"
"""Memory limit of the pod as a whole in MiB; 0 without one."""

LIMITED: Final = ("slurmd", "node", "logfile")
"""The containers of every worker pod that run as long as the pod. The limits that Kubernetes has
given to each are set in variables of their own (`given_limits`).
"""


def given_limits(container: str) -> tuple[str, str]:
    """Return the variables with the limits of a container in thousandths of a CPU and in MiB, from
    the downward API.
    """
    name = container.upper()
    return f"REGISTER_{name}_LIMIT_MILLICPUS", f"REGISTER_{name}_LIMIT_MIB"


EXCLUSIVE_CPUS: Final = "REGISTER_EXCLUSIVE_CPUS"
"""true: if the kubelet has given CPUs of its own to the container, Slurm uses these. Not for
records of power saving, which exist before that is known.
"""

SLINKY_TOPOLOGY: Final = "SLINKY_TOPOLOGY"
"""Topology of the pod, as far as it is known when the container is created."""

KUBE_NODE_NAME: Final = "KUBE_NODE_NAME"
"""spec.nodeName"""

GPUS: Final = "REGISTER_GPUS"
"""Vendor of the GPUs that the NodeSet asks for: nvidia. Unset without GPUs."""

GPUS_EXPECTED: Final = "REGISTER_GPUS_EXPECTED"
"""How many GPUs the pod must have; empty for any number."""

GPUS_TYPE: Final = "REGISTER_GPUS_TYPE"
"""Type of the GPUs in Slurm; empty for the product's name."""

GPUS_ON_MISMATCH: Final = "REGISTER_GPUS_ON_MISMATCH"
"""Drain or Refuse: what happens with another number of GPUs than expected."""

# ---- logs
# --------------------------------------------------------------------------------------------------

LOGS_FOLDERS: Final = "LOGS_FOLDERS"
"""Folders in which output files of jobs may lie, one on each line: where the container has volumes
of slurmd's.
"""

LOGS_PRIVATE_FILES: Final = "LOGS_PRIVATE_FILES"
"""true: files are printed that only their owner or its group may read."""

LOGS_BYTES_PER_SECOND: Final = "LOGS_BYTES_PER_SECOND"
"""Bytes that are printed at most, averaged over a second."""

LOGS_BACKLOG_BYTES: Final = "LOGS_BACKLOG_BYTES"
"""Bytes of a file that may wait to be printed."""

# ---- reconfigure
# --------------------------------------------------------------------------------------------------

STATE_SAVE_LOCATION: Final = "STATE_SAVE_LOCATION"
"""slurmctld's StateSaveLocation."""

CONFIG_UPDATE: Final = "CONFIG_UPDATE"
"""Reconfigure or Recreate: the Controller's spec.configUpdate."""

START_GATE: Final = "START_GATE"
"""Folder of the start gate. Unset in a pod without one."""

# ---- exporter
# --------------------------------------------------------------------------------------------------

EXPORTER_TOKEN_FILE: Final = "EXPORTER_TOKEN_FILE"  # noqa: S105 - a variable's name
"""A file with a Slurm token, read before each request. Unset: tokens are signed with the key in
SLURM_JWT_KEY_FILE.
"""

EXPORTER_USER: Final = "EXPORTER_USER"
"""The Slurm user of the tokens that the exporter signs."""

EXPORTER_INTERVAL_SECONDS: Final = "EXPORTER_INTERVAL_SECONDS"
"""Seconds between two reads of the same data."""

EXPORTER_FAMILIES: Final = "EXPORTER_FAMILIES"
"""The families of metrics that are served, separated by commas."""

EXPORTER_NAME_SETS: Final = "EXPORTER_NAME_SETS"
"""Whose names metrics have, separated by commas: own, reference, vpenso."""

EXPORTER_MAX_JOBS: Final = "EXPORTER_MAX_JOBS"
"""The most jobs that get series of their own."""

EXPORTER_NODESETS: Final = "EXPORTER_NODESETS"
"""The NodeSets whose wanted replicas are computed, as JSON (`sidecars.exporter.declared`). Unset:
none.
"""

EXPORTER_EXTERNAL_METRICS_PORT: Final = "EXPORTER_EXTERNAL_METRICS_PORT"
"""The TCP port of the API external.metrics.k8s.io, over TLS. Unset: it is not served."""

EXPORTER_EXTERNAL_METRICS_CERTIFICATE_FILE: Final = "EXPORTER_EXTERNAL_METRICS_CERTIFICATE_FILE"
"""The certificate of that API."""

EXPORTER_EXTERNAL_METRICS_KEY_FILE: Final = "EXPORTER_EXTERNAL_METRICS_KEY_FILE"
"""The key of that certificate."""

EXPORTER_EXTERNAL_METRICS_CLIENT_CA: Final = "EXPORTER_EXTERNAL_METRICS_CLIENT_CA"
"""The authority of the API servers' client certificate, as PEM. Unset: every client may read."""

EXPORTER_EXTERNAL_METRICS_CLIENT_NAMES: Final = "EXPORTER_EXTERNAL_METRICS_CLIENT_NAMES"
"""The common names that this certificate may have, separated by commas. Unset: any."""

EXPORTER_NAMESPACE: Final = "EXPORTER_NAMESPACE"
"""The namespace of the NodeSets: that API answers for no other one."""

CHECK_FILE: Final = "CHECK_FILE"
"""A declared check, a JSON object (`sidecars.policy.checks.declared`)."""

CHECK_TOKEN_FILE: Final = "CHECK_TOKEN_FILE"  # noqa: S105 - a path
"""A token of SlurmUser, with which a check reads, drains and undrains nodes."""

CHECK_JOB_TOKEN_FILE: Final = "CHECK_JOB_TOKEN_FILE"  # noqa: S105 - a path
"""A token of the user of the check's jobs."""

CHECK_RESULTS: Final = "CHECK_RESULTS"
"""NAMESPACE/NAME of the ConfigMap with the results of checks."""

EXPORTER_CHECKS_FOLDER: Final = "EXPORTER_CHECKS_FOLDER"
"""The folder with the checks that run as Slurm jobs, and their results: NAME.json and NAME for
each.
"""

EXPORTER_PORT: Final = "EXPORTER_PORT"
"""The TCP port of /metrics, /healthz and /readyz."""

EXPORTER_TLS_CERTIFICATE_FILE: Final = "EXPORTER_TLS_CERTIFICATE_FILE"
"""The certificate to serve over TLS. Unset: plain HTTP."""

EXPORTER_TLS_KEY_FILE: Final = "EXPORTER_TLS_KEY_FILE"
"""The key of that certificate."""

# ---- For tests
# --------------------------------------------------------------------------------------------------

CANDIDATE_DIR: Final = "CANDIDATE_DIR"
KEYS_DIR: Final = "KEYS_DIR"
LIVE_DIR: Final = "LIVE_DIR"
CHECK_DIR: Final = "CHECK_DIR"
SLURM_NODE_DIR: Final = "SLURM_NODE_DIR"
SLURM_LOGS_DIR: Final = "SLURM_LOGS_DIR"
SLURM_JWT_KEY_FILE: Final = "SLURM_JWT_KEY_FILE"
SLURMD_PORT: Final = "SLURMD_PORT"
SLURMCTLD_PORT: Final = "SLURMCTLD_PORT"
STATUS_PORT: Final = "STATUS_PORT"

BY_ROLE: Final[Mapping[str, frozenset[str]]] = {
    "node": frozenset(
        {
            POD_NAME,
            POD_NAMESPACE,
            POD_UID,
            NODESET_UID,
            SLURM_NODE_NAME,
            SLURMRESTD_URL,
            GRACE_SECONDS,
        }
    ),
    "register": frozenset(
        {
            POD_NAME,
            POD_NAMESPACE,
            POD_UID,
            POD_IP,
            NODESET_UID,
            NODESET_CONF,
            CPUS,
            MEMORY_MIB,
            SLINKY_TOPOLOGY,
        }
        | {
            POD_MEMORY_MIB,
            EXCLUSIVE_CPUS,
            KUBE_NODE_NAME,
            GPUS,
            GPUS_EXPECTED,
            GPUS_TYPE,
            GPUS_ON_MISMATCH,
        }
        | {name for container in LIMITED for name in given_limits(container)}
    ),
    "logs": frozenset(
        {
            SLURM_NODE_NAME,
            LOGS_FOLDERS,
            LOGS_PRIVATE_FILES,
            LOGS_BYTES_PER_SECOND,
            LOGS_BACKLOG_BYTES,
        }
    ),
    "reconfigure": frozenset({POD_NAME, POD_IP, STATE_SAVE_LOCATION, CONFIG_UPDATE, START_GATE}),
}
"""The variables that the pod templates set for each role."""


def required(environment: Mapping[str, str], name: str) -> str:
    """Return the value. Raises ValueError, which names the variable, for one that isn't set or is
    empty.
    """
    value = environment.get(name, "")
    if not value:
        raise ValueError(f"{name} isn't set; the operator's pod template sets it")
    return value


def number(environment: Mapping[str, str], name: str, default: int) -> int:
    """Return the value as a whole number, or `default` if it isn't set or is empty. Raises
    ValueError for anything else.
    """
    text = environment.get(name, "") or str(default)
    if not text.isdecimal():
        raise ValueError(f"{name} is {text!r}: it must be a whole number")
    return int(text)


def described(role: str) -> list[tuple[str, str]]:
    """Return the variables that configure a role, each with its meaning, in the order of this
    module.
    """
    # Help alone needs them, and each worker pod would pay for them.
    import ast
    from itertools import pairwise
    from pathlib import Path

    found: dict[str, str] = {}
    body = ast.parse(Path(__file__).read_text(encoding="utf-8")).body
    for statement, after in pairwise(body):
        match statement, after:
            case (
                ast.AnnAssign(value=ast.Constant(value=str(name))),
                ast.Expr(value=ast.Constant(value=str(meaning))),
            ):
                found[name] = " ".join(meaning.split())
    for name in (name for container in LIMITED for name in given_limits(container)):
        found[name] = "A limit that Kubernetes has given to a container, from the downward API."
    own = BY_ROLE.get(role)
    prefix = f"{role.upper()}_"
    more = {SLURMRESTD_URL} if role == "exporter" else set()
    return [
        (name, meaning)
        for name, meaning in found.items()
        if (name in own if own is not None else name.startswith(prefix) or name in more)
    ]
