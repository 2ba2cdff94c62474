"""The step `preview`: what an upgrade to this stream would do. Nothing is passed on unless the settings ask for it."""

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
    if bool(settings.get("live")) == bool(settings.get("before")):
        raise PostrenderError(f"{step.place}: set either `live: true`, or `before` to the file of a former render")
    text = words.FORMATS[settings.get("format", "text")](previewed(stream, settings, run))
    output = settings.get("output")
    if output:
        try:
            (run.folder / output).write_text(text, encoding="utf-8")
        except OSError as error:
            raise PostrenderError(f"{step.place}.output: {output!r} can't be written: {error.strerror}") from None
    else:
        print(text, end="", file=sys.stderr)
    if not settings.get("proceed"):
        where = f"it is in {output}" if output else f"it is above\n{text}"
        raise PostrenderError(f"{step.place}: nothing is passed on after a preview (proceed: true does); {where}")


def previewed(stream: Stream, settings: Settings, run: Run) -> Preview:
    """The preview. Raises PostrenderError."""
    after: list[Manifest] = [it.value for it in stream.objects()]
    used = site(settings, run.folder)
    if settings.get("live"):
        before, state = live.read(after, run.namespace, run.release)
    else:
        before, state = former(run.folder / settings["before"]), State(time.time())
    return compare(before, after, used, state, run.namespace)


def former(file: Path) -> list[Manifest]:
    """The objects of a former render, such as `helm get manifest` prints. Raises PostrenderError."""
    try:
        return [it.value for it in Stream.read(file.read_bytes()).objects()]
    except OSError as error:
        raise PostrenderError(f"the former render {file} can't be read: {error.strerror}") from None
    except PostrenderError as error:
        raise PostrenderError(f"{file}: {error}") from None
