"""The packages of the charts, as users get them: the folder in the repository, and the changes of the release."""

import shutil
import tempfile
from pathlib import Path

import yaml

from release import changelog, versions
from schemas import chart_package
from tests.cluster.commands import run
from tests.cluster.tools import tool

CHANGES = "artifacthub.io/changes"
SECURITY = "artifacthub.io/containsSecurityUpdates"


def package_all(root: Path, target: Path) -> list[Path]:
    """Write CHART-VERSION.tgz of each chart into the folder `target`, in the order of their installation."""
    version = versions.version(root)
    section = changelog.section((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    target.mkdir(parents=True, exist_ok=True)
    found = []
    for chart in chart_package.RELEASES:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / chart
            # Links are followed, because a package has none.
            shutil.copytree(root / "charts" / chart, copy)
            _add_changes(copy / "Chart.yaml", section)
            run([tool("helm"), "package", copy, f"--destination={target}"])
        found.append(target / f"{chart}-{version}.tgz")
    return found


def _add_changes(path: Path, section: changelog.Section) -> None:
    metadata = yaml.safe_load(path.read_text(encoding="utf-8"))
    changes = section.changes()
    metadata.setdefault("annotations", {})[CHANGES] = chart_package.dump(changes)
    if any(change["kind"] == "security" for change in changes):
        metadata["annotations"][SECURITY] = "true"
    path.write_text(chart_package.dump(metadata), encoding="utf-8")
