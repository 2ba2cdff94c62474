"""What slurmctld's power saving does, one scenario for each behaviour that this product builds on.

They need a Slurm of their own: ResumeProgram and SuspendProgram do nothing, and no other nodes or
jobs exist. Version v0.0.44 of the REST API knows neither POWER_DOWN_FORCE nor a node's SuspendTime.
"""

import time
from collections.abc import Awaitable, Callable, Sequence

from sidecars.slurm import protocol, states
from sidecars.slurm.errors import NotFound, Refused, Rejected, SlurmError
from sidecars.slurm.gres import parse as gres_of
from sidecars.slurm.hostlists import compress
from sidecars.slurm.protocol import Request
from sidecars.slurm.records import Job
from tests.contract import requests
from tests.contract.target import Target

Scenario = Callable[[Target], Awaitable[None]]

POWER: list[Scenario] = []
CONF = "State=CLOUD CPUs=2 RealMemory=1000 Features=contract Weight=3 SuspendTime=3600"
EXTRA = '{"podUid":""}'


def scenario(function: Scenario) -> Scenario:
    """One of them."""
    POWER.append(function)
    return function


async def fresh(slurm: Target, *, conf: str = CONF) -> None:
    """No job is left, and both records are created again."""
    jobs = await slurm.call(protocol.get_jobs())
    assert jobs is not None
    for job in jobs.jobs:
        if job.states & {"PENDING", "RUNNING", "SUSPENDED"}:
            await slurm.call(requests.cancel_job(job.job_id))
    for name in slurm.nodes:

        async def gone(name: str = name) -> bool:
            try:
                await slurm.call(protocol.delete_node(name))
            except NotFound:
                return True
            except Refused:
                return False
            return True

        await slurm.until(f"{name} to be deleted", gone)
    for name in slurm.nodes:
        await slurm.call(protocol.create_nodes(f"NodeName={name} {conf}"))


async def waiting(slurm: Target, name: str) -> int:
    """A job that waits for the start of a node."""
    number = await slurm.jobs.start(name)
    await slurm.until_node(name, "powering up", states.is_powering_up)
    found = await job(slurm, number)
    assert {"RUNNING", "CONFIGURING"} <= found.states
    assert found.node_names() == [name]
    return number


async def job(slurm: Target, number: int) -> Job:
    """A job now."""
    return await slurm.call(requests.get_job(number))


async def until_pending(slurm: Target, number: int) -> None:
    """The job was requeued."""

    async def look() -> bool:
        return "PENDING" in (await job(slurm, number)).states

    await slurm.until(f"job {number} to be pending", look)


@scenario
async def a_created_record_is_powered_down_and_idle_and_keeps_what_its_line_sets(
    slurm: Target,
) -> None:
    await fresh(slurm)
    for name in slurm.nodes:
        node = await slurm.node(name)
        assert {"IDLE", "CLOUD", "POWERED_DOWN", "DYNAMIC_NORM"} <= node.states
        assert states.is_vacant(node.states)
        assert (node.cpus, node.real_memory, node.weight) == (2, 1000, 3)
        assert node.suspend_time == 3600
        assert node.features == ("contract",)
    await slurm.call(protocol.update_nodes(slurm.nodes, extra=EXTRA))
    assert [(await slurm.node(name)).extra for name in slurm.nodes] == [EXTRA, EXTRA]


@scenario
async def a_node_that_slurm_never_stops_has_no_suspend_time(slurm: Target) -> None:
    await fresh(slurm, conf=CONF.replace("3600", "INFINITE"))
    assert (await slurm.node(slurm.nodes[0])).suspend_time is None


@scenario
async def a_record_that_exists_is_not_created_again(slurm: Target) -> None:
    await fresh(slurm)
    await refused(slurm, f"NodeName={slurm.nodes[0]} {CONF}")


@scenario
async def gres_needs_gres_conf(slurm: Target) -> None:
    await fresh(slurm)
    await slurm.call(protocol.delete_node(slurm.nodes[0]))
    await refused(slurm, f"NodeName={slurm.nodes[0]} {CONF} Gres=gpu:2")
    await slurm.call(
        protocol.create_nodes(
            f"NodeName={slurm.nodes[0]} {CONF} Gres=gpu:2 GresConf=name=gpu,count=2"
        )
    )
    assert gres_of((await slurm.node(slurm.nodes[0])).gres) == gres_of("gpu:2")


@scenario
async def gres_conf_with_less_than_gres_is_refused(slurm: Target) -> None:
    await fresh(slurm)
    await slurm.call(protocol.delete_node(slurm.nodes[0]))
    await refused(slurm, f"NodeName={slurm.nodes[0]} {CONF} Gres=gpu:2 GresConf=name=gpu,count=1")


@scenario
async def records_with_gres_conf_are_created_one_at_a_time_and_others_together(
    slurm: Target,
) -> None:
    await fresh(slurm)
    both, gpus = compress(slurm.nodes), f"{CONF} Gres=gpu:2 GresConf=name=gpu,count=2"
    for name in slurm.nodes:
        await slurm.call(protocol.delete_node(name))
    # gres_add_dynamic_gres() cuts up the line, so that the second node has none.
    await refused(slurm, f"NodeName={both} {gpus}")
    for name in slurm.nodes:
        await slurm.refused(NotFound, protocol.get_node(name))
        await slurm.call(protocol.create_nodes(f"NodeName={name} {gpus}"))
    found = [gres_of((await slurm.node(name)).gres) for name in slurm.nodes]
    assert found == [gres_of("gpu:2")] * 2
    for name in slurm.nodes:
        await slurm.call(protocol.delete_node(name))
    await slurm.call(protocol.create_nodes(f"NodeName={both} {CONF}"))


@scenario
async def gres_of_several_types_has_a_line_of_gres_conf_for_each(slurm: Target) -> None:
    await fresh(slurm)
    await slurm.call(protocol.delete_node(slurm.nodes[0]))
    gres = (
        "Gres=gpu:a100:1,gpu:h100:2 GresConf=name=gpu,type=a100,count=1+name=gpu,type=h100,count=2"
    )
    await slurm.call(protocol.create_nodes(f"NodeName={slurm.nodes[0]} {CONF} {gres}"))
    assert (await slurm.node(slurm.nodes[0])).gres == "gpu:a100:1,gpu:h100:2"
    untyped = f"NodeName={slurm.nodes[1]} {CONF} Gres=gpu:2 GresConf=name=gpu,count=2"
    await slurm.call(protocol.delete_node(slurm.nodes[1]))
    await slurm.call(protocol.create_nodes(untyped))
    assert gres_of((await slurm.node(slurm.nodes[1])).gres) == gres_of("gpu:2")


@scenario
async def numbers_that_are_none_are_refused(slurm: Target) -> None:
    await fresh(slurm)
    await slurm.call(protocol.delete_node(slurm.nodes[0]))
    for wrong in ("CPUs=four RealMemory=1000", "CPUs=2 RealMemory=8G"):
        await refused(slurm, f"NodeName={slurm.nodes[0]} State=CLOUD {wrong}")


async def refused(slurm: Target, conf: str) -> None:
    """Slurm doesn't create such a record."""
    try:
        await slurm.call(protocol.create_nodes(conf))
    except SlurmError:
        return
    raise AssertionError(f"Slurm created {conf}")


@scenario
async def a_job_starts_a_node_and_waits_for_it(slurm: Target) -> None:
    await fresh(slurm)
    await waiting(slurm, slurm.nodes[0])
    node = await slurm.node(slurm.nodes[0])
    assert states.is_busy(node.states)
    assert not states.is_vacant(node.states)
    assert states.is_powered_down((await slurm.node(slurm.nodes[1])).states)


@scenario
async def a_drain_requeues_the_job_that_waits_for_the_node(slurm: Target) -> None:
    await fresh(slurm)
    number = await waiting(slurm, slurm.nodes[0])
    await slurm.write(slurm.nodes, "DRAIN", reason="slurm-operator: no capacity: contract")
    await until_pending(slurm, number)


@scenario
async def a_node_that_is_stopped_by_force_gives_its_job_back_which_may_start_elsewhere_at_once(
    slurm: Target,
) -> None:
    await fresh(slurm)
    number = await waiting(slurm, slurm.nodes[0])
    await slurm.write([slurm.nodes[0]], "POWER_DOWN_FORCE")
    await until_pending(slurm, number)
    await slurm.call(protocol.start_now(number))
    node = await slurm.until_node(slurm.nodes[0], "powered down", states.is_powered_down)
    assert not states.is_busy(node.states)


@scenario
async def a_reservation_that_ignores_jobs_closes_nodes_and_leaves_them_to_the_jobs_that_have_them(
    slurm: Target,
) -> None:
    await fresh(slurm)
    number = await waiting(slurm, slurm.nodes[0])
    now = int(time.time())

    def save(nodes: Sequence[str], start: int | None, end: int) -> Request[None]:
        return protocol.close_nodes("contract", nodes, start_time=start, end_time=end)

    try:
        await slurm.call(save(slurm.nodes, now - 60, now + 3600))
        for name in slurm.nodes:
            await slurm.until_node(name, "reserved", lambda words: "RESERVED" in words)
            assert (await slurm.node(name)).reservation == "contract"
        assert {"RUNNING", "CONFIGURING"} <= (await job(slurm, number)).states
        assert states.is_powering_up((await slurm.node(slurm.nodes[0])).states)
        assert 2016 in await slurm.refused(Rejected, protocol.delete_node(slurm.nodes[1]))
        assert 2104 in await slurm.refused(Rejected, save(slurm.nodes, now - 30, now + 60))
        await slurm.write([slurm.nodes[0]], "POWER_DOWN_FORCE")
        await until_pending(slurm, number)
        await slurm.call(protocol.start_now(number))
        # What is taken out may be deleted as soon as its record shows it, and the rest stays.
        await slurm.call(save(slurm.nodes[:1], None, now + 7200))
        await slurm.until_node(slurm.nodes[1], "open", lambda words: "RESERVED" not in words)
        await slurm.call(protocol.delete_node(slurm.nodes[1]))
        assert "PENDING" in (await job(slurm, number)).states
        assert (await slurm.call(requests.get_reservation("contract"))).end_time == now + 7200
    finally:
        await slurm.call(requests.cancel_job(number))
        await slurm.call(protocol.delete_reservation("contract"))
    await slurm.until_node(slurm.nodes[0], "open", lambda words: "RESERVED" not in words)
    await slurm.call(protocol.create_nodes(f"NodeName={slurm.nodes[1]} {CONF}"))


@scenario
async def powering_down_ends_a_drain_but_keeps_its_reason(slurm: Target) -> None:
    await fresh(slurm)
    reason = "slurm-operator: no capacity: contract"
    await slurm.write([slurm.nodes[0]], "POWER_UP")
    await slurm.until_node(slurm.nodes[0], "powering up", states.is_powering_up)
    await slurm.write([slurm.nodes[0]], "DRAIN", reason=reason)
    await slurm.write([slurm.nodes[0]], "POWER_DOWN_FORCE")
    node = await slurm.until_node(slurm.nodes[0], "powered down", states.is_powered_down)
    assert not states.is_drain(node.states)
    assert node.reason == reason
    await slurm.write([slurm.nodes[0]], "UNDRAIN")
    node = await slurm.node(slurm.nodes[0])
    assert states.is_powered_down(node.states)
    assert node.reason == ""


@scenario
async def a_powered_down_node_can_be_drained_and_undrained(slurm: Target) -> None:
    await fresh(slurm)
    await slurm.write(slurm.nodes, "DRAIN", reason="slurm-operator: contract")
    assert {"IDLE", "DRAIN", "POWERED_DOWN"} <= (await slurm.node(slurm.nodes[0])).states
    await slurm.write(slurm.nodes, "UNDRAIN")
    node = await slurm.node(slurm.nodes[0])
    assert {"IDLE", "POWERED_DOWN"} <= node.states
    assert not states.is_drain(node.states)
    assert node.reason == ""


@scenario
async def a_node_that_is_asked_to_start_starts_without_a_job(slurm: Target) -> None:
    await fresh(slurm)
    await slurm.write([slurm.nodes[0]], "POWER_UP")
    await slurm.until_node(slurm.nodes[0], "powering up", states.is_powering_up)
