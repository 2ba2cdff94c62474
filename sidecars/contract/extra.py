"""What a worker pod says about itself in its Slurm node's `Extra`: JSON, so that Slurm's --extra filters can use it.

slurmd brings it (slurmd --extra), but it counts at the creation of the record only: while a record exists, a successor
of the same name leaves it as it is, until the pod's `node` writes its own.
"""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodFacts:
    """The pod behind a Slurm node. `nodeset_uid` is "" for a pod that no NodeSet made."""

    pod_uid: str
    pod: str = ""
    namespace: str = ""
    nodeset_uid: str = ""


def encode(facts: PodFacts) -> str:
    """The text for slurmd's --extra."""
    fields = {
        "podUid": facts.pod_uid,
        "pod": facts.pod,
        "namespace": facts.namespace,
        "nodeSetUid": facts.nodeset_uid,
    }
    return json.dumps({name: value for name, value in fields.items() if value}, separators=(",", ":"))


def pod_facts(extra: str) -> PodFacts | None:
    """What a node's `extra` says; None for a node that isn't one of our pods, or whose `extra` somebody changed."""
    try:
        fields = json.loads(extra) if extra else None
    except ValueError:
        return None
    if not isinstance(fields, dict) or not isinstance(fields.get("podUid"), str):
        return None
    text = {name: value for name, value in fields.items() if isinstance(value, str)}
    return PodFacts(text["podUid"], text.get("pod", ""), text.get("namespace", ""), text.get("nodeSetUid", ""))
