"""The command, as Helm starts it."""

import io
import json
import os
from pathlib import Path

import pytest

from postrender import cli, configuration
from postrender.stream import Stream
from sidecars.commandline import shell
from sidecars.contract.project import VERSION

STEPS = Path(cli.__file__).parent / "steps"

STREAM = b"---\n# Source: a/b.yaml\nkind: ConfigMap\nmetadata:\n  name: one\n"
LABELS = "steps:\n- labels: {set: {team: hpc}}\n"


class Command:
    """Runs the command with a home of its own."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfdbinary: pytest.CaptureFixture[bytes],
    ) -> None:
        self.folder = folder
        self.environment = {"HOME": str(folder)}
        self.report = folder / ".cache" / "slurm-postrender" / "report.txt"
        self._monkeypatch = monkeypatch
        self._capture = capfdbinary

    def __call__(self, *arguments: str, stdin: bytes = STREAM) -> tuple[int, bytes, str]:
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = cli.main(arguments, self.environment)
        out, err = self._capture.readouterr()
        return status, out, err.decode()


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Command:
    (tmp_path / "c.yaml").write_text(LABELS)
    return Command(tmp_path, monkeypatch, capfdbinary)


def test_the_configuration_comes_by_option_argument_or_environment(command: Command) -> None:
    want = STREAM + b"  labels:\n    team: hpc\n"
    file = str(command.folder / "c.yaml")
    assert command("--config", file) == (0, want, "")
    assert command(file) == (0, want, "")
    command.environment[cli.CONFIG] = file
    assert command() == (0, want, "")
    assert not command.report.exists()


def test_a_failure_writes_no_stream_but_its_reason_to_stderr_and_to_the_report(
    command: Command,
) -> None:
    file = str(command.folder / "c.yaml")
    status, out, err = command(file, stdin=STREAM + b"---\nkind: [\n")
    assert (status, out) == (1, b"")
    assert err.startswith("slurm-postrender: document 2, line 7: ")
    assert command.report.read_text() == err
    command(file)
    assert command.report.read_text() == "", "an old reason would be taken for this run's"
    named = command.folder / "sub" / "r.txt"
    assert command("--report", str(named), stdin=b"")[0] == 1
    assert "no configuration" in named.read_text()
    command.environment[cli.REPORT] = str(command.folder / "other.txt")
    assert "nothing would be left" in command(file, stdin=b"")[2]
    assert "nothing would be left" in (command.folder / "other.txt").read_text()


def test_check_writes_findings_in_place_of_the_stream(command: Command) -> None:
    pod = b"kind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n  - image: a\n"
    status, out, err = command("check", "--format", "json", stdin=pod)
    assert (status, err) == (0, "")
    assert [it["rule"] for it in json.loads(out)["findings"]] == ["image-tag"]
    assert command.report.read_bytes() == out
    (command.folder / "stream.yaml").write_bytes(pod + b"---\n" + pod)
    status, out, _ = command(
        "check", "--format", "sarif", "--input", str(command.folder / "stream.yaml")
    )
    assert status == 1
    (run,) = json.loads(out)["runs"]
    assert [it["ruleId"] for it in run["results"]] == ["duplicate-object", "image-tag", "image-tag"]
    status, out, _ = command("check", "--input", str(command.folder / "absent"))
    assert status == 1
    assert b"absent can't be read: No such file or directory" in out


def test_warnings_of_a_run_go_to_stderr_and_to_the_report(command: Command) -> None:
    (command.folder / "c.yaml").write_text("steps: [{check: {severity: {image-tag: warning}}}]\n")
    pod = b"kind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n  - image: a\n"
    status, out, err = command(str(command.folder / "c.yaml"), stdin=pod)
    assert (status, out) == (0, pod)
    assert err == command.report.read_text()
    assert err.startswith(
        "slurm-postrender: warning: document 1, line 6, Pod p: a can be another image"
    )


def test_what_ends_a_run_is_written_once(command: Command) -> None:
    (command.folder / "c.yaml").write_text("steps: [{check: {severity: {image-tag: error}}}]\n")
    pod = b"kind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n  - image: a\n"
    status, out, err = command(str(command.folder / "c.yaml"), stdin=pod)
    assert (status, out) == (1, b"")
    assert err.count("Pod p: a can be another image") == 1
    assert err.splitlines()[-1].endswith(
        "steps[0].check: 1 error, listed above: nothing is passed on"
    )
    assert command.report.read_text() == err


def test_kustomize_needs_no_argument(command: Command) -> None:
    function = b"functionConfig:\n  spec:\n    steps: [{labels: {set: {x: z}}}]\n"
    status, out, _ = command(
        stdin=b"kind: ResourceList\nitems:\n- kind: A\n  metadata:\n    name: a\n" + function
    )
    assert status == 0
    assert b"labels:\n      x: z\n" in out


def test_a_report_that_cannot_be_written_is_logged_and_changes_nothing(command: Command) -> None:
    (command.folder / "file").touch()
    status, out, err = command("--report", str(command.folder / "file" / "r.txt"), stdin=b"\xff")
    assert (status, out) == (1, b"")
    assert "can't be written" in err


def test_of_a_file_that_is_too_large_no_more_than_the_limit_is_read(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def read(data: bytes) -> Stream:
        sizes.append(len(data))
        return Stream([])

    monkeypatch.setattr(cli, "LARGEST", 20)
    monkeypatch.setattr(Stream, "read", read)
    (command.folder / "stream.yaml").write_bytes(b"a: " + b"b" * 100)
    command(str(command.folder / "c.yaml"), "--input", str(command.folder / "stream.yaml"))
    assert sizes == [21]


def test_a_fault_of_the_program_is_in_the_report_and_nothing_is_written(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        value = "hunter-2"
        try:
            raise ValueError(value)
        except ValueError as error:
            raise KeyError(value) from error

    monkeypatch.setattr("postrender.steps.apply", fail)
    status, out, _ = command(str(command.folder / "c.yaml"))
    assert (status, out) == (1, b"")
    report = command.report.read_text()
    assert [line for line in report.splitlines() if line.endswith("Error")] == [
        "ValueError",
        "KeyError",
    ]
    assert "test_cli.py" in report
    assert "hunter-2" not in report


def test_a_file_name_that_is_no_utf_8_is_in_the_report(command: Command) -> None:
    status, out, _ = command("check", "--config", os.fsdecode(b"\xff.yaml"))
    assert status == 1
    assert rb"the configuration \udcff.yaml can't be read" in out
    assert command.report.read_bytes() == out


def test_the_version_and_a_line_for_each_step_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"], {})
    assert (caught.value.code, capsys.readouterr().out) == (0, f"slurm-postrender {VERSION}\n")
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"], {})
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    described = configuration.schema()["properties"]["steps"]["items"]["properties"]
    assert set(described) == {it.stem for it in STEPS.glob("[a-z]*.py")}
    for name, it in described.items():
        assert f"  {name:<12} {it['description']}\n" in shown


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([""], ["check", "preview", "from-soperator", "completion"]),
        (["pre"], ["preview"]),
        (["postrender.yaml", "--rep"], ["--report"]),
        (["check", "--format", ""], ["json", "sarif", "text"]),
        (["preview", "--format", ""], ["json", "markdown", "text"]),
    ],
)
def test_words_are_completed(
    words: list[str], found: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["__complete", *words], {}) == 0
    assert capsys.readouterr().out.split() == found


def test_the_completion_of_a_shell_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "bash"], {}) == 0
    assert capsys.readouterr().out == shell("slurm-postrender", "bash")
