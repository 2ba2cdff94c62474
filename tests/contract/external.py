"""What slurmctld does with external jobs, one scenario for each behaviour that the bridge builds on.

They need a Slurm of their own without node records, whose partition `all` has all nodes, and the users `slurm` and
`mail`. `run` has a started job run with its tasks on the first node; a real Slurm does that automatically.
"""

from collections.abc import Awaitable, Callable

from sidecars.slurm import protocol
from sidecars.slurm.errors import AuthenticationError, NotFound, Rejected, ServerFault
from sidecars.slurm.external import Allocation, ExternalJob, ExternalRequest
from tests.contract.target import Target

Run = Callable[[int, int], Awaitable[None]]
Placeholder = Callable[[Target, Run], Awaitable[None]]

EXTERNAL: list[Placeholder] = []
USER = "mail"
ONE = ExternalRequest("pod", "all", "mine", cpus_per_task=2, memory_per_task=500, minutes=5)


def scenario(function: Placeholder) -> Placeholder:
    """One of them."""
    EXTERNAL.append(function)
    return function


async def fresh(slurm: Target) -> None:
    """No job is left, and the first node is an external one with 8 CPUs."""
    for job_id in await slurm.call(protocol.get_job_states()):
        await slurm.call(protocol.cancel_job(job_id))
    name = slurm.nodes[0]
    nodes = await slurm.call(protocol.get_nodes())
    if nodes is None or all(node.name != name for node in nodes.nodes):
        size = "CPUs=8 Sockets=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=16000"
        conf = f"NodeName={name} NodeAddr=127.0.0.1 {size} State=External Feature=slurm-bridge"
        await slurm.call(protocol.create_nodes(conf))


async def job(slurm: Target, job_id: int) -> ExternalJob:
    """A job now."""
    return await slurm.call(protocol.get_external_job(job_id))


async def started(slurm: Target, run: Run, request: ExternalRequest) -> ExternalJob:
    """A job that was submitted, started and runs."""
    job_id = await slurm.call(protocol.submit_external(request), user=USER)
    await slurm.call(protocol.start_external(job_id, "ours"))
    await run(job_id, request.tasks)

    async def look() -> ExternalJob | None:
        found = await job(slurm, job_id)
        return found if "RUNNING" in found.states else None

    return await slurm.until("the job to run", look)


@scenario
async def an_external_record_is_idle_at_once_and_has_the_address_of_its_line(slurm: Target, run: Run) -> None:
    await fresh(slurm)
    node = await slurm.node(slurm.nodes[0])
    assert {"IDLE", "EXTERNAL", "DYNAMIC_NORM"} <= node.states
    assert (node.address, node.cpus, node.real_memory, node.features) == ("127.0.0.1", 8, 16_000, ("slurm-bridge",))
    await slurm.call(protocol.update_nodes([node.name], extra='{"zone":"a"}'))
    assert (await slurm.node(node.name)).extra == '{"zone":"a"}'


@scenario
async def a_submitted_job_waits_for_its_start_and_belongs_to_the_tokens_user(slurm: Target, run: Run) -> None:
    await fresh(slurm)
    job_id = await slurm.call(protocol.submit_external(ONE), user=USER)
    found = await job(slurm, job_id)
    assert found.external
    assert found.blocked
    assert found.user_name == USER
    assert found.user_id > 0
    assert (found.comment, found.admin_comment, found.allocations) == ("mine", "", ())
    assert (await slurm.call(protocol.get_job_states()))[job_id] == {"PENDING"}
    await slurm.call(protocol.start_external(job_id, "ours"))
    found = await job(slurm, job_id)
    assert not found.blocked
    assert (found.comment, found.admin_comment) == ("mine", "ours")


@scenario
async def a_running_job_has_what_its_tasks_request_and_its_record_keeps_it(slurm: Target, run: Run) -> None:
    await fresh(slurm)
    several = ExternalRequest("g", "all", "mine", tasks=3, max_nodes=3, cpus_per_task=2, memory_per_task=500)
    for request, tasks in ((ONE, 1), (several, 3)):
        found = await started(slurm, run, request)
        assert found.allocations == (Allocation(slurm.nodes[0], 2 * tasks, 500 * tasks),)
        await slurm.call(protocol.cancel_job(found.job_id))
        ended = await job(slurm, found.job_id)
        assert ended.states == {"CANCELLED"}
        assert ended.allocations == found.allocations
        assert (await slurm.call(protocol.get_job_states()))[found.job_id] == {"CANCELLED"}


@scenario
async def the_user_can_not_set_the_admin_comment(slurm: Target, run: Run) -> None:
    await fresh(slurm)
    job_id = await slurm.call(protocol.submit_external(ONE), user=USER)
    assert 2002 in await slurm.refused(AuthenticationError, protocol.start_external(job_id, "mine"), user=USER)
    assert (await job(slurm, job_id)).blocked


@scenario
async def a_wrong_partition_node_or_user_is_refused(slurm: Target, run: Run) -> None:
    await fresh(slurm)
    nowhere = protocol.submit_external(ExternalRequest("pod", "nowhere", ""))
    assert 2000 in await slurm.refused(Rejected, nowhere, user=USER)
    excluded = protocol.submit_external(ExternalRequest("pod", "all", "", excluded_nodes=("unknown",)))
    assert 2018 in await slurm.refused(NotFound, excluded, user=USER)
    assert 6010 in await slurm.refused(ServerFault, protocol.submit_external(ONE), user="nosuchuser")


@scenario
async def a_job_that_slurm_does_not_know_is_not_found(slurm: Target, run: Run) -> None:
    await slurm.refused(NotFound, protocol.get_external_job(99_999))
