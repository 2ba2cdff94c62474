"""The step `annotations`: sets and removes annotations of objects and, with `pods`, of their
pods.
"""

from postrender import metadata
from postrender.configuration import StepSettings
from postrender.metadata import Settings
from postrender.report import Run
from postrender.stream import Stream


def apply(stream: Stream, step: StepSettings[Settings], run: Run) -> None:
    """Apply the step."""
    metadata.apply(stream, step, "annotations")
