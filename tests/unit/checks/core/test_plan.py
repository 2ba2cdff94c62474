"""Which nodes a run tests together, and which ones it finds faulty."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from sidecars.checks.core.outcome import Outcome
from sidecars.checks.core.plan import ALONE, Item, Nodes, Pairs, Plan, failed
from sidecars.policy.checks.results import BAD, Kind, Verdict

PASSED, FAILED = Outcome(Kind.PASSED), Outcome(Kind.FAILED, "slow")
INTERRUPTED = Outcome(Kind.INTERRUPTED, "cancelled")


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def everywhere(*nodes: str) -> dict[str, list[str]]:
    """Nodes of one partition."""
    return {name: ["all"] for name in nodes}


def complete(
    plan: Plan, nodes: list[str], ends: Callable[[Item], Outcome], at_once: int = 100
) -> int:
    """Run the plan with at most so many nodes at a time; the number of jobs."""
    running: list[Item] = []
    jobs = 0
    while not plan.done:
        busy = {name for item in running for name in item.nodes}
        item = (
            plan.next([name for name in nodes if name not in busy])
            if len(busy) + 2 <= at_once
            else None
        )
        if item is not None:
            assert not busy & set(item.nodes), "two jobs on one node"
            running.append(item)
            jobs += 1
            assert jobs < 10 * len(nodes) + 10, "the plan doesn't end"
            continue
        assert running, "the plan is not done and has nothing to do"
        first = running.pop(0)
        plan.ended(first, ends(first))
    plan.close()
    return jobs


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[str], set[str], int]:
    """Nodes, the faulty ones among them, and how many are tested at a time."""
    nodes = names(draw(st.integers(1, 24)))
    return nodes, set(draw(st.lists(st.sampled_from(nodes), unique=True))), draw(st.integers(2, 30))


@st.composite
def parted(draw: st.DrawFn) -> tuple[dict[str, list[str]], set[str], set[str], int]:
    """The partitions of each node, the nodes that are drained, the faulty ones, and how many are
    tested at a time.
    """
    nodes, drained, faulty, at_once = (
        *draw(clusters())[:1],
        set(),
        set(),
        draw(st.integers(2, 30)),
    )
    partitions = st.lists(st.sampled_from(["cpu", "gpu", "big"]), max_size=2, unique=True)
    for name in nodes:
        drained |= {name} if draw(st.integers(0, 4)) == 0 else set()
        faulty |= {name} if draw(st.integers(0, 4)) == 0 else set()
    return {name: draw(partitions) for name in nodes}, drained, faulty, at_once


def by_fault(faulty: set[str]) -> Callable[[Item], Outcome]:
    return lambda item: FAILED if faulty & set(item.nodes) else PASSED


@given(clusters())
def test_pairs_never_name_a_sound_node_and_name_all_faulty_ones_if_a_pair_passed(
    cluster: tuple[list[str], set[str], int],
) -> None:
    nodes, faulty, at_once = cluster
    plan = Pairs(everywhere(*nodes), {})
    complete(plan, nodes, by_fault(faulty), at_once)
    assert set(plan.verdicts) == set(nodes)
    found = set(failed(plan.verdicts))
    assert found <= faulty
    if any(verdict.kind is Kind.PASSED for verdict in plan.verdicts.values()):
        assert found == faulty


@given(parted())
def test_pairs_are_of_one_partition_and_each_partition_has_the_verdicts_that_it_would_have_alone(
    cluster: tuple[dict[str, list[str]], set[str], set[str], int],
) -> None:
    partitions, drained, faulty, at_once = cluster
    fresh = {name: it for name, it in partitions.items() if name not in drained}
    plan = Pairs(fresh, {name: partitions[name] for name in drained})

    def ends(item: Item) -> Outcome:
        assert set(partitions[item.nodes[0]]) & set(partitions[item.nodes[1]]), item
        return by_fault(faulty)(item)

    complete(plan, list(partitions), ends, at_once)
    assert set(plan.verdicts) == set(partitions)
    assert set(failed(plan.verdicts)) <= faulty
    for name, verdict in plan.verdicts.items():
        others = [it for it in fresh if it != name and set(partitions[it]) & set(partitions[name])]
        assert (verdict == Verdict(Kind.SKIPPED, ALONE)) == (not others), (name, verdict)
        if any(plan.verdicts[it].kind is Kind.PASSED for it in others):
            assert verdict.kind is (Kind.FAILED if name in faulty else Kind.PASSED), (name, verdict)


def test_a_faulty_node_and_its_partner_are_tested_again_within_their_partition() -> None:
    partitions = {f"cpu-{number}": ["cpu"] for number in range(2)} | {
        f"gpu-{number}": ["gpu"] for number in range(4)
    }
    plan = Pairs(partitions, {})
    complete(plan, list(partitions), by_fault({"gpu-1"}))
    assert failed(plan.verdicts) == ["gpu-1"]
    assert sum(it.kind is Kind.PASSED for it in plan.verdicts.values()) == 5


def test_a_node_that_is_left_over_reports_that_none_of_its_partition_has_passed() -> None:
    plan = Pairs({"a": ["cpu"], "b": ["cpu"], "c": ["cpu"], "d": ["gpu"], "e": ["gpu"]}, {})
    complete(plan, list("abcde"), by_fault({"a"}))
    assert plan.verdicts["c"] == Verdict(
        Kind.INTERRUPTED, "no node that shares a partition with it has passed"
    )
    assert failed(plan.verdicts) == []


@given(st.integers(2, 24))
def test_pairs_of_sound_nodes_need_half_as_many_jobs_as_nodes(count: int) -> None:
    plan = Pairs(everywhere(*names(count)), {})
    assert complete(plan, names(count), by_fault(set())) == (count + 1) // 2
    assert {it.kind for it in plan.verdicts.values()} == {Kind.PASSED}


def test_a_pair_that_fails_alone_names_no_node() -> None:
    plan = Pairs(everywhere("a", "b"), {})
    complete(plan, ["a", "b"], by_fault({"a"}))
    assert {it.kind for it in plan.verdicts.values()} == {Kind.INTERRUPTED}
    assert plan.verdicts["b"].text == "with a: slow; no other node has confirmed it"


def test_a_link_between_two_sound_nodes_names_neither() -> None:
    plan = Pairs(everywhere(*names(4)), {})
    complete(plan, names(4), lambda item: FAILED if set(item.nodes) == {"n0", "n1"} else PASSED)
    assert failed(plan.verdicts) == []


def test_a_suspect_that_fails_with_one_good_node_and_passes_with_another_is_not_faulty() -> None:
    plan = Pairs(everywhere(*names(6)), {})
    bad = [{"n0", "n1"}, {"n0", "n2"}]
    complete(plan, names(6), lambda item: FAILED if set(item.nodes) in bad else PASSED)
    assert failed(plan.verdicts) == []


def test_a_node_that_the_check_has_drained_is_tested_with_good_ones_alone() -> None:
    plan = Pairs(everywhere("a", "b"), everywhere("old"))
    tested = []

    def ends(item: Item) -> Outcome:
        tested.append(item.nodes)
        return PASSED

    complete(plan, ["a", "b", "old"], ends)
    assert tested == [("a", "b"), ("old", "a")]
    assert plan.verdicts["old"].kind is Kind.PASSED


def test_a_second_report_of_a_job_is_not_counted() -> None:
    for plan in (Nodes(["a"]), Pairs(everywhere("a", "b"), {})):
        item = plan.next(["a", "b"])
        assert item is not None
        plan.ended(item, PASSED)
        plan.ended(item, FAILED)
        assert plan.verdicts["a"].kind is Kind.PASSED


@given(clusters(), st.data())
def test_each_node_gets_the_verdict_of_its_own_job(
    cluster: tuple[list[str], set[str], int], data: st.DataObject
) -> None:
    nodes, faulty, at_once = cluster
    plan = Nodes(nodes)

    def ends(item: Item) -> Outcome:
        return INTERRUPTED if data.draw(st.booleans()) else by_fault(faulty)(item)

    complete(plan, nodes, ends, at_once)
    assert set(plan.verdicts) == set(nodes)
    for name, verdict in plan.verdicts.items():
        assert verdict.kind is Kind.INTERRUPTED or (verdict.kind in BAD) == (name in faulty)


def test_a_node_whose_job_is_interrupted_three_times_stays_untested() -> None:
    plan = Nodes(["a"])
    assert complete(plan, ["a"], lambda _: INTERRUPTED) == 3
    assert plan.verdicts == {"a": Verdict(Kind.INTERRUPTED, "cancelled", {})}


def test_nodes_that_were_never_idle_are_untested() -> None:
    for plan in (Nodes(["a"]), Pairs(everywhere("a", "b"), everywhere("c"))):
        assert plan.next([]) is None
        plan.close()
        assert {it.kind for it in plan.verdicts.values()} == {Kind.INTERRUPTED}
        assert plan.done
