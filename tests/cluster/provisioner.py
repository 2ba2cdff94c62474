"""The provisioner of the local cluster's StorageClass: a folder for every claim, as a `local`
volume.

All nodes share the host's file system, so every volume is reachable from each of them, and
ReadWriteMany is true. Local volumes, unlike host paths, get a pod's fsGroup. A daemon of its own:
it stands on the standard library alone.
"""

import argparse
import http.client
import json
import shutil
import ssl
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROVISIONER = "slurm-charts.local/folder"
_BY = "pv.kubernetes.io/provisioned-by"
_FOR = ("volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner")


def to_create(
    claims: Sequence[dict[str, Any]], volumes: Sequence[dict[str, Any]], root: Path
) -> list[dict[str, Any]]:
    """Volumes to create, for the claims that wait for this provisioner. Their folders lie in
    `root`.
    """
    there = {volume["metadata"]["name"] for volume in volumes}
    return [
        volume(claim, root)
        for claim in claims
        if any(claim["metadata"].get("annotations", {}).get(name) == PROVISIONER for name in _FOR)
        and not claim["spec"].get("volumeName")
        and "deletionTimestamp" not in claim["metadata"]
        and f"pvc-{claim['metadata']['uid']}" not in there
    ]


def to_delete(volumes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Volumes of this provisioner whose claim is gone and with the policy Delete."""
    return [
        volume
        for volume in volumes
        if volume["metadata"].get("annotations", {}).get(_BY) == PROVISIONER
        and volume.get("status", {}).get("phase") in {"Released", "Failed"}
        and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        and "deletionTimestamp" not in volume["metadata"]
    ]


def volume(claim: dict[str, Any], root: Path) -> dict[str, Any]:
    """The volume for a claim, bound to it from the start."""
    metadata, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{metadata['uid']}"
    linux = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {_BY: PROVISIONER}},
        "spec": {
            "accessModes": spec["accessModes"],
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "local": {"path": str(root / name)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [linux]}]}},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": spec.get("storageClassName", ""),
            "volumeMode": "Filesystem",
        },
    }


class _Api:
    def __init__(self, address: str, port: int, authority: str, certificate: str, key: str) -> None:
        self._where = address, port
        self._trust = ssl.create_default_context(cafile=authority)
        self._trust.load_cert_chain(certificate, key)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer, empty if the object is not there or there already."""
        with self._connection(30) as connection:
            headers = {"Content-Type": "application/json"}
            connection.request(
                method, path, json.dumps(body) if body is not None else None, headers
            )
            answer = connection.getresponse()
            text = answer.read()
        if answer.status in {404, 409}:
            return {}
        if answer.status >= 300:
            raise OSError(f"{method} {path}: {answer.status} {text.decode(errors='replace')}")
        decoded = json.loads(text)
        return decoded if isinstance(decoded, dict) else {}

    def wait_for_change(self, path: str, version: str) -> None:
        """Return on the first change after `version`, or after some seconds without."""
        with self._connection(15) as connection:
            connection.request("GET", f"{path}?watch=1&timeoutSeconds=5&resourceVersion={version}")
            connection.getresponse().readline()

    def _connection(self, seconds: float) -> "_Closing":
        return _Closing(
            http.client.HTTPSConnection(*self._where, context=self._trust, timeout=seconds)
        )


class _Closing:
    def __init__(self, connection: http.client.HTTPSConnection) -> None:
        self._connection = connection

    def __enter__(self) -> http.client.HTTPSConnection:
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def once(api: _Api, root: Path) -> None:
    """Create and delete what is due, then wait for a change of the claims."""
    claims = api.ask("GET", "/api/v1/persistentvolumeclaims")
    volumes = api.ask("GET", "/api/v1/persistentvolumes").get("items", [])
    for new in to_create(claims.get("items", []), volumes, root):
        (root / new["metadata"]["name"]).mkdir(parents=True, exist_ok=True)
        api.ask("POST", "/api/v1/persistentvolumes", new)
        print(
            f"created {new['metadata']['name']} for {new['spec']['claimRef']['name']}", flush=True
        )
    for old in to_delete(volumes):
        name = old["metadata"]["name"]
        shutil.rmtree(root / name, ignore_errors=True)
        api.ask("DELETE", f"/api/v1/persistentvolumes/{name}")
        print(f"deleted {name}", flush=True)
    api.wait_for_change(
        "/api/v1/persistentvolumeclaims", claims.get("metadata", {}).get("resourceVersion", "0")
    )


def main(argv: Sequence[str]) -> None:
    """Run until ended; an apiserver that is away is asked again every second."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("address", "port", "authority", "certificate", "key", "root"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args(argv)
    api = _Api(given.address, int(given.port), given.authority, given.certificate, given.key)
    while True:
        try:
            once(api, Path(given.root))
        except (OSError, ValueError, http.client.HTTPException) as error:
            print(f"again in a second: {error}", flush=True)
            time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1:])
