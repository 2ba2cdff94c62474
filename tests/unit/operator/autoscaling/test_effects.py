"""The request that applies a decision: `sidecars.operator.autoscaling.effects`."""

from typing import Any

import pytest

from sidecars.contract.autoscaling import Applied, decode
from sidecars.operator.autoscaling import effects, observe
from sidecars.operator.autoscaling.memory import Memory
from sidecars.operator.autoscaling.observe import Seen
from sidecars.workloads.resources import NodeSet, read
from tests.support.operator_parts import Parts
from tests.unit.operator.autoscaling.builders import nodeset

pytestmark = pytest.mark.looptime


def seen(parts: Parts, memory: Memory, **meta: Any) -> Seen:
    manifest = nodeset(parts, meta=meta)
    return observe.seen(parts.runtime, memory, manifest, read(NodeSet, manifest), {})


async def test_one_request_writes_the_number_with_the_record_and_tests_what_it_relies_on() -> None:
    parts, memory, record = Parts(), Memory(), Applied(3, ("slinky-0",))
    await effects.write(parts.runtime, memory, seen(parts, memory, annotations={"a": "b"}), record)
    (operations,) = parts.requests.of("json patch", "NodeSet")
    assert {"op": "test", "path": "/metadata/uid", "value": "uid-of-slinky"} in operations
    assert {"op": "test", "path": "/spec/replicas", "value": 1} in operations
    assert {"op": "replace", "path": "/spec/replicas", "value": 3} in operations
    (written,) = [
        it
        for it in operations
        if it["path"] == "/metadata/annotations/slinky.slurm.net~1autoscaling"
    ]
    assert decode(written["value"]) == record
    assert not [it for it in operations if it["path"] == "/metadata/annotations"]


async def test_the_first_annotation_is_added_only_to_the_object_that_was_seen() -> None:
    parts, memory = Parts(), Memory()
    found = seen(parts, memory)
    await effects.write(parts.runtime, memory, found, Applied(3))
    (operations,) = parts.requests.of("json patch", "NodeSet")
    version = found.manifest["metadata"]["resourceVersion"]
    assert {"op": "test", "path": "/metadata/resourceVersion", "value": version} in operations
    assert {"op": "add", "path": "/metadata/annotations", "value": {}} in operations


async def test_a_nodeset_is_not_looked_at_before_the_watch_has_shown_our_write() -> None:
    parts, memory = Parts(), Memory()
    found = seen(parts, memory)
    assert effects.is_shown(memory, found)
    await effects.write(parts.runtime, memory, found, Applied(3))
    assert not effects.is_shown(memory, found)
    assert effects.is_shown(memory, seen(parts, memory, resourceVersion="5000"))
    assert effects.is_shown(memory, seen(parts, memory, uid="another"))
