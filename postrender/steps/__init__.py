"""The steps, by the name that a configuration uses: each a module of this package with `apply`.

`apply(stream, step, run)` changes the stream or adds findings to the run. `step.settings` is what
the schema allows. A module is imported when its step is used.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from postrender.configuration import StepSettings
from postrender.errors import PostrenderError
from postrender.report import Run
from postrender.stream import Stream


def apply(stream: Stream, steps: Sequence[StepSettings[Any]], run: Run) -> None:
    """Apply the steps in order. Raises PostrenderError, also if a step has found an error: the next
    isn't applied.
    """
    for step in steps:
        import_module(f"postrender.steps.{step.name}").apply(stream, step, run)
        errors = sum(it.severity == "error" for it in run.findings)
        if errors:
            # The report has the findings before this.
            found = "1 error" if errors == 1 else f"{errors} errors"
            raise PostrenderError(f"{step.place}: {found}, listed above: nothing is passed on")
