"""The role `bridge`: assembles the parts and runs them until a signal to stop."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from aiohttp import web

from sidecars.bridge import claimed_devices, metrics
from sidecars.bridge.core.jobs import JobBook
from sidecars.bridge.core.manifests import Node, Pod
from sidecars.bridge.core.usage import UsageBook
from sidecars.bridge.credentials import Credentials, check
from sidecars.bridge.effects import Effects
from sidecars.bridge.guarded_nodes import Guards
from sidecars.bridge.memory import Memory
from sidecars.bridge.node_records import NodeRecords
from sidecars.bridge.owners import Owners
from sidecars.bridge.parts import Books, Clock, Kubernetes
from sidecars.bridge.passes import Parts, Passes
from sidecars.bridge.rights import Installation, Rights
from sidecars.bridge.settings import Settings, parse
from sidecars.bridge.slurm import Slurm
from sidecars.bridge.webhook_certificate import Certificates
from sidecars.kube import (
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    Client,
    EventRecorder,
    KubeError,
    Reflector,
    candidate,
    load_credentials,
    status_of,
)
from sidecars.objects import ConfigMap, Secret
from sidecars.program import log_to_stderr, stop_signal, until
from sidecars.serving import add_probes, measurements, serve
from sidecars.slurm.poller import Poller

log = logging.getLogger(__name__)

COMPONENT = "slurm-bridge"
SYNC_SECONDS = 60.0
AGAIN_SECONDS = 5.0
"""Seconds between two questions for the Kubernetes cluster."""
STUCK_SECONDS = 60.0
"""Seconds without a pass after which the bridge isn't healthy."""
_HOST = ""
"""All addresses: probes come by the pod's own."""


def main(arguments: Sequence[str]) -> int:
    """Run the bridge; 0 after SIGTERM or SIGINT, 1 when it can't run or lost its lease."""
    settings = parse(arguments, os.environ)
    log_to_stderr(settings.log_level)
    return status_of(run(settings))


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises OSError for a key or a token that can't be read, or a
    port that is taken.
    """
    check(settings)
    stop = stop_signal()
    passes: list[Passes] = []

    async with contextlib.AsyncExitStack() as parts:
        credentials = load_credentials(settings.kubeconfig)
        client = await parts.enter_async_context(Client.connect(credentials))
        if settings.health_port:
            app = pages(lambda: _fault(passes), lambda: _unsupported(passes))
            parts.push_async_callback(await serve(app, _HOST, settings.health_port, None))
        await until(stop, _elected(client, settings, passes.append))


async def _elected(client: Client, settings: Settings, started: Callable[[Passes], None]) -> None:
    election = candidate(client, settings.namespace, settings.lease)
    guarded = client.guarded(election.left)
    await election.run(lambda: lead(guarded, settings, seconds_left=election.left, started=started))


async def lead(
    client: Client,
    settings: Settings,
    *,
    seconds_left: Callable[[], float] = lambda: float("inf"),
    started: Callable[[Passes], None] = lambda _: None,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Schedule until cancelled. Writes to Slurm are sent while `seconds_left` is positive. `now`:
    monotonic seconds.
    """
    cluster = await _cluster(client)
    pods = Reflector(client, PODS, type=Pod)
    nodes = Reflector(client, NODES, type=Node)
    namespaces, name = [settings.namespace], f"metadata.name={settings.tenants}"
    tenants = Reflector(
        client, CONFIG_MAPS, type=ConfigMap, namespaces=namespaces, field_selector=name
    )
    secrets = _token_secrets(client, settings)
    credentials = Credentials(settings, secrets.store)
    # With a few request slots of its own: the changes of pods must not wait for many Events.
    events = EventRecorder(client.apart(), COMPONENT, lambda: datetime.now(UTC))

    def wake() -> None:
        passes.wake()

    async with credentials.own() as carrier, asyncio.TaskGroup() as tasks:
        claims, slices, classes = claimed_devices.reflectors(client)
        read = (
            pods,
            nodes,
            tenants,
            *((secrets,) if settings.token_secret is not None else ()),
            *((claims, slices, classes) if settings.devices.claims else ()),
        )
        for it in read:
            tasks.create_task(it.run())
        if settings.webhook:
            tasks.create_task(
                Certificates(client, settings.namespace, settings.webhook, time.time).run()
            )
        await asyncio.gather(*(it.wait_synced(SYNC_SECONDS) for it in read))
        stores = (
            claimed_devices.Stores(claims.store, slices.store, classes.store)
            if settings.devices.claims
            else None
        )
        known = claimed_devices.Devices(settings.devices, stores, client, now)
        if not tenants.store:
            log.warning(
                "ConfigMap %s/%s is missing: no pod gets a job",
                settings.namespace,
                settings.tenants,
            )
        poller = Poller(carrier, now)
        slurm = Slurm(carrier, credentials.of, seconds_left)
        clock = Clock(now, time.time)
        books = Books(Memory(), JobBook(cluster), UsageBook())
        kube = Kubernetes(client, events, pods.store, nodes.store, tenants.store)
        installation = Installation(
            settings.namespace, settings.tenants, settings.tenant_role, settings.service_account
        )
        rights = Rights(
            client, events, installation, now, wake, claims=bool(settings.devices.claims)
        )
        effects = Effects(kube, slurm, books, known, rights, clock, wake, cluster)
        owners = Owners(client, now, wake)
        parts = Parts(
            kube=kube,
            slurm=slurm,
            effects=effects,
            node_records=NodeRecords(
                *(slurm, poller, nodes.store, books.usage, events, known),
                cluster=cluster,
                reserve=settings.reserve,
            ),
            guards=Guards(client, slurm, poller, pods.store),
            owners=owners,
            rights=rights,
            devices=known,
            books=books,
            release=lambda: poller.release,
        )
        passes = Passes(parts, clock, settings.partition, cluster)
        # Before any job is submitted, it is known whether Slurm can be used.
        await poller.poll()
        poller.subscribe(lambda changed, removed: wake())
        tasks.create_task(poller.run())
        metrics.REPORTED.source = passes
        started(passes)
        try:
            await passes.run()
        finally:
            await owners.close()
            await rights.close()
            await effects.close()
            await slurm.close()


async def _cluster(client: Client) -> str:
    """Return what identifies the Kubernetes cluster, when the API server answers: the uid of a
    namespace that every cluster has.
    """
    while True:
        try:
            found = await client.get(NAMESPACES, None, "kube-system")
        except KubeError as error:
            log.warning("no pod gets a job, because the Kubernetes cluster isn't known: %s", error)
            await asyncio.sleep(AGAIN_SECONDS)
        else:
            return str(found["metadata"]["uid"])


def _token_secrets(client: Client, settings: Settings) -> Reflector[Secret]:
    """Watch the Secret of the bridge's token, and no other."""
    place = settings.token_secret
    namespaces = [place.namespace] if place is not None else [settings.namespace]
    selector = f"metadata.name={place.name}" if place is not None else ""
    return Reflector(client, SECRETS, type=Secret, namespaces=namespaces, field_selector=selector)


def _fault(passes: Sequence[Passes]) -> str:
    """Return why the bridge has to be restarted, "" while it waits for its lease or passes end."""
    ended = not passes or time.monotonic() - passes[-1].last_pass < STUCK_SECONDS
    return "" if ended else "no pass has ended lately"


def _unsupported(passes: Sequence[Passes]) -> str:
    """Return why Slurm can't be used, "" if it can, or is another replica's."""
    return passes[-1].unsupported if passes else ""


def pages(fault: Callable[[], str] = str, problem: Callable[[], str] = str) -> web.Application:
    """Return the paths: /healthz, /readyz and /metrics."""
    app = web.Application()
    add_probes(app, fault, problem)
    app.router.add_get("/metrics", measurements)
    return app
