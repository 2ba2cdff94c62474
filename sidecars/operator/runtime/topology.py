"""The topologies of a Controller with the labels of all Kubernetes nodes, which Controllers and
worker pods share.
"""

from collections.abc import Callable, Sequence

from sidecars import objects
from sidecars.operator.core import topology as core
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.workloads import config_maps, names
from sidecars.workloads import topology as files
from sidecars.workloads.resources import Controller, Manifest, ResourceError, Topology


def topologies_of(runtime: Runtime, controller: Key) -> Sequence[Topology]:
    """Return the topologies of a Controller, none while it doesn't exist or can't be read, and for
    an external one.
    """
    try:
        found = runtime.lookup.controller(*controller)
    except ResourceError:
        return ()
    return found.spec.topologies if found is not None and not found.spec.external else ()


def line(runtime: Runtime, controller: Key, node: objects.Node) -> core.Line | None:
    """Return the place of the workers of a Kubernetes node, None if the Controller has no
    topologies.
    """
    topologies = topologies_of(runtime, controller)
    if not topologies:
        return None
    where = runtime.switches.of(runtime.caches, controller, topologies)
    known = _blocks_of_file(runtime, controller, names.accepted_config)
    return core.line(topologies, node.metadata.labels, where, known)


def wanted_blocks(runtime: Runtime, controller: Controller) -> files.Blocks:
    """Return the blocks that topology.yaml is to have: those of labels, and those that it has.

    It keeps those whose Kubernetes nodes are gone: slurmctld ends if a Slurm node is in a block
    that it doesn't have.
    """
    topologies = controller.spec.topologies
    if all(it.block is None for it in topologies):
        return {}
    found = core.blocks(
        topologies, (node.metadata.labels for node in runtime.caches.kube_nodes.store.values())
    )
    published = _blocks_of_file(runtime, (controller.namespace, controller.name), names.config)
    for name, blocks in found.items():
        blocks.update(set(published.get(name) or ()) - {files.nowhere(name)})
    return found


def _blocks_of_file(
    runtime: Runtime, controller: Key, config_map: Callable[[str, int], str]
) -> dict[str, frozenset[str]]:
    namespace, name = controller
    for index in range(config_maps.CONFIG_MAPS):
        manifest: Manifest = (
            runtime.caches.own_config_maps.store.get(namespace, config_map(name, index)) or {}
        )
        text = (manifest.get("data") or {}).get(files.FILE)
        if text is not None:
            return {
                topology: places
                for topology, places in (files.places(text) or {}).items()
                if places is not None
            }
    return {}
