"""The role `bridge`: assembles the parts and runs them until a signal to stop."""

import asyncio
import contextlib
import logging
import os
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from sidecars.bridge import claimed_devices, metrics
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
    CredentialsError,
    Election,
    EventRecorder,
    KubeError,
    LeadershipLost,
    Reflector,
    load_credentials,
    run_until_lost,
)
from sidecars.objects import ConfigMap, Secret
from sidecars.policy.bridge.jobs import JobBook
from sidecars.policy.bridge.manifests import Node, Pod
from sidecars.policy.bridge.usage import UsageBook
from sidecars.program import log_to_stderr, stop_signal
from sidecars.serving import serve
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
    expected = (CredentialsError, LeadershipLost, OSError, TimeoutError)
    try:
        run_until_lost(run(settings))
    except expected as error:
        log.error("%s", error)
        return 1
    except ExceptionGroup as group:
        if group.split(expected)[1] is not None:
            raise
        for failure in group.exceptions:
            log.error("%s", failure)
        return 1
    return 0


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises OSError for a key or a token that can't be read, or a
    port that is taken.
    """
    check(settings)
    stop = stop_signal()
    passes: list[Passes] = []

    async with (
        Client.connect(load_credentials(settings.kubeconfig)) as client,
        _serving(settings.health_port, lambda: _healthy(passes), lambda: _unsupported(passes)),
    ):
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        election = Election(client.apart(), settings.namespace, settings.lease, identity)
        log.info("waiting for lease %s/%s", settings.namespace, settings.lease)

        async def leading() -> None:
            await lead(
                client.guarded(election.left),
                settings,
                seconds_left=election.left,
                started=passes.append,
            )

        work = asyncio.create_task(election.run(leading))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if stop.is_set():
            log.info("stopping")
            work.cancel()
        try:
            await work
        except asyncio.CancelledError:
            if not stop.is_set():
                raise


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


def _healthy(passes: Sequence[Passes]) -> bool:
    """Return whether it waits for its lease, or passes end."""
    return not passes or time.monotonic() - passes[-1].last_pass < STUCK_SECONDS


def _unsupported(passes: Sequence[Passes]) -> str:
    """Return why Slurm can't be used, "" if it can, or is another replica's."""
    return passes[-1].unsupported if passes else ""


@contextlib.asynccontextmanager
async def _serving(
    port: int, healthy: Callable[[], bool], unsupported: Callable[[], str] = str
) -> AsyncIterator[None]:
    """Serve /healthz, /readyz and /metrics."""

    async def health(_: web.Request) -> web.Response:
        return (
            web.Response(text="ok\n")
            if healthy()
            else web.Response(status=503, text="no pass has ended lately\n")
        )

    async def ready(_: web.Request) -> web.Response:
        problem = unsupported()
        return web.Response(text=f"{problem or 'ok'}\n", status=503 if problem else 200)

    async def measured(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/healthz", health)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/metrics", measured)
    if not port:
        yield
        return
    end = await serve(app, _HOST, port, None)
    try:
        yield
    finally:
        await end()
