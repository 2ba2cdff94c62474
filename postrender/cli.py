"""The command `slurm-postrender`: stdin → steps → stdout, all of it or nothing.

Helm 3 starts it by its path, Helm 4 as a plugin. Arguments come by `--post-renderer-args`. What
fails is written to stderr and to the report file, because Helm 4 shows no stderr of a plugin.
`slurm-postrender check` writes the findings in place of the stream, for CI, `slurm-postrender
preview CHART` what an upgrade would do, and `slurm-postrender from-soperator FILE` values of the
chart slurm. A stream that is one `ResourceList` has it work as a KRM function of kustomize.
"""

import os
import sys
import traceback
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from postrender import configuration, krm, steps
from postrender.configuration import StepSettings
from postrender.errors import PostrenderError
from postrender.report import FORMATS, PROGRAM, Run, rendered, shown
from postrender.stream import LARGEST, Stream
from sidecars.commandline import COMPLETE, SHELLS, Parser, shell

CONFIG = "SLURM_POSTRENDER_CONFIG"
REPORT = "SLURM_POSTRENDER_REPORT"
CHECK = "check"
PREVIEW = "preview"
FROM_SOPERATOR = "from-soperator"
COMPLETION = "completion"


def main(
    arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None
) -> int:
    """Run the command; 0: the result has been written, 1: nothing has, 2: wrong arguments."""
    env = os.environ if environment is None else environment
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] in ([PREVIEW], [FROM_SOPERATOR], [COMPLETE], [COMPLETION]):
        return _other_command(given[0], given[1:])
    checks = given[:1] == [CHECK]
    options = _parser().parse_args(given[1:] if checks else given)
    run = Run(release=options.release, namespace=options.namespace, environment=env)
    result, error = b"", ""
    try:
        result = _result(options, run, checks)
    except PostrenderError as problem:
        error = "\n".join(filter(None, (shown(problem.message), problem.detail)))
    except Exception as problem:  # noqa: BLE001
        # Helm 4 drops stderr: the report must have this reason too. The text of an exception may
        # have a value of the stream, so that only its type is shown.
        error = (
            f"a fault of {PROGRAM}: report it with the stream and the "
            f"configuration\n{_traceback(problem)}"
        )
    file = options.input or "stdin"
    report = rendered(run.findings, error, options.format, file)
    _write_report(_report_file(options, env), report, needed=bool(run.findings or error))
    if checks:
        result = report.encode(errors="backslashreplace")
    elif run.findings or error:
        sys.stderr.write(rendered(run.findings, error, "text", file))
    if checks or not error:
        sys.stdout.buffer.write(result)
        sys.stdout.buffer.flush()
    return 1 if error else 0


def _other_command(command: str, given: Sequence[str]) -> int:
    """Run a command that reads no stream."""
    # It imports much, which a stream that Helm waits for has no use of.
    from postrender import converting, previewing

    commands = {PREVIEW: previewing, FROM_SOPERATOR: converting}
    if command == COMPLETE:
        # The first word of a stream's command is a file, which the shell completes itself.
        first = [CHECK, PREVIEW, FROM_SOPERATOR, COMPLETION]
        if len(given) < 2:
            print(*(it for it in first if it.startswith("".join(given))), sep="\n")
        else:
            parser = commands[given[0]].parser() if given[0] in commands else _parser()
            print(*parser.candidates(list(given[given[0] in first :])), sep="\n")
        return 0
    if command == COMPLETION:
        parser = Parser(prog=f"{PROGRAM} {COMPLETION}", description="Print a shell's completion.")
        parser.add_argument("shell", choices=SHELLS)
        print(shell(PROGRAM, parser.parse_args(given).shell), end="")
        return 0
    options = commands[command].parser().parse_args(given)
    try:
        print(commands[command].result(options), end="")
    except PostrenderError as problem:
        print(f"{PROGRAM}: {shown(problem.message)}", file=sys.stderr)
        return 1
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog=PROGRAM,
        formatter_class=RawDescriptionHelpFormatter,
        description="Helm post-renderer for Slurm clusters: applies the steps of a file to the "
        "rendered stream.",
        epilog="\n".join(_epilog()),
    )
    parser.add_version()
    parser.add_argument("config", nargs="?", help="the same as --config")
    parser.add_argument(
        "--config", dest="config_option", metavar="FILE", help=f"the steps; also by {CONFIG}"
    )
    parser.add_argument("--input", metavar="FILE", help="the stream, in place of stdin")
    parser.add_argument(
        "--report", metavar="FILE", help=f"findings, and the reason of a failure; also by {REPORT}"
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="of the report")
    parser.add_argument(
        "--release", metavar="NAME", default="", help="the Helm release, which Helm doesn't pass"
    )
    parser.add_argument(
        "--namespace", metavar="NAME", default="", help="its namespace, which Helm doesn't pass"
    )
    return parser


def _epilog() -> Iterator[str]:
    yield from ("commands:", "  check        write the findings in place of the stream, for CI")
    yield "  preview      describe what an upgrade to a chart would do (--help)"
    yield "  from-soperator   print the values of a SlurmCluster of Soperator (--help)"
    yield from ("  completion   print the completion of bash or zsh", "")
    yield "steps of the file, in the order in which they are applied:"
    described = configuration.schema()["properties"]["steps"]["items"]["properties"]
    yield from (f"  {name:<12} {it['description']}" for name, it in described.items())


def _result(options: Namespace, run: Run, checks: bool) -> bytes:
    named = options.config_option or options.config or run.environment.get(CONFIG)
    wanted = _steps(named, run, checks)
    data = _input(options.input)
    if not named and not checks:
        return krm.result(data, run)
    stream = Stream.read(data)
    steps.apply(stream, wanted, run)
    return stream.written()


def _steps(named: str | None, run: Run, checks: bool) -> Sequence[StepSettings[object]]:
    if named:
        run.folder = Path(named).parent
        return configuration.read(Path(named))
    return [StepSettings("check", {}, "check")] if checks else []


def _traceback(problem: BaseException) -> str:
    """Return where the exception was raised, with its first cause, and without the texts of
    exceptions.
    """
    cause = problem.__cause__ or problem.__context__
    before = f"{_traceback(cause)}which caused:\n" if cause is not None else ""
    return (
        f"{before}{''.join(traceback.format_tb(problem.__traceback__))}{type(problem).__name__}\n"
    )


def _input(named: str | None) -> bytes:
    if named is None:
        return sys.stdin.buffer.read(LARGEST + 1)
    try:
        with Path(named).open("rb") as file:
            return file.read(LARGEST + 1)
    except OSError as error:
        raise PostrenderError(f"the stream {named} can't be read: {error.strerror}") from None


def _report_file(options: Namespace, env: Mapping[str, str]) -> Path:
    named = options.report or env.get(REPORT)
    if named:
        return Path(named)
    cache = env.get("XDG_CACHE_HOME") or str(Path(env.get("HOME") or "/tmp") / ".cache")  # noqa: S108
    return Path(cache) / PROGRAM / "report.txt"


def _write_report(file: Path, report: str, needed: bool) -> None:
    """Write the report. Without any findings, an old report is replaced, so that it isn't taken for
    this run's.
    """
    try:
        if needed:
            file.parent.mkdir(parents=True, exist_ok=True)
        if needed or file.exists():
            file.write_text(report, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        print(f"{PROGRAM}: the report {file} can't be written: {error.strerror}", file=sys.stderr)
