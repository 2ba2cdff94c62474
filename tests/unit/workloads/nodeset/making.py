"""Worker pods as the tests of this folder make them."""

from typing import Any

from sidecars.workloads import nodeset as render
from sidecars.workloads.resources import Controller, Manifest, NodeSet
from tests.support import builders
from tests.support.builders import controller, nodeset

SLINKY: dict[str, Any] = {
    "template": {"spec": {"hostname": "slinky-", "nodeSelector": {"kubernetes.io/os": "linux"}}}
}

SSH: dict[str, Any] = {
    "ssh": {"enabled": True, "extraSshdConfig": "MaxAuthTries 2", "sssdConfRef": builders.SSSD}
}

CLAIM: dict[str, Any] = {
    "metadata": {"name": "data", "labels": {"a": "b"}},
    "spec": {"accessModes": ["ReadWriteOnce"]},
}


def pod(
    of: NodeSet | None = None, ordinal: int = 0, cluster: Controller | None = None, **facts: Any
) -> Manifest:
    """The pod of an ordinal."""
    found = builders.facts(**facts)
    wanted = of or nodeset(**SLINKY)
    template = render.pod_template(wanted, cluster or controller(), found)
    return render.pod(wanted, template, ordinal, "abc")


def hostnamed(prefix: str, **spec: Any) -> NodeSet:
    """A NodeSet with this prefix of hostnames."""
    return nodeset(template={"spec": {"hostname": prefix}}, **spec)
