"""One pass over one Accounting."""

import pytest

from sidecars.operator.accounting.reconcile import reconcile
from tests.support.builders import KEYS
from tests.support.operator_parts import NAMESPACE, Parts

pytestmark = pytest.mark.looptime
KEY = (NAMESPACE, "db")
STORAGE = {
    "host": "mariadb",
    "port": 3306,
    "database": "slurm_acct_db",
    "username": "slurm",
    "passwordKeyRef": {"name": "password", "key": "password"},
}


async def test_a_missing_password_is_a_wait_that_names_it_and_no_secret_is_written_without() -> (
    None
):
    parts = Parts()
    parts.keys()
    parts.custom("Accounting", "db", KEYS | {"storageConfig": STORAGE})
    await reconcile(parts.runtime, KEY)
    assert parts.condition("Accounting")["reason"] == "ReferenceMissing"
    assert "'password'" in parts.condition("Accounting")["message"]
    assert parts.requests.of("apply", "Secret") == []


async def test_with_its_password_slurmdbd_is_applied() -> None:
    parts = Parts()
    parts.keys()
    parts.secret("password", {"password": b"secret"})
    parts.custom("Accounting", "db", KEYS | {"storageConfig": STORAGE})
    await reconcile(parts.runtime, KEY)
    applied = {kind for verb, kind, _ in parts.requests.made if verb == "apply"}
    assert {"Secret", "Service", "StatefulSet"} <= applied
    assert parts.condition("Accounting")["reason"] == "Starting"


async def test_an_external_slurmdbd_is_ready_as_it_is_and_needs_an_address() -> None:
    parts = Parts()
    parts.custom(
        "Accounting", "db", {"external": True, "externalConfig": {"host": "dbd", "port": 6819}}
    )
    await reconcile(parts.runtime, KEY)
    assert parts.condition("Accounting")["reason"] == "External"
    parts.custom("Accounting", "db", {"external": True})
    await reconcile(parts.runtime, KEY)
    assert parts.condition("Accounting")["reason"] == "Invalid"
    assert not [verb for verb, _, _ in parts.requests.made if verb == "apply"]


async def test_slurmdbd_waits_for_the_keys_of_the_controller_that_shares_its_own() -> None:
    parts = Parts()
    parts.secret("slurm-auth-slurm", {"slurm.key": b"k" * 32})
    parts.controller()
    parts.custom("Accounting", "db", KEYS | {"storageConfig": STORAGE})
    await reconcile(parts.runtime, KEY)
    assert parts.condition("Accounting")["reason"] == "WaitingForKeys"


async def test_slurmdbd_has_the_users_that_its_controller_declares() -> None:
    parts = Parts()
    parts.keys()
    parts.secret("password", {"password": b"secret"})
    parts.controller(accountingRef={"name": "db"}, usersRef={"name": "users", "key": "users.yaml"})
    parts.custom("Accounting", "db", KEYS | {"storageConfig": STORAGE})
    await reconcile(parts.runtime, KEY)
    [stateful_set] = parts.requests.of("apply", "StatefulSet")
    volumes = stateful_set["spec"]["template"]["spec"]["volumes"]
    assert [it["configMap"]["name"] for it in volumes if it["name"] == "users"] == ["slurm-users"]
