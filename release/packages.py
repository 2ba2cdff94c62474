"""The packages of the charts, as users get them: the folder in the repository, the licence, and the
changes of the release.

A commit always becomes the same packages, so that a release that runs again pushes the same
digests.
"""

import gzip
import os
import shutil
import tarfile
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
    """Write CHART-VERSION.tgz of each chart into the folder `target`, in the order of their
    installation.
    """
    version, seconds = versions.version(root), versions.committed(root)
    section = changelog.section((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    target.mkdir(parents=True, exist_ok=True)
    found = []
    for chart in chart_package.RELEASES:
        with tempfile.TemporaryDirectory() as folder:
            copy = copied(root, chart, Path(folder))
            _add_changes(copy / "Chart.yaml", section)
            run([tool("helm"), "package", copy, f"--destination={target}"])
        found.append(target / f"{chart}-{version}.tgz")
        set_times(found[-1], seconds)
    return found


def copied(root: Path, chart: str, folder: Path) -> Path:
    """Copy a chart into `folder`, with the licence. Return the copy."""
    copy = folder / chart
    shutil.copytree(root / "charts" / chart, copy)
    shutil.copy(root / "LICENSE", copy)
    return copy


def set_times(package: Path, seconds: int) -> None:
    """Replace all times that `helm package` has stored, and that of the file, which `helm push`
    stores.
    """
    text = package.with_suffix(".tar")
    with (
        tarfile.open(package) as former,
        tarfile.open(text, "w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for member in former:
            member.mtime, member.pax_headers = seconds, {}
            archive.addfile(member, former.extractfile(member))
    with package.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=seconds) as packed:
        packed.write(text.read_bytes())
    text.unlink()
    os.utime(package, (seconds, seconds))


def _add_changes(path: Path, section: changelog.Section) -> None:
    metadata = yaml.safe_load(path.read_text(encoding="utf-8"))
    changes = section.changes()
    metadata.setdefault("annotations", {})[CHANGES] = chart_package.dump(changes)
    if any(change["kind"] == "security" for change in changes):
        metadata["annotations"][SECURITY] = "true"
    path.write_text(chart_package.dump(metadata), encoding="utf-8")
