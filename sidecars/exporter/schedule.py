"""The schedule of a CronJob: the longest time between two runs. Pure."""

import re
from datetime import date, timedelta
from functools import lru_cache
from itertools import pairwise

DAY = 86_400.0
_DAYS = 8 * 366
"""After so many days each combination of a date and a day of a month has occurred, February 29
included.
"""
_FIRST_DAY = date(2000, 1, 1)

_WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
        start=1,
    )
}
_WEEKDAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 6, _WEEKDAYS),
)
"""Minute, hour, day of the month, month and day of the week, 0 for Sunday: the least, the greatest,
and names.
"""
_ITEM = re.compile(r"(\*|\?|\w{1,9})(?:-(\w{1,9}))?(?:/([0-9]{1,9}))?")
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|h|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


@lru_cache(maxsize=256)
def longest_interval(schedule: str) -> float | None:
    """Return the longest time between two runs, in seconds, or None for what no CronJob accepts, or
    what never occurs.

    It is the same in each time zone, but for the hour of daylight saving time.
    """
    text = schedule.strip()
    if text.startswith("@every "):
        return _duration(text.removeprefix("@every ").strip())
    words = _WORDS.get(text.lower(), text).split()
    if len(words) != len(_FIELDS):
        return None
    sets = [_values(word, *field) for word, field in zip(words, _FIELDS, strict=True)]
    if not all(sets):
        return None
    minutes, hours, days, months, weekdays = sets
    either = not any(
        item in ("*", "?", "*/1", "?/1")
        for word in (words[2], words[4])
        for item in word.split(",")
    )
    times = sorted(60.0 * minute + 3600.0 * hour for hour in hours for minute in minutes)
    longest = max((after - before for before, after in pairwise(times)), default=0.0)
    former: date | None = None
    found = 0.0
    for number in range(_DAYS):
        day = _FIRST_DAY + timedelta(days=number)
        by_date, by_weekday = day.day in days, day.isoweekday() % 7 in weekdays
        # As the CronJob controller: with both fields restricted, one of them is enough. A star with
        # a step restricts.
        if day.month not in months or not (
            by_date or by_weekday if either else by_date and by_weekday
        ):
            continue
        if former is not None:
            found = max(found, DAY * (day - former).days - times[-1] + times[0])
        former = day
    return max(found, longest) if found else None


def _values(word: str, least: int, greatest: int, names: dict[str, int]) -> frozenset[int]:
    """Return the values of a field, none for one that is wrong."""
    found: set[int] = set()
    for item in word.split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            return frozenset()
        every = match[1] in ("*", "?")
        first = least if every else _number(match[1], names)
        if match[2] is not None:
            last = None if every else _number(match[2], names)
        else:
            last = greatest if every or match[3] else first
        step = int(match[3] or 1)
        if first is None or last is None or not least <= first <= last <= greatest or not step:
            return frozenset()
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _number(text: str, names: dict[str, int]) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else names.get(text.lower())


def _duration(text: str) -> float | None:
    parts = _DURATION.findall(text)
    if not parts or "".join(f"{number}{unit}" for number, unit in parts) != text:
        return None
    # As the CronJob controller: whole seconds.
    return max(1.0, sum(float(number) * _UNITS[unit] for number, unit in parts) // 1)
