"""Environment variables that a container sets twice, beside a model of what the kubelet does with
them.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sidecars.workloads.resources import ResourceError
from sidecars.workloads.variables import each_once

SOURCE = {"fieldRef": {"fieldPath": "metadata.name"}}
NAMES = ("A", "B", "C")


def env(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    """Environment variables in the order given."""
    return [{"name": name, "value": value} for name, value in pairs]


def expanded(text: str, known: dict[str, str]) -> str:
    """The value of a variable, read character by character as the kubelet does: `$$` is a dollar,
    `$(NAME)` a known variable's value, and all else stays.
    """
    result, at = "", 0
    while at < len(text):
        if text[at] != "$" or at + 1 == len(text):
            result, at = result + text[at], at + 1
        elif text[at + 1] == "$":
            result, at = result + "$", at + 2
        elif text[at + 1] == "(" and ")" in text[at:]:
            end = text.index(")", at)
            name = text[at + 2 : end]
            result, at = result + known.get(name, text[at : end + 1]), end + 1
        else:
            result, at = result + text[at], at + 1
    return result


def environment(items: Sequence[dict[str, str]]) -> dict[str, str]:
    """What a container has."""
    known: dict[str, str] = {}
    for item in items:
        known[item["name"]] = expanded(item["value"], known)
    return known


pieces = st.sampled_from(["x", "$", "$$", "(", ")", "$(", *(f"$({name})" for name in NAMES)])
values = st.lists(pieces, max_size=4).map("".join)


@given(st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=6))
def test_a_container_has_the_same_environment_with_each_variable_once(
    pairs: list[tuple[str, str]],
) -> None:
    first: set[str] = set()
    for name, value in pairs:
        later = {other for other, _ in pairs} - first
        assume(not any(f"$({other})" in value for other in later))
        first.add(name)
    once = each_once(env(*pairs), "env")
    names = [item["name"] for item in once]
    assert len(names) == len(set(names))
    assert environment(once) == environment(env(*pairs))


def test_a_variable_between_two_of_one_name_has_the_value_of_the_first() -> None:
    items = env(("A", "1"), ("B", "$(A)x"), ("A", "2"), ("C", "$(A)"))
    assert each_once(items, "env") == env(("B", "1x"), ("A", "2"), ("C", "$(A)"))


def test_an_escaped_reference_stays_one() -> None:
    assert each_once(env(("A", "1"), ("A", "$$(A)")), "env") == env(("A", "$$(A)"))


def test_a_variable_from_a_source_may_be_set_again_where_nothing_refers_to_it() -> None:
    items: list[dict[str, Any]] = [{"name": "A", "valueFrom": SOURCE}, *env(("A", "2"))]
    assert each_once(items, "env") == env(("A", "2"))
    assert each_once(items[::-1], "env") == [{"name": "A", "valueFrom": SOURCE}]


def test_a_reference_to_a_source_that_is_overridden_is_refused_with_both_names() -> None:
    items: list[dict[str, Any]] = [
        {"name": "A", "valueFrom": SOURCE}, *env(("B", "$(A)"), ("A", "2")),
    ]  # fmt: skip
    with pytest.raises(ResourceError, match=r"^spec\.env: the value of `B` refers to `A`, which"):
        each_once(items, "spec.env")


def test_lists_without_duplicates_and_malformed_items_are_kept() -> None:
    single = env(("A", "1"), ("B", "$(A)"))
    assert each_once(single, "env") == single
    assert each_once(["A=1", *env(("A", "1"), ("A", "2"))], "env") == ["A=1", *env(("A", "2"))]
