"""Pushes images and charts to a registry, and writes what belongs to the release beside them.

A registry is named by its host and path, such as `ghcr.io/OWNER`. Its credentials are those of
`docker login`.
"""

import contextlib
import hashlib
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec

from release import changelog, krew, layouts, packages, postrender, versions
from release.signing import Artifact, subjects
from schemas import chart_package, image_digests
from sidecars.contract.project import HOME
from sidecars.explain import plugin
from tests.cluster import images as image_builds
from tests.cluster.commands import run
from tests.cluster.errors import ClusterError
from tests.cluster.tools import tool

ARTIFACTS = "artifacts.json"
SUBJECTS = "subjects.txt"
CHECKSUMS = "checksums.txt"
NOTES = "notes.md"
IMAGES = "images.txt"
KUBECTL_PLUGIN = krew.PROGRAM
FILES = "files"
"""The folder with what the release page offers for download."""

START_SECONDS = 20.0


def architecture(archive: Path) -> str:
    """Return the architecture in the name of an archive, `images-ARCHITECTURE.tar`."""
    return archive.stem.partition("-")[2]


def image_tags(name: str, version: str) -> tuple[str, ...]:
    """Return the tags of an image: that of the charts' default values, and one that no other
    release has. A prerelease has the second only: the charts of the present release must not pull
    its images.
    """
    tag = image_builds.IMAGES[name]
    if tag == version:
        return (tag,)
    own = f"{tag}-{version}"
    return (own,) if "-" in version else (tag, own)


def labels(root: Path) -> dict[str, str]:
    """Return the labels of a release: the commit, and its time."""
    revision, created = run(["git", "log", "-1", "--format=%H %cI"], cwd=root).split()
    return {f"{layouts.LABEL}.revision": revision, f"{layouts.LABEL}.created": created}


def publish(root: Path, archives: Sequence[Path], registry: str, target: Path) -> list[Artifact]:
    """Push all images and charts to the registry, and write all files of the release into the new
    folder `target`.

    Beside each archive, NAME-ARCHITECTURE.spdx.json must be the software bill of materials of each
    image.
    """
    version = versions.version(root)
    files = target / FILES
    files.mkdir(parents=True)
    artifacts = []
    for name, layout in layouts.assemble(archives, target / "layouts", labels(root)).items():
        sboms = {}
        for archive in archives:
            sbom = f"{name}-{architecture(archive)}.spdx.json"
            shutil.copy(archive.with_name(sbom), files / sbom)
            sboms[architecture(archive)] = f"{FILES}/{sbom}"
        artifacts.append(
            _push_image(layout, f"{registry}/{name}", image_tags(name, version), sboms)
        )
    artifacts += [
        _push_chart(package, f"{registry}/charts", version)
        for package in packages.package_all(root, files)
    ]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(postrender.build(root, Path(folder)), files)
    program = plugin.build()
    (files / KUBECTL_PLUGIN).write_bytes(program)
    packed = krew.archive(program, root / "LICENSE")
    (files / krew.archive_name(version)).write_bytes(packed)
    (files / krew.MANIFEST).write_text(krew.manifest(version, packed), encoding="utf-8")
    section = changelog.section((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    notes = section.notes(f"{HOME}/blob/v{version}") + verification(registry, version)
    (target / NOTES).write_text(notes, encoding="utf-8")
    (files / IMAGES).write_text(image_list(artifacts), encoding="utf-8")
    for chart, text in pinned_values(root, artifacts).items():
        (files / f"{chart}-{image_digests.LOCK}").write_text(text, encoding="utf-8")
    (target / SUBJECTS).write_text(subjects(artifacts), encoding="utf-8")
    (target / ARTIFACTS).write_text(
        json.dumps([asdict(each) for each in artifacts], indent=1), encoding="utf-8"
    )
    (files / CHECKSUMS).write_text(checksums(files), encoding="utf-8")
    return artifacts


def published(target: Path) -> list[Artifact]:
    """Return the artifacts that `publish` has pushed."""
    return msgspec.json.decode((target / ARTIFACTS).read_bytes(), type=list[Artifact])


def image_list(artifacts: Sequence[Artifact]) -> str:
    """Return the images of the release, one a line, each with a tag and its digest."""
    return "".join(
        f"{each.repository}:{each.tags[0]}@{each.digest}\n" for each in artifacts if each.sboms
    )


def pinned_values(root: Path, artifacts: Sequence[Artifact]) -> dict[str, str]:
    """Return a values file for each chart with images, which pins them by the digests of the
    release.
    """
    digests = {each.repository.rpartition("/")[2]: each.digest for each in artifacts if each.sboms}
    found = {}
    for chart in chart_package.RELEASES:
        if images := image_digests.chart_images(root / "charts" / chart):
            names = {image: image.name.rpartition("/")[2] for image in images.values()}
            if foreign := [str(image) for image, name in names.items() if name not in digests]:
                raise ClusterError(
                    f"charts/{chart}/values.yaml: {', '.join(foreign)}: this release has no such "
                    "image"
                )
            found[chart] = image_digests.values_text(
                images, {image: digests[name] for image, name in names.items()}
            )
    return found


def verification(registry: str, version: str) -> str:
    """Return the part of the release page with the command that verifies an image, and with the
    identity that signed it.
    """
    identity = rf"^{HOME}/.github/workflows/release.yaml@refs/tags/v{version}$".replace(".", r"\.")
    command = [
        f"cosign verify {registry}/sidecars:{version}",
        f"--certificate-identity-regexp '{identity}'",
        "--certificate-oidc-issuer https://token.actions.githubusercontent.com",
    ]
    lines = " \\\n  ".join(command)
    page = f"{HOME}/blob/v{version}/docs/images.md#verify-signatures"
    return f"\n## Verify\n\n```sh\n{lines}\n```\n\n[All signatures]({page})\n"


def checksums(folder: Path) -> str:
    """Return the files of a folder as sha256sum lists them."""
    files = [path for path in sorted(folder.iterdir()) if path.name != CHECKSUMS]
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files
    )


def _push_image(
    layout: Path, repository: str, tags: Sequence[str], sboms: Mapping[str, str]
) -> Artifact:
    first, *others = tags
    run([tool("crane"), "push", "--index", layout, f"{repository}:{first}"])
    digest = run([tool("crane"), "digest", f"{repository}:{first}"]).strip()
    for tag in others:
        run([tool("crane"), "tag", f"{repository}@{digest}", tag])
    each = tuple((found, sboms[name]) for name, found in layouts.platforms(layout).items())
    return Artifact(repository, tuple(tags), digest, each)


def _push_chart(package: Path, folder: str, version: str) -> Artifact:
    repository = f"{folder}/{package.name.removesuffix(f'-{version}.tgz')}"
    run([tool("helm"), "push", package, f"oci://{folder}", *plain_http(folder)])
    return Artifact(
        repository, (version,), run([tool("crane"), "digest", f"{repository}:{version}"]).strip()
    )


def plain_http(registry: str) -> list[str]:
    """Helm's option for a registry on this host."""
    return ["--plain-http"] if registry.startswith("127.0.0.1:") else []


@contextlib.contextmanager
def local_registry(folder: Path) -> Iterator[str]:
    """Return a registry on this host, with its content in a folder. It ends with the block."""
    folder.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = [str(tool("crane")), "registry", "serve", f"--address={address}", f"--disk={folder}"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(address, process)
            yield address
        finally:
            process.terminate()


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.05)
    raise ClusterError(
        f"crane registry serve: does not listen on {address} after {START_SECONDS:.0f} s"
    )
