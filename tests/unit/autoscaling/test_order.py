"""The order of the jobs: slices don't depend on what changed before, and most stay as they are."""

from hypothesis import given
from hypothesis import strategies as st

from sidecars.autoscaling.needs import Needs, read
from sidecars.autoscaling.order import EXACT, Entry, Order, Run
from sidecars.autoscaling.records import Settings
from tests.unit.autoscaling.builders import job


def bundle(tasks: int) -> tuple[Needs]:
    pending = job(tasks=tasks).pending
    assert pending is not None
    needs = read(pending.request, Settings())
    assert isinstance(needs, Needs)
    return (needs,)


BUNDLES = [bundle(tasks) for tasks in range(1, 4)]
NUMBERS = st.integers(1, 3 * EXACT)


def entry(number: int) -> Entry:
    return Entry((0, number * 7919 % 1000, 0, number), BUNDLES[number % 3], 1 + number % 2)


@given(st.sets(NUMBERS, min_size=EXACT - 20, max_size=EXACT + 20), st.lists(NUMBERS, max_size=60))
def test_a_changed_order_is_what_a_new_order_of_the_same_jobs_is(
    numbers: set[int], changes: list[int]
) -> None:
    order, present = Order(map(entry, numbers)), set(numbers)
    for number in changes:
        if number in present:
            present.remove(number)
            order.remove(entry(number).key)
        else:
            present.add(number)
            order.add(entry(number))
    runs = order.runs()
    assert runs == Order(map(entry, present)).runs()
    assert sorted(job_id for run in runs for job_id in run.jobs) == sorted(present)


def test_a_change_leaves_all_runs_but_those_of_its_slice_as_they_are() -> None:
    order = Order(map(entry, range(1, 4 * EXACT)))
    before = order.runs()
    order.remove(entry(100).key)
    order.add(entry(5 * EXACT))
    former = {id(run) for run in before}
    new = [run for run in order.runs() if id(run) not in former]
    assert 0 < len(new) <= 4 * len(BUNDLES)


def test_few_jobs_are_taken_one_after_the_other() -> None:
    numbers = sorted(range(1, 11), key=lambda number: entry(number).key)
    found = [job_id for run in Order(map(entry, range(1, 11))).runs() for job_id in run.jobs]
    assert found == numbers


def test_placed_and_unplaced_jobs_of_a_run_overlap_in_an_array_that_is_placed_in_part() -> None:
    run = Run(BUNDLES[0], (7, 8, 9), (1, 4, 1))
    parts = {placed: (run.first(placed), run.rest(placed)) for placed in (0, 1, 3, 5, 6)}
    assert parts == {
        0: ((), (7, 8, 9)),
        1: ((7,), (8, 9)),
        3: ((7, 8), (8, 9)),
        5: ((7, 8), (9,)),
        6: ((7, 8, 9), ()),
    }
