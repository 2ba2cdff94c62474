"""What became of the actions of a decision: `sidecars.operator.nodeset.effects`."""

import pytest

from sidecars.kube.errors import api_error
from sidecars.operator.nodeset.effects import Outcome
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import Ready
from sidecars.slurm.errors import Unreachable


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NotUsableError(Ready.CLAIM_TERMINATING, "x"), Ready.CLAIM_TERMINATING),
        (api_error(403, "Forbidden", "x", request="POST"), Ready.REFUSED),
        (api_error(409, "AlreadyExists", "x", request="POST"), Ready.NAME_TAKEN),
        (api_error(500, "InternalError", "x", request="POST"), Ready.FAILED),
    ],
)
def test_the_first_failure_becomes_the_condition_ready(error: Exception, reason: Ready) -> None:
    outcome = Outcome()
    outcome.failed(error)
    outcome.failed(NotUsableError(Ready.INVALID, "later"))
    assert outcome.condition == Condition("Ready", "False", reason, str(error))


def test_a_mistake_of_the_programs_own_is_no_failure_of_an_action() -> None:
    with pytest.raises(ZeroDivisionError):
        Outcome().failed(ZeroDivisionError())
    Outcome().failed(Unreachable("GET nodes/", "x"))


def test_the_earliest_hint_counts() -> None:
    outcome = Outcome()
    for seconds in (None, 5.0, 1.0, 3.0):
        outcome.hint(seconds)
    assert outcome.look_again == 1.0
