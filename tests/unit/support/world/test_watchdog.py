"""The watchdog notices each broken invariant, and the oracles bite when the operator itself is
broken.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest

from sidecars.contract import reasons
from sidecars.kube import CONFIG_MAPS, EVENTS, PODS, SECRETS, Client, reflector
from sidecars.node import edge, machine
from sidecars.operator.nodeset import effects
from sidecars.operator.nodeset import reconcile as nodeset
from sidecars.operator.nodeset.memories import Memories
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.nodeset import desired, drain, replicas, worker_pods
from sidecars.reconfigure import machine as reconfigure
from sidecars.reconfigure.actions import Action, Keep
from sidecars.reconfigure.states import Phase, Seen, State, to
from sidecars.simulate import Fault, SlurmModel
from sidecars.simulate.records import Reply
from sidecars.slurm import owners, protocol, states
from sidecars.slurm.tokens import TokenSource, sign
from sidecars.workloads import names
from tests.support.virtual_time import run
from tests.support.world.api import Change
from tests.support.world.client import (
    SPARED,
    Faults,
    KubeFault,
    Process,
    WatchFault,
    WorldSlurm,
    WorldTransport,
)
from tests.support.world.scripts import (
    CORDON,
    FOREIGN,
    Admin,
    ChangeTemplate,
    Configure,
    CordonKubeNode,
    DeleteNamespace,
    DeletePod,
    EndWatches,
    Freeze,
    Replace,
    Scale,
    Script,
    SickSlurm,
    Submit,
    check_settled,
    play,
    resume_silent,
    tidy,
)
from tests.support.world.slurmctld import REFUSED, REFUSED_LATER
from tests.support.world.world import _SECRET, NODESET, POD, SETTLED_AFTER, Broken, World, world


def rogue(w: World) -> Client:
    """An operator that keeps no invariant."""
    return Client(
        WorldTransport(w.api, Process(lambda: None), Faults(), w.watchdog, random.Random(0))  # noqa: S311
    )


async def write(w: World, request: protocol.Request[Any]) -> None:
    """As a rogue operator, write to Slurm."""
    slurm = WorldSlurm(
        "http://slurm",
        TokenSource(lambda: b"k" * 32, clock=w.wall_clock),
        model=w.slurms["slurm", "slurm"],
        process=Process(lambda: None),
        faults=Faults(),
        watcher=w.watchdog,
        rng=w.rng,
    )
    await slurm.call(request)


async def delete(w: World, which: int = 0, **options: Any) -> None:
    """As a rogue operator, delete a pod."""
    pod = w.pods()[which]["metadata"]
    await rogue(w).delete(PODS, "slurm", pod["name"], **{"uid": pod["uid"], **options})


async def busy(w: World) -> None:
    w.job(2, 1000)
    await w.run(3)
    await delete(w)


async def idle_but_not_drained(w: World) -> None:
    await delete(w)


async def unknown(w: World) -> None:
    w.admin("slinky-0", FOREIGN)
    await w.run(5)
    w.slurms["slurm", "slurm"].fail(Fault.SERVER_ERROR)
    await w.run(20)
    await delete(w)


async def whatever_uid(w: World) -> None:
    await delete(w, uid=None)


async def by_force(w: World) -> None:
    await delete(w, grace_period_seconds=0)


async def two_of_a_name(w: World) -> None:
    w.restarts_after = 1000.0
    w.crash()
    pod = w.pods()[0]
    uid = pod["metadata"]["uid"]
    spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
    twin = {**pod, "metadata": {**pod["metadata"], "name": "twin", "uid": ""}, "spec": spec}
    w.api.create(POD, twin)
    await w.run(5)
    assert uid in w.kubelets.running


async def a_foreign_drain_lifted(w: World) -> None:
    w.admin("slinky-0", FOREIGN)
    await w.run(5)
    await write(w, protocol.update_nodes(["slinky-0"], state=("UNDRAIN",)))


async def a_foreign_reason_replaced(w: World) -> None:
    w.admin("slinky-0", FOREIGN)
    await w.run(5)
    await write(
        w, protocol.update_nodes(["slinky-0"], state=("DRAIN",), reason="slurm-operator: mine")
    )


async def a_foreign_reason_replaced_that_it_has_not_read(w: World) -> None:
    w.restarts_after = 1000.0
    w.crash()
    await w.run(5)
    w.admin("slinky-0", FOREIGN)
    await write(
        w, protocol.update_nodes(["slinky-0"], state=("DRAIN",), reason="slurm-operator: mine")
    )


async def a_failing_node_drained(w: World) -> None:
    w.admin("slinky-0", FOREIGN, state="FAIL")
    await w.run(5)
    await write(w, protocol.update_nodes(["slinky-0"], state=("DRAIN",)))


async def a_down_node_resumed(w: World) -> None:
    w.slurms["slurm", "slurm"].return_to_service = 0
    w.admin("slinky-0", FOREIGN, state="DOWN")
    await w.run(5)
    await write(w, protocol.update_nodes(["slinky-0"], state=("RESUME",)))


async def a_drain_without_a_reason_lifted(w: World) -> None:
    w.admin("slinky-0", "")
    await w.run(5)
    await write(w, protocol.update_nodes(["slinky-0"], state=("UNDRAIN",)))
    await w.run(1)


async def a_record_deleted_that_an_administrator_had_set_down(w: World) -> None:
    w.admin("slinky-0", FOREIGN, state="DOWN")
    w.slurms["slurm", "slurm"].node_lose("slinky-0")
    await w.run(1)


async def the_record_of_a_live_node(w: World) -> None:
    await write(w, protocol.delete_node("slinky-0"))


async def a_live_node_down(w: World) -> None:
    await write(w, protocol.update_nodes(["slinky-0"], state=("DOWN",), reason="slurm-operator: x"))


async def a_secret_published(w: World) -> None:
    metadata = {"name": "leak", "namespace": "slurm"}
    await rogue(w).create(CONFIG_MAPS, {"metadata": metadata, "data": {"jwt.key": _SECRET}})


async def another_secret_in_an_event(w: World) -> None:
    metadata = {"name": "of-a-user", "namespace": "slurm"}
    w.api.create(
        SECRETS.path(), {"metadata": metadata, "stringData": {"password": "correct horse battery"}}
    )
    event = {
        "metadata": {"name": "e", "namespace": "slurm"},
        "message": "it is correct horse battery",
    }
    await rogue(w).create(EVENTS, event)


async def a_token_logged(w: World) -> None:
    token = sign(b"k" * 32, "slurm", 60, w.wall_clock())
    logging.getLogger("sidecars.test").info("asked with %s", token)


async def a_secret_in_the_labels_of_a_secret(w: World) -> None:
    await rogue(w).create(
        SECRETS, {"metadata": {"name": "x", "namespace": "slurm", "labels": {"key": _SECRET}}}
    )


async def writes_without_end(w: World) -> None:
    async def write() -> None:
        for number in range(10_000):
            await rogue(w).merge_patch(
                PODS, "slurm", "slinky-0", {"metadata": {"labels": {"x": str(number)}}}
            )
            await asyncio.sleep(90.0)

    writing = asyncio.create_task(write())
    try:
        await w.settle()
    finally:
        writing.cancel()


async def a_write_now_and_then(w: World) -> None:
    async def write() -> None:
        await asyncio.sleep(1.5 * SETTLED_AFTER)
        await rogue(w).merge_patch(PODS, "slurm", "slinky-0", {"metadata": {"labels": {"x": "y"}}})

    writing = asyncio.create_task(write())
    try:
        await w.settle()
    finally:
        writing.cancel()


async def a_write_whenever_it_looks(w: World) -> None:
    writing: list[asyncio.Task[Any]] = []

    def look(change: Change) -> None:
        if change.collection == CONFIG_MAPS.path():
            patch = {"metadata": {"labels": {"seen": change.object["metadata"]["name"]}}}
            writing.append(
                asyncio.create_task(rogue(w).merge_patch(PODS, "slurm", "slinky-0", patch))
            )

    w.api.listeners.append(look)
    await w.settle()


async def a_cordon_left_behind(w: World) -> None:
    cordon = {"metadata": {"annotations": {CORDON: "true"}}}
    await rogue(w).merge_patch(PODS, "slurm", "slinky-0", cordon)
    tidy(w)
    await w.settle()
    check_settled(w)


async def a_status_that_flatters(w: World) -> None:
    w.change("slinky", {"replicas": 3})
    w.kubelets.broken_images.add("slurmd:1")
    flattering = [{"type": "Ready", "status": "True", "reason": "Ready", "message": "all is well"}]
    for _ in range(60):
        await w.run(1)
        # The operator corrects it at once.
        w.api.change(
            NODESET, "slurm", "slinky", {"status": {"conditions": flattering}}, status=True
        )
        w._look()


async def a_drain_left_behind(w: World) -> None:
    w.admin("slinky-0", "slurm-node: left by nobody that lives")
    await w.settle()
    check_settled(w)


@pytest.mark.parametrize(
    ("misdeed", "reported"),
    [
        (busy, "I1: pod slinky-0 is deleted while its Slurm node slinky-0 has jobs"),
        (idle_but_not_drained, "I1: pod slinky-0 is deleted though a job may start"),
        (
            the_record_of_a_live_node,
            "I1: the record of Slurm node slinky-0 is deleted while its slurmd runs",
        ),
        (a_live_node_down, "I1: Slurm node slinky-0 is set DOWN while its slurmd runs"),
        (unknown, "I2: "),
        (whatever_uid, "I3: pod slinky-0 is deleted whatever its uid"),
        (by_force, "I3: pod slinky-0 is deleted by force"),
        (two_of_a_name, "I3: slurmd of pod"),
        (a_foreign_drain_lifted, "I4: "),
        (a_foreign_reason_replaced, "I4: "),
        (a_foreign_reason_replaced_that_it_has_not_read, "I4: the foreign reason"),
        (a_failing_node_drained, "I4: ['FAIL'] of Slurm node slinky-0"),
        (a_down_node_resumed, "I4: DOWN of Slurm node slinky-0"),
        (
            a_drain_without_a_reason_lifted,
            "I4: Slurm node slinky-0, which an administrator has set DRAIN, is avail",
        ),
        (
            a_record_deleted_that_an_administrator_had_set_down,
            "which an administrator has set DOWN, has no record",
        ),
        (writes_without_end, "I7: it never settles"),
        (a_write_now_and_then, "I5: a settled cluster is written to"),
        (a_write_whenever_it_looks, "I5: a settled cluster is written to"),
        (a_cordon_left_behind, "'cordoned': 1"),
        (a_status_that_flatters, "I7: NodeSet slinky is without its desired pods"),
        (a_drain_left_behind, "'drained': ['slinky-0']"),
        (a_secret_published, "I10: a secret value in POST configmaps"),
        (another_secret_in_an_event, "I10: a secret value in POST events: one of Secret of-a-user"),
        (a_token_logged, "I10: a token in the log"),
        (a_secret_in_the_labels_of_a_secret, "I10: a secret value in POST secrets"),
    ],
    ids=lambda it: it.__name__ if callable(it) else None,
)
def test_it_sees(misdeed: Callable[[World], Awaitable[None]], reported: str) -> None:
    async def scenario() -> str:
        async with world(7) as w:
            w.nodeset(replicas=2)
            await w.run(15)
            assert not w.watchdog.broken
            try:
                await misdeed(w)
            except AssertionError as error:
                return str(error)
            return "\n".join(w.watchdog.broken)

    assert reported in run(scenario())


class Liar(SlurmModel):
    """A Slurm that runs jobs and denies it."""

    def handle(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        token: str | None = "",
        named: str | None = None,
    ) -> Reply:
        jobs = self.jobs
        if method == "GET":
            self.jobs = {}
        try:
            return super().handle(method, target, body, token, named)
        finally:
            self.jobs = jobs


def test_it_sees_what_an_operator_does_who_believes_a_liar() -> None:
    async def scenario() -> None:
        async with world(7) as w:
            w.slurms["slurm", "slurm"] = Liar(w.wall_clock)
            w.nodeset(replicas=2)
            await w.run(15)
            w.job(2, 1000)
            await w.run(3)
            w.change("slinky", {"replicas": 0})
            with pytest.raises(Broken, match=r"I1: pod slinky-\d is deleted while its Slurm node"):
                await w.run(30)

    run(scenario())


def test_it_sees_a_job_that_somebody_ends() -> None:
    async def scenario() -> None:
        async with world(7) as w:
            w.nodeset(replicas=1)
            await w.run(15)
            w.job(1, 1000)
            await w.run(3)
            w.slurms["slurm", "slurm"].node_vanish("slinky-0")
            with pytest.raises(Broken, match="didn't end normally"):
                await w.run(3)

    run(scenario())


async def after_state_loss(w: World) -> None:
    w.lose_state()
    await w.run(25)


async def after_the_kubernetes_node_has_booted_again(w: World) -> None:
    [kube_node] = {pod["spec"]["nodeName"] for pod in w.pods()}
    w.slurms["slurm", "slurm"].return_to_service = 2
    w.kubelets.kill(kube_node)
    await w.run(2)
    w.kubelets.revive(kube_node)
    await w.run(15)


async def after_an_administrator_had_set_the_node_down(w: World) -> None:
    w.admin("slinky-0", FOREIGN, state="DOWN")
    await w.run(2)
    w.admin("slinky-0", None)
    await w.run(15)


@pytest.mark.parametrize(
    "excuse",
    [
        after_state_loss,
        after_the_kubernetes_node_has_booted_again,
        after_an_administrator_had_set_the_node_down,
    ],
    ids=lambda it: it.__name__,
)
def test_it_sees_a_job_that_somebody_ends_though_earlier_ones_were_excused(
    excuse: Callable[[World], Awaitable[None]],
) -> None:
    async def scenario() -> None:
        async with world(7) as w:
            w.nodeset(replicas=1)
            await w.run(15)
            w.job(1, 1000, kind="no-requeue")
            await w.run(3)
            await excuse(w)
            later = w.job(1, 1000)
            await w.until("the later job", lambda: later.job_id)
            w.slurms["slurm", "slurm"].node_vanish("slinky-0")
            with pytest.raises(Broken, match=f"job {later.job_id} on .* didn't end normally"):
                await w.run(3)

    run(scenario())


def test_it_sees_a_slurmd_that_is_stopped_beside_a_job_that_slurm_has_forgotten() -> None:
    async def scenario() -> None:
        async with world(7) as w:
            w.nodeset(replicas=1)
            await w.run(15)
            w.job(1, 1000)
            await w.run(3)
            w.slurms["slurm", "slurm"].restart(lost_state=True)
            w.jobs.state_lost(w.slurms["slurm", "slurm"])
            await w.run(3)
            [pod] = w.pods()
            w.kubelets.deleted_by_operator.add(pod["metadata"]["uid"])
            w.api.delete(POD, "slurm", "slinky-0", grace=20)
            with pytest.raises(
                Broken,
                match="I1: slurmd of slinky-0 is stopped while processes of job 1 run beside it",
            ):
                await w.run(60)

    run(scenario())


def test_it_sees_a_node_sidecar_that_deletes_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(7, "OnDelete", ((0.0, Admin(0, drain=True, state="FAIL")), (5.0, DeletePod(0))))
    run(play(script))
    monkeypatch.setattr(owners, "why_retained", lambda _: "")
    with pytest.raises(
        Broken, match=r"I4: the record of Slurm node slinky-\d is deleted, whose foreign reason"
    ):
        run(play(script))


def test_it_sees_an_operator_that_reads_no_record_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An administrator drains a node that is about to be undrained, some seconds after the last
    poll.
    """
    cordon = tuple((0.0, CordonKubeNode(which, cordoned=True)) for which in range(6))
    uncordon = tuple((0.0, CordonKubeNode(which, cordoned=False)) for which in range(6))
    script = Script(2, "RollingUpdate", (*cordon, (57.0, Admin(0, drain=True)), *uncordon))
    run(play(script))
    monkeypatch.setattr(worker_pods, "_needs_records", lambda *_: False)
    with pytest.raises(Broken, match="I4: the foreign reason"):
        run(play(script))


def test_it_sees_an_operator_that_one_cluster_keeps_waiting_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script(7, "RollingUpdate", ((0.0, SickSlurm(Fault.HANG, 30)), (40.0, Scale(1))))
    run(play(script))
    reconcile = nodeset.reconcile

    async def waiting(runtime: Runtime, memories: Memories, key: tuple[str, str]) -> float | None:
        now = asyncio.get_running_loop().time()
        if key[0] == SPARED and 5.0 < now < 35.0:
            await asyncio.sleep(35.0 - now)
        return await reconcile(runtime, memories, key)

    monkeypatch.setattr(nodeset, "reconcile", waiting)
    with pytest.raises(Broken, match="I6: the NodeSet of another cluster has 1 pods instead of 2"):
        run(play(script))


def test_it_sees_an_operator_that_does_not_wait_for_the_deletion_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script(7, "RollingUpdate", ((0.0, Submit(2, 60)), (3.0, Replace("100s"))))
    run(play(script))
    monkeypatch.setattr(desired, "duration", lambda *_: 0.0)
    with pytest.raises(
        Broken, match=r"I1: pod slinky-\d is deleted while its Slurm node slinky-\d has jobs"
    ):
        run(play(script))


def test_it_sees_a_refused_configuration_that_slurmctld_gets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script(7, "RollingUpdate", ((0.0, Configure(REFUSED)), (40.0, Scale(1))))
    run(play(script))

    def installed(state: State, seen: Seen, now: float, _: str) -> tuple[State, list[Action]]:
        assert seen.candidate is not None
        return reconfigure._take(state, seen.candidate, now, "in spite of the dry run:")

    monkeypatch.setattr(reconfigure, "_kept_out", installed)
    with pytest.raises(
        Broken, match="I9: slurmctld reads a configuration that the dry run has refused"
    ):
        run(play(script))


def test_it_sees_a_last_good_configuration_that_was_never_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script(7, "RollingUpdate", ((0.0, Configure(REFUSED_LATER)), (40.0, Scale(1))))
    run(play(script))

    def kept(state: State, _: object, now: float, **__: object) -> tuple[State, list[Action]]:
        assert state.trying is not None
        return to(state, Phase.SETTLED, now), [Keep(state.trying)]

    monkeypatch.setattr(reconfigure, "_back", kept)
    with pytest.raises(
        Broken,
        match="I9: a configuration is stored as the last good one that slurmctld has refused",
    ):
        run(play(script))


def test_it_sees_a_former_leader_that_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(7, "RollingUpdate", ((0.0, Freeze(30)), (3.0, Scale(4)), (40.0, Scale(1))))
    run(play(script))
    monkeypatch.setattr(Client, "guarded", lambda client, _: client)
    with pytest.raises(
        Broken, match=r"I8: operator operator-.* writes while operator-.* holds the Lease"
    ):
        run(play(script))


def test_it_sees_an_operator_that_needs_its_role_to_leave_a_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = ((0.0, Submit(2, 60)), (3.0, DeleteNamespace(2)), (12.0, EndWatches(WatchFault.CUT)))
    script = Script(7, "RollingUpdate", steps, named=True)
    run(play(script))

    async def stays(*_: object) -> bool:
        return False

    monkeypatch.setattr(reflector, "is_leaving", stays)
    with pytest.raises(Broken, match="for what was deleted to be created again"):
        run(play(script))


def test_it_sees_a_maintenance_in_which_nothing_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script(7, "ScheduledUpdate", ((0.0, ChangeTemplate()),))
    run(play(script))
    monkeypatch.setattr(replicas, "in_maintenance", lambda *_: False)
    with pytest.raises(AssertionError, match="outdated=2, updated=0"):
        run(play(script))


def test_it_sees_an_operator_that_takes_a_draining_node_for_a_drained_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script(7, "RollingUpdate", ((0.0, Submit(2, 60)), (5.0, Scale(0)), (30.0, Scale(2))))
    run(play(script))
    monkeypatch.setattr(states, "is_drained", states.is_drain)
    monkeypatch.setattr(drain, "nodes_with_jobs", lambda _: frozenset())
    with pytest.raises(Broken, match=r"I1: pod slinky-\d is deleted while its Slurm node"):
        run(play(script))


@pytest.mark.parametrize("read_after_the_job", [False, True])
def test_it_sees_a_pod_deleted_for_which_a_job_waits_unless_slurm_has_just_given_the_job_its_node(
    *, read_after_the_job: bool
) -> None:
    saving = {"enabled": True, "idleSeconds": 3600, "startSeconds": 120, "retrySeconds": 60}

    async def scenario() -> list[str]:
        async with world(7) as w:
            w.nodeset(replicas=1, powerSaving=saving | {"node": "CPUs=4 RealMemory=8000"})
            slurm = w.slurms["slurm", "slurm"]
            await w.until("the record", lambda: "slinky-0" in slurm.nodes)
            for name in w.kube_nodes:
                w.kubelets.cut_off(name, "slurmctld")
            w.job(1, 20)
            await w.until("the pod to run", lambda: bool(w.kubelets.running))
            await w.run(10)
            w.restarts_after = 1000.0
            w.crash()
            record = slurm.nodes["slinky-0"]
            await write(w, protocol.get_node("slinky-0"))
            if not read_after_the_job:
                record.power_at = w.wall_clock()
            await delete(w)
            return w.watchdog.broken

    try:
        found = run(scenario())
    except Broken as error:
        found = [str(error)]
    assert read_after_the_job == ("slinky-0 has jobs" in "".join(found))


@pytest.mark.parametrize(
    ("looks", "steps"), [(drain, (Scale(0),)), (edge, (DeletePod(0), DeletePod(1)))]
)
def test_it_sees_a_record_deleted_that_a_pending_job_names(
    monkeypatch: pytest.MonkeyPatch, looks: ModuleType, steps: tuple[Scale | DeletePod, ...]
) -> None:
    submitted = ((0.0, Submit(2, 20)), (2.0, Submit(2, 20, "named")))
    script = Script(7, "OnDelete", (*submitted, *((1.0, step) for step in steps), (60.0, Scale(2))))
    run(play(script))
    monkeypatch.setattr(looks, "named_nodes", lambda *_: {})
    with pytest.raises(
        Broken, match=r"I1: the record of slinky-\d is deleted, which job \d+ names"
    ):
        run(play(script))


def test_it_sees_the_end_of_a_pending_job_that_excludes_a_node_without_a_record() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            slurm = w.slurms["slurm", "slurm"]
            w.nodeset(replicas=2)
            await w.until("the nodes", lambda: len(slurm.nodes) == 2)
            job = w.job(2, 20, kind="excluding")
            w.change("slinky", {"replicas": 0})
            await w.until("the records to be deleted", lambda: not slurm.nodes)
            slurm.jobs[job.pending_id].states = {"NODE_FAIL"}
            await w.run(5)

    with pytest.raises(Broken, match=r"I1: pending job \d+ is \['NODE_FAIL'\]"):
        run(scenario())


def test_it_sees_an_operator_that_takes_every_drain_for_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script(
        7, "RollingUpdate", ((0.0, Admin(0, drain=True)), (30.0, Admin(0, drain=False)))
    )
    run(play(script))
    monkeypatch.setattr(drain, "should_undrain", lambda node, _: states.is_drain(node.states))
    monkeypatch.setattr(effects, "LIFTED", frozenset(reasons.Owner))
    with pytest.raises(
        Broken, match=r"I4: the foreign reason .* of Slurm node slinky-\d becomes ''"
    ):
        run(play(script))


def test_it_sees_an_operator_that_lifts_no_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(
        7, "RollingUpdate", tuple((0.0, CordonKubeNode(which, cordoned=True)) for which in range(6))
    )
    run(play(script))
    monkeypatch.setattr(drain, "should_undrain", lambda *_: False)
    with pytest.raises(AssertionError, match=r"'drained': \['slinky-\d'"):
        run(play(script))


def test_it_sees_a_node_sidecar_that_waits_for_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(7, "OnDelete", ((0.0, Submit(2, 60)), (5.0, DeletePod(0))))
    run(play(script))
    monkeypatch.setattr(
        machine, "_drain_answer", lambda this, _: machine._release(this, "no reason at all")
    )
    with pytest.raises(Broken, match=r"I1: job .* didn't end normally"):
        run(play(script))


def test_a_world_is_the_same_for_the_same_seed() -> None:
    async def scenario() -> list[str]:
        async with world(11) as w:
            w.nodeset(replicas=3)
            w.faults.writes[5] = KubeFault.LOST
            await w.run(30)
            w.crash()
            await w.run(30)
            return w.watchdog.log

    assert run(scenario()) == run(scenario())


def test_slurmctld_reads_only_the_newest_configuration_and_is_settled_only_with_it() -> None:
    async def scenario() -> None:
        async with world() as w:
            w.nodeset()
            await w.run(60)
            check_settled(w)
            w.restarts_after = 1000.0
            w.crash()
            before = w.slurmctlds["slurm"].running
            other = {"data": {"slurm.conf": f"{before}SlurmdDebug=debug\n"}}
            w.api.change(CONFIG_MAPS.path(), "slurm", names.accepted_config("slurm"), other)
            await w.run(30)
            assert w.slurmctlds["slurm"].running == before
            w.api.change(CONFIG_MAPS.path(), "slurm", names.config("slurm"), other)
            with pytest.raises(AssertionError, match="I9"):
                check_settled(w)
            await w.run(30)
            check_settled(w)
            assert w.slurmctlds["slurm"].running == other["data"]["slurm.conf"]

    run(scenario())


@pytest.mark.parametrize("setting", [0, 1, 2])
def test_a_node_that_slurmctld_must_return_to_service_is_resumed_by_no_administrator(
    setting: int,
) -> None:
    async def scenario() -> None:
        async with world() as w:
            w.nodeset(replicas=2)
            await w.run(60)
            slurm = w.slurms["slurm", "slurm"]
            slurm.return_to_service = setting
            slurm.node_vanish("slinky-0")
            slurm.nodes["slinky-0"].silent_until = 0.0
            resume_silent(w)
            if setting == 0:
                check_settled(w)
                return
            with pytest.raises(AssertionError, match="'unavailable': \\['slinky-0'\\]"):
                check_settled(w)

    run(scenario())
