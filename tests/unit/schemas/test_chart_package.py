"""What the packages of the charts contain for Artifact Hub and for people: annotations, README,
LICENSE, icon.
"""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml

from release import packages
from schemas import chart_package, chart_values, definitions, image_list, sources
from sidecars.contract.project import HOME
from tests.charts import objects

ROOT = Path(__file__).parents[3]
CHARTS = chart_values.charts()
BLOB = f"{HOME}/blob/main/"


def metadata(chart: str) -> dict[str, Any]:
    """The Chart.yaml of a chart."""
    found: dict[str, Any] = yaml.safe_load(
        (ROOT / "charts" / chart / "Chart.yaml").read_text(encoding="utf-8")
    )
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
        crd["metadata"]["name"]: crd["spec"]["names"]["kind"]
        for crd in definitions.custom_resource_definitions()
    }
    assert [item["kind"] for item in annotation("slurm-operator-crds", "crdsExamples")] == list(
        definitions.KINDS
    )


@pytest.mark.parametrize(
    "example", chart_package.examples(), ids=lambda example: str(example["kind"])
)
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


def test_a_preview_is_a_prerelease_whatever_its_version() -> None:
    """docs/bridge.md calls it a preview."""
    folder = ROOT / "charts" / "slurm-bridge"
    assert "a preview" in (ROOT / "docs" / "bridge.md").read_text(encoding="utf-8")
    found = chart_package.annotations(metadata("slurm-bridge") | {"version": "1.2.3"}, folder)
    assert found["artifacthub.io/prerelease"] == "true"


@pytest.mark.parametrize("chart", CHARTS)
def test_a_chart_has_a_category_of_artifact_hub(chart: str) -> None:
    """https://artifacthub.io/docs/topics/annotations/helm/"""
    found = chart_package.annotations(metadata(chart), ROOT / "charts" / chart)
    assert found["artifacthub.io/category"] in {"ai-machine-learning", "monitoring-logging"}


def test_annotations_that_are_written_by_hand_are_refused(tmp_path: Path) -> None:
    (tmp_path / "Chart.yaml").write_text("name: a\nannotations: {a: b}\n")
    with pytest.raises(sources.SchemaError, match="annotations are generated: remove them"):
        chart_package.chart_yaml(tmp_path)


@pytest.mark.parametrize("chart", CHARTS)
def test_the_links_of_the_readme_lead_to_files_of_the_checkout(chart: str) -> None:
    folder = ROOT / "charts" / chart
    links = re.findall(r"\]\((\S+?)\)", (folder / "README.md").read_text(encoding="utf-8"))
    assert len(links) > 3
    assert [link for link in links if not (folder / link.partition("#")[0]).is_file()] == []


@pytest.mark.parametrize("chart", CHARTS)
def test_the_icon_and_the_links_of_a_release_lead_to_files_of_the_repository(
    chart: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = f"{HOME}/raw/main/"
    monkeypatch.setattr(chart_package, "published", lambda: True)
    readme = chart_package.readme(ROOT / "charts" / chart)
    links = [link["url"] for link in annotation(chart, "links")] + re.findall(
        r"\]\((\S+?)\)", readme
    )
    files = [link.removeprefix(BLOB).partition("#")[0] for link in links if link.startswith(BLOB)]
    assert files
    assert [link for link in links if not link.startswith("https://")] == []
    assert metadata(chart)["icon"].startswith(raw)
    missing = [
        file
        for file in [*files, metadata(chart)["icon"].removeprefix(raw)]
        if not (ROOT / file).is_file()
    ]
    assert missing == []


def test_the_icon_is_an_image() -> None:
    icon = ROOT / ".github" / "icon.svg"
    assert ET.parse(icon).getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - our own file


@pytest.mark.parametrize("chart", CHARTS)
def test_the_readme_has_the_commands_that_install_all_charts_of_a_checkout_in_their_order(
    chart: str,
) -> None:
    readme = (ROOT / "charts" / chart / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^helm install (\S+) charts/(\S+) ", readme, re.MULTILINE)
    optional = [chart] if chart in ("slurm-exporter", "slurm-bridge") else []
    assert commands == [
        (name, name) for name in ["slurm-operator-crds", "slurm-operator", "slurm", *optional]
    ]
    assert "No version is released yet" in readme
    assert "signed" not in readme


@pytest.mark.parametrize("chart", CHARTS)
def test_the_readme_of_a_release_has_the_commands_that_install_this_version(
    chart: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chart_package, "published", lambda: True)
    readme = chart_package.readme(ROOT / "charts" / chart)
    version = metadata(chart)["version"]
    commands = re.findall(
        r"^helm install (\S+) oci://\S+/charts/(\S+) --version (\S+)", readme, re.MULTILINE
    )
    optional = [chart] if chart in ("slurm-exporter", "slurm-bridge") else []
    assert commands == [
        (name, name, version)
        for name in ["slurm-operator-crds", "slurm-operator", "slurm", *optional]
    ]
    assert "No version is released yet" not in readme
    assert "imageRepository" not in readme
    assert "verify-signatures" in readme


@pytest.mark.parametrize("chart", CHARTS)
def test_the_readme_explains_every_value_at_the_top(chart: str) -> None:
    readme = (ROOT / "charts" / chart / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`.]+)(?:\.[^`]+)?` \| .* \| (.*) \|$", readme, re.MULTILINE)
    assert [name for name, meaning in rows if not meaning] == []
    without_effect = {"webhook", "certManager", "scheduler"}
    assert {name for name, _ in rows} == chart_values.load(chart)[
        "properties"
    ].keys() - without_effect


@pytest.mark.parametrize("chart", CHARTS)
def test_the_package_has_the_license_and_the_readme(chart: str, tmp_path: Path) -> None:
    folder = ROOT / "charts" / chart
    copy = packages.copied(ROOT, chart, tmp_path)
    assert (copy / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (copy / "README.md").read_bytes() == (folder / "README.md").read_bytes()
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
