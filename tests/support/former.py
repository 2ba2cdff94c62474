"""SchedMD's operator as the API server sees it: its objects (tests/fixtures/schedmd), its name, and
how it writes.
"""

import contextlib
import string
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from sidecars.kube import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    AlreadyExists,
    Client,
    Credentials,
    Manifest,
)

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "schedmd"
MANAGER = "manager"
USER_AGENT = "manager/v0.0.0 (linux/amd64) kubernetes/$Format"
"""Of controller-runtime in a program called `manager`."""

RESOURCES = {
    resource.kind: resource
    for resource in (
        CONFIG_MAPS,
        DEPLOYMENTS,
        POD_DISRUPTION_BUDGETS,
        PODS,
        SECRETS,
        SERVICES,
        STATEFUL_SETS,
    )
}
VARIABLES = {
    "cgroup": "cgroup/v2",
    "cpus": "0",
    "extra_conf": "",
    "memory": "0",
    "ordinal": "0",
    **{
        f"{daemon}_image": f"{daemon}:test"
        for daemon in ("slurmctld", "slurmd", "slurmrestd", "login", "logfile")
    },
}


def objects(of: str, version: str = "1.3", **variables: str) -> list[Manifest]:
    """What it creates for the custom resource of this kind. `variables`: namespace, and uids of
    custom resources.
    """
    text = string.Template((FOLDER / f"{of}.yaml").read_text(encoding="utf-8")).substitute(
        VARIABLES | variables
    )
    found = [item for item in yaml.safe_load_all(text) if item]
    for item in found:
        item["metadata"]["namespace"] = variables["namespace"]
        if version == "1.2" and of == "controller":
            item["spec"] = _of_1_2(item) if "spec" in item else None
    return [
        {key: value for key, value in item.items() if value is not None}
        for item in found
        if version != "1.2" or item["metadata"]["name"] != "slurm-controller-internal"
    ]


def _of_1_2(item: Manifest) -> dict[str, Any]:
    spec: dict[str, Any] = item["spec"]
    if item["kind"] == "StatefulSet":
        return {**spec, "serviceName": "slurm-controller"}
    selector = {
        key: value for key, value in spec["selector"].items() if not key.endswith("/active")
    }
    return {**spec, "selector": selector}


@contextlib.asynccontextmanager
async def connect(credentials: Credentials) -> AsyncIterator[Client]:
    """A client with the name of its program, from which the API server takes the field manager."""
    with mock.patch("sidecars.kube.transport._USER_AGENT", USER_AGENT):
        async with Client.connect(credentials) as client:
            yield client


async def sync(client: Client, wanted: Manifest) -> Manifest:
    """Create the object, or patch it as its SyncObject does: a merge patch from the live object.

    Labels and annotations are only added. Of StatefulSets and Deployments the listed fields of the
    spec are replaced.
    """
    resource, metadata = RESOURCES[wanted["kind"]], wanted["metadata"]
    try:
        return await client.create(resource, wanted)
    except AlreadyExists:
        live = await client.get(resource, metadata["namespace"], metadata["name"])
    target = {**live, "metadata": {**live["metadata"]}}
    for field in ("labels", "annotations"):
        target["metadata"][field] = {
            **(live["metadata"].get(field) or {}),
            **(metadata.get(field) or {}),
        }
    target["metadata"]["ownerReferences"] = metadata.get("ownerReferences")
    if wanted["kind"] in {"StatefulSet", "Deployment"}:
        fields = (
            "minReadySeconds",
            "replicas",
            "template",
            "updateStrategy",
            "strategy",
            "ordinals",
        )
        target["spec"] = {**live["spec"], **{field: wanted["spec"].get(field) for field in fields}}
    else:
        target |= {
            field: wanted[field] for field in ("spec", "data", "stringData") if field in wanted
        }
    patch = _difference(live, target)
    if not patch:
        return live
    return await client.merge_patch(resource, metadata["namespace"], metadata["name"], patch)


def _difference(before: Any, after: Any) -> dict[str, Any]:
    """The merge patch (RFC 7386) from one object to another."""
    patch: dict[str, Any] = {
        key: None for key, value in before.items() if value is not None and after.get(key) is None
    }
    for key, value in after.items():
        if isinstance(value, dict) and isinstance(before.get(key), dict):
            if inner := _difference(before[key], value):
                patch[key] = inner
        elif value is not None and before.get(key) != value:
            patch[key] = value
    return patch
