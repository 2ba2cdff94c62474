"""That the order of the end-to-end tests names files that exist, and keeps the one last that others must not follow."""

from pathlib import Path

from tests.e2e import order

FILES = sorted(path.stem for path in (Path(__file__).parents[1] / "e2e").glob("test_*.py"))


def test_each_file_that_the_order_names_exists() -> None:
    assert {*order.FIRST, order.LAST} <= set(FILES)


def test_the_longest_files_come_first_and_no_other_file_follows_the_one_that_removes_everything() -> None:
    ordered = sorted(FILES, key=order.position)
    assert ordered[: len(order.FIRST)] == [*order.FIRST]
    assert order.FIRST[-1] == order.KERNEL
    assert ordered[-1] == order.LAST
    assert sorted(ordered) == FILES


def test_only_the_file_that_the_order_names_needs_the_kernel() -> None:
    folder = Path(__file__).parents[1] / "e2e"
    assert [name for name in FILES if "import guest" in (folder / f"{name}.py").read_text()] == [order.KERNEL]
