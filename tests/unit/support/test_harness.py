"""The waits of the end-to-end tests."""

import pytest

from tests.support.real.harness import CommandError, until, until_equal


def test_a_wait_ends_with_the_first_answer_that_is_it_and_an_error_is_no_answer() -> None:
    answers = iter([CommandError("not yet"), None, "", "it", "later"])

    def look() -> str | None:
        answer = next(answers)
        if isinstance(answer, CommandError):
            raise answer
        return answer

    assert until("it", look, pause=0) == "it"
    assert next(answers) == "later"


def test_a_wait_that_is_over_names_what_it_was_for_and_the_last_answer() -> None:
    with pytest.raises(AssertionError, match=r"^waited 0 s for two \(2\); last: 1$"):
        until_equal("two", lambda: 1, 2, 0.01)


def test_a_wait_for_a_promise_is_no_longer_than_the_promise_and_names_it() -> None:
    with pytest.raises(
        AssertionError,
        match=r"^waited 0 s for it, which is promised within that time; last: False$",
    ):
        until("it", lambda: False, promise=0.01)
