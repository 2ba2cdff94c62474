"""What is supported: the table agrees with the charts, the README, and what the tests run."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas import kubernetes_types, support
from schemas.sources import SchemaError
from sidecars.slurm import versions
from tests.charts.__main__ import NEWEST, OLDEST
from tests.cluster import tools
from tests.cluster.errors import ClusterError

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


def test_the_versions_of_kubernetes_are_those_of_the_tests() -> None:
    former = sorted(minor(it) for it in tools.FORMER_KUBERNETES)
    newest = minor(tools.NEWEST_KUBERNETES)
    assert [it["version"] for it in FOUND["kubernetes"]["versions"]] == [
        minor(OLDEST),
        *former,
        newest,
    ]
    assert FOUND["kubernetes"]["oldest"] == minor(OLDEST)
    assert {newest} == {minor(NEWEST), minor(kubernetes_types.VERSIONS[-1])}
    assert minor(OLDEST) == minor(kubernetes_types.VERSIONS[0])


def test_the_soak_runs_the_tests_of_each_former_kubernetes() -> None:
    soak = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nsoak:")[2]
    loop = re.compile(r"^\tfor version in ([\d. ]+); do$(.*?)^\tdone$", re.MULTILINE | re.DOTALL)
    [former] = loop.findall(soak)
    assert former[0].split() == [minor(it) for it in tools.FORMER_KUBERNETES]
    for row in FOUND["kubernetes"]["versions"]:
        if row["version"] in former[0].split():
            run = re.findall(r"^\t  KUBERNETES_VERSION=\$\$version (.*)$", former[1], re.MULTILINE)
            assert [it for line in run for it in line.split() if it.startswith("tests/")] == row[
                "tests"
            ]


def test_a_kubernetes_is_chosen_by_its_minor_version_and_another_one_is_refused() -> None:
    assert tools.chosen_kubernetes("") == tools.NEWEST_KUBERNETES
    for version in (tools.NEWEST_KUBERNETES, *tools.FORMER_KUBERNETES):
        assert tools.chosen_kubernetes(minor(version)) == version
    with pytest.raises(ClusterError, match=r"KUBERNETES_VERSION=1\.28: is not one of 1\.37, 1\.36"):
        tools.chosen_kubernetes("1.28")


@pytest.mark.parametrize("version", [tools.NEWEST_KUBERNETES, *tools.FORMER_KUBERNETES])
def test_all_programs_of_a_kubernetes_are_of_its_version(version: str) -> None:
    module = "go" if version == tools.NEWEST_KUBERNETES else minor(version)
    text = (ROOT / f"tests/cluster/kubernetes/{module}.mod").read_text(encoding="utf-8")
    assert re.findall(r"^\tk8s\.io/kubernetes (\S+)$", text, re.MULTILINE) == [f"v{version}"]
    parts = set(re.findall(r"^\tk8s\.io/\S+ => k8s\.io/\S+ (\S+)$", text, re.MULTILINE))
    assert parts == {f"v0.{version.partition('.')[2]}"}


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
