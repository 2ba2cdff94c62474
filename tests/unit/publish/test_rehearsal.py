"""What a dry run finds wrong with the package of a chart."""

from pathlib import Path

import pytest

from release import packages, rehearsal


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in which all is right. `objects` is what Helm renders of it."""
    monkeypatch.setattr(
        rehearsal, "_objects", lambda chart: (chart / "objects").read_text(encoding="utf-8").split()
    )
    for folder in ("package", "charts/slurm"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "objects").write_text("a b")
    for file in ("README.md", "LICENSE"):
        (tmp_path / "package" / file).touch()
    (tmp_path / "package" / "Chart.yaml").write_text(f"annotations: {{{packages.CHANGES}: '[]'}}\n")
    return tmp_path / "package"


def problems(package: Path) -> list[str]:
    """What is wrong with it."""
    return rehearsal.package_problems(package, package.parent / "charts" / "slurm")


def test_a_package_in_which_all_is_right_has_no_problem(package: Path) -> None:
    assert problems(package) == []


def test_a_package_that_renders_other_objects_is_wrong(package: Path) -> None:
    (package / "objects").write_text("a c")
    assert problems(package) == ["it renders other objects than charts/slurm"]


@pytest.mark.parametrize("file", ["README.md", "LICENSE"])
def test_a_missing_file_is_wrong(package: Path, file: str) -> None:
    (package / file).unlink()
    assert problems(package) == [f"it has no {file}"]


@pytest.mark.parametrize("folder", ["ci", "tests"])
def test_the_tests_of_a_chart_are_no_part_of_its_package(package: Path, folder: str) -> None:
    (package / folder).mkdir()
    assert problems(package) == [f"it contains {folder}"]
    (package / "charts/sub" / folder).mkdir(parents=True)
    assert problems(package)[1:] == [f"it contains charts/sub/{folder}"]


def test_a_package_without_the_changes_of_the_version_is_wrong(package: Path) -> None:
    (package / "Chart.yaml").write_text("annotations: {a: b}\n")
    assert problems(package) == [f"Chart.yaml has no annotation {packages.CHANGES}"]
