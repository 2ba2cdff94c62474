"""Bytes of a file to JSON lines."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sidecars.logs import lines
from sidecars.logs.lines import PART_BYTES, Lines

FIELDS = {"job": 7, "user": "ada", "file": "/home/ada/slurm-7.out"}
LONGEST = 16_384


def fed(*chunks: bytes) -> list[dict[str, Any]]:
    """The JSON lines of a file that is read in these pieces."""
    text = Lines(FIELDS)
    printed = b"".join(text.feed(chunk, "T") for chunk in chunks) + text.flush("T")
    assert printed == b"" or printed.endswith(b"\n")
    assert text.count == printed.count(b"\n")
    for line in printed.splitlines():
        assert len(line) <= LONGEST
    return [json.loads(line) for line in printed.splitlines()]


def messages(*chunks: bytes) -> list[str]:
    return [line["message"] for line in fed(*chunks)]


def whole(found: list[dict[str, Any]]) -> list[str]:
    """The lines of the file: parts are joined."""
    joined: list[str] = []
    for line in found:
        if line.get("part", 1) == 1:
            joined.append("")
        joined[-1] += line["message"]
        assert line.get("more", False) is False or "part" in line
    return joined


def test_each_line_has_the_fields_of_its_file() -> None:
    assert fed(b"hello\n") == [{"time": "T", **FIELDS, "message": "hello"}]


def test_a_line_without_an_end_waits_for_it() -> None:
    text = Lines(FIELDS)
    assert text.feed(b"half", "T") == b""
    assert json.loads(text.feed(b" a line\n", "T"))["message"] == "half a line"


def test_the_last_line_needs_no_end() -> None:
    assert messages(b"a\nb") == ["a", "b"]


def test_an_empty_line_is_a_line() -> None:
    assert messages(b"\n\na\n") == ["", "", "a"]


def test_carriage_returns_before_the_end_are_left_out() -> None:
    assert messages(b"a\r\n10%\r20%\r\n") == ["a", "10%\r20%"]


def test_text_in_any_language_stays_as_it_is() -> None:
    printed = Lines(FIELDS).feed("Größe 東京\n".encode(), "T")
    assert "Größe 東京" in printed.decode()


def test_what_is_not_utf_8_is_escaped_and_marked() -> None:
    [line] = fed(b"\xff\xfe ok\n")
    assert line["message"] == r"\xff\xfe ok"
    assert line["binary"] is True


def test_no_byte_of_a_terminals_control_sequence_is_printed() -> None:
    hostile = b"\x1b[2J\x07 \x7f " + "\x9b31m \u202e \u2028".encode() + b"\n"
    printed = Lines(FIELDS).feed(hostile, "T")
    assert all(character.isprintable() for character in printed.decode().rstrip("\n"))
    assert json.loads(printed)["message"].encode() == hostile.rstrip(b"\n")


def test_a_users_line_cannot_forge_a_field() -> None:
    [line] = fed(b'x","user":"root","y":"\n')
    assert line["user"] == "ada"
    assert line["message"] == 'x","user":"root","y":"'


def test_a_line_of_ten_megabytes_comes_in_numbered_parts() -> None:
    text, parts = Lines(FIELDS), list[dict[str, Any]]()
    for _ in range(160):
        printed = text.feed(b"x" * 65_536, "T")
        assert text.pending <= PART_BYTES
        parts += [json.loads(line) for line in printed.splitlines()]
    parts += [json.loads(line) for line in text.feed(b"\nnext\n", "T").splitlines()]
    assert parts[-1]["message"] == "next"
    assert "part" not in parts[-1]
    assert [part["part"] for part in parts[:-1]] == list(range(1, len(parts)))
    assert [part.get("more", False) for part in parts[:-1]] == [True] * (len(parts) - 2) + [False]
    assert sum(len(part["message"]) for part in parts[:-1]) == 10_485_760


def test_a_long_line_of_control_characters_fits_what_runtimes_write_as_one_piece() -> None:
    assert whole(fed(b"\x01" * 30_000 + b"\n")) == ["\x01" * 30_000]


def test_no_character_is_cut_in_two() -> None:
    text = "€" * 20_000
    found = fed(text.encode() + b"\n")
    assert whole(found) == [text]
    assert not any("binary" in line for line in found)


def test_a_mark_comes_after_what_was_read_before_it() -> None:
    text = Lines(FIELDS)
    text.feed(b"before", "T")
    found = [
        json.loads(line)
        for line in text.mark("T", {"droppedBytes": 5}, "5 bytes were dropped").splitlines()
    ]
    assert [line["message"] for line in found] == ["before", "5 bytes were dropped"]
    assert found[1]["droppedBytes"] == 5
    assert found[1]["job"] == 7


def test_what_one_call_gets_has_a_bounded_number_of_lines() -> None:
    assert lines.consumable(b"\n" * 65_536) == lines.LINES_AT_ONCE
    assert lines.consumable(b"abc\n" * 10) == 40
    assert lines.consumable(b"x" * 65_536) == 65_536


pieces = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.text(max_size=20).map(str.encode),
        st.sampled_from(
            [b"\n", b"\r\n", b"a" * 9000, b"\xe2\x82", "é".encode() * 3000, b"\x00" * 2500]
        ),
    ),
    max_size=12,
)


@given(pieces)
def test_any_bytes_in_any_pieces_give_the_lines_of_the_whole(chunks: list[bytes]) -> None:
    data = b"".join(chunks)
    want = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    if data.endswith(b"\n") or not data:
        want.pop()
    found = fed(*chunks)
    if not any("binary" in line for line in found):
        # A carriage return may be the last byte of a part.
        assert [line.rstrip("\r") for line in whole(found)] == [
            line.decode().rstrip("\r") for line in want
        ]
    assert len(whole(found)) == len(want)


@given(pieces)
def test_nothing_is_printed_that_is_not_text(chunks: list[bytes]) -> None:
    text = Lines(FIELDS)
    printed = b"".join(text.feed(chunk, "T") for chunk in chunks) + text.flush("T")
    assert not any(
        code < 32 or 127 <= code < 160 for code in map(ord, printed.decode().replace("\n", ""))
    )
