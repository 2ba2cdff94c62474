"""The worker pod of a Slurm node, in the node's `Extra`: JSON, so that jobs can select nodes by it (--extra).

slurmd sends it when it registers (slurmd --extra). slurmctld uses it only to create the node record. An existing record
keeps the former text until the `node` container of the new pod writes its own.
"""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodFacts:
    """The pod of a Slurm node."""

    pod_uid: str
    """metadata.uid; "" for a record of the operator's that no pod has claimed yet."""

    pod: str = ""
    """metadata.name"""

    namespace: str = ""
    """metadata.namespace"""

    nodeset_uid: str = ""
    """metadata.uid of the pod's NodeSet; "" for a pod without one."""


def encode(facts: PodFacts) -> str:
    """The text for slurmd's --extra."""
    fields = {
        "podUid": facts.pod_uid,
        "pod": facts.pod,
        "namespace": facts.namespace,
        "nodeSetUid": facts.nodeset_uid,
    }
    present = {name: value for name, value in fields.items() if value or name == "podUid"}
    return json.dumps(present, separators=(",", ":"))


def pod_facts(extra: str) -> PodFacts | None:
    """The pod that a node's `extra` names; None for a node without a pod, and for an `extra` that was changed."""
    try:
        fields = json.loads(extra) if extra else None
    except ValueError:
        return None
    if not isinstance(fields, dict) or not isinstance(fields.get("podUid"), str):
        return None
    text = {name: value for name, value in fields.items() if isinstance(value, str)}
    return PodFacts(text["podUid"], text.get("pod", ""), text.get("namespace", ""), text.get("nodeSetUid", ""))
