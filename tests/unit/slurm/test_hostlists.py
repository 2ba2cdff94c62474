"""Hostlists."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.slurm.hostlists import MAX_NAMES, HostlistError, compress, expand, nodes_in

NAMES = st.from_regex(r"[a-z0-9.-]{0,5}(0{0,3}[0-9]{1,4}|[0-9]{17,22}|[a-z])", fullmatch=True)


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("", []),
        ("login", ["login"]),
        ("a,b", ["a", "b"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("n[8-10]", ["n8", "n9", "n10"]),
        ("r[1-2]n[0-1]-ib", ["r1n0-ib", "r1n1-ib", "r2n0-ib", "r2n1-ib"]),
        ("slinky-[0-1],gpu-0", ["slinky-0", "slinky-1", "gpu-0"]),
        ("[1-2]", ["1", "2"]),
        ("[999999999999999998-999999999999999999]", ["999999999999999998", "999999999999999999"]),
        ("[1,999999999999999999]", ["1", "999999999999999999"]),
        ("a,,b,", ["a", "b"]),
        (",", []),
        (" n1\tn[2-3] ,a\nb", ["n1", "n2", "n3", "a", "b"]),
        ("n[0-0000000000000000000001]", ["n0", "n1"]),
    ],
)
def test_a_hostlist_expands_in_its_own_order(expression: str, names: list[str]) -> None:
    assert expand(expression) == names


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        ([], ""),
        (["b", "a", "b"], "a,b"),
        (["n1"], "n1"),
        (["n3", "n1", "n2", "n7"], "n[1-3,7]"),
        (["n098", "n099", "n100", "n101"], "n[098-101]"),
        (["n9", "n10"], "n[9-10]"),
        (["n1", "n01"], "n1,n01"),
        (["n0", "n00"], "n0,n00"),
        (["slinky-1", "slinky-0", "gpu-0"], "gpu-0,slinky-[0-1]"),
    ],
)
def test_names_compress_to_sorted_ranges(names: list[str], expression: str) -> None:
    assert compress(names) == expression


@pytest.mark.parametrize(
    "expression",
    [
        "n[1-",
        "n]",
        "n[]",
        "n[3-1]",
        "n[1-2-3]",
        "n[a]",
        "n[[1]]",
        "n[0-1,]",
        "n[0 -1]",
        "a\x01",
        "a\u00a0b",
        "n[1\n]",
        f"n[0-{MAX_NAMES}]",
        "n[1000000000000000000]",
        "n[1000000000000000000-1000000000000000000]",
        "n[0999999999999999999-999999999999999999]",
    ],
)
def test_what_is_no_hostlist_is_refused(expression: str) -> None:
    with pytest.raises(HostlistError):
        expand(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "[0-255][0-255][0-9]",
        "[0-999999999999999999]",
        ",".join(["n[0-9999]"] * 7),
        "[0-65535]" + "[1]" * 100_000,
        "[0-65535]" + "x" * 100_000,
        "a" * 5_000_000,
        "[" * 100_000,
        "n[" + "1," * 100_000,
    ],
)
def test_an_expression_that_would_take_for_ever_is_refused_at_once(expression: str) -> None:
    started = time.process_time()
    with pytest.raises(HostlistError):
        expand(expression)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("expression", "nodes"),
    [
        ("w-[0-1] w-2", ["w-0", "w-1", "w-2"]),
        ("switchwith{w-1}", ["w-1"]),
        ("w-0,blockwith{w-[1-2]}x", ["w-0", "w-1", "w-2"]),
        ("feature{gpu},switch{s0},block{b},w-3", ["w-3"]),
        ("feature{}", []),
    ],
)
def test_the_nodes_in_a_hostlist_function_are_those_that_have_to_exist(
    expression: str, nodes: list[str]
) -> None:
    assert nodes_in(expression) == nodes


@pytest.mark.parametrize("name", ["", "a,b", "a[1]", "a b", "a\n", "a\0"])
def test_a_name_that_no_hostlist_can_contain_is_refused(name: str) -> None:
    with pytest.raises(HostlistError):
        compress(["good", name])


@given(st.lists(NAMES, max_size=60))
def test_what_is_compressed_expands_to_the_same_names(names: list[str]) -> None:
    expanded = expand(compress(names))
    assert sorted(expanded) == sorted(set(names))


@given(st.text(st.sampled_from("n[]-,019x \n") | st.characters()))
def test_any_text_expands_or_is_a_hostlist_error(text: str) -> None:
    try:
        names = expand(text)
    except HostlistError:
        return
    assert sorted(expand(compress(names))) == sorted(set(names))


def test_ten_thousand_names_take_no_time() -> None:
    names = [f"gpu-{number}" for number in range(0, 20_000, 2)]
    expression = compress(names)
    assert expand(expression) == names
    started = time.process_time()
    assert expand(compress(names)) == names
    assert time.process_time() - started < 0.2
