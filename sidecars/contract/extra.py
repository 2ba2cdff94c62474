"""The worker pod of a Slurm node, in the node's `Extra`: JSON, so that jobs can select nodes by it
(--extra).

slurmd sends it when it registers (slurmd --extra). slurmctld uses it only to create the node
record. An existing record keeps the former text until the `node` container of the new pod writes
its own.
"""

import json
import re
from dataclasses import dataclass

_NAME = re.compile(r"(?!.{254})[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


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

    namespace_uid: str = ""
    """metadata.uid of the namespace, which no other Kubernetes cluster has; "" if the operator has
    not written it.

    It proves of a record for power saving whose NodeSet is gone that no other Kubernetes cluster
    has created it. A pod that claims such a record doesn't know it, and writes it again.
    """


def encode(facts: PodFacts) -> str:
    """Return the text for slurmd's --extra."""
    fields = {
        "podUid": facts.pod_uid,
        "pod": facts.pod,
        "namespace": facts.namespace,
        "nodeSetUid": facts.nodeset_uid,
        "namespaceUid": facts.namespace_uid,
    }
    present = {name: value for name, value in fields.items() if value or name == "podUid"}
    return json.dumps(present, separators=(",", ":"))


def pod_facts(extra: str) -> PodFacts | None:
    """Return the pod that a node's `extra` names, or None for a node without a pod, and for an
    `extra` that was changed.

    Administrators of Slurm, and whoever has its key, may write anything there: a name is one that
    an object of Kubernetes can have.
    """
    try:
        fields = json.loads(extra) if extra else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or not isinstance(fields.get("podUid"), str):
        return None
    text = {name: value for name, value in fields.items() if isinstance(value, str)}
    names = "pod", "namespace", "nodeSetUid", "namespaceUid"
    facts = PodFacts(text["podUid"], *(text.get(name, "") for name in names))
    return facts if are_names(facts.pod, facts.namespace) else None


def are_names(*texts: str) -> bool:
    """Return whether objects of Kubernetes can have these names, or "", which stands for none."""
    return all(not text or _NAME.fullmatch(text) for text in texts)
