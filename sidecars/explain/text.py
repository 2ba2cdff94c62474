"""Answers as text for a terminal, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sidecars.contract.text import LONGEST_LINE, printable
from sidecars.policy.explain.records import Level

if TYPE_CHECKING:
    from sidecars.policy.explain.records import Answer, Finding

_MARKS = {Level.BLOCKS: "!", Level.WAITS: "…", Level.WARNS: "?", Level.SHOWS: "-"}


def lines(answer: Answer, now: float) -> list[str]:
    """What is printed."""
    found = [f"{answer.about}: {answer.state}", ""]
    for it in answer.findings:
        found += _finding(it, now)
    if not answer.findings:
        found.append("Nothing is wrong with it, as far as was read.")
    event = answer.next_event
    if event is not None:
        found += ["", f"Next: {event.event}{_when(event.at, now)} ({event.about})"]
    if answer.would_start:
        found += ["", "It would start now:", *(f"  {it}" for it in answer.would_start)]
    if answer.timeline:
        found += ["", "Timeline:", *(f"  {_time(it.at)}  {it.source}: {it.what}" for it in answer.timeline)]
    if answer.missing:
        found += ["", "Not read:"]
        for gap in answer.missing:
            found.append(f"  {gap.part}: {gap.why}")
            found += [f"    {gap.remedy}"] if gap.remedy else []
    return [printable(line, LONGEST_LINE) for line in found]


def _finding(it: Finding, now: float) -> list[str]:
    found = [f"{_MARKS[it.level]} {it.about}: {it.cause} [{it.code}]"]
    if it.remedy:
        found.append(f"    {it.remedy}")
    found += [f"    $ {command}" for command in it.commands]
    if it.event and it.at is not None:
        found.append(f"    Then: {it.event}{_when(it.at, now)}")
    return found


def _when(at: float | None, now: float) -> str:
    if at is None:
        return ""
    seconds = at - now
    return f", at {_time(at)}" + (f" (in {duration(seconds)})" if seconds >= 0 else "")


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 5 min`, `2 d 3 h`."""
    minutes = int(seconds) // 60
    if minutes < 2:
        return f"{int(seconds)} s"
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _time(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return "never"


def as_json(answer: Answer) -> dict[str, Any]:
    """A stable form: the fields of `Answer`, and `next`."""
    event = answer.next_event
    return asdict(answer) | {"next": None if event is None else asdict(event)}
