"""The states of a job."""

import pytest

from sidecars.slurm import job_states


@pytest.mark.parametrize(
    ("words", "ended"),
    [
        ("COMPLETED", True),
        ("NODE_FAIL COMPLETING", True),
        ("FAILED LAUNCH_FAILED", True),
        ("CANCELLED REVOKED", True),
        ("REVOKED", True),
        ("PENDING", False),
        ("PENDING LAUNCH_FAILED", False),
        ("PENDING REQUEUED SPECIAL_EXIT", False),
        ("RUNNING COMPLETING", False),
        ("SUSPENDED STOPPED", False),
        ("RUNNING SOMETHING_NEW", False),
        ("", False),
    ],
)
def test_a_job_has_ended_by_its_base_state_or_because_another_cluster_started_it(
    words: str, ended: bool
) -> None:
    assert job_states.has_ended(frozenset(words.split())) is ended


def test_each_word_is_a_base_state_or_a_flag() -> None:
    assert job_states.BASE_STATES.isdisjoint(job_states.FLAGS)
    assert job_states.ENDED <= job_states.BASE_STATES | job_states.FLAGS
