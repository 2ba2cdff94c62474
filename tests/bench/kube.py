"""Benchmark `kube`: list and watch of 5,000 worker pods, each client in a process of its own, from
the same server.

The pods are those of this product, with the status and managedFields of running ones. Every client
takes in the list, then one change of each pod from the watch. The clients are in
`tests.bench.watchers`. How a watch treats a sick server is counted in virtual time; how soon a
killed leader is replaced is taken on a real API server.
"""

import asyncio
import functools
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from aiohttp import web

from sidecars.kube import Client, Reflector, load_credentials, resources
from sidecars.objects import ConfigMap
from sidecars.workloads import nodeset
from tests.bench.figures import Figure, figure
from tests.bench.serving import served
from tests.bench.watchers import PODS_PATH, Spent
from tests.cluster.control_plane import ControlPlane
from tests.support import builders
from tests.support.candidate import LEASE_DURATION, Log, running
from tests.support.config_maps import config_map, following, until
from tests.support.kube_double import KubeDouble
from tests.support.virtual_time import run_with_sockets

PODS = 5_000
TIMES = 5
SECONDS = 300.0
ROOT = Path(__file__).parents[2]
NOW = "2026-11-20T12:00:00Z"
LISTED, CHANGED = 100_000, 200_000  # resourceVersions of the list, and of the last change


def bench() -> list[Figure]:
    """The figures."""
    with served(apiserver) as url:
        # In turns, so that a busy moment of this machine affects both.
        pairs = [(_run("reflector", url), _run("bare", url)) for _ in range(TIMES)]
        ours, bare = (
            Spent(*map(statistics.median, zip(*runs, strict=True)))
            for runs in zip(*pairs, strict=True)
        )
        official = _run("official", url)
    size = len(_encode(pod(0, LISTED)))
    floor, peer = "bare aiohttp loop, same fields", "kubernetes client's SharedInformer"
    total, bare_total, peer_total = (
        spent.list_cpu + spent.watch_cpu for spent in (ours, bare, official)
    )
    event, bare_event = (spent.watch_cpu / PODS * 1e6 for spent in (ours, bare))
    name = f"list and watch of {PODS} pods of {size / 1e3:.1f} kB"
    return [
        figure(f"{name}: CPU", total, "s", against=(floor, bare_total), most_times=1.5),
        figure("the same, and the official client", total, "s", against=(peer, peer_total)),
        figure("list: CPU", ours.list_cpu, "s", against=(floor, bare.list_cpu)),
        figure("watch: CPU per event", event, "µs", against=(floor, bare_event)),
        figure("RSS growth", ours.rss, "MiB", against=(floor, bare.rss), most=60),
        figure("peak RSS growth", ours.peak_rss, "MiB", against=(floor, bare.peak_rss), most=60),
        figure(
            "peak RSS growth, and the official client",
            ours.peak_rss,
            "MiB",
            against=(peer, official.peak_rss),
        ),
        figure(
            "requests of a watch in 60 s of HTTP 500",
            run_with_sockets(_requests_of_a_sick_minute()),
            "requests",
            most=30,
        ),
        figure(
            "leader killed: the next one's first write",
            asyncio.run(_takeover()),
            "s",
            against=("lease duration", LEASE_DURATION),
            most=LEASE_DURATION + 2,
        ),
    ]


async def _requests_of_a_sick_minute() -> float:
    async with KubeDouble() as server, Client.connect(server.credentials) as client:
        reflector = Reflector(client, resources.CONFIG_MAPS, type=ConfigMap)
        async with following(reflector):
            server.always = "500"
            server.end_streams()
            before = len(server.calls)
            await asyncio.sleep(60)
            return len(server.calls) - before


async def _takeover() -> float:
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane.temporary(Path(folder))
        try:
            async with Client.connect(load_credentials(plane.kubeconfig)) as client:
                await client.create(resources.CONFIG_MAPS, config_map("default", "log"))
                reflector = Reflector(
                    client, resources.CONFIG_MAPS, namespaces=["default"], type=ConfigMap
                )
                log = Log(reflector)
                async with following(reflector), running(plane.kubeconfig, "default", "one") as one:
                    await until(lambda: "one" in log.writers, "the first to lead")
                    async with running(plane.kubeconfig, "default", "two"):
                        # Until the second waits for the lease.
                        await asyncio.sleep(LEASE_DURATION)
                        killed = asyncio.get_running_loop().time()
                        one.kill()
                        await until(lambda: "two" in log.writers, "the second to lead")
                        return log.first("two") - killed
        finally:
            plane.stop()


def _run(client: str, url: str) -> Spent:
    command = [sys.executable, "-m", "tests.bench.watchers", client, url, str(PODS)]
    output = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=SECONDS
    ).stdout
    return Spent(**json.loads(output))


def pod(ordinal: int, version: int) -> dict[str, Any]:
    """A running worker pod as the API server shows it."""
    found = nodeset.pod(*_template(), ordinal, "6d9c7b9f5d", f"kube-{ordinal}")
    spec, metadata = found["spec"], found["metadata"]
    address = f"10.{ordinal >> 16}.{ordinal >> 8 & 255}.{ordinal & 255}"
    condition = {
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": NOW,
        "observedGeneration": 1,
    }
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    metadata |= {
        "uid": f"00000000-0000-4000-8000-{ordinal:012d}",
        "resourceVersion": str(version),
        "creationTimestamp": NOW,
        "generation": 1,
    }
    fields = {
        "f:metadata": _owned({k: metadata[k] for k in ("labels", "annotations")}),
        "f:spec": _owned(spec),
    }
    spec |= {
        "nodeName": f"kube-{ordinal}",
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
    }
    status = {
        "phase": "Running",
        "conditions": [condition | {"type": type} for type in types],
        "hostIP": "192.168.0.1",
        "hostIPs": [{"ip": "192.168.0.1"}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": NOW,
        "qosClass": "Burstable",
        "containerStatuses": [_status(container) for container in spec["containers"]],
        "initContainerStatuses": [_status(container) for container in spec["initContainers"]],
    }
    manager = {"operation": "Update", "apiVersion": "v1", "time": NOW, "fieldsType": "FieldsV1"}
    metadata["managedFields"] = [
        manager | {"manager": "slurm-operator", "fieldsV1": fields},
        manager
        | {"manager": "kubelet", "subresource": "status", "fieldsV1": {"f:status": _owned(status)}},
    ]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


@functools.cache
def _template() -> tuple[Any, dict[str, Any]]:
    image = {"image": "registry.invalid/slurm-charts/slurmd:26.05"}
    wanted = builders.nodeset(
        template={"spec": {"hostname": "slinky-"}}, slurmd=image, logfile=image
    )
    return wanted, nodeset.pod_template(wanted, builders.controller(), builders.facts())


def _status(container: dict[str, Any]) -> dict[str, Any]:
    image = container["image"]
    return {
        "name": container["name"],
        "image": image,
        "imageID": f"{image.partition(':')[0]}@sha256:{'5a' * 32}",
        "containerID": f"containerd://{'c0' * 32}",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "lastState": {},
        "state": {"running": {"startedAt": NOW}},
    }


def _owned(value: Any) -> dict[str, Any]:
    """As managedFields name a value; lists by their items' names."""
    if isinstance(value, list):
        items = (item for item in value if isinstance(item, dict))
        return {
            f'k:{{"name":"{item.get("name", item.get("type", ""))}"}}': {".": {}} | _owned(item)
            for item in items
        }
    return (
        {f"f:{key}": _owned(inner) for key, inner in value.items()}
        if isinstance(value, dict)
        else {}
    )


def apiserver() -> web.Application:
    """The list, whole or in pages; a watch sends a change of every pod, then stays open."""
    listed = [_encode(pod(ordinal, LISTED - PODS + ordinal)) for ordinal in range(PODS)]
    lines = [
        b'{"type":"MODIFIED","object":%s}\n' % _encode(pod(ordinal, CHANGED - PODS + ordinal))
        for ordinal in range(PODS)
    ]

    async def pods(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            for line in lines:
                await response.write(line)
            await asyncio.Event().wait()
        start = int(request.query.get("continue") or 0)
        limit = int(request.query.get("limit") or PODS)
        metadata: dict[str, Any] = {"resourceVersion": str(LISTED)}
        if start + limit < PODS:
            metadata["continue"] = str(start + limit)
        items = b",".join(listed[start : start + limit])
        head = b'{"kind":"PodList","apiVersion":"v1","metadata":%s,"items":[' % _encode(metadata)
        return web.Response(body=head + items + b"]}", content_type="application/json")

    application = web.Application()
    application.router.add_get(PODS_PATH, pods)
    return application


def _encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
