"""The pages about the bridge have the times and bounds by which the bridge works."""

from pathlib import Path

import pytest

from sidecars.bridge import effects, memory, refused
from sidecars.bridge.core import decide, pods, requeued, starting
from sidecars.policy import token

PAGES = sorted((Path(__file__).parents[3] / "docs").glob("bridge*.md"))
PAGE = " ".join(word for page in PAGES for word in page.read_text(encoding="utf-8").split())
WORDS = {
    60.0: "a minute",
    120.0: "two minutes",
    300.0: "five minutes",
    600.0: "ten minutes",
    3600.0: "an hour",
}
NUMBERS = {5: "five"}


def seconds(value: float) -> str:
    """In words of the page."""
    return WORDS.get(value, f"{value:.0f} s")


@pytest.mark.parametrize(
    "sentence",
    [
        f"The kubelet ends a pod {pods.DEADLINE_MARGIN} s before the time limit of its job",
        f"can't bind a released pod within {seconds(decide.BIND_SECONDS)}, its job is cancelled",
        f"the next job excludes the node for {seconds(memory.AVOID_SECONDS)}",
        f"A job excludes at most {NUMBERS[memory.MOST_AVOIDED]} nodes",
        f"has not tried yet waits for {seconds(decide.UNTRIED_SECONDS)}",
        (
            f"control plane, it waits for {seconds(decide.AWAY_SECONDS)}, and for "
            f"{seconds(memory.RESUME_SECONDS)} after the scheduler has begun again"
        ),
        (
            f"after pauses from {seconds(memory.FIRST_RETRY)} to {seconds(memory.LONGEST_RETRY)}. "
            "It never starts a job again"
        ),
        (
            f"Events come up to {seconds(effects.EVENTS_SECONDS)} later, and conditions every "
            f"{seconds(effects.REPORTS_SECONDS)}"
        ),
        (f"{effects.MOST_AT_ONCE} conditions are written each {seconds(effects.REPORTS_SECONDS)}"),
        f"If more than {effects.MOST_EVENTS:,} Events wait, the oldest are dropped",
        f"for {requeued.RELEASE_SECONDS:.0f} s something without a known end keeps a pod",
        f"are queued again, without this node for {seconds(memory.AVOID_SECONDS)}",
        (
            f"tries again after {seconds(refused.FIRST_SECONDS)}, and later every "
            f"{seconds(refused.AGAIN_SECONDS)} at most"
        ),
        (
            f"each further job is submitted after a pause, from {seconds(memory.FIRST_RETRY)} to "
            f"{seconds(memory.LONGEST_RETRY)}"
        ),
        f"fails to start a container of a bound pod for {seconds(starting.FAULT_SECONDS)}",
        f"If the kubelet reports no failure, the pod has {seconds(starting.SILENT_SECONDS)}",
        f"the bridge counts its pods as gone after {seconds(memory.LOST_AFTER)}",
        (
            f"tries again after {seconds(memory.FIRST_RETRY)}, and later every "
            f"{seconds(memory.LONGEST_RETRY)}."
        ),
        f"others are tried again within {seconds(refused.AGAIN_SECONDS)}",
    ],
)
def test_the_page_has_the_times_and_bounds_of_the_bridge(sentence: str) -> None:
    assert sentence in PAGE


def test_a_token_outlives_the_last_renewal_by_the_part_of_its_life_that_the_page_names() -> None:
    assert "works for at least a fifth of the lifetime" in PAGE
    assert 1 - token.LATEST >= 1 / 5 - 1e-9
