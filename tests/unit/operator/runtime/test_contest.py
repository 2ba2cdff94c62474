"""When an object that two operators write to may be taken over again."""

import pytest

from sidecars.operator.runtime.contest import (
    FIRST_SECONDS,
    LONGEST_SECONDS,
    Contests,
    TwoOperatorsError,
)

KEY = ("StatefulSet", "slurm", "slurm-controller")
WANTED = {"kind": "StatefulSet", "metadata": {"namespace": "slurm", "name": "slurm-controller"}}


def stays(contests: Contests) -> bool:
    try:
        contests.check(KEY, WANTED)
    except TwoOperatorsError:
        return True
    return False


def test_an_object_that_the_other_operator_changed_back_stays_until_its_wait_is_over() -> None:
    now = [1000.0]
    contests = Contests(lambda: now[0])
    assert stays(contests)
    now[0] += FIRST_SECONDS - 1
    assert stays(contests)
    now[0] += 1
    assert not stays(contests)


def test_each_wait_is_twice_the_one_before_up_to_an_hour() -> None:
    now = [0.0]
    contests = Contests(lambda: now[0])
    waits = []
    for _ in range(6):
        start = now[0]
        while stays(contests):
            now[0] += 60
        waits.append(now[0] - start)
    assert waits == [300, 600, 1200, 2400, 3600, 3600]
    assert waits[-1] == LONGEST_SECONDS


def test_an_object_that_was_created_anew_begins_with_the_first_wait() -> None:
    now = [0.0]
    contests = Contests(lambda: now[0])
    assert stays(contests)
    now[0] += FIRST_SECONDS
    assert not stays(contests)
    contests.forget(KEY)
    assert stays(contests)
    now[0] += FIRST_SECONDS
    assert not stays(contests)


def test_the_message_names_the_object_the_other_operator_and_the_remedy() -> None:
    with pytest.raises(
        TwoOperatorsError, match=r"StatefulSet slurm/slurm-controller .* End SchedMD's operator"
    ):
        Contests(lambda: 0.0).check(KEY, WANTED)
