"""Requests about partitions."""

from collections.abc import Callable
from typing import Any, TypeVar

from sidecars.slurm.protocol.fields import Fields
from sidecars.slurm.protocol.request import Request
from sidecars.slurm.records import Partition

P = TypeVar("P", bound=Partition)


def get_partitions() -> Request[tuple[Partition, ...]]:
    """All partitions."""
    return Request("GET", "partitions/", read=lambda answer: tuple(map(_partition, answer.items("partitions"))))


def _partition(partition: Fields) -> Partition:
    return partition_of(Partition, partition)


def partition_of(kind: Callable[..., P], partition: Fields, **more: Any) -> P:
    """A partition of an answer as a Partition or a kind of it, which has `more` fields."""
    nodes = partition.nested("nodes")
    tier = partition.nested("priority").number_or_none("tier")
    return kind(
        name=partition.text("name", required=True),
        states=frozenset(partition.nested("partition").words("state")),
        node_list=nodes.text("configured"),
        node_sets=partition.text("node_sets"),
        total_nodes=nodes.number("total"),
        tier=1 if tier is None else tier,
        max_nodes=partition.nested("maximums").number_or_none("nodes"),
        **more,
    )
