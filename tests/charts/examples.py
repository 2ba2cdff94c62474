"""The YAML in the documentation: what its blocks are, and what is wrong with them.

A block has a title or consists of Kubernetes objects:

    ```yaml title="values.yaml"             values of the chart slurm
    ```yaml title="operator-values.yaml"    values of the chart slurm-operator
    ```yaml title="exporter-values.yaml"    values of the chart slurm-exporter
    ```yaml title="bridge-values.yaml"      values of the chart slurm-bridge
    ```yaml title="NAME"                    a file of another program

The site shows the title and the chart (docs/conf.py), GitHub neither. So on a page with values of
another chart than slurm, a block of values begins with the comment `# Values of the chart NAME`.

Values are rendered by Helm. Those within the objects of Argo CD and Flux are, too, and those in the
key values.yaml of a ConfigMap CHART-values.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support import pages

CHARTS = {
    "values.yaml": "slurm",
    "operator-values.yaml": "slurm-operator",
    "exporter-values.yaml": "slurm-exporter",
    "bridge-values.yaml": "slurm-bridge",
}
FOREIGN = ("argoproj.io", "fluxcd.io", "resource.nvidia.com", "snapshot.storage.k8s.io")
"""Groups whose kinds no schema here describes."""


@dataclass(frozen=True)
class Example:
    """One block of YAML in a page. `title` is "" without one."""

    place: str
    title: str
    text: str
    documents: tuple[Any, ...]

    def values(self) -> Iterator[tuple[str, Any]]:
        """Each chart for which this has values, with the values."""
        for document in self.documents:
            if self.title in CHARTS:
                yield CHARTS[self.title], document
            elif not self.title and _group(document):
                yield from _of_object(document)

    def objects(self) -> Iterator[Any]:
        """The Kubernetes objects that a schema of this repository describes."""
        if not self.title:
            yield from (each for each in self.documents if not _group(each).endswith(FOREIGN))


def examples(page: str, text: str) -> list[Example]:
    """All of a page, in order. Raises yaml.YAMLError for what is no YAML."""
    return [
        Example(
            f"{page}:{it.line}", it.title, it.text, tuple(yaml.load_all(it.text, yaml.CSafeLoader))
        )
        for it in pages.fenced(text, "yaml")
    ]


def of_folder(root: Path) -> list[Example]:
    """Those of the README, of all pages of the documentation, and of the charts."""
    return [it for page, text in pages.of_folder(root).items() for it in examples(page, text)]


def unmarked(example: Example) -> bool:
    """Whether nothing shows what a block is."""
    return not example.title and not all(_group(document) for document in example.documents)


def unnamed(found: list[Example]) -> list[str]:
    """Places of values whose chart the reader of a page on GitHub can't see. `found`: all blocks of
    the page.
    """
    values = [(example, CHARTS[example.title]) for example in found if example.title in CHARTS]
    several = any(chart != "slurm" for _, chart in values)
    return [
        f"{example.place}: begin with the line `# Values of the chart {chart}`"
        for example, chart in values
        if several and not example.text.startswith(f"# Values of the chart {chart}\n")
    ]


def lost_nulls(example: Example) -> Iterator[str]:
    """Places of values that are null in fields of Argo CD's and Flux's objects.

    Kustomize and the API server omit them, so that Helm never gets them. In a text they stay.
    """
    for document in () if example.title else example.documents:
        spec = document.get("spec", {})
        for values in (
            spec.get("values"),
            spec.get("source", {}).get("helm", {}).get("valuesObject"),
        ):
            for path in _nulls(values) if isinstance(values, dict) else ():
                yield f"{example.place}: {path}"


def _nulls(value: Any) -> Iterator[str]:
    for key, each in value.items():
        if each is None:
            yield key
        elif isinstance(each, dict):
            yield from (f"{key}.{path}" for path in _nulls(each))


def _of_object(document: Any) -> Iterator[tuple[str, Any]]:
    spec = document.get("spec", {})
    if document["kind"] == "Application":
        helm = spec["source"]["helm"]
        yield (
            spec["source"]["chart"],
            helm["valuesObject"] if "valuesObject" in helm else yaml.safe_load(helm["values"]),
        )
    elif document["kind"] == "HelmRelease":
        yield spec["chartRef"]["name"], spec.get("values", {})
    elif document["kind"] == "ConfigMap" and "values.yaml" in document.get("data", {}):
        yield (
            document["metadata"]["name"].removesuffix("-values"),
            yaml.safe_load(document["data"]["values.yaml"]),
        )


def _group(document: Any) -> str:
    """`v1` for the core group, and "" for what is no Kubernetes object."""
    known = (
        isinstance(document, dict)
        and "kind" in document
        and isinstance(document.get("apiVersion"), str)
    )
    return str(document["apiVersion"].split("/")[0]) if known else ""
