"""A release names the repository that publishes it. The tree names nothing that anyone could
own.
"""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from release import repository
from schemas import chart_package, image_list
from sidecars.contract import project
from tests.cluster.errors import ClusterError

ROOT = Path(__file__).parents[3]


def git(root: Path, *words: str) -> str:
    """The output of git."""
    return subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with the repository Acme/slurm filled in."""
    root = tmp_path_factory.mktemp("filled")
    for name in git(ROOT, "ls-files", "--", *repository.FILLED).splitlines():
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
    git(root, "init", "--quiet")
    git(root, "add", ".")
    assert repository.fill(root, "Acme/slurm")
    return root


def test_the_tree_names_hosts_that_nobody_can_own() -> None:
    for chart in chart_package.RELEASES:
        folder = ROOT / "charts" / chart
        own = {
            image for image in image_list.of_chart(folder).values() if "gce-ai-infra" not in image
        }
        assert {image for image in own if not project.is_placeholder(image)} == set()
        assert yaml.safe_load((folder / "Chart.yaml").read_text())["home"] == project.HOME
    assert project.HOME.startswith("https://github.invalid/")


def test_all_images_of_a_release_are_in_the_registry_of_its_owner(filled: Path) -> None:
    for chart in chart_package.RELEASES:
        own = {
            image
            for image in image_list.of_chart(filled / "charts" / chart).values()
            if "gce-ai-infra" not in image
        }
        assert {image for image in own if not image.startswith("ghcr.io/acme/")} == set()


def test_a_release_links_to_the_repository_that_publishes_it(filled: Path) -> None:
    for chart in chart_package.RELEASES:
        described = yaml.safe_load((filled / "charts" / chart / "Chart.yaml").read_text())
        assert described["home"] == "https://github.com/Acme/slurm"
        assert [each["url"] for each in described["maintainers"]] == ["https://github.com/Acme"]
    label = 'LABEL org.opencontainers.image.source="https://github.com/Acme/slurm"'
    assert label in (filled / "images" / "slurmd" / "Containerfile").read_text()


def test_no_file_of_a_release_has_a_name_of_the_tree(filled: Path) -> None:
    former = [
        project.HOME.removeprefix("https://"),
        project.HOME.rpartition("/")[0],
        project.REGISTRY,
    ]
    texts = {name: (filled / name).read_bytes() for name in git(filled, "ls-files").splitlines()}
    assert [
        name for name, text in texts.items() if any(each.encode() in text for each in former)
    ] == []


@pytest.mark.parametrize(
    "name", ["", "acme", "acme/slurm/charts", "https://github.com/acme/slurm", "a b/c", "../x"]
)
def test_another_name_than_that_of_a_repository_changes_nothing(name: str, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="OWNER/NAME"):
        repository.fill(tmp_path, name)


def test_nothing_is_pushed_to_a_registry_of_the_tree() -> None:
    with pytest.raises(ClusterError, match="make release-fill REPOSITORY=OWNER/NAME"):
        repository.check_filled(project.REGISTRY)
    repository.check_filled("ghcr.io/acme")
