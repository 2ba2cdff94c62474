"""Writes the files generated from `schemas/`: `python -m schemas.generate`. With `--check` it only
reports stale ones.

Custom resource definitions (charts/slurm-operator-crds/templates), the comments in each chart's
values.yaml, the rules and descriptions of each chart's values, the annotations and README.md of
each chart, the dashboards of charts/slurm-exporter and their pictures in docs/images, the Python
records of the custom resources, their rules for the chart `slurm` and the post-renderer, the fields
that the chart `slurm` passes to them, the schema of the post-renderer's configuration in its
package, what charts contain of others, and the reference pages and the list of images in
docs/reference. The pages of conditions and of metrics come from the tables in `sidecars`. The
animation of the README comes from a recording of a real cluster.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from schemas import (
    cel_rules,
    chart_copies,
    chart_package,
    chart_values,
    conditions,
    dashboard_pictures,
    dashboards,
    definitions,
    image_list,
    metrics,
    records,
    resource_fields,
    sources,
    support,
    terminal_picture,
)

ROOT = Path(__file__).parent.parent
CRD_CHART = Path("charts/slurm-operator-crds")
CRD_TEMPLATES = CRD_CHART / "templates"
EXPORTER_CHART = Path("charts/slurm-exporter")
PAGES = Path("docs/reference")
PICTURES = Path("docs/images")
POSTRENDER_SCHEMA = Path("postrender/schema.json")
POSTRENDER_RULES = Path("postrender/rules.json")
POSTRENDER_CHANGES = Path("postrender/changes.json")
CHART_RULES = Path("charts/slurm/templates/_rules.tpl")
RECORDS = Path("sidecars/workloads/resources/specs.py")
CHART_FIELDS = Path("charts/slurm/templates/_fields.tpl")


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the command, and return its exit status. 0: all files are up to date."""
    parser = argparse.ArgumentParser(
        prog="python -m schemas.generate", description="Write the generated files."
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; fail and name the files that would change",
    )
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
    """Return the content of each generated file, by its path from `root`, which contains the
    charts.
    """
    files = {
        CRD_TEMPLATES / f"{definition['spec']['names']['plural']}.yaml": crd_template(definition)
        for definition in definitions.custom_resource_definitions()
    }
    files[PAGES / "crds.md"] = definitions.page()
    files[PAGES / "conditions.md"] = conditions.page()
    files[PAGES / "metrics.md"] = metrics.page()
    files[Path("docs/support-matrix.md")] = support.page()
    files[POSTRENDER_SCHEMA] = postrender_schema()
    files[POSTRENDER_RULES] = cel_rules.json_text()
    files[POSTRENDER_CHANGES] = cel_rules.json_text(cel_rules.changes)
    files[RECORDS] = records.text()
    files[CHART_RULES] = cel_rules.template_text()
    files[CHART_FIELDS] = resource_fields.template_text()
    files[PAGES / "images.txt"] = image_list.text(root)
    for chart in chart_values.charts():
        folder = Path("charts") / chart
        files[folder / "values.yaml"] = chart_values.values_text(chart, root / folder)
        files[folder / "values.schema.json"] = chart_values.description_text(chart)
        files[folder / "values-rules.json"] = chart_values.rules_text(chart, root / folder)
        files[folder / "Chart.yaml"] = chart_package.chart_yaml(root / folder)
        files[folder / "README.md"] = chart_package.readme(root / folder)
        files[PAGES / f"values-{chart}.md"] = chart_values.page(chart, root / "charts" / chart)
    for name in dashboards.DASHBOARDS:
        files[EXPORTER_CHART / "dashboards" / f"{name}.json"] = dashboards.text(name)
        files[PICTURES / f"dashboard-{name}.svg"] = dashboard_pictures.picture(
            name, dashboards.DASHBOARDS[name]
        )
    files[PICTURES / "demo.svg"] = terminal_picture.svg(terminal_picture.read())
    return files | chart_copies.copies(root, files)


def postrender_schema() -> str:
    """Return the JSON schema of the post-renderer's configuration."""
    text = (ROOT / "schemas" / "postrender.schema.yaml").read_text(encoding="utf-8")
    return json.dumps(yaml.safe_load(text), indent=1) + "\n"


def stale_files(root: Path, files: dict[Path, str]) -> list[Path]:
    """Files that differ from `files` or are missing, and definitions, dashboards and copies that it
    doesn't have.
    """
    differing = [path for path, text in files.items() if not _has(root / path, text)]
    present = {path.relative_to(root) for path in (root / CRD_TEMPLATES).glob("*.yaml")}
    present |= {
        path.relative_to(root) for path in (root / EXPORTER_CHART / "dashboards").glob("*.json")
    }
    present |= chart_copies.present(root)
    return differing + sorted(present - files.keys())


def _has(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def crd_template(definition: dict[str, Any]) -> str:
    """Return a definition as a template of its chart. The template adds labels and annotations."""
    name = definition["metadata"]["name"]
    kind = definition["spec"]["names"]["kind"]
    spec = yaml.dump(
        {"spec": definition["spec"]}, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True
    )
    if "{{" in spec:
        raise sources.SchemaError(
            f"the definition of {kind} contains '{{{{', which Helm would read as a template"
        )
    return (
        f"# Generated from schemas/crds/{kind.lower()}.yaml by `make generate`. Edit that file "
        "instead.\n"
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
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    )


_Dumper.add_representer(str, _string)


if __name__ == "__main__":
    sys.exit(main())
