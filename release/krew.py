"""What krew installs as `kubectl slurm`: an archive, and the manifest that names it.

The manifest: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest
"""

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import yaml

from sidecars.contract.project import HOME

NAME = "slurm"
MANIFEST = f"{NAME}.yaml"
"""krew takes the plugin's name from the name of the file, too."""
PROGRAM = f"kubectl-{NAME}"


def archive_name(version: str) -> str:
    """Return the file name of the archive of a version."""
    return f"{PROGRAM}-{version}.tar.gz"


def archive(program: bytes, license_file: Path) -> bytes:
    """Return the archive with the program and the licence: the same bytes for the same content."""
    out = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", fileobj=out, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as packed,
    ):
        for name, content, mode in (
            (PROGRAM, program, 0o755),
            (license_file.name, license_file.read_bytes(), 0o644),
        ):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            packed.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def manifest(version: str, content: bytes) -> str:
    """Return the manifest for an archive with this content."""
    value = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": NAME},
        "spec": {
            "version": f"v{version}",
            "homepage": HOME,
            "shortDescription": "Explain a Slurm cluster on Kubernetes",
            "description": "Explains why a Slurm job, node, pod or NodeSet waits, and what is "
            "wrong with a Slurm cluster on Kubernetes. Changes nothing.\n",
            "caveats": "Needs Python 3.11 or later as python3.\n",
            "platforms": [
                {
                    "selector": {
                        "matchExpressions": [
                            {"key": "os", "operator": "In", "values": ["darwin", "linux"]}
                        ]
                    },
                    "uri": f"{HOME}/releases/download/v{version}/{archive_name(version)}",
                    "sha256": hashlib.sha256(content).hexdigest(),
                    "bin": PROGRAM,
                }
            ],
        },
    }
    return yaml.safe_dump(value, sort_keys=False)
