"""slurmctld: its configuration, Services and StatefulSet."""

from collections.abc import Sequence

from sidecars.workloads.facts import Facts
from sidecars.workloads.resources import Controller, Manifest, NodeSet


def objects(controller: Controller, nodesets: Sequence[NodeSet], facts: Facts) -> list[Manifest]:
    """ConfigMap, Services and StatefulSet, in the order to apply them; for an external Controller the ConfigMap alone.

    `nodesets` are those of the Controller's namespace that refer to it. Raises ResourceError for a Controller that
    can't be rendered and MissingReferenceError for one whose references aren't there yet.
    """
    raise NotImplementedError
