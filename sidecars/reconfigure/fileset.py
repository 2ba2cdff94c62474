"""A set of configuration files as a value: complete, and exactly the files of its manifest."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sidecars.contract import manifest
from sidecars.contract.manifest import Manifest, ManifestError


class Id(NamedTuple):
    """Identity of a set."""

    config: str
    """The manifest's digest of the configuration."""

    keys: str
    """A digest of the keys."""

    def __str__(self) -> str:
        return self.config[:12]


class IncompleteError(ValueError):
    """The files are not those that their manifest lists. The message names the first that
    differs.
    """


@dataclass(frozen=True, slots=True)
class FileSet:
    """A complete configuration. Its contents, keys among them, never show in a repr."""

    id: Id
    files: Mapping[str, bytes]
    """Contents of the configuration files by name, without the manifest."""

    keys: Mapping[str, bytes]
    """Contents of the key files by name (`manifest.KEY_FILES`)."""

    def __repr__(self) -> str:
        return f"FileSet({self.id})"

    @property
    def everything(self) -> dict[str, bytes]:
        """All files of /etc/slurm."""
        return {**self.files, **self.keys}


def assemble(found: Mapping[str, bytes], keys: Mapping[str, bytes]) -> FileSet:
    """Return the set that the manifest among `found` lists. Other files are left out.

    Raises IncompleteError while the manifest or a file is missing or a file has other contents than
    listed, and for a file that is no manifest.
    """
    if manifest.FILE not in found:
        raise IncompleteError(f"{manifest.FILE} is not there yet")
    try:
        listed = manifest.decode(found[manifest.FILE])
    except ManifestError as error:
        raise IncompleteError(str(error)) from error
    files = {}
    for name, digest in sorted(listed.files.items()):
        if name not in found:
            raise IncompleteError(f"{name} is not there yet")
        if manifest.digest(found[name]) != digest:
            raise IncompleteError(f"{name} is not the one that {manifest.FILE} lists")
        files[name] = found[name]
    return FileSet(Id(listed.sha256, keys_digest(keys)), files, dict(keys))


def manifest_of(files: FileSet) -> bytes:
    """Return the manifest to store beside the files of a set."""
    digests = {name: manifest.digest(content) for name, content in files.files.items()}
    return manifest.encode(Manifest(files.id.config, digests)).encode()


def keys_digest(keys: Mapping[str, bytes]) -> str:
    """Return one digest of all keys, which differs when one of them does."""
    whole = hashlib.sha256()
    for name in sorted(keys):
        whole.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(keys[name]).digest())
    return whole.hexdigest()
