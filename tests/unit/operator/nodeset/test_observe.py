"""What a pass over a NodeSet works with: `sidecars.operator.nodeset.observe`."""

import json
from typing import Any

import msgspec
import pytest

from sidecars import objects
from sidecars.contract.extra import PodFacts, encode
from sidecars.kube import identity
from sidecars.kube.store import Key
from sidecars.operator.nodeset import stored_revisions
from sidecars.operator.nodeset.observe import (
    observed_pods,
    slurm_nodes_in_use,
    with_answers,
)
from sidecars.policy.nodeset.memory import Memory
from sidecars.policy.nodeset.needs import JobList, Jobs, Known, SlurmctldStart
from sidecars.policy.nodeset.records import Observed, OtherWorkers
from tests.support.operator_parts import EPOCH, Parts, SlurmConnection
from tests.unit.operator.nodeset.builders import KEY, SPEC, begin, observed_by

pytestmark = pytest.mark.looptime


async def seen(parts: Parts, **spec: Any) -> Observed:
    return await observed_by(begin(parts, **spec))


async def connected() -> tuple[Parts, SlurmConnection]:
    slurm = SlurmConnection()
    parts = Parts(connect=lambda *_: slurm)
    await parts.connect()
    return parts, slurm


async def test_without_a_restapi_slurm_is_a_problem_that_names_the_controller() -> None:
    parts = Parts()
    parts.keys()
    parts.controller()
    observed = await seen(parts)
    assert not observed.connected
    assert observed.slurm.problem == "no RestApi refers to Controller 'slurm'; enable one"
    parts.restapi()
    assert (await seen(parts)).slurm.problem == "the JWT key of Controller 'slurm' is missing"


async def test_nothing_is_settled_before_the_watch_shows_what_was_created_and_deleted() -> None:
    parts, _ = await connected()
    assert (await seen(parts)).settled
    parts.runtime.expectations.expect_creations(KEY, 1)
    assert not (await seen(parts)).settled
    parts.runtime.expectations.creation_observed(KEY)
    assert (await seen(parts)).settled


async def test_a_controller_that_is_missing_or_being_deleted_is_seen_as_deleted() -> None:
    parts = Parts()
    assert (await seen(parts)).controller_deleted
    parts.controller()
    assert not (await seen(parts)).controller_deleted
    parts.custom("Controller", "slurm", {}, deletionTimestamp="2026-01-01T00:00:00Z")
    assert (await seen(parts)).controller_deleted


async def test_only_pods_that_the_nodeset_itself_owns_are_its_pods() -> None:
    parts = Parts()
    parts.pod("slinky-0")
    parts.pod("slinky-1", nodeset="other")
    assert [pod.name for pod in observed_pods(begin(parts))] == ["slinky-0"]


async def test_a_pod_is_read_again_when_it_or_its_kubernetes_node_changes_and_not_otherwise() -> (
    None
):
    parts = Parts()
    parts.pod("slinky-0")
    [first] = observed_pods(begin(parts))
    [again] = observed_pods(begin(parts))
    assert again is first
    parts.kube_node("kube-1", spec={"unschedulable": True})
    [cordoned] = observed_pods(begin(parts))
    assert cordoned.kube_node_cordon is not None
    parts.pod("slinky-0", phase="Failed")
    assert [pod.phase for pod in observed_pods(begin(parts))] == ["Failed"]


async def test_a_ready_pod_becomes_available_by_the_passing_of_time_alone() -> None:
    parts = Parts()
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2023-11-14T22:13:20Z"}
    parts.pod("slinky-0", phase="Running", conditions=[ready])
    assert [pod.available for pod in observed_pods(begin(parts, minReadySeconds=30))] == [False]
    parts.now = EPOCH + 30
    assert [pod.available for pod in observed_pods(begin(parts, minReadySeconds=30))] == [True]


def registered(slurm: SlurmConnection, name: str, pod: str, nodeset: str = "uid-of-slinky") -> None:
    facts = PodFacts(pod, name, "slurm", nodeset)
    slurm.model.node_register(name, extra=encode(facts))


async def orphans(parts: Parts, **spec: Any) -> list[str]:
    cluster = parts.runtime.clusters.get(("slurm", "slurm"))
    assert cluster is not None
    await cluster.poller.poll()
    return [node.name for node in (await seen(parts, **spec)).orphans]


async def test_records_of_former_pods_are_orphans_and_no_others() -> None:
    parts, slurm = await connected()
    registered(slurm, "slinky-0", "former")
    registered(slurm, "slinky-1", "slinky-1")
    registered(slurm, "theirs-0", "former", nodeset="uid-of-other")
    registered(slurm, "renamed-0", "slinky-1")
    registered(slurm, "theirs-1", "uid-of-slinky", nodeset="uid-of-other")
    slurm.model.node_register("static-0", extra='{"note": "uid-of-slinky"}')
    parts.pod("slinky-1")
    assert await orphans(parts) == ["slinky-0"]
    assert await orphans(parts, nodeRecords="Keep") == []


async def test_records_of_adopted_pods_are_orphans_too_once_their_pods_are_gone() -> None:
    parts, slurm = await connected()
    for name in ("slinky-0", "slinky-1"):
        registered(slurm, name, name, nodeset="uid-of-former")
    first, second = (parts.pod(name) for name in ("slinky-0", "slinky-1"))
    assert await orphans(parts) == []
    parts.runtime.caches.pods.store.discard(identity(second).key)
    assert await orphans(parts) == ["slinky-1"]
    parts.runtime.caches.pods.store.discard(identity(first).key)
    assert await orphans(parts) == ["slinky-0", "slinky-1"]


def registered_by_schedmd(
    slurm: SlurmConnection, name: str, nodeset: str = "uid-of-slinky"
) -> None:
    """A worker of SchedMD's operator 1.2."""
    node = slurm.model.node_register(name, extra='{"rack": "a"}')
    pod = {
        "namespace": "slurm",
        "podName": name,
        "node": "kube-1",
        "nodeSetName": "slinky",
        "nodeSetUID": nodeset,
    }
    node.comment = json.dumps(pod)


def pod_of_schedmd(parts: Parts, name: str) -> objects.Pod:
    return parts.pod(name, meta={"annotations": {}})


async def test_records_of_workers_of_schedmds_operator_are_orphans_once_their_pods_are_gone() -> (
    None
):
    parts, slurm = await connected()
    for name in ("slinky-0", "slinky-1"):
        registered_by_schedmd(slurm, name)
    registered_by_schedmd(slurm, "other-0", nodeset="uid-of-other")
    # SchedMD's operator 1.0 and 1.1 don't write whose a pod is.
    slurm.model.node_register(
        "slinky-2"
    ).comment = '{"namespace": "slurm", "podName": "slinky-2", "node": "kube-1"}'
    pod_of_schedmd(parts, "slinky-1")
    assert await orphans(parts) == ["slinky-0"]
    assert await orphans(parts, nodeRecords="Keep") == []


async def test_a_record_of_schedmds_operator_is_no_orphan_before_its_pod_is_bound() -> None:
    parts, slurm = await connected()
    registered_by_schedmd(slurm, "slinky-0")
    pod = pod_of_schedmd(parts, "slinky-0")
    metadata = msgspec.structs.replace(pod.metadata, resource_version="1000")
    unbound = msgspec.structs.replace(
        pod, metadata=metadata, spec=objects.PodSpec(hostname="slinky-0")
    )
    parts.runtime.caches.pods.store.put(unbound)
    assert await orphans(parts) == []


async def test_records_of_adopted_workers_of_schedmds_operator_are_orphans_too() -> None:
    parts, slurm = await connected()
    for name in ("slinky-0", "slinky-1"):
        registered_by_schedmd(slurm, name, nodeset="uid-of-former")
    assert await orphans(parts) == []
    pod_of_schedmd(parts, "slinky-0")
    assert await orphans(parts) == ["slinky-1"]


@pytest.mark.parametrize(
    "claimed",
    [
        # Not of the pod that has registered there.
        PodFacts("another-pod", "slinky-0", "slurm", "uid-of-former"),
        PodFacts("slinky-0", "slinky-0", "another-namespace", "uid-of-former"),
        PodFacts("slinky-0", "slinky-0", "slurm"),
    ],
)
async def test_a_record_shows_a_former_nodeset_only_if_a_pod_of_this_one_has_registered_it(
    claimed: PodFacts,
) -> None:
    parts, slurm = await connected()
    slurm.model.node_register("slinky-0", extra=encode(claimed))
    registered(slurm, "slinky-1", "gone", nodeset="uid-of-former")
    parts.pod("slinky-0")
    assert await orphans(parts) == []


async def test_a_nodeset_that_exists_is_no_former_one() -> None:
    parts, slurm = await connected()
    parts.custom("NodeSet", "other", SPEC)
    registered(slurm, "slinky-0", "slinky-0", nodeset="uid-of-other")
    registered(slurm, "other-0", "gone", nodeset="uid-of-other")
    parts.pod("slinky-0")
    assert await orphans(parts) == []


async def test_the_record_of_a_former_pod_is_no_orphan_while_a_bound_pod_has_its_name() -> None:
    parts, slurm = await connected()
    registered(slurm, "slinky-0", "former")
    parts.pod("slinky-0", nodeset="other")
    assert slurm_nodes_in_use(begin(parts)) == {"slinky-0"}
    assert await orphans(parts) == []


async def test_a_node_that_changed_after_the_jobs_were_read_is_unread() -> None:
    parts, slurm = await connected()
    registered(slurm, "slinky-0", "slinky-0")
    parts.pod("slinky-0")
    await orphans(parts)
    this = begin(parts)
    observed = await observed_by(this)
    late = with_answers(this, observed, {Jobs(): Known(JobList((), parts.now - 10.0))})
    assert late.slurm.unread == {"slinky-0"}
    fresh = with_answers(this, observed, {Jobs(): Known(JobList((), parts.now + 10.0))})
    assert fresh.slurm.unread == frozenset()


async def test_records_that_terminating_pods_will_delete_do_not_look_like_lost_state() -> None:
    parts, slurm = await connected()
    for number in range(20):
        registered(slurm, f"slinky-{number}", f"slinky-{number}")
        parts.pod(f"slinky-{number}", terminating=True)
    await orphans(parts)
    slurm.model.node_lose(*(f"slinky-{number}" for number in range(20)))
    slurm.model.node_register("another")
    parts.now += 31
    slurm.now += 31
    await orphans(parts)
    cluster = parts.runtime.clusters.get(("slurm", "slurm"))
    assert cluster is not None
    assert cluster.poller.suspect == frozenset()


async def test_the_workers_of_the_clusters_other_nodesets_are_counted_once_asked_for() -> None:
    parts, slurm = await connected()
    running = {"name": "slurmd", "state": {"running": {"startedAt": "2023-11-14T22:00:00Z"}}}
    starting = {"name": "slurmd", "state": {"running": {"startedAt": "2023-11-14T22:13:19Z"}}}
    for name in ("slinky-0", "other-0", "other-1"):
        parts.pod(name, name.partition("-")[0], phase="Running", containerStatuses=[running])
    parts.pod("other-2", "other", phase="Running", containerStatuses=[starting])
    parts.pod("other-3", "other", phase="Pending")
    parts.pod("other-4", "other", phase="Failed", containerStatuses=[running])
    parts.pod("other-5", "other", phase="Running", containerStatuses=[running], terminating=True)
    parts.pod("elsewhere-0", "elsewhere", phase="Running", containerStatuses=[running])
    parts.custom("NodeSet", "other", {"controllerRef": {"name": "slurm"}})
    parts.custom("NodeSet", "elsewhere", {"controllerRef": {"name": "another"}})
    parts.operator.nodesets.of(("slurm", "other")).decided = Memory(replaced={"x": EPOCH - 5})
    registered(slurm, "other-0", "other-0")
    await orphans(parts)
    this = begin(parts)
    observed = await observed_by(this)
    assert observed.others == OtherWorkers()
    asked = with_answers(this, observed, {SlurmctldStart(): Known(None)})
    assert asked.others == OtherWorkers(running=3, missing=1, replaced=(EPOCH - 5,))


async def test_a_pod_or_revision_of_another_namespace_with_the_owner_is_not_its_own() -> None:
    parts, _ = await connected()
    this = begin(parts)
    own = parts.pod("slinky-0")
    forged = msgspec.structs.replace(own.metadata, namespace="tenant", uid="forged")
    parts.runtime.caches.pods.store.put(msgspec.structs.replace(own, metadata=forged))
    owner = {
        "apiVersion": "bogus/v1",
        "kind": "NodeSet",
        "name": "slinky",
        "uid": this.nodeset.metadata.uid,
    }
    parts.runtime.caches.controller_revisions.store.put(
        {
            "metadata": {
                "namespace": "tenant",
                "name": "forged",
                "uid": "forged",
                "ownerReferences": [owner | {"controller": True}],
            },
            "revision": 9,
            "data": {"spec": {}},
        }
    )
    assert [pod.uid for pod in observed_pods(this)] == ["slinky-0"]
    assert stored_revisions.stored_of(parts.runtime, this.nodeset) == []


async def test_only_bound_pods_of_the_namespace_have_a_slurm_node_in_use() -> None:
    parts, _ = await connected()
    parts.pod("slinky-0")
    parts.pod("other-0", meta={"namespace": "elsewhere"})
    store = parts.runtime.caches.pods.store
    bound = parts.pod("slinky-1")
    store.discard(Key("slurm", "slinky-1"))
    store.put(
        msgspec.structs.replace(bound, spec=msgspec.structs.replace(bound.spec, node_name=""))
    )
    assert {pod.metadata.name for pod in store.values()} == {"slinky-0", "other-0", "slinky-1"}
    assert slurm_nodes_in_use(begin(parts)) == {"slinky-0"}
