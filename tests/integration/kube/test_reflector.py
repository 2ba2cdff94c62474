"""The reflector on a real API server that is killed, compacted and given a new certificate under
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sidecars.kube import CONFIG_MAPS, Client, Reflector, load_credentials
from sidecars.objects import ConfigMap, PartialObjectMetadata
from tests.integration.kube.cut import Relay, compact
from tests.support.config_maps import config_map, following, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.timeout(120, func_only=True)


async def test_changes_arrive_as_they_happen(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map(namespace, "a"))
    reflector = Reflector(client, CONFIG_MAPS, namespaces=[namespace], type=ConfigMap)
    async with following(reflector) as events:
        await client.create(CONFIG_MAPS, config_map(namespace, "b"))
        await client.merge_patch(CONFIG_MAPS, namespace, "a", {"data": {"k": "v"}})
        await client.delete(CONFIG_MAPS, namespace, "a")
        want = [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]
        await until(lambda: events == want, f"{want}")


async def test_an_object_that_stops_matching_the_selector_is_an_event_of_its_deletion(
    client: Client, namespace: str
) -> None:
    manifest = config_map(namespace, "a")
    manifest["metadata"]["labels"] = {"ours": "yes"}
    await client.create(CONFIG_MAPS, manifest)
    await client.create(CONFIG_MAPS, config_map(namespace, "b"))
    reflector = Reflector(client, CONFIG_MAPS, type=ConfigMap, label_selector="ours")
    async with following(reflector) as events:
        await client.merge_patch(
            CONFIG_MAPS, namespace, "a", {"metadata": {"labels": {"ours": None}}}
        )
        await until(lambda: events == [("ADDED", "a"), ("DELETED", "a")], "the deletion")


async def test_metadata_only_brings_what_the_whole_object_has_but_no_contents(
    client: Client, namespace: str
) -> None:
    manifest = config_map(namespace, "a")
    manifest["metadata"]["labels"] = {"app": "a"}
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
    manifest["metadata"]["ownerReferences"] = [owner]
    await client.create(CONFIG_MAPS, manifest)
    reflector = Reflector(client, CONFIG_MAPS, namespaces=[namespace], type=PartialObjectMetadata)
    async with following(reflector) as events:
        await client.merge_patch(CONFIG_MAPS, namespace, "a", {"data": {"k": "v"}})
        await client.create(CONFIG_MAPS, config_map(namespace, "b"))
        await client.delete(CONFIG_MAPS, namespace, "b")
        want = [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "b")]
        await until(lambda: events == want, f"{want}")
        whole = (await client.get(CONFIG_MAPS, namespace, "a", ConfigMap)).metadata
        stored = reflector.store.get(namespace, "a")
        assert isinstance(stored, PartialObjectMetadata)
        found = stored.metadata
        assert (found.uid, found.resource_version) == (whole.uid, whole.resource_version)
        assert (found.labels, found.owner_references) == (whole.labels, whole.owner_references)
        assert not reflector.store.malformed


async def test_changes_during_a_broken_connection_are_caught_up(
    control_plane: ControlPlane, client: Client, namespace: str, tmp_path: Path
) -> None:
    await client.create(CONFIG_MAPS, config_map(namespace, "a"))
    async with (
        Relay(control_plane, tmp_path) as relay,
        Client.connect(load_credentials(relay.kubeconfig)) as through,
    ):
        reflector = Reflector(through, CONFIG_MAPS, namespaces=[namespace], type=ConfigMap)
        async with following(reflector) as events:
            relay.cut()
            await until(lambda: reflector.fault is not None, "the reflector to notice")
            await client.delete(CONFIG_MAPS, namespace, "a")
            await client.create(CONFIG_MAPS, config_map(namespace, "b"))
            relay.mend()
            await until(
                lambda: events == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b")],
                "the changes, in order",
            )
            assert reflector.fault is None


@pytest.mark.parametrize("metadata_only", [False, True], ids=["whole", "metadata"])
async def test_the_cache_survives_a_killed_compacted_and_newly_certified_server(
    control_plane: ControlPlane, client: Client, namespace: str, tmp_path: Path, metadata_only: bool
) -> None:
    for letter in "abc":
        await client.create(CONFIG_MAPS, config_map(namespace, letter))
    async with (
        Relay(control_plane, tmp_path) as relay,
        Client.connect(load_credentials(relay.kubeconfig)) as through,
    ):
        reflector: Reflector[Any]
        if metadata_only:
            reflector = Reflector(
                through, CONFIG_MAPS, namespaces=[namespace], type=PartialObjectMetadata
            )
        else:
            reflector = Reflector(through, CONFIG_MAPS, namespaces=[namespace], type=ConfigMap)
        async with following(reflector) as events:
            relay.cut()
            await client.delete(CONFIG_MAPS, namespace, "a")
            await client.delete(CONFIG_MAPS, namespace, "b")
            await client.create(CONFIG_MAPS, config_map(namespace, "b", made="again"))
            await client.create(CONFIG_MAPS, config_map(namespace, "d"))
            restart(control_plane)
            asked = relay.connections
            relay.mend()
            want = {"b", "c", "d"}
            await until(
                lambda: {item.metadata.name for item in reflector.store.values()} == want, f"{want}"
            )
            assert relay.connections - asked <= 5
            assert events.count(("DELETED", "a")) == 1
            assert events.count(("DELETED", "b")) == 1
            await client.create(CONFIG_MAPS, config_map(namespace, "e"))
            await until(
                lambda: reflector.store.get(namespace, "e") is not None, "a change after the relist"
            )


async def test_no_event_is_lost_when_the_api_server_is_killed_during_a_watch(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    reflector = Reflector(client, CONFIG_MAPS, namespaces=[namespace], type=ConfigMap)
    async with following(reflector) as events:
        control_plane.kill_apiserver()
        await until(lambda: reflector.fault is not None, "the reflector to notice")
        control_plane.start_apiserver()
        await client.create(CONFIG_MAPS, config_map(namespace, "a"))
        await until(lambda: events == [("ADDED", "a")], "the new object")


def restart(plane: ControlPlane) -> None:
    """Kill the API server, compact etcd, and start it with another certificate of the same
    authority.

    Not in a thread of its own: what that starts dies with it.
    """
    plane.kill_apiserver()
    compact(plane)
    before = plane.authority.issue("apiserver", "kube-apiserver", hosts=plane.place.hosts)[
        0
    ].read_bytes()
    for suffix in ("crt", "key"):
        (plane.authority.folder / f"apiserver.{suffix}").unlink()
    plane.start_apiserver()
    assert (
        plane.authority.issue("apiserver", "kube-apiserver", hosts=plane.place.hosts)[
            0
        ].read_bytes()
        != before
    )
