"""What the bridge remembers from pass to pass."""

import msgspec

from sidecars.bridge.memory import AVOID_SECONDS, LOST_AFTER, REPEAT_AFTER, Memory, PerPod
from sidecars.contract.bridge import Comment
from sidecars.policy.bridge.manifests import Pod
from sidecars.policy.bridge.records import GroupKey, Job, Phase

KEY = GroupKey("team", "u")


def job(phase: Phase) -> Job:
    return Job(7, phase, "ada", Comment("team", "u"))


def test_a_submission_is_open_until_its_job_is_listed_or_can_not_come_any_more() -> None:
    memory = Memory(submitted={KEY: 100.0})
    assert memory.open_groups(100.0) == {KEY}
    memory.settle([], 129.0, 30.0)
    assert memory.open_groups(129.0) == {KEY}
    memory.settle([job(Phase.ENDED)], 129.0, 30.0)
    assert memory.open_groups(129.0) == {KEY}
    memory.settle([job(Phase.SUBMITTED)], 129.0, 30.0)
    assert memory.open_groups(129.0) == frozenset()
    memory.submitted[KEY] = 100.0
    memory.settle([], 130.0, 30.0)
    assert memory.open_groups(130.0) == frozenset()


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


def test_a_request_about_a_job_of_which_nothing_else_is_known_is_not_repeated_at_once_either() -> None:
    """A user's heterogeneous job is cancelled by the id of its first component, which may be none of the bridge's."""
    memory = Memory()
    assert memory.may_ask("cancel", 7, 0)
    memory.forget(frozenset(), frozenset(), 1)
    assert not memory.may_ask("cancel", 7, 1)
    memory.forget(frozenset(), frozenset(), REPEAT_AFTER)
    assert memory.asked == {}


def test_a_job_that_no_node_fits_is_started_again_later_each_time_and_at_once_when_nodes_change() -> None:
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


def test_what_concerns_pods_and_groups_that_are_gone_is_forgotten() -> None:
    memory = Memory(sent={"a": "k1", "b": "k1"}, unbound={"a": 1.0, "b": 1.0})
    memory.refuse(KEY, "no", 0)
    memory.may_ask("start", 7, 0)
    memory.forget(frozenset({"a"}), frozenset({KEY}), 1)
    assert memory.sent == {"a": "k1"}
    assert memory.unbound == {"a": 1.0}
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
    one, same_uid, other = (msgspec.convert({"metadata": {"name": "a", "uid": uid}}, Pod) for uid in "aab")
    assert (known(one), known(one), known(other), known(one)) == (1, 1, 2, 1)
    assert (known(same_uid), known(same_uid)) == (3, 3)
    known.pop("b")
    known.pop("unknown")
    assert (known(same_uid), known(other)) == (3, 4)
