"""Answers as they are printed."""

import json

import pytest

from sidecars.explain import text
from sidecars.explain.core.records import Answer, Finding, Level, Missing, Moment

NOW = 1_790_000_000.0
ANSWER = Answer(
    "job 12",
    "PENDING (Resources)",
    (
        Finding(
            "Drained", Level.BLOCKS, "node a", "It is drained.", "Return it.", ("scontrol update",)
        ),
        Finding(
            "Resources", Level.WAITS, "job 12", "No room.", "Wait.", (), "it starts", NOW + 600
        ),
    ),
    ("with node a in service",),
    (Moment(NOW - 60, "submitted", "Slurm"),),
    (Missing("Events", "you lack the right to list events", "Ask for it."),),
)


def test_everything_of_an_answer_is_printed() -> None:
    assert text.lines(ANSWER, NOW) == [
        "job 12: PENDING (Resources)",
        "",
        "! node a: It is drained. [Drained]",
        "    Return it.",
        "    $ scontrol update",
        "… job 12: No room. [Resources]",
        "    Wait.",
        "    Then: it starts, at 2026-09-21 14:23:20Z (in 10 min)",
        "",
        "Next: it starts, at 2026-09-21 14:23:20Z (in 10 min) (job 12)",
        "",
        "It would start now:",
        "  with node a in service",
        "",
        "Timeline:",
        "  2026-09-21 14:12:20Z  Slurm: submitted",
        "",
        "Not read:",
        "  Events: you lack the right to list events",
        "    Ask for it.",
    ]


def test_an_answer_without_findings_reports_it() -> None:
    assert "Nothing is wrong" in text.lines(Answer("pod a", "Running"), NOW)[2]


def test_an_unknown_object_is_not_called_healthy() -> None:
    assert text.lines(Answer("job 9", "unknown", known=False), NOW) == ["job 9: unknown"]


def test_what_slurm_quotes_cannot_control_the_terminal() -> None:
    forged = Answer("job 1", "x", (Finding("A", Level.SHOWS, "job 1", "a\n! b\x1b[2J"),))
    assert all(line.isprintable() for line in text.lines(forged, NOW))


def test_json_has_the_answer_and_the_next_event() -> None:
    found = json.loads(json.dumps(text.as_json(ANSWER)))
    assert found["about"] == "job 12"
    assert found["findings"][0]["level"] == "blocks"
    assert found["next"]["at"] == NOW + 600
    assert found["missing"][0]["part"] == "Events"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7200, "2 h 0 min"),
        (3 * 86_400 + 3600, "3 d 1 h"),
    ],
)
def test_durations_are_short(seconds: float, expected: str) -> None:
    assert text.duration(seconds) == expected
