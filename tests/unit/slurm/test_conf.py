"""The language of slurm.conf."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.slurm.conf import (
    Conf,
    ConfError,
    Line,
    Pair,
    merge_lists,
    parse,
    parse_readable,
    render,
    without,
)

KEYS = st.from_regex(r"[A-Za-z][A-Za-z0-9_.]{0,12}", fullmatch=True)
VALUES = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z")) | st.sampled_from(' #\\"=,'),
    min_size=1,
)


def pairs(text: str) -> list[list[tuple[str, str]]]:
    return [[(pair.key, pair.value) for pair in line.pairs] for line in parse(text).lines]


def test_a_line_is_its_key_value_pairs() -> None:
    assert pairs("NodeName=n[1-2]  CPUs = 4\tFeature=a,b") == [
        [("NodeName", "n[1-2]"), ("CPUs", "4"), ("Feature", "a,b")]
    ]


def test_blank_lines_and_comments_have_no_pairs_and_are_kept() -> None:
    conf = parse("# head\n\n  \nA=1 # tail\n")
    assert [line.pairs for line in conf.lines] == [(), (), (), (Pair("A", "1"),)]
    assert str(conf) == "# head\n\n  \nA=1 # tail\n"


def test_an_escaped_hash_is_no_comment_and_a_quoted_one_is() -> None:
    assert pairs(r"A=x\#y") == [[("A", "x#y")]]
    with pytest.raises(ConfError, match="a quote that isn't closed"):
        parse('A="x # y"')


def test_a_backslash_at_the_end_continues_the_line_also_with_blanks_behind_it() -> None:
    text = "NodeName=a \\\n CPUs=1 \\  \n Weight=2\nB=1\n"
    conf = parse(text)
    assert [(line.number, len(line.pairs)) for line in conf.lines] == [(1, 3), (4, 1)]
    assert str(conf) == text


def test_a_backslash_within_a_comment_continues_nothing() -> None:
    assert pairs("A=1 # more \\\nB=2") == [[("A", "1")], [("B", "2")]]


def test_two_backslashes_at_the_end_are_a_value_and_no_continuation() -> None:
    assert pairs("A=x\\\\\nB=2") == [[("A", "x\\")], [("B", "2")]]


def test_a_continuation_at_the_end_of_the_file_ends_there() -> None:
    assert pairs("A=1 \\") == [[("A", "1")]]


def test_quotes_enclose_spaces_and_are_not_part_of_the_value() -> None:
    assert pairs('Reason="a b" X=""') == [[("Reason", "a b"), ("X", "")]]


def test_lines_may_end_with_carriage_return_and_newline() -> None:
    assert pairs("A=1\r\nB=2\r\n") == [[("A", "1")], [("B", "2")]]


def test_include_differs_from_a_key() -> None:
    assert parse("include  /etc/slurm/more.conf # why\n").lines[0].include == "/etc/slurm/more.conf"
    assert parse("Include=1").lines[0].include is None


def test_the_last_line_of_a_key_counts_in_any_case() -> None:
    conf = parse("SlurmctldPort=1\nslurmctldport=2\nNodeName=a Port=9")
    assert conf.get("SLURMCTLDPORT") == "2"
    assert conf.get("Port") is None


def test_all_lines_of_a_repeated_key_are_found_in_order() -> None:
    conf = parse("PartitionName=a Nodes=ALL\nX=1\npartitionname=b Nodes=n1 nodes=n2\n")
    assert [line.pairs[0].value for line in conf.all("PartitionName")] == ["a", "b"]
    assert conf.all("PartitionName")[1].get("Nodes") == "n2"


@pytest.mark.parametrize("text", ["A", "A=", "A= \n", "=1", "A=1 B", "A-B=1", "1 2", "A=1 ="])
def test_what_is_no_pair_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(ConfError) as caught:
        parse(f"Good=1\n\n{text}")
    assert caught.value.line == 3


def test_a_nul_character_is_refused() -> None:
    with pytest.raises(ConfError, match="line 1: a NUL"):
        parse("A=1\0\n")


@given(st.text(st.sampled_from(' \t\n\r\v\f#\\"=A1.,Include\0ü\x85')))
def test_any_text_parses_to_itself_or_is_a_conf_error(text: str) -> None:
    try:
        conf = parse(text)
    except ConfError:
        return
    assert str(conf) == text
    assert parse(str(conf)) == conf


@given(KEYS, VALUES)
def test_what_is_rendered_parses_to_the_same_value_on_one_line(key: str, value: str) -> None:
    try:
        line = render(key, value)
    except ValueError:
        assert '"' in value
        return
    assert "\n" not in line
    assert parse(line) == Conf((Line(1, line, (Pair(key, value),)),))


@pytest.mark.parametrize(
    "value", ["a\nPartitionName=x", "a\rb", "a\0", "", "\x1b[0m", '"a', 'a "b"', "a\x7f"]
)
def test_a_value_that_would_break_out_of_its_line_is_not_rendered(value: str) -> None:
    with pytest.raises(ValueError, match="Key"):
        render("Key", value)


@pytest.mark.parametrize("key", ["", "a b", "a=b", "a\n", "#a"])
def test_a_key_that_is_none_is_not_rendered(key: str) -> None:
    with pytest.raises(ValueError, match="no key"):
        render(key, "1")


def test_long_lines_of_any_kind_parse_quickly() -> None:
    for piece in ("\\", '"', "#\\", "a=", 'a="x ', " \\ ", "\\\n", " "):
        text = piece * 30_000
        with contextlib.suppress(ConfError):
            assert str(parse(text)) == text


def test_lists_of_ours_and_of_the_user_are_united_by_option_name_and_ours_wins() -> None:
    ours = {
        "SlurmctldParameters": "enable_configless,reconfig_on_restart",
        "AuthAltParameters": "jwt_key=/etc/slurm/jwt.key",
        "AuthInfo": "use_client_ids",
        "Prolog": "a",
    }
    extra = parse(
        "slurmctldparameters=Idle_On_Node_Suspend,enable_configless\nAuthAltParameters=jwt_key=/x,jwks=/E/j\nProlog=b"
    )
    assert merge_lists(ours, extra) == {
        "AuthAltParameters": "jwks=/E/j,jwt_key=/etc/slurm/jwt.key",
        "SlurmctldParameters": "enable_configless,idle_on_node_suspend,reconfig_on_restart",
    }


def test_only_the_users_last_line_is_merged_and_one_with_spaces_is_ignored() -> None:
    ours = {"AuthInfo": "use_client_ids", "SlurmctldParameters": "enable_configless"}
    extra = parse('AuthInfo=a\nAuthInfo=ttl=60 \\\n # c\nSlurmctldParameters="x y"')
    assert merge_lists(ours, extra) == {"AuthInfo": "ttl=60,use_client_ids"}


def test_a_text_that_slurmctld_would_refuse_is_read_as_far_as_it_can_be() -> None:
    text = 'KillWait=5\nno pair\nInclude more.conf\nAuthInfo="open\nkillwait=6'
    found = parse_readable(text)
    assert str(found) == text
    assert found.get("KillWait") == "6"
    assert [line.include for line in found.lines if line.include] == ["more.conf"]
    assert [line.number for line in found.lines if not line.pairs and line.include is None] == [
        2,
        4,
    ]


@pytest.mark.parametrize(
    ("pairs", "want"),
    [
        ("State=UP MaxTime=1", "MaxTime=1"),
        ("MaxTime=1 state = UP", "MaxTime=1"),
        ('MaxTime=1 State="UP" Default=YES', "MaxTime=1 Default=YES"),
        ("State=UP State=DOWN", ""),
        ("OldState=UP  Nodes=a", "OldState=UP Nodes=a"),
        ('Comment="State=UP" Nodes=a', 'Comment="State=UP" Nodes=a'),
        ("State=UP what is this State=UP", "what is this State=UP"),
        ("", ""),
    ],
)
def test_the_pairs_of_a_key_are_taken_out_of_a_line(pairs: str, want: str) -> None:
    assert without(pairs, "State") == want
