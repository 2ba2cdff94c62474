"""A real slurmctld has the reservations that are declared, and what it shows of them is what was
declared.

It counts the licenses of the values, too. slurmctld and slurmrestd run alone, outside of the
Kubernetes cluster.
"""

import json
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import msgspec
import pytest
import yaml

from sidecars.operator.accounts.core.declared import Declared
from sidecars.operator.accounts.core.live import Live
from sidecars.operator.accounts.core.plan import Plan, plan
from sidecars.operator.accounts.core.reservations import faults
from sidecars.slurm import protocol
from sidecars.slurm.errors import Rejected
from sidecars.slurm.external import ExternalRequest
from tests.charts.examples import examples
from tests.cluster.commands import run
from tests.cluster.tools import tool
from tests.contract.target import Target
from tests.support.real import ports
from tests.support.real.external_slurm import running, target
from tests.support.real.harness import CHARTS, REPOSITORY

NODES = ("n1", "n2", "n3")


def licenses() -> str:
    """The line of slurm.conf that the chart renders of the values in docs/accounting.md."""
    page = (REPOSITORY / "docs" / "accounting.md").read_text(encoding="utf-8")
    [values] = [
        it
        for example in examples("accounting.md", page)
        for it in example.documents
        if "Licenses" in str(it)
    ]
    only = "--show-only=templates/controller/controller.yaml"
    output = run(
        [tool("helm"), "template", CHARTS / "slurm", "--values=-", only], stdin=json.dumps(values)
    )
    objects = yaml.safe_load_all(output)
    [controller] = [it for it in objects if it and it["kind"] == "Controller"]
    [line] = [
        it for it in controller["spec"]["extraConf"].splitlines() if it.startswith("Licenses=")
    ]
    return str(line)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """slurmctld with the partitions `all` and `other`, and slurmrestd."""
    lines = f"PartitionName=other Nodes=ALL\n{licenses()}\n"
    with running(tmp_path_factory.mktemp("reservations"), ports.RESERVATIONS, lines) as daemons:
        yield target(daemons)


@pytest.fixture
async def slurm(started: Target) -> AsyncIterator[Target]:
    """With three nodes and no reservation."""
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
    fixed = {
        "startTime": at(3600),
        "minutes": 60,
        "nodes": ["n[1-2]"],
        "users": ["mail"],
        "flags": ["MAINT"],
    }
    floating = {
        "startTime": at(-7200),
        "partition": "all",
        "nodeCount": 1,
        "users": ["mail"],
        "flags": ["IGNORE_JOBS"],
    }
    daily = {
        "startTime": at(-3 * 86400 - 600),
        "minutes": 5,
        "nodes": ["n1"],
        "users": ["mail"],
        "flags": ["DAILY"],
    }
    wanted = declared(fixed=fixed, floating=floating, daily=daily)
    assert texts(await step(slurm, wanted)) == [
        f"add reservation {name}" for name in ("daily", "fixed", "floating")
    ]
    assert texts(await step(slurm, wanted)) == []

    wanted = declared(
        fixed=fixed | {"nodes": ["n1"], "users": ["slurm"], "minutes": 30}, floating=floating
    )
    found = await step(slurm, wanted, "reservation/daily")
    assert texts(found) == [
        "change reservation fixed: nodes=n1 users=slurm minutes=30",
        "delete reservation daily",
    ]
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
    whole = {
        "startTime": at(3600),
        "nodes": ["n1"],
        "partition": "all",
        "users": ["mail"],
        "minutes": 60,
    }
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


async def test_reservations_of_others_stay_and_a_change_of_a_declared_one_is_set_back(
    slurm: Target,
) -> None:
    soon = int(time.time()) + 3600
    own = protocol.save_reservation(
        "theirs", start_time=soon, minutes=10, nodes=["n3"], users=["mail"]
    )
    await slurm.call(own)
    wanted = declared(
        mine={"startTime": at(3600), "minutes": 60, "nodes": ["n1"], "users": ["mail"]}
    )
    await step(slurm, wanted)
    await slurm.call(protocol.save_reservation("mine", users=["slurm"]))
    assert texts(await step(slurm, wanted, "reservation/mine")) == [
        "change reservation mine: users=mail"
    ]
    assert texts(await step(slurm, declared(), "reservation/mine")) == ["delete reservation mine"]
    assert [it.name for it in await slurm.call(protocol.get_reservations())] == ["theirs"]


async def test_a_reservation_that_is_over_is_not_created_again_and_reported(slurm: Target) -> None:
    found = await step(
        slurm,
        declared(old={"startTime": at(-7200), "minutes": 60, "nodes": ["n1"], "users": ["mail"]}),
    )
    assert texts(found) == []
    assert found.left == ("reservation old is over; remove it, or set a later startTime",)


async def test_a_job_waits_for_licenses_that_others_use_and_is_refused_if_there_never_are_so_many(
    slurm: Target,
) -> None:
    async def job(count: int) -> int:
        request = ExternalRequest(
            "solver", "all", "licenses", licenses=f"matlab:{count}", minutes=5
        )
        number = await slurm.call(protocol.submit_external(request), user="mail")
        await slurm.call(protocol.start_external(number, "licenses"))
        return number

    async def until_state(number: int, state: str, reason: str | None = None) -> None:
        async def look() -> bool:
            found = await slurm.call(protocol.get_external_job(number))
            return state in found.states and reason in (None, found.reason)

        await slurm.until(f"the job to be {state} ({reason})", look)

    uses = await job(10)
    await until_state(uses, "RUNNING")
    waits = await job(1)
    await until_state(waits, "PENDING", "Licenses")
    with pytest.raises(Rejected, match="license"):
        await job(11)
    await slurm.call(protocol.cancel_job(uses))
    await until_state(waits, "RUNNING")
    await slurm.call(protocol.cancel_job(waits))
