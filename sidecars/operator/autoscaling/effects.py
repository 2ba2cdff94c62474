"""Writes the replicas that were decided, with a record of it, in one request."""

from typing import Any

from sidecars.autoscaling import applied
from sidecars.contract.autoscaling import Applied, encode
from sidecars.custom_resources import NODESETS
from sidecars.operator.autoscaling.memory import Memory
from sidecars.operator.autoscaling.observe import Seen
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import key_of
from sidecars.workloads import names


async def write(runtime: Runtime, memory: Memory, seen: Seen, record: Applied) -> None:
    """Set spec.replicas and the annotation. Raises ApiError; Invalid if another has changed the
    number.
    """
    metadata, key = seen.manifest["metadata"], key_of(seen.manifest)
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": "/spec/replicas", "value": seen.nodeset.spec.replicas},
    ]
    if not metadata.get("annotations"):
        version = {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": metadata["resourceVersion"],
        }
        operations += [version, {"op": "add", "path": "/metadata/annotations", "value": {}}]
    place = names.AUTOSCALING.replace("/", "~1")
    operations += [
        {"op": "add", "path": f"/metadata/annotations/{place}", "value": encode(record)},
        {"op": "replace", "path": "/spec/replicas", "value": record.replicas},
    ]
    stored = await runtime.client.json_patch(
        NODESETS, *key, operations, dict, field_manager=applied.MANAGER
    )
    memory.written[key] = metadata["uid"], int(stored["metadata"]["resourceVersion"])


def is_shown(memory: Memory, seen: Seen) -> bool:
    """Return whether the watch has shown our last write of the NodeSet."""
    metadata = seen.manifest["metadata"]
    uid, version = memory.written.get(key_of(seen.manifest), ("", 0))
    return uid != metadata["uid"] or int(metadata["resourceVersion"]) >= version
