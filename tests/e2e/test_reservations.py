"""A real slurmctld has the reservations that are declared, and what it shows of them is what was declared.

slurmctld and slurmrestd run alone, outside of the Kubernetes cluster.
"""

import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import msgspec
import pytest

from sidecars.policy.accounts.declared import Declared
from sidecars.policy.accounts.live import Live
from sidecars.policy.accounts.plan import Plan, plan
from sidecars.policy.accounts.reservations import faults
from sidecars.slurm import protocol
from tests.contract.target import Target
from tests.e2e.test_external_jobs import answers, daemons
from tests.support.real import ports

NODES = ("n1", "n2", "n3")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """slurmctld with the partitions `all` and `other`, and slurmrestd."""
    lines = "PartitionName=other Nodes=ALL\n"
    with daemons(tmp_path_factory.mktemp("reservations"), ports.RESERVATIONS, lines) as target:
        yield target


@pytest.fixture
async def slurm(started: Target) -> AsyncIterator[Target]:
    """With three nodes and no reservation."""
    await answers(started)
    found = await started.call(protocol.get_nodes())
    if found is None or not found.nodes:
        size = "CPUs=8 RealMemory=16000 State=External"
        for name in NODES:
            await started.call(protocol.create_nodes(f"NodeName={name} NodeAddr=127.0.0.1 {size}"))
    yield started
    for reservation in await started.call(protocol.get_reservations()):
        await started.call(protocol.delete_reservation(reservation.name))


async def step(slurm: Target, wanted: Declared, *created: str) -> Plan:
    """Plan once, and apply that."""
    records = {it.name: it for it in await slurm.call(protocol.get_reservations())}
    live = Live("slurm", {}, {}, {}, (), frozenset(), records, time.time())
    assert list(faults(wanted, live)) == []
    found = plan(wanted, live, created)
    for change in found.changes:
        await slurm.call(change.request)
    return found


def texts(found: Plan) -> list[str]:
    return [change.text for change in found.changes]


def declared(**reservations: object) -> Declared:
    return msgspec.convert({"reservations": reservations, "prune": True}, Declared)


def at(seconds: int) -> datetime:
    """A time from now."""
    return datetime.fromtimestamp(int(time.time()) + seconds, UTC)


async def test_reservations_are_created_kept_changed_and_deleted_as_declared(slurm: Target) -> None:
    fixed = {"startTime": at(3600), "minutes": 60, "nodes": ["n[1-2]"], "users": ["mail"], "flags": ["MAINT"]}
    floating = {"startTime": at(-7200), "partition": "all", "nodeCount": 1, "users": ["mail"], "flags": ["IGNORE_JOBS"]}
    daily = {"startTime": at(-3 * 86400 - 600), "minutes": 5, "nodes": ["n1"], "users": ["mail"], "flags": ["DAILY"]}
    wanted = declared(fixed=fixed, floating=floating, daily=daily)
    assert texts(await step(slurm, wanted)) == [f"add reservation {name}" for name in ("daily", "fixed", "floating")]
    assert texts(await step(slurm, wanted)) == []

    wanted = declared(fixed=fixed | {"nodes": ["n1"], "users": ["slurm"], "minutes": 30}, floating=floating)
    found = await step(slurm, wanted, "reservation/daily")
    assert texts(found) == ["change reservation fixed: nodes=n1 users=slurm minutes=30", "delete reservation daily"]
    assert texts(await step(slurm, wanted)) == []


@pytest.mark.parametrize(
    ("field", "former", "now"),
    [
        ("startTime", 3600, 7200),
        ("minutes", 60, 30),
        ("minutes", 60, None),
        ("minutes", None, 60),
        ("nodes", ["n1"], ["n[2-3]"]),
        ("partition", "all", "other"),
        ("partition", None, "other"),
        ("users", ["mail"], ["slurm"]),
        ("flags", [], ["MAINT"]),
    ],
)
async def test_each_field_can_be_declared_otherwise_before_the_start(
    slurm: Target, field: str, former: object, now: object
) -> None:
    whole = {"startTime": at(3600), "nodes": ["n1"], "partition": "all", "users": ["mail"], "minutes": 60}
    if field == "startTime":
        former, now = at(3600), at(7200)
    await step(slurm, declared(one=whole | {field: former}))
    wanted = declared(one=whole | {field: now})
    [text] = texts(await step(slurm, wanted))
    assert text.startswith(f"change reservation one: {field}=")
    assert texts(await step(slurm, wanted)) == []


async def test_the_start_of_one_without_an_end_can_be_declared_otherwise(slurm: Target) -> None:
    whole = {"nodes": ["n1"], "users": ["mail"]}
    await step(slurm, declared(one=whole | {"startTime": at(3600)}))
    wanted = declared(one=whole | {"startTime": at(7200)})
    [text] = texts(await step(slurm, wanted))
    assert text.startswith("change reservation one: startTime=")
    assert texts(await step(slurm, wanted)) == []


async def test_slurm_chooses_nodes_only_once_so_a_number_of_them_in_another_partition_is_reported(
    slurm: Target,
) -> None:
    whole = {"startTime": at(3600), "minutes": 60, "nodeCount": 2, "users": ["mail"]}
    await step(slurm, declared(one=whole | {"partition": "all"}))
    wanted = declared(one=whole | {"partition": "other"})
    found = await step(slurm, wanted)
    assert texts(found) == []
    [words] = found.left
    assert words.startswith("reservation one isn't in the partition other")

    await slurm.call(protocol.delete_reservation("one"))
    assert texts(await step(slurm, wanted)) == ["add reservation one"]
    found = await step(slurm, wanted)
    assert (found.changes, found.left) == ((), ())


async def test_other_times_of_a_reservation_that_has_begun_are_reported(slurm: Target) -> None:
    whole = {"startTime": at(-1), "nodes": ["n1"], "users": ["mail"]}
    wanted = declared(one=whole | {"minutes": 60})
    await step(slurm, wanted)
    assert (await step(slurm, wanted)).left == ()
    for times in ({"minutes": 30}, {"minutes": 60, "startTime": at(7200)}):
        found = await step(slurm, declared(one=whole | times))
        assert texts(found) == []
        [words] = found.left
        assert words.startswith("reservation one has begun")


async def test_reservations_of_others_stay_and_a_change_of_a_declared_one_is_set_back(slurm: Target) -> None:
    soon = int(time.time()) + 3600
    own = protocol.save_reservation("theirs", start_time=soon, minutes=10, nodes=["n3"], users=["mail"])
    await slurm.call(own)
    wanted = declared(mine={"startTime": at(3600), "minutes": 60, "nodes": ["n1"], "users": ["mail"]})
    await step(slurm, wanted)
    await slurm.call(protocol.save_reservation("mine", users=["slurm"]))
    assert texts(await step(slurm, wanted, "reservation/mine")) == ["change reservation mine: users=mail"]
    assert texts(await step(slurm, declared(), "reservation/mine")) == ["delete reservation mine"]
    assert [it.name for it in await slurm.call(protocol.get_reservations())] == ["theirs"]


async def test_a_reservation_that_is_over_is_not_created_again_and_reported(slurm: Target) -> None:
    found = await step(slurm, declared(old={"startTime": at(-7200), "minutes": 60, "nodes": ["n1"], "users": ["mail"]}))
    assert texts(found) == []
    assert found.left == ("reservation old is over; remove it, or set a later startTime",)
