"""What the operator serves, asked as Prometheus and the kubelet ask."""

import ssl
from pathlib import Path

import aiohttp
import pytest

from sidecars.kube import Client, Resource, load_credentials
from sidecars.operator.serving import serve
from sidecars.operator.settings import Settings
from tests.cluster.control_plane import free_ports
from tests.support.apiserver import until

pytestmark = pytest.mark.timeout(90, func_only=True)

SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts")


async def token(client: Client, name: str) -> str:
    """A token of a new ServiceAccount in namespace default."""
    metadata = {"name": name, "namespace": "default"}
    await client.create(
        SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    )
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": metadata,
        "spec": {},
    }
    answer = await client.create(
        Resource("", "v1", "TokenRequest", f"serviceaccounts/{name}/token"), request
    )
    return str(answer["status"]["token"])


async def test_secure_metrics_are_served_to_authorized_users_only(kubeconfig: Path) -> None:
    health, metrics = free_ports(2)
    settings = Settings(
        health_addr=f"127.0.0.1:{health}", metrics_addr=f"127.0.0.1:{metrics}", metrics_secure=True
    )
    async with Client.connect(load_credentials(kubeconfig)) as client:
        allowed, other = await token(client, "prometheus"), await token(client, "another")
        rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
        group = "rbac.authorization.k8s.io"
        role = {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "reader"},
            "rules": rules,
        }
        await client.create(
            Resource(group, "v1", "ClusterRole", "clusterroles", namespaced=False), role
        )
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "prometheus"}],
        }
        await client.create(
            Resource(group, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
            binding,
        )
        end = await serve(settings, client)
        try:
            trust = ssl.create_default_context()
            trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
            async with aiohttp.ClientSession() as session:

                async def status(bearer: str | None) -> int:
                    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
                    url = f"https://127.0.0.1:{metrics}/metrics"
                    async with session.get(url, headers=headers, ssl=trust) as answer:
                        return answer.status

                async def admitted() -> bool:
                    return await status(allowed) == 200

                # The API server knows a new right a moment later.
                await until("the right to read the metrics", admitted)
                assert await status(other) == 403
                assert await status("forged") == 403
                assert await status(None) == 401
                async with session.get(f"http://127.0.0.1:{health}/readyz") as answer:
                    assert answer.status == 200
        finally:
            await end()
