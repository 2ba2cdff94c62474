"""topology.yaml of a Controller with `topologies`, whose switches and blocks are labels of
Kubernetes nodes.

slurmctld creates the switches of a tree from the path with which a node registers, so that the file
has only their root. It creates no blocks: the file lists them
(https://slurm.schedmd.com/topology.yaml.html).
"""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

import yaml

from sidecars.workloads.resources import Topology

FILE = "topology.yaml"
FORMER_FILE = "topology.conf"
"""The one without topology.yaml."""

Blocks = Mapping[str, Collection[str]]
"""Names of blocks by topology."""

NO_BLOCKS: Blocks = MappingProxyType({})


def root(topology: Topology) -> str:
    """Return the switch of a tree that all others are below."""
    return topology.name


def elsewhere(topology: Topology) -> str:
    """Return the switch of a tree for workers whose place the labels don't tell."""
    return f"{topology.name}-other"


def nowhere(topology: str) -> str:
    """Return the empty block of a block topology without others."""
    return f"{topology}-none"


def render(topologies: Sequence[Topology], blocks: Blocks) -> str:
    """Return the file. A block topology without blocks has an empty one, for slurmctld refuses to
    start without any.
    """
    found: list[dict[str, object]] = []
    for topology in topologies:
        kind: dict[str, object]
        if topology.block is not None:
            names = sorted(blocks.get(topology.name, ())) or [nowhere(topology.name)]
            kind = {
                "block": {
                    "block_sizes": topology.block.sizes,
                    "blocks": [{"block": name} for name in names],
                }
            }
        else:
            kind = {"tree": {"switches": [{"switch": root(topology)}]}}
        found.append(
            {"topology": topology.name, "cluster_default": topology.cluster_default, **kind}
        )
    return yaml.safe_dump(found, sort_keys=False)


@lru_cache(maxsize=64)
def places(text: str) -> Mapping[str, frozenset[str] | None] | None:
    """Return the switches and blocks that a topology.yaml names, by topology, or None for one of
    another type, such as flat.

    None for a text that isn't a topology.yaml.
    """
    try:
        content = yaml.safe_load(text)
        return {it["topology"]: _named(it) for it in content}
    except (yaml.YAMLError, TypeError, KeyError, AttributeError):
        return None


def _named(topology: Mapping[str, object]) -> frozenset[str] | None:
    for kind, many, one in (("tree", "switches", "switch"), ("block", "blocks", "block")):
        found = topology.get(kind)
        if isinstance(found, dict):
            names = frozenset(str(it[one]) for it in found.get(many) or ())
            return None if any("[" in name for name in names) else names
    return None
