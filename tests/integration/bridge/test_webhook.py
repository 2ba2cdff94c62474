"""The admission webhook of the chart, on an API server without MutatingAdmissionPolicy."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sidecars import serving
from sidecars.bridge import webhook_certificate as certificate
from sidecars.bridge.settings import Settings
from sidecars.contract import bridge
from sidecars.kube import NAMESPACES, PODS, SECRETS, ApiError, Client
from sidecars.simulate import serve
from tests.cluster.control_plane import ControlPlane
from tests.support.apiserver import until
from tests.support.bridge import KEY, pod, slurm
from tests.support.bridge_webhook import Webhook
from tests.support.bridge_world import (
    ACCOUNTS,
    World,
    a_world,
    control_plane,
    documented,
    install,
    without_gate,
)

NAME = "slurm-bridge-webhook"
GATE = [{"name": bridge.GATE}]
WEBHOOK = "--set=admission.mode=webhook"
DOWN = r'failed calling webhook "slurm-bridge-adds-the-scheduling-gate\.slinky\.slurm\.net"'


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """With the webhook, which Kubernetes up to 1.35 needs without further options."""
    values = {"admission": {"mode": "webhook"}}
    with control_plane(tmp_path_factory.mktemp("webhook"), options=(), values=values) as found:
        yield found


@pytest_asyncio.fixture
async def world(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """With a bridge that looks after the webhook's certificate."""
    monkeypatch.setattr(certificate, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(serving, "RELOAD_SECONDS", 0.1)
    key, model = tmp_path / "jwt.key", slurm()
    key.write_bytes(KEY)
    async with serve(model) as url, a_world(plane, Settings(url, "slurm", key), model) as found:
        found.settings = dataclasses.replace(found.settings, webhook=NAME)
        yield found


@pytest_asyncio.fixture
async def webhook(world: World, tmp_path: Path) -> Webhook:
    """Not running."""
    found = Webhook(world.admin, NAME, tmp_path)
    await found.redirect()
    return found


async def create(admin: Client, item: dict[str, Any]) -> list[dict[str, str]]:
    """Create the pod, and delete it again; its gates."""
    made = await admin.create(PODS, item)
    metadata = made["metadata"]
    await admin.delete(PODS, metadata["namespace"], metadata["name"], grace_period_seconds=0)
    return list(made["spec"].get("schedulingGates", []))


async def until_gated(world: World) -> None:
    """Until the API server asks the webhook, and gets an answer."""
    fault = ""

    async def gated() -> bool:
        nonlocal fault
        try:
            return await create(world.admin, without_gate(world.namespace)) == GATE
        except ApiError as error:
            fault = str(error)
            return False

    try:
        await until("a pod to get the gate", gated)
    except AssertionError as error:
        raise AssertionError(f"{error}: {fault}") from error


async def test_pods_get_the_gate_and_without_an_answer_are_refused_in_these_namespaces_alone(
    world: World, webhook: Webhook
) -> None:
    free = f"{world.namespace}-free"
    await world.admin.create(NAMESPACES, {"metadata": {"name": free}})
    await world.admin.create(ACCOUNTS, {"metadata": {"name": "default", "namespace": free}})
    async with world.bridge():
        await webhook.mount()
        async with webhook.running():
            await until_gated(world)
            mine = without_gate(world.namespace, schedulingGates=[{"name": "example.com/quota"}])
            assert await create(world.admin, mine) == [{"name": "example.com/quota"}, *GATE]
            assert await create(world.admin, without_gate(free)) == []
        with pytest.raises(ApiError, match=DOWN):
            await create(world.admin, without_gate(world.namespace))
        assert await create(world.admin, without_gate(free)) == []
        # What needs no gate is not asked about.
        assert await create(world.admin, pod(world.namespace, "p")) == GATE
        async with webhook.running():
            await until_gated(world)


async def test_what_would_bypass_slurm_is_refused_with_the_webhook_too(
    world: World, webhook: Webhook
) -> None:
    async with world.bridge():
        await webhook.mount()
        async with webhook.running():
            await until_gated(world)

            async def refused() -> bool:
                try:
                    await create(
                        world.admin, without_gate(world.namespace, nodeName=world.nodes[0])
                    )
                except ApiError as error:
                    return "spec.nodeName would bypass Slurm" in str(error)
                return False

            # A new policy is in force a moment later, and the webhook doesn't tell when.
            await until("the policy to refuse a pod with a node", refused)
            await world.admin.create(PODS, without_gate(world.namespace))
            with pytest.raises(ApiError, match="only the Slurm Bridge removes the scheduling gate"):
                await world.admin.merge_patch(
                    PODS, world.namespace, "p", {"spec": {"schedulingGates": None}}
                )


async def test_a_pod_that_the_webhook_has_gated_gets_a_job(world: World, webhook: Webhook) -> None:
    async with world.bridge():
        await webhook.mount()
        async with webhook.running():
            await until_gated(world)
            await world.records()
            await world.admin.create(PODS, without_gate(world.namespace))
            assert (await world.job()).user == "ada"


async def test_a_renewed_certificate_is_served_without_a_moment_in_which_pods_are_refused(
    world: World, webhook: Webhook
) -> None:
    async with world.bridge():
        await webhook.mount()
        former = (await webhook.data())["tls.crt"]
        async with webhook.running():
            await until_gated(world)
            # As one that ends soon: no other program writes a key that isn't of the certificate.
            await world.admin.merge_patch(SECRETS, "slurm", NAME, {"data": {"tls.key": ""}})

            async def renewed() -> bool:
                data = await webhook.data()
                return (
                    data["tls.crt"] != former
                    and data["tls.crt"] + former == await webhook.trusted()
                )

            await until("another certificate", renewed)
            assert await asyncio.to_thread(webhook.served) == former
            assert await create(world.admin, without_gate(world.namespace)) == GATE
            await webhook.mount()
            new = (await webhook.data())["tls.crt"]

            async def served() -> bool:
                assert await create(world.admin, without_gate(world.namespace)) == GATE
                return await asyncio.to_thread(webhook.served) == new

            await until("the new certificate to be served", served)


async def test_an_upgrade_of_the_chart_changes_neither_the_certificate_nor_what_is_trusted(
    world: World, webhook: Webhook, plane: ControlPlane
) -> None:
    async with world.bridge():
        await webhook.mount()
    before = await webhook.data(), await webhook.trusted()
    change = "--set=admission.replicas=3"
    await asyncio.to_thread(
        install,
        plane,
        "slurm-bridge",
        documented(),
        "--reset-values",
        WEBHOOK,
        change,
        verb="upgrade",
    )
    assert (await webhook.data(), await webhook.trusted()) == before


async def test_the_bridge_may_write_no_other_webhook_and_read_no_other_secret(world: World) -> None:
    other = {"metadata": {"name": "other"}, "webhooks": []}
    await world.admin.create(certificate.CONFIGURATIONS, other)
    with pytest.raises(ApiError, match="cannot patch"):
        await world.account.merge_patch(
            certificate.CONFIGURATIONS, None, "other", {"metadata": {"labels": {"a": "b"}}}
        )
    with pytest.raises(ApiError, match="cannot get"):
        await world.account.get(SECRETS, "slurm", "slurm-auth-jwt")


async def test_the_bridge_changes_nothing_of_its_webhook_but_the_trusted_certificates(
    world: World,
) -> None:
    """Who has its token would have the API server send all pods to a webhook."""
    rules = [{"op": "replace", "path": "/webhooks/0/rules/0/resources", "value": ["*"]}]
    elsewhere = [
        {
            "op": "replace",
            "path": "/webhooks/0/clientConfig",
            "value": {"url": "https://evil.example/"},
        }
    ]
    everywhere = [{"op": "remove", "path": "/webhooks/0/namespaceSelector"}]
    another = [{"op": "copy", "from": "/webhooks/0", "path": "/webhooks/-"}]
    another += [{"op": "replace", "path": "/webhooks/1/name", "value": "b.example.com"}]
    place = certificate.CONFIGURATIONS, None, NAME

    async def enforced() -> bool:
        try:
            await world.account.json_patch(
                *place, [{"op": "add", "path": "/metadata/labels/a", "value": "b"}], dict
            )
            await world.account.json_patch(*place, rules, dict)
        except ApiError as error:
            return "alone" in error.message
        return False

    await world.until("the policies to be enforced", enforced)
    for patch in (rules, elsewhere, everywhere, another):
        with pytest.raises(
            ApiError, match="the Slurm Bridge changes the trusted certificates alone"
        ):
            await world.account.json_patch(*place, patch, dict)
    bundle = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}]
    await world.account.json_patch(*place, bundle, dict)
