"""What Events of node autoscalers mean for a pod that waits: `node_autoscalers`."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.policy.conditions import timestamp
from sidecars.policy.node_autoscalers import (
    COMING_SECONDS,
    REFUSED_SECONDS,
    Answer,
    Notice,
    gives_up_at,
    read,
)

NOW = 1_790_000_000.0
WAIT = 120.0


def event(reason: str, last: float, first: float | None = None, **more: Any) -> dict[str, Any]:
    """An Event about a pod, as the API of events.k8s.io shows one of an older client."""
    return {
        "regarding": {"kind": "Pod", "uid": "u"},
        "reason": reason,
        "note": f"because of {reason}",
        "deprecatedFirstTimestamp": timestamp(NOW + (last if first is None else first)),
        "deprecatedLastTimestamp": timestamp(NOW + last),
    } | more


def test_each_reason_of_the_two_autoscalers_is_an_answer() -> None:
    karpenter: dict[str, Any] = {"deprecatedSource": {"component": "karpenter"}}
    for found, answer in (
        (event("TriggeredScaleUp", 0), Answer.COMING),
        (event("Nominated", 0), Answer.COMING),
        (event("NotTriggerScaleUp", 0), Answer.REFUSED),
        (event("FailedScheduling", 0, **karpenter), Answer.REFUSED),
        (event("FailedScheduling", 0, reportingController="karpenter"), Answer.REFUSED),
    ):
        assert read([found])["u"].answer is answer
    scheduler = event("FailedScheduling", 0, reportingController="default-scheduler")
    assert read([scheduler, event("Scheduled", 0)]) == {}


def test_the_newest_answer_counts_whatever_the_order() -> None:
    refused, coming = event("NotTriggerScaleUp", 5, 0), event("TriggeredScaleUp", 9)
    for events in ([refused, coming], [coming, refused]):
        assert read(events)["u"].answer is Answer.COMING
    again = event("NotTriggerScaleUp", 20, 0)
    assert read([again, coming])["u"] == Notice(
        Answer.REFUSED, NOW, NOW + 20, "because of NotTriggerScaleUp"
    )


def test_an_event_of_the_newer_form_has_the_times_of_its_series() -> None:
    found = {
        "regarding": {"uid": "u"},
        "reason": "Nominated",
        "eventTime": "2026-09-21T14:13:20.000000Z",
        "series": {"lastObservedTime": "2026-09-21T14:14:20.000000Z"},
    }
    notice = read([found])["u"]
    assert notice.last - notice.first == 60


@pytest.mark.parametrize(
    ("notice", "until"),
    [
        (None, WAIT),
        (Notice(Answer.COMING, NOW + 10, NOW + 10), 10 + COMING_SECONDS),
        (Notice(Answer.COMING, NOW + 10, NOW + 400), 400 + COMING_SECONDS),
        (Notice(Answer.REFUSED, NOW + 10, NOW + 400), 10 + REFUSED_SECONDS),
        (Notice(Answer.REFUSED, NOW + 110, NOW + 110), WAIT),
        # Of the time before the pod waited.
        (Notice(Answer.REFUSED, NOW - 90, NOW - 50), WAIT),
        (Notice(Answer.REFUSED, NOW - 90, NOW + 5), REFUSED_SECONDS),
    ],
)
def test_a_pod_is_waited_for_as_long_as_its_last_answer_allows(
    notice: Notice | None, until: float
) -> None:
    assert gives_up_at(NOW, WAIT, notice) == NOW + until


odd: Any = st.recursive(
    st.none() | st.integers() | st.text(max_size=4) | st.just("2026-09-21T14:13:20Z"),
    lambda inner: st.dictionaries(
        st.sampled_from(["uid", "component", "lastObservedTime", "x"]), inner, max_size=3
    ),
    max_leaves=4,
)
KEYS = (
    *("regarding", "reason", "note", "series", "eventTime", "deprecatedSource"),
    *("deprecatedFirstTimestamp", "deprecatedLastTimestamp", "reportingController"),
)


@given(st.lists(st.dictionaries(st.sampled_from(KEYS), odd), max_size=4))
def test_events_of_another_form_are_skipped(events: list[dict[str, Any]]) -> None:
    assert isinstance(read(events), dict)
