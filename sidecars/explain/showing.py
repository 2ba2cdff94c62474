"""How answers are shown: in colours on a terminal, as JSON, and again and again with `--watch`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from sidecars.explain import text

if TYPE_CHECKING:
    from collections.abc import Callable

CLEAR = "\x1b[H\x1b[2J"
"""Empties a terminal."""


def add_options(parser: argparse.ArgumentParser, interval: Any = 5.0) -> None:
    """Add the options of what shows answers. `interval`: the default of --interval."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "-w", "--watch", action="store_true", help="answer again and again, until Ctrl-C"
    )
    parser.add_argument(
        "--interval",
        type=_seconds,
        default=interval,
        metavar="SECONDS",
        help="between two answers of --watch (default 5)",
    )


def show(lines: list[str], as_json: dict[str, Any] | None, *, clears: bool) -> None:
    """Print the lines, or the object if one is given. `clears`: whether a terminal is emptied
    before.
    """
    if as_json is not None:
        print(json.dumps(as_json, indent=2), flush=True)
        return
    terminal = sys.stdout.isatty()
    if terminal and not os.environ.get("NO_COLOR"):
        lines = text.coloured(lines)
    print((CLEAR if clears and terminal else "") + "\n".join(lines), flush=True)


def repeat(
    given: argparse.Namespace, once: Callable[[], int], sleep: Callable[[float], None]
) -> int:
    """Answer once, or with --watch until Ctrl-C. Return the last exit status."""
    status = 0
    try:
        while True:
            status = once()
            if not given.watch:
                return status
            sleep(given.interval)
    except KeyboardInterrupt:
        return status


def _seconds(given: str) -> float:
    seconds = float(given)
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{given} is not between 1 and 3600")
    return seconds
