"""The images of a release."""

from pathlib import Path

import pytest

from schemas import image_list

ROOT = Path(__file__).parents[3]


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    folder = tmp_path / "charts" / "a"
    (folder / "templates" / "gpus").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("name: a\nversion: 1.2.3\n")
    (folder / "values.yaml").write_text(
        """
one: {image: {repository: registry.example/team/one, tag: "", digest: ""}}
two:
  deeper: {image: "registry.example/two:26.05"}
again: {image: "registry.example/two:26.05"}
off: {image: null}
"""
    )
    (folder / "templates" / "gpus" / "daemon.yaml").write_text(
        "      image: registry.example/gpus/daemon:v1.0\n      image: {{ .Values.one.image }}\n"
    )
    return folder


def test_the_list_has_the_images_of_the_values_and_those_that_templates_name(chart: Path) -> None:
    assert image_list.of_chart(chart) == {
        "one": "registry.example/team/one:1.2.3",
        "two": "registry.example/two:26.05",
        "daemon": "registry.example/gpus/daemon:v1.0",
    }


def test_the_list_of_a_release_has_each_image_once(chart: Path) -> None:
    other = chart.parent / "b"
    other.mkdir()
    (other / "Chart.yaml").write_text("name: b\nversion: 1.2.3\n")
    (other / "values.yaml").write_text('image: "registry.example/two:26.05"\n')
    assert image_list.text(chart.parents[1]).splitlines() == [
        "registry.example/gpus/daemon:v1.0",
        "registry.example/team/one:1.2.3",
        "registry.example/two:26.05",
    ]


def test_the_list_of_this_release_has_the_operator_and_slurm_and_what_options_need() -> None:
    lines = image_list.text(ROOT).splitlines()
    names = {line.rpartition(":")[0].rpartition("/")[2] for line in lines}
    daemons = {"slurmctld", "slurmd", "slurmdbd", "slurmrestd", "login"}
    assert names == daemons | {"sidecars", "mariadb", "tcpgpudmarxd-dev"}
