"""The request for a placeholder job, and what its record means."""

import dataclasses

import pytest

from sidecars.bridge.core.devices import Device
from sidecars.bridge.core.feasible import Needs
from sidecars.bridge.core.placeholder import NOBODY, comment_of, job_of, requests_of, together
from sidecars.bridge.core.records import GroupKey, Job, Part, Phase, Submit
from sidecars.bridge.core.shape import Shape
from sidecars.contract import bridge
from sidecars.contract.bridge import Comment
from sidecars.slurm.external import Allocation, ExternalJob, Gres

SHAPE = Shape("ada", "p", cpus=2, memory=1000)
KEY = GroupKey("team", "u")
COMMENT = Comment("team", "u", SHAPE.digest)
NODES = {"n1": "k1"}
BLOCKED = ExternalJob(
    7,
    frozenset({"PENDING"}),
    external=True,
    user_name="ada",
    user_id=8,
    comment=bridge.encode(COMMENT),
    blocked=True,
)
STARTED = dataclasses.replace(BLOCKED, admin_comment=bridge.encode(COMMENT), blocked=False)


def job(record: ExternalJob, *words: str, current: bool = True, shape: Shape | None = SHAPE) -> Job:
    states = frozenset(words) or record.states
    shapes = {} if shape is None else {7: [(KEY, shape)]}
    return job_of(record, COMMENT, states, current=current, shapes=shapes, kube_nodes=NODES)


def running(*allocations: Allocation) -> ExternalJob:
    return dataclasses.replace(
        STARTED, states=frozenset({"RUNNING"}), allocations=allocations, cpus_per_task=2
    )


def test_a_job_of_another_cluster_is_no_placeholder_of_this_one() -> None:
    [request] = requests_of(Submit(KEY, (Part(SHAPE, 1),)), (), cluster="east")
    theirs = dataclasses.replace(BLOCKED, comment=request.comment)
    found = comment_of(theirs, "east")
    assert found is not None
    assert found.cluster == "east"
    assert comment_of(theirs, "west") is None
    # Whoever may change the comment can't take the job away, or another cluster's.
    confirmed = dataclasses.replace(theirs, admin_comment=request.comment, comment="mine")
    assert comment_of(confirmed, "east") == found
    assert comment_of(dataclasses.replace(confirmed, comment=BLOCKED.comment), "west") is None
    # An earlier bridge named no cluster.
    assert comment_of(BLOCKED, "east") == COMMENT


def test_a_single_pod_is_one_task_on_one_node() -> None:
    [request] = requests_of(Submit(KEY, (Part(SHAPE, 1),)), ("n2",))
    assert (request.tasks, request.min_nodes, request.max_nodes) == (1, 1, 1)
    assert request.excluded_nodes == ("n2",)
    assert bridge.decode(request.comment) == COMMENT


def test_a_group_may_get_as_many_nodes_as_it_has_pods_and_no_more() -> None:
    shape = dataclasses.replace(SHAPE, min_nodes=9)
    [request] = requests_of(Submit(KEY, (Part(shape, 4),)), ())
    assert (request.tasks, request.min_nodes, request.max_nodes) == (4, 4, 4)
    [request] = requests_of(
        Submit(KEY, (Part(dataclasses.replace(shape, min_nodes=0, max_nodes=2), 4),)), ()
    )
    assert (request.min_nodes, request.max_nodes) == (1, 2)


PORTED = dataclasses.replace(SHAPE, needs=Needs(ports=("8080/TCP",)), max_nodes=9)


APART = dataclasses.replace(SHAPE, apart=True)


@pytest.mark.parametrize("shape", [PORTED, APART])
def test_pods_that_no_two_of_share_a_node_get_a_node_each(shape: Shape) -> None:
    [request] = requests_of(Submit(KEY, (Part(shape, 4),)), ())
    assert (request.tasks, request.min_nodes, request.max_nodes) == (4, 4, 4)


@pytest.mark.parametrize("shape", [PORTED, APART])
def test_a_node_has_one_place_for_pods_that_share_none(shape: Shape) -> None:
    """Also if the job has the whole node."""
    whole = running(Allocation("n1", 8, 8000))
    assert job(whole, "RUNNING").slots == (("k1", 4),)
    assert job(whole, "RUNNING", shape=shape).slots == (("k1", 1),)


def test_each_component_excludes_what_all_avoid_and_what_can_not_run_its_pods() -> None:
    parts = (Part(SHAPE, 1), Part(dataclasses.replace(SHAPE, cpus=4), 1))
    first, second = requests_of(Submit(KEY, parts), ("n2",), unfit=(("n1", "n2"), ()))
    assert (first.excluded_nodes, second.excluded_nodes) == (("n2", "n1"), ("n2",))


def test_a_job_of_others_has_no_comment_of_ours() -> None:
    assert comment_of(BLOCKED) == COMMENT
    assert comment_of(dataclasses.replace(BLOCKED, external=False)) is None
    assert comment_of(dataclasses.replace(BLOCKED, comment="mine")) is None


def test_a_job_with_the_output_of_a_guard_is_one_by_a_comment_of_the_bridge_alone() -> None:
    guard = dataclasses.replace(BLOCKED, external=False, guard=True)
    assert comment_of(guard) == COMMENT
    for words in ("", "mine", f"{bridge.BY_USER}team/g"):
        assert comment_of(dataclasses.replace(guard, comment=words)) is None


def test_a_job_for_which_epilogs_wait_is_a_guard_whatever_its_user_has_changed() -> None:
    changed = dataclasses.replace(STARTED, external=False, guard=False, comment="mine")
    assert comment_of(changed) == COMMENT
    assert job(changed, "PENDING", "COMPLETING").guard
    assert not job(changed, "RUNNING").retains
    assert job(dataclasses.replace(changed, guard=True), "RUNNING").retains
    damaged = dataclasses.replace(changed, admin_comment=f"{bridge.ADMIN_COMMENT}…")
    assert (
        comment_of(damaged)
        == comment_of(dataclasses.replace(damaged, comment=BLOCKED.comment))
        == NOBODY
    )


def test_a_job_has_no_place_on_a_node_of_the_other_kind() -> None:
    record, states = running(Allocation("n1", 2, 1000)), frozenset({"RUNNING"})

    def places(record: ExternalJob) -> list[str]:
        found = job_of(
            *(record, COMMENT, states),
            current=True,
            shapes={7: [(KEY, SHAPE)]},
            kube_nodes=NODES,
            guard_nodes={"w1": "k2"},
        )
        return [node for node, _ in found.slots]

    guard = dataclasses.replace(record, external=False, guard=True)
    assert places(record) == ["k1"]
    assert places(guard) == ["of Slurm node n1"]
    there = (Allocation("w1", 2, 1000),)
    assert places(dataclasses.replace(record, allocations=there)) == ["of Slurm node w1"]
    assert places(dataclasses.replace(guard, allocations=there)) == ["k2"]


def test_a_users_comment_does_not_count_beside_the_admin_comment() -> None:
    forged = dataclasses.replace(STARTED, comment=bridge.encode(Comment("team", "another", "x")))
    assert comment_of(forged) == COMMENT


@pytest.mark.parametrize(
    ("record", "words", "phase"),
    [
        (BLOCKED, ["PENDING"], Phase.SUBMITTED),
        (STARTED, ["PENDING"], Phase.PENDING),
        (dataclasses.replace(STARTED, blocked=True), ["PENDING"], Phase.PENDING),
        (running(Allocation("n1", 2)), ["RUNNING"], Phase.RUNNING),
        (running(Allocation("n1", 2)), ["RUNNING", "CONFIGURING"], Phase.STARTING),
        (running(Allocation("n1", 2)), ["SUSPENDED"], Phase.STOPPED),
        (STARTED, ["RUNNING"], Phase.STARTING),
        (running(Allocation("n1", 2)), ["CANCELLED", "COMPLETING"], Phase.ENDED),
        (STARTED, ["SOMETHING_NEW"], Phase.STARTING),
    ],
)
def test_the_phase_of_a_job(record: ExternalJob, words: list[str], phase: Phase) -> None:
    assert job(record, *words).phase is phase


def test_details_that_are_older_than_the_states_let_no_pod_be_released_and_no_job_be_started() -> (
    None
):
    assert job(running(Allocation("n1", 2)), "RUNNING", current=False).phase is Phase.STARTING
    assert job(BLOCKED, "PENDING", current=False).phase is Phase.PENDING


def test_a_slot_is_what_one_pod_requests_of_what_the_job_has_on_a_kubernetes_node() -> None:
    assert job(running(Allocation("n1", 6, 3000), Allocation("n2", 2, 1000))).slots == (
        ("k1", 3),
        ("of Slurm node n2", 1),
    )


def test_a_job_whose_user_has_made_it_smaller_has_fewer_slots() -> None:
    assert job(running(Allocation("n1", 1, 3000))).slots == (("k1", 0),)
    assert job(running(Allocation("n1", 2, 999))).slots == (("k1", 0),)
    gpus = dataclasses.replace(SHAPE, gres="gres/gpu:2")
    assert job(running(Allocation("n1", 4, 2000, gpus=2)), shape=gpus).slots == (("k1", 1),)


def test_memory_that_slurm_does_not_allocate_does_not_count() -> None:
    assert job(running(Allocation("n1", 2, 0))).slots == (("k1", 1),)


def test_without_the_request_of_its_pods_the_tasks_of_the_job_count() -> None:
    assert job(running(Allocation("n1", 6, 0)), shape=None).slots == (("k1", 3),)


def test_a_job_of_uid_0_is_known_as_such() -> None:
    assert job(dataclasses.replace(BLOCKED, user_id=0)).root
    assert not job(BLOCKED).root


def test_unequal_pods_are_components_with_one_comment_that_distinguishes_them() -> None:
    big = dataclasses.replace(SHAPE, cpus=8)
    first, second = requests_of(Submit(KEY, (Part(SHAPE, 2), Part(big, 1))), ())
    assert (first.tasks, first.cpus_per_task) == (2, 2)
    assert (second.tasks, second.cpus_per_task) == (1, 8)
    assert first.comment == second.comment
    assert bridge.decode(first.comment) == Comment(
        "team", "u", "", 3, ((SHAPE.digest, 2), (big.digest, 1))
    )


@pytest.mark.parametrize(
    ("places", "most"),
    [
        (0, (1, 2, 4)),
        (2, (1, 2, 4)),
        (3, (1, 1, 1)),
        (4, (1, 1, 2)),
        (6, (1, 1, 4)),
        (7, (1, 2, 4)),
    ],
)
def test_a_component_leaves_nodes_to_the_others(places: int, most: tuple[int, ...]) -> None:
    parts = tuple(
        Part(dataclasses.replace(SHAPE, cpus=cpus), pods) for cpus, pods in ((1, 1), (1, 2), (8, 4))
    )
    assert tuple(it.max_nodes for it in requests_of(Submit(KEY, parts), (), places)) == most


def test_the_most_demanding_of_the_pods_of_a_job_counts() -> None:
    big = dataclasses.replace(SHAPE, cpus=3)
    record, states = running(Allocation("n1", 6)), frozenset({"RUNNING"})
    found = job_of(
        record,
        COMMENT,
        states,
        current=True,
        shapes={7: [(KEY, SHAPE), (KEY, big)]},
        kube_nodes=NODES,
    )
    assert found.slots == (("k1", 2),)


def test_pods_of_others_with_the_same_job_id_of_a_lost_state_do_not_count() -> None:
    big = dataclasses.replace(SHAPE, cpus=6)
    record, states = running(Allocation("n1", 4)), frozenset({"RUNNING"})
    shapes = {7: [(KEY, SHAPE), (GroupKey("other", "u"), big), (GroupKey("team", "v"), big)]}
    assert job_of(record, COMMENT, states, current=True, shapes=shapes, kube_nodes=NODES).slots == (
        ("k1", 2),
    )


@pytest.mark.parametrize(
    "gres",
    ["gres/gpu:2", "gres/gpu:h100:2", "gres/nic:9,gres/gpu:2", "gres/gpu:h100,gres/gpu:a100:1"],
)
def test_the_gpus_of_a_job_count_whatever_their_type(gres: str) -> None:
    has = Gres("gpu:h100", 2), Gres("gpu:a100", 1), Gres("nic", 9)
    found = job(
        running(Allocation("n1", 8, 9000, gpus=3, gres=has)),
        shape=dataclasses.replace(SHAPE, gres=gres),
    )
    assert found.slots == (("k1", 1),)


@pytest.mark.parametrize(
    ("gres", "slots"),
    [
        ("gres/share:1", 2),
        ("gres/share:2", 1),
        ("gres/share:3", 0),
        ("gres/gpu:1g.5gb:1", 1),
        ("gres/gpu:h100:1", 0),
        ("gres/share:1,gres/gpu:1g.5gb:1", 1),
        ("gres/other:1", 0),
        ("gres/nic", 1),
    ],
)
def test_a_job_has_as_many_slots_as_it_has_of_each_gres_of_a_pod(gres: str, slots: int) -> None:
    has = Gres("share", 2), Gres("gpu:1g.5gb", 1, frozenset({0})), Gres("nic:x", 1)
    found = job(
        running(Allocation("n1", 8, 9000, gpus=1, gres=has)),
        shape=dataclasses.replace(SHAPE, gres=gres),
    )
    assert found.slots == (("k1", slots),)


ONE = Job(
    1,
    Phase.RUNNING,
    "ada",
    Comment("team", "g", "", 2, (("x", 1), ("y", 1))),
    end_time=90,
    confirmed=True,
)


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        (Phase.RUNNING, Phase.RUNNING, Phase.RUNNING),
        (Phase.RUNNING, Phase.STARTING, Phase.STARTING),
        (Phase.STARTING, Phase.PENDING, Phase.PENDING),
        (Phase.RUNNING, Phase.STOPPED, Phase.STOPPED),
        (Phase.PENDING, Phase.SUBMITTED, Phase.SUBMITTED),
        (Phase.RUNNING, Phase.ENDED, Phase.ENDED),
        (Phase.ENDED, Phase.SUBMITTED, Phase.ENDED),
    ],
)
def test_the_phase_of_a_heterogeneous_job_is_that_of_all_of_it(
    first: Phase, second: Phase, whole: Phase
) -> None:
    other = dataclasses.replace(
        ONE, job_id=2, offset=1, phase=second, end_time=50, root=True, confirmed=False
    )
    found = together([other, dataclasses.replace(ONE, phase=first)])
    assert (found.job_id, found.phase, found.ids) == (1, whole, (1, 2))
    assert (found.end_time, found.root, found.confirmed) == (50, True, False)


DEVICES = (
    *(("gpu:1g.5gb", Device("d", "p", f"part-{index}")) for index in range(2)),
    *(("gpu:h100", Device("d", "p", f"gpu-{index}")) for index in range(2)),
)


def named(*gres: Gres) -> list[tuple[str, str, list[str]]]:
    record = running(Allocation("n1", 4, gres=gres))
    found = job_of(
        *(record, COMMENT, record.states),
        current=True,
        shapes={},
        kube_nodes=NODES,
        devices={"n1": DEVICES},
    )
    return [(node, name, [it.name for it in devices]) for node, name, devices in found.devices]


def test_the_devices_of_a_job_are_those_of_its_indices() -> None:
    found = named(Gres("gpu:h100", 1, frozenset({3})), Gres("gpu:1g.5gb", 2, frozenset({0, 1})))
    assert found == [("k1", "gpu:h100", ["gpu-1"]), ("k1", "gpu:1g.5gb", ["part-0", "part-1"])]


def test_an_index_without_a_device_of_its_type_names_nothing() -> None:
    for gres in (
        Gres("gpu:h100", 2, frozenset({1, 2})),
        Gres("gpu:h100", 2, frozenset({3, 4})),
        Gres("gpu:h100", 1),
        Gres("nic", 1),
    ):
        assert named(gres) == []


def test_a_job_of_the_bridge_has_no_more_places_than_tasks_whatever_its_pods_seem_to_request() -> (
    None
):
    small = dataclasses.replace(SHAPE, cpus=1, memory=100)
    record = dataclasses.replace(running(Allocation("n1", 8, 4000)), memory_per_task=2000)
    assert job(record, shape=small).slots == (("k1", 2),)
    by_user = dataclasses.replace(COMMENT, by_user=True)
    found = job_of(
        record, by_user, record.states, current=True, shapes={7: [(KEY, small)]}, kube_nodes=NODES
    )
    assert found.slots == (("k1", 8),)
