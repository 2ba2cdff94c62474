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

    def __init__(
        self, annotations: dict[str, str] | None, *, registered: str = "slinky-0", **spec: Any
    ) -> None:
        self.slurm = SlurmConnection()
        self.topologies: list[Any] = []
        self.parts = Parts(connect=lambda *_: self.slurm)
        self.nodeset = self.parts.custom(
            "NodeSet", "slinky", {"controllerRef": {"name": "slurm"}} | spec
        )
        self.pod = self.parts.pod("slinky-0")
        if annotations is not None:
            self.parts.kube_node("kube-1", annotations=annotations)
        self.slurm.model.node_register(
            "slinky-0", extra=encode(PodFacts(registered)), features=["gpu"]
        )

    async def send(self) -> float | None:
        cluster = await self.parts.connect(topologies=self.topologies)
        try:
            node = cluster.poller.nodes.get("slinky-0")
            return await topology.send(self.parts.runtime, self.pod, self.nodeset, cluster, node)
        finally:
            await self.parts.runtime.clusters.close()

    @property
    def stamped(self) -> list[str]:
        patches = self.parts.requests.of("patch", "Pod")
        return [patch["metadata"]["annotations"][TOPOLOGY] for patch in patches]


async def test_an_unregistered_pod_is_stamped_with_the_topology_of_its_kubernetes_node() -> None:
    scene = Scene({TOPOLOGY: " tree:rack1 "})
    await topology.stamp(scene.parts.runtime, scene.pod, scene.nodeset)
    assert scene.stamped == ["tree:rack1"]


async def test_nothing_is_stamped_while_the_kubernetes_node_is_unknown() -> None:
    scene = Scene(None)
    await topology.stamp(scene.parts.runtime, scene.pod, scene.nodeset)
    assert scene.stamped == []


async def test_the_nodesets_template_counts_where_the_kubernetes_node_has_none() -> None:
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


LONG = "tree:s1234567890123456789012345"


@pytest.mark.parametrize(
    ("stamped", "stays"), [(None, ""), ("tree:rack1", "tree:rack1"), (LONG, "")]
)
async def test_a_number_that_would_end_slurmctld_is_not_sent_and_the_pod_shows_why(
    stamped: str | None, stays: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene({TOPOLOGY: LONG})
    events: list[str] = []
    monkeypatch.setattr(
        scene.parts.runtime.events, "emit", lambda *arguments: events.append(arguments[4])
    )
    if stamped is not None:
        scene.pod = scene.parts.pod("slinky-0", meta={"annotations": {TOPOLOGY: stamped}})
    scene.slurm.model.nodes["slinky-0"].topology = stays
    assert await scene.send() == TRY_AGAIN
    assert scene.slurm.model.nodes["slinky-0"].topology == stays
    assert scene.stamped == ([] if stamped == stays else [stays])
    [event] = events
    name = LONG.removeprefix("tree:")
    assert f"the annotation {TOPOLOGY}: {name!r} ends in 19 digits or more" in event
    if stamped is None:
        await topology.stamp(scene.parts.runtime, scene.pod, scene.nodeset)
        assert scene.stamped == ["", ""]


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
    assert (
        await topology.send(scene.parts.runtime, scene.pod, scene.nodeset, cluster, node)
        == TRY_AGAIN
    )
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
            await w.until(
                "the annotation's feature is set", lambda: "k8s/zone-a" in record.features
            )
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
            await w.until(
                "the annotation's feature is set", lambda: "k8s/zone-a" in record.active_features
            )
            await w.run(5)
            slurm.calls.clear()
            record.active_features = [it for it in record.active_features if it != "k8s/zone-a"]
            slurm._touch(record.name)
            await w.until("it is active again", lambda: "k8s/zone-a" in record.active_features)
            bodies = [call.body for call in slurm.requests("POST", "nodes/")]
            assert [sorted(body) for body in bodies if body] == [["features_act", "name"]]

    run(scenario())


FABRIC = {"name": "fabric", "clusterDefault": False, "tree": {"labels": ["zone", "rack"]}}
NVLINK = {"name": "nvlink", "block": {"label": "domain", "sizes": [1]}}
FILE = """\
- {topology: fabric, tree: {switches: [{switch: fabric}]}}
- {topology: nvlink, block: {block_sizes: [1], blocks: [{block: d1}]}}
"""
RACK = {"zone": "z1", "rack": "r1", "domain": "d1"}


def labelled(
    labels: dict[str, str], annotations: dict[str, str] | None = None, *, file: str | None = FILE
) -> Scene:
    """A worker whose Controller has topologies and the running slurmctld this topology.yaml."""
    scene = Scene(None)
    scene.topologies = [FABRIC, NVLINK]
    scene.parts.controller(topologies=scene.topologies)
    if file is not None:
        scene.parts.config_map("slurm-config-accepted", {"topology.yaml": file}, own=True)
    scene.parts.kube_node("kube-1", labels=labels, annotations=annotations or {})
    return scene


async def test_labels_of_the_kubernetes_node_give_the_topology_and_slurm_gets_it() -> None:
    scene = labelled(RACK)
    assert await scene.send() is None
    assert scene.slurm.model.nodes["slinky-0"].topology == "fabric:fabric:z1:r1,nvlink:d1"
    assert scene.stamped == ["fabric:fabric:z1:r1,nvlink:d1"]


async def test_an_annotation_of_the_kubernetes_node_counts_more_than_its_labels() -> None:
    scene = labelled(RACK, {TOPOLOGY: ""})
    await topology.stamp(scene.parts.runtime, scene.pod, scene.nodeset)
    assert scene.stamped == [""]


async def test_a_changed_label_moves_the_slurm_node() -> None:
    scene = labelled(RACK)
    runtime = scene.parts.runtime
    runtime.switches.wire(runtime.caches)
    await topology.stamp(runtime, scene.pod, scene.nodeset)
    [former] = scene.stamped
    scene.pod = scene.parts.pod("slinky-0", meta={"annotations": {TOPOLOGY: former}})
    scene.slurm.model.nodes["slinky-0"].topology = former
    scene.parts.kube_node("kube-1", labels=RACK | {"zone": "z2"})
    assert await scene.send() is None
    assert scene.slurm.model.nodes["slinky-0"].topology == "fabric:fabric:z2:r1,nvlink:d1"
    assert scene.stamped == [former, "fabric:fabric:z2:r1,nvlink:d1"]


async def test_labels_that_contradict_those_of_other_nodes_are_an_event_of_the_pod_and_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = labelled(RACK)
    emitted: list[str] = []
    monkeypatch.setattr(
        scene.parts.runtime.events, "emit", lambda *arguments: emitted.append(arguments[4])
    )
    for other in ("kube-2", "kube-3"):
        scene.parts.kube_node(other, labels=RACK | {"zone": "z2"})
    assert await scene.send() == TRY_AGAIN
    assert scene.stamped == ["fabric:fabric:fabric-other,nvlink:d1"]
    [event] = emitted
    assert "the label rack puts switch r1 below z1" in event


async def test_nothing_is_sent_that_the_running_slurmctld_does_not_have() -> None:
    scene = labelled(RACK, file=None)
    assert await scene.send() == TRY_AGAIN
    assert scene.stamped == [""]
