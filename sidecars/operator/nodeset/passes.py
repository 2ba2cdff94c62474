"""What the steps of one pass over a NodeSet share."""

from dataclasses import dataclass

from sidecars.kube import Manifest
from sidecars.operator.nodeset.memories import Memories, Memory
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.conditions import Condition
from sidecars.workloads.resources import NodeSet


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over one NodeSet."""

    runtime: Runtime
    memory: Memory
    key: Key
    manifest: Manifest
    """The NodeSet as the API server has it."""
    nodeset: NodeSet
    cluster: Cluster | None
    """Its Slurm cluster; None while the operator isn't connected to it."""
    memories: Memories
    """Those of all NodeSets."""

    @property
    def controller(self) -> Key:
        """Namespace and name of its Controller."""
        return self.nodeset.namespace, self.nodeset.spec.controller_ref.name


@dataclass(frozen=True, slots=True)
class PodSource:
    """What new pods are created from."""

    revision: str
    """Hash of the revision."""
    collisions: int | None
    """How many other contents had the same hash."""
    template: Manifest | None
    """The pod template; None while no pod can be created."""
    problem: Condition | None = None
    """Why no template exists, or why it is not that of the newest revision."""
    look_again: float | None = None
    """Seconds until time alone may have changed `problem`."""
    failure: NotUsableError | None = None
    """The error behind `problem`."""
