"""What the bridge remembers from pass to pass."""

import msgspec

from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.records import GroupKey, Job, Obstacle, Phase
from sidecars.bridge.memory import (
    AVOID_SECONDS,
    LABEL_SECONDS,
    LOST_AFTER,
    OVERDUE_SECONDS,
    REPEAT_AFTER,
    RESUME_SECONDS,
    Memory,
    PerPod,
    Submission,
)
from sidecars.contract.bridge import Comment

KEY = GroupKey("team", "u")


def job(phase: Phase = Phase.SUBMITTED, user: str = "ada", *, root: bool = False) -> dict[int, Job]:
    return {7: Job(7, phase, user, Comment("team", "u"), root=root)}


def test_a_submission_is_open_until_its_job_is_listed_or_can_not_come_any_more() -> None:
    memory = Memory(submitted={KEY: Submission("ada", 100.0)})
    assert memory.open_groups(100.0) == {KEY}
    memory.settle({}, 129.0, 30.0)
    assert memory.open_groups(129.0) == {KEY}
    memory.settle(job(Phase.ENDED), 129.0, 30.0)
    assert memory.open_groups(129.0) == {KEY}
    memory.settle(job(), 129.0, 30.0)
    assert memory.open_groups(129.0) == frozenset()
    memory.submitted[KEY] = Submission("ada", 100.0)
    memory.settle({}, 130.0, 30.0)
    assert memory.open_groups(130.0) == frozenset()


def test_the_job_of_another_user_with_the_comment_settles_no_submission() -> None:
    for other in (job(user="eve"), job(user=""), job(root=True)):
        memory = Memory(submitted={KEY: Submission("ada", 100.0)})
        memory.settle(other, 129.0, 30.0)
        assert memory.open_groups(129.0) == {KEY}
        assert memory.misnamed(other) == {}
        memory.settle(other, 130.0, 30.0)
        assert memory.open_groups(130.0) == frozenset()


def test_a_submission_stays_open_while_slurm_shows_its_job_as_one_of_another_user() -> None:
    memory = Memory(submitted={KEY: Submission("Ada", 100.0, 7)})
    memory.settle(job(), 900.0, 30.0)
    assert memory.open_groups(900.0) == {KEY}
    assert memory.misnamed(job()) == {KEY: (job()[7], "Ada")}
    assert memory.misnamed(job(user="Ada")) == {}
    assert memory.find_root(job()) == set()
    memory.settle(job(Phase.ENDED), 901.0, 30.0)
    assert memory.open_groups(901.0) == frozenset()


def test_a_user_has_uid_0_if_the_job_of_its_submission_has() -> None:
    memory = Memory(submitted={KEY: Submission("toor", 100.0, 7)})
    assert memory.find_root(job(user="root", root=True)) == {"toor"}
    assert memory.find_root(job(user="root", root=True)) == set()
    assert memory.root == {"toor"}


def test_another_job_with_the_id_of_a_submission_is_not_its_job() -> None:
    """slurmctld that has lost its state counts from the start."""
    memory = Memory(submitted={KEY: Submission("ada", 100.0, 7)})
    other = {7: Job(7, Phase.SUBMITTED, "eve", Comment("team", "other"))}
    assert memory.misnamed(other) == {}
    memory.started_at(1000)
    memory.submitted[KEY].job_id = 7
    memory.started_at(1000)
    assert memory.misnamed(job(user="eve"))
    memory.started_at(1001)
    assert memory.misnamed(job(user="eve")) == {}


def test_a_refused_submission_is_repeated_later_each_time() -> None:
    memory, now, pauses = Memory(), 0.0, []
    for _ in range(8):
        memory.refuse(KEY, "no", now)
        pauses.append(memory.refusals[KEY].again_at - now)
        assert memory.open_groups(now) == {KEY}
        now = memory.refusals[KEY].again_at
        assert memory.open_groups(now) == frozenset()
    assert pauses == [5, 10, 20, 40, 80, 120, 120, 120]


def test_a_request_about_a_job_is_not_repeated_at_once() -> None:
    memory = Memory()
    assert memory.may_ask("cancel", 7, 0)
    assert not memory.may_ask("cancel", 7, REPEAT_AFTER - 1)
    assert memory.may_ask("start", 7, 1)
    assert memory.may_ask("cancel", 7, REPEAT_AFTER)


def test_a_request_about_a_job_of_which_nothing_else_is_known_is_not_repeated_at_once_either() -> (
    None
):
    """A user's heterogeneous job is cancelled by the id of its first component, which may be none
    of the bridge's.
    """
    memory = Memory()
    assert memory.may_ask("cancel", 7, 0)
    memory.forget(frozenset(), frozenset(), 1)
    assert not memory.may_ask("cancel", 7, 1)
    memory.forget(frozenset(), frozenset(), REPEAT_AFTER)
    assert memory.asked == {}


def test_a_job_that_no_node_fits_is_started_again_ever_later_or_when_nodes_change() -> None:
    memory, now, pauses = Memory(), 0.0, []
    assert memory.paused_jobs({7}, "small", now) == frozenset()
    for _ in range(7):
        memory.pause(7, now)
        pauses.append(memory.paused[7].again_at - now)
        assert memory.paused_jobs({7}, "small", now) == {7}
        now = memory.paused[7].again_at
        assert memory.paused_jobs({7}, "small", now) == frozenset()
    assert pauses == [5, 10, 20, 40, 80, 120, 120]
    memory.pause(7, now)
    assert memory.paused_jobs({7}, "large", now) == frozenset()
    memory.pause(7, now)
    assert memory.paused_jobs({7}, "large", now) == {7}
    assert memory.paused_jobs({8}, "large", now) == frozenset()
    assert memory.paused == {}


def test_nodes_are_avoided_for_a_while_and_not_too_many() -> None:
    memory = Memory()
    for index in range(7):
        memory.avoid("owner", f"k{index}", index)
    assert memory.avoided(10) == {"owner": ("k2", "k3", "k4", "k5", "k6")}
    assert memory.avoided(5 + AVOID_SECONDS) == {"owner": ("k6",)}
    assert memory.avoided(6 + AVOID_SECONDS) == {}


def test_the_pods_of_a_node_are_lost_when_it_has_been_missing_for_a_minute() -> None:
    memory = Memory()
    assert not memory.lost("k1", 100)
    assert not memory.lost("k1", 100 + LOST_AFTER - 1)
    assert memory.lost("k1", 100 + LOST_AFTER)


def test_a_release_has_no_effect_any_more_when_the_pod_has_changed_and_still_waits() -> None:
    memory = Memory(sent={"a": ("1", "k1")})
    assert [memory.sent_to("a", version) for version in ("1", "2", None)] == ["k1", "", "k1"]
    assert memory.sent_to("b", "1") == ""


def test_a_label_that_was_sent_counts_for_as_long_as_a_cache_may_not_show_it() -> None:
    memory = Memory(labels={"a": (7, 100.0)})
    assert memory.labelling(100 + LABEL_SECONDS - 1) == {"a": 7}
    assert memory.labelling(100 + LABEL_SECONDS) == {}


def test_the_scheduler_is_away_until_it_has_had_a_minute_for_the_pods_that_it_has_left() -> None:
    memory = Memory(scheduled_at=0.0)
    memory.unbound_seconds("a", 0.0, tried=False)
    assert not memory.scheduler_away("a", OVERDUE_SECONDS - 1)
    assert memory.scheduler_away("a", OVERDUE_SECONDS)
    memory.scheduled_at = 1000.0
    assert memory.scheduler_away("a", 1000.0)
    assert memory.scheduler_away("a", 1000.0 + RESUME_SECONDS - 1)
    assert not memory.scheduler_away("a", 1000.0 + RESUME_SECONDS)
    memory.bound("a")
    assert not memory.scheduler_away("a", 2000.0)


def test_a_pod_has_its_whole_time_from_when_the_kubelet_has_failed_to_start_it() -> None:
    memory = Memory()
    # Between two tries, the kubelet reports no failure.
    times = [(0, False), (900, True), (910, False), (920, True)]
    found = [memory.starting_seconds("a", now, fails=fails) for now, fails in times]
    assert found == [0, 0, 910, 20]
    memory.begun("a")
    assert memory.starting_seconds("a", 930, fails=True) == 0


def test_a_pod_has_its_whole_time_from_when_the_scheduler_has_tried_it() -> None:
    memory = Memory()
    times = [(0, False), (900, False), (910, True), (920, True)]
    found = [memory.unbound_seconds("a", now, tried=tried) for now, tried in times]
    assert found == [0, 900, 0, 10]
    memory.bound("a")
    assert memory.unbound_seconds("a", 930, tried=True) == 0


def test_what_concerns_pods_and_groups_that_are_gone_is_forgotten() -> None:
    memory = Memory(sent={"a": ("1", "k1"), "b": ("1", "k1")}, unbound={"a": 1.0, "b": 1.0})
    memory.labels = {"a": (7, 0.0), "b": (7, 0.0)}
    memory.refuse(KEY, "no", 0)
    memory.may_ask("start", 7, 0)
    memory.forget(frozenset({"a"}), frozenset({KEY}), 1)
    assert memory.sent == {"a": ("1", "k1")}
    assert memory.unbound == {"a": 1.0}
    assert memory.labels == {"a": (7, 0.0)}
    assert KEY in memory.refusals
    assert set(memory.asked) == {("start", 7)}
    memory.forget(frozenset(), frozenset(), 1 + REPEAT_AFTER)
    assert [memory.sent, memory.unbound, memory.refusals, memory.asked] == [{}, {}, {}, {}]


def test_what_follows_from_a_pod_is_computed_once_for_each_version_of_it() -> None:
    computed: list[Pod] = []

    def size(pod: Pod) -> int:
        computed.append(pod)
        return len(computed)

    known = PerPod(size)
    one, same_uid, other = (
        msgspec.convert({"metadata": {"name": "a", "uid": uid}}, Pod) for uid in "aab"
    )
    assert (known(one), known(one), known(other), known(one)) == (1, 1, 2, 1)
    assert (known(same_uid), known(same_uid)) == (3, 3)
    known.pop("b")
    known.pop("unknown")
    assert (known(same_uid), known(other)) == (3, 4)


def test_the_time_of_an_obstacle_begins_again_when_the_job_had_none_meanwhile() -> None:
    memory, cordoned, gone = (
        Memory(),
        Obstacle("node a is cordoned", "a"),
        Obstacle("node a is gone", "a"),
    )
    memory.obstruct({7: cordoned}, 100)
    memory.obstruct({7: gone}, 130)
    assert memory.obstacles(150) == {7: gone._replace(seconds=50)}
    memory.obstruct({}, 160)
    memory.obstruct({7: gone}, 170)
    assert memory.obstacles(175) == {7: gone._replace(seconds=5)}
