"""The command `slurm-postrender`: stdin → steps → stdout, all of it or nothing.

Helm 3 starts it by its path, Helm 4 as a plugin. Arguments come by `--post-renderer-args`. What goes wrong is written
to stderr and to the report file, because Helm 4 shows no stderr of a plugin.
"""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from postrender import configuration, steps
from postrender.errors import PostrenderError
from postrender.report import Run
from postrender.stream import LARGEST, Stream

CONFIG = "SLURM_POSTRENDER_CONFIG"
REPORT = "SLURM_POSTRENDER_REPORT"


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run the command; 0: the result has been written, 1: nothing has, 2: wrong arguments."""
    env = os.environ if environment is None else environment
    options = _parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    run = Run(release=options.release, namespace=options.namespace, environment=env)
    report = report_file(options, env)
    try:
        result = _result(options, run)
    except PostrenderError as error:
        found = [f"slurm-postrender: {it}" for it in run.findings]
        _write_report(report, [*found, f"slurm-postrender: {error}"], needed=True)
        print(f"slurm-postrender: {error}", file=sys.stderr)
        return 1
    lines = [f"slurm-postrender: {it}" for it in run.findings]
    _write_report(report, lines, needed=bool(lines))
    for line in lines:
        print(line, file=sys.stderr)
    sys.stdout.buffer.write(result)
    sys.stdout.buffer.flush()
    return 0


def report_file(options: Namespace, env: Mapping[str, str]) -> Path:
    """Where the report is written."""
    named = options.report or env.get(REPORT)
    if named:
        return Path(named)
    cache = env.get("XDG_CACHE_HOME") or str(Path(env.get("HOME") or "/tmp") / ".cache")  # noqa: S108
    return Path(cache) / "slurm-postrender" / "report.txt"


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="slurm-postrender",
        description="Helm post-renderer for Slurm clusters: applies the steps of a file to the rendered stream.",
    )
    parser.add_argument("config", nargs="?", help="the same as --config")
    parser.add_argument("--config", dest="config_option", metavar="FILE", help=f"the steps; also by {CONFIG}")
    parser.add_argument(
        "--report", metavar="FILE", help=f"where findings and the reason of a failure are written; also by {REPORT}"
    )
    parser.add_argument(
        "--release", metavar="NAME", default="", help="name of the Helm release, which Helm doesn't pass"
    )
    parser.add_argument(
        "--namespace", metavar="NAME", default="", help="namespace of the release, which Helm doesn't pass"
    )
    return parser


def _result(options: Namespace, run: Run) -> bytes:
    named = options.config_option or options.config or run.environment.get(CONFIG)
    if not named:
        raise PostrenderError(f"no configuration: use --post-renderer-args=--config=FILE, or set {CONFIG}")
    file = Path(named)
    run.folder = file.parent
    wanted = configuration.read(file)
    stream = Stream.read(sys.stdin.buffer.read(LARGEST + 1))
    steps.apply(stream, wanted, run)
    return stream.written()


def _write_report(file: Path, lines: Sequence[str], needed: bool) -> None:
    """Without anything to say an old report is emptied, so that it isn't taken for this run's."""
    try:
        if needed:
            file.parent.mkdir(parents=True, exist_ok=True)
        if needed or file.exists():
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        print(f"slurm-postrender: the report {file} can't be written: {error.strerror}", file=sys.stderr)
