"""Topology and features of a worker: `sidecars.operator.worker_pod.topology`."""

from typing import Any

import pytest

from sidecars.contract.annotations import TOPOLOGY
from sidecars.contract.extra import PodFacts, encode
from sidecars.operator.worker_pod import topology
from sidecars.operator.worker_pod.topology import TRY_AGAIN
from sidecars.slurm.errors import Rejected
from tests.support.operator_parts import Parts, SlurmConnection
from tests.support.virtual_time import run
from tests.support.world.kubelets import NODE
from tests.support.world.world import World, world

pytestmark = pytest.mark.looptime
FEATURES = "features.slinky.slurm.net/spec"


class Scene:
    """A worker pod on Kubernetes node kube-1, whose annotations are given, and its Slurm node."""

    def __init__(self, annotations: dict[str, str] | None, *, registered: str = "slinky-0", **spec: Any) -> None:
        self.slurm = SlurmConnection()
        self.parts = Parts(connect=lambda *_: self.slurm)
        self.nodeset = self.parts.custom("NodeSet", "slinky", {"controllerRef": {"name": "slurm"}} | spec)
        self.pod = self.parts.pod("slinky-0")
        if annotations is not None:
            self.parts.kube_node("kube-1", annotations=annotations)
        self.slurm.model.node_register("slinky-0", extra=encode(PodFacts(registered)), features=["gpu"])

    async def send(self) -> float | None:
        cluster = await self.parts.connect()
        try:
            node = cluster.poller.nodes.get("slinky-0")
            return await topology.send(self.parts.runtime, self.pod, self.nodeset, cluster, node)
        finally:
            await self.parts.runtime.clusters.close()

    @property
    def stamped(self) -> list[str]:
        patches = self.parts.requests.of("patch", "Pod")
        return [patch["metadata"]["annotations"][TOPOLOGY] for patch in patches]


async def test_a_pod_that_is_not_registered_yet_is_stamped_with_the_topology_of_its_kubernetes_node() -> None:
    scene = Scene({TOPOLOGY: " tree:rack1 "})
    await topology.stamp(scene.parts.runtime, scene.pod, scene.nodeset)
    assert scene.stamped == ["tree:rack1"]


async def test_nothing_is_stamped_while_the_kubernetes_node_is_unknown() -> None:
    scene = Scene(None)
    await topology.stamp(scene.parts.runtime, scene.pod, scene.nodeset)
    assert scene.stamped == []


async def test_the_nodesets_template_says_where_the_kubernetes_node_does_not() -> None:
    template = {"metadata": {"annotations": {TOPOLOGY: "tree:default"}}}
    scene = Scene({}, template=template)
    await topology.stamp(scene.parts.runtime, scene.pod, scene.nodeset)
    assert scene.stamped == ["tree:default"]


async def test_a_nodeset_that_sets_the_topology_itself_ignores_the_kubernetes_node() -> None:
    scene = Scene({TOPOLOGY: "tree:rack1"}, extraConf="Topology=tree:own")
    await topology.stamp(scene.parts.runtime, scene.pod, scene.nodeset)
    assert scene.stamped == [""]


async def test_slurm_gets_the_topology_and_features_and_then_the_pod_is_stamped() -> None:
    scene = Scene({TOPOLOGY: "tree:rack1", FEATURES: "fast, b@d"})
    assert await scene.send() is None
    node = scene.slurm.model.nodes["slinky-0"]
    assert node.topology == "tree:rack1"
    assert set(node.features) == {"gpu", "k8s/fast"}
    assert scene.stamped == ["tree:rack1"]


async def test_the_record_of_an_earlier_pod_gets_nothing() -> None:
    scene = Scene({TOPOLOGY: "tree:rack1", FEATURES: "fast"}, registered="former")
    await scene.send()
    node = scene.slurm.model.nodes["slinky-0"]
    assert (node.topology, node.features) == ("", ["gpu"])


async def test_a_topology_that_slurm_refuses_is_tried_again_later_and_the_pod_is_not_stamped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene({TOPOLOGY: "tree:rack1"})
    cluster = await scene.parts.connect()

    async def refuse(*_: object, **__: object) -> None:
        raise Rejected("POST nodes/", 422, ())

    monkeypatch.setattr(cluster.poller, "update", refuse)
    node = cluster.poller.nodes["slinky-0"]
    assert await topology.send(scene.parts.runtime, scene.pod, scene.nodeset, cluster, node) == TRY_AGAIN
    assert scene.stamped == []
    await scene.parts.runtime.clusters.close()


def annotate(w: World, text: str) -> None:
    [pod] = w.pods()
    w.api.change(NODE, "", pod["spec"]["nodeName"], {"metadata": {"annotations": {FEATURES: text}}})


def test_a_feature_that_an_administrator_has_just_set_is_kept() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            w.nodeset(replicas=1)
            # Nothing has happened for so long that Slurm is polled seldom.
            await w.run(90)
            [record] = w.slurms["slurm", "slurm"].nodes.values()
            record.features, record.active_features = ["slinky", "fast"], ["slinky"]
            w.slurms["slurm", "slurm"]._touch(record.name)
            annotate(w, "zone-a")
            await w.until("the annotation's feature is set", lambda: "k8s/zone-a" in record.features)
            assert sorted(record.features) == ["fast", "k8s/zone-a", "slinky"]
            assert sorted(record.active_features) == ["k8s/zone-a", "slinky"]

    run(scenario())


def test_only_active_features_are_written_where_only_they_differ() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            w.nodeset(replicas=1)
            await w.run(20)
            annotate(w, "zone-a")
            slurm = w.slurms["slurm", "slurm"]
            [record] = slurm.nodes.values()
            await w.until("the annotation's feature is set", lambda: "k8s/zone-a" in record.active_features)
            await w.run(5)
            slurm.calls.clear()
            record.active_features = [it for it in record.active_features if it != "k8s/zone-a"]
            slurm._touch(record.name)
            await w.until("it is active again", lambda: "k8s/zone-a" in record.active_features)
            bodies = [call.body for call in slurm.requests("POST", "nodes/")]
            assert [sorted(body) for body in bodies if body] == [["features_act", "name"]]

    run(scenario())
