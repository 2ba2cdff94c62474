"""Whether a NodeSet may have its GPUs, from what is known of the Kubernetes nodes."""

from sidecars.operator.core import gpus
from sidecars.operator.runtime.runtime import Runtime
from sidecars.workloads.resources import Manifest, NodeSet


def refusal(runtime: Runtime, nodeset: NodeSet, template: Manifest) -> str:
    """Return why the NodeSet may not have pods of this template, with the remedy, "" when it
    may.
    """
    if not nodeset.spec.gpu.enabled:
        return ""
    nodes = runtime.caches.kube_nodes.store.values()
    used = {pod.spec.node_name for pod in runtime.caches.pods.store.by("owner", nodeset.own_id)}
    return gpus.refusal(nodeset, template, nodes, used)
