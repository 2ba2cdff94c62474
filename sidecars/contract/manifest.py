"""The files of /etc/slurm, from the operator to slurmctld's pods: their legal names, and the
manifest that lists them.

The operator spreads the files over several ConfigMaps, which the kubelet may update at different
times. The first ConfigMap contains the manifest. A pod uses the files only when they match their
manifest.

`manifest.json`: `{"files": {file name: SHA-256}, "sha256": SHA-256}`, all digests hexadecimal.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

FILE = "manifest.json"
"""Name of the manifest, which is a key of the first ConfigMap and a file of /etc/slurm."""

SLURM_CONF = "slurm.conf"
"""The one file that every set has."""

SLURM_KEY, SLURM_JWKS, JWT_KEY, JWKS = "slurm.key", "slurm.jwks", "jwt.key", "jwks.json"

KEY_FILES = (SLURM_KEY, SLURM_JWKS, JWT_KEY, JWKS)
"""Files of /etc/slurm that come from Secrets and from the ConfigMap of public keys: never listed in
a manifest.
"""

_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ManifestError(ValueError):
    """The text is no manifest. The message is the reason."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of one configuration."""

    sha256: str
    """Digest of the whole configuration, by which the operator and the pods name it."""

    files: Mapping[str, str]
    """Digest of each file by its name."""


def digest(content: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def unfit_file_name(name: str) -> str | None:
    """Return why a file of the configuration can't have this name. Return None if it can.

    A leading dot is refused because /etc/slurm contains hidden files and links of the kubelet and
    of the sidecars.
    """
    if name in KEY_FILES or name == FILE:
        return "the operator provides that file"
    if name.startswith("."):
        return "the name begins with a dot"
    if not _FILE_NAME.fullmatch(name):
        return "the name has characters other than letters, digits, `.`, `-` and `_`"
    return None


def encode(manifest: Manifest) -> str:
    """Return the text of the manifest."""
    content = {"files": dict(sorted(manifest.files.items())), "sha256": manifest.sha256}
    return json.dumps(content, indent=1) + "\n"


def decode(text: str | bytes) -> Manifest:
    """Return the manifest of a text. Raises ManifestError."""
    try:
        content = json.loads(text)
        sha256, files = content["sha256"], dict(content["files"])
    except (ValueError, TypeError, KeyError) as error:
        raise ManifestError(f"{FILE} can't be read: {error}") from error
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ManifestError(f"{FILE}: sha256 is no digest")
    for name in files:
        unfit = unfit_file_name(name)
        if unfit:
            raise ManifestError(f"{FILE}: {name!r} can't be a file of the configuration: {unfit}")
    if SLURM_CONF not in files:
        raise ManifestError(f"{FILE} lists no {SLURM_CONF}")
    return Manifest(sha256, files)
