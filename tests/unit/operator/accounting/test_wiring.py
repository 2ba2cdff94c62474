"""Which change wakes which Accounting."""

import pytest

from sidecars.kube import STATEFUL_SETS
from tests.support.builders import KEYS
from tests.support.operator_parts import NAMESPACE, Parts

pytestmark = pytest.mark.looptime
DB = {(NAMESPACE, "db")}
STORAGE = {
    "host": "mariadb",
    "database": "d",
    "username": "u",
    "passwordKeyRef": {"name": "password", "key": "p"},
}


async def settled() -> Parts:
    parts = Parts()
    parts.custom("Accounting", "db", KEYS | {"storageConfig": STORAGE})
    parts.custom(
        "Accounting", "other", {"external": True, "externalConfig": {"host": "h", "port": 6819}}
    )
    assert (await parts.woken())["accountings"] == DB | {(NAMESPACE, "other")}
    return parts


@pytest.mark.parametrize("secret", ["password", "slurm-auth-slurm"])
async def test_a_secret_that_it_refers_to_wakes_it_and_another_does_not(secret: str) -> None:
    parts = await settled()
    parts.secret(secret, {"p": b"x"})
    assert (await parts.woken())["accountings"] == DB
    parts.secret("unrelated", {"p": b"x"})
    assert "accountings" not in await parts.woken()


async def test_its_statefulset_wakes_it_and_that_of_another_kind_does_not() -> None:
    parts = await settled()
    for kind, want in (("Accounting", DB), ("Controller", set[tuple[str, str]]())):
        manifest = parts.workload(STATEFUL_SETS, f"of-{kind}", "slurmdbd", "slurmdbd:26.05")
        owner = {
            "apiVersion": "slinky.slurm.net/v1beta1",
            "kind": kind,
            "name": "db",
            "controller": True,
        }
        metadata = manifest["metadata"] | {
            "ownerReferences": [owner | {"uid": "uid-of-db"}],
            "resourceVersion": "900",
        }
        await parts.woken()
        parts.runtime.caches.stateful_sets.store.put({**manifest, "metadata": metadata})
        assert (await parts.woken()).get("accountings", set()) == want


async def test_a_controller_that_uses_it_wakes_it_when_it_begins_or_ceases_to_declare_users() -> (
    None
):
    parts = await settled()
    users = {"usersRef": {"name": "users", "key": "users.yaml"}}
    parts.controller(accountingRef={"name": "db"})
    assert "accountings" not in await parts.woken()
    parts.controller(accountingRef={"name": "db"}, **users)
    assert (await parts.woken())["accountings"] == DB
    parts.controller(accountingRef={"name": "db"})
    assert (await parts.woken())["accountings"] == DB
    parts.controller(**users)
    assert "accountings" not in await parts.woken()
