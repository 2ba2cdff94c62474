"""A record of the pod's own that has more than its slurmd is about to register.

A pod survives the restart of its Kubernetes node, and so does its record. If the host has come back
with less memory, or with a GPU less, slurmctld would drain the node as soon as slurmd registers,
for as long as the record exists.
"""

from collections import Counter

from sidecars.contract.reasons import is_kept
from sidecars.contract.shape import Shape
from sidecars.node.records import Probe
from sidecars.node.stepping import Step
from sidecars.slurm import gres, owners
from sidecars.slurm.records import Node

_WAIT_SECONDS = 0.5
"""Seconds between two reads of the record while `register` has not written what slurmd will
register.
"""
_OWN_HOST = "127.0.0.1"


def is_replaced(this: Step, node: Node) -> bool:
    """Return whether phase CLAIM doesn't keep this record of the pod's own, because it is too
    large. slurmd must not run yet.

    Then its deletion begins with a probe of slurmd's port. Until `register` has written what slurmd
    will register, the record is read again.
    """
    # slurmd can't create a record for power saving, which the operator replaces.
    if "CLOUD" in node.states or owners.why_retained(node) or is_kept(node.reason):
        return False
    if this.seen.shape is None:
        this.sleep(_WAIT_SECONDS)
        return True
    found = shortage(node, this.seen.shape)
    if found:
        this.log(f"replacing this pod's record, which has more than slurmd will register: {found}")
        this.state.record = node
        this.call(Probe(_OWN_HOST, this.settings.slurmd_port))
    return bool(found)


def owner(this: Step) -> str:
    """Describe in words whose the record is that phase CLAIM deals with."""
    node = this.state.record
    return (
        "this pod's"
        if node is not None and owners.belongs_to(node, this.settings.pod_uid)
        else "an earlier pod's"
    )


def shortage(node: Node, shape: Shape) -> str:
    """Describe in words what the record has more of. Return "" if slurmctld would accept this
    shape.
    """
    found = []
    if shape.cpus is not None and shape.cpus < node.cpus:
        found.append(f"{shape.cpus} of {node.cpus} CPUs")
    if shape.memory is not None and shape.memory < node.real_memory:
        found.append(f"{shape.memory} of {node.real_memory} MiB")
    if shape.gres is not None:
        now, before = _counts(shape.gres), _counts(node.gres)
        found += [
            f"{now[name]} of {count} {name}"
            for name, count in sorted(before.items())
            if now[name] < count
        ]
    return ", ".join(found)


def _counts(text: str) -> Counter[str]:
    """Count each resource, with and without its type. Return no counts where the text can't be
    read.
    """
    counts: Counter[str] = Counter()
    try:
        items = gres.parse(text)
    except gres.GresError:
        return counts
    for item in items:
        counts[item.name] += item.count
        if item.type:
            counts[f"{item.name}:{item.type}"] += item.count
    return counts
