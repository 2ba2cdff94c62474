"""The cache of node records alone; with a poller it is tested in test_poller.py."""

from sidecars.slurm.node_cache import CALM_AFTER, CONFIRM_AFTER, EXPECT_FOR, LISTED_FOR, NodeCache
from sidecars.slurm.records import Node, Nodes


def answer(*names: str, at: int = 100, busy: bool = False) -> Nodes:
    return Nodes(tuple(Node(name, frozenset({"MIXED" if busy else "IDLE"})) for name in names), at)


def filled(*names: str) -> NodeCache:
    """A cache with a full list of these nodes, read at second 0."""
    cache = NodeCache(0, full_every=30)
    everything = answer(*names)
    cache.got_full_list(everything, frozenset(), 0)
    cache.apply(everything, 0, 0, full=True)
    return cache


def test_a_full_list_is_needed_first_and_every_thirty_seconds() -> None:
    assert NodeCache(0, full_every=30).needs_full_list(0)
    cache = filled("n0")
    assert not cache.needs_full_list(29)
    assert cache.needs_full_list(30)


def test_a_full_list_is_needed_after_a_deletion_and_when_the_servers_time_goes_back() -> None:
    cache = filled("n0", "n1")
    assert cache.deleted("n0", 1)
    assert not cache.deleted("n0", 1)
    assert cache.needs_full_list(2)
    cache = filled("n0")
    cache.apply(answer("n0", at=50), 1, 1, full=False)
    assert cache.needs_full_list(2)


def test_an_answer_that_lacks_nodes_is_confirmed_until_it_is_known_to_contain_changes_only() -> (
    None
):
    cache = filled("n0", "n1")
    assert cache.to_confirm(answer("n1")) == {"n0"}
    cache.got_full_list(answer("n0", "n1"), frozenset({"n0"}), 1)
    assert cache.to_confirm(answer("n1")) == frozenset()


def test_changed_and_removed_nodes_are_named() -> None:
    cache = filled("n0", "n1", "n2", "n3")
    cache.expect_removal(["n3"], 1)
    changed, removed = cache.apply(answer("n0", "n1", "n2", "n4"), 2, 3, full=True)
    assert changed == {"n4"}
    assert removed == {"n3"}
    assert cache.changed_after(2.5, ["n0", "n4"]) == {"n4"}
    assert cache.last_change == 3


def test_a_removal_is_expected_for_ten_minutes_only() -> None:
    cache = filled("n0")
    cache.expect_removal(["n0"], 1)
    assert cache.apply(answer(), 1 + EXPECT_FOR, 700, full=True) == (frozenset(), frozenset())
    assert cache.suspects == {"n0"}


def test_suspects_are_removed_when_a_full_list_lacks_them_a_minute_later() -> None:
    cache = filled("n0", "n1")
    cache.apply(answer(), 10, 10, full=True)
    assert cache.suspects == {"n0", "n1"}
    assert set(cache.nodes) == {"n0", "n1"}
    cache.apply(answer(), 10 + CONFIRM_AFTER - 1, 70, full=True)
    assert cache.suspects == {"n0", "n1"}
    _, removed = cache.apply(answer(), 10 + CONFIRM_AFTER, 70, full=True)
    assert removed == {"n0", "n1"}
    assert not cache.nodes


def test_a_written_node_is_unsettled_until_an_answer_asked_for_after_the_write() -> None:
    cache = filled("n0", "n1")
    cache.being_written(["n0", "n1"])
    cache.written(["n0"], 5)
    cache.settle(6)
    assert cache.unsettled == {"n1"}


def test_a_cluster_is_calm_when_nothing_has_happened_for_a_while_and_no_node_is_busy() -> None:
    cache = filled("n0")
    assert not cache.calm(CALM_AFTER - 1)
    assert cache.calm(CALM_AFTER)
    cache.stir(CALM_AFTER)
    assert not cache.calm(CALM_AFTER + 1)
    cache.apply(answer("n0", busy=True), 31, 31, full=False)
    assert not cache.calm(1000)


def test_the_time_of_the_last_answer_with_a_vanished_node_is_remembered_for_a_while() -> None:
    cache = NodeCache(0, full_every=30)
    cache.apply(answer("n0", "n1", at=100), 0, 0, full=True)
    cache.apply(answer("n0", "n2", at=110), 10, 10, full=False)
    assert cache.last_listed == {"n0": 110, "n1": 100, "n2": 110}
    cache.apply(answer("n0", at=120), 20, 20, full=True)
    assert cache.last_listed == {"n0": 120, "n1": 100, "n2": 110}
    cache.apply(answer("n0", at=100 + LISTED_FOR), 30, 30, full=True)
    assert cache.last_listed == {"n0": 100 + LISTED_FOR, "n2": 110}


def test_nodes_vanish_at_once_if_they_are_most_of_those_that_are_no_suspects_yet() -> None:
    names = [f"n{number}" for number in range(20)]
    cache = filled(*names)
    cache.apply(answer(*names[12:]), 10, 10, full=True)
    assert cache.suspects == set(names[:12])
    cache.apply(answer(*names[17:]), 20, 20, full=True)
    assert cache.suspects == set(names[:17])
