"""Keeps the certificate of the admission webhook valid: its Secret, and what the API server trusts.

The bridge's leader does that, so that the webhook's own pods need no right in Kubernetes at all.
"""

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from sidecars import generated
from sidecars.bridge import metrics
from sidecars.bridge.core import certificate as core
from sidecars.kube import SECRETS, Client, KubeError, LeadershipLost, Manifest, NotFound, Resource

log = logging.getLogger(__name__)

CONFIGURATIONS = Resource(
    *(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
    ),
    namespaced=False,
)
CHECK_SECONDS = 10.0
"""Between two looks: another program may have overwritten what the API server trusts."""

Generate = Callable[[str, int], Awaitable[tuple[str, str]]]


class Certificates:
    """The webhook whose MutatingWebhookConfiguration, Secret and Service have the same name."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        now: Callable[[], float],
        generate: Generate = generated.certificate,
    ) -> None:
        """`now`: seconds since the epoch."""
        self._client, self._namespace, self._name, self._now = client, namespace, name, now
        self._generate = generate
        self._host = f"{name}.{namespace}.svc"
        self._fitting: tuple[str, str] | None = None
        self._fault = ""

    async def run(self) -> None:
        """Look again and again, until cancelled. A fault is logged once, and stops nothing."""
        while True:
            try:
                await self.check()
                self._fault = ""
            except LeadershipLost:
                raise
            except (KubeError, generated.GenerationError) as error:
                if str(error) != self._fault:
                    self._fault = str(error)
                    log.warning("the certificate of webhook %s: %s", self._name, error)
            await asyncio.sleep(CHECK_SECONDS)

    async def check(self) -> None:
        """Renew the certificate if it is due, and have the API server trust it. Raises KubeError,
        GenerationError.
        """
        try:
            secret = await self._client.get(SECRETS, self._namespace, self._name)
            configuration = await self._client.get(CONFIGURATIONS, None, self._name)
        except NotFound as error:
            raise KubeError(f"{error}. The chart creates it: run `helm upgrade` again") from error
        present, now = core.content(secret), self._now()
        if core.is_due(present, self._host, now) or not await self._fits(present):
            made, key = await self._generate(self._host, core.LIFETIME_DAYS)
            # The API server trusts it before a pod has it.
            await self._trust(
                configuration, core.bundle((made, present.certificate), self._host, now)
            )
            data = {core.CERTIFICATE: made, core.KEY: key, core.FORMER: present.certificate}
            patch = {
                # Of the Secret that was read.
                "metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]},
                "data": {
                    name: base64.b64encode(text.encode()).decode() for name, text in data.items()
                },
            }
            await self._client.merge_patch(SECRETS, self._namespace, self._name, patch)
            metrics.REPORTED.certificate = core.expiry(made, self._host)
            log.info(
                "created a certificate for webhook %s, valid for %d days",
                self._name,
                core.LIFETIME_DAYS,
            )
        else:
            trusted = core.bundle((present.certificate, present.former), self._host, now)
            await self._trust(configuration, trusted)
            metrics.REPORTED.certificate = core.expiry(present.certificate, self._host)

    async def _fits(self, present: core.Content) -> bool:
        pair = present.certificate, present.key
        if pair != self._fitting and await generated.fits(*pair):
            self._fitting = pair
        return pair == self._fitting

    async def _trust(self, configuration: Manifest, bundle: str) -> None:
        """Write what the API server trusts, for the webhooks that lead to the Service of this
        name.
        """
        patch: list[dict[str, Any]] = []
        for index, webhook in enumerate(configuration.get("webhooks") or ()):
            client = webhook.get("clientConfig") or {}
            service = client.get("service") or {}
            if (service.get("namespace"), service.get("name")) == (self._namespace, self._name):
                if client.get("caBundle", "") != bundle:
                    path = f"/webhooks/{index}"
                    patch += [
                        {"op": "test", "path": f"{path}/name", "value": webhook["name"]},
                        {"op": "add", "path": f"{path}/clientConfig/caBundle", "value": bundle},
                    ]
            else:
                log.debug("webhook %s leads elsewhere", webhook.get("name"))
        if patch:
            version = configuration["metadata"]["resourceVersion"]
            patch = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *patch]
            await self._client.json_patch(CONFIGURATIONS, None, self._name, patch, dict)
