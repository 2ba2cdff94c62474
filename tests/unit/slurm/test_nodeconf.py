"""Items that describe a Slurm node: `sidecars.slurm.nodeconf`."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.slurm.nodeconf import Item, NodeConf, parse, render

VALUES = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Z"), exclude_characters="\"'\\") | st.just(" ")
)


def test_items_are_separated_by_any_white_space() -> None:
    want = NodeConf((Item("Weight", "10"), Item("features", "a,b"), Item("Gres", "")))
    assert parse(" Weight=10\n\tfeatures=a,b  Gres= ") == want
    assert parse("") == parse(" \n") == NodeConf()


def test_a_value_with_spaces_is_between_quotes() -> None:
    want = NodeConf((Item("Reason", "bad disk"), Item("Comment", "a b"), Item("State", "DRAIN")))
    assert parse("""Reason="bad disk" Comment='a b' State='DRAIN'""") == want


def test_the_last_item_of_a_key_counts_in_any_case() -> None:
    found = parse("Topology=a topology=tree:s1 Features=topology")
    assert found.get("TOPOLOGY") == "tree:s1"
    assert found.get("gres") is None
    assert found.keys == {"topology", "features"}


def test_a_key_within_a_value_is_no_item() -> None:
    assert parse('Comment="Gres=gpu:8 Topology=x"').keys == {"comment"}


@pytest.mark.parametrize("word", ["gpu", "=3", "9=5", 'a="b', 'a="b"c', "a='b", "ä=1"])
def test_what_is_no_item_is_a_problem_and_the_others_count(word: str) -> None:
    found = parse(f"Weight=1 {word}")
    assert found.items == (Item("Weight", "1"),)
    [problem] = found.problems
    assert problem.startswith(f"{word!r} is not of the form Key=Value")


@pytest.mark.parametrize(
    "value", ["it's", "a\\b", "a\x00b", "a\x1fb", '"a\'b c"', "'a\nb'", "'a \"b\" c'"]
)
def test_what_the_command_line_of_slurmd_cannot_contain_is_a_problem(value: str) -> None:
    found = parse(f"Reason={value} Weight=1")
    assert found.items == (Item("Weight", "1"),)
    [problem] = found.problems
    assert problem.startswith("the value of Reason has a ")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (f"tree:s{'1' * 19}", f"s{'1' * 19}"),
        (f"tree:root:s{'9' * 25},block:b1", f"s{'9' * 25}"),
        (f"tree:s[1-{'9' * 20}]x", f"s[1-{'9' * 20}]x"),
        ("1" * 20, "1" * 20),
    ],
)
def test_a_number_that_ends_slurmctld_is_a_problem_at_the_end_of_a_switch_or_block(
    value: str, name: str
) -> None:
    found = parse(f"topology={value} Weight=1")
    assert found.items == (Item("Weight", "1"),)
    [problem] = found.problems
    assert problem.startswith(f"the Topology {name!r} ends in 19 digits or more")


@pytest.mark.parametrize(
    "value",
    [
        "tree:" + ":".join(f"s{number}" for number in range(33)),
        ",".join(f"tree:root:s{number}" for number in range(17)),
        "tree:" + "s:" * 100_000,
    ],
)
def test_more_switches_than_slurmctld_takes_in_a_moment_are_a_problem(value: str) -> None:
    found = parse(f"Topology={value} Weight=1")
    assert found.items == (Item("Weight", "1"),)
    [problem] = found.problems
    assert re.fullmatch(
        r"the Topology names \d+ switches and blocks, and slurmctld would not answer while it "
        r"creates so many; name at most 32",
        problem,
    )


@pytest.mark.parametrize(
    "value",
    [
        "tree:" + ":".join(f"s{number}" for number in range(32)),
        "tree:s" + "1" * 18,
        f"tree:s{'1' * 30}x",
        f"tree:s{'1' * 30}-a",
        "tree:s1,block:b2",
    ],
)
def test_other_names_of_switches_are_no_problem(value: str) -> None:
    assert parse(f"Topology={value}") == NodeConf((Item("Topology", value),))


@given(st.lists(st.builds(Item, st.from_regex(r"\A[A-Za-z][A-Za-z0-9_]{0,5}\Z"), VALUES)))
def test_what_is_rendered_is_read_back(items: list[Item]) -> None:
    assert parse(render(items)) == NodeConf(tuple(items))
