"""Benchmark `controlplane`: what 50 settled Slurm clusters cost an operator, and what a new chart version changes.

A real kube-apiserver without kubelets; slurmrestd is a server of the benchmark's own that says that nothing changed.
How long a changed configuration takes is measured where a kubelet and a slurmctld are: tests/e2e/test_configuration.py.
"""

import asyncio
import base64
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp import web

from sidecars.kube import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    Client,
    Manifest,
    load_credentials,
)
from sidecars.operator.caches import CONTROLLERS, LOGINSETS, RESTAPIS
from sidecars.operator.main import lead
from sidecars.operator.settings import Settings
from sidecars.workloads import structure
from sidecars.workloads.facts import Site
from tests.bench.figures import Figure, figure
from tests.bench.serving import served
from tests.integration.operator.world import KEYS, control_plane

CLUSTERS = 50
NAMESPACE = "bench"
IDLE_SECONDS = 30.0
SETTLE_SECONDS = 120.0
OURS = (CONTROLLERS, RESTAPIS, LOGINSETS)
WRITTEN = (*OURS, CONFIG_MAPS, SECRETS, SERVICES, STATEFUL_SETS, DEPLOYMENTS)


def slurmrestd() -> web.Application:
    """Slurm without nodes, in which nothing ever changes."""

    async def nodes(request: web.Request) -> web.Response:
        if "update_time" in request.query:
            return web.Response(status=304)
        return web.json_response({"nodes": [], "last_update": {"number": 1, "set": True, "infinite": False}})

    application = web.Application()
    application.router.add_get("/slurm/{version}/nodes/", nodes)
    return application


def bench() -> list[Figure]:
    """The figures."""
    with TemporaryDirectory() as folder, control_plane(Path(folder)) as plane, served(slurmrestd) as url:
        return asyncio.run(_settled(plane.kubeconfig, url))


async def _settled(kubeconfig: Path, url: str) -> list[Figure]:
    settings = Settings(namespaces=(NAMESPACE,), slurmrestd_url=url)
    site = Site(workloads=structure.load(structure.folder(None)), sidecars_image="sidecars:bench")
    async with Client.connect(load_credentials(kubeconfig)) as client:
        await _create(client)
        work = asyncio.create_task(lead(client, settings, site))
        try:
            await _until_still(client)
            before, cpu, start = await _versions(client), time.process_time(), time.monotonic()
            await asyncio.sleep(IDLE_SECONDS)
            cpu, seconds = time.process_time() - cpu, time.monotonic() - start
            after = await _versions(client)
            generations = await _generations(client)
            for resource in OURS:
                for item in (await client.list(resource, NAMESPACE))[0]:
                    patch = {"metadata": {"labels": {"helm.sh/chart": "slurm-2", "app.kubernetes.io/version": "2"}}}
                    await client.merge_patch(resource, NAMESPACE, item["metadata"]["name"], patch)
            await _until_still(client)
            rolled = sum(generations[name] != now for name, now in (await _generations(client)).items())
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
    writes = sum(before[name] != version for name, version in after.items()) + len(after.keys() ^ before.keys())
    return [
        figure(f"{CLUSTERS} settled Controllers: objects written", writes * 60 / seconds, "per minute", most=0),
        figure(f"{CLUSTERS} settled Controllers: CPU of the operator", 100 * cpu / seconds, "% of a core", most=1),
        figure("new version of the chart alone: pod templates changed", rolled, "templates", most=0),
    ]


async def _create(client: Client) -> None:
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for name, key in (("slurm-auth-slurm", "slurm.key"), ("slurm-auth-jwt", "jwt.key")):
        data = {key: base64.b64encode(b"k" * 1024).decode()}
        await client.create(
            SECRETS,
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data},
        )
    for number in range(CLUSTERS):
        name = f"slurm-{number}"
        reference = {"controllerRef": {"name": name}}
        await client.create(CONTROLLERS, _custom("Controller", name, {**KEYS, "slurmctld": {"image": "x"}}))
        await client.create(RESTAPIS, _custom("RestApi", name, {**reference, "slurmrestd": {"image": "x"}}))
        await client.create(LOGINSETS, _custom("LoginSet", f"login-{number}", {**reference, "login": {"image": "x"}}))


def _custom(kind: str, name: str, spec: dict[str, Any]) -> Manifest:
    return {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"helm.sh/chart": "slurm-1"}},
        "spec": spec,
    }


async def _versions(client: Client) -> dict[str, str]:
    found: dict[str, str] = {}
    for resource in WRITTEN:
        items, _ = await client.list(resource, NAMESPACE)
        found |= {f"{resource.kind}/{it['metadata']['name']}": it["metadata"]["resourceVersion"] for it in items}
    return found


async def _generations(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for resource in (STATEFUL_SETS, DEPLOYMENTS):
        items, _ = await client.list(resource, NAMESPACE)
        found |= {f"{resource.kind}/{it['metadata']['name']}": it["spec"]["template"] for it in items}
    return found


async def _until_still(client: Client) -> None:
    """Wait until three seconds bring no write, and every cluster has its daemons."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        before = await _versions(client)
        await asyncio.sleep(3)
        if await _versions(client) == before and sum(name.startswith("Deployment/") for name in before) == 2 * CLUSTERS:
            return
    raise TimeoutError(f"{CLUSTERS} clusters were not settled within {SETTLE_SECONDS:g} s")
