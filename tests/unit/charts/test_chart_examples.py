"""The example values of the chart slurm: each has its head, and the page on them lists each."""

import re
from pathlib import Path

import pytest
import yaml

from tests.charts import chart_testing

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "slurm"
FILES = sorted((CHART / "examples").glob("*.yaml"))
CLUSTERS = [
    path for path in FILES if "nodesets" in yaml.safe_load(path.read_text(encoding="utf-8"))
]
"""Those of a whole cluster. The others change one thing."""
HEAD = ["For", "Before", "Install", "Change", "Check", "Tested"]
PAGE = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")


def test_the_examples_are_those_that_are_promised() -> None:
    names = {"minimal", "gpu", "on-prem", "gke", "eks", "ldap", "autoscaling", "production"}
    assert {path.stem for path in CLUSTERS} == names


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_the_head_of_an_example_describes_its_use(path: Path) -> None:
    head, _, _ = path.read_text(encoding="utf-8").partition("\n\n")
    assert all(line.startswith("#") for line in head.splitlines())
    assert re.findall(rf"^# ({'|'.join(HEAD)})\b", head, re.MULTILINE) == HEAD
    file = path.relative_to(ROOT)
    command = f"helm upgrade --install slurm charts/slurm -n slurm --create-namespace -f {file}"
    assert f"# Install: {command}\n" in head


def test_the_page_lists_clusters_and_other_files_apart() -> None:
    tables = [
        re.findall(r"^\| \[(\S+)\]\(\.\./(\S+)\)", part, re.MULTILINE)
        for part in PAGE.split("\n\n")
    ]
    clusters, others = filter(None, tables)
    assert sorted(clusters) == [(it.stem, str(it.relative_to(ROOT))) for it in CLUSTERS]
    assert sorted(others) == [
        (it.stem, str(it.relative_to(ROOT))) for it in FILES if it not in CLUSTERS
    ]


def test_chart_testing_renders_each_example_beside_the_values_of_the_chart() -> None:
    files = chart_testing.values_files(CHART)
    assert set(files) == {*FILES, *(CHART / "ci").iterdir()}
    assert len({path.stem.removesuffix("-values") for path in files}) == len(files), (
        "they get the same folder"
    )
