"""A set of configuration files as a value, and the manifest by which a candidate is known to be whole.

The operator spreads the files over several ConfigMaps, which the kubelet may bring at different times. The first holds
`manifest.json`: `{"files": {file name: SHA-256}, "sha256": digest of the whole}`, hexadecimal.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

MANIFEST = "manifest.json"
KEYS = ("slurm.key", "slurm.jwks", "jwt.key", "jwks.json")
"""Files that come from Secrets (and the ConfigMap of public keys): never in a candidate, never kept on the volume."""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Id(NamedTuple):
    """What tells two sets apart: the manifest's digest of the configuration, and a digest of the keys."""

    config: str
    keys: str

    def __str__(self) -> str:
        return self.config[:12]


class IncompleteError(ValueError):
    """The files aren't those that their manifest lists; the text says which."""


@dataclass(frozen=True, slots=True)
class FileSet:
    """Configuration files and keys by name. A key file never shows in a repr."""

    id: Id
    files: Mapping[str, bytes]
    keys: Mapping[str, bytes]

    def __repr__(self) -> str:
        return f"FileSet({self.id})"

    @property
    def everything(self) -> dict[str, bytes]:
        """All files of /etc/slurm."""
        return {**self.files, **self.keys}


def assemble(found: Mapping[str, bytes], keys: Mapping[str, bytes]) -> FileSet:
    """The set that the manifest among `found` describes; files that it doesn't list are left out.

    Raises IncompleteError while a file is missing or another than the manifest's, and for a manifest that is none.
    """
    config, digests = _manifest(found)
    files = {}
    for name, wanted in sorted(digests.items()):
        if name not in found:
            raise IncompleteError(f"{name} is not there yet")
        if hashlib.sha256(found[name]).hexdigest() != wanted:
            raise IncompleteError(f"{name} is not the one that {MANIFEST} lists")
        files[name] = found[name]
    if "slurm.conf" not in files:
        raise IncompleteError(f"{MANIFEST} lists no slurm.conf")
    return FileSet(Id(config, keys_digest(keys)), files, dict(keys))


def manifest(of: FileSet) -> bytes:
    """The manifest to keep beside the files of a set."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(of.files.items())}
    return json.dumps({"files": digests, "sha256": of.id.config}, indent=1).encode() + b"\n"


def keys_digest(keys: Mapping[str, bytes]) -> str:
    """A digest of all keys, by which a change of one is seen."""
    whole = hashlib.sha256()
    for name in sorted(keys):
        whole.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(keys[name]).digest())
    return whole.hexdigest()


def _manifest(found: Mapping[str, bytes]) -> tuple[str, dict[str, str]]:
    if MANIFEST not in found:
        raise IncompleteError(f"{MANIFEST} is not there yet")
    try:
        content = json.loads(found[MANIFEST])
        config, digests = content["sha256"], dict(content["files"])
    except (ValueError, TypeError, KeyError) as error:
        raise IncompleteError(f"{MANIFEST} can't be read: {error}") from error
    if not isinstance(config, str) or not _SHA256.fullmatch(config):
        raise IncompleteError(f"{MANIFEST}: sha256 is no digest")
    for name in digests:
        if not _NAME.fullmatch(name) or name in KEYS or name == MANIFEST:
            raise IncompleteError(f"{MANIFEST}: {name!r} can't be a file of the configuration")
    return config, digests
