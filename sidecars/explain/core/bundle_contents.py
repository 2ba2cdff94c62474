"""What a bundle of `kubectl slurm doctor --bundle` contains: what was read, without any secret.

Secrets are never read. What may contain one anyway is left out or replaced: environment, commands,
arguments and annotations of pods are left out, and all texts that remain are redacted. A value that
was replaced in one place is replaced everywhere.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sidecars.contract.redaction import REDACTED, scrubbed, secret_values, secret_variables
from sidecars.explain.core import objects

if TYPE_CHECKING:
    from sidecars.explain.core.records import Object, Seen


def bundle(seen: Seen) -> dict[str, Any]:
    """Return everything that was read, by file name, without secrets."""
    kube = seen.kube
    found: dict[str, Any] = {
        "pods.json": [_pod(it) for it in kube.pods or ()],
        "kubernetes-nodes.json": [_kube_node(it) for it in kube.kube_nodes or ()],
        "events.json": [_event(it) for it in kube.events or ()],
        "custom-resources.json": [
            _resource(it)
            for it in (*(kube.controllers or ()), *(kube.nodesets or ()), *(kube.resources or ()))
        ],
        "quotas.json": [
            {"name": objects.name(it), "status": objects.dig(it, "status")}
            for it in kube.quotas or ()
        ],
        "slurm-nodes.json": [_plain(asdict(it)) for it in seen.slurm.nodes or ()],
        "slurm-partitions.json": [_plain(asdict(it)) for it in seen.slurm.partitions or ()],
        "slurm-reservations.json": [_plain(asdict(it)) for it in seen.slurm.reservations or ()],
        "slurm-config.json": dict(seen.slurm.config or {}),
        "missing.json": [asdict(it) for it in seen.missing],
    }
    known = secrets(seen) | secret_values(found)
    return {name: scrubbed(content, known) for name, content in found.items()}


def secrets(seen: Seen) -> set[str]:
    """Find values that are secrets because of the name of their variable, key or option, wherever
    they are.
    """
    kube = seen.kube
    found: set[str] = set()
    for it in (
        *(kube.pods or ()),
        *(kube.controllers or ()),
        *(kube.nodesets or ()),
        *(kube.resources or ()),
    ):
        found |= secret_variables(it) | secret_values(it)
    return found


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    return {
        key: sorted(value) if isinstance(value, frozenset) else value
        for key, value in record.items()
    }


def _metadata(it: Object) -> Object:
    kept = (
        "name",
        "namespace",
        "uid",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "finalizers",
        "labels",
        "ownerReferences",
    )
    return {key: value for key in kept if (value := objects.dig(it, "metadata", key)) is not None}


def _pod(it: Object) -> Object:
    containers = [
        {
            "name": objects.text(c, "name"),
            "image": objects.text(c, "image"),
            "resources": objects.dig(c, "resources"),
        }
        for key in ("initContainers", "containers")
        for c in objects.items(it, "spec", key)
    ]
    spec = {"nodeName": objects.text(it, "spec", "nodeName"), "containers": containers}
    return {"metadata": _metadata(it), "spec": spec, "status": objects.dig(it, "status")}


def _kube_node(it: Object) -> Object:
    kept = ("conditions", "capacity", "allocatable", "nodeInfo")
    status = {key: objects.dig(it, "status", key) for key in kept}
    spec = {key: objects.dig(it, "spec", key) for key in ("unschedulable", "taints")}
    return {"metadata": _metadata(it), "spec": spec, "status": status}


def _event(it: Object) -> Object:
    kept = (
        "involvedObject",
        "reason",
        "message",
        "type",
        "count",
        "firstTimestamp",
        "lastTimestamp",
        "eventTime",
    )
    return {key: objects.dig(it, key) for key in kept}


def _resource(it: Object) -> Object:
    """Return a custom resource: its spec without pod templates' environment, commands and
    arguments.
    """
    return {
        "kind": objects.text(it, "kind"),
        "metadata": _metadata(it),
        "spec": _template(objects.dig(it, "spec")),
        "status": objects.dig(it, "status"),
    }


def _template(value: Any) -> Any:
    if isinstance(value, dict):
        left_out = ("env", "args", "command", "annotations", "stringData", "data")
        return {
            key: REDACTED if key in left_out else _template(item) for key, item in value.items()
        }
    return [_template(item) for item in value] if isinstance(value, list) else value
