"""Topology and features of workers: `sidecars.operator.worker_pod.topology`."""

from sidecars.workloads import names
from tests.support.virtual_time import run
from tests.support.world.kubelets import NODE
from tests.support.world.world import World, world


def annotate(w: World, text: str) -> None:
    [pod] = w.pods()
    annotations = {names.FEATURES: text}
    w.api.change(NODE, "", pod["spec"]["nodeName"], {"metadata": {"annotations": annotations}})


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
