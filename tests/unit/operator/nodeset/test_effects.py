"""Actions of a decision are tried one and all: `sidecars.operator.nodeset.effects`."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecars.contract import reasons
from sidecars.kube import CONTROLLER_REVISIONS, EVENTS, PODS
from sidecars.kube.errors import api_error
from sidecars.operator.nodeset import answers
from sidecars.operator.nodeset.effects import (
    NAMED_PODS,
    RECORD_AGAIN,
    _is_still_free,
    apply,
    deletion_message,
)
from sidecars.operator.nodeset.passes import PodSource
from sidecars.operator.runtime import bulk
from sidecars.operator.runtime.clusters import Cluster
from sidecars.policy.nodeset import actions
from sidecars.policy.nodeset.decide import Decision, decide
from sidecars.policy.nodeset.maintenance import name_of
from sidecars.policy.nodeset.memory import Memory
from sidecars.policy.nodeset.records import Deletion, Desired, DesiredPods, Observed
from sidecars.simulate.records import Reply
from sidecars.slurm.errors import NotFound, Unreachable
from sidecars.slurm.records import Node
from sidecars.workloads import names
from tests.support.operator_parts import Parts, SlurmConnection
from tests.support.virtual_time import run
from tests.support.world.api import Place
from tests.support.world.kubelets import NODE
from tests.support.world.world import NODESET, World, world
from tests.unit.operator.nodeset.builders import begin
from tests.unit.policy.nodeset.builders import node, worker

Refusal = Callable[[str, Place, Any], bool]


def refuse(w: World, refused: Refusal) -> Callable[[], None]:
    """Have the API server refuse such writes. Returns what ends that."""
    handle = w.api.handle

    def refusing(
        method: str, place: Place, query: Mapping[str, str], body: Any, content_type: str
    ) -> bytes:
        if refused(method, place, body):
            raise api_error(
                403, "Forbidden", "a policy refuses it", request=f"{method} {place.name}"
            )
        return handle(method, place, query, body, content_type)

    w.api.handle = refusing  # type: ignore[method-assign]  # the server, not the client

    def end() -> None:
        w.api.handle = handle  # type: ignore[method-assign]  # as above

    return end


def is_cordon(method: str, place: Place, body: Any) -> bool:
    if method != "PATCH" or place.collection != PODS.path() or not isinstance(body, dict):
        return False
    return names.POD_CORDON in (body["metadata"].get("annotations") or {})


def is_pruning(method: str, place: Place, _: Any) -> bool:
    return method == "DELETE" and place.collection == CONTROLLER_REVISIONS.path()


def test_a_refused_annotation_stops_neither_deletions_nor_creations_and_is_reported() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            w.nodeset(replicas=4)
            await w.run(20)
            w.job(2, 1000)
            await w.run(3)
            end = refuse(w, is_cordon)
            w.change("slinky", {"replicas": 1})
            # Two are idle and one of the busy ones waits for its job, without its annotation.
            await w.until("the idle ones are deleted", lambda: len(w.pods()) == 2)
            assert w.condition("slinky")["reason"] == "Refused"
            busy = next(pod for pod in w.pods())
            w.api.change(NODE, "", busy["spec"]["nodeName"], {"spec": {"unschedulable": True}})
            w.change("slinky", {"replicas": 3})
            await w.until("another one is created", lambda: len(w.pods()) == 3)
            end()

    run(scenario())


def test_a_revision_that_can_not_be_deleted_stops_nothing_and_is_reported() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            w.nodeset(replicas=1, revisionHistoryLimit=0)
            await w.run(20)
            end = refuse(w, is_pruning)
            w.change("slinky", {"slurmd": {"image": w.new_image()}})
            await w.until(
                "a failure is reported", lambda: w.condition("slinky").get("reason") == "Refused"
            )
            w.change("slinky", {"replicas": 3})

            def ready() -> bool:
                nodeset = w.api.get(NODESET, "slurm", "slinky")
                return nodeset is not None and nodeset["status"]["readyReplicas"] == 3

            await w.until("three pods are ready", ready)
            assert len(w.api.all(CONTROLLER_REVISIONS.path())) == 2
            end()
            await w.until("it is deleted", lambda: len(w.api.all(CONTROLLER_REVISIONS.path())) == 1)

    run(scenario())


@pytest.mark.parametrize("seed", range(4, 8))
def test_a_nodeset_with_a_reservation_is_created_and_deleted_without_a_conflict_of_its_own_writes(
    seed: int,
) -> None:
    scheduled = {
        "type": "ScheduledUpdate",
        "scheduledUpdate": {"startTime": "2026-12-24T12:00:00Z"},
    }

    async def scenario() -> None:
        async with world(seed) as w:
            w.nodeset(replicas=1)
            await w.run(20)
            w.nodeset("other", replicas=1, updateStrategy=scheduled)
            slurm = w.slurms["slurm", "slurm"]
            await w.until("its reservation", lambda: name_of("other") in slurm.reservations)
            w.api.delete(NODESET, "slurm", "other")
            await w.until("it is gone", lambda: w.api.get(NODESET, "slurm", "other") is None)
            assert not slurm.reservations
            assert not [line for line in w.watchdog.log if "Conflict" in line]

    run(scenario())


@pytest.mark.looptime
async def test_annotations_of_pods_that_wait_for_jobs_take_no_longer_than_a_slice_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Parts()
    this = begin(parts)
    patch = parts.requests.merge_patch

    async def slow(*arguments: Any, **more: Any) -> Any:
        parts.now += 1.0
        return await patch(*arguments, **more)

    monkeypatch.setattr(parts.requests, "merge_patch", slow)
    desired = Desired(this.nodeset, DesiredPods("slurm", 0, ""), creatable=False)
    wanted = [actions.Cordon(worker(number)) for number in range(500)]
    outcome = await apply(this, desired, PodSource("", None, None), wanted)
    assert 0 < len(parts.requests.of("patch", "Pod")) <= bulk.AT_ONCE + bulk.SLICE_SECONDS
    assert outcome.look_again == 0.0


@pytest.mark.looptime
@pytest.mark.parametrize(("only_unchanged", "version"), [(False, None), (True, "7")])
async def test_a_pod_is_deleted_by_its_uid_and_one_that_has_not_started_by_its_version_too(
    version: str | None, *, only_unchanged: bool
) -> None:
    parts = Parts()
    this = begin(parts)
    desired = Desired(this.nodeset, DesiredPods("slurm", 0, ""), creatable=False)
    deletion = Deletion(worker(0, resource_version="7"), "x", only_unchanged=only_unchanged)
    await apply(this, desired, PodSource("", None, None), [actions.DeletePod(deletion)])
    [options] = parts.requests.of("delete", "Pod")
    assert (options["uid"], options["resource_version"]) == ("uid-0", version)


def test_one_event_reports_the_deletion_of_many_pods_and_names_some() -> None:
    one = Deletion(worker(7), "Slurm node slinky-7 is drained", drained=True)
    assert deletion_message([one]) == "Deleted pod slinky-7: Slurm node slinky-7 is drained"
    many = deletion_message(
        [
            Deletion(worker(number), f"Slurm node slinky-{number} is drained")
            for number in range(500)
        ]
    )
    assert many.startswith("Deleted 500 pods (slinky-0, slinky-1, ")
    assert f"slinky-{NAMED_PODS - 1}, …)" in many
    assert f"slinky-{NAMED_PODS}" not in many


def test_a_scale_in_of_idle_nodes_gets_few_events_and_no_write_to_the_pods_but_their_deletion() -> (
    None
):
    async def scenario() -> None:
        async with world(3, kube_nodes=30) as w:
            w.nodeset(replicas=30)
            await w.run(30)
            w.watchdog.log.clear()
            w.change("slinky", {"replicas": 10})
            await w.until("they are deleted", lambda: len(w.pods()) == 10)
            deleted = {line.split()[2] for line in w.watchdog.log if " DELETE pods/" in line}
            patched = {line.split()[2] for line in w.watchdog.log if " PATCH pods/" in line}
            assert len(deleted) == 20
            assert not patched & deleted
            events = [it for it in w.api.all(EVENTS.path()) if it["reason"] == "SuccessfulDelete"]
            assert len(events) <= 3

    run(scenario())


def test_a_record_that_a_pod_has_come_to_use_since_the_decision_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Creating pods takes seconds, and slurmd registers with the record that an earlier pod has
    left.
    """
    names_of_both = ("slinky-0", "slinky-1")
    late = (
        actions.SetDown(reasons.RECORD_ORPHANED, names_of_both),
        actions.DeleteRecords(names_of_both),
    )

    def outdated(desired: Desired, observed: Observed, memory: Memory, now: float) -> Decision:
        decision = decide(desired, observed, memory, now)
        return (
            replace(decision, actions=(*decision.actions, *late)) if decision.actions else decision
        )

    async def scenario() -> None:
        async with world(4) as w:
            w.nodeset(replicas=1)
            await w.run(20)
            monkeypatch.setattr(answers, "decide", outdated)
            w.change("slinky", {"replicas": 2})
            slurm = w.slurms["slurm", "slurm"]
            await w.until("both are registered", lambda: len(slurm.nodes) == 2)
            await w.run(5)
            assert not [call for call in slurm.calls if call.method == "DELETE"]
            assert {node.base for node in slurm.nodes.values()} == {"IDLE"}

    run(scenario())


@pytest.mark.looptime
async def test_a_record_whose_node_a_pod_has_by_now_is_neither_set_down_nor_deleted() -> None:
    slurm = SlurmConnection()
    parts = Parts(connect=lambda *_: slurm)
    await parts.connect()
    names_of_both = ("slinky-0", "slinky-1")
    for name in names_of_both:
        slurm.model.node_register(name)
    parts.pod("slinky-0")
    this = begin(parts)
    desired = Desired(this.nodeset, DesiredPods("slurm", 0, ""), creatable=False)
    wanted: list[actions.Action] = [
        actions.SetDown(reasons.RECORD_ORPHANED, names_of_both),
        actions.DeleteRecords(names_of_both),
    ]
    outcome = await apply(this, desired, PodSource("", None, None), wanted)
    assert {name: it.base for name, it in slurm.model.nodes.items()} == {"slinky-0": "IDLE"}
    assert outcome.look_again == RECORD_AGAIN


def slurm_of(*nodes: Node, live: Node | Exception | None = None, trouble: str = "") -> Cluster:
    """A cluster whose last poll showed `nodes`; `live`: the answer to a request for one record."""

    async def call(request: object, *, timeout: float | None = None) -> Node:
        assert timeout is not None
        if isinstance(live, Node):
            return live
        raise live or AssertionError(f"{request}: nothing is read")

    poller = SimpleNamespace(nodes={it.name: it for it in nodes}, trouble=trouble)
    return cast("Cluster", SimpleNamespace(poller=poller, client=SimpleNamespace(call=call)))


def test_a_pod_is_not_deleted_once_slurm_shows_that_its_node_is_not_free() -> None:
    def free(deletion: Deletion, *nodes: Node, trouble: str = "") -> bool:
        return asyncio.run(_is_still_free(slurm_of(*nodes, trouble=trouble), deletion, live=False))

    absent, drained = Deletion(worker(0), "x", absent=True), Deletion(worker(0), "x", drained=True)
    assert free(absent)
    assert not free(absent, node(0, "IDLE"))
    assert not free(absent, trouble="no answer")
    assert free(drained, node(0, "IDLE", "DRAIN"))
    assert not free(drained, node(0, "IDLE"))
    assert not free(drained)
    assert not asyncio.run(_is_still_free(None, drained, live=True))
    assert asyncio.run(_is_still_free(None, Deletion(worker(0), "x"), live=True))


def test_a_drained_pod_is_deleted_only_if_its_record_is_drained_at_this_moment() -> None:
    drained = node(0, "IDLE", "DRAIN")

    def free(live: Node | Exception) -> bool:
        deletion = Deletion(worker(0), "x", drained=True)
        return asyncio.run(_is_still_free(slurm_of(drained, live=live), deletion, live=True))

    assert free(drained)
    assert not free(node(0, "IDLE"))
    assert not free(node(0, "MIXED", "DRAIN"))
    assert not free(NotFound("GET node/slinky-0", 422, ()))
    with pytest.raises(Unreachable):
        free(Unreachable("GET node/slinky-0", "no route"))


def test_the_pod_of_a_node_that_an_administrator_has_just_resumed_is_not_deleted() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            w.nodeset(replicas=2)
            await w.run(20)
            slurm = w.slurms["slurm", "slurm"]
            handle = slurm.handle
            resumed: list[float] = []

            def handling(
                method: str,
                target: str,
                body: bytes | None = None,
                token: str | None = "",
                named: str | None = None,
            ) -> Reply:
                answer = handle(method, target, body, token, named)
                # The jobs are the last thing that is read before a drained pod is deleted.
                if method == "GET" and "/jobs/" in target and not resumed:
                    name = next(it.name for it in slurm.nodes.values() if "DRAIN" in it.flags)
                    w.admin(name, None)
                    slurm.job_start([name])
                    resumed.append(w.loop.time())
                return answer

            slurm.handle = handling  # type: ignore[method-assign]  # the server, not the client
            w.change("slinky", {"replicas": 1})
            await w.until("an administrator has resumed a drained node", lambda: bool(resumed))
            await w.run(10)
            assert not [pod for pod in w.pods() if "deletionTimestamp" in pod["metadata"]]

    run(scenario())


def test_an_administrators_drain_that_came_a_moment_before_an_uncordon_is_not_lifted() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            w.nodeset(replicas=1)
            await w.run(20)
            slurm, [pod] = w.slurms["slurm", "slurm"], w.pods()
            [record] = slurm.nodes.values()
            kube_node = pod["spec"]["nodeName"]
            w.api.change(NODE, "", kube_node, {"spec": {"unschedulable": True}})
            await w.until(
                "the node is drained", lambda: record.reason.startswith("slurm-operator: ")
            )
            await w.run(5.4)
            w.admin(record.name, "bad disk")
            w.api.change(NODE, "", kube_node, {"spec": {"unschedulable": None}})
            await w.run(10)
            assert ("DRAIN" in record.flags, record.reason) == (True, "bad disk")

    run(scenario())
