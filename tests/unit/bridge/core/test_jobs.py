"""What is known of Slurm's jobs after a series of answers."""

import dataclasses

import pytest

from sidecars.bridge.core.jobs import MOST_OTHERS, TRUST_EMPTY_AFTER, JobBook
from sidecars.bridge.core.records import GroupKey, Phase
from sidecars.bridge.core.shape import Shape
from sidecars.contract import bridge
from sidecars.contract.bridge import Comment
from sidecars.slurm.external import Allocation, ExternalJob

PENDING, RUNNING, CANCELLED = (
    frozenset({"PENDING"}),
    frozenset({"RUNNING"}),
    frozenset({"CANCELLED"}),
)
TEXT = bridge.encode(Comment("team", "u", "d"))
OURS = ExternalJob(
    1, PENDING, external=True, user_name="ada", user_id=8, comment=TEXT, blocked=True
)
STARTED = dataclasses.replace(OURS, blocked=False, admin_comment=TEXT)
RUNS = dataclasses.replace(STARTED, states=RUNNING, allocations=(Allocation("n1", 2),))
OTHER = ExternalJob(2, RUNNING, user_name="eve", user_id=9)


def book(*records: ExternalJob) -> JobBook:
    """One that has read these jobs."""
    found = JobBook()
    found.states({it.job_id: it.states for it in records}, 0)
    for it in records:
        found.details(it.job_id, it)
    return found


def known(found: JobBook) -> bool:
    return found.known


def phases(found: JobBook) -> dict[int, Phase]:
    return {job_id: job.phase for job_id, job in found.jobs({}, {}).items()}


def test_nothing_is_known_before_the_first_answer_and_after_a_failed_one() -> None:
    found = JobBook()
    assert not known(found)
    found.states({}, 0)
    assert known(found)
    found.fail()
    assert not known(found)


def test_nothing_is_known_while_a_listed_job_was_never_read() -> None:
    found = book(OURS)
    found.states({1: PENDING, 3: PENDING}, 1)
    assert not known(found)
    assert found.to_read() == [3]
    found.details(3, None)
    assert known(found)


def test_a_job_that_was_submitted_between_the_two_lists_of_a_pass_is_read_in_the_next_one() -> None:
    """Otherwise nothing would be decided while users submit hundreds of jobs a second."""
    found = book(OURS)
    listed = {1: PENDING, 3: PENDING}
    found.states(listed, 1, again=True)
    assert known(found)
    assert list(phases(found)) == [1]
    found.states(listed, 2)
    assert not known(found)
    assert found.to_read() == [3]
    found.details(3, None)
    assert known(found)


def test_a_job_that_the_first_list_has_and_that_was_not_read_is_unknown_after_the_second_one() -> (
    None
):
    found = book(OURS)
    found.states({1: PENDING, 3: PENDING}, 1)
    found.states({1: PENDING, 3: PENDING, 4: PENDING}, 2, again=True)
    assert not known(found)


def test_an_answer_that_is_the_same_object_changes_nothing_but_ends_a_failure() -> None:
    found = book(OURS)
    listed = {1: PENDING}
    assert not found.states(listed, 1)
    assert not found.states(listed, 2)
    found.fail()
    assert found.states(listed, 3)
    assert known(found)
    found.states({}, 4)
    assert not known(found)
    found.states(listed, 5)
    assert known(found)


def test_what_becomes_stale_is_read_again_after_nothing_was_to_be_read() -> None:
    found = book(OURS)
    assert found.to_read() == []
    assert found.to_read() == []
    found.stale(1)
    assert found.to_read() == [1]
    found.details(1, OURS)
    assert found.to_read() == []
    found.states({1: PENDING, 2: PENDING}, 1)
    assert found.to_read() == [2]


def test_a_job_that_slurm_has_let_start_is_not_read_again_before_its_states_change() -> None:
    found = book(dataclasses.replace(OURS, reason="JobHeldUser"))
    assert phases(found) == {1: Phase.SUBMITTED}
    found.stale(1)
    found.started(1, TEXT)
    assert found.to_read() == []
    job = found.jobs({}, {})[1]
    assert (job.phase, job.confirmed, job.reason) == (Phase.PENDING, True, "")
    found.states({1: RUNNING}, 1)
    assert found.to_read() == [1]


def test_a_job_that_ran_before_its_start_was_answered_is_read() -> None:
    found = book(OURS)
    found.stale(1)
    found.states({1: RUNNING}, 1)
    found.started(1, TEXT)
    assert found.to_read() == [1]
    assert phases(found) == {1: Phase.STARTING}


def test_only_placeholders_are_read_again_when_their_states_change() -> None:
    found = book(OURS, OTHER)
    assert found.to_read() == []
    found.states({1: RUNNING, 2: CANCELLED}, 1)
    assert found.to_read() == [1]
    assert known(found)
    assert phases(found) == {1: Phase.STARTING}
    found.details(1, RUNS)
    assert phases(found) == {1: Phase.RUNNING}


def test_the_end_of_a_job_counts_before_its_details_are_read() -> None:
    found = book(RUNS)
    found.states({1: CANCELLED}, 1)
    assert phases(found) == {1: Phase.ENDED}


def test_an_ended_job_keeps_what_it_had() -> None:
    found = book(RUNS)
    found.states({1: CANCELLED}, 1)
    found.details(1, dataclasses.replace(RUNS, states=CANCELLED, allocations=()))
    assert found.jobs({}, {"n1": "k1"})[1].slots == (("k1", 2),)
    assert found.to_read() == []


def test_a_job_whose_start_slurm_has_forgotten_has_no_place_until_it_starts_again() -> None:
    found = book(RUNS)
    found.states({1: PENDING}, 1)
    found.details(1, STARTED)
    assert found.jobs({}, {"n1": "k1"})[1].slots == ()
    found.states({1: RUNNING}, 2)
    found.details(1, dataclasses.replace(RUNS, allocations=(Allocation("n2", 2),)))
    assert found.jobs({}, {"n1": "k1", "n2": "k2"})[1].slots == (("k2", 2),)


def test_an_ended_job_that_slurm_forgets_stays_ended_while_a_pod_has_its_label() -> None:
    found = book(dataclasses.replace(RUNS, states=CANCELLED), OTHER)
    found.states({2: RUNNING}, 1)
    found.forget([1])
    assert phases(found) == {1: Phase.ENDED}
    found.forget([])
    assert phases(found) == {}


def test_the_end_that_slurmdbd_has_of_an_unlisted_job_is_its_end_while_a_pod_has_its_label() -> (
    None
):
    found = JobBook()
    found.states({}, 0)
    assert found.unlisted({1}) == {1}
    assert found.stored(dataclasses.replace(STARTED, states=CANCELLED))
    assert phases(found) == {1: Phase.ENDED}
    assert found.unlisted({1}) == frozenset()
    found.forget(())
    assert phases(found) == {}


@pytest.mark.parametrize(
    "record",
    [
        dataclasses.replace(STARTED, states=RUNNING),
        # Of a slurmctld that has lost its state.
        dataclasses.replace(OURS, states=CANCELLED),
        dataclasses.replace(STARTED, states=CANCELLED, comment="", admin_comment="someone's"),
        dataclasses.replace(
            STARTED,
            states=CANCELLED,
            admin_comment=bridge.encode(Comment("team", "u", "d", cluster="another")),
        ),
    ],
    ids=["it runs", "slurmdbd alone has ended it", "no placeholder", "of another cluster"],
)
def test_what_slurmdbd_has_of_an_unlisted_job_is_no_end(record: ExternalJob) -> None:
    found = JobBook("this one")
    found.states({}, 0)
    assert not found.stored(record)
    assert found.unlisted({1}) == {1}
    assert phases(found) == {}


def test_a_job_that_slurmctld_lists_again_is_the_one_that_it_lists() -> None:
    found = JobBook()
    found.states({}, 0)
    found.stored(dataclasses.replace(STARTED, states=CANCELLED))
    found.states({1: RUNNING}, 1)
    assert not found.stored(dataclasses.replace(STARTED, states=CANCELLED))
    found.details(1, RUNS)
    assert phases(found) == {1: Phase.RUNNING}


def test_no_epilog_of_a_guard_that_slurm_has_forgotten_waits_for_its_pod() -> None:
    completing = CANCELLED | {"COMPLETING"}
    found = book(dataclasses.replace(RUNS, external=False, guard=True, states=completing), OTHER)
    assert found.jobs({}, {})[1].completing
    # Nothing was read until Slurm had forgotten the job.
    found.states({2: RUNNING}, 1000)
    assert (phases(found)[1], found.jobs({}, {})[1].completing) == (Phase.ENDED, False)


def test_a_running_job_that_is_missing_is_unknown_and_not_ended() -> None:
    found = book(RUNS, OTHER)
    found.states({2: RUNNING}, 1)
    assert phases(found) == {}
    assert known(found)
    found.states({1: RUNNING, 2: RUNNING}, 2)
    assert found.to_read() == [1]


def test_an_empty_list_after_one_with_running_jobs_is_not_believed_for_a_minute() -> None:
    found = book(RUNS)
    found.states({}, 10)
    assert not known(found)
    found.states({}, 10 + TRUST_EMPTY_AFTER - 1)
    assert not known(found)
    found.states({}, 10 + TRUST_EMPTY_AFTER)
    assert known(found)
    assert phases(found) == {}


def test_an_empty_list_that_is_followed_by_the_jobs_changes_nothing() -> None:
    found = book(RUNS)
    found.states({}, 10)
    found.states({1: RUNNING}, 11)
    assert known(found)
    assert phases(found) == {1: Phase.RUNNING}


def test_an_empty_list_after_ended_jobs_alone_counts_at_once() -> None:
    found = book(dataclasses.replace(RUNS, states=CANCELLED))
    found.states({}, 10)
    assert known(found)


def test_a_job_is_the_same_object_until_something_that_it_is_made_of_changes() -> None:
    found = book(RUNS)
    nodes = {"n1": "k1"}
    first = found.jobs({}, nodes)[1]
    assert found.jobs({}, dict(nodes))[1] is first
    assert found.jobs({}, {"n1": "k2"})[1].slots == (("k2", 2),)
    larger = {1: {(GroupKey("team", "u"), Shape("ada", "p", cpus=2))}}
    assert found.jobs(larger, nodes)[1].slots == (("k1", 1),)
    assert found.jobs({}, nodes)[1].slots == (("k1", 2),)
    found.states({1: frozenset({"SUSPENDED"})}, 1)
    assert found.jobs({}, nodes)[1].phase is Phase.STOPPED
    found.states({1: RUNNING}, 2)
    found.details(1, RUNS)
    assert found.jobs({}, nodes)[1].slots == (("k1", 2),)
    found.details(1, dataclasses.replace(RUNS, allocations=(Allocation("n1", 1),)))
    assert found.jobs({}, nodes)[1].slots == (("k1", 1),)
    found.stale(1)
    assert found.jobs({}, nodes)[1].phase is Phase.STARTING


def test_another_job_with_the_id_of_a_forgotten_one_is_read() -> None:
    found = book(dataclasses.replace(RUNS, states=CANCELLED), OTHER)
    found.states({2: RUNNING}, 1)
    found.states({1: PENDING, 2: RUNNING}, 2)
    assert found.to_read() == [1]
    found.details(1, dataclasses.replace(OTHER, job_id=1))
    assert phases(found) == {}


def test_a_job_that_was_started_is_read_again_and_not_started_twice() -> None:
    found = book(OURS)
    assert phases(found) == {1: Phase.SUBMITTED}
    found.stale(1)
    assert phases(found) == {1: Phase.PENDING}
    assert found.to_read() == [1]
    assert found.details(1, STARTED)
    assert phases(found) == {1: Phase.PENDING}


def test_the_details_that_an_earlier_slurmctld_has_given_do_not_count_and_are_read_again() -> None:
    running, ended = (
        dataclasses.replace(STARTED, job_id=number, states=frozenset({state}))
        for number, state in ((1, "RUNNING"), (2, "COMPLETED"))
    )
    found = book(running, ended)
    listed = {1: running.states, 2: ended.states}
    assert found.started_at(100)
    assert found.to_read() == [1]
    found.details(1, running)
    found.states(listed, 1.0)
    assert not found.started_at(100)
    assert known(found)
    assert found.started_at(101)
    found.states(listed, 2.0)
    assert (found.to_read(), known(found)) == ([1], False)
    found.details(1, running)
    found.states(listed, 3.0)
    assert (found.to_read(), known(found)) == ([], True)
    assert found.started_at(102)
    found.states({2: ended.states}, 4.0)
    assert known(found), "it has forgotten the job"


def test_jobs_that_wait_are_read_again_in_turn_and_those_that_have_begun_are_not() -> None:
    found = book(*(dataclasses.replace(STARTED, job_id=number) for number in range(1, 8)))
    assert (found.next_waiting(2, 2), found.next_waiting(2, 2)) == ([1, 2], [3, 4])
    states = dict.fromkeys(range(1, 8), frozenset({"PENDING"}))
    found.states({**states, 5: frozenset({"RUNNING"}), 6: frozenset({"RUNNING"})}, 2.0)
    assert found.next_waiting(2, 2) == [7]
    assert found.next_waiting(9, 9) == [1, 2, 3, 4, 7]
    found.states(dict.fromkeys(range(1, 8), frozenset({"RUNNING"})), 3.0)
    assert found.next_waiting(2, 2) == []
    found.states(states, 4.0)
    assert found.next_waiting(2, 2) == [1, 2], "a job that has been requeued waits again"


@pytest.mark.parametrize(("waiting", "each_second"), [(10, 5), (900, 15), (5000, 20)])
def test_each_job_that_waits_is_read_again_within_a_minute_as_far_as_twenty_a_second_do(
    waiting: int, each_second: int
) -> None:
    found = book(*(dataclasses.replace(STARTED, job_id=number + 1) for number in range(waiting)))
    assert len(found.next_waiting(5, 20)) == each_second


def test_a_job_waits_as_soon_as_its_details_show_that_it_is_a_placeholder() -> None:
    found = JobBook()
    found.states({1: frozenset({"PENDING"})}, 1.0)
    assert found.next_waiting(2, 2) == []
    found.details(1, STARTED)
    assert found.next_waiting(2, 2) == [1]


def test_details_that_are_the_same_are_no_news() -> None:
    found = book(STARTED)
    assert found.next_waiting(5, 5) == [1]
    assert not found.details(1, STARTED)
    assert found.details(1, dataclasses.replace(STARTED, reason="Priority"))


COMMENT = Comment("team", "group/g", "", 3, (("x", 1), ("y", 2)))
LEAD = dataclasses.replace(STARTED, het_id=1, comment="", admin_comment=bridge.encode(COMMENT))
OTHER_PART = dataclasses.replace(LEAD, job_id=2, het_offset=1)


def test_the_components_of_a_heterogeneous_job_are_one_job() -> None:
    found = book(LEAD, OTHER_PART).jobs({}, {})
    assert list(found) == [1]
    assert found[1].ids == (1, 2)
    assert [(it.digest, it.size) for it in found[1].components] == [("x", 1), ("y", 2)]
    assert found[1].phase is Phase.PENDING


def test_a_heterogeneous_job_has_ended_as_soon_as_the_list_shows_the_end_of_one_component() -> None:
    found = book(
        dataclasses.replace(LEAD, states=RUNNING), dataclasses.replace(OTHER_PART, states=RUNNING)
    )
    found.states({1: RUNNING, 2: CANCELLED}, 1)
    job = found.jobs({}, {})[1]
    assert (job.phase, job.state, job.remaining) == (Phase.ENDED, "CANCELLED", (1,))


def test_a_heterogeneous_job_one_of_whose_components_is_missing_has_no_end_and_does_not_run() -> (
    None
):
    lead = dataclasses.replace(LEAD, states=RUNNING, allocations=(Allocation("n1", 2),))
    assert phases(book(lead)) == {1: Phase.STARTING}


def test_a_job_on_several_nodes_is_read_again_after_one_that_has_begun_on_one_of_them() -> None:
    both = (Allocation("n1", 2), Allocation("n2", 2))
    two = dataclasses.replace(RUNS, job_id=3, allocations=both)
    alone = dataclasses.replace(RUNS, job_id=4, allocations=both[1:])
    ended = dataclasses.replace(two, job_id=5, states=CANCELLED)
    far = dataclasses.replace(two, job_id=6, allocations=(Allocation("n8", 2), Allocation("n9", 2)))
    found = book(RUNS, two, alone, ended, far, OTHER)
    assert found.beside([1]) == found.beside([4, 2]) == found.beside([1, 3]) == [3]
    assert found.beside([3]) == found.beside([2]) == found.beside([5]) == []


def test_a_component_that_its_user_submitted_is_a_job_without_the_other_components() -> None:
    text = f"{bridge.BY_USER}team/g"
    batch = ExternalJob(1, RUNNING, user_name="ada", user_id=8, comment="", het_id=1)
    beside = dataclasses.replace(
        RUNS, job_id=2, comment=text, admin_comment="", het_id=1, het_offset=1
    )
    found = book(batch, beside).jobs({}, {"n1": "k1"})
    assert list(found) == [2]
    assert (found[2].phase, found[2].whole, found[2].comment.group) == (Phase.RUNNING, 1, "group/g")


GUARD = dataclasses.replace(RUNS, external=False, guard=True)
QUEUED_AGAIN = PENDING | {"COMPLETING"}


def test_a_job_that_has_become_a_guard_after_it_was_read_is_known_when_its_epilog_waits() -> None:
    found = book(OTHER)
    completing = frozenset({"COMPLETED", "COMPLETING"})
    found.states({2: completing}, 1)
    assert found.to_read() == [2]
    its = (Allocation("w0", 2),)
    found.details(
        2, dataclasses.replace(OTHER, states=completing, admin_comment=TEXT, allocations=its)
    )
    [job] = found.jobs({}, {}, {"w0": "a"}).values()
    assert (job.guard, job.completing, job.slots) == (True, True, (("a", 2),))
    assert found.to_read() == []


def test_a_guard_is_one_until_its_epilogs_have_ended_whatever_its_record_is_meanwhile() -> None:
    """Its user has it queued again, and changes its output: the Epilog still has the former one,
    and waits.
    """
    found = book(dataclasses.replace(GUARD, allocations=(Allocation("w0", 2),)))
    changed = dataclasses.replace(
        GUARD, states=QUEUED_AGAIN, guard=False, comment="", allocations=()
    )
    for record in (
        changed,
        dataclasses.replace(changed, admin_comment="overwritten by an administrator"),
    ):
        found.states({1: QUEUED_AGAIN}, 1)
        found.details(1, record)
        [job] = found.jobs({}, {}, {"w0": "a"}).values()
        assert (job.guard, job.completing, [node for node, _ in job.slots]) == (True, True, ["a"])
    found.states({1: PENDING}, 2)
    found.details(1, dataclasses.replace(record, states=PENDING))
    assert found.jobs({}, {}) == {}


def test_no_job_of_a_user_is_a_guard_while_its_epilogs_run_by_its_output_and_its_comment() -> None:
    like = dataclasses.replace(GUARD, admin_comment="", comment="", states=QUEUED_AGAIN)
    assert book(like).jobs({}, {}) == {}


def test_a_job_of_others_is_not_read_again_when_it_runs_or_has_ended() -> None:
    found = book(dataclasses.replace(OTHER, states=PENDING))
    for at, states in enumerate((RUNNING, CANCELLED), 1):
        found.states({2: states}, at)
        assert found.to_read() == []


def test_the_comment_with_which_a_users_job_has_begun_counts_until_its_end() -> None:
    """Otherwise its user could have the job end, and the pods of its group run on beside those of
    others.
    """
    begun = dataclasses.replace(RUNS, comment=f"{bridge.BY_USER}team/g", admin_comment="")
    found = book(begun)
    found.states({1: CANCELLED}, 1)
    found.details(1, dataclasses.replace(begun, states=CANCELLED, comment="mine", allocations=()))
    [job] = found.jobs({}, {"n1": "a"}).values()
    assert (job.phase, job.comment.group, job.slots) == (Phase.ENDED, "group/g", (("a", 2),))
    other = dataclasses.replace(begun, user_name="eve")
    found.details(1, dataclasses.replace(other, states=CANCELLED, comment="mine"))
    assert found.jobs({}, {}) == {}, "the id is another job's after a loss of Slurm's state"


def test_the_comment_of_a_users_job_that_waits_can_change() -> None:
    waits = dataclasses.replace(OURS, comment=f"{bridge.BY_USER}team/g")
    found = book(waits)
    found.details(1, dataclasses.replace(waits, comment=f"{bridge.BY_USER}team/h"))
    [job] = found.jobs({}, {}).values()
    assert job.comment.group == "group/h"


def test_a_job_with_the_id_of_one_that_slurm_has_forgotten_is_not_that_one_before_it_is_read() -> (
    None
):
    found = book(RUNS)
    found.states({1: CANCELLED}, 1)
    found.states({2: RUNNING}, 2)
    assert phases(found) == {1: Phase.ENDED}
    found.details(2, OTHER)
    found.states({1: PENDING, 2: RUNNING}, 3, again=True)
    assert (known(found), phases(found)) == (True, {})


def test_a_job_has_its_nodes_until_it_has_ended_also_while_it_is_suspended() -> None:
    found = book(RUNS, OTHER)
    assert found.holding() == frozenset({"n1"})
    found.states({1: frozenset({"SUSPENDED"}), 2: RUNNING}, 1)
    assert found.holding() == frozenset({"n1"})
    found.states({1: CANCELLED, 2: RUNNING}, 2)
    assert found.holding() == frozenset()


def test_the_nodes_of_jobs_are_unknown_until_each_job_was_read() -> None:
    found = JobBook()
    assert found.holding() is None
    found.states({1: frozenset({"SUSPENDED"})}, 1)
    assert found.holding() is None
    found.details(1, dataclasses.replace(RUNS, states=frozenset({"SUSPENDED"})))
    assert found.holding() == frozenset({"n1"})
    found.fail()
    assert found.holding() is None


def test_thousands_of_jobs_of_others_are_read_some_at_a_time_and_until_then_nothing_is_known() -> (
    None
):
    """Each time that slurmctld has started, or has read its configuration again."""
    found, count = JobBook(), 2 * MOST_OTHERS + 1
    found.states(dict.fromkeys(range(1, count + 1), RUNNING), 1)
    read: list[list[int]] = []
    while due := found.to_read():
        assert not known(found)
        read.append(due)
        for job_id in due:
            found.details(job_id, dataclasses.replace(OTHER, job_id=job_id))
    assert [len(it) for it in read] == [MOST_OTHERS, MOST_OTHERS, 1]
    assert sorted(it for due in read for it in due) == list(range(1, count + 1))
    assert known(found)


def test_a_placeholder_that_has_changed_is_read_at_once_beside_thousands_of_jobs_of_others() -> (
    None
):
    found, many = book(OURS), range(2, 2 * MOST_OTHERS)
    found.states({**dict.fromkeys(many, RUNNING), 1: RUNNING}, 2)
    assert 1 in found.to_read()


def test_a_placeholder_with_the_id_of_a_native_job_from_before_slurmctld_was_killed_is_read() -> (
    None
):
    """Its state file may lack the last jobs, whose ids are given again before the next list."""
    found = book(dataclasses.replace(OTHER, job_id=1))
    found.started_at(100)
    found.details(1, dataclasses.replace(OTHER, job_id=1))
    assert found.started_at(101)
    found.states({1: PENDING}, 2)
    assert (known(found), found.to_read()) == (False, [1])
    found.details(1, OURS)
    assert phases(found) == {1: Phase.SUBMITTED}
