"""Decoded answers: `sidecars.slurm.records`."""

import pytest

from sidecars.slurm.errors import Malformed
from sidecars.slurm.records import Job, Reservation


def test_the_nodes_of_a_job_and_of_a_reservation_are_listed_by_name() -> None:
    assert Job(1, nodes="n[0-1],x").node_names() == ["n0", "n1", "x"]
    assert Job(1).node_names() == []
    assert Reservation("maint", node_list="n[3,5]").node_names() == ["n3", "n5"]


def test_nodes_that_can_not_be_read_are_a_malformed_answer_that_names_the_record() -> None:
    with pytest.raises(Malformed, match="GET jobs/: nodes of job 7: range '1-0' runs backwards"):
        Job(7, nodes="n[1-0]").node_names()
    with pytest.raises(Malformed, match=r"GET reservations/: node_list of maint: unexpected '\['"):
        Reservation("maint", node_list="n[").node_names()
