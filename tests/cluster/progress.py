"""Visible progress: one line per step with its seconds, on a terminal and in a log alike."""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TextIO


class Progress:
    """Prints steps to `out`. On a terminal the line of a step changes while it runs; in a log each
    change is a line.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._live = self._out.isatty()
        self._name: str | None = None
        self._detail = ""
        self._started = 0.0

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A step: its line is closed with the seconds it took, or with `failed`."""
        self._name, self._detail, self._started = name, "", time.monotonic()
        if self._live:
            self._write(f"{name} ...", end="")
        outcome = "failed"
        try:
            yield
            outcome = "ok"
        finally:
            self._name = None
            line = (
                f"{name} {'.' * max(2, 58 - len(name))} {outcome} "
                f"({time.monotonic() - self._started:.1f} s)"
            )
            self._write(f"\r\x1b[K{line}" if self._live else line)

    def announce(self, text: str) -> None:
        """What the running step is at; repeated texts are printed once."""
        if self._name is None:
            self._write(text)
        elif text != self._detail:
            self._detail = text
            seconds = int(time.monotonic() - self._started)
            if self._live:
                self._write(f"\r\x1b[K{self._name} ... {text[:100]} ({seconds} s)", end="")
            else:
                self._write(f"  {self._name}: {text} ({seconds} s)")

    def note(self, text: str) -> None:
        """A line of its own, not bound to a step."""
        if self._live and self._name is not None:
            self._write("\r\x1b[K", end="")
        self._write(text)

    def _write(self, text: str, end: str = "\n") -> None:
        self._out.write(text + end)
        self._out.flush()
