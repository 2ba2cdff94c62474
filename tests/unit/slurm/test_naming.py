"""Which node records jobs and reservations name: `sidecars.slurm.naming`."""

import pytest

from sidecars.contract.reasons import POD_GONE, kept, unmarked
from sidecars.slurm.errors import Malformed
from sidecars.slurm.job_states import ENDED
from sidecars.slurm.naming import named_nodes
from sidecars.slurm.owners import own_words
from sidecars.slurm.records import Job, Node, Reservation


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


@pytest.mark.parametrize(
    "nodes",
    [
        "w-1 w-2",
        ",w-1,,w-2,",
        "w-1\nw-2",
        "switchwith{w-1},w-2",
        "blockwith{w-[1-2]}",
        "feature{gpu},switch{s0},w-[1-2]",
    ],
)
def test_a_job_names_nodes_in_every_way_that_slurm_accepts(nodes: str) -> None:
    found = named_nodes([job(17, "PENDING", nodes=nodes)], ())
    assert found == dict.fromkeys(("w-1", "w-2"), "job 17")


def test_a_job_that_names_a_switch_or_a_block_names_the_nodes_there() -> None:
    nodes = [
        Node("w-1", topology="fabric:spine:r1,nvlink:b1"),
        Node("w-2", topology="fabric:spine:r2"),
        Node("w-3", topology="nvlink:b1"),
        Node("r1"),
        Node("w-4", topology="r1:spine:r3"),
    ]
    for named, want in (
        ("switch{r1}", {"w-1"}),
        ("switch{spine}", {"w-1", "w-2", "w-4"}),
        ("block{b[1-2]}", {"w-1", "w-3"}),
        ("switch{r9},w-9", {"w-9"}),
        ("feature{r1}", set()),
    ):
        found = named_nodes([job(17, "PENDING", nodes=named)], (), nodes)
        assert found == dict.fromkeys(want, "job 17")


@pytest.mark.parametrize(
    "nodes", ["w-[1", "w-[0-99999]", "w-1\x00", "w-[" + "0-9," * 30_000 + "0]", "]" * 100_000]
)
def test_a_job_whose_list_can_not_be_read_names_every_node_and_hides_no_other(nodes: str) -> None:
    jobs = [job(17, "PENDING", nodes=nodes), job(18, "PENDING", nodes="w-1")]
    found = named_nodes(jobs, [Reservation("course", "w-2")])
    assert found.get("w-1") == "job 18"
    assert found.get("w-2") == "reservation course"
    assert "w-3" in found
    assert found.get("w-3", "") == found["w-3"] == "job 17"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("root_12", "root_12"),
        ("Übung 3-a.b", "Übung 3-a.b"),
        ("x : Not responding", "x ? Not responding"),
        ("a; kept for job 9", "a? kept for job 9"),
        ("a\x1b[31m\n", "a?31m?"),
        ("a\nb\u202e", "a?b?"),
        ("n" * 5000, "n" * 100),
    ],
)
def test_a_reservation_is_named_so_that_slurm_keeps_the_reason_with_its_name_as_it_is(
    name: str, shown: str
) -> None:
    """slurmctld takes any name, and appends ` : Not responding` to a reason itself."""
    [by] = named_nodes([], [Reservation(name, "w-1")]).values()
    assert by == f"reservation {shown}"
    reason = kept(POD_GONE, by)
    assert own_words(reason) == own_words(f"{reason} : Not responding") == reason
    assert unmarked(reason) == POD_GONE


def test_a_reservation_whose_list_can_not_be_read_is_no_empty_one() -> None:
    with pytest.raises(Malformed, match="node_list of course"):
        named_nodes([], [Reservation("course", "w-[1")])
