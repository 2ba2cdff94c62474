"""Writing generated files, and finding those that are stale."""

import shutil
from pathlib import Path

import pytest

from schemas import chart_values, generate, sources
from sidecars.contract.project import REGISTRY

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
    return generate.generated(charts(tmp_path_factory.mktemp("charts")))


@pytest.fixture
def root(tmp_path: Path, originals: dict[Path, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the charts, whose own files are not generated again: no test changes what they
    depend on.
    """
    monkeypatch.setattr(generate, "generated", lambda root: dict(originals))
    return charts(tmp_path)


def test_missing_files_are_written_and_then_right(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate.main(["--check"], root) == 1
    assert str(CONTROLLERS) in capsys.readouterr().err
    assert not (root / CONTROLLERS).exists()
    assert generate.main([], root) == 0
    assert generate.main(["--check"], root) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("path", [CONTROLLERS, CONDITIONS])
def test_a_changed_file_is_named_and_written_anew(
    root: Path, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_the_registry_that_a_release_replaces_is_that_of_the_images() -> None:
    template = (generate.ROOT / "charts" / "shared" / "_global.tpl").read_text(encoding="utf-8")
    assert f'{{{{- define "slurm-charts.ownImages" -}}}}\n{REGISTRY}\n' in template


def files_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_subchart_is_its_chart_without_its_tests_and_each_chart_has_the_shared_templates() -> (
    None
):
    charts = generate.ROOT / "charts"
    for chart, subchart in (("slurm", "slurm-exporter"), ("slurm-operator", "slurm-operator-crds")):
        whole = files_of(charts / subchart)
        packaged = {name: text for name, text in whole.items() if name[:3] != "ci/"}
        wanted = {name: text for name, text in packaged.items() if name[:6] != "tests/"}
        assert files_of(charts / chart / "charts" / subchart) == wanted
        assert {"Chart.yaml", "values.yaml", "templates/shared/_check.tpl"} <= wanted.keys()
        assert len(wanted) < len(whole)
    for chart in chart_values.charts():
        assert files_of(charts / chart / "templates/shared") == files_of(charts / "shared")


def test_a_file_that_a_copy_has_and_its_original_has_not_is_removed(root: Path) -> None:
    generate.main([], root)
    gone = root / "charts/slurm/charts/slurm-exporter/gone.tpl"
    gone.write_text("")
    assert generate.main(["--check"], root) == 1
    generate.main([], root)
    assert not gone.exists()


def test_templates_of_helm_in_a_definition_are_an_error() -> None:
    definition = {
        "metadata": {"name": "x"},
        "spec": {"names": {"kind": "X"}, "text": "{{ .Values.x }}"},
    }
    with pytest.raises(sources.SchemaError, match="Helm"):
        generate.crd_template(definition)
