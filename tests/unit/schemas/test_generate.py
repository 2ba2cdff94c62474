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


@pytest.mark.parametrize("chart", chart_values.charts())
def test_the_templates_that_all_charts_share_are_in_each_by_a_link(chart: str) -> None:
    link = generate.ROOT / "charts" / chart / "templates" / "shared"
    assert link.readlink() == Path("../../shared")


def test_the_registry_that_a_release_replaces_is_that_of_the_images() -> None:
    template = (generate.ROOT / "charts" / "shared" / "_global.tpl").read_text(encoding="utf-8")
    assert f'{{{{- define "slurm-charts.ownImages" -}}}}\n{REGISTRY}\n' in template


@pytest.mark.parametrize(
    ("chart", "subchart"), [("slurm", "slurm-exporter"), ("slurm-operator", "slurm-operator-crds")]
)
def test_a_subchart_is_a_link_to_its_chart_and_is_packaged_without_its_tests(
    chart: str, subchart: str
) -> None:
    folder = generate.ROOT / "charts" / chart
    assert (folder / "charts" / subchart).readlink() == Path("../..") / subchart
    ignored = (folder / ".helmignore").read_text(encoding="utf-8").splitlines()
    assert {"charts/*/ci/", "charts/*/tests/"} <= set(ignored)


def test_templates_of_helm_in_a_definition_are_an_error() -> None:
    definition = {
        "metadata": {"name": "x"},
        "spec": {"names": {"kind": "X"}, "text": "{{ .Values.x }}"},
    }
    with pytest.raises(sources.SchemaError, match="Helm"):
        generate.crd_template(definition)
