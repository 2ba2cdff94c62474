"""OCI image layouts for a registry: one for each image, with its content for every architecture.

The archives of tests/cluster/images.py have all images of one architecture. The labels of a release
are added here, so that a build for tests doesn't change with every commit.

Layouts and labels: https://github.com/opencontainers/image-spec
"""

import hashlib
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

INDEX = "application/vnd.oci.image.index.v1+json"
LABEL = "org.opencontainers.image"


def assemble(archives: Sequence[Path], target: Path, labels: Mapping[str, str]) -> dict[str, Path]:
    """Return the folder with the layout of each image, by its name, below the new folder `target`.

    `archives` are OCI image layouts as tar files, one for each architecture. The images get the
    `labels` in addition to their own.
    """
    blobs = target / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    images: dict[str, list[dict[str, Any]]] = {}
    for archive in archives:
        for descriptor in _unpacked(archive, blobs)["manifests"]:
            name = (
                descriptor["annotations"][f"{LABEL}.ref.name"].rpartition("/")[2].partition(":")[0]
            )
            images.setdefault(name, []).append(_labelled(descriptor, blobs, labels))
    layouts = {}
    for name, manifests in images.items():
        folder = target / name
        folder.mkdir()
        (folder / "blobs").symlink_to("../blobs")
        (folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
        # The annotations of an index are what a registry shows of an image with several
        # architectures.
        annotations = manifests[0].pop("annotations")
        for manifest in manifests[1:]:
            del manifest["annotations"]
        index = {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": manifests,
            "annotations": annotations,
        }
        (folder / "index.json").write_text(json.dumps(index, sort_keys=True))
        layouts[name] = folder
    return layouts


def sizes(archive: Path) -> dict[str, int]:
    """Return the bytes of the compressed layers of each image of an archive by its reference, and
    of `all` without copies.
    """
    with tarfile.open(archive) as stream:

        def document(name: str) -> dict[str, Any]:
            found: dict[str, Any] = json.loads(_member(stream, name))
            return found

        found: dict[str, int] = {}
        layers: dict[str, int] = {}
        for entry in document("index.json")["manifests"]:
            manifest = document(f"blobs/{entry['digest'].replace(':', '/')}")
            own = {layer["digest"]: int(layer["size"]) for layer in manifest["layers"]}
            found[entry["annotations"]["org.opencontainers.image.ref.name"]] = sum(own.values())
            layers |= own
    return {**found, "all": sum(layers.values())}


def _member(stream: tarfile.TarFile, name: str) -> bytes:
    """Return a file of an archive. Raises KeyError without one."""
    member = stream.extractfile(name)
    return b"" if member is None else member.read()


def platforms(layout: Path) -> dict[str, str]:
    """Return the digest of the image of each architecture in a layout of `assemble`."""
    index = json.loads((layout / "index.json").read_text())
    return {
        manifest["platform"]["architecture"]: manifest["digest"] for manifest in index["manifests"]
    }


def config(layout: Path, architecture: str) -> dict[str, Any]:
    """Return the configuration of an image in a layout of `assemble`."""
    blobs = layout / "blobs" / "sha256"
    manifest = _read(blobs, platforms(layout)[architecture])
    return _read(blobs, manifest["config"]["digest"])


def _unpacked(archive: Path, blobs: Path) -> dict[str, Any]:
    """Return the index of an archive, whose blobs are written to the folder `blobs`."""
    index: dict[str, Any] = {}
    with tarfile.open(archive) as members:
        for member in members:
            content = members.extractfile(member)
            if content is None:
                continue
            if member.name == "index.json":
                index = json.load(content)
            elif member.name.startswith("blobs/sha256/"):
                path = blobs / Path(member.name).name
                if not path.exists():
                    with path.open("wb") as out:
                        while data := content.read(1 << 20):
                            out.write(data)
    return index


def _labelled(descriptor: dict[str, Any], blobs: Path, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the descriptor of the image with these labels, whose new blobs are written."""
    manifest = _read(blobs, descriptor["digest"])
    content = _read(blobs, manifest["config"]["digest"])
    container = content.setdefault("config", {})
    container["Labels"] = {**container.get("Labels", {}), **labels}
    if f"{LABEL}.created" in labels:
        content["created"] = labels[f"{LABEL}.created"]
    annotations = {**manifest.get("annotations", {}), **labels}
    written = _written(blobs, content)
    new = {**manifest, "config": {**manifest["config"], **written}, "annotations": annotations}
    return {
        "mediaType": descriptor["mediaType"],
        **_written(blobs, new),
        "platform": descriptor["platform"],
        "annotations": annotations,
    }


def _read(blobs: Path, digest: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((blobs / digest.removeprefix("sha256:")).read_bytes())
    return content


def _written(blobs: Path, content: Any) -> dict[str, Any]:
    data = json.dumps(content, sort_keys=True).encode()
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"digest": f"sha256:{digest}", "size": len(data)}
