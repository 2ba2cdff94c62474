"""The admission webhook of the chart slurm-bridge on a real kube-apiserver: one pod of it, in this
process.
"""

import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from sidecars.bridge import webhook
from sidecars.bridge.webhook_certificate import CONFIGURATIONS
from sidecars.kube import SECRETS, SERVICES, Client
from sidecars.serving import serve
from tests.cluster.control_plane import free_ports
from tests.support.apiserver import until

NAMESPACE = "slurm"


class Webhook:
    """What the chart has installed under this name. `folder`: where the pod has its Secret."""

    def __init__(self, admin: Client, name: str, folder: Path) -> None:
        self._admin, self._name, self._folder = admin, name, folder
        [self._port] = free_ports(1)

    async def redirect(self) -> None:
        """Have the Service lead to this machine, because no pod of the Deployment runs."""
        gone = dict.fromkeys(("clusterIP", "clusterIPs", "selector"))
        spec = {"type": "ExternalName", "externalName": "localhost", **gone}
        await self._admin.merge_patch(SERVICES, NAMESPACE, self._name, {"spec": spec})
        port = [
            {"op": "replace", "path": "/webhooks/0/clientConfig/service/port", "value": self._port}
        ]
        await self._admin.json_patch(CONFIGURATIONS, None, self._name, port, msgspec.Raw)

    async def data(self) -> dict[str, str]:
        """The content of its Secret."""
        secret = await self._admin.get(SECRETS, NAMESPACE, self._name)
        return {
            name: base64.b64decode(it).decode() for name, it in (secret.get("data") or {}).items()
        }

    async def trusted(self) -> str:
        """What the API server trusts, as PEM."""
        configuration: dict[str, Any] = await self._admin.get(CONFIGURATIONS, None, self._name)
        return base64.b64decode(
            configuration["webhooks"][0]["clientConfig"].get("caBundle", "")
        ).decode()

    async def mount(self) -> None:
        """Put the Secret into the folder, as the kubelet does, as soon as it has a certificate."""

        async def issued() -> dict[str, str]:
            data = await self.data()
            return data if data.get("tls.crt") and data["tls.crt"] in await self.trusted() else {}

        data = await until("a certificate that the API server trusts", issued)
        for name in ("tls.key", "tls.crt"):
            (self._folder / name).write_text(data[name])

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the block runs, it answers."""
        files = self._folder / "tls.crt", self._folder / "tls.key"
        end = await serve(webhook.application(), "127.0.0.1", self._port, files, webhook.LIMITS)
        try:
            yield
        finally:
            await end()

    def served(self) -> str:
        """The certificate that a client gets now. Call it in a thread."""
        return ssl.get_server_certificate(("127.0.0.1", self._port))
