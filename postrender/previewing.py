"""The command `slurm-postrender preview CHART`: has Helm render a chart, and describes what the
upgrade would do. Nothing is passed on.
"""

import subprocess
from argparse import Namespace
from pathlib import Path

from postrender.configuration import StepSettings
from postrender.errors import PostrenderError
from postrender.preview import words
from postrender.report import PROGRAM, Run
from postrender.steps.preview import Settings, previewed
from postrender.stream import Stream
from sidecars.commandline import Parser

HELM_SECONDS = 120.0


def parser() -> Parser:
    """Return the parser of the command."""
    found = Parser(
        prog=f"{PROGRAM} preview",
        description="Describe what an upgrade would do: objects, configuration, workers, jobs. "
        "Changes nothing.",
    )
    add = found.add_argument
    add("chart", help="folder, archive or oci:// address of the chart, as for Helm")
    add("-f", "--values", action="append", default=[], metavar="FILE", help="as for Helm")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="as for Helm")
    add("--version", metavar="VERSION", help="of the chart, as for Helm")
    add("-n", "--namespace", default="slurm", help="of the release (default: slurm)")
    add("--release", metavar="NAME", default="slurm", help="the release (default: slurm)")
    add(
        "--before",
        type=Path,
        metavar="FILE",
        help="compare with this former render, such as of `helm get manifest`; default: the "
        "cluster of kubectl's context",
    )
    add("--format", choices=tuple(words.FORMATS), default="text", help="default: text")
    add("--helm", default="helm", metavar="FILE", help="the program (default: helm)")
    return found


def result(given: Namespace) -> str:
    """Return the preview as text. Raises PostrenderError, also with Helm's own error."""
    run = Run(release=given.release, namespace=given.namespace)
    settings: Settings = {"live": True}
    if given.before is not None:
        run.folder = given.before.parent
        settings = {"before": given.before.name}
    step = StepSettings(settings=settings, name="preview", origin="preview")
    return words.FORMATS[given.format](previewed(Stream.read(_rendered(given)), step, run))


def _rendered(given: Namespace) -> bytes:
    command = [given.helm, "template", given.release, given.chart, "-n", given.namespace]
    command += ["--skip-tests"]
    for file in given.values:
        command += ["-f", file]
    for pair in given.set:
        command += ["--set", pair]
    if given.version:
        command += ["--version", given.version]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=HELM_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PostrenderError(f"helm template: no answer within {HELM_SECONDS:g} s") from None
    except OSError as error:
        raise PostrenderError(f"{given.helm} can't be started: {error.strerror}") from None
    if done.returncode != 0:
        raise PostrenderError(f"helm template: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
