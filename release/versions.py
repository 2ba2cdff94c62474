"""Whether all parts of the repository have the version of the release."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from release import changelog
from schemas import chart_package
from tests.cluster import images
from tests.cluster.commands import run

_NAMED = re.compile(
    r"(?:sidecars:|charts/slurm:|--version |targetRevision: |^ +version: |ref: \{tag: "
    r"|\bslurm(?:-operator(?:-crds)?)?-)(\d+\.\d+\.\d+(?:-[\w.]*\w)?)\b"
)
"""The version of an image, a chart or a package in a guide."""


def version(root: Path) -> str:
    """Return the version of the project."""
    return str(
        tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    )


def committed(root: Path) -> int:
    """Return the time of the commit of the repository, in seconds since the epoch."""
    return int(run(["git", "log", "-1", "--format=%ct"], cwd=root))


def problems(root: Path, tag: str | None = None) -> list[str]:
    """Places with another version than the project's. A `tag` must be that of the version, which
    then needs a date.
    """
    own = version(root)
    slurm = str(_chart(root, "slurm")["appVersion"])
    found = []
    for place, given, wanted in [*_places(root, own), *_slurm_places(slurm)]:
        if given != wanted:
            found.append(
                f"{place}: the version is {given or 'missing'}, not {wanted}. Set it to {wanted}."
            )
    try:
        section = changelog.section((root / "CHANGELOG.md").read_text(encoding="utf-8"), own)
    except changelog.ChangelogError as error:
        return [*found, str(error)]
    if tag is not None and tag != f"v{own}":
        found.append(
            f"The tag {tag} is not that of pyproject.toml. Tag v{own}, or set the version to "
            f"{tag[1:]}."
        )
    if tag is not None and not section.date:
        found.append(
            f"CHANGELOG.md: {own} has no date. Replace `(unreleased)` with the date, for example "
            "(2026-01-31)."
        )
    return found


def _places(root: Path, own: str) -> list[tuple[str, str, str]]:
    found = []
    for chart in chart_package.RELEASES:
        metadata = _chart(root, chart)
        path = f"charts/{chart}/Chart.yaml"
        found.append((f"{path}: version", str(metadata["version"]), own))
        if chart != "slurm":
            found.append((f"{path}: appVersion", str(metadata["appVersion"]), own))
        found += [
            (f"{path}: dependency {dependency['name']}", str(dependency["version"]), own)
            for dependency in metadata.get("dependencies", [])
        ]
    workloads = "charts/slurm-operator/workloads/version.yaml"
    found.append((workloads, str(_yaml(root / workloads)["version"]), own))
    project = "sidecars/contract/project.py"
    match = re.search(
        r'^VERSION: Final = "(.*)"$', (root / project).read_text(encoding="utf-8"), re.MULTILINE
    )
    found.append((project, match[1] if match else "", own))
    found += [(place, given, own) for place, given in _documented(root)]
    found.append(("tests/cluster/images.py: IMAGES: sidecars", images.IMAGES["sidecars"], own))
    return found


def _documented(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each place where the guides name the version of an artifact of this project, with that
    version.
    """
    for page in sorted(root.glob("docs/*.md")):
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if "slinkyproject" not in line:
                yield from (
                    (f"{page.relative_to(root)}:{number}", given) for given in _NAMED.findall(line)
                )


def _slurm_places(slurm: str) -> list[tuple[str, str, str]]:
    daemons = [name for name in images.IMAGES if name not in {"sidecars", "mariadb"}]
    return [
        (f"tests/cluster/images.py: IMAGES: {name}", images.IMAGES[name], slurm) for name in daemons
    ]


def _chart(root: Path, chart: str) -> dict[str, Any]:
    metadata: dict[str, Any] = _yaml(root / "charts" / chart / "Chart.yaml")
    return metadata


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))
