"""`doctor --bundle`: an archive of what was read and of the last lines of logs, without secrets."""

from __future__ import annotations

import io
import json
import os
import tarfile
from itertools import islice
from typing import TYPE_CHECKING

from sidecars.contract import redaction
from sidecars.explain import text
from sidecars.explain.core import bundle_contents, objects
from sidecars.explain.kubectl import Kubectl, KubectlError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sidecars.explain.core.records import Answer, Object, Seen

LINES = 500
"""Of each log."""
MOST_PODS = 10
"""Pods of Slurm's daemons and of the operator whose logs are read, and as many workers that aren't
ready.
"""
_DAEMONS = frozenset({"slurmctld", "slurmrestd", "slurmdbd"})


def write(path: Path, kubectl: Kubectl, seen: Seen, answer: Answer) -> None:
    """Write the archive, readable by its user alone. Raises OSError."""
    secrets = bundle_contents.secrets(seen)
    files = {
        name: json.dumps(content, indent=1, default=str)
        for name, content in bundle_contents.bundle(seen).items()
    }
    files["doctor.json"] = json.dumps(redaction.scrubbed(text.as_json(answer), secrets), indent=1)
    for name, log in _logs(kubectl, seen):
        files[f"logs/{name}.log"] = redaction.text(log, secrets)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with (
        os.fdopen(descriptor, "wb") as stream,
        tarfile.open(fileobj=stream, mode="w:gz") as archive,
    ):
        for name, content in files.items():
            data = content.encode()
            entry = tarfile.TarInfo(f"slurm-doctor/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(seen.now), 0o600
            archive.addfile(entry, io.BytesIO(data))


def _logs(kubectl: Kubectl, seen: Seen) -> Iterator[tuple[str, str]]:
    for it in _pods(kubectl, seen):
        namespace, name = objects.text(it, "metadata", "namespace"), objects.name(it)
        for status in objects.items(it, "status", "containerStatuses") + objects.items(
            it, "status", "initContainerStatuses"
        ):
            container = objects.text(status, "name")
            path = (
                f"/api/v1/namespaces/{namespace}/pods/{name}/log?container={container}&"
                f"tailLines={LINES}"
            )
            try:
                yield f"{name}-{container}", kubectl.text(path)
            except KubectlError as error:
                yield f"{name}-{container}", f"not read: {error}"


def _pods(kubectl: Kubectl, seen: Seen) -> list[Object]:
    daemons = [it for it in seen.kube.pods or () if objects.label(it, objects.APP) in _DAEMONS]
    workers = [it for it in seen.kube.pods or () if objects.is_worker(it) and not _is_ready(it)]
    operators: list[Object] = []
    for it in seen.kube.workloads or ():
        namespace = objects.text(it, "metadata", "namespace")
        path = (
            f"/api/v1/namespaces/{namespace}/pods?labelSelector="
            f"{objects.APP}%3D{objects.label(it, objects.APP)}"
        )
        try:
            operators += objects.items(kubectl.read(path), "items")
        except KubectlError:
            continue
    return [*islice(daemons, MOST_PODS), *islice(operators, MOST_PODS), *islice(workers, MOST_PODS)]


def _is_ready(it: Object) -> bool:
    ready = objects.condition(it, "Ready")
    return ready is not None and ready.status == "True"
