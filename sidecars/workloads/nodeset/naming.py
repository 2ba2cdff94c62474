"""The names of a NodeSet's pods, of their hosts and Slurm nodes, and the labels that select
them.
"""

import re

from sidecars.workloads import names
from sidecars.workloads.facts import digest
from sidecars.workloads.resources import NodeSet, ResourceError

LABEL_LIMIT = 63
"""Characters of a DNS label, such as a hostname."""

_DIGEST = 10

NUMBER = "at most 18 digits at its end, which Slurm reads as a number"
_LARGE_NUMBER = re.compile(r"[1-9][0-9]{18,}\Z")
_HOSTNAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def pod_name(nodeset: NodeSet, ordinal: int) -> str:
    """Return the name of an ordinal's pod."""
    return f"{nodeset.name}-{index(nodeset, ordinal)}"


def daemon_pod_name(nodeset: NodeSet, kube_node: str) -> str:
    """Return the name of the pod for a Kubernetes node. It is always the same, so that no second
    pod can be created.
    """
    head = nodeset.name[: LABEL_LIMIT - 1 - _DIGEST]
    return f"{head}-{digest(f'{nodeset.name}/{kube_node}')[:_DIGEST]}"


def hostname(nodeset: NodeSet, ordinal: int) -> str:
    """Return the hostname, and with it the Slurm node name, of an ordinal's pod that doesn't use
    the host's network.
    """
    prefix = nodeset.spec.template.spec.get("hostname")
    return f"{prefix}{index(nodeset, ordinal)}" if prefix else pod_name(nodeset, ordinal)


def ordinal_of(nodeset: NodeSet, name: str) -> int | None:
    """Return the ordinal with this hostname, or None if none has it."""
    number = name.removeprefix(hostname(nodeset, 0).removesuffix(index(nodeset, 0)))
    found = int(number) if number.isdecimal() and len(number) <= LABEL_LIMIT else -1
    return found if found >= 0 and hostname(nodeset, found) == name else None


def selector(nodeset: NodeSet) -> dict[str, str]:
    """Return the labels that select this NodeSet's pods."""
    return {names.APP_INSTANCE: nodeset.name, names.APP_NAME: "slurmd"}


def index(nodeset: NodeSet, ordinal: int) -> str:
    """Return the ordinal as text, padded with zeros to spec.ordinalPadding."""
    return f"{ordinal:0{nodeset.spec.ordinal_padding}d}"


def is_hostname(text: str) -> bool:
    """Return whether a pod can have this hostname, and Slurm a node of this name.

    Slurm reads digits at the end as a number, and those of too large ones as the same number.
    """
    fits = len(text) <= LABEL_LIMIT and _LARGE_NUMBER.search(text) is None
    return fits and _HOSTNAME.fullmatch(text) is not None


def check_hostname(nodeset: NodeSet) -> None:
    """Raise ResourceError if the hostnames of the first or the last ordinal are not valid in
    DNS.
    """
    if nodeset.spec.scaling_mode == "DaemonSet":
        return
    for ordinal in {0, max(0, nodeset.spec.replicas - 1)}:
        host = hostname(nodeset, ordinal)
        if not is_hostname(host):
            raise ResourceError(
                "spec.template.spec.hostname",
                f"pods would be called {host!r}: use lower-case letters, digits and '-', "
                f"at most {LABEL_LIMIT} characters with the ordinal, and {NUMBER}",
            )
