"""The ControllerRevisions of a NodeSet: `sidecars.operator.nodeset.stored_revisions`."""

from typing import Any

import pytest

from sidecars.kube import AlreadyExists, Manifest
from sidecars.operator.nodeset import rendering, stored_revisions
from sidecars.workloads.resources import Controller, read
from tests.support.operator_parts import Parts
from tests.unit.operator.nodeset.builders import begin

pytestmark = pytest.mark.looptime
TAKEN = AlreadyExists(409, "AlreadyExists", "taken")


class Scene:
    """A NodeSet whose revisions are stored as the API server would."""

    def __init__(self) -> None:
        self.parts = Parts()
        self.parts.keys()
        self.controller = read(Controller, self.parts.controller())

    async def current(self, image: str, **status: Any) -> tuple[str, int]:
        """The hash of the revision with this image, and the count of collisions."""
        this = begin(self.parts, status or None, slurmd={"image": image})
        facts = await self.parts.runtime.lookup.facts(self.controller, this.manifest)
        found, collisions = await stored_revisions.current(
            this, rendering.inputs(this.nodeset, self.controller, facts)
        )
        return found.hash, collisions

    @property
    def created(self) -> list[Manifest]:
        return self.parts.requests.of("create", "ControllerRevision")

    def watch_shows(self, manifest: Manifest, **metadata: Any) -> None:
        metadata = (
            manifest["metadata"]
            | {"uid": manifest["metadata"]["name"], **self.parts._version()}
            | metadata
        )
        self.parts.runtime.caches.controller_revisions.store.put({**manifest, "metadata": metadata})


async def test_a_revision_is_stored_once_and_numbered_after_the_newest() -> None:
    scene = Scene()
    first, _ = await scene.current("slurmd:1")
    scene.watch_shows(scene.created[0])
    assert await scene.current("slurmd:1") == (first, 0)
    assert len(scene.created) == 1
    second, _ = await scene.current("slurmd:2")
    assert second != first
    assert [it["revision"] for it in scene.created] == [1, 2]


async def test_a_former_revision_that_is_asked_for_again_becomes_the_newest() -> None:
    scene = Scene()
    first, _ = await scene.current("slurmd:1")
    scene.watch_shows(scene.created[0])
    await scene.current("slurmd:2")
    scene.watch_shows(scene.created[1])
    assert await scene.current("slurmd:1") == (first, 0)
    deleted = [name for verb, _, name in scene.parts.requests.made if verb == "delete"]
    assert deleted == [scene.created[0]["metadata"]["name"]]
    assert scene.created[2]["revision"] == 3
    assert scene.created[2]["data"] == scene.created[0]["data"]


async def test_a_revision_that_the_cache_does_not_show_yet_is_used() -> None:
    scene = Scene()
    first, _ = await scene.current("slurmd:1")
    stored = scene.created[0]
    scene.parts.requests.stored["ControllerRevision", stored["metadata"]["name"]] = stored
    scene.parts.requests.refusals["create ControllerRevision"] = TAKEN
    assert await scene.current("slurmd:1") == (first, 0)


async def test_a_name_that_another_owner_has_is_left_alone_and_counted_as_a_collision() -> None:
    scene = Scene()
    first, _ = await scene.current("slurmd:1")
    stored = scene.created[0]
    theirs = stored["metadata"] | {
        "ownerReferences": [{"kind": "NodeSet", "name": "other", "uid": "other"}]
    }
    scene.parts.requests.stored["ControllerRevision", stored["metadata"]["name"]] = {
        **stored,
        "metadata": theirs,
    }
    create, tried = scene.parts.requests.create, list[str]()

    async def taken_once(resource: Any, manifest: Manifest, type: Any = dict) -> Manifest:
        tried.append(manifest["metadata"]["name"])
        if manifest["metadata"]["name"] == stored["metadata"]["name"]:
            raise TAKEN
        return await create(resource, manifest, type)

    scene.parts.requests.create = taken_once  # type: ignore[method-assign]  # the server, not the client
    second, collisions = await scene.current("slurmd:1")
    assert (second != first, collisions) == (True, 1)
    assert len(tried) == 2


async def test_an_object_without_a_revision_of_ours_is_ignored() -> None:
    scene = Scene()
    await scene.current("slurmd:1")
    scene.watch_shows({**scene.created[0], "data": {}}, name="theirs")
    scene.watch_shows(scene.created[0])
    this = begin(scene.parts)
    assert [it.name for it in stored_revisions.stored_of(scene.parts.runtime, this.nodeset)] == [
        scene.created[0]["metadata"]["name"]
    ]
