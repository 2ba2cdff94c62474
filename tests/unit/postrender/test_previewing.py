"""The command `slurm-postrender preview`, with a Helm that prints a stream."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from postrender import cli
from postrender.preview import live
from postrender.preview.state import State
from tests.unit.postrender.expand import streams

_HELM = """#!{python}
import json, sys
from pathlib import Path
Path({asked!r}).write_text(json.dumps(sys.argv[1:]))
print(Path({stream!r}).read_text())
"""


class Helm:
    """A program that records its arguments and prints a stream."""

    def __init__(self, folder: Path) -> None:
        self.asked = folder / "asked.json"
        stream, self.file = folder / "stream.yaml", folder / "helm"
        stream.write_text(yaml.safe_dump_all(streams.stream()))
        text = _HELM.format(python=sys.executable, asked=str(self.asked), stream=str(stream))
        self.file.write_text(text)
        self.file.chmod(0o755)


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    return Helm(tmp_path)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A former render with one worker less."""
    file = tmp_path / "before.yaml"
    former = [*streams.stream()[:-1], streams.nodeset(replicas=1)]
    file.write_text(yaml.safe_dump_all(former))
    return file


def test_a_chart_with_values_is_previewed_without_a_configuration_file(
    helm: Helm, before: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["preview", "charts/slurm", "-f", "a.yaml", "-f", "b.yaml", "--set=x.y=1"]
    status = cli.main([*words, f"--helm={helm.file}", f"--before={before}"], {})
    shown = capsys.readouterr()
    assert (status, shown.err) == (0, "")
    assert "1 worker is created" in shown.out
    want = "template slurm charts/slurm -n slurm --skip-tests -f a.yaml -f b.yaml --set x.y=1"
    assert json.loads(helm.asked.read_text()) == want.split()


def test_without_a_former_render_the_live_cluster_is_asked_with_the_release(
    helm: Helm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def read(after: list[object], namespace: str, release: str) -> tuple[list[object], State]:
        asked.append((namespace, release))
        return list(after), State(0.0, live=True)

    monkeypatch.setattr(live, "read", read)
    words = ["preview", "c", "-n", "hpc", "--release=one", f"--helm={helm.file}", "--format=json"]
    assert cli.main(words, {}) == 0
    assert asked == [("hpc", "one")]
    assert json.loads(capsys.readouterr().out)["changes"] == []
    assert json.loads(helm.asked.read_text())[:5] == ["template", "one", "c", "-n", "hpc"]


def test_the_error_of_helm_is_that_of_the_command(
    helm: Helm, capsys: pytest.CaptureFixture[str]
) -> None:
    helm.file.write_text("#!/bin/sh\necho 'Error: nodsets: unknown key \x1b[0m' >&2\nexit 1\n")
    assert cli.main(["preview", "c", f"--helm={helm.file}"], {}) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "slurm-postrender: helm template: Error: nodsets: unknown key" in shown.err
    assert "\x1b" not in shown.err


def test_without_helm_the_program_that_lacks_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["preview", "c", "--helm=/nowhere/helm"], {}) == 1
    assert "/nowhere/helm can't be started: No such file" in capsys.readouterr().err


def test_an_option_with_a_typo_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["preview", "c", "--vales=a.yaml"], {})
    assert caught.value.code == 2
    assert "Did you mean '--values'?" in capsys.readouterr().err
