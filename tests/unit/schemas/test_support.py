"""What is supported: the table agrees with the charts, the README, and what the tests run."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas import support
from schemas.sources import SchemaError
from sidecars.slurm import versions
from tests.charts.__main__ import OLDEST
from tests.cluster import tools

ROOT = support.ROOT
FOUND = support.read()
RELEASES = FOUND["slurm"]["releases"]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def minor(version: str) -> str:
    """Major and minor of a version."""
    return ".".join(version.lstrip("v").split(".")[:2])


@pytest.mark.parametrize("chart", sorted(it.parent.name for it in ROOT.glob("charts/*/Chart.yaml")))
def test_each_chart_needs_the_kubernetes_of_the_table(chart: str) -> None:
    metadata = yaml.safe_load((ROOT / "charts" / chart / "Chart.yaml").read_text(encoding="utf-8"))
    oldest = FOUND["kubernetes"]["charts"].get(chart, FOUND["kubernetes"]["oldest"])
    assert metadata["kubeVersion"] == f">= {oldest}.0-0"


def test_the_oldest_and_the_newest_kubernetes_are_those_of_the_tests() -> None:
    assert [it["version"] for it in FOUND["kubernetes"]["versions"]] == [
        minor(OLDEST),
        minor(tools.KUBERNETES),
    ]
    assert FOUND["kubernetes"]["oldest"] == minor(OLDEST)


def test_the_versions_of_helm_are_those_of_the_tests() -> None:
    stated = re.findall(r'"helm\.sh/helm/v\d/internal/version\.version": "(v[\d.]+)"', TOOLS)
    assert sorted({minor(it) for it in stated}) == [
        it["version"] for it in FOUND["helm"]["versions"]
    ]


TOOLS = Path(tools.__file__).read_text(encoding="utf-8")


def test_each_recorded_release_has_its_recordings_and_the_last_is_that_of_the_images() -> None:
    folder = ROOT / "tests/unit/slurm/fixtures/releases"
    for release in RELEASES:
        if "recorded" in release:
            assert list(folder.glob(f"{release['recorded']}-*.json"))
    packages = (ROOT / "images/slurmctld/packages.txt").read_text(encoding="utf-8")
    assert f"slurmctld={RELEASES[-1]['image']}.*" in packages


def test_a_feature_is_refused_in_each_recorded_release_that_is_older_than_it_needs() -> None:
    for row in FOUND["slurm"]["features"]:
        needed = support.SINCE[row["since"]] if "since" in row else (0, 0, 0)
        for release, mark in zip(RELEASES, row["marks"], strict=True):
            recorded = versions.exact(release.get("recorded", ""))
            assert (mark == "refused") == (recorded is not None and recorded < needed), row


def test_the_readme_states_the_same() -> None:
    kubernetes, helm, slurm = FOUND["kubernetes"], FOUND["helm"], RELEASES[-1]["image"]
    oldest, needed = RELEASES[0]["name"], "{:02}.{:02}.{}".format(*versions.BRIDGE)
    assert versions.POWER_SAVING == versions.BRIDGE
    bridge, newest = kubernetes["charts"]["slurm-bridge"], kubernetes["versions"][-1]["version"]
    rows = [
        [
            "Kubernetes",
            f"{kubernetes['oldest']} or newer, and {bridge} for the Slurm Bridge",
            newest,
        ],
        [
            "Slurm",
            f"{oldest} or newer, and {needed} for power saving and the Slurm Bridge",
            f"{slurm}, and answers of {oldest}",
        ],
        [
            "Helm",
            f"{helm['oldest']} or newer, or 4",
            ", ".join(it["version"] for it in helm["versions"]),
        ],
    ]
    for row in rows:
        assert f"| {' | '.join(row)} |" in README


def test_the_page_has_a_row_for_each_feature_and_each_sign() -> None:
    page = support.page()
    for row in FOUND["slurm"]["features"]:
        marks = " | ".join(support.MARKS[mark] for mark in row["marks"])
        assert f"| {row['feature']} | {marks} |" in page
    assert "Needs 26.05.3. " in page


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"marks": ["tested"]}, "needs 3 of tested"),
        ({"marks": ["tested", "tested", "fine"]}, "needs 3 of tested"),
        ({"tests": ["tests/none.py"]}, "no such test: tests/none.py"),
        ({"tests": []}, "no such test: none is named"),
    ],
)
def test_a_wrong_row_is_refused(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    wrong = yaml.safe_load((ROOT / support.SOURCE).read_text(encoding="utf-8"))
    wrong["slurm"]["features"][0] |= change
    (tmp_path / "schemas").mkdir()
    (tmp_path / support.SOURCE).write_text(yaml.safe_dump(wrong), encoding="utf-8")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    with pytest.raises(SchemaError, match=problem):
        support.read(tmp_path)
