"""Writes the files generated from `schemas/`: `python -m schemas.generate`. With `--check` it only reports stale ones.

Custom resource definitions (charts/slurm-operator-crds/templates), the comments in each chart's values.yaml, the rules
and descriptions of each chart's values with the template that checks them, the template for `global`, the annotations,
README.md and LICENSE of each chart, the dashboards of charts/slurm-exporter and their pictures in docs/images, the
copies of charts that are subcharts of others (Helm warns of a symbolic link), the rules of the custom resources for the
chart `slurm` and the post-renderer, the schema of the post-renderer's configuration in its package, and the reference
pages and the list of images in docs/reference.
The pages of conditions and of metrics come from the tables in `sidecars`.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from schemas import (
    cel_rules,
    chart_package,
    chart_values,
    conditions,
    dashboard_pictures,
    dashboards,
    definitions,
    image_list,
    metrics,
    sources,
)

ROOT = Path(__file__).parent.parent
CRD_CHART = Path("charts/slurm-operator-crds")
CRD_TEMPLATES = CRD_CHART / "templates"
EXPORTER_CHART = Path("charts/slurm-exporter")
SUBCHART = Path("charts/slurm-operator/charts/slurm-operator-crds")
SUBCHARTS = {SUBCHART: CRD_CHART, Path("charts/slurm/charts/slurm-exporter"): EXPORTER_CHART}
"""The copies of charts in other charts, each with the chart that it is a copy of."""
NOT_PACKAGED = frozenset({"ci", "tests", ".DS_Store"})
PAGES = Path("docs/reference")
PICTURES = Path("docs/images")
POSTRENDER_SCHEMA = Path("postrender/schema.json")
POSTRENDER_RULES = Path("postrender/rules.json")
CHART_RULES = Path("charts/slurm/templates/_rules.tpl")


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """The command; 0: all files are up to date."""
    parser = argparse.ArgumentParser(prog="python -m schemas.generate", description="Write the generated files.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail and name the files that would change")
    options = parser.parse_args(arguments)
    try:
        files = generated(root)
    except sources.SchemaError as error:
        print(f"schemas: {error}", file=sys.stderr)
        return 1
    stale = stale_files(root, files)
    if options.check:
        for path in stale:
            print(f"{path}: out of date; run `make generate`", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        if path in files:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(files[path], encoding="utf-8")
        else:
            (root / path).unlink()
        print(path)
    return 0


def generated(root: Path) -> dict[Path, str]:
    """The content of each generated file, by its path from `root`, which contains the charts."""
    files = originals(root)
    for copy, original in SUBCHARTS.items():
        files |= subchart(root, files, original, copy)
    return files


def originals(root: Path) -> dict[Path, str]:
    """All of them but the copies of charts in other charts."""
    files = {
        CRD_TEMPLATES / f"{definition['spec']['names']['plural']}.yaml": crd_template(definition)
        for definition in definitions.custom_resource_definitions()
    }
    files[PAGES / "crds.md"] = definitions.page()
    files[PAGES / "conditions.md"] = conditions.page()
    files[PAGES / "metrics.md"] = metrics.page()
    files[POSTRENDER_SCHEMA] = postrender_schema()
    files[POSTRENDER_RULES] = cel_rules.json_text()
    files[CHART_RULES] = cel_rules.template_text()
    files[PAGES / "images.txt"] = image_list.text(root)
    for chart in chart_values.charts():
        folder = Path("charts") / chart
        files[folder / "values.yaml"] = chart_values.values_text(chart, root / folder)
        files[folder / "values.schema.json"] = chart_values.description_text(chart)
        files[folder / "values-rules.json"] = chart_values.rules_text(chart)
        files[folder / "templates" / "_check.tpl"] = chart_values.check_text(chart)
        files[folder / "Chart.yaml"] = chart_package.chart_yaml(root / folder)
        files[folder / "README.md"] = chart_package.readme(root / folder)
        files[folder / "LICENSE"] = (ROOT / "LICENSE").read_text(encoding="utf-8")
        if (text := chart_values.global_text(chart)) is not None:
            files[folder / "templates" / "_global.tpl"] = text
        files[PAGES / f"values-{chart}.md"] = chart_values.page(chart, root / "charts" / chart)
    for name in dashboards.DASHBOARDS:
        files[EXPORTER_CHART / "dashboards" / f"{name}.json"] = dashboards.text(name)
        files[PICTURES / f"dashboard-{name}.svg"] = dashboard_pictures.picture(name, dashboards.DASHBOARDS[name])
    return files


def postrender_schema() -> str:
    """The JSON schema of the post-renderer's configuration."""
    text = (ROOT / "schemas" / "postrender.schema.yaml").read_text(encoding="utf-8")
    return json.dumps(yaml.safe_load(text), indent=1) + "\n"


def subchart(root: Path, files: dict[Path, str], chart: Path, copy: Path) -> dict[Path, str]:
    """The files of `copy`, a copy of `chart`: those that `files` has of the chart, and its other files."""
    found = {path: text for path, text in files.items() if path.is_relative_to(chart)}
    for path in sorted((root / chart).rglob("*")):
        own = path.relative_to(root)
        if path.is_file() and not _generated_once(own) and own.relative_to(chart).parts[0] not in NOT_PACKAGED:
            found.setdefault(own, path.read_text(encoding="utf-8"))
    return {copy / path.relative_to(chart): text for path, text in found.items()}


def _generated_once(path: Path) -> bool:
    """Whether a file is in a folder that has generated files only: one that isn't generated is stale."""
    crd = path.parent == CRD_TEMPLATES and path.suffix == ".yaml"
    return crd or path.parent == EXPORTER_CHART / "dashboards"


def stale_files(root: Path, files: dict[Path, str]) -> list[Path]:
    """Files that differ from `files` or are missing, and definitions and files of the subchart that it doesn't have."""
    differing = [path for path, text in files.items() if not _has(root / path, text)]
    present = {path.relative_to(root) for path in (root / CRD_TEMPLATES).glob("*.yaml")}
    present |= {path.relative_to(root) for path in (root / EXPORTER_CHART / "dashboards").glob("*.json")}
    for copy in SUBCHARTS:
        present |= {path.relative_to(root) for path in (root / copy).rglob("*") if path.is_file()}
    return differing + sorted(present - files.keys())


def _has(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def crd_template(definition: dict[str, Any]) -> str:
    """A definition as a template of its chart. The template adds labels and annotations."""
    name = definition["metadata"]["name"]
    kind = definition["spec"]["names"]["kind"]
    spec = yaml.dump({"spec": definition["spec"]}, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    if "{{" in spec:
        raise sources.SchemaError(f"the definition of {kind} contains '{{{{', which Helm would read as a template")
    return (
        f"# Generated from schemas/crds/{kind.lower()}.yaml by `make generate`. Edit that file instead.\n"
        "apiVersion: apiextensions.k8s.io/v1\n"
        "kind: CustomResourceDefinition\n"
        "metadata:\n"
        f"  name: {name}\n"
        '  {{- include "slurm-operator-crds.metadata" . | nindent 2 }}\n'
        f"{spec}"
    )


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _string)


if __name__ == "__main__":
    sys.exit(main())
