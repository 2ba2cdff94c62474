"""Records of a live cluster as the policy sees them: the same as the operator's own."""

import dataclasses
from typing import Any

import msgspec
import pytest

from postrender.preview.state import SlurmState, State, assumed
from sidecars import objects
from sidecars.policy.nodeset.observation import worker_pod as observed
from sidecars.policy.placement import Rules
from sidecars.workloads import names
from sidecars.workloads.nodeset import revision, revision_object
from sidecars.workloads.resources import Manifest
from tests.support import builders
from tests.unit.postrender.preview import clusters


def with_metadata(pod: Manifest, **more: Any) -> Manifest:
    return pod | {"metadata": pod["metadata"] | more}


PODS = {
    "running": clusters.pod(0),
    "unbound": clusters.pod(1) | {"spec": {"hostname": "slinky-1"}, "status": {"phase": "Pending"}},
    "never started": clusters.pod(
        2, containerStatuses=[{"name": "slurmd", "restartCount": 0, "state": {}}]
    ),
    "restarted": clusters.pod(
        2,
        containerStatuses=[
            {"name": "slurmd", "restartCount": 2, "state": {"waiting": {}}, "lastState": {}}
        ],
    ),
    "not ready": clusters.pod(
        3, conditions=[{"type": "Ready", "status": "False", "lastTransitionTime": clusters.SINCE}]
    ),
    "terminating": with_metadata(clusters.pod(4), deletionTimestamp=clusters.SINCE),
    "cordoned": with_metadata(
        clusters.pod(5), annotations={names.POD_CORDON: "true", names.POD_CORDONED_BY: "operator"}
    ),
    "dear": with_metadata(clusters.pod(6), annotations={names.POD_DELETION_COST: "-7"}),
    "of a host": clusters.pod(7) | {"spec": {"hostNetwork": True, "nodeName": "kube-7"}},
    "daemon": with_metadata(
        clusters.pod(8),
        labels=clusters.pod(8)["metadata"]["labels"] | {names.SCALING_MODE: "DaemonSet"},
    ),
}


@pytest.mark.parametrize("case", PODS)
def test_a_pod_is_seen_as_the_operator_sees_it(case: str) -> None:
    state = State(clusters.NOW, pods=[PODS[case]])
    record = msgspec.convert(PODS[case], objects.Pod)
    theirs = observed(record, None, now=clusters.NOW, min_ready_seconds=5)
    [ours] = state.pods_of(builders.nodeset(minReadySeconds=5))
    assert ours == dataclasses.replace(theirs, kube_node_gone=False)


def test_a_pod_whose_kubernetes_node_is_not_among_those_that_exist_has_lost_it() -> None:
    state = State(
        clusters.NOW,
        pods=[clusters.pod(0), clusters.pod(1)],
        kube_nodes=[clusters.kube_node(0, unschedulable=True)],
    )
    cordoned, lost = state.pods_of(builders.nodeset())
    assert cordoned.kube_node_cordon is not None
    assert (cordoned.kube_node_gone, lost.kube_node_gone) == (False, True)


def test_a_kubernetes_node_is_placed_as_the_operator_places_it() -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    item = clusters.kube_node(0, unschedulable=True, taints=[taint])
    item["metadata"] |= {"labels": {"zone": "a"}, "annotations": {names.HOSTNAME_OVERRIDE: "other"}}
    found = State(clusters.NOW, kube_nodes=[item]).places()["kube-0"]
    assert found == msgspec.convert(item, objects.Node)
    place = Rules.of({}).place(found)
    assert (place.kube_node, place.slurm_node) == ("kube-0", "other")
    assert (place.should_run, place.may_stay) == (False, True)


def test_pods_and_revisions_of_other_nodesets_do_not_count() -> None:
    workers = builders.nodeset()
    current = revision(workers, builders.controller(), builders.facts())
    other = with_metadata(
        clusters.pod(1), labels={names.APP_NAME: "slurmd", names.APP_INSTANCE: "other"}
    )
    stored = revision_object(workers, current, 3)
    broken = stored | {"data": None}
    state = State(clusters.NOW, pods=[clusters.pod(0), other], revisions=[stored, broken])
    assert [it.name for it in state.pods_of(workers)] == ["slurm-worker-slinky-0"]
    [found] = state.stored(workers)
    assert (found.number, found.revision) == (3, current)


def test_a_slurm_that_was_not_asked_is_unknown() -> None:
    state = State(clusters.NOW)
    assert state.of_slurm(("slurm", "slurm")).view().problem == "Slurm was not asked"
    known = SlurmState([clusters.node(0)], [clusters.job(1, "slinky-0")])
    assert known.view().problem is None
    assert known.view().deadlines == {"slinky-0": clusters.NOW + 3600}


def test_without_a_live_cluster_all_replicas_are_taken_for_idle() -> None:
    workers = builders.nodeset(replicas=2, template={"spec": {"hostname": "slinky-"}})
    current = revision(workers, builders.controller(), builders.facts())
    pods, slurm = assumed(workers, current, clusters.NOW)
    assert [(it.slurm_node, it.revision, it.ready) for it in pods] == [
        ("slinky-0", current.hash, True),
        ("slinky-1", current.hash, True),
    ]
    assert [it.name for it in slurm.nodes] == ["slinky-0", "slinky-1"]
