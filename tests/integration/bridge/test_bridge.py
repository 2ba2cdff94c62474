"""The bridge with the rights, the admission policies and the tenants of its chart, and a simulated
Slurm.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

import pytest

from sidecars.contract import bridge
from sidecars.kube import DEPLOYMENTS, LEASES
from sidecars.simulate.records import Fault
from tests.cluster.control_plane import ControlPlane
from tests.support.bridge import live
from tests.support.bridge_world import World, bridge_account


async def test_a_pod_is_submitted_released_bound_and_deleted_at_the_end_of_its_job(
    world: World,
) -> None:
    async with world.bridge():
        await world.records()
        await world.create()
        job = await world.job()
        assert job.user == "ada"
        found = await world.pod()
        assert found is not None
        assert found["metadata"]["labels"][bridge.JOB_LABEL] == str(job.job_id)
        await world.until("Slurm's reason", world.condition)
        world.slurm.job_run(job.job_id, {world.nodes[1]: 1})
        await world.until("the pod to be bound", world.place)
        assert await world.place() == world.nodes[1]
        world.slurm.job_end(job.job_id, state="TIMEOUT")
        await world.gone()
        assert len(world.slurm.jobs) == 1
        await world.happened("Submitted", "Released", "JobEnded")


async def test_a_group_is_bound_as_slurm_has_placed_it(world: World) -> None:
    async with world.bridge():
        await world.records()
        for index in range(3):
            await world.create(f"p{index}", group=("g", 3))
        job = await world.job()
        assert job.tasks == 3
        world.slurm.job_run(job.job_id, {world.nodes[0]: 2, world.nodes[1]: 1})

        async def bound() -> bool:
            return all([await world.place(f"p{index}") for index in range(3)])

        await world.until("the pods to be bound", bound)
        places = sorted([await world.place(f"p{index}") for index in range(3)])
    assert places == [world.nodes[0], world.nodes[0], world.nodes[1]]


async def test_nothing_is_deleted_while_slurmrestd_is_down(world: World) -> None:
    async with world.bridge():
        await world.records()
        await world.create()
        job = await world.job()
        world.slurm.job_run(job.job_id, {world.nodes[0]: 1})
        await world.until("the pod to be bound", world.place)
        world.slurm.fail(Fault.RESET)
        world.slurm.job_end(job.job_id)
        before = len(world.slurm.calls)

        async def asked() -> bool:
            return len(world.slurm.calls) > before + 3

        await world.until("some passes", asked)
        found = await world.pod()
        assert found is not None
        assert "deletionTimestamp" not in found["metadata"]
        world.slurm.heal()
        await world.gone()


@pytest.mark.parametrize("step", ["submitted", "labelled", "started", "running", "released"])
async def test_a_bridge_that_is_killed_between_two_steps_leads_to_no_second_job(
    world: World, step: str
) -> None:
    async def labelled() -> bool:
        found = await world.pod()
        return bridge.JOB_LABEL in (found or {}).get("metadata", {}).get("labels", {})

    async def released() -> bool:
        found = await world.pod()
        return not (found or {}).get("spec", {}).get("schedulingGates")

    async def submitted() -> bool:
        return bool(live(world.slurm))

    async def started() -> bool:
        return any(not job.blocked for job in live(world.slurm))

    first = {"submitted": submitted, "labelled": labelled}.get(step, started)
    async with world.bridge():
        await world.records()
        await world.create()
        await world.until(f"the job to be {step}", first)
        if step == "released":
            world.slurm.job_run(1, {world.nodes[0]: 1})
            await world.until("the release", released)
    if step == "running":
        world.slurm.job_run(1, {world.nodes[0]: 1})
    async with world.bridge():
        if step not in ("running", "released"):
            world.slurm.job_run((await world.job()).job_id, {world.nodes[0]: 1})
        await world.until("the pod to be bound", world.place)
    assert len(world.slurm.jobs) == 1


@contextlib.asynccontextmanager
async def program(world: World, plane: ControlPlane) -> AsyncIterator[asyncio.subprocess.Process]:
    """The bridge as a process, with the arguments of the chart. It is killed at the end if it still
    runs.
    """
    deployment = await world.admin.get(DEPLOYMENTS, "slurm", "slurm-bridge")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    flags = [
        f"--slurmrestd-url={world.settings.slurmrestd_url}",
        f"--jwt-key={world.settings.key_file}",
    ]
    flags += [f"--kubeconfig={bridge_account(plane)}", "--health-port=0"]
    found = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sidecars", *container["args"], *flags),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield found
    finally:
        if found.returncode is None:
            found.kill()
            await found.communicate()
            # The next one leads at once.
            await world.admin.delete(LEASES, "slurm", "slurm-bridge")


async def until_asked(world: World, method: str, path: str) -> None:
    """Slurm has got such a request."""

    async def look() -> bool:
        return bool(world.slurm.requests(method, path))

    await world.until(f"the request {method} {path}", look)


async def test_a_bridge_killed_between_starts_of_two_components_starts_the_first_one_when_restarted(
    world: World, plane: ControlPlane
) -> None:
    world.slurm.fail(Fault.HANG, method="POST", path="job/1")
    async with program(world, plane):
        await world.records()
        await world.create("leader", cpu="1", group=("g", 2))
        await world.create("worker", cpu="3", group=("g", 2))
        await until_asked(world, "POST", "job/1")
    assert {job.job_id: job.blocked for job in live(world.slurm)} == {1: True, 2: False}
    world.slurm.heal()
    async with world.bridge():

        async def started() -> bool:
            return not any(job.blocked for job in live(world.slurm))

        await world.until("both components to be started", started)
        for job_id, node in zip((1, 2), world.nodes, strict=True):
            world.slurm.job_run(job_id, {node: 1})

        async def bound() -> bool:
            return {await world.place("leader"), await world.place("worker")} == set(world.nodes)

        await world.until("both pods to be bound", bound)
    assert set(world.slurm.jobs) == {1, 2}


async def test_the_program_leads_by_its_lease_schedules_and_ends_on_sigterm(
    world: World, plane: ControlPlane
) -> None:
    async with program(world, plane) as process:
        await world.create()
        await world.job()
        lease = await world.admin.get(LEASES, "slurm", "slurm-bridge")
        assert lease["spec"]["holderIdentity"]
        process.terminate()
        _, log = await process.communicate()
    assert process.returncode == 0, log.decode()
    lease = await world.admin.get(LEASES, "slurm", "slurm-bridge")
    assert not lease["spec"]["holderIdentity"]
