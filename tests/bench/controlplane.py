"""Benchmark `controlplane`: what 50 settled Slurm clusters cost, what a new version of the chart
changes, what large ConfigMaps of others in the namespace cost, and how long it takes until
slurmctld runs a changed setting.

The clusters: the operator in a process of its own on a real kube-apiserver and etcd, each
Controller with Accounting, RestApi, LoginSet, Token and a NodeSet of two workers on simulated
kubelets; one simulated Slurm answers for them all. The setting: real Slurm on a local cluster of
its own, on which `sinfo` and `srun` are called all the time.
"""

import asyncio
import itertools
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sidecars.kube import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NODES,
    PODS,
    SECRETS,
    STATEFUL_SETS,
    Client,
    Manifest,
    Resource,
    load_credentials,
)
from sidecars.simulate import SlurmModel
from tests.bench.figures import Figure, figure
from tests.bench.kubelets import Kubelets, kubelets
from tests.bench.operator import Operator, until
from tests.cluster.control_plane import ControlPlane
from tests.support import bulk
from tests.support.apiserver import (
    KEYS,
    KINDS,
    WatchedNamespace,
    control_plane,
    custom,
    namespace,
    secret,
)
from tests.support.config_maps import config_map
from tests.support.real.configuration import calling, change_timeout, until_running
from tests.support.real.installed import cluster, install_operator, install_slurm

CLUSTERS = 50
WORKERS = 2
CHANGES = 10
IDLE_SECONDS = 60.0
STILL_SECONDS = 5.0
SETTLE_SECONDS = 90.0
"""What the operator does once for each new cluster is over by then."""
CONFIG_MAPS_OF_OTHERS, CONFIG_MAP_BYTES = 2_000, 500 * 1024
CHANGE_SECONDS = 1.0
"""One of the ConfigMaps of others changes this often."""
BESIDE_SECONDS = 120.0
BESIDE_SETTLE_SECONDS = 180.0
"""An operator that was started again writes each object once; what slurmctld's pods must answer
for, after a minute.
"""
ETCD_OPTIONS = (f"--quota-backend-bytes={4 * 2**30}",)
"""The ConfigMaps of others are 1 GiB; etcd's default bound is 2 GiB with all old revisions."""
NAMESPACE = "bench"
OF_OTHERS, EMPTY = "of-others", "empty"
"""Namespaces: of the ConfigMaps of others, and one that the operator watches in its place for the
comparison.
"""
ROLLED = (STATEFUL_SETS, DEPLOYMENTS, PODS)
WRITTEN = (*KINDS.values(), CONFIG_MAPS, SECRETS, *ROLLED)


def bench() -> list[Figure]:
    """The figures."""
    with TemporaryDirectory() as folder, control_plane(Path(folder), ETCD_OPTIONS) as plane:
        settled = asyncio.run(_settled(plane))
    return [*settled, *_changes()]


async def _settled(plane: ControlPlane) -> list[Figure]:
    async with (
        Client.connect(load_credentials(plane.kubeconfig)) as client,
        kubelets(plane.kubeconfig) as nodes,
        namespace(client, NAMESPACE),
        namespace(client, OF_OTHERS),
        namespace(client, EMPTY),
    ):
        await _create(WatchedNamespace(client, NAMESPACE, SlurmModel(), nodes.url), nodes)
        operator = Operator(plane, NAMESPACE, nodes.url)
        try:
            await until("the workers are ready", lambda: nodes.ask("pods")[1] == CLUSTERS * WORKERS)
            await _until_still(client)
            await asyncio.sleep(SETTLE_SECONDS)
            await operator.until_quiet()
            nodes.ask("forget")
            before, cpu, start = await _versions(client), operator.cpu(), time.monotonic()
            await asyncio.sleep(IDLE_SECONDS)
            cpu, seconds = operator.cpu() - cpu, time.monotonic() - start
            after, (_, asked, written) = await _versions(client), nodes.ask("requests")
            memory = operator.memory("VmRSS")
            templates = await _templates(client)
            await _upgrade_chart(client)
            await _until_still(client)
            rolled = sum(
                templates.get(name) != now for name, now in (await _templates(client)).items()
            )
        finally:
            operator.stop()
        of_others = await _config_maps_of_others(plane, client, nodes)
    writes = written + sum(
        before.get(name) != after.get(name) for name in before.keys() | after.keys()
    )
    return [
        figure(
            f"{CLUSTERS} settled clusters: objects written",
            writes * 60 / seconds,
            "per minute",
            most=0,
        ),
        figure(
            f"{CLUSTERS} settled clusters: CPU of the operator",
            100 * cpu / seconds,
            "% of a core",
            most=1,
        ),
        figure(f"{CLUSTERS} settled clusters: RSS of the operator", memory, "MiB"),
        figure(
            f"{CLUSTERS} settled clusters: requests to slurmrestd",
            asked * 60 / seconds,
            "per minute",
        ),
        figure(
            "new version of the chart alone: templates and pods changed", rolled, "objects", most=0
        ),
        *of_others,
    ]


async def _config_maps_of_others(
    plane: ControlPlane, client: Client, nodes: Kubelets
) -> list[Figure]:
    """An operator that watches them, and one that doesn't: the API server has the same load beside
    both.
    """

    async def create(number: int) -> None:
        await client.create(
            CONFIG_MAPS, config_map(OF_OTHERS, f"of-others-{number}", x="x" * CONFIG_MAP_BYTES)
        )

    async def change() -> None:
        for number in itertools.count():
            patch = {"data": {"changed": str(number)}}
            await client.merge_patch(CONFIG_MAPS, OF_OTHERS, "of-others-0", patch)
            await asyncio.sleep(CHANGE_SECONDS)

    await bulk.each(partial(create, number) for number in range(CONFIG_MAPS_OF_OTHERS))
    changing = asyncio.create_task(change())
    try:
        memory_without, cpu_without = await _spent(plane, nodes, EMPTY)
        memory, cpu = await _spent(plane, nodes, OF_OTHERS)
        if changing.done():
            changing.result()
    finally:
        changing.cancel()
    name = f"{CONFIG_MAPS_OF_OTHERS} ConfigMaps of others, {CONFIG_MAP_BYTES // 1024} KiB each"
    without = "in a namespace that isn't watched"
    return [
        figure(
            f"{name}: RSS of the operator",
            memory,
            "MiB",
            against=(without, memory_without),
            most_times=1.1,
        ),
        figure(
            f"{name}: CPU of the operator",
            cpu,
            "% of a core",
            against=(without, cpu_without),
            most_times=1.1,
        ),
    ]


async def _spent(plane: ControlPlane, nodes: Kubelets, other: str) -> tuple[float, float]:
    """RSS in MiB and CPU in % of a core of an operator that watches the namespace `other`, too, and
    has settled.
    """
    operator = Operator(plane, NAMESPACE, nodes.url, others=[other])
    try:
        await until("the operator to lead", lambda: "reconciling" in operator.logged())
        await asyncio.sleep(BESIDE_SETTLE_SECONDS)
        cpu, start = operator.cpu(), time.monotonic()
        await asyncio.sleep(BESIDE_SECONDS)
        return operator.memory("VmRSS"), 100 * (operator.cpu() - cpu) / (time.monotonic() - start)
    finally:
        operator.stop()


def _changes() -> list[Figure]:
    """On the local cluster `bench`."""
    with cluster("bench") as kubernetes:
        install_operator(kubernetes)
        slurm = install_slurm(kubernetes)
        until_running(slurm)
        with calling(slurm) as counts:
            took = [change_timeout(slurm, 200 + number) for number in range(CHANGES)]
    return [
        figure("extraConf changed → running, longest", max(took), "s", most=5),
        figure("extraConf changed → running, shortest", min(took), "s"),
        figure("calls of sinfo and srun meanwhile", counts["calls"], "calls"),
        figure("calls of sinfo and srun that failed", counts["failed"], "calls", most=0),
    ]


async def _create(world: WatchedNamespace, nodes: Kubelets) -> None:
    names = [f"kube-{number}" for number in range(CLUSTERS * WORKERS)]
    manifests = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in names]
    await bulk.each(partial(world.client.create, NODES, manifest) for manifest in manifests)
    nodes.ask("add_kube_nodes", names)
    for name, key in (
        ("slurm-auth-slurm", "slurm.key"),
        ("slurm-auth-jwt", "jwt.key"),
        ("mariadb-password", "password"),
        ("sssd", "sssd.conf"),
    ):
        await world.create(secret(name, key, b"k" * 1024))
    for number in range(CLUSTERS):
        for manifest in _cluster(number):
            manifest["metadata"]["labels"] = {"helm.sh/chart": "slurm-1"}
            await world.create(manifest)


def _cluster(number: int) -> list[Manifest]:
    """All kinds of one cluster."""
    name = f"slurm-{number}"
    of: dict[str, Any] = {"controllerRef": {"name": name}}
    password = {"name": "mariadb-password", "key": "password"}
    storage = {"host": "mariadb", "username": "slurm", "passwordKeyRef": password}
    sssd = {"name": "sssd", "key": "sssd.conf"}
    return [
        custom("Accounting", name, {**KEYS, "storageConfig": storage, "slurmdbd": {"image": "x"}}),
        custom(
            "Controller",
            name,
            {**KEYS, "slurmctld": {"image": "x"}, "accountingRef": {"name": name}},
        ),
        custom("RestApi", name, {**of, "slurmrestd": {"image": "x"}}),
        custom("LoginSet", f"login-{number}", {**of, "login": {"image": "x"}, "sssdConfRef": sssd}),
        custom(
            "NodeSet", f"workers-{number}", {**of, "replicas": WORKERS, "slurmd": {"image": "x"}}
        ),
        custom("Token", name, {"jwtKeyRef": KEYS["jwtKeyRef"], "username": "slurm"}),
    ]


async def _upgrade_chart(client: Client) -> None:
    """What `helm upgrade` to a chart of another version alone changes."""
    patch = {"metadata": {"labels": {"helm.sh/chart": "slurm-2", "app.kubernetes.io/version": "2"}}}
    for resource in KINDS.values():
        items, _ = await client.list(resource, NAMESPACE)
        for item in items:
            await client.merge_patch(resource, NAMESPACE, item["metadata"]["name"], patch)


async def _by_name(
    client: Client, resources: tuple[Resource, ...], of: Callable[[Manifest], Any]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for resource in resources:
        items, _ = await client.list(resource, NAMESPACE)
        found |= {f"{resource.kind}/{item['metadata']['name']}": of(item) for item in items}
    return found


async def _versions(client: Client) -> dict[str, Any]:
    return await _by_name(client, WRITTEN, lambda item: item["metadata"]["resourceVersion"])


async def _templates(client: Client) -> dict[str, Any]:
    """The pod templates, and each pod's uid."""
    return await _by_name(
        client, ROLLED, lambda item: item["spec"].get("template") or item["metadata"]["uid"]
    )


async def _report_ready(client: Client) -> None:
    """What the controllers of Kubernetes would report; each of these has one pod."""
    counts = ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas")
    for resource in (STATEFUL_SETS, DEPLOYMENTS):
        items, _ = await client.list(resource, NAMESPACE)
        for item in items:
            status = {
                "observedGeneration": item["metadata"]["generation"],
                **dict.fromkeys(counts, 1),
            }
            if item.get("status", {}).get("observedGeneration") != status["observedGeneration"]:
                name = item["metadata"]["name"]
                await client.merge_patch(
                    resource, NAMESPACE, name, {"status": status}, subresource="status"
                )


async def _until_still(client: Client) -> None:
    async def still() -> bool:
        await _report_ready(client)
        before = await _versions(client)
        await asyncio.sleep(STILL_SECONDS)
        daemons = sum(name.startswith(("Deployment/", "StatefulSet/")) for name in before)
        return daemons == 4 * CLUSTERS and await _versions(client) == before

    await until(f"{4 * CLUSTERS} StatefulSets and Deployments exist, and nothing is written", still)
