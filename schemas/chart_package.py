"""What a chart's package contains beside templates and values: annotations for Artifact Hub,
README.md and LICENSE.

The annotations are the last part of Chart.yaml, below the line `annotations:`. All lines above it
are written by hand. The changes of a release are no part of them: they change with every line of
the changelog, and are added to the package only (release/packages.py).

Annotations: https://artifacthub.io/docs/topics/annotations/helm/
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from schemas import chart_values, definitions, image_list, markdown, resource_fields, sources
from sidecars.contract.project import REGISTRY, published

ROOT = Path(__file__).parent.parent
README = Path(__file__).parent / "readme"
EXAMPLES = resource_fields.SOURCE / "examples.yaml"
CHARTS = f"oci://{REGISTRY}/charts"
LICENSE = "Apache-2.0"
RELEASES = {
    "slurm-operator-crds": "slinky",
    "slurm-operator": "slinky",
    "slurm": "slurm",
    "slurm-exporter": "slurm",
    "slurm-bridge": "slurm",
}
"""The charts in the order of their installation, and the namespace of their releases."""

_UNRELEASED = (
    "No version is released yet. In a checkout of the repository, [one command]"
    "({docs}/local.md#on-your-own-cluster-with-your-registry) builds the images, pushes them to "
    "a registry of yours, and installs the charts. These commands do the last step, also in a "
    "checkout."
)
_SIGNED = (
    "The charts and images are signed: [verify them]({docs}/images.md#verify-signatures) before "
    "you install them."
)
_PLACE = "global.imageRepository=registry.example.com/team"
_GENERATED = "# Generated from schemas/ by `make generate`: all lines below.\n"
_DEFINITIONS = "slurm-operator-crds"
_OPERATOR = "slurm-operator"
_OPTIONAL = ("slurm-exporter", "slurm-bridge")
_PREVIEWS = frozenset({"slurm-bridge"})
"""Charts that docs/ calls a preview."""
_CATEGORIES = {"slurm-exporter": "monitoring-logging"}
"""Of Artifact Hub, where they differ from that of Slurm."""


def chart_yaml(folder: Path) -> str:
    """Return the chart's Chart.yaml: the part that is written by hand, and the annotations."""
    text = (folder / "Chart.yaml").read_text(encoding="utf-8")
    head = text.partition(_GENERATED)[0]
    metadata = yaml.safe_load(head)
    if "annotations" in metadata:
        raise sources.SchemaError(
            f"charts/{folder.name}/Chart.yaml: annotations are generated: remove them"
        )
    return head + _GENERATED + dump({"annotations": annotations(metadata, folder)})


def annotations(metadata: dict[str, Any], folder: Path) -> dict[str, str]:
    """Return the annotations for Artifact Hub. `metadata` is the part of Chart.yaml that is written
    by hand.
    """
    home, version = metadata["home"], str(metadata["version"])
    links = [
        {"name": "Documentation", "url": f"{home}#documentation"},
        {"name": "Values", "url": f"{home}/blob/main/docs/reference/values-{folder.name}.md"},
        {"name": "Support", "url": f"{home}/issues"},
    ]
    found = {
        "artifacthub.io/license": LICENSE,
        "artifacthub.io/links": dump(links),
        "artifacthub.io/category": _CATEGORIES.get(folder.name, "ai-machine-learning"),
        "artifacthub.io/prerelease": str("-" in version or folder.name in _PREVIEWS).lower(),
    }
    if images := image_list.of_chart(folder):
        found["artifacthub.io/images"] = dump(
            [{"name": name, "image": image} for name, image in images.items()]
        )
    if folder.name == _OPERATOR:
        found["artifacthub.io/operator"] = "true"
    if folder.name == _DEFINITIONS:
        found["artifacthub.io/crds"] = dump(
            [_crd(each) for each in definitions.custom_resource_definitions()]
        )
        found["artifacthub.io/crdsExamples"] = dump(examples())
    return dict(sorted(found.items()))


def examples() -> list[dict[str, Any]]:
    """Return one custom resource of each kind."""
    return list(yaml.safe_load_all(EXAMPLES.read_text(encoding="utf-8")))


def _crd(definition: dict[str, Any]) -> dict[str, str]:
    [version] = definition["spec"]["versions"]
    kind = definition["spec"]["names"]["kind"]
    return {
        "kind": kind,
        "version": version["name"],
        "name": definition["metadata"]["name"],
        "displayName": kind,
        "description": " ".join(version["schema"]["openAPIV3Schema"]["description"].split()),
    }


def readme(folder: Path) -> str:
    """Return the chart's README.md: how to install it from its registry, what it needs, and its
    main values.
    """
    chart = folder.name
    metadata = yaml.safe_load((folder / "Chart.yaml").read_text(encoding="utf-8"))
    # In the tree the repository has no address yet. In a package, links are absolute.
    root = f"{metadata['home']}/blob/main" if published() else "../.."
    docs = f"{root}/docs"
    about = (README / f"{chart}.md").read_text(encoding="utf-8").strip().replace("DOCS", docs)
    kubernetes = re.sub(r"^>= *(\d+\.\d+).*$", r"\1", metadata["kubeVersion"])
    needs = [f"- Kubernetes {kubernetes} or newer", "- Helm 3.8 or newer, or Helm 4"]
    if chart == "slurm":
        needs.append(
            f"- Slurm {metadata['appVersion']} in the default images, or 25.11 or newer "
            f"([Support matrix]({docs}/support-matrix.md))"
        )
    links = {
        "Documentation": f"{root}/README.md#documentation",
        "Upgrades": f"{docs}/upgrades.md",
        "Security": f"{docs}/security.md",
        "Changelog": f"{root}/CHANGELOG.md",
    }
    parts = [
        f"# {chart}",
        f"{metadata['description']}.",
        about,
        "## Requirements",
        "\n".join(needs),
        "## Install",
        *([] if published() else [_UNRELEASED.format(docs=docs)]),
        "Install the charts in this order:",
        f"```console\n{install_commands(str(metadata['version']), chart)}\n```",
        *([_SIGNED.format(docs=docs)] if published() else []),
        "## Values",
        (
            f"The main values. [All values]({docs}/reference/values-{chart}.md). Unknown keys are "
            "refused."
        ),
        values_table(chart, folder),
        "## More",
        " · ".join([*(f"[{name}]({url})" for name, url in links.items()), LICENSE]),
    ]
    return markdown.page(
        f"charts/{chart}/Chart.yaml, schemas/values/{chart}.yaml and schemas/readme/{chart}.md",
        parts,
    )


def install_commands(version: str, optional: str = "") -> str:
    """Return the commands that install all charts: a version from their registry, or those of a
    checkout without a release. Of the charts that a cluster doesn't need, only the `optional` one
    is installed.
    """
    commands = []
    created: set[str] = set()
    for chart, namespace in RELEASES.items():
        if chart in _OPTIONAL and chart != optional:
            continue
        create = "" if namespace in created else " --create-namespace"
        created.add(namespace)
        file = {"slurm": "values.yaml", "slurm-bridge": "bridge-values.yaml"}.get(chart)
        values = f" --values {file}" if file else ""
        source = f"{CHARTS}/{chart} --version {version}" if published() else f"charts/{chart}"
        place = "" if published() or chart == _DEFINITIONS else f" --set {_PLACE}"
        commands.append(
            f"helm install {chart} {source} --namespace {namespace}{create}{values}{place}"
        )
    return "\n".join(commands)


def values_table(chart: str, folder: Path) -> str:
    """Return a table of the main values: the keys at the top, and those of `operator`."""
    defaults = yaml.safe_load((folder / "values.yaml").read_text(encoding="utf-8")) or {}
    rows = _rows(chart_values.load(chart), defaults, "")
    return "\n".join(["| Value | Default | Meaning |", "|---|---|---|", *rows])


def _rows(schema: sources.Schema, defaults: Any, path: str) -> Iterator[str]:
    for name, child in schema["properties"].items():
        default = defaults.get(name) if isinstance(defaults, dict) else None
        text = child.get("description", "")
        if name == "operator":
            yield from _rows(child, default, f"{path}{name}.")
        elif not text.startswith("Accepted for compatibility"):
            yield f"| `{path}{name}` | {_default(default)} | {first_sentence(text)} |"


def _default(value: Any) -> str:
    if value is None or isinstance(value, dict):
        return ""
    return markdown.code(value)


def first_sentence(text: str) -> str:
    """Return the first sentence of a description, on one line and fit for a table."""
    line = " ".join(text.split()).replace("|", "\\|")
    return re.sub(r"(?<=[^.]\.) [A-Z`].*$", "", line)


def dump(value: Any) -> str:
    """YAML with texts of several lines as blocks."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block, no aliases, and lists indented."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless=False)


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    )


_Dumper.add_representer(str, _string)
