"""Texts of other programs in conditions, events and logs."""

import pytest

from sidecars.contract.text import LONGEST, printable


@pytest.mark.parametrize("text", ["", "bad disk", "Größe: 磁盘", "a" * LONGEST])
def test_a_short_text_without_control_characters_is_quoted_as_it_is(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("line\nline\r\n\tend", "line line   end"),
        ("\x1b[31mred\x1b[0m", "\ufffd[31mred\ufffd[0m"),
        ("a\u202eb", "a\ufffdb"),
        ("\x00\x07\x7f\x9b", "\ufffd\ufffd\ufffd\ufffd"),
        ("a\u2028b\x85c", "a b c"),
        ("\ud800", "\ufffd"),
    ],
)
def test_line_breaks_are_blanks_and_control_characters_are_replaced(text: str, quoted: str) -> None:
    assert printable(text) == quoted


def test_a_long_text_is_cut_and_ends_in_dots() -> None:
    assert printable("ä" * 10_000_000) == "ä" * (LONGEST - 1) + "…"
    assert printable("abc", 2) == "a…"
