"""The operator is stopped and its finalizers are removed: `sidecars.uninstall.main`."""

from typing import Any, cast

import pytest

from sidecars.custom_resources import IN_USE, WORKERS_TERMINATE_FIRST
from sidecars.kube import Client, Forbidden, Manifest, NotFound, Resource
from sidecars.uninstall.main import STOP_SECONDS, release

RUNNING = {"metadata": {"generation": 2}, "status": {"observedGeneration": 2, "replicas": 1}}
STOPPED = {"metadata": {"generation": 2}, "status": {"observedGeneration": 2}}


def missing(what: str) -> NotFound:
    return NotFound(404, "NotFound", what)


class Cluster:
    """In place of a client. A Deployment stops `stops_after` reads; None: it doesn't exist."""

    def __init__(self, stops_after: int | None = 0) -> None:
        self.stops_after = stops_after
        self.items: dict[str, list[Manifest]] = {}
        self.namespaces: dict[str, Manifest] = {}
        self.forbidden: set[str | None] = set()
        self.written: list[tuple[str, str, Any]] = []
        self.now = 0.0

    def put(self, kind: str, name: str, *finalizers: str) -> None:
        metadata = {"namespace": "slurm", "name": name, "finalizers": [*finalizers]}
        self.items.setdefault(kind, []).append({"metadata": metadata})

    async def get(self, resource: Resource, _: str | None, name: str) -> Manifest:
        if resource.kind == "Namespace":
            if name not in self.namespaces:
                raise missing(name)
            return self.namespaces[name]
        assert self.stops_after is not None
        self.stops_after -= 1
        return RUNNING if self.stops_after >= 0 else STOPPED

    async def list(self, resource: Resource, namespace: str | None) -> tuple[list[Manifest], str]:
        if namespace in self.forbidden:
            raise Forbidden(403, "Forbidden", resource.plural)
        if resource.kind not in self.items:
            raise missing(resource.plural)
        return self.items[resource.kind], "1"

    async def merge_patch(self, resource: Resource, _: str, name: str, patch: Any) -> None:
        if resource.kind == "Deployment" and self.stops_after is None:
            raise missing(name)
        self.written.append((resource.kind, name, patch))

    async def delete(self, resource: Resource, _: str, name: str) -> None:
        self.written.append((resource.kind, name, None))

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def release(self, *watched: str) -> None:
        client = cast("Client", self)
        await release(client, "slinky", "second", watched, clock=lambda: self.now, sleep=self.sleep)

    @property
    def finalizers(self) -> dict[str, Any]:
        """What was written of the finalizers of custom resources, by name."""
        return {
            name: it["metadata"]["finalizers"]
            for _, name, it in self.written
            if it and "metadata" in it
        }


async def test_the_operator_is_stopped_before_its_finalizers_are_removed_and_others_stay() -> None:
    cluster = Cluster(stops_after=3)
    cluster.put("Controller", "slurm", IN_USE)
    cluster.put("RestApi", "api", "example.com/other", IN_USE)
    cluster.put("NodeSet", "slinky", WORKERS_TERMINATE_FIRST)
    cluster.put("NodeSet", "foreign", "example.com/other")
    await cluster.release()
    assert cluster.written[0] == ("Deployment", "second", {"spec": {"replicas": 0}})
    assert cluster.now == 1.5
    assert cluster.finalizers == {"slurm": None, "api": ["example.com/other"], "slinky": None}


async def test_only_the_lease_of_the_stopped_operator_is_deleted() -> None:
    cluster = Cluster()
    await cluster.release()
    assert [item for item in cluster.written if item[0] == "Lease"] == [("Lease", "second", None)]


async def test_an_operator_that_does_not_stop_keeps_its_finalizers() -> None:
    cluster = Cluster(stops_after=1000)
    cluster.put("Controller", "slurm", IN_USE)
    with pytest.raises(TimeoutError, match="still has pods"):
        await cluster.release()
    assert cluster.now >= STOP_SECONDS
    assert cluster.finalizers == {}


async def test_neither_a_missing_deployment_nor_a_missing_definition_is_a_failure() -> None:
    cluster = Cluster(stops_after=None)
    cluster.put("NodeSet", "slinky", WORKERS_TERMINATE_FIRST)
    await cluster.release()
    assert cluster.finalizers == {"slinky": None}


async def test_only_a_namespace_that_is_being_deleted_may_refuse_its_list() -> None:
    cluster = Cluster()
    cluster.put("Controller", "slurm", IN_USE)
    cluster.forbidden = {"gone"}
    await cluster.release("gone", "slurm")
    assert cluster.finalizers == {"slurm": None}
    cluster.namespaces["gone"] = {"metadata": {"name": "gone"}}
    with pytest.raises(Forbidden):
        await cluster.release("gone", "slurm")
