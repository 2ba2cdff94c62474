"""What the packages of the charts contain for Artifact Hub and for people: annotations, README, LICENSE, icon."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas import chart_package, chart_values, definitions, image_list, sources
from tests.charts import objects

ROOT = Path(__file__).parents[3]
CHARTS = chart_values.charts()
BLOB = "https://github.com/slurm-charts/slurm-charts/blob/main/"


def metadata(chart: str) -> dict[str, Any]:
    """The Chart.yaml of a chart."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "charts" / chart / "Chart.yaml").read_text(encoding="utf-8"))
    return found


def annotation(chart: str, name: str) -> Any:
    """An annotation of Artifact Hub, read as it reads it."""
    return yaml.safe_load(metadata(chart)["annotations"][f"artifacthub.io/{name}"])


@pytest.mark.parametrize("chart", CHARTS)
def test_every_annotation_is_a_text(chart: str) -> None:
    assert {type(text) for text in metadata(chart)["annotations"].values()} == {str}


@pytest.mark.parametrize("chart", [chart for chart in CHARTS if chart != "slurm-operator-crds"])
def test_the_annotations_list_all_images_once(chart: str) -> None:
    images = set(image_list.of_chart(ROOT / "charts" / chart).values())
    listed = [item["image"] for item in annotation(chart, "images")]
    assert images == set(listed)
    assert len(listed) == len(images)


def test_the_annotations_list_every_definition_with_an_example_of_its_kind() -> None:
    listed = {item["name"]: item["kind"] for item in annotation("slurm-operator-crds", "crds")}
    assert listed == {
        crd["metadata"]["name"]: crd["spec"]["names"]["kind"] for crd in definitions.custom_resource_definitions()
    }
    assert [item["kind"] for item in annotation("slurm-operator-crds", "crdsExamples")] == list(definitions.KINDS)


@pytest.mark.parametrize("example", chart_package.examples(), ids=lambda example: str(example["kind"]))
def test_an_example_is_valid(example: dict[str, Any]) -> None:
    assert objects.problems(example, "1.35.0") == []


def test_the_examples_refer_to_each_other() -> None:
    names = {(example["kind"], example["metadata"]["name"]) for example in chart_package.examples()}
    for example in chart_package.examples():
        for field, kind in (("controllerRef", "Controller"), ("accountingRef", "Accounting")):
            if field in example["spec"]:
                assert (kind, example["spec"][field]["name"]) in names


@pytest.mark.parametrize(("version", "expected"), [("1.2.3", "false"), ("1.2.3-rc.1", "true")])
def test_a_version_with_a_suffix_is_a_prerelease(version: str, expected: str) -> None:
    folder = ROOT / "charts" / "slurm"
    found = chart_package.annotations(metadata("slurm") | {"version": version}, folder)
    assert found["artifacthub.io/prerelease"] == expected


def test_annotations_that_are_written_by_hand_are_refused(tmp_path: Path) -> None:
    (tmp_path / "Chart.yaml").write_text("name: a\nannotations: {a: b}\n")
    with pytest.raises(sources.SchemaError, match="annotations are generated: remove them"):
        chart_package.chart_yaml(tmp_path)


@pytest.mark.parametrize("chart", CHARTS)
def test_the_icon_and_the_links_lead_to_files_of_the_repository(chart: str) -> None:
    raw = "https://raw.githubusercontent.com/slurm-charts/slurm-charts/main/"
    readme = (ROOT / "charts" / chart / "README.md").read_text(encoding="utf-8")
    links = [link["url"] for link in annotation(chart, "links")] + re.findall(r"\]\((\S+?)\)", readme)
    files = [link.removeprefix(BLOB).partition("#")[0] for link in links if link.startswith(BLOB)]
    assert files
    assert metadata(chart)["icon"].startswith(raw)
    missing = [file for file in [*files, metadata(chart)["icon"].removeprefix(raw)] if not (ROOT / file).is_file()]
    assert missing == []


def test_the_icon_is_an_image() -> None:
    icon = ROOT / ".github" / "icon.svg"
    assert ET.parse(icon).getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - our own file


@pytest.mark.parametrize("chart", CHARTS)
def test_the_readme_has_the_commands_that_install_all_charts_in_their_order(chart: str) -> None:
    readme = (ROOT / "charts" / chart / "README.md").read_text(encoding="utf-8")
    version = metadata(chart)["version"]
    commands = re.findall(r"^helm install (\S+) oci://\S+/charts/(\S+) --version (\S+)", readme, re.MULTILINE)
    optional = [chart] if chart in ("slurm-exporter", "slurm-bridge") else []
    assert commands == [(name, name, version) for name in ["slurm-operator-crds", "slurm-operator", "slurm", *optional]]


@pytest.mark.parametrize("chart", CHARTS)
def test_the_readme_explains_every_value_at_the_top(chart: str) -> None:
    readme = (ROOT / "charts" / chart / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`.]+)(?:\.[^`]+)?` \| .* \| (.*) \|$", readme, re.MULTILINE)
    assert [name for name, meaning in rows if not meaning] == []
    without_effect = {"webhook", "certManager", "scheduler"}
    assert {name for name, _ in rows} == chart_values.load(chart)["properties"].keys() - without_effect


@pytest.mark.parametrize("chart", CHARTS)
def test_the_package_has_the_license_and_the_readme(chart: str) -> None:
    folder = ROOT / "charts" / chart
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    ignored = (folder / ".helmignore").read_text(encoding="utf-8").split()
    assert not {"LICENSE", "README.md", "*.md"} & set(ignored)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One.", "One."),
        ("One. Two.", "One."),
        ("One, e.g. this.\nTwo `a`.", "One, e.g. this."),
        ("Number: `a`. `null` (default): none.", "Number: `a`."),
        ("A or B: `a|b`", "A or B: `a\\|b`"),
        ("Slurm 26.05 and newer. More.", "Slurm 26.05 and newer."),
    ],
)
def test_the_first_sentence_of_a_description_fits_a_table(text: str, expected: str) -> None:
    assert chart_package.first_sentence(text) == expected
