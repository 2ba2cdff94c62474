"""Keys and passwords that the operator generates, into Secrets without data."""

import base64
from typing import Any

import pytest

from sidecars.kube import STATEFUL_SETS, Conflict, Manifest
from sidecars.operator.keys import generation
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.workloads.resources import Accounting, Controller, read
from tests.support import former
from tests.support.builders import KEYS
from tests.support.operator_parts import NAMESPACE, Parts

pytestmark = pytest.mark.looptime
STORAGE = {
    "host": "slurm-mariadb",
    "port": 3306,
    "database": "slurm_acct_db",
    "username": "slurm",
    "passwordKeyRef": {"name": "slurm-mariadb", "key": "password"},
}


def asking(parts: Parts, name: str, key: str, data: dict[str, bytes] | None = None) -> None:
    """A Secret that asks for a key, as the chart renders it."""
    parts.secret(name, data or {}, annotations={"slinky.slurm.net/generate": key})


def with_keys() -> Parts:
    parts = Parts()
    asking(parts, "slurm-auth-slurm", "slurm.key")
    asking(parts, "slurm-auth-jwt", "jwt.key")
    return parts


def stateful_set_of_schedmd() -> Manifest:
    """slurmctld's, which mounts `slurm-auth-slurm` and `slurm-auth-jwt`. No cache shows it."""
    [found] = [
        it
        for it in former.objects("controller", namespace=NAMESPACE, controller="u")
        if it["kind"] == "StatefulSet"
    ]
    return found


async def generate_keys(parts: Parts, **spec: Any) -> None:
    controller = read(Controller, parts.controller(**spec))
    await parts.runtime.lookup.facts(controller)
    await generation.keys(parts.runtime, controller)


async def generate_password(parts: Parts, **storage: Any) -> None:
    spec = KEYS | {"slurmdbd": {"image": "slurmdbd:26.05"}, "storageConfig": STORAGE | storage}
    manifest = parts.custom("Accounting", "slurm", spec)
    await parts.runtime.lookup.namespace_facts(NAMESPACE, manifest)
    await generation.password(parts.runtime, read(Accounting, manifest))


async def refusal(parts: Parts, reason: str) -> str:
    """The message with which no key is generated."""
    with pytest.raises(NotUsableError) as caught:
        await generate_keys(parts)
    assert caught.value.reason == reason
    return str(caught.value)


async def test_both_keys_are_generated_into_immutable_secrets_before_anything_starts() -> None:
    parts = with_keys()
    message = await refusal(parts, "WaitingForKeys")
    assert (
        "'slurm.key' in Secret 'slurm-auth-slurm' and 'jwt.key' in Secret 'slurm-auth-jwt'"
        in message
    )
    slurm, jwt = parts.requests.of("patch", "Secret")
    for patch, key in ((slurm, "slurm.key"), (jwt, "jwt.key")):
        assert patch["immutable"] is True
        assert patch["metadata"]["annotations"] == {"slinky.slurm.net/generated": key}
        assert len(base64.b64decode(patch["data"][key])) == 1024
    assert slurm["data"]["slurm.key"] != jwt["data"]["jwt.key"]


async def test_a_key_is_written_only_into_the_very_secret_that_had_none() -> None:
    parts = with_keys()
    await refusal(parts, "WaitingForKeys")
    versions = [
        patch["metadata"]["resourceVersion"] for patch in parts.requests.of("patch", "Secret")
    ]
    stored = [
        parts.requests.stored["Secret", name] for name in ("slurm-auth-slurm", "slurm-auth-jwt")
    ]
    assert versions == [each["metadata"]["resourceVersion"] for each in stored]


async def test_a_secret_that_was_changed_meanwhile_is_looked_at_again() -> None:
    parts = with_keys()
    parts.requests.refusals["patch Secret"] = Conflict(409, "Conflict", "changed")
    await refusal(parts, "WaitingForKeys")


async def test_a_key_that_exists_is_never_changed() -> None:
    parts = Parts()
    asking(parts, "slurm-auth-slurm", "slurm.key", {"slurm.key": b"k"})
    asking(parts, "slurm-auth-jwt", "jwt.key", {"jwt.key": b"j"})
    await generate_keys(parts)
    assert parts.requests.of("patch", "Secret") == []


@pytest.mark.parametrize("annotations", [{}, {"slinky.slurm.net/generate": "other"}])
async def test_a_secret_that_does_not_ask_for_the_key_gets_none(
    annotations: dict[str, str],
) -> None:
    parts = Parts()
    for name in ("slurm-auth-slurm", "slurm-auth-jwt"):
        parts.secret(name, {}, annotations=annotations)
    await generate_keys(parts)
    assert parts.requests.of("patch", "Secret") == []


async def test_nothing_is_generated_for_an_external_slurmctld_which_has_keys_already() -> None:
    parts = with_keys()
    await generate_keys(parts, external=True, externalConfig={"host": "a", "port": 6817})
    assert parts.requests.of("patch", "Secret") == []


@pytest.mark.parametrize(
    "evidence", ["keys of daemons", "StatefulSet", "StatefulSet of SchedMD's operator", "pod"]
)
async def test_a_lost_slurm_key_of_a_live_cluster_is_reported_and_not_replaced(
    evidence: str,
) -> None:
    parts = with_keys()
    if evidence == "keys of daemons":
        parts.secret("slurm-auth-slurm-jwks", {"slurm.jwks": b"{}"}, own=True)
    elif evidence == "StatefulSet of SchedMD's operator":
        parts.requests.stored["StatefulSet", "slurm-controller"] = stateful_set_of_schedmd()
    elif evidence == "StatefulSet":
        parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", "slurmctld:26.05")
    else:
        parts.slurmctld_pod()
    message = await refusal(parts, "KeyLost")
    assert "Secret 'slurm-auth-slurm' has lost 'slurm.key'" in message
    assert "Restore the Secret from a backup" in message
    assert parts.requests.of("patch", "Secret") == []


@pytest.mark.parametrize(
    ("mounted", "reason"), [("slurm-auth-jwt", "KeyLost"), ("former-jwt", "WaitingForKeys")]
)
async def test_a_jwt_key_is_generated_for_a_live_cluster_only_under_another_name(
    mounted: str, reason: str
) -> None:
    parts = Parts()
    parts.secret("slurm-auth-slurm", {"slurm.key": b"k"})
    asking(parts, "slurm-auth-jwt", "jwt.key")
    live = parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", "slurmctld:26.05")
    sources = [{"configMap": {"name": "a"}}, {"secret": {"name": mounted}}]
    live["spec"]["template"]["spec"]["volumes"] = [
        {"name": "x", "emptyDir": {}},
        {"projected": {"sources": sources}},
    ]
    await refusal(parts, reason)
    assert len(parts.requests.of("patch", "Secret")) == (reason == "WaitingForKeys")


async def test_a_jwt_key_lost_before_slurmctld_is_taken_over_is_reported_and_not_replaced() -> None:
    parts = Parts()
    parts.secret("slurm-auth-slurm", {"slurm.key": b"k"})
    asking(parts, "slurm-auth-jwt", "jwt.key")
    parts.requests.stored["StatefulSet", "slurm-controller"] = stateful_set_of_schedmd()
    assert "Secret 'slurm-auth-jwt' has lost 'jwt.key'" in await refusal(parts, "KeyLost")
    assert parts.requests.of("patch", "Secret") == []


async def test_a_jwt_key_is_not_replaced_while_slurmctld_runs_without_a_stateful_set() -> None:
    parts = Parts()
    parts.secret("slurm-auth-slurm", {"slurm.key": b"k"})
    asking(parts, "slurm-auth-jwt", "jwt.key")
    parts.slurmctld_pod()
    await refusal(parts, "KeyLost")
    assert parts.requests.of("patch", "Secret") == []


async def test_no_stateful_set_is_read_while_no_key_is_asked_for() -> None:
    parts = Parts()
    parts.keys()
    await generate_keys(parts)
    assert ("get", "StatefulSet", "slurm-controller") not in parts.requests.made


async def test_the_password_of_the_database_is_generated_and_can_be_changed() -> None:
    parts = Parts()
    asking(parts, "slurm-mariadb", "password")
    with pytest.raises(
        NotUsableError, match="'password' in Secret 'slurm-mariadb' is being generated"
    ):
        await generate_password(parts)
    [patch] = parts.requests.of("patch", "Secret")
    assert "immutable" not in patch
    assert base64.b64decode(patch["data"]["password"]).isalnum()


@pytest.mark.parametrize(
    ("host", "reason"), [("slurm-mariadb", "KeyLost"), ("db.example.com", "WaitingForKeys")]
)
async def test_a_lost_password_of_the_database_in_use_is_not_replaced(
    host: str, reason: str
) -> None:
    parts = Parts()
    asking(parts, "slurm-mariadb", "password")
    conf = f"StorageType=accounting_storage/mysql\nStorageHost={host}\nStoragePass=p\n"
    parts.secret("slurm-accounting", {"slurmdbd.conf": conf.encode()}, own=True)
    with pytest.raises(NotUsableError) as caught:
        await generate_password(parts)
    assert caught.value.reason == reason
