"""Accounting, RestApi, LoginSet and Token on a real API server."""

import base64
from typing import Any

import jwt
import pytest

from sidecars.custom_resources import ACCOUNTINGS, CONTROLLERS, LOGINSETS, RESTAPIS, TOKENS
from sidecars.kube import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    PODS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    ApiError,
    Manifest,
    Resource,
)
from sidecars.policy.conditions import timestamp
from sidecars.slurm.tokens import sign
from tests.support.apiserver import KEYS, WatchedNamespace, custom, secret, until

pytestmark = pytest.mark.timeout(120, func_only=True)

STORAGE = {
    "host": "mariadb",
    "username": "slurm",
    "passwordKeyRef": {"name": "mariadb-password", "key": "password"},
}
ACCOUNTING = {**KEYS, "storageConfig": STORAGE, "slurmdbd": {"image": "slurmdbd:test"}}
JWT_KEY = b"j" * 1024


async def until_reason(world: WatchedNamespace, resource: Resource, name: str, reason: str) -> str:
    """Wait for this reason of the condition Ready; its message."""

    async def look() -> dict[str, Any] | None:
        found = await world.condition(resource, name)
        return found if found.get("reason") == reason else None

    found = await until(f"{resource.kind} {name} to say {reason}", look)
    item = await world.get(resource, name)
    assert found["observedGeneration"] == (item or {})["metadata"]["generation"]
    return str(found["message"])


async def update_status(
    world: WatchedNamespace, resource: Resource, name: str, ready: int = 1
) -> None:
    """What the controllers of Kubernetes would report of running pods."""
    status = {
        "replicas": max(ready, 1),
        "readyReplicas": ready,
        "updatedReplicas": max(ready, 1),
        "observedGeneration": 99,
    }
    await world.client.merge_patch(
        resource, world.namespace, name, {"status": status}, subresource="status"
    )


async def put(world: WatchedNamespace, name: str, key: str, value: bytes) -> None:
    """Give a Secret another value."""
    patch = {"data": {key: base64.b64encode(value).decode()}}
    await world.client.merge_patch(SECRETS, world.namespace, name, patch)


async def slurmdbd_conf(world: WatchedNamespace) -> str:
    """slurmdbd.conf as it is published."""
    found = await until("the configuration", lambda: world.get(SECRETS, "slurm-accounting"))
    return base64.b64decode(found["data"]["slurmdbd.conf"]).decode()


async def test_accounting_waits_for_its_password_and_starts_once_it_exists(
    world: WatchedNamespace,
) -> None:
    await world.create(custom("Accounting", "slurm", ACCOUNTING))
    message = await until_reason(world, ACCOUNTINGS, "slurm", "ReferenceMissing")
    assert "spec.storageConfig.passwordKeyRef: Secret 'mariadb-password' doesn't exist" in message
    await world.until_event("SyncFailed", "Accounting", "'mariadb-password'")
    assert await world.get(STATEFUL_SETS, "slurm-accounting") is None
    await world.create(secret("mariadb-password", "password", b"first"))
    stateful_set = await until("slurmdbd", lambda: world.get(STATEFUL_SETS, "slurm-accounting"))
    assert stateful_set["spec"]["podManagementPolicy"] == "Parallel"
    [container] = stateful_set["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["tcpSocket"]["port"] == "slurmdbd"
    assert await until("its Service", lambda: world.get(SERVICES, "slurm-accounting"))
    lines = (await slurmdbd_conf(world)).splitlines()
    for line in (
        "DbdHost=slurm-accounting-0",
        "StoragePass=first",
        "StorageLoc=slurm_acct_db",
        "StoragePort=3306",
    ):
        assert line in lines
    await update_status(world, STATEFUL_SETS, "slurm-accounting", ready=0)
    message = await until_reason(world, ACCOUNTINGS, "slurm", "PodsNotReady")
    assert "mariadb:3306 answers" in message
    await update_status(world, STATEFUL_SETS, "slurm-accounting")
    await until_reason(world, ACCOUNTINGS, "slurm", "Ready")


async def test_another_password_is_published_and_restarts_slurmdbd(world: WatchedNamespace) -> None:
    await world.create(secret("mariadb-password", "password", b"first"))
    await world.create(custom("Accounting", "slurm", ACCOUNTING))
    annotation = "slinky.slurm.net/slurmdbd-conf-hash"

    async def digest() -> str:
        found = await until("slurmdbd", lambda: world.get(STATEFUL_SETS, "slurm-accounting"))
        return str(found["spec"]["template"]["metadata"]["annotations"][annotation])

    before = await digest()
    await put(world, "mariadb-password", "password", b"second")

    async def changed() -> bool:
        return await digest() != before

    await until("another hash", changed)
    assert "StoragePass=second" in await slurmdbd_conf(world)
    await world.until_event("Restarting", "Accounting", "slurmdbd conf changed")
    await put(world, "mariadb-password", "password", b"third\nStorageHost=evil")
    message = await until_reason(world, ACCOUNTINGS, "slurm", "Invalid")
    assert "evil" not in message
    assert "StoragePass=second" in await slurmdbd_conf(world)


async def accounted(world: WatchedNamespace) -> None:
    """Have the Controller refer to Accounting `slurm`."""
    await until("slurm.conf", lambda: world.get(CONFIG_MAPS, "slurm-config"))
    await world.client.merge_patch(
        CONTROLLERS, world.namespace, "slurm", {"spec": {"accountingRef": {"name": "slurm"}}}
    )


async def accounting_lines(world: WatchedNamespace) -> list[str]:
    """What slurm.conf sets for accounting."""
    found = await world.get(CONFIG_MAPS, "slurm-config")
    text = (found or {"data": {"slurm.conf": ""}})["data"]["slurm.conf"]
    return [line for line in text.splitlines() if line.startswith("AccountingStorage")]


async def test_a_controller_enables_accounting_when_slurmdbd_is_ready(
    world: WatchedNamespace,
) -> None:
    await accounted(world)
    message = await until_reason(world, CONTROLLERS, "slurm", "AccountingMissing")
    assert "no Accounting 'slurm'" in message
    assert await accounting_lines(world) == ["AccountingStorageType=accounting_storage/none"]
    await world.create(secret("mariadb-password", "password", b"first"))
    await world.create(custom("Accounting", "slurm", ACCOUNTING))
    await until_reason(world, CONTROLLERS, "slurm", "WaitingForAccounting")
    assert await accounting_lines(world) == ["AccountingStorageType=accounting_storage/none"]
    await until("slurmdbd", lambda: world.get(STATEFUL_SETS, "slurm-accounting"))
    await update_status(world, STATEFUL_SETS, "slurm-accounting")
    wanted = [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=slurm-accounting",
        "AccountingStoragePort=6819",
    ]

    async def named() -> bool:
        return await accounting_lines(world) == wanted

    await until("slurm.conf to name slurmdbd", named)

    await update_status(world, STATEFUL_SETS, "slurm-accounting", ready=0)
    await until_reason(world, ACCOUNTINGS, "slurm", "PodsNotReady")
    assert await accounting_lines(world) == wanted, (
        "a slurmdbd that is away for a while changes nothing"
    )


async def test_an_external_accounting_creates_no_slurmdbd_and_slurm_conf_names_its_address(
    world: WatchedNamespace,
) -> None:
    await accounted(world)
    external = {"external": True, "externalConfig": {"host": "dbd.example.com", "port": 7000}}
    await world.create(custom("Accounting", "slurm", external))
    assert "dbd.example.com:7000" in await until_reason(world, ACCOUNTINGS, "slurm", "External")

    async def named() -> bool:
        lines = await accounting_lines(world)
        return (
            "AccountingStorageHost=dbd.example.com" in lines
            and "AccountingStoragePort=7000" in lines
        )

    await until("slurm.conf to name it", named)
    assert await world.get(STATEFUL_SETS, "slurm-accounting") is None


async def token_of(world: WatchedNamespace, name: str) -> str | None:
    """The token in a Secret."""
    found = await world.get(SECRETS, name)
    return base64.b64decode(found["data"]["SLURM_JWT"]).decode() if found is not None else None


def token(**spec: Any) -> Manifest:
    """Token `api` of root."""
    return custom("Token", "api", {"username": "root", "jwtKeyRef": KEYS["jwtKeyRef"], **spec})


async def test_a_token_is_signed_once_and_again_only_with_another_key(
    world: WatchedNamespace,
) -> None:
    made = await world.create(token())
    first = await until("the token", lambda: token_of(world, "api-jwt-root"))
    claims = jwt.decode(first, JWT_KEY, algorithms=["HS256"])
    assert (claims["sun"], claims["iss"], claims["exp"] - claims["iat"]) == (
        "root",
        "slurm-operator",
        900,
    )
    await until_reason(world, TOKENS, "api", "Issued")
    blocked = await world.get(SECRETS, "api-jwt-root")
    assert blocked is not None
    [owner] = blocked["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == (
        "Token",
        made["metadata"]["uid"],
        True,
    )
    status = ((await world.get(TOKENS, "api")) or {})["status"]
    assert (status["issuedAt"], status["expiresAt"]) == (
        timestamp(claims["iat"]),
        timestamp(claims["exp"]),
    )
    await put(world, "slurm-auth-jwt", "jwt.key", b"k" * 1024)

    async def again() -> bool:
        second = await token_of(world, "api-jwt-root")
        return (
            second not in {None, first}
            and jwt.decode(second or "", b"k" * 1024, algorithms=["HS256"]) != claims
        )

    await until("a token of the new key", again)
    await world.until_event("Signed", "Token", "the key that signs tokens has changed")
    await world.client.delete(SECRETS, world.namespace, "api-jwt-root")
    await until("a token in place of one that was deleted", lambda: token_of(world, "api-jwt-root"))


async def test_a_token_is_renewed_in_time_before_it_expires(world: WatchedNamespace) -> None:
    made = await world.create(
        token(lifetime="120s", secretRef={"name": "late", "key": "SLURM_JWT"})
    )
    first = await until("the token", lambda: token_of(world, "late"))
    issued = jwt.decode(first, JWT_KEY, algorithms=["HS256"])["iat"]
    # One that has lived for 83 of its 120 seconds: it is due within 13.
    old = sign(JWT_KEY, "root", 120, issued - 83)
    await put(world, "late", "SLURM_JWT", old.encode())

    async def renewed() -> str | None:
        found = await token_of(world, "late")
        return found if found != old else None

    second = await until("another token", renewed)
    found = jwt.decode(second, JWT_KEY, algorithms=["HS256"])
    assert found["iat"] < issued - 83 + 120
    assert made["spec"]["refresh"] is True


async def test_a_token_that_is_not_refreshed_is_immutable(world: WatchedNamespace) -> None:
    await world.create(token(refresh=False))

    async def immutable() -> bool:
        return ((await world.get(SECRETS, "api-jwt-root")) or {}).get("immutable", False) is True

    await until("an immutable Secret", immutable)


async def test_a_token_does_not_overwrite_a_foreign_secret(world: WatchedNamespace) -> None:
    await world.create(token(secretRef={"name": "slurm-auth-jwt", "key": "jwt.key"}))
    assert "'slurm-auth-jwt' already exists" in await until_reason(
        world, TOKENS, "api", "SecretTaken"
    )
    found = await world.get(SECRETS, "slurm-auth-jwt")
    assert base64.b64decode((found or {})["data"]["jwt.key"]) == JWT_KEY


async def test_a_token_without_its_key_reports_that_and_a_lifetime_that_is_too_short_is_refused(
    world: WatchedNamespace,
) -> None:
    await world.create(token(jwtKeyRef={"name": "absent", "key": "jwt.key"}))
    assert "Secret 'absent' doesn't exist" in await until_reason(
        world, TOKENS, "api", "ReferenceMissing"
    )
    await world.create(secret("absent", "jwt.key", b"z" * 32))
    await until_reason(world, TOKENS, "api", "Issued")
    with pytest.raises(ApiError, match="lifetime must be at least 30s"):
        await world.create({**token(lifetime="5s"), "metadata": {"name": "short"}})


async def loginset(world: WatchedNamespace, **spec: Any) -> None:
    """LoginSet `login`."""
    await world.create(secret("sssd", "sssd.conf", b"[sssd]"))
    smallest = {
        "controllerRef": {"name": "slurm"},
        "sssdConfRef": {"name": "sssd", "key": "sssd.conf"},
        "login": {"image": "login:test"},
    }
    await world.create(custom("LoginSet", "login", {**smallest, **spec}))


async def test_a_login_set_scales_by_its_scale_subresource_and_reports(
    world: WatchedNamespace,
) -> None:
    await loginset(world, replicas=0)
    await until("the Deployment", lambda: world.get(DEPLOYMENTS, "login"))
    await update_status(world, DEPLOYMENTS, "login", ready=0)
    await until_reason(world, LOGINSETS, "login", "ScaledToZero")
    await world.client.merge_patch(
        LOGINSETS, world.namespace, "login", {"spec": {"replicas": 2}}, subresource="scale"
    )

    async def scaled() -> bool:
        return bool(((await world.get(DEPLOYMENTS, "login")) or {})["spec"]["replicas"] == 2)

    await until("the Deployment to follow", scaled)
    await update_status(world, DEPLOYMENTS, "login", ready=2)
    await until_reason(world, LOGINSETS, "login", "Ready")
    status = ((await world.get(LOGINSETS, "login")) or {})["status"]
    assert (status["replicas"], status["readyReplicas"]) == (2, 2)
    assert status["selector"] == "app.kubernetes.io/instance=login,app.kubernetes.io/name=login"


async def test_the_hostnames_of_login_pods_are_published_beside_those_of_workers(
    world: WatchedNamespace,
) -> None:
    await loginset(world)
    await until("the Deployment", lambda: world.get(DEPLOYMENTS, "login"))
    world.kubelet_works = False

    async def start(name: str, address: str) -> None:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": world.namespace,
                "labels": {
                    "app.kubernetes.io/name": "login",
                    "app.kubernetes.io/instance": "login",
                },
            },
            "spec": {
                "containers": [{"name": "login", "image": "login:test"}],
                "nodeName": "default-node",
            },
        }
        await world.client.create(PODS, pod)
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        await world.client.merge_patch(
            PODS, world.namespace, name, {"status": status}, subresource="status"
        )

    async def known() -> dict[str, list[str]]:
        found = await world.get(ENDPOINT_SLICES, "login-hosts")
        return {it["hostname"]: it["addresses"] for it in (found or {}).get("endpoints") or ()}

    async def are(wanted: dict[str, list[str]]) -> bool:
        return await known() == wanted

    await start("login-5d-a", "10.0.0.1")
    await start("login-5d-" + "b" * 60, "10.0.0.2")
    both = {"login-5d-a": ["10.0.0.1"], "login-5d-" + "b" * 54: ["10.0.0.2"]}
    await until("both to be published", lambda: are(both))
    labels = ((await world.get(ENDPOINT_SLICES, "login-hosts")) or {})["metadata"]["labels"]
    assert labels["kubernetes.io/service-name"] == "slurm-workers-slurm"
    for name in ("login-5d-a", "login-5d-" + "b" * 60):
        await world.client.delete(PODS, world.namespace, name, grace_period_seconds=0)
    await until("none to be published", lambda: are({}))


async def test_host_keys_are_created_once_and_settings_reach_running_pods(
    world: WatchedNamespace,
) -> None:
    await loginset(world)
    keys = await until("host keys", lambda: world.get(SECRETS, "login-ssh-host-keys"))
    assert (keys["immutable"], len(keys["data"])) == (True, 6)
    await until("the Deployment", lambda: world.get(DEPLOYMENTS, "login"))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "login-0",
            "namespace": world.namespace,
            "labels": {"app.kubernetes.io/name": "login", "app.kubernetes.io/instance": "login"},
        },
        "spec": {
            "hostname": "login-0",
            "containers": [{"name": "login", "image": "login:test"}],
            "nodeName": "default-node",
        },
    }
    world.kubelet_works = False
    await world.client.create(PODS, pod)
    before = await world.get(DEPLOYMENTS, "login")
    await until_reason(world, LOGINSETS, "login", "Updating")
    spec = {"extraSshdConfig": "MaxAuthTries 3", "rootSshAuthorizedKeys": "ssh-ed25519 AAAA me"}
    await world.client.merge_patch(LOGINSETS, world.namespace, "login", {"spec": spec})

    async def nudged() -> bool:
        annotations = ((await world.get(PODS, "login-0")) or {})["metadata"].get(
            "annotations"
        ) or {}
        return bool(annotations.get("slinky.slurm.net/sshd-conf-hash"))

    await until("the kubelet to be notified", nudged)
    config = await world.get(CONFIG_MAPS, "login-ssh-config")
    assert "MaxAuthTries 3\n" in (config or {})["data"]["sshd_config"]
    assert "Subsystem sftp internal-sftp\n" in (config or {})["data"]["sshd_config"]
    assert "ssh-ed25519 AAAA me" in (config or {})["data"]["authorized_keys"]
    after = await world.get(DEPLOYMENTS, "login")
    assert (after or {})["spec"]["template"] == (before or {})["spec"]["template"]
    assert ((await world.get(SECRETS, "login-ssh-host-keys")) or {})["data"] == keys["data"]


async def test_resources_without_their_controller_report_that_and_start_when_it_exists(
    world: WatchedNamespace,
) -> None:
    await world.create(secret("sssd", "sssd.conf", b"[sssd]"))
    late = {"controllerRef": {"name": "late"}}
    await world.create(custom("RestApi", "early", {**late, "slurmrestd": {"image": "x"}}))
    sssd = {"sssdConfRef": {"name": "sssd", "key": "sssd.conf"}}
    await world.create(custom("LoginSet", "early", {**late, **sssd, "login": {"image": "x"}}))
    for resource in (RESTAPIS, LOGINSETS):
        assert "no Controller 'late'" in await until_reason(
            world, resource, "early", "ControllerMissing"
        )
        await world.until_event("SyncFailed", resource.kind, "'late'")
    await world.create(custom("Controller", "late", {**KEYS, "slurmctld": {"image": "x"}}))
    for name in ("early-restapi", "early"):
        await until(f"Deployment {name}", lambda name=name: world.get(DEPLOYMENTS, name))  # type: ignore[misc]


async def test_slurmrestd_has_the_documented_arguments_and_environment(
    world: WatchedNamespace,
) -> None:
    found = await until("slurmrestd", lambda: world.get(DEPLOYMENTS, "slurm-restapi"))
    spec = found["spec"]["template"]["spec"]
    [container] = spec["containers"]
    assert container["args"] == ["-s", "openapi/slurmctld", "0.0.0.0:6820"]
    assert {item["name"]: item["value"] for item in container["env"]} == {
        "SLURM_JWT": "daemon",
        "SLURMRESTD_JSON": "compact",
        "SLURMRESTD_SECURITY": "disable_unshare_files,disable_unshare_sysv",
    }
    assert spec["securityContext"]["runAsUser"] == 65534
    await update_status(world, DEPLOYMENTS, "slurm-restapi")
    await until_reason(world, RESTAPIS, "slurm", "Ready")
    assert ((await world.get(RESTAPIS, "slurm")) or {})["status"]["readyReplicas"] == 1


async def test_objects_of_a_resource_that_is_being_deleted_are_not_created_again(
    world: WatchedNamespace,
) -> None:
    await world.create(secret("mariadb-password", "password", b"first"))
    await world.create(custom("Accounting", "slurm", ACCOUNTING))
    await until("slurmdbd", lambda: world.get(STATEFUL_SETS, "slurm-accounting"))
    patch = {"metadata": {"finalizers": ["example.com/blocked"]}}
    await world.client.merge_patch(ACCOUNTINGS, world.namespace, "slurm", patch)
    await world.client.delete(ACCOUNTINGS, world.namespace, "slurm")
    # Whoever has seen the second has seen the first leave: one watch reports both, in order.
    await world.create(custom("Accounting", "second", ACCOUNTING))
    await until("the second slurmdbd", lambda: world.get(STATEFUL_SETS, "second-accounting"))
    await world.client.delete(STATEFUL_SETS, world.namespace, "slurm-accounting")
    # Something that wakes every resource of the namespace, and one that answers when it was its
    # turn.
    await world.create(token())
    await until("a token", lambda: token_of(world, "api-jwt-root"))
    assert await world.get(STATEFUL_SETS, "slurm-accounting") is None
    await world.client.merge_patch(
        ACCOUNTINGS, world.namespace, "slurm", {"metadata": {"finalizers": None}}
    )
