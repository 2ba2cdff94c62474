"""All parts of the repository have one version."""

import re
import shutil
from pathlib import Path

import pytest

from release import versions
from schemas import chart_package

ROOT = Path(__file__).parents[3]
FILES = (
    "pyproject.toml",
    "CHANGELOG.md",
    *(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/*.md")),
    "sidecars/contract/project.py",
    "charts/slurm-operator/workloads/version.yaml",
    *(f"charts/{chart}/Chart.yaml" for chart in chart_package.RELEASES),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The files with a version, with a dated changelog."""
    for file in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    edit(
        tmp_path,
        "CHANGELOG.md",
        rf"^## {re.escape(versions.version(ROOT))} \(.*\)$",
        released("2026-01-31"),
    )
    return tmp_path


def released(date: str) -> str:
    """The heading of the present version in the changelog."""
    return f"## {versions.version(ROOT)} ({date})"


def edit(root: Path, file: str, pattern: str, new: str) -> None:
    """Replace the first place in a file that matches."""
    text = (root / file).read_text(encoding="utf-8")
    changed = re.sub(pattern, new, text, count=1, flags=re.MULTILINE)
    assert changed != text
    (root / file).write_text(changed, encoding="utf-8")


def test_the_parts_of_the_repository_have_one_version() -> None:
    assert versions.problems(ROOT) == []


def test_the_tag_of_the_version_with_a_dated_changelog_can_be_released(root: Path) -> None:
    assert versions.problems(root, f"v{versions.version(root)}") == []


@pytest.mark.parametrize(
    ("file", "pattern", "place"),
    [
        ("charts/slurm/Chart.yaml", "^version: .*$", "charts/slurm/Chart.yaml: version"),
        (
            "charts/slurm-operator/Chart.yaml",
            "^appVersion: .*$",
            "charts/slurm-operator/Chart.yaml: appVersion",
        ),
        (
            "charts/slurm-operator/workloads/version.yaml",
            "^version: .*$",
            "charts/slurm-operator/workloads/version.yaml",
        ),
        ("sidecars/contract/project.py", '^VERSION: Final = ".*"$', "sidecars/contract/project.py"),
        ("docs/images.md", r"slurm-charts/sidecars:[\w.]+", r"docs/images.md:\d+"),
        ("docs/images.md", r"charts/slurm:[\w.]+", r"docs/images.md:\d+"),
        ("docs/local.md", r"sidecars:[\w.]+", r"docs/local.md:\d+"),
        ("docs/air-gapped.md", r"--version [\w.]+", r"docs/air-gapped.md:\d+"),
        ("docs/air-gapped.md", r"slurm-operator-crds-[\w.]+\.tgz", r"docs/air-gapped.md:\d+"),
        ("docs/gitops.md", r"targetRevision: [\w.]+", r"docs/gitops.md:\d+"),
        ("docs/gitops.md", r"tag: [\w.]+", r"docs/gitops.md:\d+"),
        ("docs/gitops.md", r" version: [\w.]+", r"docs/gitops.md:\d+"),
    ],
)
def test_a_part_with_another_version_is_named_with_the_version_to_set(
    root: Path, file: str, pattern: str, place: str
) -> None:
    own = versions.version(root)
    text = (root / file).read_text(encoding="utf-8")
    match = re.search(pattern, text, re.MULTILINE)
    assert match is not None
    edit(root, file, pattern, match[0].replace(own, "9.9.9"))
    (problem,) = versions.problems(root)
    assert re.fullmatch(
        rf"{place}: the version is 9.9.9, not {re.escape(own)}. Set it to {re.escape(own)}.",
        problem,
    )


def test_a_subchart_of_another_version_is_named(root: Path) -> None:
    own = versions.version(root)
    edit(root, "charts/slurm-operator/Chart.yaml", rf"^( +version:) {re.escape(own)}$", r"\1 9.9.9")
    [problem] = versions.problems(root)
    assert problem.startswith(
        "charts/slurm-operator/Chart.yaml: dependency slurm-operator-crds: the version is 9.9.9"
    )


def test_a_slurm_version_that_the_images_do_not_have_is_named(root: Path) -> None:
    edit(root, "charts/slurm/Chart.yaml", "^appVersion: .*$", 'appVersion: "99.11"')
    found = versions.problems(root)
    assert {problem.partition(": the version")[0] for problem in found} >= {
        "tests/cluster/images.py: IMAGES: slurmctld",
        "tests/cluster/images.py: IMAGES: slurmd",
    }


def test_a_tag_of_another_version_is_refused(root: Path) -> None:
    [problem] = versions.problems(root, "v9.9.9")
    assert problem.startswith("The tag v9.9.9 is not that of pyproject.toml. Tag v")


def test_a_release_needs_its_date_in_the_changelog(root: Path) -> None:
    edit(root, "CHANGELOG.md", re.escape(released("2026-01-31")), released("unreleased"))
    assert versions.problems(root) == []
    [problem] = versions.problems(root, f"v{versions.version(root)}")
    assert "has no date. Replace `(unreleased)`" in problem


def test_a_version_that_the_changelog_does_not_have_is_refused(root: Path) -> None:
    edit(root, "CHANGELOG.md", "^## 0", "## 9")
    [problem] = versions.problems(root)
    assert problem.startswith("CHANGELOG.md: no section of")
