"""Which lists count at once, and which only when they stay so."""

import pytest

from sidecars.exporter.doubt import Doubt, Suspect
from sidecars.exporter.metrics import Source
from sidecars.exporter.wanted import Cluster
from sidecars.slurm.node_cache import CONFIRM_AFTER
from sidecars.slurm.records import Node, Partition, QueuedJob, QueuedJobs
from sidecars.slurm.usage import JobUsage, JobUsages, NodeUsage, NodeUsages


def nodes(count: int) -> NodeUsages:
    return NodeUsages(
        tuple(NodeUsage(Node(f"n{number}", frozenset({"IDLE"}))) for number in range(count)), 0
    )


def jobs(*states: str) -> JobUsages:
    return JobUsages(
        tuple(JobUsage(number, frozenset({state})) for number, state in enumerate(states)), 0
    )


def cluster(count: int, jobs: int = 0, partitions: int = 1) -> Cluster:
    return Cluster(
        QueuedJobs(tuple(QueuedJob(number, frozenset({"PENDING"})) for number in range(jobs)), 0),
        tuple(it.node for it in nodes(count).nodes),
        tuple(Partition(f"p{number}") for number in range(partitions)),
        (),
    )


@pytest.mark.parametrize(
    ("source", "former", "found", "why"),
    [
        (Source.NODES, None, nodes(0), "no node at all"),
        (Source.NODES, nodes(2), nodes(0), "2 of 2 nodes vanished"),
        (Source.NODES, nodes(9), nodes(4), "5 of 9 nodes vanished"),
        (Source.JOBS, jobs("RUNNING", "PENDING", "COMPLETED"), jobs(), "2 were not finished"),
        (Source.PARTITIONS, (Partition("all"),), (), "no partition at all"),
        (Source.AUTOSCALING, None, cluster(0), "no node at all"),
        (Source.AUTOSCALING, cluster(3), cluster(0), "3 of 3 nodes vanished"),
        (Source.AUTOSCALING, cluster(3, 2), cluster(3), "no job at all"),
        (Source.AUTOSCALING, cluster(3), cluster(3, partitions=0), "no partition at all"),
    ],
)
def test_a_list_that_lacks_too_much_counts_when_it_stays_so(
    source: Source, former: object, found: object, why: str
) -> None:
    doubt = Doubt(source)
    for now in (0.0, CONFIRM_AFTER - 1):
        with pytest.raises(Suspect, match=why):
            doubt.check(former, found, now)
        assert doubt.raised
    doubt.check(former, found, CONFIRM_AFTER)
    assert not doubt.raised


@pytest.mark.parametrize(
    ("source", "former", "found"),
    [
        (Source.NODES, None, nodes(1)),
        (Source.NODES, nodes(3), nodes(1)),
        (Source.NODES, nodes(8), nodes(4)),
        (Source.NODES, nodes(0), nodes(0)),
        (Source.JOBS, None, jobs()),
        (Source.JOBS, jobs("COMPLETED"), jobs()),
        (Source.JOBS, jobs("RUNNING", "RUNNING"), jobs("COMPLETED")),
        (Source.LICENSES, ("matlab",), ()),
        (Source.RESERVATIONS, ("maintenance",), ()),
    ],
)
def test_any_other_list_counts_at_once(source: Source, former: object, found: object) -> None:
    doubt = Doubt(source)
    doubt.check(former, found, 0.0)
    assert not doubt.raised


def test_a_good_list_ends_the_doubt_and_the_next_bad_one_begins_another() -> None:
    doubt = Doubt(Source.NODES)
    with pytest.raises(Suspect):
        doubt.check(nodes(2), nodes(0), 0.0)
    doubt.check(nodes(2), nodes(2), 30.0)
    with pytest.raises(Suspect):
        doubt.check(nodes(2), nodes(0), CONFIRM_AFTER)
