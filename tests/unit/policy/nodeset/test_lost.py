"""Pods on lost Kubernetes nodes, and pods that Slurm doesn't know:
`sidecars.policy.nodeset.lost`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from sidecars.policy.nodeset.drain import NOT_REGISTERED_SECONDS
from sidecars.policy.nodeset.failures import failures
from sidecars.policy.nodeset.lost import (
    ALL_UNREGISTERED_SECONDS,
    OVERDUE_SECONDS,
    REPLACEMENT_SECONDS,
    SPARED_SECONDS,
    UNREGISTERED_SECONDS,
    Lost,
    absent,
    is_missing,
    is_overdue,
    must_be_explained,
    not_registered,
    spared_message,
    stuck,
    stuck_message,
)
from sidecars.policy.nodeset.lost import spared as spared_and_kept
from sidecars.policy.nodeset.lost import unregistered as replacements
from sidecars.policy.nodeset.needs import Answer, Failed, Known, Pending
from sidecars.policy.nodeset.records import Deletion, OtherWorkers, SlurmView, WorkerPod
from sidecars.slurm.records import Node

NOW = 1_000_000.0
POD = WorkerPod(
    name="slinky-0",
    uid="uid-0",
    ordinal=0,
    slurm_node="slinky-0",
    kube_node="m0",
    revision="new",
    phase="Running",
    ready=True,
    available=True,
    started=True,
    created=NOW - 700,
    slurmd_since=NOW - 600,
)
TERMINATING = replace(POD, terminating=True, terminating_until=NOW + 100)


def slurm(*states: str, problem: str | None = None) -> SlurmView:
    """Slurm with node slinky-0 in these states; without it for none."""
    return SlurmView(
        {"slinky-0": Node("slinky-0", states=frozenset(states))} if states else {}, problem
    )


DOWN = slurm("DOWN", "NOT_RESPONDING")
NONE = frozenset[str]()
ALONE = OtherWorkers()
LONG_AGO = Known(NOW - 1e6)
"""slurmctld started before any of the workers."""
LATELY = Known(NOW - 60)
"""slurmctld started after all of them."""
UNREPORTED = Known(None)
"""A release of Slurm that doesn't report it."""


def spared(
    pods: Sequence[WorkerPod],
    view: SlurmView,
    since: Mapping[str, float],
    start: Answer | None,
    others: OtherWorkers,
    before: frozenset[str],
) -> frozenset[str]:
    """In this pass."""
    return spared_and_kept(pods, view, since, start, others, before).uids


def unregistered(
    pods: Sequence[WorkerPod],
    view: SlurmView,
    since: Mapping[str, float],
    replaced: Mapping[str, float],
    now: float,
) -> Lost:
    """Of a Slurm cluster with these workers alone, whose slurmctld has never started again."""
    kept = spared(pods, view, since, LONG_AGO, ALONE, NONE)
    return replacements(pods, view, since, kept, replaced, ALONE, now)


@pytest.mark.parametrize(
    ("pod", "view", "forced"),
    [
        (replace(TERMINATING, out_of_service=True), slurm("ALLOCATED"), True),
        (
            replace(TERMINATING, out_of_service=True),
            slurm(problem="slurmrestd doesn't answer"),
            True,
        ),
        (replace(TERMINATING, kube_node_gone=True), DOWN, True),
        (replace(TERMINATING, kube_node_gone=True), slurm(), True),
        # Its kubelet may be stopping it right now, with a job on it.
        (replace(TERMINATING, kube_node_gone=True), slurm("ALLOCATED"), False),
        (
            replace(TERMINATING, kube_node_gone=True),
            slurm(problem="slurmrestd doesn't answer"),
            False,
        ),
        (
            replace(TERMINATING, kube_node_gone=True, terminating_until=NOW),
            slurm("ALLOCATED"),
            True,
        ),
        # However long it has been terminating, its Kubernetes node may be alive.
        (replace(TERMINATING, terminating_until=NOW - 1e6), DOWN, False),
        (replace(TERMINATING, terminating_until=NOW - 1e6, kubelet_silent=True), DOWN, False),
        (replace(POD, out_of_service=True), DOWN, False),
        (replace(POD, kube_node_gone=True), DOWN, False),
    ],
)
def test_a_terminating_pod_is_forced_only_where_nothing_of_it_can_run(
    pod: WorkerPod, view: SlurmView, *, forced: bool
) -> None:
    found = stuck([pod], view, NOW, NONE)
    assert [(it.pod, it.grace_seconds, it.kube_node_lost) for it in found.delete] == (
        [(pod, 0, True)] if forced else []
    )


def test_the_end_of_the_grace_is_looked_at() -> None:
    assert (
        stuck([replace(TERMINATING, kube_node_gone=True)], slurm("IDLE"), NOW, NONE).look_again
        == 100
    )
    # Time alone changes nothing once the grace is over, or without one.
    for until in (NOW, None):
        assert (
            stuck(
                [replace(TERMINATING, terminating_until=until)], slurm("IDLE"), NOW, NONE
            ).look_again
            is None
        )


def test_a_kubelet_has_a_while_to_report_the_end_of_a_pod() -> None:
    assert not is_overdue(TERMINATING, NOW + 100)
    assert is_overdue(TERMINATING, NOW + 100 + OVERDUE_SECONDS)
    assert not is_overdue(POD, NOW + 1e6)


def test_a_pod_that_terminates_on_a_silent_kube_node_names_the_way_to_see_that_it_is_off() -> None:
    text = stuck_message(
        [
            replace(TERMINATING, kubelet_silent=True),
            replace(TERMINATING, name="slinky-1", kubelet_silent=True),
        ]
    )
    assert "pod slinky-0 is terminating on Kubernetes node m0" in text
    assert "1 more pods" in text
    assert "kubectl taint nodes m0 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute" in text
    assert stuck_message([TERMINATING, replace(POD, kubelet_silent=True)]) == ""


def test_a_pod_that_slurm_does_not_know_for_a_minute_is_replaced() -> None:
    others = SlurmView({"other": Node("other")}, None)
    since = absent([POD], others, {}, NOW)
    first = unregistered([POD], others, since, {}, NOW)
    assert (first.delete, first.look_again, not_registered([POD], others, since, NONE, NOW)) == (
        (),
        10,
        "",
    )
    then = NOW + 10
    assert unregistered([POD], others, since, {}, then).look_again == UNREGISTERED_SECONDS - 10
    assert "pod slinky-0: slurmd runs and Slurm has no node slinky-0; the pod" in not_registered(
        [POD], others, since, NONE, then
    )
    later = NOW + UNREGISTERED_SECONDS
    since = absent([POD], others, since, later)
    [deletion] = unregistered([POD], others, since, {}, later).delete
    assert (deletion.pod, deletion.grace_seconds, deletion.kube_node_lost) == (POD, None, False)


def test_where_slurm_lists_no_node_at_all_the_pods_are_left_alone_for_longer() -> None:
    since = absent([POD], slurm(), {}, NOW)
    almost = NOW + ALL_UNREGISTERED_SECONDS - 1
    assert unregistered([POD], slurm(), since, {}, almost).delete == ()
    assert unregistered([POD], slurm(), since, {}, almost).look_again == 1
    assert f"after {ALL_UNREGISTERED_SECONDS:g} s" in not_registered(
        [POD], slurm(), since, NONE, almost
    )
    assert unregistered([POD], slurm(), since, {}, almost + 1).delete


def many(count: int) -> list[WorkerPod]:
    return [
        replace(POD, name=f"slinky-{n}", uid=f"uid-{n}", slurm_node=f"slinky-{n}")
        for n in range(count)
    ]


def listing(*numbers: int) -> SlurmView:
    """Slurm with these nodes of workers, and a static one that no pod has."""
    nodes = [Node(f"slinky-{n}", states=frozenset({"IDLE"})) for n in numbers]
    return SlurmView({node.name: node for node in (*nodes, Node("static"))}, None)


def test_no_pod_is_replaced_when_slurm_has_lost_most_nodes_though_it_lists_a_static_one() -> None:
    pods, view = many(1000), listing()
    since = absent(pods, view, {}, NOW)
    kept = spared(pods, view, since, UNREPORTED, ALONE, NONE)
    assert len(kept) == 1000
    for later in (UNREGISTERED_SECONDS, 1e6):
        assert replacements(pods, view, since, kept, {}, ALONE, NOW + later).delete == ()
    message = spared_message(pods, since, kept, NOW + UNREGISTERED_SECONDS)
    assert message.startswith(
        "Slurm has no node of 1000 of the 1000 workers whose slurmd runs, such as slinky-0: "
    )
    assert "neither replaced nor deleted" in message
    assert not_registered(pods, view, since, kept, NOW + UNREGISTERED_SECONDS) == ""
    gone = replace(pods[0], terminating=True, terminating_until=NOW + 5000, kube_node_gone=True)
    [_, *others] = pods
    assert "uid-0" in spared([gone, *others], view, since, UNREPORTED, ALONE, NONE)
    assert stuck([gone, *others], view, NOW + 100, frozenset({"uid-0"})).delete == ()
    assert stuck([gone, *others], view, NOW + 100, NONE).delete


@pytest.mark.parametrize("start", [LONG_AGO, UNREPORTED])
@pytest.mark.parametrize(
    ("count", "unknown", "stops"), [(2, 2, False), (3, 3, True), (10, 5, False), (10, 6, True)]
)
def test_replacement_stops_when_three_or_more_and_most_workers_are_unknown_to_slurm(
    count: int, unknown: int, stops: bool, start: Answer
) -> None:
    pods, view = many(count), listing(*range(unknown, count))
    since = absent(pods, view, {}, NOW)
    kept = spared(pods, view, since, start, ALONE, NONE)
    assert bool(kept) is stops
    found = replacements(pods, view, since, kept, {}, ALONE, NOW + UNREGISTERED_SECONDS)
    assert bool(found.delete) is not stops
    assert found.look_again == (SPARED_SECONDS if stops else REPLACEMENT_SECONDS)


@pytest.mark.parametrize("count", [1, 2, 10])
def test_a_worker_that_slurmctld_may_have_forgotten_is_spared_however_few_are_missing(
    count: int,
) -> None:
    pods, view = many(count), listing(*range(1, count))
    since = absent(pods, view, {}, NOW)
    assert spared(pods, view, since, LATELY, ALONE, NONE) == {"uid-0"}
    assert spared(pods, view, since, LONG_AGO, ALONE, NONE) == NONE
    # In the second in which slurmctld started, a job may have been there before.
    assert spared(pods, view, since, Known(NOW - 600), ALONE, NONE) == {"uid-0"}


def test_a_worker_whose_node_slurmctld_has_listed_since_its_start_was_deleted_by_a_request() -> (
    None
):
    started = int(NOW - 60)
    for at, kept in ((started - 30, {"uid-0"}), (started, {"uid-0"}), (started + 1, set[str]())):
        view = replace(slurm(), last_listed={"slinky-0": at})
        assert spared([POD], view, absent([POD], view, {}, NOW), LATELY, ALONE, NONE) == kept


@pytest.mark.parametrize("start", [Pending(), Failed("HTTP 500")])
def test_while_slurmctlds_start_is_unknown_no_pod_is_deleted_because_slurm_does_not_know_it(
    start: Answer,
) -> None:
    pods, view = many(10), listing(*range(1, 10))
    assert spared(pods, view, absent(pods, view, {}, NOW), start, ALONE, NONE) == {"uid-0"}


def test_after_others_were_replaced_by_hand_the_rest_is_spared_until_it_is_known_or_ended() -> None:
    pods, view = many(10), listing(8, 9)
    since = absent(pods, view, {}, NOW)
    lost = spared(pods, view, since, UNREPORTED, ALONE, NONE)
    assert lost == {f"uid-{number}" for number in range(8)}
    # Four are new pods, whose slurmd has registered; one has registered with slurmctld again; one
    # has ended.
    fewer = [*pods[4:7], *(replace(pod, uid=f"new-{pod.uid}") for pod in pods[:4]), *pods[8:]]
    then = listing(0, 1, 2, 3, 6, 8, 9)
    late = absent(fewer, then, since, NOW + 100)
    assert spared(fewer, then, late, UNREPORTED, ALONE, lost) == {"uid-4", "uid-5"}
    silent = replace(then, problem="HTTP 500")
    assert spared(fewer, silent, {}, None, ALONE, lost) >= {"uid-4", "uid-5"}
    # An operator that has just started sees the rest alone: when slurmctld started shows it what
    # has happened.
    assert spared(fewer, then, late, LATELY, ALONE, NONE) == {"uid-4", "uid-5"}


@pytest.mark.parametrize("start", [Pending(), Failed("HTTP 500"), LATELY, LONG_AGO, UNREPORTED])
def test_only_who_is_spared_because_most_are_missing_stays_so_in_later_passes(
    start: Answer,
) -> None:
    pods = many(10)
    one, most = listing(*range(1, 10)), listing(8, 9)
    assert spared_and_kept(pods, one, absent(pods, one, {}, NOW), start, ALONE, NONE).kept == NONE
    assert (
        len(spared_and_kept(pods, most, absent(pods, most, {}, NOW), start, ALONE, NONE).kept) == 8
    )


@pytest.mark.parametrize(
    ("start", "kept"), [(UNREPORTED, {"uid-0"}), (Pending(), {"uid-0"}), (LONG_AGO, set[str]())]
)
def test_who_was_spared_stays_so_while_it_terminates_unless_the_start_of_slurmctld_is_known(
    start: Answer, kept: set[str]
) -> None:
    pods, view = [TERMINATING, *many(10)[1:]], listing(*range(1, 10))
    found = spared_and_kept(
        pods, view, absent(pods, view, {}, NOW), start, ALONE, frozenset({"uid-0", "uid-1"})
    )
    assert found.uids == kept
    assert found.kept == kept


def test_the_workers_of_other_nodesets_count_for_the_share_and_for_the_replaced_number() -> None:
    view, now = listing(), NOW + UNREGISTERED_SECONDS
    since = absent([POD], view, {}, NOW)
    assert spared([POD], view, since, UNREPORTED, OtherWorkers(running=9, missing=5), NONE) == {
        "uid-0"
    }
    assert spared([POD], view, since, UNREPORTED, OtherWorkers(running=9, missing=4), NONE) == NONE

    def replaced(others: OtherWorkers) -> Lost:
        return replacements([POD], view, since, NONE, {}, others, now)

    few = OtherWorkers(running=18, replaced=(now - 20,))
    assert (replaced(few).delete, replaced(few).look_again) == ((), REPLACEMENT_SECONDS - 20)
    assert replaced(replace(few, running=19)).delete
    assert replaced(replace(few, replaced=(now - REPLACEMENT_SECONDS,))).delete


def test_why_slurm_lacks_nodes_is_asked_only_where_something_depends_on_it() -> None:
    view = listing()
    since = absent([POD], view, {}, NOW)
    assert not must_be_explained([POD], (), view, since, NOW)
    assert must_be_explained([POD], (), view, since, NOW + NOT_REGISTERED_SECONDS)
    assert not must_be_explained(
        [POD], (), replace(view, problem="HTTP 500"), since, NOW + NOT_REGISTERED_SECONDS
    )
    assert must_be_explained([POD], (Deletion(POD, "x", absent=True),), view, {}, NOW)
    assert not must_be_explained([POD], (Deletion(POD, "x", drained=True),), view, {}, NOW)
    assert must_be_explained([replace(TERMINATING, kube_node_gone=True)], (), view, {}, NOW)
    assert not must_be_explained(
        [replace(TERMINATING, kube_node_gone=True)], (), slurm("IDLE"), {}, NOW
    )


def test_workers_that_have_just_started_are_not_yet_unknown_to_slurm() -> None:
    pods = [replace(pod, slurmd_since=NOW - 1) for pod in many(10)]
    since = absent(pods, listing(), {}, NOW)
    assert (
        spared_message(pods, since, spared(pods, listing(), since, LONG_AGO, ALONE, NONE), NOW)
        == ""
    )


def test_a_tenth_of_the_workers_is_replaced_in_a_minute_and_one_at_least() -> None:
    pods, view = many(40), listing(*range(10, 40))
    since, now = absent(pods, view, {}, NOW), NOW + UNREGISTERED_SECONDS
    first = unregistered(pods, view, since, {}, now)
    assert [it.pod.name for it in first.delete] == ["slinky-0", "slinky-1", "slinky-2", "slinky-3"]
    replaced = {it.pod.uid: now for it in first.delete}
    again = unregistered(pods, view, since, replaced, now + 20)
    # A deletion that failed is tried again, and no other pod is added.
    assert [it.pod.name for it in again.delete] == [it.pod.name for it in first.delete]
    assert again.look_again == REPLACEMENT_SECONDS - 20
    left = pods[4:]
    assert unregistered(left, view, since, replaced, now + 20).delete == ()
    next_minute = unregistered(left, view, since, replaced, now + REPLACEMENT_SECONDS)
    assert [it.pod.name for it in next_minute.delete] == ["slinky-4", "slinky-5", "slinky-6"]
    few = many(5)
    since = absent(few, listing(2, 3, 4), {}, NOW)
    assert len(unregistered(few, listing(2, 3, 4), since, {}, now).delete) == 1


def test_time_in_which_slurm_did_not_answer_or_knew_the_node_does_not_count() -> None:
    since = absent([POD], slurm(), {}, NOW)
    assert absent([POD], slurm(problem="slurmrestd doesn't answer"), since, NOW + 30) == {}
    assert absent([POD], slurm("IDLE"), since, NOW + 30) == {}


@pytest.mark.parametrize(
    "pod",
    [
        replace(POD, slurmd_since=None),
        replace(POD, terminating=True),
        replace(POD, phase="Failed"),
        replace(POD, slurm_node=""),
    ],
)
def test_only_a_pod_whose_slurmd_runs_counts_as_absent(pod: WorkerPod) -> None:
    assert absent([pod], slurm(), {}, NOW) == {}


def test_each_pod_of_a_name_that_does_not_get_known_to_slurm_is_waited_for_twice_as_long() -> None:
    first, wait = failures({}, [POD], NOW, unregistered={"uid-0"}, absent={"uid-0"})
    assert wait == 1
    assert failures(first, [POD], NOW, unregistered={"uid-0"}, absent={"uid-0"})[0] == first
    successor = replace(POD, uid="uid-1")
    kept, _ = failures(first, [successor], NOW + 30, absent={"uid-1"})
    assert kept == first
    second, wait = failures(kept, [successor], NOW + 90, unregistered={"uid-1"}, absent={"uid-1"})
    assert (second["slinky-0"].count, wait) == (2, 2)
    assert failures(second, [replace(POD, uid="uid-2")], NOW + 120)[0] == {}


def test_a_slurmd_without_a_record_is_missing_from_the_second_it_had_to_be_registered() -> None:
    view, since = listing(), NOW - NOT_REGISTERED_SECONDS
    assert is_missing(since, POD.slurm_node, view, NOW)
    assert not is_missing(since + 1, POD.slurm_node, view, NOW)
