"""Keys that are rotated and versions that are rolled, on a real API server."""

import base64
import json
from typing import Any

import pytest

from sidecars.custom_resources import ACCOUNTINGS, CONTROLLERS, LOGINSETS, NODESETS, RESTAPIS
from sidecars.kube import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    EVENTS,
    SECRETS,
    STATEFUL_SETS,
    Invalid,
    Resource,
)
from tests.integration.operator.test_services import ACCOUNTING, put, update_status
from tests.support.apiserver import WatchedNamespace, custom, secret, until

pytestmark = pytest.mark.timeout(120, func_only=True)

OLD, NEW = b"s" * 1024, b"n" * 1024
SETTLE = {"metadata": {"annotations": {"slinky.slurm.net/keys-settle-seconds": "0"}}}


async def until_key(
    world: WatchedNamespace, reason: str, words: str = "", seconds: float = 30
) -> dict[str, Any]:
    """Wait until the condition SlurmKey has this reason and these words."""

    async def look() -> dict[str, Any] | None:
        found = await world.condition(CONTROLLERS, "slurm", "SlurmKey")
        return found if found.get("reason") == reason and words in found["message"] else None

    return await until(f"SlurmKey to say {reason} {words}", look, seconds)


async def keys_of_daemons(world: WatchedNamespace) -> list[bytes]:
    """What daemons are given, the key that they sign with first."""
    found = await until("the keys", lambda: world.get(SECRETS, "slurm-auth-slurm-jwks"))
    entries = json.loads(base64.b64decode(found["data"]["slurm.jwks"]))["keys"]
    return [
        base64.b64decode(it["k"])
        for it in sorted(entries, key=lambda it: it.get("use") != "default")
    ]


async def change(world: WatchedNamespace, resource: Resource, name: str, **body: Any) -> None:
    """Patch a resource of ours."""
    await world.client.merge_patch(resource, world.namespace, name, body)


async def test_a_key_changed_in_its_secret_is_refused_and_a_key_named_in_the_spec_is_distributed(
    world: WatchedNamespace,
) -> None:
    await until_key(world, "InUse", "'slurm-auth-slurm'")
    assert await keys_of_daemons(world) == [OLD]
    template = (await until("slurmctld", lambda: world.get(STATEFUL_SETS, "slurm-controller")))[
        "spec"
    ]["template"]

    await put(world, "slurm-auth-slurm", "slurm.key", NEW)
    await until_key(world, "Swapped", "nextSlurmKeyRef")
    assert await keys_of_daemons(world) == [OLD]

    await change(
        world, CONTROLLERS, "slurm", spec={"nextSlurmKeyRef": {"name": "next", "key": "slurm.key"}}
    )
    await until_key(world, "ReferenceMissing", "'next'")
    await update_status(world, DEPLOYMENTS, "slurm-restapi")
    await change(world, CONTROLLERS, "slurm", **SETTLE)
    await world.create(secret("next", "slurm.key", NEW))
    await until_key(world, "InUse", "'next'", 50)
    assert await keys_of_daemons(world) == [NEW]
    for step in ("step 1 of 3", "step 2 of 3", "step 3 of 3"):
        await world.until_event("SlurmKey", "Controller", step)
    after = (await until("slurmctld", lambda: world.get(STATEFUL_SETS, "slurm-controller")))[
        "spec"
    ]["template"]
    assert after == template
    await change(world, CONTROLLERS, "slurm", spec={"nextSlurmKeyRef": None})
    await until_key(world, "InUse", "'slurm-auth-slurm'")


async def test_the_first_reference_can_not_be_changed_and_the_refusal_names_the_remedy(
    world: WatchedNamespace,
) -> None:
    with pytest.raises(Invalid, match="name the new key in nextSlurmKeyRef"):
        await change(
            world, CONTROLLERS, "slurm", spec={"slurmKeyRef": {"name": "other", "key": "slurm.key"}}
        )


async def test_keys_are_generated_once_however_often_their_secrets_are_applied(
    world: WatchedNamespace,
) -> None:
    keys = {"generated-slurm": "slurm.key", "generated-jwt": "jwt.key"}
    spec = {
        field: {"name": name, "key": keys[name]}
        for field, name in zip(("slurmKeyRef", "jwtKeyRef"), keys, strict=True)
    }

    async def apply() -> None:
        """As a GitOps tool applies what the chart renders."""
        for name, key in keys.items():
            annotations = {"slinky.slurm.net/generate": key}
            metadata = {"name": name, "namespace": world.namespace, "annotations": annotations}
            rendered = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata,
                "type": "Opaque",
            }
            await world.client.apply(SECRETS, rendered, field_manager="gitops")

    async def data() -> dict[str, Any] | None:
        found = {name: await world.client.get(SECRETS, world.namespace, name) for name in keys}
        return found if all("data" in secret for secret in found.values()) else None

    await apply()
    await world.create(
        custom("Controller", "generated", {**spec, "slurmctld": {"image": "slurmctld:test"}})
    )
    first = await until("the keys", data)
    assert {
        name: len(base64.b64decode(first[name]["data"][key])) for name, key in keys.items()
    } == dict.fromkeys(keys, 1024)
    assert all(secret["immutable"] for secret in first.values())
    await until("slurmctld", lambda: world.get(STATEFUL_SETS, "generated-controller"))
    await apply()
    second = await data()
    assert second is not None
    assert {name: second[name]["data"] for name in keys} == {
        name: first[name]["data"] for name in keys
    }

    async def lost() -> bool:
        return (await world.condition(CONTROLLERS, "generated")).get("reason") == "KeyLost"

    await world.client.delete(SECRETS, world.namespace, "generated-slurm")
    await apply()
    await until("the lost key to be reported", lost)
    assert await data() is None


async def test_a_new_key_creates_no_new_revision_of_workers(world: WatchedNamespace) -> None:
    await world.nodeset(replicas=1)
    await world.until_ready(1)
    before = set(await world.pods())
    items, _ = await world.client.list(CONTROLLER_REVISIONS, world.namespace)
    await world.create(secret("next", "slurm.key", NEW))
    await update_status(world, DEPLOYMENTS, "slurm-restapi")
    next_key = {"nextSlurmKeyRef": {"name": "next", "key": "slurm.key"}}
    await change(world, CONTROLLERS, "slurm", spec=next_key, **SETTLE)
    await until_key(world, "InUse", "'next'", 40)
    revisions, _ = await world.client.list(CONTROLLER_REVISIONS, world.namespace)
    assert len(revisions) == len(items)
    assert set(await world.pods()) == before


def image(workload: dict[str, Any], container: str) -> str:
    """The image of a container."""
    containers = workload["spec"]["template"]["spec"]["containers"]
    return str(next(it["image"] for it in containers if it["name"] == container))


async def runs(
    world: WatchedNamespace, resource: Resource, name: str, daemon: str, wanted: str
) -> bool:
    """Whether the workload has that image."""
    found = await world.get(resource, name)
    return found is not None and image(found, daemon) == wanted


async def until_runs(
    world: WatchedNamespace, resource: Resource, name: str, daemon: str, wanted: str
) -> None:
    """Wait until the workload has that image."""
    await until(f"{name} with {wanted}", lambda: runs(world, resource, name, daemon, wanted))


async def report(world: WatchedNamespace, resource: Resource, name: str, *, done: bool) -> None:
    """What Kubernetes' controllers would: the newest pods are ready, or not yet.

    Those of a Deployment come beside the ones of before, which are ready and go when they aren't
    needed by then.
    """
    found = await until(name, lambda: world.get(resource, name))
    generation, count = found["metadata"]["generation"], found["spec"]["replicas"]
    beside = 0 if done or resource is STATEFUL_SETS else count
    status = {
        "observedGeneration": generation,
        "replicas": count + beside,
        "updatedReplicas": count,
        "readyReplicas": count if done else beside,
    }
    await world.client.merge_patch(
        resource, world.namespace, name, {"status": status}, subresource="status"
    )


async def until_reports(world: WatchedNamespace, kind: Resource, name: str, words: str) -> None:
    """Wait until the condition Ready has these words."""

    async def reports() -> bool:
        found = await world.condition(kind, name)
        return words in f"{found.get('reason')}: {found.get('message')}"

    await until(f"{name} to report {words!r}", reports)


async def test_another_slurm_version_is_rolled_out_in_order_and_never_rolled_back(
    world: WatchedNamespace,
) -> None:
    await world.create(secret("mariadb-password", "password", b"first"))
    await change(world, CONTROLLERS, "slurm", spec={"slurmctld": {"image": "slurmctld:25.11"}})
    await change(world, RESTAPIS, "slurm", spec={"slurmrestd": {"image": "slurmrestd:25.11"}})
    await world.create(
        custom("Accounting", "slurm", {**ACCOUNTING, "slurmdbd": {"image": "slurmdbd:25.11"}})
    )
    login = {
        "controllerRef": {"name": "slurm"},
        "sssdConfRef": {"name": "sssd", "key": "sssd.conf"},
    }
    await world.create(secret("sssd", "sssd.conf", b"[sssd]"))
    await world.create(custom("LoginSet", "login", {**login, "login": {"image": "login:25.11"}}))
    workloads = [
        (STATEFUL_SETS, "slurm-accounting", "slurmdbd", ACCOUNTINGS, "slurm"),
        (STATEFUL_SETS, "slurm-controller", "slurmctld", CONTROLLERS, "slurm"),
        (DEPLOYMENTS, "slurm-restapi", "slurmrestd", RESTAPIS, "slurm"),
        (DEPLOYMENTS, "login", "login", LOGINSETS, "login"),
    ]

    for resource, name, daemon, *_ in workloads:
        await until_runs(world, resource, name, daemon, f"{daemon}:25.11")
        await report(world, resource, name, done=True)
    await change(world, CONTROLLERS, "slurm", spec={"accountingRef": {"name": "slurm"}})
    await world.nodeset(replicas=1, slurmd={"image": "slurmd:25.11"})
    await world.until_ready(1)

    async def names_slurmdbd() -> bool:
        found = await world.get(CONFIG_MAPS, "slurm-config")
        return found is not None and "accounting_storage/slurmdbd" in found["data"]["slurm.conf"]

    await until("slurm.conf to name slurmdbd", names_slurmdbd)
    for resource, name, *_ in workloads:
        await report(world, resource, name, done=True)

    # From the last to the first, so that only the order that is kept can be the right one.
    await report(world, *workloads[0][:2], done=False)

    async def slurmdbd_is_behind() -> bool:
        return (await world.condition(ACCOUNTINGS, "slurm")).get("status") == "False"

    await until("the operator to see that slurmdbd isn't ready", slurmdbd_is_behind)
    await change(world, NODESETS, "slinky", spec={"slurmd": {"image": "slurmd:26.05"}})
    for _, _, daemon, kind, name in reversed(workloads[1:]):
        await change(world, kind, name, spec={daemon: {"image": f"{daemon}:26.05"}})
    for resource, name, daemon, kind, owner in workloads[1:]:

        async def waits(kind: Resource = kind, owner: str = owner) -> bool:
            return (await world.condition(kind, owner)).get("reason") == "WaitingForUpgrade"

        await until(f"{owner}'s {daemon} to wait", waits)
        assert await runs(world, resource, name, daemon, f"{daemon}:25.11")
    await change(world, ACCOUNTINGS, "slurm", spec={"slurmdbd": {"image": "slurmdbd:26.05"}})
    for index, (resource, name, daemon, kind, owner) in enumerate(workloads):
        await until_runs(world, resource, name, daemon, f"{daemon}:26.05")
        if index < 2:
            for later, later_name, later_daemon, _, _ in workloads[index + 1 :]:
                assert await runs(world, later, later_name, later_daemon, f"{later_daemon}:25.11")
        await report(world, resource, name, done=False)

        why = "PodsNotReady" if resource is STATEFUL_SETS else "until the updated ones are ready"
        await until_reports(world, kind, owner, why)
        assert (await world.condition(NODESETS, "slinky")).get("reason") == "WaitingForUpgrade"
        await report(world, resource, name, done=True)

    async def rolled() -> bool:
        pods = await world.pods()
        return bool(pods) and all(
            next(it["image"] for it in pod["spec"]["containers"] if it["name"] == "slurmd")
            == "slurmd:26.05"
            for pod in pods.values()
        )

    await until("the workers with 26.05", rolled)

    await change(world, CONTROLLERS, "slurm", spec={"slurmctld": {"image": "slurmctld:25.11"}})

    async def refused() -> bool:
        found = await world.condition(CONTROLLERS, "slurm")
        return found.get("reason") == "OlderThanState" and "26.05" in found["message"]

    await until("the older slurmctld to be refused", refused)
    assert await runs(world, STATEFUL_SETS, "slurm-controller", "slurmctld", "slurmctld:26.05")


async def test_a_replacement_pod_does_not_get_a_version_newer_than_slurmctld(
    world: WatchedNamespace,
) -> None:
    await change(world, CONTROLLERS, "slurm", spec={"slurmctld": {"image": "slurmctld:25.11"}})
    await change(world, RESTAPIS, "slurm", spec={"slurmrestd": {"image": "slurmrestd:25.11"}})
    await world.nodeset(replicas=1, slurmd={"image": "slurmd:25.11"})
    await world.until_ready(1)
    workloads = (
        (STATEFUL_SETS, "slurm-controller", "slurmctld"),
        (DEPLOYMENTS, "slurm-restapi", "slurmrestd"),
    )

    async def until_has(resource: Resource, name: str, daemon: str, version: str) -> None:
        async def has() -> bool:
            found = await world.get(resource, name)
            return found is not None and image(found, daemon) == f"{daemon}:{version}"

        await until(f"{daemon} of {version}", has)

    for resource, name, daemon in workloads:
        await until_has(resource, name, daemon, "25.11")
        await update_status(world, resource, name)

    async def blocked(kind: Resource, name: str) -> bool:
        found = await world.condition(kind, name)
        return found.get("reason") == "NewerThanLeader" and "slurmctld 25.11" in found["message"]

    await change(world, RESTAPIS, "slurm", spec={"slurmrestd": {"image": "slurmrestd:26.05"}})
    await until("slurmrestd to be blocked", lambda: blocked(RESTAPIS, "slurm"))
    await change(world, NODESETS, "slinky", spec={"slurmd": {"image": "slurmd:26.05"}})
    await until("the workers to be blocked", lambda: blocked(NODESETS, "slinky"))
    await world.nodeset("late", replicas=1, slurmd={"image": "slurmd:26.05"})
    await until("new workers to be blocked", lambda: blocked(NODESETS, "late"))
    await until_has(*workloads[1], "25.11")
    assert set(await world.pods()) == {"slinky-0"}

    await change(world, CONTROLLERS, "slurm", spec={"slurmctld": {"image": "slurmctld:26.05"}})
    for resource, name, daemon in workloads:
        await until_has(resource, name, daemon, "26.05")
        await update_status(world, resource, name)

    async def new() -> bool:
        pods = await world.pods()
        return set(pods) == {"slinky-0", "late-0"} and all(
            next(it["image"] for it in pod["spec"]["containers"] if it["name"] == "slurmd")
            == "slurmd:26.05"
            for pod in pods.values()
        )

    await until("all workers of 26.05", new)


async def test_a_release_of_the_charts_alone_changes_no_pod(world: WatchedNamespace) -> None:
    await world.nodeset(replicas=1)
    await world.until_ready(1)
    await until_key(world, "InUse")
    labels = {"helm.sh/chart": "slurm-9.9.9", "app.kubernetes.io/version": "9.9.9"}

    async def templates() -> dict[str, Any]:
        found: dict[str, Any] = {}
        for resource in (STATEFUL_SETS, DEPLOYMENTS):
            items, _ = await world.client.list(resource, world.namespace)
            found |= {
                it["metadata"]["name"]: (it["metadata"]["generation"], it["spec"]["template"])
                for it in items
            }
        return found | {name: pod["metadata"]["uid"] for name, pod in (await world.pods()).items()}

    before = await templates()
    for resource, name in ((CONTROLLERS, "slurm"), (RESTAPIS, "slurm"), (NODESETS, "slinky")):
        await change(world, resource, name, metadata={"labels": labels})
    # What is done after it shows that the labels have been seen.
    await change(world, NODESETS, "slinky", spec={"replicas": 2})
    await world.until_ready(2)
    after = await templates()
    assert {name: after[name] for name in before} == before
    items, _ = await world.client.list(EVENTS, world.namespace)
    assert not [it for it in items if it["reason"] == "Restarting"]
