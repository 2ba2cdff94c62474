"""Requests about partitions."""

from sidecars.slurm.protocol.fields import Fields
from sidecars.slurm.protocol.request import Request
from sidecars.slurm.records import Partition


def get_partitions() -> Request[tuple[Partition, ...]]:
    """All partitions."""
    return Request("GET", "partitions/", read=lambda answer: tuple(map(_partition, answer.items("partitions"))))


def _partition(partition: Fields) -> Partition:
    nodes = partition.nested("nodes")
    tier = partition.nested("priority").number_or_none("tier")
    return Partition(
        name=partition.text("name", required=True),
        states=frozenset(partition.nested("partition").words("state")),
        node_list=nodes.text("configured"),
        node_sets=partition.text("node_sets"),
        total_nodes=nodes.number("total"),
        tier=1 if tier is None else tier,
    )
