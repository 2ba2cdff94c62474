"""The role `bridge`: assembles the parts and runs them until a signal to stop."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from sidecars.bridge import devices, metrics
from sidecars.bridge.certificate import Certificates
from sidecars.bridge.effects import Effects
from sidecars.bridge.guards import Guards
from sidecars.bridge.memory import Memory
from sidecars.bridge.node_records import NodeRecords
from sidecars.bridge.owners import Owners
from sidecars.bridge.passes import Passes
from sidecars.bridge.rights import Rights
from sidecars.bridge.settings import Settings, parse
from sidecars.bridge.slurm import Slurm
from sidecars.contract.logs import PrintableFormatter
from sidecars.kube import (
    CONFIG_MAPS,
    NODES,
    PODS,
    Client,
    CredentialsError,
    Election,
    EventRecorder,
    LeadershipLost,
    Reflector,
    load_credentials,
    run_until_lost,
)
from sidecars.kube.records import ConfigMap
from sidecars.policy.bridge.jobs import JobBook
from sidecars.policy.bridge.manifests import Node, Pod
from sidecars.policy.bridge.usage import UsageBook
from sidecars.serving import serve
from sidecars.slurm.client import Client as SlurmClient
from sidecars.slurm.poller import Poller
from sidecars.slurm.tokens import TokenSource

log = logging.getLogger(__name__)

COMPONENT = "slurm-bridge"
SYNC_SECONDS = 60.0
STUCK_SECONDS = 60.0
"""Seconds without a pass after which the bridge isn't healthy."""
_SUBMITTER_SECONDS = 60
"""Lifetime of the token of a tenant's user."""
_HOST = "0.0.0.0"  # noqa: S104 - a pod's probes come by its own address


def main(arguments: Sequence[str]) -> int:
    """Run the bridge; 0 after SIGTERM or SIGINT, 1 when it can't run or lost its lease."""
    settings = parse(arguments, os.environ)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
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
    """Run until SIGTERM or SIGINT. Raises OSError for a key that can't be read, or a port that is taken."""
    settings.key_file.read_bytes()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    passes: list[Passes] = []

    async with (
        Client.connect(load_credentials(settings.kubeconfig)) as client,
        _serving(settings.health_port, lambda: _healthy(passes)),
    ):
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        election = Election(client.apart(), settings.namespace, settings.lease, identity)
        log.info("waiting for lease %s/%s", settings.namespace, settings.lease)

        async def leading() -> None:
            await lead(client.guarded(election.left), settings, seconds_left=election.left, started=passes.append)

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
    """Schedule until cancelled. Writes to Slurm are sent while `seconds_left` is positive. `now`: monotonic seconds."""

    def connect(user: str, lifetime: int = _SUBMITTER_SECONDS) -> SlurmClient:
        key = settings.key_file.read_bytes
        tokens = TokenSource(key, clock=time.time, username=user, lifetime_seconds=lifetime)
        return SlurmClient(settings.slurmrestd_url, tokens)

    pods = Reflector(client, PODS, type=Pod)
    nodes = Reflector(client, NODES, type=Node)
    namespaces, name = [settings.namespace], f"metadata.name={settings.tenants}"
    tenants = Reflector(client, CONFIG_MAPS, type=ConfigMap, namespaces=namespaces, field_selector=name)
    # With a few request slots of its own: the changes of pods must not wait for many Events.
    events = EventRecorder(client.apart(), COMPONENT, lambda: datetime.now(UTC))
    memory, book, usage = Memory(), JobBook(), UsageBook()

    def wake() -> None:
        passes.wake()

    async with connect(settings.slurm_user, 900) as carrier, asyncio.TaskGroup() as tasks:
        claims, slices, classes = devices.reflectors(client)
        read = (pods, nodes, tenants, *((claims, slices, classes) if settings.devices.claims else ()))
        for it in read:
            tasks.create_task(it.run())
        if settings.webhook:
            tasks.create_task(Certificates(client, settings.namespace, settings.webhook, time.time).run())
        await asyncio.gather(*(it.wait_synced(SYNC_SECONDS) for it in read))
        stores = devices.Stores(claims.store, slices.store, classes.store) if settings.devices.claims else None
        known = devices.Devices(settings.devices, stores, client, now)
        if not tenants.store:
            log.warning("ConfigMap %s/%s is missing: no pod gets a job", settings.namespace, settings.tenants)
        poller = Poller(carrier, now)
        slurm = Slurm(carrier, connect, seconds_left)
        place = settings.namespace, settings.tenants, settings.tenant_role, settings.service_account
        effects = Effects(
            *(client, slurm, pods.store, events, memory, book, known, Rights(events, *place, now)),
            now=now,
            wall=time.time,
            wake=wake,
        )
        records = NodeRecords(slurm, poller, nodes.store, usage, events, known)
        guards = Guards(client, slurm, poller, pods.store)
        owners = Owners(client, now, wake)
        passes = Passes(
            *(
                slurm,
                effects,
                records,
                guards,
                owners,
                pods.store,
                nodes.store,
                tenants.store,
                usage,
                memory,
                book,
                known,
            ),
            partition=settings.partition,
            now=now,
            wall=time.time,
        )
        poller.subscribe(lambda changed, removed: wake())
        tasks.create_task(poller.run())
        metrics.REPORTED.source = passes
        started(passes)
        try:
            await passes.run()
        finally:
            await owners.close()
            await effects.close()
            await slurm.close()


def _healthy(passes: Sequence[Passes]) -> bool:
    """Whether it waits for its lease, or passes end."""
    return not passes or time.monotonic() - passes[-1].last_pass < STUCK_SECONDS


@contextlib.asynccontextmanager
async def _serving(port: int, healthy: Callable[[], bool]) -> AsyncIterator[None]:
    """Serve /healthz, /readyz and /metrics."""

    async def health(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if healthy() else web.Response(status=503, text="no pass has ended lately\n")

    async def ready(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

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
