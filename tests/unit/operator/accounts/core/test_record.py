"""What was created from declarations, as it is stored: `sidecars.operator.accounts.core.record`."""

import pytest

from sidecars.operator.accounts.core.record import Record, decode, digest, encode


def test_a_record_is_read_as_it_was_written() -> None:
    record = Record(frozenset({"account/a", "association/a/alice"}), digest("x"))
    assert decode(encode(record)) == record


@pytest.mark.parametrize("text", ["", "{", '{"account/a": 1}', "null", "[1, null]"])
def test_what_can_not_be_read_counts_as_not_created_so_that_nothing_is_deleted(text: str) -> None:
    assert decode({"created.json": text}).created == frozenset()
    assert decode({}) == Record()
