"""Which node records jobs and reservations name: `sidecars.slurm.naming`."""

import pytest

from sidecars.slurm.errors import Malformed
from sidecars.slurm.job_states import ENDED
from sidecars.slurm.naming import named_nodes
from sidecars.slurm.records import Job, Reservation


def job(number: int, *states: str, nodes: str) -> Job:
    return Job(number, states=frozenset(states), required_nodes=nodes)


def test_a_job_names_each_node_of_its_node_list_while_it_waits_runs_or_may_be_requeued() -> None:
    for states in (
        ("PENDING",),
        ("RUNNING",),
        ("SUSPENDED",),
        ("RUNNING", "CONFIGURING"),
        ("NODE_FAIL", "COMPLETING"),
        ("PENDING", "LAUNCH_FAILED"),
    ):
        assert named_nodes([job(17, *states, nodes="w-[1-2],x")], ()) == dict.fromkeys(
            ("w-1", "w-2", "x"), "job 17"
        )


@pytest.mark.parametrize("state", sorted(ENDED))
def test_a_job_that_has_ended_names_none(state: str) -> None:
    assert named_nodes([job(17, state, nodes="w-1")], ()) == {}


def test_a_node_is_named_by_its_first_reservation_else_by_its_first_job() -> None:
    jobs = [job(9, "PENDING", nodes="a,b"), job(7, "PENDING", nodes="b")]
    reservations = [
        Reservation("z", "a"),
        Reservation("course", "a,c"),
        Reservation("without-nodes"),
        Reservation("SlurmOperatorClosed-d", "a,d"),
    ]
    expected = {"a": "reservation course", "b": "job 7", "c": "reservation course"}
    assert named_nodes(jobs, reservations) == expected


def test_a_list_of_nodes_that_can_not_be_read_is_no_empty_one() -> None:
    with pytest.raises(Malformed, match="required_nodes of job 17"):
        named_nodes([job(17, "PENDING", nodes="w-[1")], ())
    with pytest.raises(Malformed, match="node_list of course"):
        named_nodes([], [Reservation("course", "w-[1")])
