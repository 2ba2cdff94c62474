"""OCI image layouts with the images of several architectures."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from release import layouts

LABELS = {
    "org.opencontainers.image.revision": "abc",
    "org.opencontainers.image.created": "2026-01-31T10:00:00Z",
}
OWN = {"org.opencontainers.image.title": "slurmd"}


def archive(folder: Path, architecture: str, *names: str) -> Path:
    """An OCI image layout as a tar file: each image has the layer `base`, and one of its
    architecture.
    """
    files: dict[str, bytes] = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}

    def blob(content: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        files[f"blobs/sha256/{digest}"] = content
        return {
            "mediaType": f"application/vnd.oci.image.{kind}",
            "digest": f"sha256:{digest}",
            "size": len(content),
        }

    platform = {"architecture": architecture, "os": "linux"}
    manifests = []
    for name in names:
        layers = [
            blob(gzip.compress(text.encode(), mtime=0), "layer.v1.tar+gzip")
            for text in ("base", architecture)
        ]
        config = {
            **platform,
            "config": {"Labels": OWN, "User": "401"},
            "rootfs": {"type": "layers", "diff_ids": []},
        }
        manifest = {
            "schemaVersion": 2,
            "config": blob(json.dumps(config).encode(), "config.v1+json"),
            "layers": layers,
            "annotations": OWN,
        }
        reference = {
            "org.opencontainers.image.ref.name": f"registry.invalid/slurm-charts/{name}:26.05"
        }
        descriptor = blob(json.dumps(manifest).encode(), "manifest.v1+json")
        manifests.append({**descriptor, "platform": platform, "annotations": reference})
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
    path = folder / f"images-{architecture}.tar"
    with tarfile.open(path, "w") as out:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture
def assembled(tmp_path: Path) -> dict[str, Path]:
    """Two images for two architectures."""
    archives = [archive(tmp_path, name, "slurmd", "login") for name in ("amd64", "arm64")]
    return layouts.assemble(archives, tmp_path / "layouts", LABELS)


def test_each_image_has_a_layout_with_all_architectures(assembled: dict[str, Path]) -> None:
    assert set(assembled) == {"slurmd", "login"}
    for layout in assembled.values():
        assert list(layouts.platforms(layout)) == ["amd64", "arm64"]
        index = json.loads((layout / "index.json").read_text())
        assert index["mediaType"] == "application/vnd.oci.image.index.v1+json"
        assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}


def test_every_blob_that_a_layout_names_exists_with_its_digest_and_size(
    assembled: dict[str, Path],
) -> None:
    for layout in assembled.values():
        todo = list(json.loads((layout / "index.json").read_text())["manifests"])
        assert todo
        while todo:
            descriptor = todo.pop()
            algorithm, _, digest = descriptor["digest"].partition(":")
            content = (layout / "blobs" / algorithm / digest).read_bytes()
            assert hashlib.sha256(content).hexdigest() == digest
            assert len(content) == descriptor["size"]
            if "manifest" in descriptor["mediaType"]:
                manifest = json.loads(content)
                todo += [manifest["config"], *manifest["layers"]]


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_the_labels_of_the_release_are_added_to_those_of_the_image(
    assembled: dict[str, Path], architecture: str
) -> None:
    config = layouts.config(assembled["slurmd"], architecture)
    assert config["architecture"] == architecture
    assert config["config"] == {"Labels": OWN | LABELS, "User": "401"}
    assert config["created"] == "2026-01-31T10:00:00Z"


def test_the_index_and_each_manifest_have_the_labels_as_annotations(
    assembled: dict[str, Path],
) -> None:
    layout = assembled["login"]
    index = json.loads((layout / "index.json").read_text())
    assert index["annotations"] == OWN | LABELS
    for descriptor in index["manifests"]:
        digest = descriptor["digest"].removeprefix("sha256:")
        assert (
            json.loads((layout / "blobs" / "sha256" / digest).read_text())["annotations"]
            == OWN | LABELS
        )


def test_the_size_of_all_images_has_shared_layers_once(tmp_path: Path) -> None:
    found = layouts.sizes(archive(tmp_path, "amd64", "slurmd", "login"))
    base, own = (len(gzip.compress(text, mtime=0)) for text in (b"base", b"amd64"))
    assert found == {
        "registry.invalid/slurm-charts/slurmd:26.05": base + own,
        "registry.invalid/slurm-charts/login:26.05": base + own,
        "all": base + own,
    }
