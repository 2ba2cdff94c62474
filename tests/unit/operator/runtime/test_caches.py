"""What the operator watches: `sidecars.operator.runtime.caches`."""

import asyncio
from typing import Any

import pytest

from sidecars.kube import CONFIG_MAPS, DEPLOYMENTS, PODS, SECRETS, SERVICE_MONITORS, Client
from sidecars.operator.runtime.apply import APPLIED
from sidecars.operator.runtime.caches import Caches
from tests.support.kube_double import KubeDouble
from tests.support.operator_parts import NAMESPACE, Parts
from tests.support.virtual_time import run
from tests.support.world.world import CUSTOM_RESOURCES, world

pytestmark = pytest.mark.looptime


async def requests(*namespaces: str) -> list[tuple[str, dict[str, str], str]]:
    """Path, query and accepted form of each list that is asked for."""
    async with KubeDouble() as server, Client.connect(server.credentials) as client:
        caches = Caches.of(client, namespaces)
        running = [asyncio.create_task(reflector.run()) for reflector in caches]
        await asyncio.gather(*(reflector.wait_synced(30) for reflector in caches))
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return [
            (call.path, call.query, call.headers.get("Accept", ""))
            for call in server.calls
            if "watch" not in call.query
        ]


async def test_secrets_and_config_maps_of_others_are_watched_by_their_metadata_only() -> None:
    found = await requests()
    for resource in (SECRETS, CONFIG_MAPS):
        whole = [
            query
            for path, query, form in found
            if path == resource.path() and "PartialObjectMetadata" not in form
        ]
        assert whole
        assert all(
            query["labelSelector"] == "app.kubernetes.io/managed-by=slurm-operator"
            for query in whole
        )


async def test_only_pods_of_slurm_are_watched() -> None:
    selectors = {
        query["labelSelector"] for path, query, _ in await requests() if path == PODS.path()
    }
    assert selectors == {
        f"app.kubernetes.io/name={name}" for name in ("slurmd", "slurmctld", "login")
    }


async def test_with_named_namespaces_nothing_is_listed_outside_of_them() -> None:
    paths = {path for path, _, _ in await requests("a", "b")}
    everywhere = {path for path in paths if "/namespaces/" not in path}
    assert {path.rsplit("/", 1)[-1] for path in everywhere} <= {"nodes"}
    assert {path.split("/namespaces/")[1].split("/")[0] for path in paths - everywhere} == {
        "a",
        "b",
    }


def test_the_operator_starts_without_some_crds_and_finds_their_objects_when_they_exist() -> None:
    async def scenario() -> None:
        async with world(1) as w:
            await w.run(10)
            w.nodeset(replicas=1)
            w.job(1, 100)
            await w.run(20)
            w.delete_crds("CRD all", CUSTOM_RESOURCES, 5)
            await w.run(5)
            w.crash()
            # Until the job has ended, only the CRDs of kinds without objects are deleted.
            await w.until("the CRDs to be deleted and created again", lambda: not w.returning, 150)
            await w.until("the pod of the new NodeSet", lambda: len(w.pods()) == 1, 60)

    run(scenario())


async def test_each_kind_that_the_operator_applies_has_a_cache_of_that_kind() -> None:
    caches = Parts().runtime.caches
    assert set(caches.applied()) == set(APPLIED)
    assert all(reflector.resource.kind == kind for kind, reflector in caches.applied().items())


async def test_all_caches_run_and_none_twice() -> None:
    caches = Parts().runtime.caches
    every = list(caches)
    assert len({id(reflector) for reflector in every}) == len(every)
    assert {id(it) for it in (*caches.applied().values(), *caches.custom_resources())} <= {
        id(it) for it in every
    }


async def test_an_applied_object_is_found_as_it_was_last_seen() -> None:
    parts = Parts()
    live = parts.runtime.caches.live
    assert live(DEPLOYMENTS, NAMESPACE, "d") is None
    manifest: Any = parts.workload(DEPLOYMENTS, "d", "c", "image")
    assert live(DEPLOYMENTS, NAMESPACE, "d") == manifest
    parts.secret("s", {"key": b"\x00value"}, own=True)
    secret = live(SECRETS, NAMESPACE, "s")
    assert secret is not None
    assert (secret["kind"], secret["data"]) == ("Secret", {"key": "AHZhbHVl"})
    assert live(SERVICE_MONITORS, NAMESPACE, "m") is None
