"""Writing generated files, and telling which are stale."""

import shutil
from pathlib import Path

import pytest

from schemas import chart_values, generate, sources

CONTROLLERS = generate.CRD_TEMPLATES / "controllers.yaml"
CONDITIONS = generate.PAGES / "conditions.md"


def charts(folder: Path) -> Path:
    """The folder, with what is generated from of each chart."""
    for chart in chart_values.charts():
        (folder / "charts" / chart).mkdir(parents=True)
        for file in ("values.yaml", "Chart.yaml"):
            shutil.copy(generate.ROOT / "charts" / chart / file, folder / "charts" / chart)
    return folder


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, str]:
    """What is generated for these charts, which takes seconds."""
    return generate.originals(charts(tmp_path_factory.mktemp("charts")))


@pytest.fixture
def root(tmp_path: Path, originals: dict[Path, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the charts, whose own files are not generated again: no test changes what they depend on."""
    monkeypatch.setattr(generate, "originals", lambda root: dict(originals))
    return charts(tmp_path)


def test_missing_files_are_written_and_then_right(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"], root) == 1
    assert str(CONTROLLERS) in capsys.readouterr().err
    assert not (root / CONTROLLERS).exists()
    assert generate.main([], root) == 0
    assert generate.main(["--check"], root) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("path", [CONTROLLERS, CONDITIONS])
def test_a_changed_file_is_named_and_written_anew(root: Path, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate.main([], root)
    before = (root / path).read_text()
    (root / path).write_text(before + "# changed\n")
    capsys.readouterr()
    assert generate.main(["--check"], root) == 1
    assert capsys.readouterr().err.splitlines() == [f"{path}: out of date; run `make generate`"]
    generate.main([], root)
    assert (root / path).read_text() == before


def test_the_definition_of_a_kind_that_is_no_more_is_removed(root: Path) -> None:
    generate.main([], root)
    gone = root / generate.CRD_TEMPLATES / "gones.yaml"
    gone.write_text("kind: CustomResourceDefinition\n")
    assert generate.main(["--check"], root) == 1
    generate.main([], root)
    assert not gone.exists()


def test_the_subchart_of_the_operators_chart_is_the_chart_of_the_definitions_without_its_tests(root: Path) -> None:
    chart, subchart = root / generate.CRD_CHART, root / generate.SUBCHART
    for folder in ("ci", "tests", "templates"):
        (chart / folder).mkdir()
    (chart / "templates" / "_helpers.tpl").write_text("a")
    for folder in ("ci", "tests"):
        (chart / folder / "test.yaml").write_text("a: b\n")
    generate.main([], root)
    wanted = files_of(chart).items() - {(f"{folder}/test.yaml", "a: b\n") for folder in ("ci", "tests")}
    assert files_of(subchart).items() == wanted
    assert {"Chart.yaml", "values.yaml", "templates/controllers.yaml"} <= files_of(subchart).keys()
    (chart / "templates" / "_helpers.tpl").write_text("b")
    (subchart / "templates" / "gone.tpl").write_text("")
    assert generate.main(["--check"], root) == 1
    generate.main([], root)
    assert files_of(subchart)["templates/_helpers.tpl"] == "b"
    assert "templates/gone.tpl" not in files_of(subchart)


def files_of(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_templates_of_helm_in_a_definition_are_an_error() -> None:
    definition = {"metadata": {"name": "x"}, "spec": {"names": {"kind": "X"}, "text": "{{ .Values.x }}"}}
    with pytest.raises(sources.SchemaError, match="Helm"):
        generate.crd_template(definition)
