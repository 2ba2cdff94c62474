"""One memory of our newest write of an object, for its status and its finalizers."""

import asyncio
from typing import Any

import pytest

from sidecars.custom_resources import CONTROLLERS, IN_USE
from sidecars.kube import Manifest, NotFound
from sidecars.operator.runtime.finalizers import add_finalizer, remove_finalizers
from sidecars.operator.runtime.own_writes import OwnWrites
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import Ready
from tests.support.operator_parts import Parts

pytestmark = pytest.mark.looptime
STARTING = [Condition("Ready", "False", Ready.STARTING, "")]


def manifest(version: int, uid: str = "u", **more: Any) -> Manifest:
    metadata = {"namespace": "slurm", "name": "slurm", "uid": uid, "resourceVersion": str(version)}
    return {"kind": "Controller", "metadata": metadata | more.pop("metadata", {}), **more}


async def answer(stored: Manifest) -> Manifest:
    return stored


async def test_the_answer_to_a_write_of_the_status_also_shows_the_finalizers() -> None:
    own = OwnWrites()
    stored = manifest(7, metadata={"finalizers": ["theirs"]}, status={"phase": "new"})
    await own.write(manifest(5), answer(stored), {"phase": "new"})
    newest = own.newest(manifest(5, spec={"a": 1}))
    assert newest["metadata"]["finalizers"] == ["theirs"]
    assert newest["metadata"]["resourceVersion"] == "7"
    assert (newest["status"], newest["spec"]) == ({"phase": "new"}, {"a": 1})


async def test_what_the_watch_shows_later_is_newer_and_is_not_copied() -> None:
    own = OwnWrites()
    await own.write(manifest(5), answer(manifest(7)), {})
    shown = manifest(7)
    assert own.newest(shown) is shown


async def test_the_answer_to_a_write_of_finalizers_does_not_hide_another_writers_status() -> None:
    own = OwnWrites()
    await own.write(manifest(5), answer(manifest(9, status={"by": "another"})))
    assert not own.is_reported(manifest(8, status={"by": "another"}))


async def test_an_answer_that_arrives_after_a_newer_one_changes_nothing() -> None:
    own, late = OwnWrites(), asyncio.get_running_loop().create_future()
    first = asyncio.create_task(own.write(manifest(5), late))
    await asyncio.sleep(0)
    await own.write(manifest(5), answer(manifest(9, metadata={"finalizers": ["one", "two"]})))
    late.set_result(manifest(7, metadata={"finalizers": ["one"]}))
    await first
    assert own.newest(manifest(5))["metadata"]["finalizers"] == ["one", "two"]


async def test_an_object_that_was_deleted_before_the_answer_arrives_is_not_remembered() -> None:
    own, late = OwnWrites(), asyncio.get_running_loop().create_future()
    writing = asyncio.create_task(own.write(manifest(5), late, {"phase": "new"}))
    await asyncio.sleep(0)
    own.forget(manifest(6))
    late.set_result(manifest(7, status={"phase": "new"}))
    assert (await writing)["metadata"]["resourceVersion"] == "7"
    assert own.newest(manifest(5)) == manifest(5)


async def test_an_object_that_is_not_found_is_forgotten() -> None:
    async def missing() -> Manifest:
        raise NotFound(404, "NotFound", "slurm")

    own = OwnWrites()
    await own.write(manifest(5), answer(manifest(7)))
    with pytest.raises(NotFound):
        await own.write(manifest(5), missing(), {})
    assert own.newest(manifest(5)) == manifest(5)


async def test_another_object_of_the_name_has_none_of_the_writes() -> None:
    own = OwnWrites()
    await own.write(manifest(5), answer(manifest(7, status={"phase": "new"})), {"phase": "new"})
    successor = manifest(6, uid="another", status={"phase": "new"})
    assert own.newest(successor) is successor
    assert not own.is_reported(successor)


async def test_a_finalizer_is_written_by_the_version_of_the_last_write_of_the_status() -> None:
    parts = Parts()
    found = parts.custom("Controller", "slurm", {}, finalizers=["theirs"])
    await parts.runtime.status.report(CONTROLLERS, found, STARTING)
    reported = parts.requests.custom["Controller", "slurm"]["metadata"]["resourceVersion"]
    await add_finalizer(parts.runtime, CONTROLLERS, found, IN_USE)
    [patch] = parts.requests.of("patch", "Controller")
    assert patch["metadata"] == {"finalizers": ["theirs", IN_USE], "resourceVersion": reported}


async def test_an_object_that_has_the_finalizer_is_not_copied() -> None:
    parts = Parts()
    found = parts.custom("Controller", "slurm", {}, finalizers=[IN_USE])
    assert await add_finalizer(parts.runtime, CONTROLLERS, found, IN_USE) is found


async def test_a_finalizer_that_was_removed_is_added_again_though_the_watch_still_shows_it() -> (
    None
):
    parts = Parts()
    found = parts.custom("Controller", "slurm", {}, finalizers=[IN_USE])
    await remove_finalizers(parts.runtime, CONTROLLERS, found, {IN_USE})
    added = await add_finalizer(parts.runtime, CONTROLLERS, found, IN_USE)
    assert added["metadata"]["finalizers"] == [IN_USE]
    assert len(parts.requests.of("patch", "Controller")) == 2
