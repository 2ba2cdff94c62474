"""Requests about partitions."""

from collections.abc import Callable
from typing import Any, TypeVar

from sidecars.slurm.protocol.fields import Fields
from sidecars.slurm.protocol.request import Request
from sidecars.slurm.records import Partition

P = TypeVar("P", bound=Partition)

NOT_SHARED = ("", "NO", "EXCLUSIVE", "YES:1")
"""What a partition shows in which no two jobs have the same core."""


def get_partitions() -> Request[tuple[Partition, ...]]:
    """Return all partitions."""
    return Request(
        "GET", "partitions/", read=lambda answer: tuple(map(_partition, answer.items("partitions")))
    )


def _partition(partition: Fields) -> Partition:
    return partition_of(Partition, partition)


def partition_of(kind: Callable[..., P], partition: Fields, **more: Any) -> P:
    """Return a partition of an answer as a Partition or a kind of it, which has `more` fields."""
    nodes, most = partition.nested("nodes"), partition.nested("maximums")
    own = partition.nested("partition")
    exclusive, oversubscribe = own.text("exclusive"), own.text("oversubscribe")
    tier = partition.nested("priority").number_or_none("tier")
    return kind(
        name=partition.text("name", required=True),
        states=frozenset(own.words("state")),
        node_list=nodes.text("configured"),
        node_sets=partition.text("node_sets"),
        total_nodes=nodes.number("total"),
        tier=1 if tier is None else tier,
        max_nodes=most.number_or_none("nodes"),
        max_cpus_per_node=most.number_or_none("cpus_per_node"),
        min_nodes=partition.nested("minimums").number("nodes"),
        exclusive=exclusive if exclusive in ("NODE", "USER") else "",
        oversubscribe=oversubscribe.partition(":")[0] if oversubscribe not in NOT_SHARED else "",
        **more,
    )
