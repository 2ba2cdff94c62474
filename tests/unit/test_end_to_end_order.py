"""That each file of the end-to-end tests is in one lane, and none follows the one that removes what
all others use.
"""

from pathlib import Path

from tests.e2e import order

FOLDER = Path(__file__).parents[1] / "e2e"
FILES = sorted(path.stem for path in FOLDER.glob("test_*.py"))


def test_each_file_is_in_one_lane_and_each_name_in_a_lane_is_a_file() -> None:
    assert sorted(name for files in order.LANES.values() for name in files) == FILES


def test_the_file_that_removes_everything_ends_its_lane() -> None:
    assert [files[-1] for files in order.LANES.values() if order.LAST in files] == [order.LAST]


def test_files_in_which_workers_start_all_the_time_are_in_one_lane() -> None:
    assert order.lane("test_no_ghosts") == order.lane("test_states")


def test_files_are_sorted_by_lane_and_then_as_the_lane_lists_them() -> None:
    assert sorted(FILES, key=order.position) == [
        name for _, files in sorted(order.LANES.items()) for name in files
    ]
    assert sorted(["test_z_leaving", "test_new", "test_workers"], key=order.position) == [
        "test_new",
        "test_workers",
        "test_z_leaving",
    ]
