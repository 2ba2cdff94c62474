"""Which nodes have the features that `--constraint` asks for."""

import pytest

from sidecars.autoscaling.features import UnsupportedFeatures, alternatives


@pytest.mark.parametrize(
    ("expression", "having", "lacking"),
    [
        ("a100", {"a100", "ib"}, {"ib"}),
        ("a100&ib", {"a100", "ib"}, {"a100"}),
        ("a100|h100", {"h100"}, {"ib"}),
        ("ib&(a100|h100)", {"ib", "h100"}, {"h100"}),
        ("a100|h100&ib", {"h100", "ib"}, {"a100"}),
    ],
)
def test_a_node_has_the_features_of_an_expression_or_not(
    expression: str, having: set[str], lacking: set[str]
) -> None:
    (test,) = alternatives(expression)
    assert test(having)
    assert not test(lacking)


def test_brackets_are_alternatives_of_which_all_nodes_have_the_same_one() -> None:
    first, second = alternatives("ib&[rack1|rack2]")
    assert (first({"ib", "rack1"}), first({"ib", "rack2"}), first({"rack1"})) == (
        True,
        False,
        False,
    )
    assert (second({"ib", "rack2"}), second({"ib", "rack1"}), second({"rack2"})) == (
        True,
        False,
        False,
    )


def test_parentheses_in_brackets_belong_to_one_alternative() -> None:
    first, second = alternatives("[(rack1|rack2)&ib|rack3]")
    assert [first({"ib", it}) for it in ("rack1", "rack2", "rack3")] == [True, True, False]
    assert [second({"ib", it}) for it in ("rack1", "rack2", "rack3")] == [False, False, True]


@pytest.mark.parametrize(
    "expression", ["a*2", "a&", "(a", "a)", "[a|b", "a b&|", "(" * 400 + "a", "(" * 9000 + "a"]
)
def test_an_expression_that_is_wrong_too_deep_or_counts_is_not_supported(expression: str) -> None:
    with pytest.raises(UnsupportedFeatures):
        alternatives(expression)
