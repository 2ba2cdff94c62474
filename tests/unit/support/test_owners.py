"""What random runs of the bridge check."""

from tests.support.owners import Claim, Component, leaked, overbooked, rivals


def test_amounts_are_added_up_for_each_node() -> None:
    claims = [
        Claim("a", "n1", {"cpus": 2}),
        Claim("b", "n1", {"cpus": 2}),
        Claim("c", "n2", {"cpus": 5}),
    ]
    assert overbooked({"n1": {"cpus": 4}}, claims) == []
    assert overbooked({"n1": {"cpus": 3}}, claims) == ["n1: 4 of 3 cpus are in use by a, b"]


def test_a_core_of_one_node_has_one_owner() -> None:
    first = Claim("job 1", "n1", things=frozenset({"core 0", "core 1"}))
    assert overbooked({}, [first, first, Claim("job 2", "n2", things=first.things)]) == []
    [text] = overbooked({}, [first, Claim("job 2", "n1", things=frozenset({"core 1"}))])
    assert text == "n1: core 1 have several owners: job 1, job 2"


def test_a_group_has_one_job_that_may_run() -> None:
    assert rivals([("g", 1), ("h", 2), ("g", 1)]) == []
    assert rivals([("g", 1), ("g", 3)]) == ["jobs 1, 3 of g"]


def test_what_is_left_is_found_on_both_sides() -> None:
    jobs = [Component(1, 1, live=True), Component(2, 2, live=True), Component(3, 2, live=True)]
    pods = {"a": (1, True), "b": (3, True), "waits": (None, False)}
    assert leaked(jobs, pods) == []
    assert leaked(jobs, {"a": (1, True)}) == ["job 2 has no pod", "job 3 has no pod"]
    ended = [jobs[0], Component(2, 2, live=False), jobs[2]]
    assert leaked(ended, pods) == ["b runs without its job 3"]
    assert leaked([], {"a": (1, True), "b": (3, False)}) == ["a runs without its job 1"]
