"""The bridge on nodes with a slurmd: real slurmctld, slurmd, kube-apiserver and kube-scheduler, and
the chart's Epilog.

No kubelet runs: the test shows the annotations of the worker pods to the Epilogs, and ends the
pods.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sidecars.bridge.settings import Settings
from sidecars.contract import bridge, extra
from sidecars.kube import NODES, PODS, AlreadyExists
from sidecars.slurm import protocol
from sidecars.slurm.external import GUARD_OUTPUT, ExternalRequest
from sidecars.slurm.protocol.fields import Fields
from tests.cluster.control_plane import ControlPlane
from tests.contract.target import Target
from tests.support.apiserver import until
from tests.support.bridge import pod
from tests.support.bridge import slurm as simulated
from tests.support.bridge_world import ACCOUNTS, World, a_world
from tests.support.real import ports
from tests.support.real.daemons import ADDRESS, Daemons
from tests.support.real.external_slurm import running

ROOT = Path(__file__).parents[2]
PORT = ports.BRIDGE_GUARD
# ReturnToService is that of the chart.
LINES = """\
ReturnToService=1
SchedulerParameters=extra_constraints,sched_interval=2,bf_interval=1
SlurmdTimeout=10
Epilog=/etc/slurm/epilog.sh
GresTypes=gpu
PartitionName=pods Nodes=ALL State=UP
"""
GPUS = "nvidia.com/gpu"
GAMES = 5
"""A user who is no tenant of the bridge, and has no rights in Slurm. The tenants' is MAIL."""
MAIL = 8
COMMENT = bridge.encode(bridge.Comment("team", "u"))
"""As the bridge writes it."""

SHORTER = {
    "file=/etc/podinfo/annotations\n": "file=/etc/slurm/annotations\n",
    # Asks about its job every two seconds instead of every minute.
    " % 60)": " % 2)",
    "set -u\n": "set -u\ntrap 'echo >/etc/slurm/ended' EXIT\n",
}
"""What is changed in the Epilog: it writes a file when it has ended."""


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    """slurmctld and slurmrestd."""
    with running(tmp_path / "slurm", PORT, LINES) as found:
        yield found


@dataclass
class Worker:
    """A slurmd of four CPUs, and the worker pod that it would be in."""

    world: World
    daemons: Daemons
    name: str
    kube_node: str
    port: int

    async def create(self) -> None:
        annotations = {bridge.GUARD: bridge.GUARD_VERSION}
        # No controller creates accounts here.
        with contextlib.suppress(AlreadyExists):
            await self.world.admin.create(
                ACCOUNTS, {"metadata": {"name": "default", "namespace": "slurm"}}
            )
        spec = {
            "nodeName": self.kube_node,
            "containers": [{"name": "slurmd", "image": "x"}],
            "automountServiceAccountToken": False,
        }
        metadata = {"namespace": "slurm", "name": self.name, "annotations": annotations}
        await self.world.admin.create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )

    async def pod(self) -> dict[str, Any]:
        return dict(await self.world.admin.get(PODS, "slurm", self.name))

    async def epilog_has_ended(self) -> bool:
        return (self.daemons.home / self.name / "etc" / "ended").exists()

    @contextlib.asynccontextmanager
    async def slurmd(self) -> AsyncIterator[None]:
        """With the Epilog, which sees the pod's annotations as a kubelet would show them."""
        script = (ROOT / "charts" / "slurm" / "files" / "epilog-slurm-bridge.sh").read_text()
        for text, becomes in SHORTER.items():
            assert script.count(text) == 1
            script = script.replace(text, becomes)
        files = {
            "epilog.sh": script.encode(),
            "annotations": b"",
            # Any devices do.
            "gres.conf": b"Name=gpu File=/dev/zero\nName=gpu File=/dev/full\n",
        }
        facts = extra.encode(
            extra.PodFacts((await self.pod())["metadata"]["uid"], self.name, "slurm")
        )
        size = "CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=4000 Gres=gpu:2"
        options = (
            "-Z",
            "-b",
            "--conf",
            f"NodeAddr={ADDRESS} Port={self.port} {size}",
            "--extra",
            facts,
        )
        prepare = "chmod 755 /etc/slurm/epilog.sh"
        await asyncio.to_thread(
            self.daemons.slurmd, self.name, *options, files=files, prepare=prepare
        )
        shows = asyncio.create_task(
            self._show(self.daemons.home / self.name / "etc" / "annotations")
        )
        try:
            yield
        finally:
            shows.cancel()
            await asyncio.gather(shows, return_exceptions=True)
            await asyncio.to_thread(self.daemons.forget, self.name)

    async def _show(self, path: Path) -> None:
        while True:
            annotations = (await self.pod())["metadata"].get("annotations", {})
            draft = path.with_suffix(".new")
            draft.write_text(
                "".join(f"{key}={json.dumps(value)}\n" for key, value in annotations.items())
            )
            draft.rename(path)
            await asyncio.sleep(0.2)


Cluster = tuple[World, list[Worker]]


@pytest_asyncio.fixture
async def cluster(
    plane: ControlPlane, daemons: Daemons, settings: Settings
) -> AsyncIterator[Cluster]:
    """Two Kubernetes nodes, each with a worker whose slurmd the test starts."""
    async with a_world(plane, settings, simulated(), user="mail", partition="pods") as world:
        workers = []
        for index, kube_node in enumerate(world.nodes):
            await world.admin.merge_patch(
                NODES, None, kube_node, {"metadata": {"labels": {bridge.EXTERNAL_NODE: None}}}
            )
            worker = Worker(world, daemons, f"w{index}", kube_node, daemons.port("slurmd") + index)
            await worker.create()
            workers.append(worker)
        yield world, workers
        for worker in workers:
            await world.admin.delete(PODS, "slurm", worker.name, grace_period_seconds=0)


def bounded(
    world: World,
    name: str,
    cpu: str,
    group: tuple[str, int] | None = None,
    requests: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A pod that waits, and can't use more than it requests."""
    found = pod(world.namespace, name, cpu=cpu, group=group)
    [container] = found["spec"]["containers"]
    container["resources"]["requests"] |= requests or {}
    container["resources"]["limits"] = dict(container["resources"]["requests"])
    return found


async def native(slurm: Target, cpus: int, memory: int = 100, gres: str = "") -> int:
    """A job of a user that has started, or waits; its id."""
    request = ExternalRequest(
        "native",
        "all",
        "",
        cpus_per_task=cpus,
        memory_per_task=memory,
        gres_per_task=gres,
        minutes=5,
    )
    body = dict(protocol.submit_external(request).body or {})
    job = {key: value for key, value in body["job"].items() if key not in ("flags", "hold")}
    job |= {
        "script": "#!/bin/sh\nexec sleep 600\n",
        "current_working_directory": "/",
        "standard_output": "/dev/null",
    }
    found = protocol.Request(
        "POST", "job/submit", body={"job": job}, read=lambda answer: answer.number("job_id")
    )
    return await slurm.call(found, user="mail")


async def array(slurm: Target, tasks: int) -> int:
    """A job array of a user with the output of a guard, whose tasks end at once; its id."""
    job = {
        "script": "#!/bin/sh\n",
        "array": f"0-{tasks - 1}",
        "partition": "all",
        "environment": ["PATH=/usr/bin:/bin"],
        "current_working_directory": "/",
        "standard_output": GUARD_OUTPUT,
    }
    found = protocol.Request(
        "POST", "job/submit", body={"job": job}, read=lambda answer: answer.number("job_id")
    )
    return await slurm.call(found, user="mail")


async def registered(slurm: Target, *names: str) -> None:
    """Their slurmd have."""

    async def look() -> bool:
        found = await slurm.call(protocol.get_nodes())
        return found is not None and {it.name for it in found.nodes if "IDLE" in it.states} >= set(
            names
        )

    await until(f"{names} to be idle", look)


async def states(slurm: Target, job_id: int) -> frozenset[str]:
    return (await slurm.call(protocol.get_job_states()))[job_id]


async def job_of(world: World, name: str) -> int:
    found = await world.pod(name)
    return int((found or {})["metadata"]["labels"][bridge.JOB_LABEL])


async def test_what_a_pod_uses_is_not_given_to_another_job_before_it_is_gone(
    slurm: Target, cluster: Cluster
) -> None:
    world, [first, second] = cluster
    async with first.slurmd(), second.slurmd():
        async with world.bridge():
            await registered(slurm, "w0", "w1")
            for name in ("a", "b"):
                await world.admin.create(PODS, bounded(world, name, "3", ("g", 2)))

            async def bound() -> bool:
                return {await world.place("a"), await world.place("b")} == set(world.nodes)

            await until("both pods of the group, one on each node, to be bound", bound)
            job_id = await job_of(world, "a")
            # Beside the pods, a job of one CPU runs, and one of two waits.
            beside, waits = await native(slurm, 1), await native(slurm, 2)

            async def runs() -> bool:
                return "RUNNING" in await states(slurm, beside)

            await until("a job to run beside a pod", runs)
            # The user of a job can change its comment at any time.
            forged = protocol.Request(
                "POST", f"job/{job_id}", body={"comment": "other"}, read=lambda answer: None
            )
            await slurm.call(forged, user="mail")
            await slurm.call(protocol.cancel_job(job_id))
            nodes = {name: await world.place(name) for name in ("a", "b")}

            async def terminating(name: str) -> bool:
                found = await world.pod(name)
                return found is not None and "deletionTimestamp" in found["metadata"]

            await until("a pod to be deleted", lambda: terminating("a"))
            await until("the other pod to be deleted", lambda: terminating("b"))
            await world.admin.delete(PODS, world.namespace, "a", grace_period_seconds=0)
            workers = {it.kube_node: it for it in (first, second)}
            free, blocked = workers[nodes["a"]].name, workers[nodes["b"]].name
            await slurm.until_node(free, "without the job", lambda it: "COMPLETING" not in it)
            assert "COMPLETING" in (await slurm.node(blocked)).states
            assert "COMPLETING" in await states(slurm, job_id)
            await until_job(slurm, waits, free)
            full = await native(slurm, 4)
            await slurm.call(protocol.cancel_job(waits))
            await slurm.call(protocol.cancel_job(beside))
            await until_job(slurm, full, free)
            last = await native(slurm, 2)
            before = await cycles(slurm)

            async def scheduled() -> bool:
                return await cycles(slurm) > before + 2

            await until("Slurm to look at its queue", scheduled)
            assert "PENDING" in await states(slurm, last)
        # Without a bridge, the node remains as it is.
        await world.admin.delete(PODS, world.namespace, "b", grace_period_seconds=0)
        before = await cycles(slurm)
        await until("Slurm to look at its queue", scheduled)
        assert "COMPLETING" in (await slurm.node(blocked)).states
        async with world.bridge():
            await slurm.until_node(blocked, "without the job", lambda it: "COMPLETING" not in it)
            await until_job(slurm, last, blocked)


async def test_what_slurm_has_of_memory_and_gpus_is_at_no_time_both_a_pods_and_another_jobs(
    slurm: Target, cluster: Cluster
) -> None:
    world, [first, _] = cluster
    async with first.slurmd(), world.bridge():
        gpus = {"status": {"allocatable": {GPUS: "2"}, "capacity": {GPUS: "2"}}}
        await world.admin.merge_patch(NODES, None, first.kube_node, gpus, subresource="status")
        await registered(slurm, "w0")
        with_gpus = bounded(world, "gpus", "1", requests={GPUS: "2"})
        # Of the GPUs of a node, a pod on a worker has all or none.
        with_gpus["metadata"]["annotations"] = {f"{bridge.WISHES}exclusive": "true"}
        for item, memory, gres in (
            (bounded(world, "memory", "1", requests={"memory": "1000Mi"}), 3500, ""),
            (with_gpus, 100, "gres/gpu:1"),
        ):
            await take_turns(slurm, world, item, memory, gres)


async def take_turns(
    slurm: Target, world: World, item: dict[str, Any], memory: int, gres: str
) -> None:
    """The pod waits for a job with so much, and another one waits for the pod."""
    name = item["metadata"]["name"]
    before = await native(slurm, 1, memory, gres)
    await until_job(slurm, before, "w0")
    await world.admin.create(PODS, item)

    async def waits() -> bool:
        return "Resources" in (await world.condition(name)).get("message", "")

    await until(f"pod {name} to wait for the resources of the job", waits)
    await slurm.call(protocol.cancel_job(before))

    async def bound() -> str:
        return await world.place(name)

    await until(f"pod {name} to be bound", bound)
    after = await native(slurm, 1, memory, gres)

    async def pending() -> bool:
        return (await slurm.call(protocol.get_external_job(after))).reason == "Resources"

    await until("the next job to wait for the resources of the pod", pending)
    await slurm.call(protocol.cancel_job(await job_of(world, name)))
    await slurm.until_node("w0", "COMPLETING", lambda it: "COMPLETING" in it)
    before_last = await cycles(slurm)

    async def scheduled() -> bool:
        return await cycles(slurm) > before_last + 2

    await until("Slurm to look at its queue", scheduled)
    assert "PENDING" in await states(slurm, after)
    await world.admin.delete(PODS, world.namespace, name, grace_period_seconds=0)
    await until_job(slurm, after, "w0")
    await slurm.call(protocol.cancel_job(after))


async def until_job(slurm: Target, job_id: int, node: str) -> None:
    """The job runs on that node."""

    async def look() -> bool:
        found = await slurm.call(protocol.get_external_job(job_id))
        return "RUNNING" in found.states and [it.node for it in found.allocations] == [node]

    await until(f"job {job_id} to run on {node}", look)


async def cycles(slurm: Target) -> int:
    """How often the main scheduler has run."""
    return await slurm.call(
        protocol.Request(
            "GET", "diag/", read=lambda it: it.nested("statistics").number("schedule_cycle_total")
        )
    )


async def test_a_node_lost_with_a_pod_of_an_ended_job_accepts_nothing_until_the_pod_is_gone(
    slurm: Target, cluster: Cluster
) -> None:
    world, [first, _] = cluster
    async with world.bridge():
        async with first.slurmd():
            await registered(slurm, "w0")
            await world.admin.create(PODS, bounded(world, "p", "3"))

            async def bound() -> bool:
                return await world.place("p") == first.kube_node

            await until("the pod to be bound", bound)
            await slurm.call(protocol.cancel_job(await job_of(world, "p")))
            await slurm.until_node("w0", "COMPLETING", lambda it: "COMPLETING" in it)
        await slurm.until_node("w0", "lost and drained", lambda it: {"DOWN", "DRAIN"} <= it)
        async with first.slurmd():
            await slurm.until_node("w0", "back", lambda it: "NOT_RESPONDING" not in it)
            waits = await native(slurm, 2)
            assert {"DOWN", "DRAIN"} <= (await slurm.node("w0")).states
            reason = (await slurm.node("w0")).reason
            # Drained before slurmctld has given it up, or after that, and slurmctld adds its own
            # words.
            assert reason.startswith(f"{bridge.DRAIN_PREFIX}pod {world.namespace}/p runs here")
            await world.admin.delete(PODS, world.namespace, "p", grace_period_seconds=0)
            await until_job(slurm, waits, "w0")


async def test_the_epilog_of_a_guard_ends_when_an_administrator_gives_its_node_up_without_a_bridge(
    slurm: Target, cluster: Cluster
) -> None:
    world, [first, _] = cluster
    async with first.slurmd():
        await registered(slurm, "w0")
        async with world.bridge():
            await world.admin.create(PODS, bounded(world, "p", "3"))

            async def bound() -> bool:
                return await world.place("p") == first.kube_node

            await until("the pod to be bound", bound)
        await slurm.call(protocol.cancel_job(await job_of(world, "p")))
        await slurm.until_node("w0", "COMPLETING", lambda it: "COMPLETING" in it)
        before = await cycles(slurm)

        async def scheduled() -> bool:
            return await cycles(slurm) > before + 2

        await until("the Epilog to ask Slurm again", scheduled)
        assert not await first.epilog_has_ended()
        await slurm.call(protocol.update_nodes(["w0"], state=["DOWN"], reason="given up"))
        await until("the end of the Epilog", first.epilog_has_ended)
        await slurm.call(protocol.update_nodes(["w0"], state=["RESUME"]))
        await until_job(slurm, await native(slurm, 4), "w0")
        assert not {"COMPLETING", "DRAIN"} & (await slurm.node("w0")).states


def _listed(answer: Fields) -> Mapping[str, frozenset[str]]:
    return {it.text("job_id"): it.states("state") for it in answer.items("jobs")}


async def test_the_epilogs_of_an_array_with_the_output_of_a_guard_end(
    slurm: Target, cluster: Cluster
) -> None:
    """Any user may submit one. Its first task has a record of its own, the last one that of the
    array.
    """
    world, [first, _] = cluster
    async with first.slurmd(), world.bridge():
        await registered(slurm, "w0")
        last = await array(slurm, 2)

        async def ended() -> bool:
            found = await slurm.call(protocol.Request("GET", "jobs/state/", read=_listed))
            return found == {f"{last + 1}_0": {"COMPLETED"}, f"{last}_1": {"COMPLETED"}}

        await until("the Epilogs of both tasks to end", ended)
        assert not {"COMPLETING", "DRAIN"} & (await slurm.node("w0")).states


async def command(daemons: Daemons, *words: str, user: int) -> str:
    """Run a command of Slurm as this user on the node w0; what it prints."""
    done = await asyncio.to_thread(daemons.run, "w0", *words, user=user, check=True)
    return done.stdout.strip()


async def restarted(daemons: Daemons, job: str, *, user: int) -> None:
    """Have a job that runs queued again by its user, with another output."""
    await command(daemons, "scontrol", "requeue", job, user=user)
    await command(daemons, "scontrol", "update", f"jobid={job}", "StdOut=/home/games/x", user=user)


@pytest.mark.parametrize("runs", [True, False], ids=["with a bridge", "without one"])
async def test_the_jobs_of_a_user_that_look_like_guards_keep_no_node_from_others(
    daemons: Daemons, slurm: Target, cluster: Cluster, runs: bool
) -> None:
    world, [first, second] = cluster
    async with (
        first.slurmd(),
        second.slurmd(),
        world.bridge() if runs else contextlib.nullcontext(),
    ):
        await registered(slurm, "w0", "w1")
        # All that a user can write of a guard. Its Epilog has the output of before when the job is
        # queued again.
        like = (
            "sbatch",
            "--parsable",
            "--requeue",
            "--partition=all",
            "-o",
            GUARD_OUTPUT,
            "--comment",
            COMMENT,
        )
        job = await command(daemons, *like, "-N2", "-n2", "--wrap=sleep 600", user=GAMES)

        async def started() -> bool:
            return "RUNNING" in await states(slurm, int(job))

        await until("the job to run", started)
        await restarted(daemons, job, user=GAMES)
        await command(daemons, "scancel", job, user=GAMES)
        others = [await native(slurm, 4), await native(slurm, 4)]
        for other in others:

            async def starts(other: int = other) -> bool:
                return "RUNNING" in await states(slurm, other)

            await until("a job of another user with all cores of a node to run", starts)
        for name in ("w0", "w1"):
            assert not {"COMPLETING", "DRAIN"} & (await slurm.node(name)).states


async def test_a_guard_that_its_user_queues_again_with_another_output_retains_its_node_for_its_pod(
    daemons: Daemons, slurm: Target, cluster: Cluster
) -> None:
    world, [first, _] = cluster
    async with first.slurmd(), world.bridge():
        await registered(slurm, "w0")
        await world.admin.create(PODS, bounded(world, "p", "3"))

        async def bound() -> bool:
            return await world.place("p") == first.kube_node

        await until("the pod to be bound", bound)
        job_id = await job_of(world, "p")
        await command(daemons, "scontrol", "update", f"jobid={job_id}", "Requeue=1", user=MAIL)
        await restarted(daemons, str(job_id), user=MAIL)

        async def terminating() -> bool:
            return "deletionTimestamp" in ((await world.pod("p")) or {"metadata": {}})["metadata"]

        await until("the pod to be deleted", terminating)
        waits, before = await native(slurm, 4), await cycles(slurm)

        async def scheduled() -> bool:
            return await cycles(slurm) > before + 2

        await until("Slurm to look at its queue", scheduled)
        record = await slurm.call(protocol.get_external_job(job_id))
        assert {"PENDING", "COMPLETING"} <= record.states
        has = (
            record.guard,
            bridge.decode(record.admin_comment) is not None,
            [it.node for it in record.allocations],
        )
        assert has == (False, True, ["w0"])
        assert "PENDING" in await states(slurm, waits)
        await world.admin.delete(PODS, world.namespace, "p", grace_period_seconds=0)
        await until_job(slurm, waits, "w0")
        assert not {"COMPLETING", "DRAIN"} & (await slurm.node("w0")).states
