"""What slurmctld does with external jobs, one scenario for each behaviour that the bridge builds
on.

They need a Slurm of their own without node records, whose partition `all` has all nodes, and the
users `slurm` and `mail`. `run` has a started job run with its tasks on one of the two nodes; a real
Slurm does that automatically.

What has a node of a real Slurm NOT_RESPONDING for good comes last.
"""

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest

from sidecars.contract import bridge
from sidecars.slurm import protocol
from sidecars.slurm.errors import (
    AuthenticationError,
    NotFound,
    NoToken,
    Refused,
    Rejected,
    ServerFault,
)
from sidecars.slurm.external import Allocation, ExternalJob, ExternalRequest
from sidecars.slurm.job_states import has_ended
from tests.contract.target import Target


class Run(Protocol):
    """Has a started job run with that many tasks on that node, by its place in `Target.nodes`."""

    async def __call__(self, job_id: int, tasks: int, node: int = 0, gres: str = "") -> None:
        """Until it does. `gres`: what it gets of the node's GRES, as a real Slurm writes it."""

    async def misfit(self, job_id: int) -> None:
        """Have Slurm notice that no node fits the started job. A real one does so automatically."""

    async def scontrol(self, *words: str) -> bool:
        """Run scontrol as an administrator: whether Slurm does it."""

    async def alias(self, name: str, user: str) -> None:
        """From now on the name is another one of that user, after it in the directory."""


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
    await exists(slurm, slurm.nodes[0])


async def exists(slurm: Target, name: str) -> None:
    """An external node of that name."""
    nodes = await slurm.call(protocol.get_nodes())
    if nodes is None or all(node.name != name for node in nodes.nodes):
        size = "CPUs=8 Sockets=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=16000"
        conf = f"NodeName={name} NodeAddr=127.0.0.1 {size} State=External Feature=slurm-bridge"
        await slurm.call(protocol.create_nodes(conf))


async def job(slurm: Target, job_id: int) -> ExternalJob:
    """A job now."""
    return await slurm.call(protocol.get_external_job(job_id))


async def started(slurm: Target, run: Run, request: ExternalRequest, gres: str = "") -> ExternalJob:
    """A job that was submitted, started and runs."""
    job_id = await slurm.call(protocol.submit_external(request), user=USER)
    await slurm.call(protocol.start_external(job_id, "ours"))
    await run(job_id, request.tasks, gres=gres)

    async def look() -> ExternalJob | None:
        found = await job(slurm, job_id)
        return found if "RUNNING" in found.states else None

    return await slurm.until("the job to run", look)


@scenario
async def an_external_record_is_idle_at_once_and_has_the_address_of_its_line(
    slurm: Target, run: Run
) -> None:
    await fresh(slurm)
    node = await slurm.node(slurm.nodes[0])
    assert {"IDLE", "EXTERNAL", "DYNAMIC_NORM"} <= node.states
    assert (node.address, node.cpus, node.real_memory, node.features) == (
        "127.0.0.1",
        8,
        16_000,
        ("slurm-bridge",),
    )
    await slurm.call(protocol.update_nodes([node.name], extra='{"zone":"a"}'))
    assert (await slurm.node(node.name)).extra == '{"zone":"a"}'


@scenario
async def a_submitted_job_waits_for_its_start_and_belongs_to_the_tokens_user(
    slurm: Target, run: Run
) -> None:
    await fresh(slurm)
    job_id = await slurm.call(protocol.submit_external(ONE), user=USER)
    found = await job(slurm, job_id)
    assert found.external
    assert found.blocked
    assert found.user_name == USER
    assert found.user_id > 0
    assert (found.comment, found.admin_comment, found.allocations) == ("mine", "", ())
    assert (found.partition, found.tasks, found.cpus_per_task, found.memory_per_task) == (
        "all",
        1,
        2,
        500,
    )
    several = dataclasses.replace(ONE, tasks=3, max_nodes=3, gres_per_task="")
    its = await job(slurm, await slurm.call(protocol.submit_external(several), user=USER))
    assert (its.tasks, its.cpus_per_task, its.memory_per_task) == (3, 2, 500)
    assert (await slurm.call(protocol.get_job_states()))[job_id] == {"PENDING"}
    await slurm.call(protocol.start_external(job_id, "ours"))
    found = await job(slurm, job_id)
    assert not found.blocked
    assert (found.comment, found.admin_comment) == ("mine", "ours")


@scenario
async def a_started_job_keeps_the_priority_that_an_operator_gives_it_and_its_user_raises_none(
    slurm: Target, run: Run
) -> None:
    await fresh(slurm)
    large = dataclasses.replace(ONE, cpus_per_task=8)
    await started(slurm, run, large)
    waits = await slurm.call(protocol.submit_external(large), user=USER)
    assert 2042 in await slurm.refused(Rejected, protocol.set_priority(waits, 700))
    await slurm.call(protocol.start_external(waits, "ours"))
    await slurm.call(protocol.set_priority(waits, 700))
    now = await job(slurm, waits)
    assert (now.blocked, now.priority, now.admin_comment) == (False, 700, "ours")
    assert 2002 in await slurm.refused(
        AuthenticationError, protocol.set_priority(waits, 900), user=USER
    )
    assert (await job(slurm, waits)).priority == 700
    await all_end(slurm)


@scenario
async def a_job_that_its_user_has_started_gets_its_admin_comment_while_it_runs(
    slurm: Target, run: Run
) -> None:
    await fresh(slurm)
    job_id = await slurm.call(protocol.submit_external(ONE), user=USER)
    release = protocol.Request(
        "POST", f"job/{job_id}", body={"hold": False}, read=lambda answer: None
    )
    await slurm.call(release, user=USER)
    await run(job_id, 1)

    async def look() -> ExternalJob | None:
        found = await job(slurm, job_id)
        return found if "RUNNING" in found.states else None

    assert (await slurm.until("the job to run", look)).admin_comment == ""
    await slurm.call(protocol.start_external(job_id, "ours"))
    found = await job(slurm, job_id)
    assert (found.admin_comment, "RUNNING" in found.states) == ("ours", True)


@scenario
async def a_guard_is_a_batch_job_that_waits_for_its_start(slurm: Target, run: Run) -> None:
    await fresh(slurm)
    request = dataclasses.replace(ONE, guard=True)
    job_id = await slurm.call(protocol.submit_external(request), user=USER)
    found = await job(slurm, job_id)
    assert (found.guard, found.external, found.blocked) == (True, False, True)
    assert (found.user_name, found.comment, found.admin_comment) == (USER, "mine", "")
    await slurm.call(protocol.start_external(job_id, "ours"))
    found = await job(slurm, job_id)
    assert (found.guard, found.blocked, found.admin_comment) == (True, False, "ours")
    assert not (await job(slurm, await slurm.call(protocol.submit_external(ONE), user=USER))).guard
    await slurm.call(protocol.cancel_job(job_id))
    assert await states(slurm, job_id) == [{"CANCELLED"}]


@scenario
async def slurmusers_token_does_what_the_user_may_whom_the_request_names(
    slurm: Target, run: Run
) -> None:
    await fresh(slurm)
    for request in (ONE, dataclasses.replace(ONE, guard=True)):
        job_id = await slurm.call(protocol.submit_external(request), named=USER)
        found = await job(slurm, job_id)
        assert (found.user_name, found.blocked, found.guard) == (USER, True, request.guard)
        assert found.user_id > 0
        start = protocol.start_external(job_id, "mine")
        assert 2002 in await slurm.refused(AuthenticationError, start, named=USER)
        await slurm.call(start, named="slurm")
        assert (await job(slurm, job_id)).admin_comment == "mine"
    first, second = await slurm.call(protocol.submit_external(ONE, ONE), named=USER), job_id
    assert first > second
    assert (await job(slurm, first + 1)).user_name == USER


@scenario
async def no_other_users_token_names_a_user_and_no_user_is_named_whom_slurm_does_not_know(
    slurm: Target, run: Run
) -> None:
    await fresh(slurm)
    submit = protocol.submit_external(ONE)
    before = (await slurm.call(protocol.get_job_states())).keys()
    await slurm.refused(AuthenticationError, submit, user=USER, named="slurm")
    await slurm.refused(AuthenticationError, submit, user=USER, named="root")
    await slurm.refused(Refused, submit, named="nosuchuser")
    assert (await slurm.call(protocol.get_job_states())).keys() == before
    with pytest.raises(NoToken, match="not a user name"):
        await slurm.call(submit, named="mail\r\nX-SLURM-USER-TOKEN: forged")


@scenario
async def a_running_job_has_what_its_tasks_request_and_its_record_keeps_it(
    slurm: Target, run: Run
) -> None:
    await fresh(slurm)
    several = ExternalRequest(
        "g", "all", "mine", tasks=3, max_nodes=3, cpus_per_task=2, memory_per_task=500
    )
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
    assert 2002 in await slurm.refused(
        AuthenticationError, protocol.start_external(job_id, "mine"), user=USER
    )
    assert (await job(slurm, job_id)).blocked


@scenario
async def a_wrong_partition_node_or_user_is_refused(slurm: Target, run: Run) -> None:
    await fresh(slurm)
    nowhere = protocol.submit_external(ExternalRequest("pod", "nowhere", ""))
    assert 2000 in await slurm.refused(Rejected, nowhere, user=USER)
    excluded = protocol.submit_external(
        ExternalRequest("pod", "all", "", excluded_nodes=("unknown",))
    )
    assert 2018 in await slurm.refused(NotFound, excluded, user=USER)
    assert 6010 in await slurm.refused(
        ServerFault, protocol.submit_external(ONE), user="nosuchuser"
    )


@scenario
async def a_job_that_slurm_does_not_know_is_not_found(slurm: Target, run: Run) -> None:
    await slurm.refused(NotFound, protocol.get_external_job(99_999))


TYPED = "Gres=gpu:1g.5gb:2,gpu:h100:3,mig:1 GresConf=count=2,name=gpu,type=1g.5gb,file=gpu-[0-1]+"
TYPED += "count=3,name=gpu,type=h100,file=gpu-[2-4]+count=1,name=mig,file=mig-0"


async def has_devices(slurm: Target, name: str) -> None:
    """The node has parts of GPUs, whole GPUs and something else."""
    size = "CPUs=8 Sockets=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=16000"
    await slurm.call(
        protocol.create_nodes(f"NodeName={name} NodeAddr=127.0.0.1 {size} State=External {TYPED}")
    )


async def all_end(slurm: Target) -> None:
    """No job is left, and no node."""
    for job_id, its in (await slurm.call(protocol.get_job_states())).items():
        if not has_ended(its):
            await slurm.call(protocol.cancel_job(job_id))
    for name in slurm.nodes:
        nodes = await slurm.call(protocol.get_nodes())
        if nodes is not None and any(it.name == name for it in nodes.nodes):
            await slurm.call(protocol.delete_node(name))


@scenario
async def the_indices_of_a_gres_count_its_types_in_the_order_of_the_record(
    slurm: Target, run: Run
) -> None:
    await all_end(slurm)
    await has_devices(slurm, slurm.nodes[0])
    assert (await slurm.node(slurm.nodes[0])).gres == "gpu:1g.5gb:2,gpu:h100:3,mig:1"
    seen: set[tuple[str, int]] = set()
    for gres, tasks, details in (
        ("gres/gpu:h100:2", 1, "gpu:h100:2(IDX:2-3)"),
        ("gres/gpu:1g.5gb:1", 2, "gpu:1g.5gb:2(IDX:0-1)"),
        ("gres/gpu:h100:1,gres/mig:1", 1, "gpu:h100:1(IDX:4),mig:1(IDX:0)"),
    ):
        request = dataclasses.replace(ONE, cpus_per_task=1, tasks=tasks, gres_per_task=gres)
        found = await started(slurm, run, request, details)
        [allocation] = found.allocations
        its = {(it.name, index) for it in allocation.gres for index in it.indices or ()}
        assert not its & seen
        seen |= its
    gpus = {("gpu:1g.5gb", 0), ("gpu:1g.5gb", 1), ("gpu:h100", 2), ("gpu:h100", 3), ("gpu:h100", 4)}
    assert seen == gpus | {("mig", 0)}
    await all_end(slurm)


@scenario
async def only_an_exclusive_job_has_all_gres_and_its_record_shows_whole_nodes(
    slurm: Target, run: Run
) -> None:
    await all_end(slurm)
    await has_devices(slurm, slurm.nodes[0])
    request = dataclasses.replace(ONE, gres_per_task="gres/gpu:h100:1")
    its = await job(slurm, await slurm.call(protocol.submit_external(request), user=USER))
    assert its.gres_per_task == "gres/gpu:h100:1"
    several = dataclasses.replace(request, tasks=2)
    its = await job(slurm, await slurm.call(protocol.submit_external(several), user=USER))
    assert its.gres_per_task == "gres/gpu:h100:1"
    found = await started(slurm, run, request, "gpu:h100:1(IDX:2)")
    assert (found.whole, found.shared) == (False, False)
    await slurm.call(protocol.cancel_job(found.job_id))
    everything = "gpu:1g.5gb:2(IDX:0-1),gpu:h100:3(IDX:2-4),mig:1(IDX:0)"
    found = await started(slurm, run, dataclasses.replace(request, exclusive=True), everything)
    assert (found.whole, found.shared) == (True, False)
    [allocation] = found.allocations
    assert {it.name: it.count for it in allocation.gres} == {
        "gpu:1g.5gb": 2,
        "gpu:h100": 3,
        "mig": 1,
    }
    await slurm.call(protocol.cancel_job(found.job_id))
    body = dict(protocol.submit_external(request).body or {})
    for_user = {**body["job"], "shared": ["user"], "hold": False}
    shares = protocol.Request(
        "POST", "job/submit", body={"job": for_user}, read=lambda answer: answer.number("job_id")
    )
    job_id = await slurm.call(shares, user=USER)
    await run(job_id, 1, gres="gpu:h100:1(IDX:2)")

    async def look() -> ExternalJob | None:
        its = await job(slurm, job_id)
        return its if "RUNNING" in its.states else None

    found = await slurm.until("the job of the user to run", look)
    assert found.whole, "its record doesn't tell it from an exclusive job"
    assert [it.count for it in found.allocations[0].gres] == [1]
    await all_end(slurm)


@scenario
async def the_extra_of_a_record_keeps_its_devices_as_they_were_written(
    slurm: Target, run: Run
) -> None:
    await all_end(slurm)
    await fresh(slurm)
    extra = bridge.node_extra(
        "k1", {"zone": "a"}, ["zone"], [("gpu:h100", "gpu.example.com", "k1/set", "gpu-0")]
    )
    await slurm.call(protocol.update_nodes(slurm.nodes[:1], extra=extra))
    assert (await slurm.node(slurm.nodes[0])).extra == extra


LEADER = ExternalRequest("leader", "all", "ours", cpus_per_task=1, memory_per_task=100, minutes=5)
WORKERS = ExternalRequest(
    "workers", "all", "ours", 2, 1, 2, cpus_per_task=2, memory_per_task=200, minutes=5
)


async def submitted(slurm: Target) -> tuple[int, int]:
    """A blocked heterogeneous job of two components."""
    leader = await slurm.call(protocol.submit_external(LEADER, WORKERS), user=USER)
    return leader, leader + 1


async def together(slurm: Target, run: Run) -> tuple[int, int]:
    """One that runs: the last component was started first. It needs two nodes, because components
    share none.
    """
    await exists(slurm, slurm.nodes[1])
    leader, workers = await submitted(slurm)
    for job_id in (workers, leader):
        await slurm.call(protocol.start_external(job_id, "ours"))
    await run(leader, 1)
    await run(workers, 2, 1)

    async def look() -> bool:
        found = await slurm.call(protocol.get_job_states())
        return found[leader] == found[workers] == {"RUNNING"}

    await slurm.until("both components to run", look)
    return leader, workers


async def states(slurm: Target, *job_ids: int) -> list[frozenset[str]]:
    """Of these jobs."""
    found = await slurm.call(protocol.get_job_states())
    return [found[it] for it in job_ids]


@scenario
async def a_job_has_the_name_that_the_directory_finds_for_its_uid(slurm: Target, run: Run) -> None:
    await fresh(slurm)
    for name, user, uid_0 in (("Mail", USER, False), ("toor", "root", True)):
        await run.alias(name, user)
        found = await job(slurm, await slurm.call(protocol.submit_external(ONE), user=name))
        assert (found.user_name, found.user_id == 0) == (user, uid_0)


@scenario
async def a_job_that_waits_can_have_the_nodes_again_that_it_was_to_avoid(
    slurm: Target, run: Run
) -> None:
    await fresh(slurm)
    await exists(slurm, slurm.nodes[1])
    request = dataclasses.replace(ONE, excluded_nodes=slurm.nodes)
    job_id = await slurm.call(protocol.submit_external(request), user=USER)
    assert (await job(slurm, job_id)).excluded_nodes == slurm.nodes
    await slurm.call(protocol.allow_nodes(job_id, slurm.nodes[1:]))
    found = await job(slurm, job_id)
    assert (found.excluded_nodes, found.blocked) == (slurm.nodes[1:], True)
    await slurm.call(protocol.allow_nodes(job_id, slurm.nodes))
    await slurm.call(protocol.start_external(job_id, "ours"))
    await slurm.call(protocol.allow_nodes(job_id, ()))
    assert (await job(slurm, job_id)).excluded_nodes == ()
    await run(job_id, 1)

    async def look() -> bool:
        return await states(slurm, job_id) == [{"RUNNING"}]

    await slurm.until("the job to run", look)
    assert 2073 in await slurm.refused(Rejected, protocol.allow_nodes(job_id, slurm.nodes[:1]))


@scenario
async def the_components_of_a_heterogeneous_job_are_jobs_with_consecutive_ids(
    slurm: Target, run: Run
) -> None:
    await fresh(slurm)
    leader, workers = await submitted(slurm)
    assert await states(slurm, leader, workers) == [{"PENDING"}, {"PENDING"}]
    for offset, job_id in enumerate((leader, workers)):
        found = await job(slurm, job_id)
        assert (found.job_id, found.het_id, found.het_offset) == (job_id, leader, offset)
        assert found.external
        assert found.blocked
        assert (found.user_name, found.comment, found.admin_comment) == (USER, "ours", "")
    assert (await job(slurm, leader)).cpus_per_task == 1
    assert (await job(slurm, workers)).cpus_per_task == 2
    alone = await slurm.call(protocol.submit_external(ONE), user=USER)
    assert (await job(slurm, alone)).het_id == 0


@scenario
async def each_component_is_started_by_itself_and_none_runs_before_the_last_one(
    slurm: Target, run: Run
) -> None:
    await fresh(slurm)
    leader, workers = await submitted(slurm)
    await slurm.call(protocol.start_external(workers, "ours"))
    first, second = await job(slurm, leader), await job(slurm, workers)
    assert (first.blocked, first.admin_comment) == (True, "")
    assert (second.blocked, second.admin_comment) == (False, "ours")
    assert await states(slurm, leader, workers) == [{"PENDING"}, {"PENDING"}]
    await slurm.call(protocol.cancel_job(leader))


@scenario
async def all_components_run_on_different_nodes_each_with_what_it_requests(
    slurm: Target, run: Run
) -> None:
    await fresh(slurm)
    leader, workers = await together(slurm, run)
    [first], [second] = [(await job(slurm, it)).allocations for it in (leader, workers)]
    assert {first.node, second.node} == set(slurm.nodes)
    assert (first.cpus, first.memory) == (1, 100)
    assert (second.cpus, second.memory) == (4, 400)
    assert (await job(slurm, leader)).end_time > 0


@scenario
async def the_end_of_the_first_component_ends_the_others(slurm: Target, run: Run) -> None:
    await fresh(slurm)
    leader, workers = await together(slurm, run)
    await slurm.call(protocol.cancel_job(leader))
    assert await states(slurm, leader, workers) == [{"CANCELLED"}, {"CANCELLED"}]
    leader, workers = await submitted(slurm)
    await slurm.call(protocol.cancel_job(leader))
    assert await states(slurm, leader, workers) == [{"CANCELLED"}, {"CANCELLED"}]


@scenario
async def the_end_of_another_component_ends_no_other_one(slurm: Target, run: Run) -> None:
    await fresh(slurm)
    leader, workers = await together(slurm, run)
    await slurm.call(protocol.cancel_job(workers))
    assert await states(slurm, leader, workers) == [{"RUNNING"}, {"CANCELLED"}]
    await slurm.call(protocol.cancel_job(leader))
    leader, workers = await submitted(slurm)
    await slurm.call(protocol.cancel_job(workers))
    assert await states(slurm, leader, workers) == [{"PENDING"}, {"CANCELLED"}]


@scenario
async def a_heterogeneous_job_that_loses_a_node_ends_as_a_whole(slurm: Target, run: Run) -> None:
    await fresh(slurm)
    leader, workers = await together(slurm, run)
    await slurm.write(slurm.nodes[:1], "DOWN", reason="lost")

    async def look() -> bool:
        return await states(slurm, leader, workers) == [{"NODE_FAIL"}, {"NODE_FAIL"}]

    await slurm.until("both components to end", look)
    await slurm.write(slurm.nodes[:1], "RESUME")


@scenario
async def a_heterogeneous_job_with_a_wrong_component_leaves_nothing_that_could_run(
    slurm: Target, run: Run
) -> None:
    await fresh(slurm)
    before = await slurm.call(protocol.get_job_states())
    wrong = ExternalRequest("w", "all", "", excluded_nodes=("unknown",))
    assert 2018 in await slurm.refused(NotFound, protocol.submit_external(LEADER, wrong), user=USER)
    left = {
        key: it
        for key, it in (await slurm.call(protocol.get_job_states())).items()
        if key not in before
    }
    assert set(left.values()) == {frozenset({"CANCELLED"})}


TWO_NODES = ExternalRequest(
    "g", "all", "mine", 2, 2, 2, cpus_per_task=2, memory_per_task=500, minutes=5
)


async def on_both_nodes(slurm: Target, run: Run) -> ExternalJob:
    """A job that runs with a task on each of them."""
    await fresh(slurm)
    await exists(slurm, slurm.nodes[1])
    job_id = await slurm.call(protocol.submit_external(TWO_NODES), user=USER)
    await slurm.call(protocol.start_external(job_id, "ours"))
    await run(job_id, 1)
    await run(job_id, 1, 1)

    async def look() -> ExternalJob | None:
        found = await job(slurm, job_id)
        return found if len(found.allocations) == 2 else None

    return await slurm.until("the job to run", look)


@scenario
async def the_cpus_of_a_running_job_stay_as_they_are(slurm: Target, run: Run) -> None:
    await fresh(slurm)
    found = await started(slurm, run, ONE)
    for change in ("numcpus=1", "numtasks=2"):
        assert not await run.scontrol("update", f"jobid={found.job_id}", change)
    assert (await job(slurm, found.job_id)).allocations == found.allocations


@scenario
async def a_running_external_job_is_never_requeued(slurm: Target, run: Run) -> None:
    await fresh(slurm)
    found = await started(slurm, run, ONE)
    for command in ("requeue", "requeuehold"):
        assert not await run.scontrol(command, str(found.job_id))
    now = await job(slurm, found.job_id)
    assert now.states == {"RUNNING"}
    assert now.allocations == found.allocations


@scenario
async def blocking_keeps_a_job_that_waits_and_changes_nothing_of_one_that_runs(
    slurm: Target, run: Run
) -> None:
    await fresh(slurm)
    found = await started(slurm, run, ONE)
    assert await run.scontrol("hold", str(found.job_id))
    now = await job(slurm, found.job_id)
    assert now.states == {"RUNNING"}
    assert (now.blocked, now.allocations) == (False, found.allocations)
    # The other node may be free.
    await exists(slurm, slurm.nodes[1])
    elsewhere = dataclasses.replace(LARGE, excluded_nodes=(slurm.nodes[1],))
    waiting = await slurm.call(protocol.submit_external(elsewhere), user=USER)
    await slurm.call(protocol.start_external(waiting, "ours"))
    assert await run.scontrol("hold", str(waiting))
    now = await job(slurm, waiting)
    assert now.states == {"PENDING"}
    assert (now.blocked, now.admin_comment) == (True, "ours")
    assert await run.scontrol("release", str(waiting))
    assert not (await job(slurm, waiting)).blocked


async def blocked_without_a_node(slurm: Target, run: Run) -> int:
    """A started job that Slurm blocks, because the only node that fitted it is gone."""
    await all_end(slurm)
    # A partition with too few CPUs would be its reason, and nothing would be blocked.
    size = "CPUs=8 Sockets=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=100"
    await slurm.call(
        protocol.create_nodes(f"NodeName={slurm.nodes[1]} NodeAddr=127.0.0.1 {size} State=External")
    )
    job_id = await slurm.call(protocol.submit_external(LARGE), user=USER)
    with contextlib.suppress(Rejected):
        await slurm.call(protocol.start_external(job_id, "ours"))
    await run.misfit(job_id)

    async def look() -> bool:
        now = await job(slurm, job_id)
        return now.blocked and now.reason == "BadConstraints"

    await slurm.until("the job to be blocked", look)
    assert (await job(slurm, job_id)).admin_comment == "ours"
    return job_id


@scenario
async def a_job_that_no_node_fits_is_blocked_until_it_is_started_again(
    slurm: Target, run: Run
) -> None:
    job_id = await blocked_without_a_node(slurm, run)
    await exists(slurm, slurm.nodes[0])
    assert (await job(slurm, job_id)).reason == "BadConstraints"
    await slurm.call(protocol.start_again(job_id, "ours"))
    assert not (await job(slurm, job_id)).blocked
    await run(job_id, 1)

    async def look() -> bool:
        return await states(slurm, job_id) == [{"RUNNING"}]

    await slurm.until("the job to run", look)
    await all_end(slurm)


@scenario
async def a_start_again_ends_no_blocking_by_hand(slurm: Target, run: Run) -> None:
    for command, reason in (("hold", "JobHeldAdmin"), ("uhold", "JobHeldUser")):
        job_id = await blocked_without_a_node(slurm, run)
        await exists(slurm, slurm.nodes[0])
        assert await run.scontrol(command, str(job_id))
        await slurm.call(protocol.start_again(job_id, "ours"))
        now = await job(slurm, job_id)
        assert (now.blocked, now.reason) == (True, reason)
    await all_end(slurm)


LARGE = ExternalRequest("large", "all", "mine", cpus_per_task=8, memory_per_task=500, minutes=5)
"""It needs a node for itself."""


@scenario
async def a_running_job_that_gives_up_a_node_keeps_its_states_and_the_node_stops_responding(
    slurm: Target, run: Run
) -> None:
    found = await on_both_nodes(slurm, run)
    assert await run.scontrol("update", f"jobid={found.job_id}", "numnodes=1")
    now = await job(slurm, found.job_id)
    assert now.states == {"RUNNING"}
    assert now.allocations == found.allocations[:1]
    await slurm.until_node(slurm.nodes[1], "silent", lambda states: "NOT_RESPONDING" in states)
    await slurm.call(protocol.cancel_job(found.job_id))
    await slurm.call(protocol.delete_node(slurm.nodes[1]))


@scenario
async def the_cores_of_a_suspended_job_are_given_to_others_and_it_continues_beside_them(
    slurm: Target, run: Run
) -> None:
    await fresh(slurm)
    found = await started(slurm, run, ONE)
    assert await run.scontrol("suspend", str(found.job_id))
    now = await job(slurm, found.job_id)
    assert now.states == {"SUSPENDED"}
    assert now.allocations == found.allocations
    other = await started(slurm, run, LARGE)
    [place] = other.allocations
    assert (place.node, place.cpus) == (slurm.nodes[0], 8)
    assert await run.scontrol("resume", str(found.job_id))
    assert await states(slurm, found.job_id, other.job_id) == [{"RUNNING"}, {"RUNNING"}]
    await slurm.until_node(slurm.nodes[0], "silent", lambda states: "NOT_RESPONDING" in states)
    assert await run.scontrol("suspend", str(found.job_id))
    await slurm.call(protocol.cancel_job(found.job_id))
    assert await states(slurm, found.job_id, other.job_id) == [{"CANCELLED"}, {"RUNNING"}]
    await slurm.call(protocol.cancel_job(other.job_id))
    await slurm.call(protocol.delete_node(slurm.nodes[0]))
