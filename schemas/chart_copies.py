"""What a chart contains of another: subcharts, and the templates that all charts share.

They are copies. Links would be fewer lines, but Flux, archives and Windows drop them, and Helm
warns of each.
"""

from collections.abc import Mapping
from pathlib import Path

from schemas import chart_values

CHARTS = Path("charts")
SHARED = CHARTS / "shared"
NOT_PACKAGED = frozenset({"ci", "tests"})
"""Folders of a chart that only its own checks use."""

COPIES: Mapping[Path, Path] = {
    **{CHARTS / chart / "templates" / "shared": SHARED for chart in chart_values.charts()},
    CHARTS / "slurm/charts/slurm-exporter": CHARTS / "slurm-exporter",
    CHARTS / "slurm-operator/charts/slurm-operator-crds": CHARTS / "slurm-operator-crds",
}
"""The folder that each copy is of. A copy that contains another comes after it."""


def copies(root: Path, files: Mapping[Path, str]) -> dict[Path, str]:
    """Return the content of each copied file by its path from `root`. `files`, with such paths too,
    is what is generated there, whatever is on the disk.
    """
    found = dict(files)
    for copy, original in COPIES.items():
        written = {path: text for path, text in found.items() if path.is_relative_to(original)}
        by_hand = {
            path: (root / path).read_text(encoding="utf-8")
            for path in _files(root, original) - written.keys()
            if not any(path.is_relative_to(other) for other in COPIES)
        }
        found |= {
            copy / path.relative_to(original): text
            for path, text in (written | by_hand).items()
            if path.relative_to(original).parts[0] not in NOT_PACKAGED
        }
    return {path: text for path, text in found.items() if path not in files}


def present(root: Path) -> set[Path]:
    """Return the paths from `root` of the files that the copies have."""
    return {path for copy in COPIES for path in _files(root, copy)}


def _files(root: Path, folder: Path) -> set[Path]:
    return {path.relative_to(root) for path in (root / folder).rglob("*") if path.is_file()}
