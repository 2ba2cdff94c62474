"""The commands of a release: `python -m release COMMAND`. `make help` lists the targets that run
them.
"""

import argparse
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from release import (
    layouts,
    postrender,
    publishing,
    rebuilt,
    rehearsal,
    repository,
    signing,
    versions,
)
from release.changelog import ChangelogError
from schemas.sources import SchemaError
from sidecars.contract.project import REGISTRY
from tests.cluster import cache, images
from tests.cluster.errors import ClusterError

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "release"
SIGNED = f"{publishing.FILES}/{publishing.CHECKSUMS}"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m release", description="Publish a release.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = commands.add_parser("check", help="compare the versions of all parts")
    check.add_argument(
        "--tag", help="the tag of the release, which the changelog must have a date for"
    )
    commands.add_parser(
        "images", help="build the images for the architecture of this host (as root)"
    )
    changes = commands.add_parser(
        "changes", help="compare the packages of the images with those of a release"
    )
    changes.add_argument(
        "--former", type=Path, required=True, help="folder with the *.spdx.json of the release"
    )
    commands.add_parser("postrender", help="build the folder of slurm-postrender, and its archive")
    fill = commands.add_parser("fill", help="fill in the repository that publishes the release")
    fill.add_argument(
        "--repository", required=True, metavar="OWNER/NAME", help="its name on GitHub"
    )
    publish = commands.add_parser("publish", help="push images and charts")
    publish.add_argument(
        "--registry", default=REGISTRY, help="host and path (default: %(default)s)"
    )
    commands.add_parser(
        "sign", help="sign what `publish` has pushed, with the identity of the workflow"
    )
    commands.add_parser(
        "dry-run", help="run everything against a registry on this host, and show how it is signed"
    )
    options = parser.parse_args(arguments)
    try:
        match options.command:
            case "check":
                return _check(options.tag)
            case "images":
                _images(BUILD)
            case "changes":
                table = rebuilt.as_markdown(
                    rebuilt.changes(rebuilt.read(options.former), rebuilt.read(BUILD))
                )
                (BUILD / "changes.md").write_text(table, encoding="utf-8")
                print(table, end="")
            case "postrender":
                print(postrender.build(ROOT, BUILD))
            case "fill":
                for path in repository.fill(ROOT, options.repository):
                    print(path.relative_to(ROOT))
            case "publish":
                repository.check_filled(options.registry)
                archives = sorted(BUILD.glob("images-*.tar"))
                if not archives:
                    raise ClusterError(
                        f"{BUILD}: no images-ARCHITECTURE.tar. Run `make release-images` first."
                    )
                shutil.rmtree(BUILD / "published", ignore_errors=True)
                for artifact in publishing.publish(
                    ROOT, archives, options.registry, BUILD / "published"
                ):
                    print(artifact.reference)
            case "sign":
                return _sign(BUILD / "published")
            case _:
                return _dry_run()
    except (ChangelogError, ClusterError, SchemaError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def _check(tag: str | None) -> int:
    found = versions.problems(ROOT, tag)
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


def _images(target: Path) -> None:
    """Build into `target`: images-ARCHITECTURE.tar, and the software bill of materials of each
    image.
    """
    architecture = ARCHITECTURES[platform.machine()]
    archive = images.build_images(cache.root(), lambda line: print(line, flush=True))
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(archive, target / f"images-{architecture}.tar")
    for name, size in layouts.sizes(archive).items():
        print(f"{name} {architecture}: {size / 1e6:.1f} MB", flush=True)
    for sbom in archive.parent.glob("*.spdx.json"):
        shutil.copy(
            sbom, target / f"{sbom.name.removesuffix('.spdx.json')}-{architecture}.spdx.json"
        )


def _sign(target: Path) -> int:
    for words in signing.commands(publishing.published(target), SIGNED):
        print(shlex.join(words), flush=True)
        if status := subprocess.run(words, cwd=target, check=False).returncode:
            return status
    return 0


def _dry_run() -> int:
    if found := versions.problems(ROOT):
        raise ClusterError("\n".join(["the versions differ:", *found]))
    _report("versions")
    rehearsal.check_workflows(ROOT)
    _report("workflows")
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        folder = Path(name)
        _images(folder)
        _report("images")
        with publishing.local_registry(folder / "registry") as address:
            archives = sorted(folder.glob("images-*.tar"))
            artifacts = publishing.publish(
                ROOT, archives, f"{address}/slurm-charts", folder / "published"
            )
            _report("published to a registry on this host")
            rehearsal.verify(ROOT, artifacts, folder / "published")
            _report("pulled and compared")
    # With the references that the workflow signs.
    print("\nThe workflow signs with:")
    for words in signing.commands(artifacts, SIGNED):
        print(f"  {shlex.join(words).replace(f'{address}/slurm-charts', 'ghcr.io/OWNER')}")
    return 0


def _report(step: str) -> None:
    print(f"ok     {step}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
