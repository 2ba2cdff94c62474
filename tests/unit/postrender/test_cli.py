"""The command, as Helm starts it."""

import io
from pathlib import Path

import pytest

from postrender import cli

STREAM = b"---\n# Source: a/b.yaml\nkind: ConfigMap\nmetadata:\n  name: one\n"
LABELS = "steps:\n- labels: {set: {team: hpc}}\n"


class Command:
    """Runs the command with a home of its own."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
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
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
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


def test_a_failure_writes_no_stream_but_its_reason_to_stderr_and_to_the_report(command: Command) -> None:
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


def test_a_report_that_cannot_be_written_is_said_and_changes_nothing(command: Command) -> None:
    (command.folder / "file").touch()
    status, out, err = command("--report", str(command.folder / "file" / "r.txt"), stdin=b"\xff")
    assert (status, out) == (1, b"")
    assert "can't be written" in err
