"""What a dry run checks: the workflows, and what the registry then has."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from release import layouts, packages, publishing
from release.signing import Artifact
from tests.cluster import images as image_builds
from tests.cluster.commands import run
from tests.cluster.errors import ClusterError
from tests.cluster.tools import tool


def check_workflows(root: Path) -> None:
    """Have actionlint check the workflows. Raises ClusterError with its findings."""
    run([tool("actionlint"), *sorted((root / ".github" / "workflows").glob("*.yaml"))], cwd=root)


def verify(root: Path, artifacts: Sequence[Artifact], target: Path) -> None:
    """Pull all artifacts and compare them with the repository. Raises ClusterError."""
    for artifact in artifacts:
        run([tool("crane"), "validate", f"--remote={artifact.reference}"])
        if artifact.sboms:
            _verify_image(root, artifact)
        else:
            _verify_chart(root, artifact)
    run(["sha256sum", "--check", "--strict", publishing.CHECKSUMS], cwd=target / publishing.FILES)


def _verify_image(root: Path, artifact: Artifact) -> None:
    for digest, _ in artifact.sboms:
        config = json.loads(run([tool("crane"), "config", f"{artifact.repository}@{digest}"]))
        found = config["config"]["Labels"]
        name = artifact.repository.rpartition("/")[2]
        wanted = publishing.labels(root) | {f"{layouts.LABEL}.version": image_builds.IMAGES[name]}
        if missing := {name for name, text in wanted.items() if found.get(name) != text}:
            raise ClusterError(f"{artifact.reference}: wrong labels: {', '.join(sorted(missing))}")
    for tag in artifact.tags:
        if (
            run([tool("crane"), "digest", f"{artifact.repository}:{tag}"]).strip()
            != artifact.digest
        ):
            raise ClusterError(f"{artifact.repository}:{tag} is not {artifact.digest}")


def _verify_chart(root: Path, artifact: Artifact) -> None:
    name = artifact.repository.rpartition("/")[2]
    [version] = artifact.tags
    with tempfile.TemporaryDirectory() as folder:
        source = [f"oci://{artifact.repository}", f"--version={version}"]
        plain = publishing.plain_http(artifact.repository)
        run([tool("helm"), "pull", *source, *plain, "--untar", f"--untardir={folder}"])
        if found := package_problems(Path(folder) / name, root / "charts" / name):
            raise ClusterError(f"{artifact.reference}: {'; '.join(found)}")


def package_problems(package: Path, chart: Path) -> list[str]:
    """Find the faults of an unpacked package of the chart in the repository."""
    found = []
    if _objects(package) != _objects(chart):
        found.append(f"it renders other objects than charts/{chart.name}")
    metadata = yaml.safe_load((package / "Chart.yaml").read_text(encoding="utf-8"))
    if packages.CHANGES not in metadata["annotations"]:
        found.append(f"Chart.yaml has no annotation {packages.CHANGES}")
    found += [
        f"it has no {file}" for file in ("README.md", "LICENSE") if not (package / file).is_file()
    ]
    found += [
        f"it contains {path.relative_to(package)}"
        for folder in (package, *sorted(package.glob("charts/*")))
        for path in (folder / "ci", folder / "tests")
        if path.exists()
    ]
    return found


def _objects(chart: Path) -> list[str]:
    """Return the objects that a chart renders, without what is new each time."""
    output = run([tool("helm"), "template", "release", chart])
    found = []
    for manifest in yaml.safe_load_all(output):
        if manifest and manifest["kind"] == "Secret":
            manifest.pop("data", None)
        found.append(json.dumps(manifest, sort_keys=True, default=str))
    return sorted(found)
