"""Words with their cause and remedy: `sidecars.contract.explained`."""

import json

import msgspec

from sidecars.contract.explained import Explained


class Word(Explained):
    """Two words."""

    FULL = "DiskFull", "The disk is full.", "Delete files.", "False"
    ODD = "Odd", "It is odd.", "Nothing."


def test_a_word_is_its_text_wherever_it_is_compared_printed_or_sent() -> None:
    assert {"DiskFull"} == {Word.FULL}
    assert str(Word.FULL) == "DiskFull"
    assert f"{Word.FULL}: {Word.ODD}" == "DiskFull: Odd"
    assert json.dumps({"reason": Word.FULL}) == '{"reason": "DiskFull"}'
    assert msgspec.json.encode({"reason": Word.FULL}) == b'{"reason":"DiskFull"}'


def test_a_word_has_its_cause_and_remedy_and_its_statuses_if_it_is_a_reason() -> None:
    assert (Word.FULL.cause, Word.FULL.remedy, Word.FULL.statuses) == (
        "The disk is full.",
        "Delete files.",
        "False",
    )
    assert Word.ODD.statuses == ""
