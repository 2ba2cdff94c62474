"""Finalizers are added once, removed once, and never overwrite another writer's list."""

import pytest

from sidecars.custom_resources import CONTROLLERS, IN_USE
from sidecars.operator.runtime.finalizers import (
    add_finalizer,
    remove_finalizer_unless_used,
    remove_finalizers,
)
from tests.support.operator_parts import Parts

pytestmark = pytest.mark.looptime


async def test_a_finalizer_is_added_beside_others_and_only_once() -> None:
    parts = Parts()
    manifest = parts.custom("Controller", "slurm", {}, finalizers=["theirs"])
    await add_finalizer(parts.runtime, CONTROLLERS, manifest, IN_USE)
    [patch] = parts.requests.of("patch", "Controller")
    assert patch["metadata"]["finalizers"] == ["theirs", IN_USE]
    assert patch["metadata"]["resourceVersion"] == manifest["metadata"]["resourceVersion"]
    has_it = parts.custom("Controller", "slurm", {}, finalizers=["theirs", IN_USE])
    await add_finalizer(parts.runtime, CONTROLLERS, has_it, IN_USE)
    assert len(parts.requests.made) == 1


async def test_a_finalizer_is_removed_and_others_stay() -> None:
    parts = Parts()
    manifest = parts.custom("Controller", "slurm", {}, finalizers=["theirs", IN_USE])
    await remove_finalizers(parts.runtime, CONTROLLERS, manifest, {IN_USE})
    assert parts.requests.of("patch", "Controller")[0]["metadata"]["finalizers"] == ["theirs"]
    await remove_finalizers(
        parts.runtime, CONTROLLERS, parts.custom("Controller", "slurm", {}), {IN_USE}
    )
    assert len(parts.requests.made) == 1


async def test_several_finalizers_are_removed_by_one_write() -> None:
    parts = Parts()
    manifest = parts.custom("Controller", "slurm", {}, finalizers=["one", "theirs", "two"])
    await remove_finalizers(parts.runtime, CONTROLLERS, manifest, {"one", "two"})
    [patch] = parts.requests.of("patch", "Controller")
    assert patch["metadata"]["finalizers"] == ["theirs"]


async def test_a_second_finalizer_is_added_to_the_object_as_it_is_after_the_first() -> None:
    parts = Parts()
    manifest = parts.custom("Controller", "slurm", {})
    added = await add_finalizer(parts.runtime, CONTROLLERS, manifest, "one")
    await add_finalizer(parts.runtime, CONTROLLERS, added, "two")
    _, second = parts.requests.of("patch", "Controller")
    assert second["metadata"]["finalizers"] == ["one", "two"]
    assert second["metadata"]["resourceVersion"] == added["metadata"]["resourceVersion"]
    assert added["metadata"]["resourceVersion"] != manifest["metadata"]["resourceVersion"]


async def test_a_resource_that_nodesets_still_need_keeps_its_finalizer_and_names_them() -> None:
    parts = Parts()
    manifest = parts.custom("Controller", "slurm", {}, finalizers=[IN_USE])
    await remove_finalizer_unless_used(parts.runtime, CONTROLLERS, manifest, ["a", "b"])
    assert parts.requests.of("patch", "Controller") == []
    ready = parts.condition("Controller")
    assert (ready["status"], ready["reason"]) == ("False", "InUse")
    assert "a, b" in ready["message"]
    await remove_finalizer_unless_used(parts.runtime, CONTROLLERS, manifest, [])
    assert parts.requests.of("patch", "Controller")[0]["metadata"]["finalizers"] == []


async def test_finalizers_that_were_written_are_not_written_again_before_the_watch_shows_them() -> (
    None
):
    parts = Parts()
    manifest = parts.custom("Controller", "slurm", {}, finalizers=["one", "two"])
    await remove_finalizers(parts.runtime, CONTROLLERS, manifest, {"one"})
    await remove_finalizers(parts.runtime, CONTROLLERS, manifest, {"one"})
    assert len(parts.requests.of("patch", "Controller")) == 1
    await remove_finalizers(parts.runtime, CONTROLLERS, manifest, {"one", "two"})
    _, last = parts.requests.of("patch", "Controller")
    assert last["metadata"]["finalizers"] == []
    assert int(last["metadata"]["resourceVersion"]) > int(manifest["metadata"]["resourceVersion"])


async def test_finalizers_of_a_former_object_of_the_same_name_are_not_those_of_its_successor() -> (
    None
):
    parts = Parts()
    manifest = parts.custom("Controller", "slurm", {})
    await add_finalizer(parts.runtime, CONTROLLERS, manifest, IN_USE)
    successor = {**manifest, "metadata": {**manifest["metadata"], "uid": "another"}}
    await add_finalizer(parts.runtime, CONTROLLERS, successor, IN_USE)
    assert len(parts.requests.of("patch", "Controller")) == 2
