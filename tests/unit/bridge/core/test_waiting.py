"""Why a job waits."""

import dataclasses

import pytest

from sidecars.bridge.core.decide import waiting_words
from sidecars.bridge.core.records import Job, Phase
from sidecars.contract.bridge import Comment

PENDING = Job(7, Phase.PENDING, "ada", Comment("team", "u"))


@pytest.mark.parametrize(
    ("phase", "reason", "text"),
    [
        (Phase.PENDING, "", "Slurm job 7 waits: Slurm has not looked at it yet"),
        (Phase.PENDING, "Licenses", "Slurm job 7 waits: Licenses. The job waits for licenses"),
        (Phase.PENDING, "OfALaterSlurm", "Slurm job 7 waits: OfALaterSlurm"),
        (Phase.STARTING, "", "Slurm job 7 is starting"),
        (Phase.STOPPED, "", "Slurm job 7 is suspended"),
    ],
)
def test_the_reason_of_slurm_is_shown_in_words(phase: Phase, reason: str, text: str) -> None:
    assert waiting_words(dataclasses.replace(PENDING, phase=phase, reason=reason)) == text


def test_small_changes_of_the_expected_start_change_no_word() -> None:
    times = (1_790_000_401, 1_790_000_700, 1_790_000_900)
    [text] = {
        waiting_words(dataclasses.replace(PENDING, reason="Priority", start_time=it))
        for it in times
    }
    assert text.endswith(". Slurm expects it to start by 2026-09-21T14:30:00Z")
