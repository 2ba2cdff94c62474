"""The longest time between two runs by a schedule."""

import pytest

from sidecars.exporter.schedule import DAY, longest_interval

HOUR = 3600.0


@pytest.mark.parametrize(
    ("schedule", "want"),
    [
        ("0 1 * * *", DAY),
        ("*/30 * * * *", HOUR / 2),
        ("5/20 * * * *", HOUR / 3),
        ("0-10/5 3 * * *", DAY - 600),
        ("0 9-17 * * *", 16 * HOUR),
        ("0 9-17 * * mon-FRI", 64 * HOUR),
        ("0 0 * * 0,3", 4 * DAY),
        ("0 4 1 * *", 31 * DAY),
        ("0 4 1 jan *", 366 * DAY),
        ("0 0 29 2 *", 4 * 365 * DAY + DAY),
        # Either the date or the day of the week is enough, unless one of them is a star without a
        # step.
        ("0 0 1 * mon", 7 * DAY),
        ("0 0 */10 * mon", 7 * DAY),
        ("0 0 ? * 1", 7 * DAY),
        ("@hourly", HOUR),
        ("@weekly", 7 * DAY),
        ("@every 1h30m", 1.5 * HOUR),
        ("@every 1m500ms", 60.0),
    ],
)
def test_the_longest_time_between_two_runs_follows_from_the_schedule(
    schedule: str, want: float
) -> None:
    assert longest_interval(schedule) == want


@pytest.mark.parametrize(
    "schedule",
    [
        "",
        "daily",
        "* * * *",
        "60 * * * *",
        "0 0 31 2 *",
        "*/0 * * * *",
        "5-1 * * * *",
        "a * * * *",
        "@every x",
        f"@every {'9' * 5000}h",
        f"{'1' * 5000} * * * *",
        f"*/{'1' * 5000} * * * *",
    ],
)
def test_what_no_cronjob_runs_has_no_interval(schedule: str) -> None:
    assert longest_interval(schedule) is None
