"""Times in the logs of pods."""

import pytest

from tests.support.real.clocks import times
from tests.support.real.harness import CommandError

LINES = """\
2026-01-01T00:00:01.500000000Z runs configuration a
2026-01-01T00:00:02.250000000Z runs configuration b
2026-01-01T00:00:03.000000000Z ends
"""


def test_each_line_with_a_text_has_its_time() -> None:
    [end] = times(LINES, "ends")
    assert [end - it for it in times(LINES, "runs")] == [1.5, 0.75]


def test_a_text_that_was_never_logged_is_named_with_the_log() -> None:
    with pytest.raises(
        CommandError, match=r"^no line with 'starts' in:\n.* runs configuration a\n"
    ):
        times(LINES, "starts")
