"""The certificate of the webhook, with a double of Kubernetes."""

import asyncio
import base64
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from sidecars import generated
from sidecars.bridge import metrics
from sidecars.bridge import webhook_certificate as certificate
from sidecars.bridge.core import certificate as core
from sidecars.bridge.webhook_certificate import CONFIGURATIONS, Certificates
from sidecars.kube import SECRETS, ApiError, Client, KubeError
from tests.support.apiserver import until
from tests.support.kube_double import KubeDouble

NAME, HOST = "bridge-webhook", "bridge-webhook.slurm.svc"


class Clock:
    """The time, which passes at will."""

    def __init__(self) -> None:
        self.later = 0.0

    def __call__(self) -> float:
        return time.time() + self.later


class Scene:
    """The objects that the chart creates."""

    def __init__(self, kube: KubeDouble, client: Client) -> None:
        self.kube, self.clock = kube, Clock()
        self.kube.put(SECRETS, {"metadata": {"namespace": "slurm", "name": NAME}})
        self.configure(NAME)
        self.certificates = Certificates(client, "slurm", NAME, self.clock)

    def configure(self, service: str) -> None:
        client = {"service": {"namespace": "slurm", "name": service, "path": "/gate"}}
        item = {
            "metadata": {"name": NAME},
            "webhooks": [{"name": "gate.example", "clientConfig": client}],
        }
        self.kube.put(CONFIGURATIONS, item)

    @property
    def data(self) -> dict[str, str]:
        data = self.kube.objects(SECRETS)["slurm", NAME].get("data") or {}
        return {name: base64.b64decode(value).decode() for name, value in data.items()}

    @property
    def trusted(self) -> str:
        [webhook] = self.kube.objects(CONFIGURATIONS)["", NAME]["webhooks"]
        return base64.b64decode(webhook["clientConfig"].get("caBundle", "")).decode()


@pytest_asyncio.fixture
async def scene() -> AsyncIterator[Scene]:
    async with KubeDouble() as kube, Client.connect(kube.credentials) as client:
        yield Scene(kube, client)


async def test_the_first_certificate_is_created_and_trusted(scene: Scene) -> None:
    await scene.certificates.check()
    assert scene.trusted == scene.data["tls.crt"]
    assert await generated.fits(scene.data["tls.crt"], scene.data["tls.key"])
    assert core.expiry(scene.data["tls.crt"], HOST) is not None


async def test_the_end_of_the_certificate_is_a_metric(scene: Scene) -> None:
    await scene.certificates.check()
    made = metrics.REPORTED.certificate
    assert made is not None
    assert made == core.expiry(scene.data["tls.crt"], HOST)
    # Also in a bridge that finds it.
    metrics.REPORTED.certificate = None
    await scene.certificates.check()
    assert made == metrics.REPORTED.certificate


async def test_a_valid_certificate_leads_to_no_write(scene: Scene) -> None:
    await scene.certificates.check()
    before = len(scene.kube.calls)
    await scene.certificates.check()
    assert {it.method for it in scene.kube.calls[before:]} == {"GET"}


async def test_at_a_renewal_the_former_certificate_is_trusted_until_it_ends(scene: Scene) -> None:
    await scene.certificates.check()
    former = scene.data["tls.crt"]
    scene.clock.later = 250 * 86400.0
    await scene.certificates.check()
    assert scene.data["tls.crt"] != former
    assert scene.trusted == scene.data["tls.crt"] + former
    # Later, as long as the former one is valid.
    scene.clock.later = 200 * 86400.0
    await scene.certificates.check()
    assert scene.trusted == scene.data["tls.crt"] + former


async def test_the_new_certificate_is_trusted_before_a_pod_can_have_it(scene: Scene) -> None:
    await scene.certificates.check()
    before = len(scene.kube.calls)
    scene.clock.later = 250 * 86400.0
    await scene.certificates.check()
    writes = [it.path.split("/")[-2] for it in scene.kube.calls[before:] if it.method != "GET"]
    assert writes == ["mutatingwebhookconfigurations", "secrets"]


async def test_a_bridge_that_ends_between_the_two_writes_leaves_a_webhook_that_works(
    scene: Scene,
) -> None:
    await scene.certificates.check()
    served = scene.data["tls.crt"]
    scene.clock.later = 250 * 86400.0
    # Two reads, then what is trusted, then the Secret.
    scene.kube.write_faults.extend([None, None, None, "403"])
    with pytest.raises(ApiError):
        await scene.certificates.check()
    assert scene.data["tls.crt"] == served
    assert served in scene.trusted
    lost = scene.trusted.replace(served, "")
    await scene.certificates.check()
    assert scene.trusted == scene.data["tls.crt"] + served
    assert lost not in scene.trusted


@pytest.mark.parametrize("name", ["tls.crt", "tls.key"])
async def test_what_someone_has_damaged_is_replaced(scene: Scene, name: str) -> None:
    await scene.certificates.check()
    secret = scene.kube.objects(SECRETS)["slurm", NAME]
    secret["data"][name] = base64.b64encode(b"nonsense").decode()
    scene.kube.put(SECRETS, secret)
    await scene.certificates.check()
    assert await generated.fits(scene.data["tls.crt"], scene.data["tls.key"])
    assert scene.data["tls.crt"] in scene.trusted


async def test_what_someone_has_removed_from_the_configuration_is_written_again(
    scene: Scene,
) -> None:
    await scene.certificates.check()
    scene.configure(NAME)
    assert scene.trusted == ""
    await scene.certificates.check()
    assert scene.trusted == scene.data["tls.crt"]


async def test_a_webhook_that_leads_elsewhere_is_left_alone(scene: Scene) -> None:
    scene.configure("others")
    await scene.certificates.check()
    assert scene.trusted == ""


async def test_a_missing_object_is_named_with_the_remedy(scene: Scene) -> None:
    scene.kube.remove(SECRETS, "slurm", NAME)
    with pytest.raises(KubeError, match=rf"{NAME}.*run `helm upgrade` again"):
        await scene.certificates.check()


async def test_a_fault_is_logged_once_and_ends_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(certificate, "CHECK_SECONDS", 0.01)
    secret: dict[str, Any] = scene.kube.objects(SECRETS)["slurm", NAME]
    scene.kube.remove(SECRETS, "slurm", NAME)
    with caplog.at_level(logging.WARNING):
        work = asyncio.create_task(scene.certificates.run())

        async def looked() -> bool:
            return len([it for it in scene.kube.calls if it.path.endswith(f"secrets/{NAME}")]) > 3

        await until("several looks", looked)
        scene.kube.put(
            SECRETS, {"metadata": {"namespace": "slurm", "name": secret["metadata"]["name"]}}
        )

        async def trusted() -> bool:
            return bool(scene.trusted)

        await until("a certificate", trusted)
        assert not work.done()
        work.cancel()
    assert len([it for it in caplog.messages if "helm upgrade" in it]) == 1
