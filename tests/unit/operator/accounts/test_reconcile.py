"""One pass over what a Controller declares for slurmdbd."""

import json
from typing import Any

import pytest

from sidecars.operator.accounts.reconcile import (
    EVERY,
    FIRST_USERS_SECONDS,
    USERS_SECONDS,
    Memories,
    reconcile,
)
from sidecars.operator.controller.reconcile import reconcile as reconcile_controller
from sidecars.simulate.accounting import Accounting
from sidecars.simulate.records import SimAssociation
from sidecars.slurm.errors import SlurmError, Unreachable
from sidecars.slurm.protocol import Request
from sidecars.workloads.facts import digest
from tests.support.operator_parts import CONTROLLER, Parts, SlurmConnection
from tests.support.slurmdbd import by_hand, live
from tests.unit.operator.accounts.core.test_plan import declared as plain

pytestmark = pytest.mark.looptime
NAME = "slurm-declared-accounts"


class Setting:
    """An operator whose Controller declares accounts, and its simulated Slurm."""

    def __init__(self) -> None:
        self.connection = SlurmConnection()
        self.parts = Parts(connect=lambda url, tokens: self.connection)
        self.memories: Memories = {}
        self.conditions: list[tuple[str, str]] = []

    @property
    def slurmdbd(self) -> Accounting:
        """The simulated one."""
        found = self.connection.model.accounting
        assert found is not None
        return found

    async def connected(self, **declared: Any) -> "Setting":
        """Connected to Slurm, with this declaration."""
        self.declare(**declared)
        self.parts.controller()
        await self.parts.connect()
        self.controller()
        return self

    def controller(self) -> None:
        """Store the Controller as the watch shows it."""
        self.parts.controller(clusterName="slurm", declaredAccountsRef={"name": NAME})

    def declare(self, text: str | None = None, **declared: Any) -> None:
        """Put the ConfigMap there."""
        self.parts.config_map(
            NAME, {"declared.json": json.dumps(declared) if text is None else text}
        )

    async def run(self) -> float | None:
        """One pass, and what it wrote reaches the caches."""
        again = await reconcile(self.parts.runtime, self.memories, CONTROLLER)
        self.follow_applied()
        return again

    def follow_applied(self) -> None:
        """Show the ConfigMaps as they were applied."""
        for number, body in enumerate(self.parts.requests.of("apply", "ConfigMap"), 1000):
            metadata = {**body["metadata"], "uid": "u", "resourceVersion": str(number)}
            self.parts.runtime.caches.own_config_maps.store.put({**body, "metadata": metadata})

    @property
    def condition(self) -> tuple[str, str, str]:
        """Status, reason and message."""
        found = self.parts.runtime.accounts[CONTROLLER]
        return found.status, str(found.reason.value), found.message

    def writes(self) -> int:
        """The number of changes that reached slurmrestd."""
        return sum(not it.startswith("GET") and "slurmdb" in it for it in self.connection.sent)

    def events(self) -> list[str]:
        """The reasons of the Events."""
        return [body["reason"] for body in self.parts.requests.of("create", "Event")]


WANTED: dict[str, Any] = {
    "accounts": {"physics": {"fairshare": 3}},
    "users": {"alice": {"accounts": ["physics"]}},
}


async def test_a_declaration_is_applied_and_a_settled_one_writes_nothing() -> None:
    setting = await Setting().connected(**WANTED)
    assert await setting.run() == EVERY
    assert setting.condition == ("True", "Applied", "1 accounts, 1 users, 0 QOS")
    found = live(setting.slurmdbd)
    assert (found.here["physics", ""].shares, found.here["physics", "alice"].is_default) == (
        3,
        True,
    )
    writes, applied = setting.writes(), len(setting.parts.requests.of("apply", "ConfigMap"))
    assert await setting.run() == EVERY
    assert (setting.writes(), len(setting.parts.requests.of("apply", "ConfigMap"))) == (
        writes,
        applied,
    )


async def test_the_controllers_pass_writes_the_condition() -> None:
    setting = await Setting().connected(**WANTED)
    await setting.run()
    assert (await setting.parts.woken())["controllers"] == {CONTROLLER}
    await reconcile_controller(
        setting.parts.runtime, setting.parts.operator.controllers, CONTROLLER
    )
    assert setting.parts.condition("Controller", "AccountsApplied")["reason"] == "Applied"


async def test_a_changed_config_map_wakes_the_pass_and_no_pod_restarts_for_it() -> None:
    setting = await Setting().connected(**WANTED)
    await setting.run()
    await setting.parts.woken()
    setting.declare(accounts={"physics": {"fairshare": 4}})
    assert CONTROLLER in (await setting.parts.woken())["declared_accounts"]
    await setting.run()
    assert live(setting.slurmdbd).here["physics", ""].shares == 4


async def test_drift_of_a_declared_field_is_set_back_and_reported_and_nothing_else_is() -> None:
    setting = await Setting().connected(**WANTED)
    await setting.run()
    by_hand(
        setting.slurmdbd,
        plain(
            accounts={
                "physics": {"fairshare": 9, "limits": {"MaxJobs": 2}},
                "theirs": {"fairshare": 7},
            }
        ),
    )
    await setting.run()
    found = live(setting.slurmdbd)
    assert (found.here["physics", ""].shares, found.here["physics", ""].limits) == (
        3,
        {"MaxJobs": 2},
    )
    assert found.here["theirs", ""].shares == 7
    await setting.parts.woken()
    assert setting.events() == ["AccountsChanged", "AccountsDrift"]


async def test_accounts_of_other_clusters_and_of_partitions_are_neither_ours_nor_changed() -> None:
    setting = await Setting().connected(accounts={"physics": {}})
    await setting.run()
    slurmdbd = setting.slurmdbd
    slurmdbd.add_cluster("other")
    slurmdbd.users["alice"] = "None"
    slurmdbd.associations += [
        SimAssociation("physics", "other", parent="root", shares=40, limits={"GrpJobs": 4}),
        SimAssociation(
            "physics", "other", "alice", is_default=True, shares=50, limits={"MaxJobs": 5}
        ),
        SimAssociation(
            "physics", "slurm", "alice", shares=60, limits={"MaxJobs": 6}, partition="gpu"
        ),
    ]
    theirs = [it for it in slurmdbd.associations if it.cluster == "other" or it.partition]
    before = repr(theirs)
    alice = {"accounts": ["physics"], "fairshare": 7, "limits": {"MaxJobs": 2}}
    setting.declare(accounts={"physics": {"fairshare": 3}}, users={"alice": alice})
    await setting.run()
    assert setting.condition == ("True", "Applied", "1 accounts, 1 users, 0 QOS")
    here = live(slurmdbd).here
    assert (here["physics", ""].shares, here["physics", ""].limits) == (3, {})
    assert (here["physics", "alice"].shares, here["physics", "alice"].limits) == (7, {"MaxJobs": 2})
    writes = setting.writes()
    await setting.run()
    assert setting.writes() == writes
    assert repr(theirs) == before
    assert all(any(it is other for other in slurmdbd.associations) for it in theirs)


async def test_a_dry_run_lists_the_changes_and_sends_none() -> None:
    setting = await Setting().connected(**WANTED, dryRun=True)
    await setting.run()
    assert setting.writes() == 0
    assert setting.condition == (
        "False",
        "Planned",
        (
            "create account physics below root; account physics: fairshare=3; add user alice to "
            "account physics"
        ),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"accounts": {"a": {"parent": "x"}}}', "accounts.a.parent: no account `x` exists"),
        ('{"accounts": {"a": {"fairshare": "3"}}}', "$.accounts[...].fairshare"),
        ('{"acounts": {}}', "unknown field `acounts`"),
        ("accounts:", "declared.json"),
    ],
)
async def test_with_a_fault_nothing_is_applied_and_the_message_names_the_place(
    text: str, message: str
) -> None:
    setting = await Setting().connected()
    setting.declare(text)
    await setting.run()
    status, reason, found = setting.condition
    assert (status, reason) == ("False", "Invalid")
    assert message in found
    assert setting.writes() == 0


async def test_a_missing_config_map_is_named() -> None:
    setting = Setting()
    setting.parts.controller()
    await setting.parts.connect()
    setting.controller()
    await setting.run()
    status, reason, message = setting.condition
    assert (status, reason) == ("False", "ReferenceMissing")
    assert NAME in message


async def test_without_a_rest_api_the_condition_reports_it() -> None:
    setting = Setting()
    setting.declare(**WANTED)
    setting.controller()
    await setting.run()
    assert setting.condition[:2] == ("Unknown", "NoRestApi")


async def test_while_slurmdbd_is_down_nothing_changes_and_the_queue_tries_again() -> None:
    setting = await Setting().connected(**WANTED)
    setting.slurmdbd.up = False
    with pytest.raises(SlurmError):
        await setting.run()
    assert setting.condition[:2] == ("Unknown", "NoAnswer")
    setting.slurmdbd.up = True
    await setting.run()
    assert setting.condition[:2] == ("True", "Applied")


@pytest.mark.parametrize("after", range(1, 5))
async def test_an_operator_that_ends_between_two_changes_still_knows_what_it_created(
    after: int,
) -> None:
    setting = await Setting().connected(**WANTED)
    carry, left = setting.connection.call, after

    async def failing(request: Request[Any], *, timeout: float | None = None) -> Any:
        nonlocal left
        if request.method != "GET":
            left -= 1
            if left < 0:
                setting.slurmdbd.up = False
        return await carry(request, timeout=timeout)

    setting.connection.call = failing  # type: ignore[method-assign]
    if after < 3:
        with pytest.raises(SlurmError):
            await setting.run()
    else:
        await setting.run()
    setting.follow_applied()
    # Another operator, which knows only what is stored.
    setting.connection.call = carry  # type: ignore[method-assign]
    setting.slurmdbd.up = True
    setting.memories.clear()
    setting.declare(prune=True)
    await setting.run()
    assert setting.condition == ("True", "Applied", "0 accounts, 0 users, 0 QOS")
    found = live(setting.slurmdbd)
    assert (set(found.accounts), set(found.users)) == ({"root"}, {"root"})


async def test_what_existed_before_is_never_deleted() -> None:
    setting = await Setting().connected(**WANTED)
    by_hand(setting.slurmdbd, plain(**WANTED))
    await setting.run()
    setting.declare(prune=True)
    await setting.run()
    assert ("physics", "alice") in live(setting.slurmdbd).here


async def test_a_deletion_that_jobs_forbid_is_reported_and_tried_again() -> None:
    setting = await Setting().connected(**WANTED)
    await setting.run()
    setting.slurmdbd.with_jobs.add(("physics", "alice"))
    setting.declare(prune=True)
    assert await setting.run() == EVERY
    status, reason, message = setting.condition
    assert (status, reason) == ("False", "Refused")
    assert "delete user alice" in message
    assert "7001" in message
    await setting.run()
    await setting.parts.woken()
    assert setting.events() == ["AccountsChanged", "AccountsChanged"]
    setting.slurmdbd.with_jobs.clear()
    await setting.run()
    assert set(live(setting.slurmdbd).users) == {"root"}


async def test_accounts_wait_for_the_first_users_of_a_secret_but_not_for_ever() -> None:
    setting = await Setting().connected(**WANTED)
    parts, users = setting.parts, {"name": "site-users", "key": "users.yaml"}
    parts.controller(clusterName="slurm", declaredAccountsRef={"name": NAME}, usersRef=users)
    parts.secret("site-users", {})
    assert await setting.run() == USERS_SECONDS
    parts.now += FIRST_USERS_SECONDS - 1
    assert await setting.run() == USERS_SECONDS
    assert setting.writes() == 0
    parts.now += 1
    assert await setting.run() == EVERY
    assert set(live(setting.slurmdbd).users) == {"root", "alice"}


async def test_accounts_follow_the_first_users_as_soon_as_pods_have_them() -> None:
    setting = await Setting().connected(**WANTED)
    parts, users, text = (
        setting.parts,
        {"name": "site-users", "key": "users.yaml"},
        b"users: {alice: {uid: 10001}}",
    )
    parts.controller(clusterName="slurm", declaredAccountsRef={"name": NAME}, usersRef=users)
    parts.secret("site-users", {})
    assert await setting.run() == USERS_SECONDS
    parts.secret("site-users", {"users.yaml": text})
    parts.runtime.users_settle[CONTROLLER] = digest(text), parts.now + 6.0
    assert await setting.run() == 6.0
    parts.now += 6.0
    assert await setting.run() == EVERY
    assert set(live(setting.slurmdbd).users) == {"root", "alice"}


def reconfigures(setting: Setting) -> int:
    return sum("reconfigure" in it for it in setting.connection.sent)


def passwd(setting: Setting, *names: str) -> None:
    """Have the pods have these users."""
    text = "".join(f"{name}:*:10001:10001::/home/{name}:/bin/bash\n" for name in names)
    setting.parts.config_map("slurm-users", {"passwd": text}, own=True)


async def test_slurmctld_looks_up_users_that_come_after_their_accounts_once() -> None:
    setting = await Setting().connected(**WANTED)
    await setting.run()
    passwd(setting, "bob")
    await setting.run()
    assert reconfigures(setting) == 0
    passwd(setting, "alice", "bob")
    await setting.run()
    assert reconfigures(setting) == 1
    await setting.run()
    passwd(setting, "bob")
    await setting.run()
    assert reconfigures(setting) == 1


async def test_slurmctld_is_not_reconfigured_for_users_that_are_older_than_their_accounts() -> None:
    setting = await Setting().connected(accounts={"physics": {}})
    await setting.run()
    passwd(setting, "alice")
    setting.declare(**WANTED)
    for _ in range(2):
        await setting.run()
    assert set(live(setting.slurmdbd).users) == {"root", "alice"}
    another: Memories = {}
    await reconcile(setting.parts.runtime, another, CONTROLLER)
    assert reconfigures(setting) == 0


async def test_accounts_are_applied_also_when_slurmctld_does_not_answer_the_reconfigure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    setting = await Setting().connected(**WANTED)
    await setting.run()
    call = setting.connection.call

    async def unanswered(request: Request[Any], *, timeout: float | None = None) -> Any:
        if "reconfigure" in str(request):
            raise Unreachable(str(request), "no answer")
        return await call(request, timeout=timeout)

    monkeypatch.setattr(setting.connection, "call", unanswered)
    passwd(setting, "alice")
    setting.declare(**(WANTED | {"accounts": {"physics": {"fairshare": 4}}}))
    assert await setting.run() == EVERY
    assert live(setting.slurmdbd).here["physics", ""].shares == 4
    assert "no answer to the reconfigure" in caplog.text


async def test_a_controller_that_declares_nothing_has_no_condition_and_nothing_is_asked() -> None:
    setting = await Setting().connected(**WANTED)
    await setting.run()
    setting.parts.controller(clusterName="slurm")
    asked = len(setting.connection.sent)
    assert await setting.run() is None
    assert CONTROLLER not in setting.parts.runtime.accounts
    assert len(setting.connection.sent) == asked


async def test_only_a_controller_that_declares_something_is_woken() -> None:
    setting = await Setting().connected(**WANTED)
    await setting.parts.woken()
    setting.declare(**WANTED, prune=True)
    assert (await setting.parts.woken())["declared_accounts"] == {CONTROLLER}
    setting.parts.controller(clusterName="slurm")
    await setting.parts.woken()
    setting.declare(**WANTED)
    assert "declared_accounts" not in await setting.parts.woken()


async def test_a_controller_that_begins_or_ceases_to_declare_something_is_woken() -> None:
    parts = Parts()
    spec = {"slurmctld": {}, "declaredAccountsRef": {"name": NAME}}
    for generation, declares in enumerate([False, True, False, False]):
        parts.custom(
            "Controller", "slurm", spec if declares else {"slurmctld": {}}, generation=generation
        )
        assert ("declared_accounts" in await parts.woken()) == (generation in {1, 2})


async def test_a_declared_reservation_is_created_and_deleted_once_removed_with_prune_set() -> None:
    course = {
        "startTime": "2100-01-01T00:00:00Z",
        "minutes": 60,
        "nodes": ["slinky-0"],
        "users": ["slurm"],
    }
    setting = Setting()
    setting.connection.model.node_register("slinky-0")
    await setting.connected(reservations={"course": course})
    await setting.run()
    assert list(setting.connection.model.reservations) == ["course"]
    assert "1 reservations" in setting.parts.runtime.accounts[CONTROLLER].message
    setting.declare()
    await setting.run()
    assert (
        "reservation course stays: set prune to delete it"
        in setting.parts.runtime.accounts[CONTROLLER].message
    )
    setting.declare(prune=True)
    await setting.run()
    assert list(setting.connection.model.reservations) == []
    await setting.parts.runtime.clusters.close()
