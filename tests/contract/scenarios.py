"""What slurmrestd, slurmctld and slurmdbd do, one scenario for each behaviour that this product
builds on.

`Target.settle` cleans up nodes and jobs after a scenario. Nodes are drained with foreign reasons,
so that an operator that watches doesn't touch them.
"""

import asyncio
import http.client
import time
from collections.abc import Awaitable, Callable

import pytest

from sidecars.slurm import protocol
from sidecars.slurm.errors import AuthenticationError, NotFound, Rejected, ServerFault
from sidecars.slurm.protocol import TOKEN_HEADER, Request, accounting
from sidecars.slurm.protocol import limits as limits_of
from sidecars.slurm.protocol.accounting import Qos
from sidecars.slurm.protocol.limits import Limits
from sidecars.slurm.states import is_busy, is_down, is_drain, is_drained, is_draining
from sidecars.slurm.tokens import sign
from tests.contract import requests
from tests.contract.target import Target

Scenario = Callable[[Target], Awaitable[None]]

SCENARIOS: list[Scenario] = []
ACCOUNTING: list[Scenario] = []
WHY = "contract: under test"


def scenario(function: Scenario) -> Scenario:
    """One that needs no slurmdbd."""
    SCENARIOS.append(function)
    return function


def with_slurmdbd(function: Scenario) -> Scenario:
    """One that needs slurmdbd."""
    ACCOUNTING.append(function)
    return function


# --- nodes


@scenario
async def nodes_are_listed_with_the_time_of_the_answer(slurm: Target) -> None:
    asked = int(time.time())
    nodes = await slurm.call(protocol.get_nodes())
    assert nodes is not None
    assert set(slurm.nodes) <= {node.name for node in nodes.nodes}
    assert asked <= nodes.last_update <= time.time()
    for node in nodes.nodes:
        assert "IDLE" in node.states
        assert node.cpus > 0
        assert node.real_memory > 0
        assert node.slurmd_start_time > 0
        assert node.reason == ""


@scenario
async def nothing_new_is_answered_without_a_list(slurm: Target) -> None:
    assert await slurm.call(protocol.get_nodes(int(time.time()) + 100)) is None


@scenario
async def a_change_shows_when_asking_from_the_time_of_the_last_answer(slurm: Target) -> None:
    before = await slurm.call(protocol.get_nodes())
    assert before is not None
    comment = f"contract {time.time()}"
    await slurm.call(protocol.update_nodes(slurm.nodes[:1], comment=comment))
    after = await slurm.call(protocol.get_nodes(before.last_update))
    assert after is not None
    assert {node.name: node.comment for node in after.nodes}[slurm.nodes[0]] == comment
    assert {node.name for node in after.nodes} == {node.name for node in before.nodes}


@scenario
async def a_time_that_is_none_is_refused(slurm: Target) -> None:
    bad: Request[None] = Request("GET", "nodes/", (("update_time", "abc"),), read=lambda _: None)
    assert 9202 in await slurm.refused(Rejected, bad)


@scenario
async def features_alone_are_the_active_ones_too_and_no_active_one_is_unavailable(
    slurm: Target,
) -> None:
    name = slurm.nodes[0]
    before = await slurm.node(name)

    async def update(features: set[str] | None, active: set[str] | None) -> list[set[str]]:
        await slurm.call(
            protocol.update_nodes(
                [name],
                features=None if features is None else sorted(features),
                active_features=None if active is None else sorted(active),
            )
        )
        node = await slurm.node(name)
        return [set(node.features), set(node.active_features)]

    own = set(before.features)
    more, most = own | {"contract/a"}, own | {"contract/a", "contract/b"}
    assert await update(most, own) == [most, own]
    assert await update(None, more) == [most, more]
    unavailable = protocol.update_nodes([name], active_features=[*sorted(own), "contract/c"])
    assert 2031 in await slurm.refused(Rejected, unavailable)
    assert await update(more, None) == [more, more]
    # Those that are active until then count, although they would be replaced.
    fewer = protocol.update_nodes([name], features=sorted(own))
    assert 2031 in await slurm.refused(Rejected, fewer)
    assert await update(own, own) == [own, own]


@scenario
async def drain_sets_the_flag_and_the_reason(slurm: Target) -> None:
    asked = int(time.time())
    await slurm.write(slurm.nodes, "DRAIN", reason=WHY)
    for name in slurm.nodes:
        node = await slurm.node(name)
        assert is_drained(node.states)
        assert node.reason == WHY
        assert asked <= node.reason_changed_at <= time.time()


@scenario
async def drain_without_a_reason_keeps_the_old_one_and_with_one_replaces_it(slurm: Target) -> None:
    name = slurm.nodes[0]
    await slurm.write([name], "DRAIN", reason=WHY)
    await slurm.write([name], "DRAIN")
    assert (await slurm.node(name)).reason == WHY
    await slurm.write([name], "DRAIN", reason="contract: another")
    assert (await slurm.node(name)).reason == "contract: another"


@scenario
async def a_reason_can_be_set_without_a_state_but_not_cleared(slurm: Target) -> None:
    name = slurm.nodes[0]
    await slurm.write([name], "DRAIN", reason=WHY)
    await slurm.write([name], reason="contract: another")
    assert (await slurm.node(name)).reason == "contract: another"
    await slurm.write([name], reason="")
    assert (await slurm.node(name)).reason == "contract: another"


@scenario
async def undrain_clears_drain_and_reason_and_the_node_is_silent_for_a_moment(
    slurm: Target,
) -> None:
    name = slurm.nodes[0]

    async def silent() -> bool:
        await slurm.write([name], "DRAIN", reason=WHY)
        await slurm.write([name], "UNDRAIN")
        node = await slurm.node(name)
        assert not is_drain(node.states)
        assert node.reason == ""
        return "NOT_RESPONDING" in node.states

    # Several times, because slurmd may have answered before the node is read.
    await slurm.until("a node that is silent after its drain", silent)
    await slurm.until_node(name, "responding", lambda states: "NOT_RESPONDING" not in states)


@scenario
async def undrain_leaves_a_node_down_with_its_reason(slurm: Target) -> None:
    name = slurm.nodes[0]
    await slurm.write([name], "DOWN", reason=WHY)
    await slurm.write([name], "DRAIN")
    await slurm.write([name], "UNDRAIN")
    node = await slurm.node(name)
    assert is_down(node.states)
    assert not is_drain(node.states)
    assert node.reason == WHY


@scenario
async def a_drain_without_a_reason_of_a_node_that_is_down_keeps_its_reason(slurm: Target) -> None:
    name = slurm.nodes[0]
    await slurm.write([name], "DOWN", reason=WHY)
    await slurm.write([name], "DRAIN")
    await slurm.write([name], "DOWN")
    node = await slurm.node(name)
    assert is_down(node.states)
    assert is_drain(node.states)
    assert node.reason == WHY


@scenario
async def idle_ends_down_and_drain_and_clears_the_reason(slurm: Target) -> None:
    for state in ("IDLE", "RESUME"):
        name = slurm.nodes[0]
        await slurm.write([name], "DOWN", reason=WHY)
        await slurm.write([name], "DRAIN")
        await slurm.write([name], state)
        node = await slurm.node(name)
        assert not is_down(node.states)
        assert not is_drain(node.states)
        assert node.reason == ""


@scenario
async def fail_ends_a_drain_and_a_drain_ends_fail(slurm: Target) -> None:
    name = slurm.nodes[0]
    await slurm.write([name], "FAIL", reason=WHY)
    node = await slurm.node(name)
    assert "FAIL" in node.states
    assert "DRAIN" not in node.states
    assert node.reason == WHY
    await slurm.write([name], "DRAIN", reason="contract: another")
    node = await slurm.node(name)
    assert "FAIL" not in node.states
    assert is_drained(node.states)
    assert node.reason == "contract: another"
    await slurm.write([name], "FAIL")
    node = await slurm.node(name)
    assert "FAIL" in node.states
    assert "DRAIN" not in node.states
    assert node.reason == "contract: another"


@scenario
async def undrain_and_resume_end_fail_of_a_node_without_a_job(slurm: Target) -> None:
    name = slurm.nodes[0]
    for state in ("UNDRAIN", "RESUME"):
        await slurm.write([name], "FAIL", reason=WHY)
        await slurm.write([name], state)
        node = await slurm.node(name)
        assert "FAIL" not in node.states
        assert node.reason == ""


@scenario
async def fail_leaves_a_job_on_its_node(slurm: Target) -> None:
    name = slurm.nodes[0]
    number = await slurm.running(name)
    await slurm.write([name], "FAIL", reason=WHY)
    assert (await slurm.call(requests.get_job(number))).states == {"RUNNING"}
    node = await slurm.node(name)
    assert is_busy(node.states)
    assert "FAIL" in node.states


@scenario
async def a_drain_of_a_down_node_replaces_its_reason_and_leaves_it_down(slurm: Target) -> None:
    name = slurm.nodes[0]
    await slurm.write([name], "DOWN", reason=WHY)
    await slurm.write([name], "DRAIN", reason="contract: another")
    node = await slurm.node(name)
    assert is_down(node.states)
    assert is_drain(node.states)
    assert node.reason == "contract: another"


@scenario
async def a_node_that_is_idle_cant_be_resumed(slurm: Target) -> None:
    request = protocol.update_nodes(slurm.nodes[:1], state=["RESUME"])
    assert 2180 in await slurm.refused(Rejected, request)


@scenario
async def a_state_that_is_none_is_refused(slurm: Target) -> None:
    request = protocol.update_nodes(slurm.nodes[:1], state=["BOGUS"])
    assert 9207 in await slurm.refused(Rejected, request)


@scenario
async def an_unknown_node_is_not_found(slurm: Target) -> None:
    await slurm.refused(NotFound, protocol.get_node("contract-none"))
    unknown = protocol.update_nodes(["contract-none"], state=["DRAIN"], reason=WHY)
    assert 2018 in await slurm.refused(NotFound, unknown)
    assert 2018 in await slurm.refused(NotFound, protocol.delete_node("contract-none"))


@scenario
async def an_unknown_node_after_others_keeps_nothing_from_them(slurm: Target) -> None:
    request = protocol.update_nodes([*slurm.nodes, "zz-contract-none"], state=["DRAIN"], reason=WHY)
    assert 2018 in await slurm.refused(NotFound, request)
    for name in slurm.nodes:
        assert (await slurm.node(name)).reason == WHY


@scenario
async def an_unknown_node_that_comes_first_keeps_everything_from_the_others(slurm: Target) -> None:
    request = protocol.update_nodes([*slurm.nodes, "a-contract-none"], state=["DRAIN"], reason=WHY)
    assert 2018 in await slurm.refused(NotFound, request)
    for name in slurm.nodes:
        assert not is_drain((await slurm.node(name)).states)


# --- jobs


@scenario
async def a_running_job_makes_its_node_busy_and_draining_until_it_ends(slurm: Target) -> None:
    name, other = slurm.nodes
    number = await slurm.running(name)
    node = await slurm.node(name)
    assert is_busy(node.states)
    nodes = await slurm.call(protocol.get_nodes())
    assert nodes is not None
    listed = {node.name: node for node in nodes.nodes}
    assert listed[name].alloc_cpus > 0
    assert not is_busy(listed[other].states)
    await slurm.write([name], "DRAIN", reason=WHY)
    assert is_draining((await slurm.node(name)).states)
    await slurm.call(requests.cancel_job(number))
    assert (await slurm.until_node(name, "drained", is_drained)).reason == WHY


@scenario
async def a_node_read_alone_shows_allocations_as_of_the_last_list(slurm: Target) -> None:
    name = slurm.nodes[0]

    async def over(number: int) -> bool:
        states = (await slurm.call(protocol.get_node(name))).states
        job = await slurm.call(requests.get_job(number))
        return not {"RUNNING", "COMPLETING"} & {*job.states, *states}

    async def stale() -> bool:
        number = await slurm.running(name)
        assert (await slurm.node(name)).alloc_cpus > 0
        await slurm.call(requests.cancel_job(number))
        await slurm.until(f"job {number} to end", lambda: over(number))
        node = await slurm.call(protocol.get_node(name))
        assert is_busy(node.states) == (node.alloc_cpus > 0)
        return is_busy(node.states)

    # Several times, because an operator that polls the list may do so in between.
    await slurm.until("a node that still shows the job that has ended", stale)
    await slurm.call(protocol.count_allocations())
    counted = await slurm.call(protocol.get_node(name))
    assert not is_busy(counted.states)
    assert counted.alloc_cpus == 0


@scenario
async def a_busy_node_cant_be_deleted(slurm: Target) -> None:
    name = slurm.nodes[0]
    await slurm.running(name)
    assert 2016 in await slurm.refused(Rejected, protocol.delete_node(name))
    assert is_busy((await slurm.node(name)).states)


@scenario
async def down_takes_the_job_from_its_node(slurm: Target) -> None:
    name = slurm.nodes[0]
    number = await slurm.running(name)
    await slurm.write([name], "DOWN", reason=WHY)

    async def gone() -> bool:
        return "RUNNING" not in (await slurm.call(requests.get_job(number))).states

    await slurm.until(f"job {number} to be off {name}", gone)
    await slurm.until_node(
        name, "without work", lambda states: is_down(states) and not is_busy(states)
    )


@scenario
async def a_suspended_job_uses_no_cpus_of_the_node_that_it_is_on(slurm: Target) -> None:
    name = slurm.nodes[0]
    number = await slurm.running(name)
    await slurm.jobs.suspend(number)

    async def freed() -> bool:
        return (await slurm.node(name)).alloc_cpus == 0

    await slurm.until(f"{name} to have no allocated CPUs", freed)
    job = await slurm.call(requests.get_job(number))
    assert job.states == {"SUSPENDED"}
    assert job.nodes == name


@scenario
async def down_takes_a_suspended_job_from_its_node(slurm: Target) -> None:
    name = slurm.nodes[0]
    number = await slurm.running(name)
    await slurm.jobs.suspend(number)
    await slurm.write([name], "DOWN", reason=WHY)

    async def gone() -> bool:
        return (await slurm.call(requests.get_job(number))).states.isdisjoint(
            {"RUNNING", "SUSPENDED"}
        )

    await slurm.until(f"job {number} to be off {name}", gone)


@scenario
async def jobs_are_listed_with_their_nodes_and_limits(slurm: Target) -> None:
    name = slurm.nodes[0]
    submitted = int(time.time())
    number = await slurm.running(name)
    waiting = await slurm.jobs.submit_pending()
    listed = await slurm.call(protocol.get_jobs())
    assert listed is not None
    jobs = {job.job_id: job for job in listed.jobs}
    assert jobs[number].states == {"RUNNING"}
    assert jobs[number].nodes == name
    assert jobs[number].time_limit == 5
    assert jobs[number].node_count == 1
    assert submitted <= jobs[number].start_time <= time.time()
    assert jobs[waiting].states == {"PENDING"}
    assert jobs[waiting].nodes == ""
    assert await slurm.call(requests.get_job(number)) == jobs[number]


@scenario
async def only_api_version_0_0_44_reports_that_a_job_is_exclusive(slurm: Target) -> None:
    sharing, exclusive = (
        await slurm.jobs.submit_pending(),
        await slurm.jobs.submit_pending(exclusive=True),
    )
    queue = await slurm.call(protocol.get_queue())
    assert queue is not None
    requests_ = {job.job_id: job.pending.request for job in queue.jobs if job.pending is not None}
    assert queue.exclusive_known == (slurm.version == "v0.0.44")
    assert requests_[sharing].shared == frozenset()
    assert requests_[exclusive].shared == (
        frozenset({"none"}) if queue.exclusive_known else frozenset()
    )


@scenario
async def no_new_job_is_answered_with_an_empty_list_of_no_time(slurm: Target) -> None:
    assert await slurm.call(protocol.get_jobs(int(time.time()) + 100)) is None


@scenario
async def a_new_job_shows_when_asking_from_the_time_of_the_last_answer(slurm: Target) -> None:
    before = await slurm.call(protocol.get_jobs())
    assert before is not None
    number = await slurm.jobs.submit_pending()
    after = await slurm.call(protocol.get_jobs(before.last_update))
    assert after is not None
    assert number in {job.job_id for job in after.jobs}


@scenario
async def an_unknown_job_is_not_found(slurm: Target) -> None:
    assert 2017 in await slurm.refused(NotFound, requests.get_job(99_999_999))
    assert 2017 in await slurm.refused(NotFound, requests.cancel_job(99_999_999))


# --- reservations


def _maintenance(
    slurm: Target, *, start: int, minutes: int = 60, flags: tuple[str, ...] = ()
) -> Request[None]:
    return protocol.save_reservation(
        "contract",
        start_time=start,
        minutes=minutes,
        nodes=slurm.nodes,
        users=["slurm"],
        flags=("MAINT", "IGNORE_JOBS", *flags),
    )


@scenario
async def a_reservation_is_made_changed_and_deleted(slurm: Target) -> None:
    start = int(time.time()) + 3600
    await slurm.call(_maintenance(slurm, start=start))
    made = await slurm.call(requests.get_reservation("contract"))
    assert made.flags == {"MAINT", "IGNORE_JOBS", "SPEC_NODES"}
    assert (made.start_time, made.end_time) == (start, start + 3600)
    assert made.users == ("slurm",)
    assert made in await slurm.call(protocol.get_reservations())
    await slurm.call(protocol.save_reservation("contract", minutes=30, nodes=slurm.nodes[:1]))
    changed = await slurm.call(requests.get_reservation("contract"))
    assert (changed.start_time, changed.end_time) == (start, start + 1800)
    assert changed.node_list == slurm.nodes[0]
    assert changed.users == ("slurm",)
    assert changed.flags == made.flags
    await slurm.call(protocol.delete_reservation("contract"))
    await slurm.refused(NotFound, requests.get_reservation("contract"))


@scenario
async def a_recurring_reservation_keeps_its_flag(slurm: Target) -> None:
    for flag in ("HOURLY", "DAILY", "WEEKLY", "WEEKDAY", "WEEKEND"):
        start = int(time.time()) + 3600
        await slurm.call(_maintenance(slurm, start=start, minutes=10, flags=(flag,)))
        made = await slurm.call(requests.get_reservation("contract"))
        assert flag in made.flags
        await slurm.call(protocol.delete_reservation("contract"))


@scenario
async def an_unknown_reservation_is_not_found(slurm: Target) -> None:
    await slurm.refused(NotFound, requests.get_reservation("contract-none"))
    assert 2053 in await slurm.refused(NotFound, protocol.delete_reservation("contract-none"))


@scenario
async def a_reservation_in_the_past_or_of_unknown_nodes_or_for_nobody_is_refused(
    slurm: Target,
) -> None:
    assert 2054 in await slurm.refused(Rejected, _maintenance(slurm, start=int(time.time()) - 7200))
    start = int(time.time()) + 3600
    unknown = protocol.save_reservation(
        "contract", start_time=start, minutes=5, nodes=["contract-none"], users=["slurm"]
    )
    assert 2018 in await slurm.refused(NotFound, unknown)
    nobody = protocol.save_reservation("contract", start_time=start, minutes=5, nodes=slurm.nodes)
    assert 2053 in await slurm.refused(Rejected, nobody)


@scenario
async def a_reservation_with_an_unknown_flag_is_refused_and_made_all_the_same(
    slurm: Target,
) -> None:
    start = int(time.time()) + 3600
    assert 9207 in await slurm.refused(Rejected, _maintenance(slurm, start=start, flags=("BOGUS",)))
    made = await slurm.call(requests.get_reservation("contract"))
    assert made.start_time == start


@scenario
async def a_reservation_that_has_begun_shows_on_its_nodes(slurm: Target) -> None:
    name = slurm.nodes[0]
    assert (await slurm.node(name)).reservation == ""
    await slurm.call(_maintenance(slurm, start=int(time.time()) + 3600))
    assert (await slurm.node(name)).reservation == ""
    await slurm.call(_maintenance(slurm, start=int(time.time())))

    async def shown() -> bool:
        node = await slurm.node(name)
        return node.reservation == "contract" and {"RESERVED", "MAINTENANCE"} & node.states != set()

    await slurm.until("the reservation to show", shown)
    assert 2016 in await slurm.refused(Rejected, protocol.delete_node(name))
    later = protocol.save_reservation("contract", start_time=int(time.time()) + 600)
    assert 2104 in await slurm.refused(Rejected, later)
    await slurm.call(protocol.save_reservation("contract", nodes=slurm.nodes[1:]))
    assert (await slurm.call(requests.get_reservation("contract"))).node_list == slurm.nodes[1]


@scenario
async def only_a_recurring_reservation_may_be_forced_to_start(slurm: Target) -> None:
    start = int(time.time()) - 7200
    assert 2053 in await slurm.refused(
        Rejected, _maintenance(slurm, start=start, flags=("FORCE_START",))
    )
    assert 2054 in await slurm.refused(
        Rejected, _maintenance(slurm, start=start, flags=("FORCE_START", "DAILY"))
    )
    await slurm.call(
        _maintenance(slurm, start=int(time.time()) - 60, flags=("FORCE_START", "DAILY"))
    )


# --- the server


@scenario
async def a_token_of_another_key_is_refused_but_ping_answers(slurm: Target) -> None:
    other = b"a key that no Slurm cluster has ever had"
    assert 1007 in await slurm.refused(AuthenticationError, protocol.get_nodes(), key=other)
    assert 1007 in await slurm.refused(AuthenticationError, protocol.get_jobs(), key=other)
    drain = protocol.update_nodes(slurm.nodes, state=["DRAIN"], reason=WHY)
    assert 1007 in await slurm.refused(AuthenticationError, drain, key=other)
    (ping,) = await slurm.call(protocol.ping(), key=other)
    assert not ping.responding


@scenario
async def a_user_without_the_right_may_read_and_not_write(slurm: Target) -> None:
    assert await slurm.call(protocol.get_nodes(), user="nobody") is not None
    drain = protocol.update_nodes(slurm.nodes, state=["DRAIN"], reason=WHY)
    assert 2010 in await slurm.refused(AuthenticationError, drain, user="nobody")
    assert not is_drain((await slurm.node(slurm.nodes[0])).states)


@scenario
async def the_tokens_of_slurmuser_and_root_act_as_the_named_user_and_no_other_token_does(
    slurm: Target,
) -> None:
    write = protocol.update_nodes(slurm.nodes[:1], comment="contract")
    for user in ("slurm", "root"):
        for named in ("slurm", "root"):
            await slurm.call(write, user=user, named=named)
        # With the rights of the named user, and not with those of the token.
        assert await slurm.call(protocol.get_nodes(), user=user, named="nobody") is not None
        assert 2010 in await slurm.refused(AuthenticationError, write, user=user, named="nobody")
    for named in ("slurm", "root", "mail"):
        reads = protocol.get_nodes()
        assert 1007 in await slurm.refused(AuthenticationError, reads, user="nobody", named=named)
    assert await slurm.call(protocol.get_nodes(), user="nobody", named="nobody") is not None


@scenario
async def no_token_and_no_such_version_are_answered_in_plain_text(slurm: Target) -> None:
    token = {TOKEN_HEADER: sign(slurm.key, "slurm", 60, time.time())}
    asked: tuple[tuple[str, dict[str, str], int], ...] = (
        (slurm.version, {}, 401),
        ("v0.0.1", token, 404),
    )
    for version, headers, wanted in asked:
        status, body = await asyncio.to_thread(
            _plain_get, slurm.url, f"/slurm/{version}/nodes/", headers
        )
        assert status == wanted
        assert not body.startswith(b"{")


def _plain_get(url: str, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=15)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@scenario
async def slurmctld_answers_a_ping_and_counts(slurm: Target) -> None:
    (ping,) = await slurm.call(protocol.ping())
    assert ping.responding
    assert ping.primary
    assert ping.hostname
    asked = int(time.time())
    before = await slurm.call(requests.diag())
    assert asked <= before.request_time <= time.time()


@scenario
async def slurmctld_reports_when_it_started_since_api_version_0_0_45(slurm: Target) -> None:
    if slurm.version == "v0.0.44":
        with pytest.raises(ServerFault) as caught:
            await slurm.call(protocol.slurmctld_start())
        assert caught.value.status == protocol.STATUS_NO_SUCH_ENDPOINT
        return
    started = await slurm.call(protocol.slurmctld_start())
    assert time.time() - 86_400 < started <= time.time() + 1


@scenario
async def slurmctld_reports_what_it_allocates_since_api_version_0_0_45(slurm: Target) -> None:
    if slurm.version == "v0.0.44":
        with pytest.raises(ServerFault) as caught:
            await slurm.call(protocol.select_type_parameters())
        assert caught.value.status == protocol.STATUS_NO_SUCH_ENDPOINT
        return
    words = await slurm.call(protocol.select_type_parameters())
    assert [word for word in words if word.startswith(("CR_CORE", "CR_CPU", "CR_SOCKET"))]


@scenario
async def slurmctld_reads_its_configuration_again_and_keeps_drains(slurm: Target) -> None:
    name = slurm.nodes[0]
    await slurm.write([name], "DRAIN", reason=WHY)
    await slurm.call(protocol.reconfigure())
    node = await slurm.until_node(name, "back", lambda states: "IDLE" in states)
    assert is_drained(node.states)
    assert node.reason == WHY


@scenario
async def a_job_that_names_a_node_is_lost_without_its_record_and_one_that_excludes_it_is_not(
    slurm: Target,
) -> None:
    spare = "contract-named"
    await slurm.call(protocol.create_nodes(f"NodeName={spare} State=CLOUD CPUs=1 RealMemory=1"))
    naming = [
        await slurm.jobs.submit_pending(named=named)
        for named in (spare, f"switchwith{{{spare}}}", f"blockwith{{{spare}}}")
    ]
    excludes = await slurm.jobs.submit_pending(excluded=spare)

    async def states(number: int) -> frozenset[str]:
        return (await slurm.call(requests.get_job(number))).states

    async def excluded() -> str:
        queue = await slurm.call(protocol.get_queue())
        assert queue is not None
        [job] = [job for job in queue.jobs if job.job_id == excludes]
        assert job.pending is not None
        return job.pending.request.excluded_nodes

    for names in naming:
        assert (await slurm.call(requests.get_job(names))).required_names() == [spare]
    assert await excluded() == spare
    await slurm.call(protocol.reconfigure())
    await slurm.until_node(slurm.nodes[0], "back", lambda states: "IDLE" in states)
    for names in naming:
        assert "PENDING" in await states(names)

    # Nothing shows the loss before slurmctld reads its configuration again.
    await slurm.call(protocol.delete_node(spare))
    for names in naming:
        assert "PENDING" in await states(names)
    await slurm.call(protocol.reconfigure())
    await slurm.until_node(slurm.nodes[0], "back", lambda states: "IDLE" in states)
    for names in naming:
        assert await states(names) == {"NODE_FAIL"}
    assert "PENDING" in await states(excludes)
    assert await excluded() == spare


@scenario
async def a_partition_of_all_nodes_has_them(slurm: Target) -> None:
    partitions = await slurm.call(protocol.get_partitions())
    everywhere = [partition for partition in partitions if partition.node_sets == "ALL"]
    assert everywhere
    assert everywhere[0].states == {"UP"}
    assert everywhere[0].total_nodes >= len(slurm.nodes)
    node = await slurm.node(slurm.nodes[0])
    assert everywhere[0].name in node.partitions


# --- slurmdbd


@with_slurmdbd
async def the_token_of_an_administrator_of_slurmdbd_acts_as_no_other_user(slurm: Target) -> None:
    for level in ("Operator", "Administrator"):
        await slurm.call(accounting.update_user("mail", admin_level=level))
        levels = {user.name: user.admin_levels for user in await slurm.call(accounting.get_users())}
        assert levels["mail"] == {level}
        assert await slurm.call(protocol.get_nodes(), user="mail") is not None
        for named in ("slurm", "root", "nobody"):
            reads = protocol.get_nodes()
            assert 1007 in await slurm.refused(AuthenticationError, reads, user="mail", named=named)
    await slurm.call(accounting.delete_user("mail"))


async def _clean(slurm: Target) -> str:
    assert slurm.cluster is not None
    await slurm.call(accounting.delete_user("contract-user"))
    for account in ("contract-sub", "contract"):
        await slurm.call(accounting.delete_account(account))
    await slurm.call(accounting.delete_qos("contract"))
    return slurm.cluster


@with_slurmdbd
async def an_account_comes_with_its_association_and_goes_with_it(slurm: Target) -> None:
    cluster = await _clean(slurm)
    add = accounting.add_accounts(
        ["contract"], clusters=[cluster], description="d", organization="o", shares=3
    )
    assert await slurm.call(add)
    assert not await slurm.call(add)
    (account,) = [a for a in await slurm.call(accounting.get_accounts()) if a.name == "contract"]
    assert (account.description, account.organization) == ("d", "o")
    (association,) = await slurm.call(accounting.get_associations(account="contract"))
    assert (association.cluster, association.user, association.shares) == (cluster, "", 3)
    assert association.parent_account == "root"
    assert association.limits == {}
    await slurm.call(accounting.update_account("contract", description="d2", organization="o2"))
    (account,) = [a for a in await slurm.call(accounting.get_accounts()) if a.name == "contract"]
    assert account.description == "d2"
    assert await slurm.call(accounting.delete_account("contract"))
    assert not await slurm.call(accounting.delete_account("contract"))
    assert await slurm.call(accounting.get_associations(account="contract")) == ()


@with_slurmdbd
async def a_user_gets_into_an_account_and_out_again(slurm: Target) -> None:
    cluster = await _clean(slurm)
    await slurm.call(accounting.add_accounts(["contract"], clusters=[cluster]))
    add = accounting.add_users(
        ["contract-user"], accounts=["contract"], clusters=[cluster], shares=2
    )
    assert await slurm.call(add)
    assert not await slurm.call(add)
    (association,) = await slurm.call(accounting.get_associations(user="contract-user"))
    assert (association.account, association.cluster, association.shares) == (
        "contract",
        cluster,
        2,
    )
    assert association.is_default
    await slurm.call(
        accounting.update_association(
            association, shares=7, limits=Limits({"MaxJobs": 5}), qos=["normal"]
        )
    )
    (association,) = await slurm.call(
        accounting.get_associations(user="contract-user", cluster=cluster)
    )
    assert (association.shares, association.limits, association.qos) == (
        7,
        {"MaxJobs": 5},
        ("normal",),
    )
    await slurm.call(accounting.update_user("contract-user", admin_level="Operator"))
    levels = {user.name: user.admin_levels for user in await slurm.call(accounting.get_users())}
    assert levels["contract-user"] == {"Operator"}
    assert await slurm.call(accounting.delete_association("contract", cluster, "contract-user"))
    assert not await slurm.call(accounting.delete_association("contract", cluster, "contract-user"))
    assert await slurm.call(accounting.delete_user("contract-user"))
    assert not await slurm.call(accounting.delete_user("contract-user"))
    await _clean(slurm)


@with_slurmdbd
async def a_qos_is_made_changed_and_deleted(slurm: Target) -> None:
    await _clean(slurm)
    await slurm.call(accounting.save_qos(Qos("contract"), description="d", priority=10))
    await slurm.call(
        accounting.save_qos(
            Qos("contract"), priority=12, flags=["DENY_LIMIT"], preempt_mode="REQUEUE"
        )
    )
    (qos,) = [qos for qos in await slurm.call(accounting.get_qos()) if qos.name == "contract"]
    assert (qos.description, qos.priority, qos.flags) == ("d", 12, frozenset({"DENY_LIMIT"}))
    limits = {"GrpJobs": 3, "MaxWall": 60}
    save = accounting.save_qos(
        qos, preempt=["normal"], limits=Limits(limits, {"GrpTRES": {"cpu": 4, "mem": 9}})
    )
    await slurm.call(save)
    (qos,) = [qos for qos in await slurm.call(accounting.get_qos()) if qos.name == "contract"]
    assert (qos.flags, qos.preempt) == (frozenset({"DENY_LIMIT"}), frozenset({"normal"}))
    assert qos.preempt_mode == "REQUEUE"
    assert (qos.limits, qos.tres) == (limits, {"GrpTRES": {"cpu": 4, "mem": 9}})
    await slurm.call(
        accounting.save_qos(qos, limits=Limits({"GrpJobs": -1}, {"GrpTRES": {"mem": -1}}))
    )
    (qos,) = [qos for qos in await slurm.call(accounting.get_qos()) if qos.name == "contract"]
    assert (qos.limits, qos.tres) == ({"MaxWall": 60}, {"GrpTRES": {"cpu": 4}})
    assert await slurm.call(accounting.delete_qos("contract"))
    assert not await slurm.call(accounting.delete_qos("contract"))


@with_slurmdbd
async def every_limit_is_read_where_it_is_written(slurm: Target) -> None:
    cluster = await _clean(slurm)
    await slurm.call(accounting.add_accounts(["contract"], clusters=[cluster]))
    (association,) = await slurm.call(accounting.get_associations(account="contract"))
    limits = {name: number for number, name in enumerate(limits_of.ASSOCIATION_LIMITS, 10)}
    tres = {name: {"cpu": number} for number, name in enumerate(limits_of.ASSOCIATION_TRES, 30)}
    await slurm.call(accounting.update_association(association, limits=Limits(limits, tres)))
    (association,) = await slurm.call(accounting.get_associations(account="contract"))
    assert (association.limits, association.tres) == (limits, tres)
    # A change of something else repeats the TRES, which Slurm would otherwise remove.
    await slurm.call(
        accounting.update_association(
            association, shares=9, limits=Limits(tres={"GrpTRES": {"cpu": -1}})
        )
    )
    (association,) = await slurm.call(accounting.get_associations(account="contract"))
    assert association.tres == {name: counts for name, counts in tres.items() if name != "GrpTRES"}
    limits = {name: number for number, name in enumerate(limits_of.QOS_LIMITS, 10)}
    tres = {name: {"cpu": number} for number, name in enumerate(limits_of.QOS_TRES, 30)}
    await slurm.call(accounting.save_qos(Qos("contract"), limits=Limits(limits, tres)))
    (qos,) = [qos for qos in await slurm.call(accounting.get_qos()) if qos.name == "contract"]
    assert (qos.limits, qos.tres) == (limits, tres)
    counted = await slurm.call(accounting.get_tres())
    assert counted >= {"cpu", "mem", "node", "fs/disk"}
    await _clean(slurm)


@with_slurmdbd
async def a_child_has_its_parents_limits_and_qos_until_it_has_its_own(slurm: Target) -> None:
    cluster = await _clean(slurm)
    await slurm.call(accounting.save_qos(Qos("contract")))
    await slurm.call(accounting.add_accounts(["contract"], clusters=[cluster]))
    await slurm.call(
        accounting.add_users(["contract-user"], accounts=["contract"], clusters=[cluster])
    )
    (parent,) = [
        a for a in await slurm.call(accounting.get_associations(account="contract")) if not a.user
    ]
    limits, tres = (
        {"MaxJobs": 4, "GrpJobs": 5},
        {"MaxTRES": {"cpu": 6, "mem": 7}, "GrpTRES": {"cpu": 8}},
    )
    change = accounting.update_association(
        parent, limits=Limits(limits, tres), qos=["contract"], default_qos="contract"
    )
    await slurm.call(change)
    (child,) = await slurm.call(accounting.get_associations(user="contract-user"))
    assert (child.limits, child.tres) == ({"MaxJobs": 4}, {"MaxTRES": {"cpu": 6, "mem": 7}})
    assert (child.qos, child.default_qos) == (("contract",), "contract")
    own = accounting.update_association(
        child, inherited=tres, limits=Limits({"MaxJobs": 2}, {"MaxTRES": {"cpu": 3}})
    )
    await slurm.call(own)
    (child,) = await slurm.call(accounting.get_associations(user="contract-user"))
    assert (child.limits, child.tres) == ({"MaxJobs": 2}, {"MaxTRES": {"cpu": 3, "mem": 7}})
    refused = accounting.update_association(child, default_qos="normal")
    assert 7011 in await slurm.refused(Rejected, refused)
    await _clean(slurm)


@with_slurmdbd
async def an_account_moves_but_never_below_itself(slurm: Target) -> None:
    cluster = await _clean(slurm)
    await slurm.call(accounting.add_accounts(["contract"], clusters=[cluster]))
    await slurm.call(accounting.add_accounts(["contract-sub"], clusters=[cluster]))

    async def parents() -> list[str]:
        found = {
            a.account: a.parent_account
            for a in await slurm.call(accounting.get_associations())
            if not a.user
        }
        return [found["contract"], found["contract-sub"]]

    (top,) = await slurm.call(accounting.get_associations(account="contract"))
    (sub,) = await slurm.call(accounting.get_associations(account="contract-sub"))
    await slurm.call(accounting.update_association(sub, parent="contract"))
    assert await parents() == ["root", "contract"]
    # Both are answered as if they were done.
    await slurm.call(accounting.update_association(top, parent="contract-sub"))
    await slurm.call(accounting.update_association(top, parent="contract-none"))
    assert await parents() == ["root", "contract"]
    await _clean(slurm)


@with_slurmdbd
async def a_user_keeps_the_default_account_until_another_one_is(slurm: Target) -> None:
    cluster = await _clean(slurm)
    for name in ("contract", "contract-sub"):
        await slurm.call(accounting.add_accounts([name], clusters=[cluster]))
        await slurm.call(
            accounting.add_users(["contract-user"], accounts=[name], clusters=[cluster])
        )
    first = accounting.delete_association("contract", cluster, "contract-user")
    assert 7009 in await slurm.refused(Rejected, first)
    (other,) = await slurm.call(
        accounting.get_associations(user="contract-user", account="contract-sub")
    )
    await slurm.call(accounting.update_association(other, is_default=True))
    assert await slurm.call(first)
    (other,) = await slurm.call(accounting.get_associations(user="contract-user"))
    assert (other.account, other.is_default) == ("contract-sub", True)
    await _clean(slurm)


@with_slurmdbd
async def what_isnt_there_cant_be_referred_to(slurm: Target) -> None:
    cluster = await _clean(slurm)
    parent = accounting.add_accounts(["contract"], clusters=[cluster], parent="contract-none")
    assert 2046 in await slurm.refused(Rejected, parent)
    elsewhere = accounting.add_accounts(["contract"], clusters=["contract-none"])
    assert 7104 in await slurm.refused(Rejected, elsewhere)
    nowhere = accounting.add_users(
        ["contract-user"], accounts=["contract-none"], clusters=[cluster]
    )
    assert not await slurm.call(nowhere)
    await slurm.call(accounting.add_accounts(["contract"], clusters=[cluster]))
    (association,) = await slurm.call(accounting.get_associations(account="contract"))
    qos = accounting.update_association(association, qos=["contract-none"])
    assert 2066 in await slurm.refused(Rejected, qos)
    await _clean(slurm)


@with_slurmdbd
async def a_user_without_the_right_cant_write_to_slurmdbd(slurm: Target) -> None:
    cluster = await _clean(slurm)
    add = accounting.add_accounts(["contract"], clusters=[cluster])
    assert 2002 in await slurm.refused(AuthenticationError, add, user="nobody")
