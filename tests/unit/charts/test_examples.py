"""That the YAML of the documentation is found, and that each block shows what it is."""

import itertools
import subprocess
from pathlib import Path

import pytest

from tests.charts import __main__ as charts_of_all
from tests.charts import examples
from tests.charts.__main__ import ROOT

VALUES = '```yaml title="values.yaml"\nnodesets: {cpu: {}}\n```\n'
RELEASE = """```yaml
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: slurm}
spec:
  chartRef: {kind: OCIRepository, name: slurm}
  values: {nodesets: {cpu: {}}}
```
"""
APPLICATION = """```yaml
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: slurm}
spec:
  source:
    chart: slurm
    helm: {valuesObject: {nodesets: {cpu: {}}}}
```
"""
TEXT = APPLICATION.replace("valuesObject: {nodesets: {cpu: {}}}", 'values: "nodesets: {cpu: {}}"')
CONFIGMAP = """```yaml
apiVersion: v1
kind: ConfigMap
metadata: {name: slurm-values}
data: {values.yaml: "nodesets: {cpu: {}}"}
```
"""


@pytest.mark.parametrize(
    "text",
    [
        VALUES,
        RELEASE,
        APPLICATION,
        TEXT,
        CONFIGMAP,
        f"1. Do:\n\n   {VALUES.replace(chr(10), chr(10) + '   ')}",
    ],
)
def test_values_are_found_in_blocks_lists_and_objects_of_other_tools(text: str) -> None:
    (example,) = examples.examples("page.md", text)
    assert list(example.values()) == [("slurm", {"nodesets": {"cpu": {}}})]
    assert not examples.unmarked(example)


def test_a_block_has_its_page_and_line() -> None:
    assert [each.place for each in examples.examples("page.md", f"# A\n\n{VALUES}\n{VALUES}")] == [
        "page.md:3",
        "page.md:7",
    ]


def test_a_custom_resource_is_an_object_to_check_and_those_of_other_tools_are_not() -> None:
    token = "```yaml\napiVersion: slinky.slurm.net/v1beta1\nkind: Token\nmetadata: {name: a}\n```\n"
    found = [each.objects() for each in examples.examples("page.md", token + RELEASE)]
    assert [[each["kind"] for each in objects] for objects in found] == [["Token"], []]


def test_a_block_without_a_title_that_is_no_object_is_unmarked() -> None:
    (example,) = examples.examples("page.md", "```yaml\nnodesets: {}\n```\n")
    assert examples.unmarked(example)


EXPORTER = (
    '```yaml title="exporter-values.yaml"\n# Values of the chart '
    "slurm-exporter\nexporter: {}\n```\n"
)
NAMED = VALUES.replace("nodesets", "# Values of the chart slurm\nnodesets")


@pytest.mark.parametrize(
    ("text", "unnamed"),
    [
        (VALUES, 0),
        (EXPORTER, 0),
        (EXPORTER + NAMED, 0),
        (EXPORTER + VALUES, 1),
        (EXPORTER.replace("slurm-exporter", "slurm"), 1),
        (EXPORTER.replace("# ", "# exporter-"), 1),
        (EXPORTER + '```yaml title="preview.yaml"\nsteps: []\n```\n' + RELEASE, 0),
    ],
)
def test_values_name_their_chart_where_a_page_has_those_of_another_chart_than_slurm(
    text: str, unnamed: int
) -> None:
    assert len(examples.unnamed(examples.examples("page.md", text))) == unnamed


@pytest.mark.parametrize(
    ("text", "lost"), [(RELEASE, True), (APPLICATION, True), (TEXT, False), (CONFIGMAP, False)]
)
def test_a_null_in_a_field_of_another_tool_is_lost_and_one_in_a_text_is_not(
    text: str, lost: bool
) -> None:
    (example,) = examples.examples("page.md", text.replace("cpu: {}", "cpu: {replicas: null}"))
    assert list(examples.lost_nulls(example)) == (
        ["page.md:1: nodesets.cpu.replicas"] if lost else []
    )


def test_the_pages_of_the_charts_are_pages_too() -> None:
    assert "charts/slurm/README.md" in {
        each.place.partition(":")[0] for each in examples.of_folder(ROOT)
    }


@pytest.mark.parametrize("example", examples.of_folder(ROOT), ids=lambda example: example.place)
def test_no_null_of_the_documentation_is_lost_on_its_way_to_helm(example: examples.Example) -> None:
    assert list(examples.lost_nulls(example)) == []


@pytest.mark.parametrize("example", examples.of_folder(ROOT), ids=lambda example: example.place)
def test_each_block_of_the_documentation_shows_what_it_is(example: examples.Example) -> None:
    assert not examples.unmarked(example), 'add title="values.yaml", see tests/charts/examples.py'


def test_each_page_of_the_documentation_shows_of_which_chart_its_values_are() -> None:
    pages = itertools.groupby(
        examples.of_folder(ROOT), lambda example: example.place.partition(":")[0]
    )
    assert [place for _, found in pages for place in examples.unnamed(list(found))] == []


RENDERED = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"


@pytest.mark.parametrize(
    ("status", "rendered", "problems"),
    [
        (0, f"{RENDERED}data: {{b: c}}", []),
        (
            0,
            f"{RENDERED}dta: {{b: c}}",
            ["ConfigMap a: the object: Additional properties are not allowed"],
        ),
        (0, "", ["no object is rendered"]),
        (1, "", ["Error: no such value"]),
    ],
)
def test_what_helm_or_kubernetes_would_refuse_is_a_problem_of_the_example(
    monkeypatch: pytest.MonkeyPatch, status: int, rendered: str, problems: list[str]
) -> None:
    done = subprocess.CompletedProcess(
        [], status, rendered, "Error: no such value" if status else ""
    )
    monkeypatch.setattr(charts_of_all, "tool", Path)
    monkeypatch.setattr(charts_of_all, "run", lambda words: done)
    found = charts_of_all.example_problems("page.md:1", "slurm", {})
    assert [it.partition(" (")[0] for it in found] == [
        f"page.md:1: {problem}" for problem in problems
    ]
