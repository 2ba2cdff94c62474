"""Which resources are reconciled at once."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sidecars.kube import Client
from sidecars.objects import ObjectMeta, Pod
from sidecars.operator.main import assemble, kinds, work
from sidecars.operator.runtime.real_world import RealWorld
from sidecars.operator.settings import Settings
from sidecars.workloads import names, structure
from sidecars.workloads.facts import Site
from tests.support.kube_double import KubeDouble

if TYPE_CHECKING:
    from sidecars.operator.runtime.queues import Key

pytestmark = pytest.mark.looptime

SITE = Site(
    workloads=structure.load(structure.folder(None)),
    sidecars_image="sidecars",
    cluster_domain="cluster.local",
)


async def started(kind_name: str, settings: Settings) -> set[str]:
    """Of 20 resources of each of three Slurm clusters, those whose pass begins while two of the
    clusters hang.
    """
    begun: set[str] = set()

    async def reconcile(key: Key) -> None:
        begun.add(key[1])
        if not key[1].startswith("sound"):
            await asyncio.Event().wait()

    async with KubeDouble() as server, Client.connect(server.credentials) as client:
        operator = assemble(client, settings, SITE, RealWorld())
        [kind] = [
            replace(kind, reconcile=reconcile) for kind in kinds(operator) if kind.name == kind_name
        ]
        for cluster in ("bad", "worse", "sound"):
            for number in range(20):
                name = f"{cluster}-{number}"
                metadata = {"namespace": "slurm", "name": name, "uid": name}
                operator.runtime.caches.nodesets.store.put(
                    {"metadata": metadata, "spec": {"controllerRef": {"name": cluster}}}
                )
                labels = {names.CLUSTER: cluster}
                operator.runtime.caches.pods.store.put(
                    Pod(ObjectMeta(name=name, namespace="slurm", uid=name, labels=labels))
                )
                kind.queue.add(("slurm", name))
        working = asyncio.create_task(work(kind))
        await asyncio.sleep(10)
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
    return begun


@pytest.mark.parametrize("kind", ["NodeSet", "Pod"])
async def test_a_slurmrestd_that_hangs_delays_no_resource_of_another_cluster(kind: str) -> None:
    assert {f"sound-{number}" for number in range(20)} <= await started(kind, Settings())


async def test_as_many_nodesets_of_each_slurm_cluster_are_reconciled_at_once_as_is_set() -> None:
    begun = await started("NodeSet", Settings(nodeset_workers=3))
    assert [
        len([name for name in begun if name.startswith(cluster)]) for cluster in ("bad", "worse")
    ] == [3, 3]


async def test_of_controllers_as_many_are_reconciled_at_once_as_is_set() -> None:
    assert len(await started("Controller", Settings(controller_workers=3))) == 3
