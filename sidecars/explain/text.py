"""Answers as text for a terminal, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sidecars.contract.text import LONGEST_LINE, printable
from sidecars.explain.core.records import Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sidecars.explain.core.records import Answer, Finding
    from sidecars.explain.core.top import Top

_COLOURS = {"!": "31", "…": "33", "?": "36"}
"""The SGR codes of findings by their mark: red, yellow, cyan."""
_MARKS = {Level.BLOCKS: "!", Level.WAITS: "…", Level.WARNS: "?", Level.SHOWS: "-"}


def lines(answer: Answer, now: float) -> list[str]:
    """Return the lines to print."""
    found = [f"{answer.about}: {answer.state}", ""]
    for it in answer.findings:
        found += finding(it, now)
    if not answer.findings and answer.known:
        found.append("Nothing is wrong with it, as far as was read.")
    event = answer.next_event
    if event is not None:
        found += ["", f"Next: {event.event}{_when(event.at, now)} ({event.about})"]
    if answer.would_start:
        found += ["", "It would start now:", *(f"  {it}" for it in answer.would_start)]
    if answer.timeline:
        found += [
            "",
            "Timeline:",
            *(f"  {_time(it.at)}  {it.source}: {it.what}" for it in answer.timeline),
        ]
    if answer.missing:
        found += ["", "Not read:"]
        for gap in answer.missing:
            found.append(f"  {gap.part}: {gap.why}")
            found += [f"    {gap.remedy}"] if gap.remedy else []
    spaced = [line for before, line in pairwise(["", *found]) if before or line]
    return [printable(line, LONGEST_LINE) for line in (spaced if spaced[-1] else spaced[:-1])]


def coloured(shown: Iterable[str]) -> list[str]:
    """Return printed lines with the colours of a terminal: a finding by how much it matters."""
    found = []
    for line in shown:
        colour = _COLOURS.get(line[:1]) if line[1:2] == " " else None
        found.append(line if colour is None else f"\x1b[{colour}m{line}\x1b[0m")
    return found


def finding(it: Finding, now: float = 0.0) -> list[str]:
    """Return the lines of one finding. `now` is needed where it has a time."""
    code = f" [{it.code}]" if it.code else ""
    found = [f"{_MARKS[it.level]} {it.about}: {it.cause}{code}"]
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


def top(counts: Top) -> list[str]:
    """Return the cluster at a glance."""
    found = [f"nodes     {_counts(counts.nodes)}"]
    if counts.cpus is not None:
        found.append(f"CPUs      {counts.cpus[0]} of {counts.cpus[1]} in service allocated")
    for kind, (used, total) in (counts.gpus or {}).items():
        found.append(f"GPUs      {used} of {total} {kind} allocated")
    running = "unknown" if counts.running is None else counts.running
    found += [f"running   {running}", f"pending   {_counts(counts.pending)}"]
    found += [f"NodeSet   {name}: {state}" for name, state in (counts.nodesets or {}).items()]
    for it in counts.drains or ():
        names = ",".join(it.nodes[:5]) + ("…" if len(it.nodes) > 5 else "")
        waits = f", {it.busy} with jobs" if it.busy else ""
        found.append(f"drain     {len(it.nodes)} ({names}){waits}, by {it.owner}: {it.reason}")
    found += [f"not read  {it.part}: {it.why}" for it in counts.missing]
    return [printable(line, LONGEST_LINE) for line in found]


def _counts(counts: Mapping[str, int] | None) -> str:
    if counts is None:
        return "unknown"
    return f"{sum(counts.values())}" + (
        f" ({', '.join(f'{count} {name}' for name, count in counts.items())})" if counts else ""
    )


def as_json(answer: Answer) -> dict[str, Any]:
    """Return the answer in a stable form: the fields of `Answer`, and `next`."""
    event = answer.next_event
    return asdict(answer) | {"next": None if event is None else asdict(event)}
