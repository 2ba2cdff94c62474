"""The whole role, against doubles of Kubernetes and of Slurm."""

import asyncio
import base64
import dataclasses
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sidecars.bridge import main, memory
from sidecars.bridge.core import decide, starting
from sidecars.bridge.core.groups import SourceKind
from sidecars.bridge.core.records import View
from sidecars.bridge.effects import BY_JOB
from sidecars.bridge.memory import AVOID_SECONDS, Memory
from sidecars.bridge.node_records import NodeRecords
from sidecars.bridge.owners import RESOURCES
from sidecars.bridge.passes import LEAST_PAUSE
from sidecars.bridge.settings import TokenSecret
from sidecars.contract import bridge
from sidecars.kube import NODES, PODS, SECRETS
from sidecars.simulate.records import Fault
from sidecars.slurm.states import is_drain
from sidecars.slurm.tokens import sign
from tests.support.apiserver import until
from tests.support.bridge import KEY, live, node, pod
from tests.support.virtual_time import run_with_sockets
from tests.unit.bridge.world import World, a_world, served


async def test_a_pod_goes_through_the_whole_protocol(world: World) -> None:
    async with world.bridge():
        await world.until("the node's record", lambda: "k1" in world.slurm.nodes)
        world.kube.put(PODS, pod("team", "p", cpu="1500m"))
        job = await world.job()
        assert (job.user, job.cpus, job.memory, job.partition) == ("ada", 2, 100, "slurm-bridge")
        assert world.pod()["metadata"]["labels"][bridge.JOB_LABEL] == str(job.job_id)
        assert bridge.decode(job.admin_comment) == bridge.decode(job.comment)
        await world.until(
            "the condition", lambda: "Resources" in world.condition().get("message", "")
        )
        assert not world.released()
        world.slurm.job_run(job.job_id, {"k1": 1})
        await world.until("the release", world.released)
        written = world.pod()["metadata"]
        assert written["annotations"] == {
            bridge.NODE_ANNOTATION: "k1",
            bridge.GROUP_ANNOTATION: written["uid"],
        }
        world.bind()
        await world.until(
            "the condition to be over", lambda: world.condition()["reason"] == "Released"
        )
        world.slurm.job_end(job.job_id, state="TIMEOUT")
        await world.until(
            "the pod to be gone", lambda: ("team", "p") not in world.kube.objects(PODS)
        )
        # Events are written beside what they are about.
        await world.until(
            "the Events", lambda: world.reasons() == {"Submitted", "Released", "JobEnded"}
        )
    assert len(world.slurm.jobs) == 1


async def test_no_pod_gets_a_job_of_a_slurm_that_is_too_old_until_it_is_updated(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.slurm.release = (26, 5, 2)
    world.kube.put(PODS, pod("team", "p"))
    async with world.bridge() as passes:
        await world.until("the refusal", lambda: bool(passes and passes[0].unsupported))
        assert passes[0].unsupported == (
            "the Slurm Bridge needs Slurm 26.05.3 or newer, and slurmrestd reports 26.05.2: "
            "update Slurm"
        )
        assert [it.levelname for it in caplog.records if "26.05.2" in it.message] == ["ERROR"]
        assert not [it for it in world.slurm.calls if it.method != "GET"]
        world.slurm.release = (26, 5, 3)
        world.slurm.node_register("other")
        await world.job()
        assert passes[0].unsupported == ""


async def test_a_group_is_one_job_and_each_pod_gets_a_place(world: World) -> None:
    world.kube.put(NODES, node("k2"))
    async with world.bridge():
        await world.until("the records", lambda: {"k1", "k2"} <= world.slurm.nodes.keys())
        world.kube.put(PODS, pod("team", "p0", group=("g", 3)))
        await world.until(
            "the condition", lambda: world.condition("p0").get("reason") == "GroupIncomplete"
        )
        assert not live(world.slurm)
        for name in ("p1", "p2"):
            world.kube.put(PODS, pod("team", name, group=("g", 3)))
        job = await world.job()
        assert job.tasks == 3
        world.slurm.job_run(job.job_id, {"k1": 2, "k2": 1})
        await world.until("the release", lambda: all(world.released(f"p{i}") for i in range(3)))
    nodes = [
        world.pod(f"p{i}")["metadata"]["annotations"][bridge.NODE_ANNOTATION] for i in range(3)
    ]
    assert sorted(nodes) == ["k1", "k1", "k2"]


def of_job_set(name: str, replicated_job: str, cpu: str) -> dict[str, Any]:
    """A pod as the JobSet controller's Jobs create it."""
    item = pod("team", name, cpu=cpu)
    prefix = "jobset.sigs.k8s.io/"
    item["metadata"]["labels"] = {
        f"{prefix}jobset-name": "js",
        f"{prefix}jobset-uid": "s",
        f"{prefix}replicatedjob-name": replicated_job,
    }
    return item


JOB_SET = {
    "metadata": {"namespace": "team", "name": "js", "uid": "s"},
    "spec": {
        "replicatedJobs": [
            {
                "name": "driver",
                "replicas": 1,
                "template": {"spec": {"parallelism": 1, "completions": 1}},
            },
            {
                "name": "workers",
                "replicas": 1,
                "template": {"spec": {"parallelism": 2, "completions": 2}},
            },
        ]
    },
}


async def test_a_job_set_of_a_driver_and_workers_is_one_heterogeneous_job(world: World) -> None:
    world.kube.put(NODES, node("k2"))
    names = ("d", "w0", "w1")
    async with world.bridge():
        await world.until("the records", lambda: {"k1", "k2"} <= world.slurm.nodes.keys())
        world.kube.put(PODS, of_job_set("d", "driver", "1"))
        await world.until(
            "the condition", lambda: "doesn't exist" in world.condition("d").get("message", "")
        )
        world.kube.put(RESOURCES[SourceKind.JOB_SET], JOB_SET)
        world.kube.put(PODS, of_job_set("w0", "workers", "3"))
        await world.until(
            "the condition",
            lambda: "2 of 3 pods of JobSet js" in world.condition("d").get("message", ""),
        )
        assert not live(world.slurm)
        world.kube.put(PODS, of_job_set("w1", "workers", "3"))
        await world.until(
            "the start", lambda: [it.blocked for it in live(world.slurm)] == [False, False]
        )
        components = {it.cpus: it for it in live(world.slurm)}
        assert {cpus: it.tasks for cpus, it in components.items()} == {1: 1, 3: 2}
        assert {it.name for it in components.values()} == {"js"}
        labels = [int(world.pod(it)["metadata"]["labels"][bridge.JOB_LABEL]) for it in names]
        assert labels == [components[1].job_id, components[3].job_id, components[3].job_id]
        world.slurm.job_run(components[1].job_id, {"k1": 1})
        asked = len(world.slurm.requests("GET", "jobs/state/"))
        await world.until(
            "some passes", lambda: len(world.slurm.requests("GET", "jobs/state/")) > asked + 3
        )
        assert not any(world.released(it) for it in names)
        world.slurm.job_run(components[3].job_id, {"k1": 1, "k2": 1})
        await world.until("the release", lambda: all(world.released(it) for it in names))
        for name in names:
            world.bind(name)
        world.slurm.job_end(components[3].job_id, state="TIMEOUT")
        world.slurm.job_end(components[1].job_id, state="TIMEOUT")
        await world.until("the pods to be gone", lambda: not world.kube.objects(PODS))
    assert len(world.slurm.jobs) == 2


JOB_OBJECT: dict[str, Any] = {
    "metadata": {
        "namespace": "team",
        "name": "j",
        "annotations": {f"{bridge.WISHES}job-name": "wave"},
    },
    "spec": {"parallelism": 4, "completions": 6, "activeDeadlineSeconds": 600},
    "status": {"succeeded": 4},
}


def of_job(name: str) -> dict[str, Any]:
    found = pod("team", name)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    found["metadata"] |= {
        "labels": {bridge.GROUP_SIZE_LABEL: "4"},
        "ownerReferences": [owner],
    }
    return found


async def test_the_last_pods_of_a_job_start_with_its_annotations_and_its_time_limit(
    world: World,
) -> None:
    async with world.bridge():
        await world.until("the node's record", lambda: "k1" in world.slurm.nodes)
        world.kube.put(PODS, of_job("p4"))
        await world.until(
            "the condition", lambda: "Job j" in world.condition("p4").get("message", "")
        )
        world.kube.put(RESOURCES[SourceKind.JOB], JOB_OBJECT)
        world.kube.put(PODS, of_job("p5"))
        job = await world.job()
        assert (job.tasks, job.time_limit, job.name) == (2, 10, "wave")


async def test_the_end_of_one_component_by_itself_ends_the_whole_job(world: World) -> None:
    world.kube.put(RESOURCES[SourceKind.JOB_SET], JOB_SET)
    world.kube.put(NODES, node("k2"))
    for name, job, cpu in (("d", "driver", "1"), ("w0", "workers", "3"), ("w1", "workers", "3")):
        world.kube.put(PODS, of_job_set(name, job, cpu))
    async with world.bridge():
        await world.until(
            "the start", lambda: [it.blocked for it in live(world.slurm)] == [False, False]
        )
        last = max(it.job_id for it in live(world.slurm))
        world.slurm.job_end(last, state="CANCELLED")
        await world.until("the pods to be gone", lambda: not world.kube.objects(PODS))
        await world.until("the other component's end", lambda: not live(world.slurm))


async def test_each_phase_of_jobs_that_live_is_counted_also_the_ones_that_no_job_is_in(
    world: World,
) -> None:
    living = {"submitted": 0, "pending": 0, "starting": 0, "running": 0, "stopped": 0}
    async with world.bridge() as passes:
        await world.until("a pass", lambda: bool(passes) and passes[-1].answer_age() is not None)
        assert dict(passes[-1].phases()) == living
        job = await world.running()
        await world.until(
            "the running job", lambda: dict(passes[-1].phases()) == living | {"running": 1}
        )
        world.slurm.job_end(job.job_id)
        await world.until("its end", lambda: dict(passes[-1].phases()) == living)


@pytest.mark.parametrize(
    "fault", [Fault.SERVER_ERROR, Fault.NO_SLURMCTLD, Fault.EMPTY, Fault.RESET, Fault.BAD_TOKEN]
)
async def test_no_pod_is_deleted_and_nothing_submitted_while_slurm_is_unknown(
    world: World, fault: Fault
) -> None:
    async with world.bridge():
        await world.running()
        world.slurm.fail(fault)
        world.kube.put(PODS, pod("team", "other"))
        before = len(world.slurm.requests("GET", "jobs/state/"))
        await world.until(
            "some passes", lambda: len(world.slurm.requests("GET", "jobs/state/")) > before + 3
        )
        assert ("team", "p") in world.kube.objects(PODS)
        assert len(world.slurm.requests("POST", "job/submit")) == 1
        assert not world.slurm.requests("DELETE")
        world.slurm.heal()
        await world.until("the other pod's job", lambda: len(live(world.slurm)) == 2)
    assert ("team", "p") in world.kube.objects(PODS)


def test_ten_minutes_without_slurm_end_no_pod_and_no_pass_and_the_next_pod_gets_its_job(
    tmp_path: Path,
) -> None:
    """In virtual time: nodes count as lost, empty lists are believed and passes count as stuck
    after a minute.
    """

    async def outage() -> None:
        loop = asyncio.get_running_loop()
        async with a_world(tmp_path) as world, world.bridge() as passes:
            job = await world.running()
            world.slurm.fail(Fault.NO_SLURMCTLD)
            world.kube.put(PODS, pod("team", "other"))
            begun, before = loop.time(), len(world.slurm.requests("GET", "jobs/state/"))
            while loop.time() < begun + 600:
                await asyncio.sleep(20)
                assert loop.time() - passes[-1].last_pass < main.STUCK_SECONDS
            assert len(world.slurm.requests("GET", "jobs/state/")) > before + 100
            assert not [call for call in world.kube.calls if call.method == "DELETE"]
            assert len(world.slurm.requests("POST", "job/submit")) == 1
            world.slurm.heal()
            await world.until(
                "the other pod's job",
                lambda: [it.blocked for it in live(world.slurm)] == [False, False],
            )
            world.slurm.job_run(live(world.slurm)[-1].job_id, {"k1": 1})
            await world.until("the release", lambda: world.released("other"))
            assert ("team", "p") in world.kube.objects(PODS)
            world.slurm.job_end(job.job_id)
            await world.until(
                "the pod of the ended job to be gone",
                lambda: ("team", "p") not in world.kube.objects(PODS),
            )

    run_with_sockets(outage())


async def test_a_bridge_that_starts_again_adopts_the_job_that_was_submitted(world: World) -> None:
    world.kube.put(PODS, pod("team", "p"))
    world.slurm.fail(Fault.SERVER_ERROR, method="POST", path="job/1")
    world.kube.write_faults.extend(["500"] * 200)
    async with world.bridge():
        await world.until("a held job", lambda: bool(live(world.slurm)))
    [job] = live(world.slurm)
    assert job.blocked
    world.slurm.heal()
    world.kube.write_faults.clear()
    async with world.bridge():
        assert (await world.job()).job_id == job.job_id
        world.slurm.job_run(job.job_id, {"k1": 1})
        await world.until("the release", world.released)
    async with world.bridge():
        world.bind()
        world.slurm.job_end(job.job_id)
        await world.until(
            "the pod to be gone", lambda: ("team", "p") not in world.kube.objects(PODS)
        )
    assert len(world.slurm.jobs) == 1


async def test_a_pod_whose_job_ended_and_was_forgotten_while_no_bridge_ran_ends(
    world: World,
) -> None:
    async with world.bridge():
        job = await world.running()
    world.slurm.job_end(job.job_id, state="TIMEOUT")
    world.slurm.job_forget(job.job_id)
    async with world.bridge():
        await world.until(
            "the pod to be gone", lambda: ("team", "p") not in world.kube.objects(PODS)
        )
    assert "JobUnknown" not in str([call.body for call in world.kube.calls])


async def test_a_pod_whose_forgotten_job_has_no_end_in_slurmdbd_stays_and_shows_that(
    world: World,
) -> None:
    async with world.bridge():
        job = await world.running()
    # As after the loss of slurmctld's state.
    world.slurm.job_forget(job.job_id)
    async with world.bridge():
        await world.until("the reason", lambda: world.condition().get("reason") == "JobUnknown")
        await passes(world, 3)
        assert len(world.slurm.requests("GET", "slurmdb/job/")) == 1
        assert ("team", "p") in world.kube.objects(PODS)


async def test_without_slurmdbd_the_pod_of_a_forgotten_job_stays_and_others_get_their_jobs(
    world: World,
) -> None:
    world.slurm.accounting = None
    async with world.bridge():
        job = await world.running()
    world.slurm.job_end(job.job_id)
    world.slurm.job_forget(job.job_id)
    async with world.bridge():
        await world.until("the reason", lambda: world.condition().get("reason") == "JobUnknown")
        world.kube.put(PODS, pod("team", "next"))
        await world.job()
        assert ("team", "p") in world.kube.objects(PODS)


async def test_an_answer_that_is_lost_leads_to_no_second_job(world: World) -> None:
    world.slurm.fail(Fault.CUT, 1, method="POST", path="job/submit")
    world.kube.put(PODS, pod("team", "p"))
    async with world.bridge():
        assert (await world.job()).job_id == 1
    assert len(world.slurm.jobs) == 1


async def test_the_job_of_a_deleted_pod_is_cancelled(world: World) -> None:
    world.kube.put(PODS, pod("team", "p"))
    async with world.bridge():
        job = await world.job()
        world.kube.remove(PODS, "team", "p")
        await world.until("the job's end", lambda: not live(world.slurm))
        assert job.states == {"CANCELLED"}


async def test_the_next_pod_waits_until_the_pod_of_an_ended_job_is_gone(world: World) -> None:
    async with world.bridge():
        await world.until("the node's record", lambda: "k1" in world.slurm.nodes)
        world.kube.put(PODS, pod("team", "p"))
        job = await world.job()
        world.slurm.job_run(job.job_id, {"k1": 1})
        await world.until("the release", world.released)
        terminating = world.pod()
        terminating["spec"]["nodeName"] = "k1"
        terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        world.kube.put(PODS, terminating)
        world.slurm.job_end(job.job_id, state="CANCELLED")
        world.kube.put(PODS, pod("team", "next"))
        following = await world.job()
        world.slurm.job_run(following.job_id, {"k1": 1})
        await world.until(
            "the reason", lambda: world.condition("next").get("reason") == "NodeNotFree"
        )
        assert not world.released("next")
        world.kube.remove(PODS, "team", "p")
        await world.until("the release", lambda: world.released("next"))


async def test_the_next_pod_waits_for_a_pod_on_a_node_that_its_job_has_given_up(
    world: World,
) -> None:
    world.kube.put(NODES, node("k2"))
    for name in ("p0", "p1"):
        world.kube.put(PODS, pod("team", name, group=("g", 2)))
    async with world.bridge():
        await world.until("the records", lambda: {"k1", "k2"} <= world.slurm.nodes.keys())
        job = await world.job()
        world.slurm.job_run(job.job_id, {"k1": 1, "k2": 1})
        await world.until("the release", lambda: world.released("p0") and world.released("p1"))
        world.bind("p0")
        world.bind("p1")
        # As `scontrol update` of its owner does it: the job runs on.
        del job.allocation["k2"]
        world.kube.put(PODS, pod("team", "next"))
        await world.until(
            "the start", lambda: [it.blocked for it in live(world.slurm)] == [False, False]
        )
        world.slurm.job_run(live(world.slurm)[-1].job_id, {"k2": 1})
        await world.until(
            "the reason", lambda: world.condition("next").get("reason") == "NodeNotFree"
        )
        assert not world.released("next")


async def test_the_next_pod_waits_for_a_pod_whose_job_a_killed_slurmctld_has_started_elsewhere(
    world: World,
) -> None:
    world.kube.put(NODES, node("k2"))
    world.kube.put(PODS, pod("team", "p"))
    async with world.bridge():
        await world.until("the records", lambda: {"k1", "k2"} <= world.slurm.nodes.keys())
        job = await world.job()
        world.slurm.job_run(job.job_id, {"k1": 1})
        await world.until("the release", lambda: world.released("p"))
        world.bind("p")
        world.kube.put(PODS, pod("team", "next"))
        await world.until(
            "the start", lambda: [it.blocked for it in live(world.slurm)] == [False, False]
        )
        # Between two looks, and with the states of before.
        job.allocation["k2"] = job.allocation.pop("k1")
        world.slurm.started_at += 1
        world.slurm.job_run(live(world.slurm)[-1].job_id, {"k1": 1})
        await world.until(
            "the reason", lambda: world.condition("next").get("reason") == "NodeNotFree"
        )
        assert not world.released("next")


async def test_while_no_pod_waits_nothing_is_decided_until_slurmctld_has_started_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    views: list[View] = []

    def counted(view: View) -> decide.Decision:
        views.append(view)
        return decide.decided(view)

    monkeypatch.setattr("sidecars.bridge.passes.decided", counted)
    world.kube.put(NODES, node("k2"))
    world.kube.put(PODS, pod("team", "p"))
    async with world.bridge():
        await world.until("the records", lambda: {"k1", "k2"} <= world.slurm.nodes.keys())
        job = await world.job()
        world.slurm.job_run(job.job_id, {"k1": 1})
        await world.until("the release", world.released)
        world.bind()
        running = world.pod()
        running.setdefault("status", {})["phase"] = "Running"
        world.kube.put(PODS, running)

        def seen_running() -> bool:
            [found] = views[-1].pods
            return found.bound and found.starting is None

        await world.until("the pod to be seen running", seen_running)
        asked = len(world.slurm.requests("GET", "conf"))
        await world.until(
            "one period", lambda: len(world.slurm.requests("GET", "conf")) > asked + 1
        )
        asked, seen = len(world.slurm.requests("GET", "conf")), len(views)
        await world.until(
            "three periods", lambda: len(world.slurm.requests("GET", "conf")) >= asked + 3
        )
        assert len(views) == seen
        job.allocation["k2"] = job.allocation.pop("k1")
        world.slurm.started_at += 1
        await world.until(
            "a look", lambda: any(it.slots == (("k2", 1),) for it in views[-1].jobs.values())
        )


async def test_a_pod_whose_annotations_became_wrong_gets_no_more_than_its_job_has(
    world: World,
) -> None:
    async with world.bridge():
        await world.until("the node's record", lambda: "k1" in world.slurm.nodes)
        world.kube.put(PODS, pod("team", "p"))
        job = await world.job()
        # Its owner may do both while it waits.
        job.memory = 10
        item = world.pod()
        item["metadata"]["annotations"] = {f"{bridge.WISHES}partition": "secret"}
        world.kube.put(PODS, item)
        world.slurm.job_run(job.job_id, {"k1": 1})
        await world.until("a decision", lambda: world.released() or "reason" in world.condition())
        assert "no place left" in world.condition()["message"]


async def test_a_pod_whose_group_was_changed_gets_no_more_than_its_job_has(world: World) -> None:
    async with world.bridge():
        await world.until("the node's record", lambda: "k1" in world.slurm.nodes)
        world.kube.put(PODS, pod("team", "p"))
        job = await world.job()
        # Its owner may do both while it waits.
        job.memory = 10
        item = world.pod()
        item["metadata"]["labels"] |= {bridge.GROUP_LABEL: "other", bridge.GROUP_SIZE_LABEL: "1"}
        world.kube.put(PODS, item)
        world.slurm.job_run(job.job_id, {"k1": 1})
        await world.until("a decision", lambda: world.released() or "reason" in world.condition())
        assert "no place left" in world.condition()["message"]


async def test_pods_that_can_have_no_job_show_the_reason(world: World) -> None:
    world.slurm.users = frozenset({"slurm"})
    world.kube.put(PODS, pod("nobody", "p"))
    world.kube.put(PODS, pod("team", "p"))

    def message(namespace: str) -> str:
        conditions = (world.kube.objects(PODS)[namespace, "p"].get("status") or {}).get(
            "conditions"
        ) or [{}]
        return str(conditions[0].get("message", ""))

    async with world.bridge():
        await world.until("the unmapped one", lambda: "no Slurm user" in message("nobody"))
        await world.until("the unknown user", lambda: "6010" in message("team"))
    assert "Refused" in world.reasons()


async def passes(world: World, count: int) -> None:
    """Some more."""
    asked = len(world.slurm.requests("GET", "jobs/state/"))
    await world.until(
        "some passes", lambda: len(world.slurm.requests("GET", "jobs/state/")) > asked + count
    )


async def test_a_user_with_uid_0_gets_nothing_started(world: World) -> None:
    """slurmrestd shows root, whatever the name of the user."""
    world.slurm.names = {"toor": "root"}
    world.kube.put(PODS, pod("rooted", "p"))

    def message() -> str:
        conditions = (world.kube.objects(PODS)["rooted", "p"].get("status") or {}).get(
            "conditions"
        ) or [{}]
        return str(conditions[0].get("message", ""))

    async with world.bridge():
        await world.until("the refusal", lambda: "uid 0" in message())
        await world.until("the job's end", lambda: bool(world.slurm.jobs) and not live(world.slurm))
        await passes(world, 5)
    assert [job.blocked for job in world.slurm.jobs.values()] == [True]


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        ("Ada", ("user Ada", "user ada", "maps namespace team")),
        ("", ("no user", "user ada", "uid")),
    ],
)
async def test_a_user_whom_slurm_shows_by_another_name_gets_one_job_which_is_cancelled(
    world: World, shown: str, words: tuple[str, ...]
) -> None:
    world.slurm.names = {"ada": shown}
    world.kube.put(PODS, pod("team", "p"))
    async with world.bridge():
        await world.until("the refusal", lambda: world.condition().get("reason") == "Refused")
        assert all(word in world.condition()["message"] for word in words)
        await world.until("the job's end", lambda: bool(world.slurm.jobs) and not live(world.slurm))
        await passes(world, 5)
        assert len(world.slurm.jobs) == 1
    assert {"Refused"} <= world.reasons()


async def test_the_next_job_avoids_a_node_only_for_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = 0.0
    avoided = Memory.avoided
    monkeypatch.setattr(Memory, "avoided", lambda memory, now: avoided(memory, now + later))
    monkeypatch.setattr(decide, "BIND_SECONDS", 0.2)
    world.kube.put(NODES, node("k2"))
    world.kube.put(PODS, pod("team", "p", group=("g", 1)))
    async with world.bridge():
        await world.until("the records", lambda: {"k1", "k2"} <= world.slurm.nodes.keys())
        world.slurm.job_run((await world.job()).job_id, {"k1": 1})
        await world.until("the release", world.released)
        item = world.pod()
        unbound = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "no volume",
        }
        world.kube.put(PODS, {**item, "status": {**item["status"], "conditions": [unbound]}})
        await world.until("the job's end", lambda: not live(world.slurm))
        world.kube.remove(PODS, "team", "p")
        world.kube.put(PODS, pod("team", "p", group=("g", 1)))
        following = await world.job()
        await passes(world, 5)
        assert following.excluded == ["k1"]
        later = AVOID_SECONDS
        await world.until("the node to be allowed again", lambda: following.excluded == [])
    assert following.states == {"PENDING"}


def test_a_scheduler_that_is_away_for_twenty_minutes_costs_no_pod_its_job(tmp_path: Path) -> None:
    async def away() -> None:
        async with a_world(tmp_path) as world, world.bridge():
            await world.until("the node's record", lambda: "k1" in world.slurm.nodes)
            world.kube.put(PODS, pod("other", "first"))
            world.kube.put(PODS, pod("team", "p"))
            job = await world.job()
            world.slurm.job_run(job.job_id, {"k1": 1})
            await world.until("the release", world.released)
            await asyncio.sleep(1200)
            # It is back, and has bound another one first.
            first = world.kube.objects(PODS)["other", "first"]
            first["spec"]["nodeName"] = "k1"
            world.kube.put(PODS, first)
            await asyncio.sleep(30)
            assert job.states == {"RUNNING"}
            world.bind()
            await asyncio.sleep(400)
            assert job.states == {"RUNNING"}

    run_with_sockets(away())


def test_a_pod_that_the_scheduler_passes_over_costs_its_job(tmp_path: Path) -> None:
    async def passed_over() -> None:
        async with a_world(tmp_path) as world, world.bridge():
            await world.until("the node's record", lambda: "k1" in world.slurm.nodes)
            world.kube.put(PODS, pod("other", "first"))
            world.kube.put(PODS, pod("team", "p"))
            job = await world.job()
            world.slurm.job_run(job.job_id, {"k1": 1})
            await world.until("the release", world.released)
            await asyncio.sleep(250)
            first = world.kube.objects(PODS)["other", "first"]
            first["spec"]["nodeName"] = "k1"
            world.kube.put(PODS, first)
            await until("the job's end", world.when(lambda: "CANCELLED" in job.states), 70)

    run_with_sockets(passed_over())


def test_a_pod_whose_image_can_not_be_pulled_gives_its_node_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "FAULT_SECONDS", 30.0)
    fails = {"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff"}}}

    async def unpullable() -> None:
        async with a_world(tmp_path) as world, world.bridge():
            job = await world.running()
            item = world.pod()
            item["status"] = {"phase": "Pending", "containerStatuses": [fails]}
            world.kube.put(PODS, item)
            await asyncio.sleep(20)
            assert job.states == {"RUNNING"}
            await until("the job's end", world.when(lambda: "CANCELLED" in job.states), 90)
            gone = world.when(lambda: ("team", "p") not in world.kube.objects(PODS))
            await until("the pod's end", gone)
            assert "NotStarted" in world.reasons()
            assert "NotBound" not in world.reasons()

    run_with_sockets(unpullable())


def test_a_pod_that_has_started_in_the_end_keeps_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "FAULT_SECONDS", 30.0)
    fails = {"name": "c", "state": {"waiting": {"reason": "ErrImagePull"}}}

    async def late() -> None:
        async with a_world(tmp_path) as world, world.bridge():
            job = await world.running()
            for status in (fails, {"name": "c", "state": {"running": {}}}):
                item = world.pod()
                item["status"] = {"phase": "Pending", "containerStatuses": [status]}
                world.kube.put(PODS, item)
                await asyncio.sleep(20)
            await asyncio.sleep(90)
            assert job.states == {"RUNNING"}

    run_with_sockets(late())


async def test_a_job_excludes_the_nodes_whose_taints_its_pod_does_not_tolerate(
    world: World,
) -> None:
    tainted = node("k1")
    tainted["spec"]["taints"] = [{"key": "team", "effect": "NoSchedule"}]
    world.kube.put(NODES, tainted)
    world.kube.put(NODES, node("k2"))
    async with world.bridge():
        await world.until("the records", lambda: {"k1", "k2"} <= world.slurm.nodes.keys())
        world.kube.put(PODS, pod("team", "p"))
        job = await world.job()
        assert job.excluded == ["k1"]
        world.kube.put(NODES, node("k1"))
        await world.until("the node to be allowed", lambda: job.excluded == [])
        tainted = node("k2")
        tainted["spec"]["taints"] = [{"key": "team", "effect": "NoSchedule"}]
        world.kube.put(NODES, tainted)
        await world.until("the other one to be excluded", lambda: job.excluded == ["k2"])
        tainted = node("k1")
        tainted["spec"]["taints"] = [{"key": "team", "effect": "NoSchedule"}]
        world.kube.put(NODES, tainted)
        world.kube.put(PODS, pod("team", "other"))
        await world.until(
            "the reason",
            lambda: "has the taint team" in world.condition("other").get("message", ""),
        )
        assert len(world.slurm.jobs) == 1


def test_a_pod_whose_node_is_cordoned_and_deleted_in_the_moment_of_its_start_gets_another_node(
    tmp_path: Path,
) -> None:
    async def lost() -> None:
        async with a_world(tmp_path) as world, world.bridge():
            world.kube.put(NODES, node("k2"))
            await until(
                "the records", world.when(lambda: {"k1", "k2"} <= world.slurm.nodes.keys()), 80
            )
            world.kube.put(PODS, pod("team", "p"))
            first = await world.job()
            uid = world.pod()["metadata"]["uid"]
            cordoned = node("k1")
            cordoned["spec"]["unschedulable"] = True
            world.kube.put(NODES, cordoned)
            await asyncio.sleep(2)
            world.slurm.job_run(first.job_id, {"k1": 1})
            await world.until(
                "the condition", lambda: world.condition().get("reason") == "NodeNotFree"
            )
            world.kube.remove(NODES, "", "k1")
            await asyncio.sleep(50)
            assert "RUNNING" in first.states
            await until("the job's end", world.when(lambda: "CANCELLED" in first.states), 15)
            await until(
                "another job",
                world.when(lambda: any(not it.blocked for it in live(world.slurm))),
                15,
            )
            following = await world.job()
            world.slurm.job_run(following.job_id, {"k2": 1})
            await world.until("the release", world.released)
            written = world.pod()["metadata"]
            assert (written["uid"], written["annotations"][bridge.NODE_ANNOTATION]) == (uid, "k2")
            assert "Requeued" in world.reasons()

    run_with_sockets(lost())


def test_a_pod_that_kubernetes_refuses_to_change_at_all_keeps_no_nodes_and_is_not_deleted(
    tmp_path: Path,
) -> None:
    """Neither when the bridge is started again: only its label can show that it has had the job."""

    def refuses(body: Any) -> str:
        written = [it["path"] for it in body] if isinstance(body, list) else [*body.get("spec", ())]
        job = any("/metadata/labels/" in it or "Gates" in it for it in written)
        return "no changes" if job else ""

    async def refused() -> None:
        async with a_world(tmp_path) as world:
            async with world.bridge():
                await until("the record", world.when(lambda: "k1" in world.slurm.nodes), 80)
                world.kube.put(PODS, pod("team", "p"))
                first = await world.job()
                uid = world.pod()["metadata"]["uid"]
                world.kube.webhook = refuses
                world.slurm.job_run(first.job_id, {"k1": 1})
                await until("the end", world.when(lambda: "CANCELLED" in first.states), 70)
                await asyncio.sleep(30)
            async with world.bridge():
                await asyncio.sleep(30)
                assert world.pod()["metadata"]["labels"][bridge.JOB_LABEL] == str(first.job_id)
                assert not live(world.slurm)
                world.kube.webhook = lambda _: ""
                await until(
                    "another job",
                    world.when(lambda: any(not it.blocked for it in live(world.slurm))),
                    310,
                )
            assert world.pod()["metadata"]["uid"] == uid

    run_with_sockets(refused())


def test_a_pod_that_kubernetes_refuses_to_release_gives_its_nodes_back_after_a_minute(
    tmp_path: Path,
) -> None:
    def refuses(body: Any) -> str:
        gate = isinstance(body, list) and any(
            it["path"].startswith("/spec/schedulingGates/") for it in body
        )
        return (
            "no releases"
            if gate and any(it["op"] == "remove" and "Gates" in it["path"] for it in body)
            else ""
        )

    async def refused() -> None:
        async with a_world(tmp_path) as world, world.bridge():
            await until("the record", world.when(lambda: "k1" in world.slurm.nodes), 80)
            world.kube.webhook = refuses
            world.kube.put(PODS, pod("team", "p"))
            first = await world.job()
            uid = world.pod()["metadata"]["uid"]
            world.slurm.job_run(first.job_id, {"k1": 1})
            await world.until(
                "the condition", lambda: "no releases" in world.condition().get("message", "")
            )
            for number in range(5):  # another program changes the pod all the time
                await asyncio.sleep(10)
                changed = world.pod()
                changed["metadata"].setdefault("annotations", {})["a"] = str(number)
                world.kube.put(PODS, changed)
            assert "RUNNING" in first.states
            await until("the job's end", world.when(lambda: "CANCELLED" in first.states), 15)
            world.kube.webhook = lambda _: ""
            await until(
                "another job",
                world.when(lambda: any(not it.blocked for it in live(world.slurm))),
                15,
            )
            following = await world.job()
            world.slurm.job_run(following.job_id, {"k1": 1})
            await world.until("the release", world.released)
            assert world.pod()["metadata"]["uid"] == uid

    run_with_sockets(refused())


@pytest.mark.parametrize("state", ["TIMEOUT", "PREEMPTED", "NODE_FAIL"])
async def test_a_pod_that_never_ran_is_not_deleted_when_slurm_has_ended_its_job(
    world: World, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr(memory, "FIRST_RETRY", 0.1)
    async with world.bridge():
        world.kube.put(PODS, pod("team", "p"))
        first = await world.job()
        uid = world.pod()["metadata"]["uid"]
        await passes(world, 2)
        world.slurm.job_end(first.job_id, state=state)
        await world.until(
            "another job",
            lambda: [it.job_id for it in live(world.slurm)] not in ([], [first.job_id]),
        )
        following = await world.job()
        await world.until(
            "its id",
            lambda: (
                world.pod()["metadata"]["labels"].get(bridge.JOB_LABEL) == str(following.job_id)
            ),
        )
    assert world.pod()["metadata"]["uid"] == uid
    assert not world.released()


async def test_a_pod_that_runs_shows_before_its_deletion_that_slurm_has_preempted_it(
    world: World,
) -> None:
    async with world.bridge():
        job = await world.running()
        item = world.pod()
        item["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
        world.kube.put(PODS, item)
        world.slurm.job_end(job.job_id, state="PREEMPTED")
        await world.until(
            "the deletion", lambda: world.pod()["metadata"].get("deletionTimestamp") is not None
        )
        [shown] = [
            it for it in world.pod()["status"]["conditions"] if it["type"] == "DisruptionTarget"
        ]
        assert (shown["status"], shown["reason"]) == ("True", "PreemptedBySlurm")


async def test_a_pod_that_never_ran_ends_with_a_job_that_its_owner_cancels(world: World) -> None:
    async with world.bridge():
        world.kube.put(PODS, pod("team", "p"))
        job = await world.job()
        world.slurm.job_end(job.job_id, state="CANCELLED")
        await world.until(
            "the pod to be gone", lambda: ("team", "p") not in world.kube.objects(PODS)
        )
    assert len(world.slurm.jobs) == 1


async def test_a_job_of_a_stranger_with_a_copied_comment_has_no_effect(world: World) -> None:
    world.kube.put(PODS, pod("team", "p"))
    async with world.bridge():
        job = await world.job()
        content = {
            "flags": ["EXTERNAL_JOB"],
            "partition": "slurm-bridge",
            "comment": job.comment,
            "hold": True,
        }
        world.slurm.submit_job({"job": content}, "eve")
        await passes(world, 5)
    assert [it.user for it in live(world.slurm)] == ["ada", "eve"]
    assert [it.blocked for it in live(world.slurm)] == [False, True]


async def test_a_job_that_no_node_fitted_for_a_while_starts_when_a_record_comes_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "REPEAT_AFTER", 0.1)
    monkeypatch.setattr(memory, "FIRST_RETRY", 60.0)
    async with world.bridge():
        world.kube.put(PODS, pod("team", "p"))
        job = await world.job()
        world.kube.remove(NODES, "", "k1")
        await world.until("the record to be gone", lambda: "k1" not in world.slurm.nodes)
        world.slurm.job_block(job.job_id, True, "BadConstraints")
        await world.until("another start", lambda: not job.blocked)
        # As slurmctld does after each start while no node fits.
        world.slurm.job_block(job.job_id, True, "BadConstraints")
        await world.until(
            "the condition", lambda: "BadConstraints" in world.condition().get("message", "")
        )
        world.kube.put(NODES, node("k1"))
        await world.until("the record", lambda: "k1" in world.slurm.nodes)
        await world.until("another start", lambda: not job.blocked)


async def test_a_job_that_an_administrator_blocks_stays_blocked(world: World) -> None:
    async with world.bridge():
        world.kube.put(PODS, pod("team", "p"))
        job = await world.job()
        world.slurm.job_block(job.job_id, True, "JobHeldAdmin")
        await world.until(
            "the condition", lambda: "JobHeldAdmin" in world.condition().get("message", "")
        )
        world.kube.put(NODES, node("k2"))
        await world.until("the record", lambda: "k2" in world.slurm.nodes)
        asked = len(world.slurm.requests("GET", "jobs/state/"))
        await world.until(
            "some passes", lambda: len(world.slurm.requests("GET", "jobs/state/")) > asked + 3
        )
        assert job.blocked


async def test_the_records_of_nodes_follow_the_nodes(world: World) -> None:
    async with world.bridge():
        await world.until(
            "the record",
            lambda: bool(world.slurm.nodes.get("k1") and world.slurm.nodes["k1"].extra),
        )
        record = world.slurm.nodes["k1"]
        assert "EXTERNAL" in record.flags
        assert (record.address, record.cpus, record.real_memory) == ("10.0.0.1", 8, 16_384)
        other = pod("x", "other", cpu="1500m")
        other["spec"] |= {"schedulingGates": [], "nodeName": "k1"}
        world.kube.put(PODS, other)
        await world.until(
            "a smaller record",
            lambda: "k1" in world.slurm.nodes and world.slurm.nodes["k1"].cpus == 6,
        )
        world.kube.put(NODES, {**node("k1"), "spec": {"unschedulable": True}})
        await world.until("the drain", lambda: is_drain(world.slurm.states("k1")))
        world.kube.put(NODES, node("k1"))
        await world.until("the end of the drain", lambda: not is_drain(world.slurm.states("k1")))
        world.kube.remove(NODES, "", "k1")
        await world.until("the record to be gone", lambda: "k1" not in world.slurm.nodes)


async def test_nothing_is_written_when_nothing_changes(world: World) -> None:
    world.kube.put(PODS, pod("team", "p"))
    async with world.bridge():
        await world.job()
        await world.until(
            "the condition", lambda: "Resources" in world.condition().get("message", "")
        )
        await world.until(
            "the record",
            lambda: bool(world.slurm.nodes.get("k1") and world.slurm.nodes["k1"].extra),
        )

        def writes() -> int:
            methods = [call.method for call in world.kube.calls] + [
                call.method for call in world.slurm.calls
            ]
            return sum(method != "GET" for method in methods)

        before, asked = writes(), len(world.slurm.requests("GET", "jobs/state/"))
        await world.until(
            "some passes", lambda: len(world.slurm.requests("GET", "jobs/state/")) > asked + 5
        )
        assert writes() == before


async def test_a_submission_carries_a_short_token_of_the_tenants_user(world: World) -> None:
    world.slurm.users = frozenset({"ada"})
    world.kube.put(PODS, pod("team", "p"))
    async with world.bridge():
        assert (await world.job()).user == "ada"


def test_a_bridge_that_waits_for_its_lease_is_healthy() -> None:
    assert main._fault([]) == ""


async def test_the_health_endpoint_answers(port: int) -> None:
    answers = iter(["", "no pass has ended lately"])
    async with served(port, lambda: next(answers)), aiohttp.ClientSession() as session:
        for status in (200, 503):
            async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                assert answer.status == status


async def test_it_is_not_ready_with_a_slurm_that_is_too_old(port: int) -> None:
    problems = iter(["update Slurm", ""])
    async with served(port, str, lambda: next(problems)), aiohttp.ClientSession() as session:
        for status, text in ((503, "update Slurm\n"), (200, "ok\n")):
            async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                assert (answer.status, await answer.text()) == (status, text)


def test_a_token_that_is_missing_or_empty_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    for words in ("No such file", "is empty: write a token of Slurm into it"):
        assert main.main(["--slurmrestd-url", "http://x:1", "--token-file", str(token)]) == 1
        assert str(token) in caplog.text
        assert words in caplog.text
        token.write_text("\n")


async def test_with_a_token_of_slurmuser_jobs_are_those_of_the_tenants_users(world: World) -> None:
    token = world.settings.key_file.with_name("token")
    token.write_text(sign(KEY, "slurm", 600, time.time()))
    world.settings.key_file.unlink()
    world.settings = dataclasses.replace(world.settings, token_file=token)
    async with world.bridge():
        job = await world.running()
    assert job.user == "ada"


async def test_a_token_is_read_again_from_its_secret_when_it_is_renewed(world: World) -> None:
    """Of another namespace, by the Kubernetes API. One that doesn't exist yet, or garbage, is no
    token.
    """
    world.settings.key_file.unlink()
    place = TokenSecret("hpc", "bridge-token", "SLURM_JWT")
    world.settings = dataclasses.replace(world.settings, token_secret=place)
    data = b"\xff", b"", sign(KEY, "slurm", 600, time.time() - 3600).encode(), b"x.y.z"
    async with world.bridge() as passes:
        await world.until("a pass without a Secret", lambda: bool(passes))
        for text in data:
            world.kube.put(SECRETS, token_of(text))
            ended = passes[-1].last_pass

            def over(ended: float = ended) -> bool:
                return passes[-1].last_pass > ended + 2

            await world.until("two passes", over)
            assert "k1" not in world.slurm.nodes
        world.kube.put(SECRETS, token_of(sign(KEY, "slurm", 600, time.time()).encode()))
        job = await world.running()
    assert job.user == "ada"


def token_of(text: bytes) -> dict[str, Any]:
    """The Secret of a Token."""
    metadata = {"namespace": "hpc", "name": "bridge-token"}
    data = {"SLURM_JWT": base64.b64encode(text).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


async def test_a_token_of_another_user_than_slurmuser_submits_nothing_and_the_pod_shows_why(
    world: World,
) -> None:
    token = world.settings.key_file.with_name("token")
    token.write_text(sign(KEY, "root", 600, time.time()))
    world.settings = dataclasses.replace(world.settings, token_file=token)
    async with world.bridge():
        await world.until("the node's record", lambda: "k1" in world.slurm.nodes)
        token.write_text(sign(KEY, "mail", 600, time.time()))
        world.kube.put(PODS, pod("team", "p"))
        await world.until("the reason", lambda: world.condition().get("reason") == "Refused")
    assert not world.slurm.jobs


@pytest.mark.parametrize(("phase", "code"), [("Succeeded", 0), ("Failed", 3)])
async def test_the_job_of_a_pod_that_has_ended_has_its_exit_code_in_the_admin_comment(
    world: World, phase: str, code: int
) -> None:
    async with world.bridge():
        job = await world.running()
        item = world.pod()
        ends = [{"name": "c", "state": {"terminated": {"exitCode": it}}} for it in (0, code)]
        item["status"] = {**item.get("status", {}), "phase": phase, "containerStatuses": ends}
        world.kube.put(PODS, item)
        await world.until("the end of the job", lambda: "CANCELLED" in job.states)
    comment = bridge.decode(job.admin_comment)
    assert comment is not None
    assert comment.exit_code == code


def test_a_key_that_is_missing_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    key = tmp_path / "absent.key"
    assert main.main(["--slurmrestd-url", "http://x:1", "--jwt-key", str(key)]) == 1
    assert str(key) in caplog.text


async def test_what_a_pod_requests_counts_also_if_its_label_is_seen_while_node_records_are_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user's job has less than the pod requests."""
    apply = NodeRecords.apply

    async def applied(records: NodeRecords, *args: Any) -> None:
        await apply(records, *args)
        [passes] = leading
        item = world.kube.objects(PODS).get(("team", "p"))
        if item is None or not passes._book._records:
            return
        if bridge.JOB_LABEL in item["metadata"]["labels"]:
            return
        item["metadata"]["labels"][bridge.JOB_LABEL] = "1"
        item["metadata"]["annotations"] = {bridge.GROUP_ANNOTATION: "group/g"}
        world.kube.put(PODS, item)
        labelled = passes._parts.kube.pods
        await world.until("the label to be seen", lambda: bool(labelled.by(BY_JOB, 1)))

    monkeypatch.setattr(NodeRecords, "apply", applied)
    async with world.bridge() as leading:
        await world.until("the node's record", lambda: "k1" in world.slurm.nodes)
        comment = bridge.encode(bridge.Comment("team", "group/g"))
        content = {
            "flags": ["EXTERNAL_JOB"],
            "partition": "slurm-bridge",
            "comment": comment,
            "cpus_per_task": 1,
        }
        world.slurm.submit_job({"job": content}, "ada")
        world.slurm.jobs[1].admin_comment = comment
        world.slurm.job_run(1, {"k1": 1})
        world.kube.put(PODS, pod("team", "p", cpu="4", group=("g", 1)))
        await world.until("a decision", lambda: world.released() or "reason" in world.condition())
        assert "no place left" in world.condition()["message"]


async def test_a_bridge_that_starts_while_a_group_waits_knows_what_its_object_requests(
    world: World,
) -> None:
    world.kube.put(NODES, node("k2"))
    wishes = {f"{bridge.WISHES}mem-per-node": "4Gi", f"{bridge.WISHES}cpu-per-task": "4"}
    metadata = {"namespace": "team", "name": "g", "uid": "g", "annotations": wishes}
    world.kube.put(
        RESOURCES[SourceKind.SCHEDULER_PLUGINS], {"metadata": metadata, "spec": {"minMember": 4}}
    )
    names = [f"p{index}" for index in range(4)]
    for name in names:
        item = pod("team", name)
        item["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "g"}
        world.kube.put(PODS, item)
    async with world.bridge():
        job = await world.job()
        assert (job.tasks, job.cpus) == (4, 4)

        def labelled() -> bool:
            return all(bridge.JOB_LABEL in world.pod(name)["metadata"]["labels"] for name in names)

        await world.until("the labels", labelled)
    world.slurm.job_run(job.job_id, {"k1": 2, "k2": 2})
    async with world.bridge():
        await world.until("the releases", lambda: all(map(world.released, names)))
    places = [world.pod(name)["metadata"]["annotations"][bridge.NODE_ANNOTATION] for name in names]
    assert sorted(places) == ["k1", "k1", "k2", "k2"]


async def test_no_pod_is_released_by_an_earlier_slurmctlds_answer_from_before_the_records_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, forgotten = NodeRecords.apply, False

    async def slow(self: NodeRecords, *args: Any) -> None:
        nonlocal forgotten
        await apply(self, *args)
        if not forgotten and any("RUNNING" in it.states for it in live(world.slurm)):
            forgotten = True
            await asyncio.sleep(LEAST_PAUSE)
            [job] = live(world.slurm)
            job.states, job.allocation, job.nodes = {"PENDING"}, {}, []
            world.slurm.started_at += 1

    monkeypatch.setattr(NodeRecords, "apply", slow)
    async with world.bridge():
        await world.until("the record", lambda: "k1" in world.slurm.nodes)
        world.kube.put(PODS, pod("team", "p"))
        job = await world.job()
        world.slurm.job_run(job.job_id, {"k1": 1})
        await world.until("slurmctld to start again", lambda: forgotten)
        world.kube.put(PODS, pod("team", "q"))
        await world.until("the next pass", lambda: len(live(world.slurm)) == 2)
        assert not world.released()


async def test_a_node_that_does_not_come_back_is_forgotten_with_its_pods(world: World) -> None:
    async with world.bridge() as started:
        await world.running()
        world.kube.remove(NODES, "", "k1")
        [found] = started
        await world.until("the node to be missed", lambda: bool(found._memory.missing))
        world.kube.remove(PODS, "team", "p")
        await world.until(
            "the node to be forgotten", lambda: not found._memory.missing and not found._busy
        )
