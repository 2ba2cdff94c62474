"""The step `preview`: what an upgrade to this stream would do. Nothing is passed on unless the
settings ask for it.
"""

import sys
import time
from pathlib import Path

from postrender.configuration import StepSettings
from postrender.errors import PostrenderError
from postrender.preview import live, words
from postrender.preview.report import Preview
from postrender.preview.report import preview as compare
from postrender.preview.state import State
from postrender.report import Run
from postrender.steps.expand import SiteSettings, site
from postrender.stream import Manifest, Stream


class Settings(SiteSettings, total=False):
    """Of the step."""

    live: bool
    before: str
    format: str
    output: str
    proceed: bool


def apply(stream: Stream, step: StepSettings[Settings], run: Run) -> None:
    """Apply the step."""
    settings = step.settings
    if run.of_stream and (settings.get("live") or settings.get("output")):
        raise PostrenderError(
            f"{step.place}: a step of the stream itself neither reads a cluster (`live`) nor "
            "writes a file (`output`): set it in a configuration file"
        )
    if bool(settings.get("live")) == bool(settings.get("before")):
        raise PostrenderError(
            f"{step.place}: set either `live: true`, or `before` to the file of a former render"
        )
    output = settings.get("output")
    file = run.file(output, step.at("output")) if output else None
    text = words.FORMATS[settings.get("format", "text")](previewed(stream, step, run))
    if file is not None:
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise PostrenderError(
                f"{step.place}.output: {output!r} can't be written: {error.strerror}"
            ) from None
    else:
        print(text, end="", file=sys.stderr)
    if not settings.get("proceed"):
        where = f"it is in {output}" if output else "it is above"
        message = (
            f"{step.place}: nothing is passed on after a preview (proceed: true does); {where}"
        )
        raise PostrenderError(message, "" if output else text)


def previewed(stream: Stream, step: StepSettings[Settings], run: Run) -> Preview:
    """Return the preview. Raises PostrenderError."""
    settings = step.settings
    after: list[Manifest] = [it.value for it in stream.objects()]
    used = site(settings, run, step.at("workloads"))
    if settings.get("live"):
        before, state = live.read(after, run.namespace, run.release)
    else:
        before, state = former(run.file(settings["before"], step.at("before"))), State(time.time())
    return compare(before, after, used, state, run.namespace)


def former(file: Path) -> list[Manifest]:
    """Return the objects of a former render, such as `helm get manifest` prints. Raises
    PostrenderError.
    """
    try:
        return [it.value for it in Stream.read(file.read_bytes()).objects()]
    except OSError as error:
        raise PostrenderError(f"the former render {file} can't be read: {error.strerror}") from None
    except PostrenderError as error:
        raise PostrenderError(f"{file}: {error}") from None
