"""One pass over the users that a Controller declares."""

import json
from typing import Any

import msgspec
import pytest

from sidecars import objects
from sidecars.kube import Key
from sidecars.operator.accounts.reconcile import reconcile as reconcile_accounts
from sidecars.operator.controller.reconcile import reconcile as reconcile_controller
from sidecars.operator.users.reconcile import SETTLE_SECONDS, Memories, reconcile
from sidecars.policy.users import report
from sidecars.workloads import names
from tests.support.operator_parts import CONTROLLER, NAMESPACE, Parts

pytestmark = pytest.mark.looptime
NAME = "slurm-declared-users"
USERS = {"alice": {"uid": 10001}}


class Setting:
    """An operator whose Controller declares users in a Secret."""

    def __init__(self, **users: Any) -> None:
        self.parts = Parts()
        self.memories: Memories = {}
        self.declare(**(users or USERS))
        self.parts.controller(usersRef={"name": NAME, "key": "users.yaml"})
        for name, labels in (
            ("slurm-worker-0", {names.APP_NAME: "slurmd", names.CLUSTER: "slurm"}),
            ("other-worker-0", {names.APP_NAME: "slurmd", names.CLUSTER: "other"}),
        ):
            self.parts.runtime.caches.pods.store.put(pod(name, labels))
        labels = {names.APP_NAME: "slurmctld", names.APP_INSTANCE: "slurm"}
        self.parts.runtime.caches.slurmctld_pods.store.put(pod("slurm-controller-0", labels))

    def declare(self, text: str | None = None, **users: Any) -> None:
        """Put the Secret there."""
        content = json.dumps({"users": users}) if text is None else text
        self.parts.secret(NAME, {"users.yaml": content.encode()})

    async def run(self) -> float | None:
        """One pass, and what it wrote reaches the caches."""
        again = await reconcile(self.parts.runtime, self.memories, CONTROLLER)
        self.parts.follow_applied()
        return again

    async def settle(self) -> None:
        """Passes until nothing is under way."""
        for _ in range(10):
            again = await self.run()
            if again is None:
                return
            self.parts.now += again
        raise AssertionError("does not settle")

    @property
    def applied(self) -> list[dict[str, str]]:
        """The files, as often as they were applied."""
        return [body["data"] for body in self.parts.requests.of("apply", "ConfigMap")]

    @property
    def condition(self) -> tuple[str, str, str]:
        """Status, reason and message."""
        found = self.parts.runtime.users[CONTROLLER]
        return found.status, str(found.reason.value), found.message

    def annotated(self) -> list[str]:
        """The pods that were annotated, in order."""
        return [
            name
            for verb, kind, name in self.parts.requests.made
            if (verb, kind) == ("patch", "Pod")
        ]


def pod(name: str, labels: dict[str, str]) -> objects.Pod:
    metadata = {
        "namespace": NAMESPACE,
        "name": name,
        "uid": name,
        "resourceVersion": "1",
        "labels": labels,
    }
    return msgspec.convert({"metadata": metadata}, objects.Pod)


async def test_users_become_files_and_a_settled_declaration_writes_nothing() -> None:
    setting = Setting()
    await setting.settle()
    assert [it["passwd"] for it in setting.applied] == [
        "alice:*:10001:10001::/home/alice:/bin/bash\n"
    ]
    assert setting.condition == ("True", "Applied", "1 users, 0 groups")
    made = len(setting.parts.requests.made)
    assert await setting.run() is None
    assert len(setting.parts.requests.made) == made


async def test_the_pods_of_the_cluster_and_no_others_are_annotated_twice_after_a_change() -> None:
    setting = Setting()
    other = pod("slurm-accounting-0", {names.APP_NAME: "slurmdbd", names.APP_INSTANCE: "other"})
    served = pod("slurm-restapi-a", {names.APP_NAME: "slurmrestd", names.APP_INSTANCE: "slurm"})
    setting.parts.requests.stored |= {
        ("Pod", it.metadata.name): msgspec.to_builtins(it) for it in (other, served)
    }
    setting.parts.restapi()
    assert await setting.run() == 3.0
    assert setting.annotated() == ["slurm-worker-0", "slurm-controller-0", "slurm-restapi-a"]
    assert setting.condition[:2] == ("False", "Distributing")
    setting.parts.now += 3.0
    assert await setting.run() == SETTLE_SECONDS - 3.0
    assert len(setting.annotated()) == 6
    marks = [
        it["metadata"]["annotations"][names.USERS_NUDGE]
        for it in setting.parts.requests.of("patch", "Pod")
    ]
    assert len(set(marks)) == 2


async def test_a_change_wakes_the_pass_and_a_removed_user_disappears() -> None:
    setting = Setting(alice={"uid": 10001}, bob={"uid": 10002})
    await setting.settle()
    await setting.parts.woken()
    setting.declare(bob={"uid": 10002})
    assert CONTROLLER in (await setting.parts.woken())["declared_users"]
    await setting.run()
    assert setting.applied[-1]["passwd"] == "bob:*:10002:10002::/home/bob:/bin/bash\n"


async def test_files_that_someone_deletes_while_pods_get_them_are_applied_again() -> None:
    setting = Setting()
    await setting.run()
    setting.parts.now += SETTLE_SECONDS - 1.0
    await reconcile(setting.parts.runtime, setting.memories, CONTROLLER)
    setting.parts.runtime.caches.own_config_maps.store.discard(Key(NAMESPACE, names.users("slurm")))
    assert await reconcile(setting.parts.runtime, setting.memories, CONTROLLER) == 1.0
    setting.parts.now += 1.0
    await setting.run()
    assert setting.condition[1] == "Distributing"
    await setting.settle()
    assert setting.applied[1:] == setting.applied[:1]
    assert setting.condition[1] == "Applied"


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        (
            '{"users": {"a": {"uid": 1000}, "b": {"uid": 1000}}}',
            "Invalid",
            "users.b.uid: users.a.uid is 1000 too",
        ),
        ("{", "Invalid", "not YAML"),
    ],
)
async def test_a_wrong_declaration_leaves_the_users_as_they_are(
    text: str, reason: str, words: str
) -> None:
    setting = Setting()
    await setting.settle()
    setting.declare(text)
    assert await setting.run() is None
    assert setting.condition[:2] == ("False", reason)
    assert words in setting.condition[2]
    assert len(setting.applied) == 1


async def test_entries_that_another_source_leaves_out_are_in_the_condition() -> None:
    setting = Setting()
    await setting.settle()
    lines = [f"user `u{n}` (uid=u{n}): change\nit {'x' * 1000}" for n in range(25)]
    users = json.dumps({"users": USERS}).encode()
    setting.parts.secret(
        NAME, {"users.yaml": users, report.LEFT_OUT: report.left_out(lines) or b""}
    )
    assert CONTROLLER in (await setting.parts.woken())["declared_users"]
    assert await setting.run() is None
    status, reason, message = setting.condition
    assert (status, reason) == ("True", "Applied")
    assert message.startswith("1 users, 0 groups. Left out: user `u0` (uid=u0): change it xxx")
    assert message.endswith(". and 5 more")
    assert len(message) < 20_000
    assert len(setting.applied) == 1
    setting.parts.secret(NAME, {"users.yaml": users})
    await setting.run()
    assert setting.condition[2] == "1 users, 0 groups"


@pytest.mark.parametrize("content", [b"", b"{", b'"\xff"', b"[1]", b'{"entries": "x"}'])
async def test_what_another_program_wrote_where_left_out_entries_are_expected_is_ignored(
    content: bytes,
) -> None:
    setting = Setting()
    setting.parts.secret(
        NAME, {"users.yaml": json.dumps({"users": USERS}).encode(), report.LEFT_OUT: content}
    )
    await setting.settle()
    assert setting.condition == ("True", "Applied", "1 users, 0 groups")


async def test_a_missing_secret_or_key_leaves_the_users_as_they_are() -> None:
    setting = Setting()
    await setting.settle()
    setting.parts.secret(NAME, {"other": b""})
    await setting.run()
    assert setting.condition[:2] == ("False", "ReferenceMissing")
    assert "has no key 'users.yaml'" in setting.condition[2]
    setting.parts.controller(usersRef={"name": "nowhere", "key": "users.yaml"})
    await setting.run()
    assert "Secret 'nowhere' doesn't exist" in setting.condition[2]
    assert len(setting.applied) == 1


async def test_without_a_reference_pods_that_still_run_lose_their_users() -> None:
    setting = Setting()
    await setting.settle()
    setting.parts.controller()
    await setting.settle()
    assert setting.applied[-1] == {}
    assert CONTROLLER not in setting.parts.runtime.users
    assert await setting.run() is None
    assert len(setting.applied) == 2


async def test_a_controller_that_never_declared_users_costs_nothing() -> None:
    setting = Setting()
    setting.parts.controller()
    assert await setting.run() is None
    assert setting.parts.requests.made == []


async def test_the_controllers_pass_writes_the_condition() -> None:
    setting = Setting()
    setting.parts.keys()
    await setting.run()
    assert CONTROLLER in (await setting.parts.woken())["controllers"]
    await reconcile_controller(
        setting.parts.runtime, setting.parts.operator.controllers, CONTROLLER
    )
    assert setting.parts.condition("Controller", "UsersApplied")["reason"] == "Distributing"


async def test_declared_accounts_wait_until_slurmctld_can_know_their_users() -> None:
    setting = Setting()
    parts = setting.parts
    parts.config_map("declared", {"declared.json": "{}"})
    parts.controller(
        usersRef={"name": NAME, "key": "users.yaml"}, declaredAccountsRef={"name": "declared"}
    )

    async def wait() -> float | None:
        return await reconcile_accounts(parts.runtime, parts.operator.accounts, CONTROLLER)

    assert await wait() == 0.5
    await setting.run()
    assert await wait() == SETTLE_SECONDS
    parts.now += SETTLE_SECONDS
    await setting.run()
    assert await wait() is None
    assert parts.runtime.accounts[CONTROLLER].reason.value == "NoRestApi"
